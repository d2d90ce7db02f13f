//! What `release-jobs/deploy/` ships, held to the programs that read it: systemd, buildah and the schemas of Kubernetes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{self, symseal};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/release-jobs/deploy");

/// systemd's own figure for how exposed a service is, from 0 to 100.
const MOST_EXPOSED: &str = "20";

fn shipped(name: &str) -> String {
    std::fs::read_to_string(Path::new(DEPLOY).join(name)).expect("a shipped file")
}

#[track_caller]
fn ran(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_unit_is_sound_and_its_service_little_exposed() {
    let Some(analyze) = program::tool("systemd-analyze") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let unit = folder.path().join("symseal.service");
    // It looks for the program, which is installed elsewhere here.
    let here = program::command("symseal").get_program().to_str().expect("a path").to_owned();
    let text = shipped("symseal.service");
    assert_eq!(text.matches("/usr/bin/symseal").count(), 2);
    std::fs::write(&unit, text.replace("/usr/bin/symseal", &here)).expect("a unit");
    let verified = Command::new(&analyze).arg("verify").arg(&unit).output().expect("it starts");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("symseal.service:"), "{said}");
    ran(Command::new(analyze).args(["security", "--offline=true", "--threshold", MOST_EXPOSED]).arg(unit));
}

/// A call that the unit forbids fails with EPERM, and what needed it is done another way, or not at all.
#[test]
fn the_unit_lets_through_every_system_call_that_the_server_makes() {
    let (Some(analyze), Some(strace)) = (program::tool("systemd-analyze"), program::tool("strace")) else { return };
    if program::tool("curl").is_none() {
        return;
    }
    let text = shipped("symseal.service");
    let filter = text.lines().find_map(|line| line.strip_prefix("SystemCallFilter=")).expect("a filter");
    let mut allowed = BTreeSet::new();
    filter.split_whitespace().for_each(|name| allow(&analyze, name, &mut allowed));

    let root = tempfile::tempdir().expect("a folder");
    let trace = root.path().join("trace");
    let mut traced = Command::new(strace);
    traced.args(["-f", "-qq", "-o"]).arg(&trace).arg(program::command("symseal").get_program());
    traced.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(root.path().join("data"));
    let mut traced = traced.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("strace starts");
    let mut line = String::new();
    BufReader::new(traced.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let url = line.rsplit(' ').next().expect("an address").trim().to_owned();
    let large = root.path().join("large");
    let source = "char large[3 << 20] = {1};\nint main(void) { return large[7]; }\n";
    program::compile_c(root.path(), "large", source, &["-g", "-Wl,--build-id=0xabcdef0123"]).expect("a compiler");
    symseal(["upload", large.to_str().expect("a path"), "--to", &url]).ok();
    for path in ["/", "/metrics", "/readyz", "/buildid/abcdef0123/executable", "/buildid/00/executable", "/v2/_catalog"]
    {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--output", "/dev/null", &format!("{url}{path}")]).status().expect("curl");
    }
    let children = format!("/proc/{0}/task/{0}/children", traced.id());
    let server = std::fs::read_to_string(children).expect("its children");
    ran(Command::new("kill").args(["-TERM", server.trim()]));
    let started = Instant::now();
    while traced.try_wait().expect("a child").is_none() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }

    let mut made = BTreeSet::new();
    for line in std::fs::read_to_string(trace).expect("a trace").lines() {
        let call = line.trim_start_matches(|it: char| it.is_ascii_digit() || it == ' ');
        let Some((name, _)) = call.split_once('(') else { continue };
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            made.insert(name.to_owned());
        }
    }
    assert!(made.contains("accept4") && made.contains("mincore") && made.contains("fsync"), "{made:?}");
    let forbidden: Vec<_> = made.difference(&allowed).collect();
    assert!(forbidden.is_empty(), "the unit forbids {forbidden:?}");
}

/// Adds a call, or those of a group.
fn allow(analyze: &Path, name: &str, allowed: &mut BTreeSet<String>) {
    if !name.starts_with('@') {
        allowed.insert(name.to_owned());
        return;
    }
    let listed = ran(Command::new(analyze).args(["syscall-filter", name]));
    let names = listed.lines().filter_map(|line| line.strip_prefix("    ")).map(str::trim);
    names.filter(|name| !name.starts_with('#')).for_each(|name| allow(analyze, name, allowed));
}

