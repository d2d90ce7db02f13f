//! What the kernel lets this user see of other processes, which captures and the names of kernel functions need.

use std::path::{Path, PathBuf};

use symseal_server::Finding;

/// Where a kernel tells of itself, and what this process may do. (Linux, include/uapi/linux/capability.h)
pub(super) struct Machine {
    /// `/proc/sys/kernel`
    settings: PathBuf,
    /// `/sys/kernel/btf/vmlinux`
    btf: PathBuf,
    rights: Rights,
}

/// The capabilities of a process: root has them all, but in a container it mostly has a few.
#[derive(Debug, Clone, Copy, Default)]
struct Rights(u64);

impl Rights {
    const SYS_PTRACE: u8 = 19;
    const SYS_ADMIN: u8 = 21;
    const SYSLOG: u8 = 34;
    const PERFMON: u8 = 38;

    /// Those that count now, out of the lines of `/proc/PID/status`.
    fn of_status(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default())
    }

    fn has(self, capability: u8) -> bool {
        self.0 >> capability & 1 == 1
    }

    fn may_trace(self) -> bool {
        self.has(Self::SYS_PTRACE)
    }

    fn may_see_addresses(self) -> bool {
        self.has(Self::SYSLOG)
    }

    fn may_record(self) -> bool {
        self.has(Self::PERFMON) || self.has(Self::SYS_ADMIN)
    }
}

impl Machine {
    /// This one.
    pub(super) fn this() -> Self {
        let rights = Rights::of_status(&read(Path::new("/proc/self/status")).unwrap_or_default());
        Self { settings: "/proc/sys/kernel".into(), btf: "/sys/kernel/btf/vmlinux".into(), rights }
    }

