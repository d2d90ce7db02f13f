//! A file of the local store that is cut short while it is mapped: the system ends whoever reads beyond its end. Then it is at least said why.

/// From here on the program ends with a word and the exit status of a wrong input in place of a bare signal.
pub(crate) fn explain() {
    #[cfg(target_os = "linux")]
    linux::explain();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{mem, ptr};

    use super::mapped_file;

    /// What is said, around the name of the file. A signal handler may neither format nor allocate.
    const BEFORE: &str = "error: ";
    const UNNAMED: &str = "a file";
    const BEHIND: &str = " was cut short while it was read in place: expected that nobody changes files of the local store; \
                          `symseal bundle verify` says which ones are not what they were\n";

    /// The exit status of a wrong input.
    const STATUS: i32 = 2;

    #[allow(unsafe_code)]
    pub(super) fn explain() {
        // SAFETY: `sigaction` consists of integers and a pointer that may be null; all zeroes is a value of it.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction =
            on_signal as extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: `action` is valid and complete; the handler has the type that goes with SA_SIGINFO. Where it cannot be set, the system's
        // own way holds.
        unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) };
    }

    #[allow(unsafe_code)]
    extern "C" fn on_signal(signal: libc::c_int, info: *const libc::siginfo_t, _context: *const libc::c_void) {
        // SAFETY: the kernel gives the description of the signal, or nothing. The calls are allowed in a signal handler, and the text is there for
        // as long as the program.
        unsafe {
            let Some(info) = info.as_ref().filter(|info| info.si_code == libc::BUS_ADRERR) else {
                // Failing memory, or somebody's word: the system's own way, which holds again from here on.
                libc::raise(signal);
                return;
            };
            let mut finder = mapped_file::Finder::new(info.si_addr() as usize as u64);
            let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let mut bytes = [0; 1024];
            while let Ok(read @ 1..) = usize::try_from(libc::read(maps, bytes.as_mut_ptr().cast(), bytes.len())) {
                bytes.iter().take(read).for_each(|byte| finder.take(*byte));
            }
            let found = finder.found();
            for part in
                [BEFORE.as_bytes(), if found.is_empty() { UNNAMED.as_bytes() } else { found }, BEHIND.as_bytes()]
            {
                libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len());
            }
            libc::_exit(STATUS);
        }
    }
}

/// The path of the mapping that holds an address, out of the lines of `/proc/PID/maps` (proc_pid_maps(5)), byte by byte: nothing is allocated.
#[cfg(target_os = "linux")]
mod mapped_file {
    /// Bytes of a path that are kept: more than those of any file of a store below a home directory.
    const PATH_BYTES: usize = 512;

    /// Fields before the path, each behind one space: the range, permissions, offset, device and inode.
    const FIELDS: u32 = 5;

    pub(super) struct Finder {
        address: u64,
        /// Of the line that is read: its field, the range as far as it was read, and whether its path is kept.
        field: u32,
        in_field: bool,
        range: [u64; 2],
        is_end: bool,
        path: [u8; PATH_BYTES],
        length: usize,
        is_found: bool,
    }

    impl Finder {
        pub(super) fn new(address: u64) -> Self {
            let (range, path) = ([0; 2], [0; PATH_BYTES]);
            Self { address, field: 0, in_field: false, range, is_end: false, path, length: 0, is_found: false }
        }

        /// The next byte.
        pub(super) fn take(&mut self, byte: u8) {
            if self.is_found {
                return;
            }
            let [start, end] = self.range;
            match byte {
                b'\n' if (start..end).contains(&self.address) => self.is_found = true,
                b'\n' => *self = Self::new(self.address),
                b' ' if self.field < FIELDS => {
                    self.field += u32::from(self.in_field);
                    self.in_field = false;
                }
                b'-' if self.field == 0 => self.is_end = true,
                _ if self.field == 0 => {
                    self.in_field = true;
                    let digit = char::from(byte).to_digit(16).unwrap_or_default();
                    let [start, end] = &mut self.range;
                    let number = if self.is_end { end } else { start };
                    *number = number.wrapping_mul(16).wrapping_add(u64::from(digit));
                }
                b' ' if self.length == 0 => {}
                _ if self.field == FIELDS => {
                    if let Some(place) = self.path.get_mut(self.length) {
                        *place = byte;
                        self.length += 1;
                    }
                }
                _ => self.in_field = true,
            }
        }

        /// The path; nothing where no line had the address.
        pub(super) fn found(&self) -> &[u8] {
            self.path.get(..self.length).filter(|_| self.is_found).unwrap_or_default()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const MAPS: &str = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
35b1800000-35b1820000 r-xp 00000000 08:02 135522  /usr/lib64/with a space.so
f2c6ff8c000-7f2c7078c000 rw-p 00000000 00:00 0
7fffb2c0d000-7fffb2c2e000 rw-p 00000000 00:00 0   [stack]
";

        fn path_of(address: u64) -> String {
            let mut finder = Finder::new(address);
            MAPS.bytes().for_each(|byte| finder.take(byte));
            String::from_utf8(finder.found().to_vec()).unwrap()
        }

        #[test]
        fn the_path_is_that_of_the_mapping_that_holds_the_address() {
            assert_eq!(path_of(0x400000), "/usr/bin/dbus-daemon");
            assert_eq!(path_of(0x452000), "");
            assert_eq!(path_of(0x35b181ffff), "/usr/lib64/with a space.so");
            assert_eq!((path_of(0xf2c6ff8c001), path_of(0x7fffb2c0d000)), (String::new(), "[stack]".into()));
        }

        #[test]
        fn a_path_that_is_too_long_is_cut() {
            let mut finder = Finder::new(1);
            let line = format!("0-2 r--p 0 0:0 1 /{}\n", "a".repeat(5000));
            line.bytes().for_each(|byte| finder.take(byte));
            assert_eq!(finder.found().len(), PATH_BYTES);
        }
    }
}
