//! `symseal doctor` as an operator and a user type it: a finding of each kind, with what to do, and nothing made or changed.

mod guarded;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;

use crate::program::{Ran, RunningServer, command, compile_c, symseal, tool};

/// What was found, by id.
struct Found {
    ran: Ran,
    value: Value,
}

impl Found {
    /// Of a finished run with `--json`, whose form is the published one.
    #[track_caller]
    fn of(ran: Ran) -> Self {
        let value = ran.json();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats/schemas/doctor.schema.json");
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let wrong: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}: {value:#}");
        let has_problem = value["worst"] == "problem";
        assert_eq!(ran.status, i32::from(has_problem), "{value:#}");
        Self { ran, value }
    }

    /// Holds a finding to how it stands and what it says.
    #[track_caller]
    fn has(&self, id: &str, standing: &str, part: &str) -> &Self {
        let all = self.value["findings"].as_array().unwrap();
        let of_id: Vec<&Value> = all.iter().filter(|finding| finding["id"] == id).collect();
        let is_it = |finding: &&Value| {
            let said = format!("{} {}", finding["found"], finding["advice"]);
            finding["standing"] == standing && said.contains(part)
        };
        assert!(of_id.iter().any(is_it), "{id} {standing} {part}: {of_id:#?}");
        self
    }
}

/// The path of every file and directory, with its size, the time of its last change and its mode.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u64, SystemTime, String)> {
    let mut tree = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let metadata = entry.metadata().unwrap();
            let seen = (metadata.len(), metadata.modified().unwrap(), format!("{:?}", metadata.permissions()));
            tree.insert(entry.path(), seen);
            if metadata.is_dir() {
                open.push(entry.path());
            }
        }
    }
    tree
}

struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A data directory that a server has used.
    fn used(&self) -> String {
        drop(RunningServer::start_with(&self.path("data"), &["--log", "--log-key", &self.at("log.key.pem")]));
        self.at("data")
    }

    /// Examines it; nothing below the scene's folder may change.
    #[track_caller]
    fn examine(&self, more: &[&str]) -> Found {
        let before = tree(self.0.path());
        let found = Found::of(symseal(["doctor", "--json"].iter().chain(more)));
        assert!(tree(self.0.path()) == before, "something was made or changed");
        found
    }

    /// The data directory's server, with what else is said.
    #[track_caller]
    fn examine_data(&self, more: &[&str]) -> Found {
        let (data, key) = (self.at("data"), self.at("log.key.pem"));
        self.examine(&[&["--data", &data, "--listen", "127.0.0.1:0", "--log-key", &key], more].concat())
    }
}

#[test]
fn a_server_that_runs_and_one_that_stands_still_have_no_problem() {
    let scene = Scene::new();
    let key = scene.at("log.key.pem");
    let running = RunningServer::start_with(&scene.path("data"), &["--log", "--log-key", &key]);
    let process = format!("process {} (symseal)", running.id());
    let data = scene.at("data");
    let found = scene.examine(&["--data", &data, "--listen", &running.address, "--log-key", &key]);
    found
        .has("configuration", "ok", "")
        .has("data.directory", "ok", &data)
        .has("data.owner", "ok", &process)
        .has("data.lock", "ok", &process)
        .has("listen.address", "ok", &process)
        .has("process.open-files", "ok", &process)
        .has("database.reached", "ok", "SQLite 3.")
        .has("database.schema", "ok", "as this program's")
        .has("database.integrity", "ok", "whole")
        .has("log.tiles", "ok", "0 entries")
        .has("log.key", "ok", "signed the checkpoint")
        .has("log.lease", "ok", &process)
        .has("objects.reached", "skipped", "data directory")
        .has("tls.certificate", "skipped", "plain")
        .has("trust.directory", "skipped", "no trust directory")
        .has("upstreams.reached", "skipped", "no other servers");
    assert_eq!(found.value["of"], "server");
    drop(running);
    scene
        .examine_data(&[])
        .has("data.lock", "ok", "no server uses")
        .has("data.owner", "ok", "can be written to")
        .has("log.lease", "ok", "nobody writes")
        .has("database.integrity", "ok", "whole");
    // For people: a line each, what to do beneath it, and the sum.
    let told = symseal(["doctor", "--data", &data, "--listen", "127.0.0.1:0", "--log-key", &key]).ok().stdout;
    assert!(told.contains("ok       database.schema") && told.ends_with(" skipped\n"), "{told}");
}