/// With what the unit gives its user, and the files as docs/operating.md has them: what `server.toml` suggests works.
#[test]
fn a_user_like_the_units_starts_a_server_as_the_configuration_suggests() {
    const USER: u32 = 61_234;
    let (Some(setpriv), Some(openssl)) = (program::tool("setpriv"), program::tool("openssl")) else { return };
    if !std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        println!("SKIP setpriv: to run as another user takes root");
        return;
    }
    // Above it there may be folders that this user may not pass.
    let root = tempfile::tempdir_in("/tmp").expect("a folder");
    let at = |name: &str| root.path().join(name);
    let give = |path: &Path, user: u32, group: u32, mode: u32| {
        std::os::unix::fs::chown(path, Some(user), Some(group)).expect("an owner");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("a mode");
    };
    let folders = [("etc", 0, 0o750), ("data", USER, 0o700), ("log", USER, 0o700)];
    give(root.path(), 0, 0, 0o755);
    for (folder, user, mode) in folders {
        std::fs::create_dir(at(folder)).expect("a folder");
        give(&at(folder), user, USER, mode);
    }
    let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
    ran(Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(subject)
        .arg("-keyout")
        .arg(at("etc/key.pem"))
        .arg("-out")
        .arg(at("etc/chain.pem"))
        .stderr(Stdio::null()));
    let mut text = shipped("server.toml");
    for (suggested, taken) in [
        ("listen = \"0.0.0.0:8790\"", "listen = \"127.0.0.1:0\""),
        ("# [tls]", "[tls]"),
        ("# certificate =", "certificate ="),
        ("# key = \"/etc", "key = \"/etc"),
        ("# key = \"/var", "key = \"/var"),
        ("enabled = false", "enabled = true"),
    ] {
        assert_eq!(text.matches(suggested).count(), 1, "{suggested}");
        text = text.replace(suggested, taken);
    }
    for (suggested, folder) in [("/var/lib/symseal-log", "log"), ("/var/lib/symseal", "data"), ("/etc/symseal", "etc")]
    {
        text = text.replace(suggested, at(folder).to_str().expect("a path"));
    }
    let config = at("etc/server.toml");
    std::fs::write(&config, text).expect("a file");
    for file in ["server.toml", "key.pem", "chain.pem"] {
        give(&at("etc").join(file), 0, USER, 0o640);
    }
    // The program may lie where this user may not look.
    let program = at("symseal");
    std::fs::copy(program::command("symseal").get_program(), &program).expect("the program");
    give(&program, 0, 0, 0o755);
    let as_user = |arguments: &[&str]| {
        let mut command = Command::new(&setpriv);
        let user = USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs", "--"]);
        command.arg(&program).args(arguments).arg("--config").arg(&config).env("HOME", "/nonexistent");
        command.stdin(Stdio::null());
        command
    };
    ran(&mut as_user(&["serve", "--check-config"]));
    ran(&mut as_user(&["token", "create", "--name", "one", "--write", "team"]));
    let mut server = as_user(&["serve"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    ran(Command::new("kill").args(["-TERM", &server.id().to_string()]));
    let ended = server.wait_with_output().expect("it ends");
    assert!(line.contains("https://127.0.0.1:"), "{line}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && at("log/log.key.pem").is_file(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn the_units_user_is_made() {
    let Some(sysusers) = program::tool("systemd-sysusers") else { return };
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("etc")).expect("a folder");
    let file = Path::new(DEPLOY).join("symseal.sysusers");
    ran(Command::new(sysusers).arg(format!("--root={}", root.path().display())).arg(file));
    let made = std::fs::read_to_string(root.path().join("etc/passwd")).expect("users");
    let user = shipped("symseal.service").lines().find_map(|line| line.strip_prefix("User=").map(str::to_owned));
    let user = user.expect("the unit's user");
    assert!(
        made.lines().any(|line| line.starts_with(&format!("{user}:")) && line.contains(":/var/lib/symseal:")),
        "{made}"
    );
}

/// The Containerfile's last stage with the program of this test in the place of the one that its first stage builds, which takes an image from elsewhere.
/// The program here needs the libraries of this machine, which are lent to it.
#[test]
fn the_image_holds_what_the_server_needs_and_it_serves_as_its_own_user() {
    let Some(buildah) = program::tool("buildah") else { return };
    if !std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        println!("SKIP buildah: without a user's namespace it takes root");
        return;
    }
    let (Some(objcopy), Some(_)) = (program::tool("objcopy"), program::tool("curl")) else { return };
    let root = tempfile::tempdir().expect("a folder");
    let at = |name: &str| root.path().join(name);
    let text = shipped("Containerfile");
    let (first, last) = text.split_at(text.find("FROM scratch").expect("a last stage"));
    assert!(first.contains("mkdir -p /empty/var/lib/symseal /empty/tmp"), "{first}");
    let stage = at("context/stage");
    let copied = |path: &str| {
        let to = stage.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        to
    };
    let built = "/source/target/x86_64-unknown-linux-musl/dist/symseal";
    ran(Command::new(objcopy).arg("--strip-all").arg(program::command("symseal").get_program()).arg(copied(built)));
    std::fs::write(copied("/etc/ssl/certs/ca-certificates.crt"), "").expect("a file");
    for folder in ["empty/var/lib/symseal", "empty/tmp"] {
        std::fs::create_dir_all(stage.join(folder)).expect("a folder");
    }
    std::fs::create_dir_all(at("context/release-jobs/deploy")).expect("a folder");
    std::fs::write(at("context/release-jobs/deploy/server.toml"), shipped("server.toml")).expect("a file");
    std::fs::write(at("Containerfile"), format!("FROM scratch AS build\nCOPY stage/ /\n{last}")).expect("a file");
    let image = |arguments: &[&str]| {
        let mut command = Command::new(&buildah);
        command.args(["--storage-driver", "vfs", "--root"]).arg(at("images")).arg("--runroot").arg(at("run"));
        command.args(arguments).stdin(Stdio::null());
        command
    };
    let path = |name: &str| at(name).to_str().expect("a path").to_owned();
    let (file, context) = (path("Containerfile"), path("context"));
    ran(&mut image(&["bud", "--isolation", "chroot", "--tag", "symseal", "--file", &file, &context]));
    let container = ran(&mut image(&["from", "symseal"])).trim().to_owned();
    let run = |arguments: &[&str]| {
        let libraries = ["/lib", "/lib64"].into_iter().filter(|path| Path::new(path).exists());
        let lent: Vec<String> = libraries.map(|path| format!("{path}:{path}:ro")).collect();
        let mut all = vec!["run", "--isolation", "chroot"];
        lent.iter().for_each(|volume| all.extend(["--volume", volume]));
        all.extend([&container, "--", "/symseal", "serve", "--config", "/etc/symseal/server.toml"]);
        all.extend(arguments);
        image(&all)
    };
    let checked = ran(&mut run(&["--check-config"]));
    assert!(checked.contains("/var/lib/symseal on http://0.0.0.0:8790; tokens are asked for"), "{checked}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let listen = format!("127.0.0.1:{port}");
    let mut running =
        run(&["--listen", &listen]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let url = format!("http://{listen}/readyz");
    let started = Instant::now();
    let is_ready = || Command::new("curl").args(["--silent", "--fail", "--output", "/dev/null", &url]).status();
    while !is_ready().expect("curl").success() {
        assert!(started.elapsed() < Duration::from_secs(60) && running.try_wait().expect("a child").is_none());
        std::thread::sleep(Duration::from_millis(100));
    }
    let server = serving(&listen).expect("its process");
    let status = std::fs::read_to_string(server.join("status")).expect("its status");
    assert!(status.contains("Uid:\t10001\t10001\t10001\t10001\n"), "{status}");
    let pid = server.file_name().and_then(|name| name.to_str()).expect("a number").to_owned();
    ran(Command::new("kill").args(["-TERM", &pid]));
    assert!(running.wait().expect("an end").success(), "it ends in order");
}

/// The process that serves at this address, by its own program's name.
fn serving(listen: &str) -> Option<PathBuf> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        line.starts_with(b"/symseal\0") && line.windows(listen.len()).any(|part| part == listen.as_bytes())
    };
    processes.into_iter().find(is_it)
}

