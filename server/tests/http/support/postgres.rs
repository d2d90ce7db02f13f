//! A PostgreSQL of the test's own, on a temporary directory and a Unix socket.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The password of its user, which no output may show.
pub(crate) const PASSWORD: &str = "hunter2-of-the-database";

const USER: &str = "symseal";

/// PostgreSQL refuses to run as root: then it runs as `nobody`.
const NOBODY: u32 = 65_534;

/// A running server. It ends with this.
pub(crate) struct Postgres {
    folder: tempfile::TempDir,
    binaries: PathBuf,
    server: Option<Child>,
    databases: AtomicU32,
    /// Where it listens beside its socket, by TLS.
    port: Option<u16>,
}

impl Postgres {
    /// Starts one; `None`, out loud, where there is no PostgreSQL, unless it is required.
    pub(crate) fn start() -> Option<Self> {
        let Some(binaries) = binaries() else {
            let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
            let is_required = required.split(',').any(|name| name == "postgres" || name == "all");
            assert!(!is_required, "postgres is required and was not found");
            println!("SKIP postgres: initdb was not found");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("password");
        std::fs::write(&secret, PASSWORD).unwrap();
        if is_root() {
            for path in [folder.path(), &secret] {
                std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let mut started = Self { folder, binaries, server: None, databases: AtomicU32::new(0), port: None };
        let mut initdb = started.command("initdb");
        initdb.args(["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--username", USER]);
        let output = initdb.arg("--pwfile").arg(&secret).arg(started.data()).output().unwrap();
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        started.start_again();
        Some(started)
    }

    /// Starts it after [`Self::stop`].
    pub(crate) fn start_again(&mut self) {
        let mut server = self.command("postgres");
        server.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        for setting in ["fsync=off", "shared_buffers=16MB", "max_connections=60"] {
            server.args(["-c", setting]);
        }
        match self.port {
            Some(port) => {
                server.args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}"), "-c", "ssl=on"]);
                for (setting, file) in [("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")] {
                    server.arg("-c").arg(format!("{setting}={}", self.folder.path().join(file).display()));
                }
            }
            None => drop(server.args(["-c", "listen_addresses="])),
        }
        self.server = Some(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let started = Instant::now();
        while !self.command("pg_isready").arg("-q").status().unwrap().success() {
            assert!(started.elapsed() < Duration::from_secs(30), "PostgreSQL did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts it anew on a loopback port, where it takes nothing but TLS, with this certificate and key.
    pub(crate) fn listen_by_tls(&mut self, port: u16, certificate: &Path, key: &Path) {
        self.stop();
        for (from, name) in [(certificate, "server.pem"), (key, "server.key")] {
            let to = self.folder.path().join(name);
            std::fs::copy(from, &to).unwrap();
            std::fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            if is_root() {
                std::os::unix::fs::chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let rules = "local all all scram-sha-256\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(self.data().join("pg_hba.conf"), rules).unwrap();
        self.port = Some(port);
        self.start_again();
    }

    /// What `symseal serve --database` takes to reach it there, with what the URL says further.
    pub(crate) fn url_by_tls(&self, host: &str, database: &str, more: &str) -> String {
        let port = self.port.unwrap_or_default();
        format!("postgres://{USER}:{PASSWORD}@{host}:{port}/{database}?{more}")
    }

    /// Ends it, with every connection.
    pub(crate) fn stop(&mut self) {
        let mut stop = self.command("pg_ctl");
        stop.arg("-D").arg(self.data()).args(["-m", "immediate", "-w", "stop"]);
        assert!(stop.output().unwrap().status.success());
        if let Some(mut server) = self.server.take() {
            server.wait().unwrap();
        }
    }

    /// A new database.
    pub(crate) fn create_database(&self) -> String {
        let name = format!("symbols{}", self.databases.fetch_add(1, Ordering::Relaxed));
        assert!(self.command("createdb").arg(&name).status().unwrap().success());
        name
    }

    /// A backup of a database, as `pg_dump` makes it.
    pub(crate) fn backup(&self, database: &str) -> PathBuf {
        let file = self.folder.path().join(format!("{database}.dump"));
        let dumped =
            self.command("pg_dump").args(["--format=custom", "--file"]).arg(&file).arg(database).output().unwrap();
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        file
    }

    /// Puts a backup in the place of a database, whoever uses it.
    pub(crate) fn put_back(&self, database: &str, backup: &Path) {
        self.run("postgres", &format!("DROP DATABASE {database} WITH (FORCE)"));
        self.run("postgres", &format!("CREATE DATABASE {database}"));
        let restored = self.command("pg_restore").args(["--dbname", database]).arg(backup).output().unwrap();
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    }

    /// Runs a statement in a database, as an operator would.
    pub(crate) fn run(&self, database: &str, statement: &str) {
        let mut psql = self.command("psql");
        psql.args(["--quiet", "--no-psqlrc", "--dbname", database, "--command", statement]);
        let output = psql.output().unwrap();
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The one value of a query.
    pub(crate) fn ask(&self, database: &str, query: &str) -> String {
        let mut psql = self.command("psql");
        psql.args(["--quiet", "--no-psqlrc", "--tuples-only", "--no-align", "--dbname", database, "--command", query]);
        let output = psql.output().unwrap();
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// What `symseal serve --database` takes.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@localhost/{database}?host={}", self.folder.path().display())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.join(program));
        if let Some(port) = self.port {
            command.env("PGPORT", port.to_string());
        }
        command.env("PGHOST", self.folder.path()).env("PGUSER", USER).env("PGPASSWORD", PASSWORD);
        command.current_dir(self.folder.path());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.stop();
        }
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Debian keeps them out of PATH, in a folder of the version.
fn binaries() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.extend(std::env::split_paths(&on_path));
    let has_all = |folder: &PathBuf| {
        let programs = ["initdb", "postgres", "pg_ctl", "pg_isready", "createdb", "psql"];
        programs.into_iter().all(|program| folder.join(program).exists())
    };
    folders.into_iter().find(has_all)
}