    /// The number in a setting; `None` where this kernel has none of that name.
    fn setting(&self, name: &str) -> Option<i32> {
        read(&self.settings.join(name))?.trim().parse().ok()
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

pub(super) fn look(machine: &Machine) -> Vec<Finding> {
    if machine.setting("pid_max").is_none() {
        return vec![Finding::skipped("capture.ptrace", "processes are captured on Linux alone")];
    }
    vec![ptrace(machine), perf(machine), kernel_names(machine), btf(machine)]
}

/// Linux, Documentation/admin-guide/LSM/Yama.rst.
fn ptrace(machine: &Machine) -> Finding {
    const ID: &str = "capture.ptrace";
    const SET: &str = "sysctl kernel.yama.ptrace_scope=0 lets a user trace all of their own processes; or run trace-capture with CAP_SYS_PTRACE, which root has outside of containers (docker run --cap-add SYS_PTRACE)";
    match machine.setting("yama/ptrace_scope") {
        None | Some(0..=2) if machine.rights.may_trace() => {
            Finding::ok(ID, "all processes can be captured: this one has CAP_SYS_PTRACE")
        }
        None | Some(0) => Finding::ok(
            ID,
            "this user's processes can be captured; those of others, and those with more rights than this one, with CAP_SYS_PTRACE alone",
        ),
        Some(1) => Finding::warning(
            ID,
            "kernel.yama.ptrace_scope is 1, and this process has no CAP_SYS_PTRACE: of this user's processes those alone can be captured that let themselves be (prctl PR_SET_PTRACER)",
            SET,
        ),
        Some(2) => Finding::warning(
            ID,
            "kernel.yama.ptrace_scope is 2: CAP_SYS_PTRACE alone may capture, which this process has not",
            SET,
        ),
        Some(scope) => Finding::problem(
            ID,
            format!("kernel.yama.ptrace_scope is {scope}: nobody may capture until the next boot"),
            "start the machine with another setting: it cannot be lowered while it runs",
        ),
    }
}

/// Linux, Documentation/admin-guide/sysctl/kernel.rst, "perf_event_paranoid"; Debian and Ubuntu know 3 and 4 too.
fn perf(machine: &Machine) -> Finding {
    const ID: &str = "capture.perf";
    match machine.setting("perf_event_paranoid") {
        None => Finding::skipped(ID, "this kernel has no perf events"),
        Some(_) if machine.rights.may_record() => {
            Finding::ok(ID, "perf record may record everything: this process has CAP_PERFMON or CAP_SYS_ADMIN")
        }
        Some(level) if level <= 1 => Finding::ok(
            ID,
            format!(
                "kernel.perf_event_paranoid is {level}: perf record may record this user's processes, and their time in the kernel"
            ),
        ),
        Some(2) => Finding::ok(
            ID,
            "kernel.perf_event_paranoid is 2: perf record may record this user's processes, without their time in the kernel",
        ),
        Some(level) => Finding::ok(
            ID,
            format!(
                "kernel.perf_event_paranoid is {level}: this user may not record with perf, which trace-capture does without"
            ),
        ),
    }
}

/// Linux, Documentation/admin-guide/sysctl/kernel.rst, "kptr_restrict".
fn kernel_names(machine: &Machine) -> Finding {
    const ID: &str = "capture.kernel-names";
    match machine.setting("kptr_restrict") {
        None => Finding::skipped(ID, "this kernel does not say whether it hides its addresses"),
        Some(2) => Finding::warning(
            ID,
            "kernel.kptr_restrict is 2: nobody sees the addresses of kernel functions, and frames in the kernel have no names",
            "sysctl kernel.kptr_restrict=1, and capture with CAP_SYSLOG",
        ),
        Some(_) if machine.rights.may_see_addresses() => {
            Finding::ok(ID, "the addresses of kernel functions can be read: this process has CAP_SYSLOG")
        }
        // With 0 it is perf_event_paranoid that decides.
        Some(0) if machine.setting("perf_event_paranoid").is_some_and(|level| level <= 1) => {
            Finding::ok(ID, "the addresses of kernel functions can be read")
        }
        Some(level) => Finding::ok(
            ID,
            format!(
                "kernel.kptr_restrict is {level}, and this process has no CAP_SYSLOG: it does not see the addresses of kernel functions, and frames in the kernel have no names"
            ),
        ),
    }
}

fn btf(machine: &Machine) -> Finding {
    const ID: &str = "capture.btf";
    let shown = machine.btf.display();
    match std::fs::File::open(&machine.btf) {
        Ok(_) => Finding::ok(ID, format!("{shown} can be read")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Finding::skipped(
            ID,
            format!(
                "{shown} is not there: this kernel was built without CONFIG_DEBUG_INFO_BTF, which BPF programs of tracers need and symseal does not"
            ),
        ),
        Err(error) => Finding::warning(
            ID,
            format!("{shown}: {error}"),
            "let this user read it, where tracers that use BPF are to run",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use symseal_server::Standing::{self, Ok as Fine, Problem, Skipped, Warning};

    const USER: &str = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n";
    const ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";
    /// As `grep Cap /proc/self/status` prints it in a container of Docker's.
    const CONTAINER: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n";

    /// A kernel with these settings.
    fn kernel(settings: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in settings.iter().chain(&[("pid_max", "32768")]) {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        }
        let (settings, btf) = (folder.path().to_owned(), folder.path().join("btf"));
        let machine = Machine { settings, btf, rights: Rights::default() };
        (folder, machine)
    }

    #[track_caller]
    fn check(settings: &[(&str, &str)], status: &str, expected: [Standing; 4]) {
        let (_folder, machine) = kernel(settings);
        let found = look(&Machine { rights: Rights::of_status(status), ..machine });
        assert_eq!(found.iter().map(|finding| finding.standing).collect::<Vec<_>>(), expected, "{found:#?}");
    }

    #[test]
    fn what_the_kernel_hides_from_a_user_is_told() {
        check(&[], USER, [Fine, Skipped, Skipped, Skipped]);
        let open = [("yama/ptrace_scope", "0"), ("perf_event_paranoid", "1"), ("kptr_restrict", "0"), ("btf", "")];
        check(&open, USER, [Fine, Fine, Fine, Fine]);
        let usual = [("yama/ptrace_scope", "1"), ("perf_event_paranoid", "2"), ("kptr_restrict", "0"), ("btf", "")];
        check(&usual, USER, [Warning, Fine, Fine, Fine]);
        check(&usual, ROOT, [Fine, Fine, Fine, Fine]);
        let strict = [("yama/ptrace_scope", "2"), ("perf_event_paranoid", "3"), ("kptr_restrict", "2")];
        check(&strict, USER, [Warning, Fine, Warning, Skipped]);
        check(&strict, ROOT, [Fine, Fine, Warning, Skipped]);
        // Root of a container that was given no more than Docker gives: it may do as little as others.
        check(&usual, CONTAINER, [Warning, Fine, Fine, Fine]);
        check(&strict, CONTAINER, [Warning, Fine, Warning, Skipped]);
        check(&usual, "Name:\tx\nCapEff:\t0000000000080000\n", [Fine, Fine, Fine, Fine]);
        check(&[("yama/ptrace_scope", "3")], ROOT, [Problem, Skipped, Skipped, Skipped]);
    }

    #[test]
    fn another_system_captures_nothing_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let (settings, btf) = (folder.path().to_owned(), folder.path().join("btf"));
        let nowhere = Machine { settings, btf, rights: Rights::default() };
        assert_eq!(look(&nowhere).iter().map(|finding| finding.standing).collect::<Vec<_>>(), [Skipped]);
    }
}