#[test]
fn the_manifests_are_what_kubernetes_takes() {
    let Some(validate) = program::peer("kubernetes-validate") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (name, resources) in [
        ("kubernetes.yaml", ["configmap", "service", "statefulset"]),
        ("kubernetes-large.yaml", ["configmap", "service", "deployment"]),
    ] {
        let output =
            Command::new(&validate).arg("--strict").arg(Path::new(DEPLOY).join(name)).output().expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{name}: {said}");
        for resource in resources {
            assert!(said.contains(&format!("passed for resource {resource}/symseal")), "{name}: {said}");
        }
        // A name that is written wrong is seen.
        let wrong = folder.path().join(name);
        std::fs::write(&wrong, shipped(name).replace("readOnlyRootFilesystem", "readOnlyRootFile")).expect("a file");
        assert!(!Command::new(&validate).arg("--strict").arg(wrong).output().expect("it starts").status.success());
        // The configuration in it is one that the server takes.
        let text = shipped(name);
        let (_, rest) = text.split_once("server.toml: |\n").expect("a configuration");
        let lines = rest.lines().take_while(|line| line.starts_with("    "));
        let configuration: Vec<&str> = lines.map(|line| &line[4..]).collect();
        let file = folder.path().join("server.toml");
        std::fs::write(&file, configuration.join("\n")).expect("a file");
        symseal(["serve", "--check-config", "--config", file.to_str().expect("a path")]).ok();
    }
}