#[test]
fn a_call_that_names_nothing_to_examine_is_wrong() {
    let scene = Scene::new();
    let (data, nowhere) = (scene.at("data"), scene.at("nowhere.toml"));
    symseal(["doctor", "--config", &nowhere]).refused(2, &["nowhere.toml"]);
    symseal(["doctor", "--listen", "127.0.0.1:0"]).refused(2, &["--data"]);
    symseal(["doctor", "--upstream", "http://h/"]).refused(2, &["--data"]);
    symseal(["doctor", "--data", &data, "--store", &data]).refused(2, &["--store"]);
    symseal(["doctor", "--tls-certificate", &data]).refused(2, &["--tls-key"]);
}

#[test]
fn what_is_wrong_in_the_configuration_is_a_problem() {
    let scene = Scene::new();
    let file = scene.at("server.toml");
    let nowhere = scene.at("nowhere");
    for (text, part) in [
        ("liste = \"127.0.0.1:0\"\n".to_owned(), "liste"),
        ("listen = \"0.0.0.0:0\"\n".to_owned(), "access.mode"),
        (format!("data = \"{}\"\n[origins]\nindex = [\"{nowhere}\"]\n", scene.at("data")), nowhere.as_str()),
    ] {
        std::fs::write(&file, text).unwrap();
        scene.examine(&["--config", &file]).has("configuration", "problem", part);
    }
    std::fs::write(&file, "[gc]\ngrace = \"0s\"\n").unwrap();
    scene.examine(&["--config", &file, "--data", &scene.at("data")]).has("configuration", "warning", "");
    // The environment counts as it does for the server.
    let mut doctor = command("symseal");
    doctor.args(["doctor", "--json", "--data", &scene.at("data")]).env("SYMSEAL_SERVER_LISTEN", "nothing");
    Found::of(doctor.output().unwrap().into()).has("configuration", "problem", "SYMSEAL_SERVER_LISTEN");
}

