//! Runs the programs of this package as a user would.
#![allow(dead_code, unreachable_pub, reason = "each test file has this module and uses its own part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a finished program left behind.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 0, "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails unless the program ended with `status` and its error names every one of `parts`.
    #[track_caller]
    pub fn refused(self, status: i32, parts: &[&str]) -> Self {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "the error does not name {part:?}: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

pub fn symseal_path() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_symseal"))
}

/// A program of this package by name: `symseal`, `trace-capture`, …
pub fn program(name: &str) -> PathBuf {
    symseal_path().with_file_name(name)
}

pub fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    // Nothing of the user's own directories may leak into a test.
    command.env_remove("DEBUGINFOD_URLS").env("XDG_DATA_HOME", "/nonexistent").env("XDG_CONFIG_HOME", "/nonexistent");
    command
        .env("DOCKER_CONFIG", "/nonexistent")
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .env_remove("REGISTRY_AUTH_FILE");
    command
}

pub fn run<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> Ran {
    command(name).args(arguments).stdin(Stdio::null()).output().expect("the program starts").into()
}

pub fn symseal<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ran {
    run("symseal", arguments)
}

/// Whether a skip of this tool is a failure here.
pub fn required(tool: &str) -> bool {
    std::env::var("SYMSEAL_REQUIRE").is_ok_and(|list| list.split(',').any(|name| name == tool || name == "all"))
}

/// The tool's path; where it is missing, says so (or fails, where it is required).
#[track_caller]
pub fn tool(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os("PATH")
        .and_then(|path| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|candidate| candidate.is_file()));
    if found.is_none() {
        assert!(!required(name), "{name} is required and was not found");
        println!("SKIP {name}: not found");
    }
    found
}

/// A tool from the cache of peers ($SYMSEAL_PEERS), or from PATH.
#[track_caller]
pub fn peer(name: &str) -> Option<PathBuf> {
    let cached = std::env::var_os("SYMSEAL_PEERS").map(|cache| PathBuf::from(cache).join("bin").join(name));
    cached.filter(|path| path.is_file()).or_else(|| tool(name))
}

/// The first of several names under which Debian has a tool.
#[track_caller]
pub fn any_tool(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = names
        .iter()
        .find_map(|name| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|candidate| candidate.is_file()));
    if found.is_none() {
        let name = names.first().copied().unwrap_or_default();
        assert!(!required(name), "{name} is required and was not found");
        println!("SKIP {name}: not found");
    }
    found
}

/// lldb, for [`any_tool`]: Debian 12's own is of version 14, cannot be installed beside a newer one, and asks no servers.
pub const LLDB: &[&str] = &["lldb-19", "lldb"];

/// LLVM's linker for Mach-O.
#[track_caller]
pub fn macho_linker() -> Option<PathBuf> {
    any_tool(&["ld64.lld", "ld64.lld-19", "ld64.lld-14"])
}

/// Compiles `source` with the machine's C compiler into `dir/name`.
#[track_caller]
pub fn compile_c(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = ["cc", "gcc", "clang"].iter().find(|compiler| {
        Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    });
    let Some(compiler) = compiler else {
        println!("SKIP cc: not found");
        return None;
    };
    let source_path = dir.join(format!("{name}.c"));
    std::fs::write(&source_path, source).expect("source written");
    let output = dir.join(name);
    let ran =
        Command::new(compiler).args(flags).arg("-o").arg(&output).arg(&source_path).output().expect("compiler runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(output)
}

/// A server of ours on a free loopback port, ended with the value.
pub struct RunningServer {
    child: std::process::Child,
    pub address: String,
}

impl RunningServer {
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// With further arguments of `symseal serve`.
    pub fn start_with(data: &Path, more: &[&str]) -> Self {
        Self::start_in(data, more, &[])
    }

    /// With further variables of the environment.
    pub fn start_in(data: &Path, more: &[&str], environment: &[(&str, String)]) -> Self {
        Self::start_on("127.0.0.1:0", data, more, environment)
    }

    /// As another user, for whom alone is what it makes, as systemd's `User=` and `UMask=0077` have it.
    #[cfg(target_os = "linux")]
    pub fn start_as(user: u32, data: &Path) -> Self {
        Self::started(Self::command_as(user, data))
    }

    /// [`Self::start_as`], before it starts.
    #[cfg(target_os = "linux")]
    pub fn command_as(user: u32, data: &Path) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 0077 && exec \"$0\" \"$@\""]).arg(command("symseal").get_program());
        shell.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).uid(user).gid(user);
        shell
    }

    /// At a place that is known before.
    pub fn start_on(listen: &str, data: &Path, more: &[&str], environment: &[(&str, String)]) -> Self {
        let mut server = command("symseal");
        server.args(["serve", "--listen", listen, "--data"]).arg(data).args(more);
        server.envs(environment.iter().map(|(name, value)| (name, value)));
        Self::started(server)
    }

    /// One that is about to start.
    pub fn started(mut server: Command) -> Self {
        use std::io::{BufRead, BufReader};
        let mut child = server.stdout(Stdio::piped()).spawn().expect("server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
        let address = line.rsplit("://").next().expect("an address").trim().trim_end_matches('/').to_owned();
        assert!(address.starts_with("127.0.0.1:"), "unexpected first line {line:?}");
        Self { child, address }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("a child")
    }

    /// The most memory that the server had at once, in bytes (proc(5), `VmHWM`).
    #[cfg(target_os = "linux")]
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a size") << 10
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
