//! `symseal doctor` as an operator and a user type it: a finding of each kind, with what to do, and nothing made or changed.

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

#[test]
fn no_finding_shows_a_password_or_a_token() {
    const SECRET: &str = "hunter2";
    let scene = Scene::new();
    let token = format!("symseal_{}", "0123456789abcdef".repeat(4));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hides = |found: &Found| {
        let said = &found.ran.stdout;
        assert!(!said.contains(SECRET) && !said.contains(&token), "{said}");
    };
    for (option, url) in [
        ("--upstream", format!("ftp://me:{SECRET}@h.example/t/{token}/x")),
        ("--upstream", format!("http://me:{SECRET}@h.example:port/")),
        ("--upstream", format!("http://h.example/t/{SECRET}/?x=1")),
        ("--symbol-upstream", format!("me:{SECRET}@h.example/symbols")),
        ("--symbol-upstream", format!("http://me:{SECRET}/x@h.example/?key={token}")),
    ] {
        let found = scene.examine_data(&[option, &url]);
        hides(found.has("configuration", "problem", "h.example"));
        let data = scene.at("data");
        let refused = symseal(["serve", "--check-config", "--data", &data, option, &url]).refused(2, &["h.example"]);
        assert!(!refused.stderr.contains(SECRET) && !refused.stderr.contains(&token), "{}", refused.stderr);
    }
    let file = scene.at("server.toml");
    for text in [
        format!("[origins]\nupstreams = \"http://me:{SECRET}@h.example/t/{token}/\"\n"),
        format!("[origins]\nupstreams = [\"http://h.example/t/{token}/\", 3]\n"),
    ] {
        std::fs::write(&file, text).unwrap();
        hides(scene.examine(&["--config", &file]).has("configuration", "problem", "h.example"));
    }
    let mut doctor = command("symseal");
    doctor.args(["doctor", "--json", "--data", &scene.at("data"), "--blobs", "s3://symbols/a"]);
    doctor.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", SECRET);
    doctor.env("SYMSEAL_SERVER_S3__ENDPOINT", format!("http://me:{SECRET}@{gone}"));
    doctor.env("SYMSEAL_SERVER_S3__SILENCE", "1s");
    let found = Found::of(doctor.output().unwrap().into());
    hides(found.has("objects.reached", "problem", &gone.to_string()));
    let mut doctor = command("symseal");
    doctor.args(["doctor", "--json", "--store", &scene.at("store")]);
    doctor.env("DEBUGINFOD_URLS", format!("ftp://a.example/t/{token}/ http://me:{SECRET} b.example/t/{SECRET}@c"));
    doctor.env("_NT_SYMBOL_PATH", format!("srv*ftp://me:{SECRET}@d.example/t/{token}/s;srv*http://me:{SECRET}@[/x"));
    let found = Found::of(doctor.output().unwrap().into());
    for part in ["a.example", "d.example"] {
        found.has("servers.settings", "warning", part);
    }
    hides(&found);
}