#[test]
fn the_data_directory_is_looked_at_from_outside() {
    let scene = Scene::new();
    scene.examine_data(&[]).has("data.directory", "warning", "is not there").has(
        "database.reached",
        "skipped",
        "is not there",
    );
    assert!(!scene.path("data").exists());
    std::fs::write(scene.path("data"), "a file").unwrap();
    scene.examine_data(&[]).has("data.directory", "problem", "no directory");
    std::fs::remove_file(scene.path("data")).unwrap();
    scene.used();
    let mode = |mode| {
        std::fs::set_permissions(scene.path("data"), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o755);
    scene.examine_data(&[]).has("data.permissions", "ok", "755");
    scene.examine_data(&["--access", "tokens"]).has("data.permissions", "warning", "chmod o-rwx");
    mode(0o777);
    scene.examine_data(&[]).has("data.permissions", "problem", "chmod o-w");
    mode(0o700);
    let quota = scene.at("server.toml");
    std::fs::write(&quota, "[limits]\nupload = \"900TiB\"\n").unwrap();
    scene.examine_data(&["--config", &quota]).has("data.room", "warning", "free").has("data.permissions", "ok", "700");
}

#[test]
fn a_port_of_another_process_and_few_files_are_told() {
    let scene = Scene::new();
    let data = scene.used();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let found = scene.examine(&["--data", &data, "--listen", &taken, "--log-key", &scene.at("log.key.pem")]);
    found.has("listen.address", "problem", &format!("process {}", std::process::id()));
    let doctor =
        format!("ulimit -n 512; exec {} doctor --json --data {data}", crate::program::symseal_path().display());
    let ran = Command::new("sh").args(["-c", &doctor]).output().unwrap();
    Found::of(ran.into()).has("process.open-files", "warning", "512");
}

#[test]
fn a_database_of_a_newer_version_or_with_damage_is_told() {
    if tool("python3").is_none() {
        return;
    }
    let scene = Scene::new();
    let database = PathBuf::from(scene.used()).join("symseal.sqlite");
    let python = |statement: &str| {
        let program =
            "import sqlite3,sys\ndb=sqlite3.connect(sys.argv[1])\ndb.execute(sys.argv[2])\ndb.commit()\ndb.close()";
        let ran = Command::new("python3").args(["-c", program]).arg(&database).arg(statement).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    python("DELETE FROM _sqlx_migrations WHERE version > 2");
    scene.examine_data(&[]).has("database.schema", "warning", "of version 2");
    python(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (99, 'x', 1, x'00', 1)",
    );
    scene.examine_data(&[]).has("database.schema", "problem", "99");
    python("UPDATE _sqlx_migrations SET success = 0 WHERE version = 99");
    scene.examine_data(&[]).has("database.schema", "problem", "not finished");
    let mut bytes = std::fs::read(&database).unwrap();
    let last = bytes.len() - 4096;
    bytes[last..].fill(0xff);
    std::fs::write(&database, bytes).unwrap();
    scene.examine_data(&[]).has("database.integrity", "problem", "damaged");
    std::fs::write(&database, "no database at all, whatever its name is").unwrap();
    scene.examine_data(&[]).has("database.reached", "problem", "not a database");
}

#[test]
fn a_certificate_that_ends_soon_or_is_of_another_key_is_told() {
    let Some(openssl) = tool("openssl") else { return };
    let scene = Scene::new();
    let make = |name: &str, days: &str| {
        let mut command = Command::new(&openssl);
        command.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=localhost",
        ]);
        command.args([
            "-days",
            days,
            "-out",
            &scene.at(&format!("{name}.pem")),
            "-keyout",
            &scene.at(&format!("{name}.key")),
        ]);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    make("year", "365");
    make("week", "7");
    let examine = |certificate: &str, key: &str| {
        let (certificate, key) = (scene.at(certificate), scene.at(key));
        scene.examine_data(&["--tls-certificate", &certificate, "--tls-key", &key])
    };
    examine("year.pem", "year.key").has("tls.certificate", "ok", "").has("tls.expiry", "ok", "holds until");
    examine("week.pem", "week.key").has("tls.expiry", "warning", "renew it");
    examine("year.pem", "week.key").has("tls.certificate", "problem", "year.pem");
    examine("nowhere.pem", "year.key").has("tls.certificate", "problem", "nowhere.pem").has(
        "tls.expiry",
        "skipped",
        "",
    );
    // One that ended: signed anew with times in the past.
    let expired = Command::new(&openssl)
        .args(["x509", "-in", &scene.at("year.pem"), "-signkey", &scene.at("year.key"), "-days", "-1"])
        .args(["-out", &scene.at("past.pem")])
        .output()
        .unwrap();
    assert!(expired.status.success(), "{}", String::from_utf8_lossy(&expired.stderr));
    examine("past.pem", "year.key").has("tls.expiry", "problem", "expired at");
    // A check before a start warns of it, as the start itself does: the server serves all the same.
    let (data, certificate, key) = (scene.at("checked"), scene.at("past.pem"), scene.at("year.key"));
    let checked = ["serve", "--check-config", "--data", &data, "--tls-certificate", &certificate, "--tls-key", &key];
    let checked = crate::program::symseal(checked).ok();
    assert!(checked.stderr.contains("expired at"), "{checked:?}");
}

#[test]
fn a_trust_directory_that_ends_is_told() {
    let scene = Scene::new();
    symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
    let init = |name: &str, more: &[&str]| {
        let (trust, key, log) = (scene.at(name), scene.at("keys/artifact.pub.pem"), scene.at("log"));
        let fixed = ["trust", "init", "--trust", &trust, "--key", &key, "--name", "app", "--log", &log];
        symseal(fixed.iter().chain(more)).ok();
        trust
    };
    let for_ever = init("for-ever", &[]);
    let over = init("over", &["--expires", "2021-01-01T00:00:00Z"]);
    scene.examine_data(&["--trust", &for_ever]).has("trust.directory", "ok", "policy version 1").has(
        "trust.expiry",
        "ok",
        "do not expire",
    );
    scene.examine_data(&["--trust", &over]).has("trust.expiry", "problem", "2021");
    std::fs::write(scene.path("for-ever/root.json"), "{}").unwrap();
    scene.examine_data(&["--trust", &for_ever]).has("trust.directory", "problem", "root.json");
}

#[test]
fn a_log_without_its_key_or_its_memory_is_told() {
    let scene = Scene::new();
    let data = PathBuf::from(scene.used());
    let key = scene.path("log.key.pem");
    let aside = scene.path("aside");
    std::fs::rename(&key, &aside).unwrap();
    scene.examine_data(&[]).has("log.key", "problem", "log.key.pem");
    std::fs::rename(&aside, &key).unwrap();
    std::fs::write(data.join("log/checkpoint"), "nothing signed\n").unwrap();
    scene.examine_data(&[]).has("log.tiles", "problem", "checkpoint");
}

#[test]
fn servers_of_a_debugger_are_asked_when_that_is_wanted_alone() {
    let scene = Scene::new();
    let running = RunningServer::start(&scene.path("data"));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let examine = |more: &[&str], urls: &str, symbols: &str| {
        let mut doctor = command("symseal");
        doctor.args(["doctor", "--json", "--store", &scene.at("store")]).args(more);
        doctor.env("DEBUGINFOD_URLS", urls).env("_NT_SYMBOL_PATH", symbols);
        Found::of(doctor.output().unwrap().into())
    };
    let (here, nobody) = (format!("http://{}", running.address), format!("http://me:hunter2@{gone}/"));
    let symbols = format!("srv*C:\\symbols*{here}/symbols");
    let found = examine(&[], &format!("{here} {nobody}"), &symbols);
    found.has("servers.settings", "ok", "DEBUGINFOD_URLS: 2").has("servers.debuginfod", "skipped", "3 servers");
    assert_eq!(found.value["of"], "client");
    let found = examine(&["--online"], &format!("{here} {nobody}"), &symbols);
    found.has("servers.debuginfod", "ok", &running.address).has("servers.symbols", "ok", &running.address).has(
        "servers.debuginfod",
        "problem",
        &gone.to_string(),
    );
    assert!(!found.ran.stdout.contains("hunter2"), "{}", found.ran.stdout);
    examine(&[], "ftp://files.example/", "").has("servers.settings", "warning", "ftp");
    examine(&[], "", "").has("servers.settings", "ok", "no servers are set");
    // A page for people in the place of a server of symbols.
    examine(&["--online"], &format!("{here}/search?q="), "").has("servers.debuginfod", "warning", "");
}

#[test]
fn what_the_local_store_lacks_is_named() {
    let scene = Scene::new();
    let store = scene.at("store");
    let examine = || scene.examine(&["--store", &store]);
    examine().has("store.layout", "skipped", "is not there");
    let Some(app) = compile_c(scene.0.path(), "app", "int main(void) { return 0; }\n", &["-g", "-Wl,--build-id"])
    else {
        return;
    };
    let (app, output) = (app.to_str().unwrap(), store.as_str());
    symseal(["bundle", "build", app, "--name", "app", "--version", "1", "--output", output]).ok();
    examine().has("store.layout", "ok", "1 bundles").has("store.blobs", "ok", "every blob");
    let blobs = scene.path("store/blobs/sha256");
    let mut files: Vec<(u64, PathBuf)> = std::fs::read_dir(&blobs)
        .unwrap()
        .flatten()
        .map(|entry| (entry.metadata().unwrap().len(), entry.path()))
        .collect();
    files.sort();
    let (_, largest) = files.last().unwrap();
    let digest = largest.file_name().unwrap().to_str().unwrap();
    let bytes = std::fs::read(largest).unwrap();
    std::fs::write(largest, &bytes[1..]).unwrap();
    examine().has("store.blobs", "problem", digest).has("store.blobs", "problem", "in place of");
    std::fs::remove_file(largest).unwrap();
    examine().has("store.blobs", "problem", &format!("{digest} is missing"));
    std::fs::write(scene.path("store/index.json"), "{").unwrap();
    examine().has("store.layout", "problem", "index.json");
    std::fs::remove_file(scene.path("store/oci-layout")).unwrap();
    examine().has("store.layout", "problem", "oci-layout");
}

#[test]
fn captures_and_gdb_are_looked_at() {
    let scene = Scene::new();
    let examine = || {
        let mut doctor = command("symseal");
        doctor.args(["doctor", "--json", "--store", &scene.at("store")]).env("HOME", scene.0.path());
        Found::of(doctor.output().unwrap().into())
    };
    let found = examine();
    found.has("gdb.auto-load", "warning", "set auto-load no");
    let ids: Vec<&str> =
        found.value["findings"].as_array().unwrap().iter().filter_map(|it| it["id"].as_str()).collect();
    for id in ["capture.ptrace", "capture.perf", "capture.kernel-names", "capture.btf"] {
        assert!(ids.contains(&id), "{ids:?}");
    }
    // What the other command writes is what this one looks for.
    symseal(["setup", "gdb", "--server", "http://127.0.0.1:8790", "--write", &scene.at(".gdbinit")]).ok();
    examine().has("gdb.auto-load", "ok", ".gdbinit");
}
