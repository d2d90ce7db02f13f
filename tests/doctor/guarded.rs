//! What `symseal doctor` does not show, does not open, and may not look at.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use super::{Found, Scene};
use crate::program::{Ran, command, symseal};

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
        ("--upstream", format!("me:{SECRET} https://h.example")),
        ("--upstream", format!("h.example/T/{SECRET}/x")),
        ("--upstream", format!("http://h.example/x?a=1;key={SECRET}")),
        ("--upstream", format!("http://h.example/x;key={SECRET}?a")),
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
    // Those that are asked: a password of digits is where a port would be.
    let mut doctor = command("symseal");
    doctor.args(["doctor", "--json", "--online", "--store", &scene.at("store")]);
    doctor.env(
        "DEBUGINFOD_URLS",
        format!("https://me:1234 {SECRET}@h http://127.0.0.1:1/T/{SECRET} me:{SECRET} http://me:12/{SECRET}@h"),
    );
    doctor.env(
        "_NT_SYMBOL_PATH",
        format!("srv*http://127.0.0.1:1/t/{SECRET}/{SECRET}*http://127.0.0.1:1/s;key={SECRET}"),
    );
    let found = Found::of(doctor.output().unwrap().into());
    found.has("servers.debuginfod", "problem", "127.0.0.1:1").has("servers.symbols", "problem", "127.0.0.1:1/s");
    assert!(!found.ran.stdout.contains("1234"), "{}", found.ran.stdout);
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
    let last = scene.path("log.last-checkpoint");
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
    mode(0o660);
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