/// Runs it within a time in which it comes to its end, or hangs.
#[track_caller]
fn in_time(arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut doctor = Command::new("timeout");
    doctor.arg("60").arg(crate::program::symseal_path()).args(arguments).envs(environment.iter().copied());
    let ran: Ran = doctor.output().unwrap().into();
    assert_ne!(ran.status, 124, "{arguments:?} hung");
    ran
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_told_and_nobody_waits_for_it() {
    const SAID: &str = "expected a file";
    let scene = Scene::new();
    let (data, key) = (scene.used(), scene.at("log.key.pem"));
    let pipe = |path: &Path| {
        let _ = std::fs::rename(path, path.with_extension("kept"));
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let unpipe = |path: &Path| {
        std::fs::remove_file(path).unwrap();
        let _ = std::fs::rename(path.with_extension("kept"), path);
    };
    let fixed = ["doctor", "--json", "--data", &data, "--listen", "127.0.0.1:0", "--log-key", &key];
    let examine = |more: &[&str]| Found::of(in_time(&[&fixed[..], more].concat(), &[]));
    let free = scene.at("pipe");
    pipe(Path::new(&free));
    in_time(&["doctor", "--config", &free], &[]).refused(2, &[SAID, &free]);
    in_time(&["serve", "--config", &free], &[]).refused(2, &[SAID, &free]);
    let tls = ["--tls-certificate", &free, "--tls-key", &free];
    examine(&tls).has("tls.certificate", "problem", SAID).has("tls.expiry", "skipped", "");
    let serve = ["serve", "--data", &data, "--listen", "127.0.0.1:0", "--log-key", &key];
    in_time(&[&serve[..], &tls].concat(), &[]).refused(2, &[SAID, &free]);
    let ca = scene.at("server.toml");
    std::fs::write(&ca, format!("blobs = \"s3://b\"\n[s3]\nca = \"{free}\"\n")).unwrap();
    examine(&["--config", &ca]).has("configuration", "problem", SAID).has("objects.reached", "problem", SAID);
    let last = scene.0.path().join("log.key.pem.last-checkpoint");
    for (path, id) in [
        (scene.path("data/lock"), "data.lock"),
        (scene.path("data/symseal.sqlite"), "database.reached"),
        (scene.path("data/log/checkpoint"), "log.tiles"),
        (scene.path("data/log/.lease"), "log.lease"),
        (scene.path("log.key.pem"), "log.key"),
        (last, "log.last-checkpoint"),
    ] {
        assert!(path.exists(), "{}", path.display());
        pipe(&path);
        examine(&[]).has(id, "problem", "");
        unpipe(&path);
    }
    examine(&[]).has("data.lock", "ok", "").has("log.lease", "ok", "").has("log.last-checkpoint", "ok", "");
    // What a debugger and its library would read.
    pipe(&scene.path(".gdbinit"));
    let environment = [("HOME", scene.0.path().to_str().unwrap()), ("DEBUGINFOD_HEADERS_FILE", &free)];
    let found = Found::of(in_time(&["doctor", "--json", "--store", &scene.at("store")], &environment));
    found.has("servers.settings", "problem", SAID).has("gdb.auto-load", "warning", ".gdbinit");
}

#[test]
fn what_the_parser_of_a_configuration_says_is_read_in_lines() {
    let scene = Scene::new();
    let file = scene.at("server.toml");
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\nliste = \"\u{1b}[31m -> rm -rf /\"\n").unwrap();
    let told = symseal(["doctor", "--config", &file]);
    assert_eq!(told.status, 1);
    assert!(told.stdout.lines().any(|line| line.trim_start().starts_with(": 2 | liste = ")), "{}", told.stdout);
    assert!(!told.stdout.contains("\\u{a}") && told.stdout.contains("\\u{1b}[31m"), "{}", told.stdout);
    // A line of the file is no line of what to do.
    assert!(
        !told.stdout.contains('\u{1b}')
            && told.stdout.lines().filter(|line| line.trim_start().starts_with("->")).count() == 1
    );
}

#[test]
fn a_key_that_others_may_read_is_told() {
    let scene = Scene::new();
    scene.used();
    let mode = |mode| {
        let path = scene.path("log.key.pem");
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    scene.examine_data(&[]).has("log.key-permissions", "ok", "600");
    mode(0o644);
    scene.examine_data(&[]).has("log.key-permissions", "warning", "chmod go-rwx");
    mode(0o640);
    let key = scene.at("log.key.pem");
    let tls = ["--tls-certificate", &key, "--tls-key", &key];
    scene.examine_data(&tls).has("tls.key-permissions", "warning", "chmod g-rwx");
}

/// Another user than the server's, which a test of root's alone can be.
#[test]
fn what_may_not_be_looked_at_is_not_said_to_be_missing() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;
    const STRANGER: u32 = 4343;
    let scene = Scene::new();
    if std::fs::metadata(scene.0.path()).unwrap().uid() != 0 {
        eprintln!("skipped: only root can run this as another user");
        return;
    }
    let (data, key) = (scene.used(), scene.at("log.key.pem"));
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(scene.0.path(), 0o755);
    let examine = || {
        let mut doctor = command("symseal");
        doctor.args(["doctor", "--json", "--data", &data, "--listen", "127.0.0.1:0", "--log-key", &key]);
        Found::of(doctor.uid(STRANGER).gid(STRANGER).output().unwrap().into())
    };
    open(&scene.path("data"), 0o700);
    examine().has("database.reached", "problem", "may not look").has("log.tiles", "problem", "ermission");
    open(&scene.path("data"), 0o755);
    open(&scene.path("data/symseal.sqlite"), 0o600);
    examine().has("database.reached", "problem", "may not look");
}
