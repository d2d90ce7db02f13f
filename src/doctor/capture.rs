//! What the kernel lets this user see of other processes, which captures and the names of kernel functions need.

use std::path::{Path, PathBuf};

use symseal_server::Finding;

/// Where a kernel tells of itself.
pub(super) struct Machine {
    /// `/proc/sys/kernel`
    settings: PathBuf,
    /// `/sys/kernel/btf/vmlinux`
    btf: PathBuf,
    is_root: bool,
}

impl Machine {
    /// This one.
    pub(super) fn this() -> Self {
        #[cfg(unix)]
        let is_root = std::os::unix::fs::MetadataExt::uid(&match std::fs::metadata("/proc/self") {
            Ok(metadata) => metadata,
            Err(_) => return Self { settings: PathBuf::new(), btf: PathBuf::new(), is_root: false },
        }) == 0;
        #[cfg(not(unix))]
        let is_root = false;
        Self { settings: "/proc/sys/kernel".into(), btf: "/sys/kernel/btf/vmlinux".into(), is_root }
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
    const SET: &str = "sysctl kernel.yama.ptrace_scope=0 lets a user trace all of their own processes; or run trace-capture as root, or with CAP_SYS_PTRACE";
    match machine.setting("yama/ptrace_scope") {
        None | Some(0) if machine.is_root => Finding::ok(ID, "all processes can be captured"),
        None | Some(0) => Finding::ok(ID, "this user's processes can be captured"),
        Some(1 | 2) if machine.is_root => Finding::ok(ID, "all processes can be captured, by root alone"),
        Some(1) => Finding::warning(
            ID,
            "kernel.yama.ptrace_scope is 1: of this user's processes those alone can be captured that let themselves be (prctl PR_SET_PTRACER)",
            SET,
        ),
        Some(2) => Finding::warning(ID, "kernel.yama.ptrace_scope is 2: only root and CAP_SYS_PTRACE may capture", SET),
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
        Some(_) if machine.is_root => Finding::ok(ID, "perf record may record everything, as root"),
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
            "sysctl kernel.kptr_restrict=1, and capture as root",
        ),
        Some(_) if machine.is_root => Finding::ok(ID, "the addresses of kernel functions can be read"),
        // With 0 it is perf_event_paranoid that decides.
        Some(0) if machine.setting("perf_event_paranoid").is_some_and(|level| level <= 1) => {
            Finding::ok(ID, "the addresses of kernel functions can be read")
        }
        Some(level) => Finding::ok(
            ID,
            format!(
                "kernel.kptr_restrict is {level}: root and CAP_SYSLOG alone see the addresses of kernel functions; for others frames in the kernel have no names"
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

    /// A kernel with these settings.
    fn kernel(settings: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in settings.iter().chain(&[("pid_max", "32768")]) {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        }
        let machine = Machine { settings: folder.path().to_owned(), btf: folder.path().join("btf"), is_root: false };
        (folder, machine)
    }

    #[track_caller]
    fn check(settings: &[(&str, &str)], is_root: bool, expected: [Standing; 4]) {
        let (_folder, machine) = kernel(settings);
        let found = look(&Machine { is_root, ..machine });
        assert_eq!(found.iter().map(|finding| finding.standing).collect::<Vec<_>>(), expected, "{found:#?}");
    }

    #[test]
    fn what_the_kernel_hides_from_a_user_is_told() {
        check(&[], false, [Fine, Skipped, Skipped, Skipped]);
        let open = [("yama/ptrace_scope", "0"), ("perf_event_paranoid", "1"), ("kptr_restrict", "0"), ("btf", "")];
        check(&open, false, [Fine, Fine, Fine, Fine]);
        let usual = [("yama/ptrace_scope", "1"), ("perf_event_paranoid", "2"), ("kptr_restrict", "0"), ("btf", "")];
        check(&usual, false, [Warning, Fine, Fine, Fine]);
        check(&usual, true, [Fine, Fine, Fine, Fine]);
        let strict = [("yama/ptrace_scope", "2"), ("perf_event_paranoid", "3"), ("kptr_restrict", "2")];
        check(&strict, false, [Warning, Fine, Warning, Skipped]);
        check(&strict, true, [Fine, Fine, Warning, Skipped]);
        check(&[("yama/ptrace_scope", "3")], true, [Problem, Skipped, Skipped, Skipped]);
    }

    #[test]
    fn another_system_captures_nothing_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = Machine { settings: folder.path().to_owned(), btf: folder.path().join("btf"), is_root: false };
        assert_eq!(look(&nowhere).iter().map(|finding| finding.standing).collect::<Vec<_>>(), [Skipped]);
    }
}
