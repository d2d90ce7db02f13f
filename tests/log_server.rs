//! `symseal bundle seal --log http://…` through `symseal serve --log`, as a release pipeline would call it.

use crate::program;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::program::{Ran, command, symseal};
use symseal_sealer::{LogKey, TileLog};

struct Scene(tempfile::TempDir);

/// Ended when dropped.
struct Serving {
    child: Child,
    url: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Scene {
    fn at(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn serve(&self) -> Serving {
        self.serve_in("data")
    }

    fn serve_in(&self, data: &str) -> Serving {
        let mut child = command("symseal")
            .args(["serve", "--data", &self.at(data), "--listen", "127.0.0.1:0", "--log"])
            .args(["--log-key", &self.at("keys/log.key.pem")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Serving { child, url }
    }

    fn seal(&self, url: &str) -> Command {
        let mut command = command("symseal");
        command.args(["bundle", "seal", &self.at("bundle"), "--key", &self.at("keys/artifact.key.pem")]);
        command.args(["--log", url, "--trust", &self.at("trust")]).stdin(Stdio::null()).env_remove("SYMSEAL_LOG_TOKEN");
        command
    }
}

fn ran(command: &mut Command) -> Ran {
    command.output().expect("the program starts").into()
}

/// A static file server over a directory, until the test ends.
fn serve_files(directory: PathBuf) -> String {
    serve_files_below(directory, "/")
}

fn serve_files_below(directory: PathBuf, prefix: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            reader.read_line(&mut first).unwrap();
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let name = first.split(' ').nth(1).unwrap().strip_prefix(prefix);
            let file = name.and_then(|name| std::fs::read(directory.join(name)).ok());
            let (status, body) = file.map_or((404, Vec::new()), |bytes| (200, bytes));
            let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    format!("http://{address}")
}

fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o777 == 0o600
}

#[test]
fn a_bundle_is_sealed_through_our_server_with_a_token_and_verified_offline() {
    let scene = Scene(tempfile::tempdir().unwrap());
    symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
    let inputs = scene.path("inputs");
    std::fs::create_dir(&inputs).unwrap();
    let built = program::compile_c(&inputs, "app", "int main(void) { return 0; }\n", &["-g", "-Wl,--build-id"]);
    let Some(program) = built else { return };
    let program = program.to_str().unwrap();
    symseal(["bundle", "build", program, "--name", "app", "--version", "1.0", "--output", &scene.at("bundle")]).ok();
    let public = scene.at("keys/artifact.pub.pem");
    let (log, log_key, trust) = (scene.at("data/log"), scene.at("keys/log.key.pem"), scene.at("trust"));
    let arguments = ["trust", "init", "--trust", &trust, "--key", &public, "--name", "app", "--log", &log];
    symseal(arguments.iter().copied().chain(["--log-key", log_key.as_str()])).ok();

    let server = scene.serve();
    let create = ["token", "create", "--data", &scene.at("data"), "--name", "pipeline", "--key", &public];
    let token = symseal(create).ok().stdout.trim().to_owned();
    assert!(token.starts_with("symseal_"), "{token}");

    ran(&mut scene.seal(&server.url)).refused(2, &["401", "token"]);
    ran(scene.seal(&server.url).env("SYMSEAL_LOG_TOKEN", "symseal_x")).refused(2, &["401"]);
    std::fs::write(scene.path("token"), format!("{token}\n")).unwrap();
    ran(scene.seal(&server.url).args(["--log-token-file", &scene.at("token")])).ok();
    // The seal is a referrer that stands: sealing again answers with an entry of the same kind.
    ran(scene.seal(&server.url).env("SYMSEAL_LOG_TOKEN", &token)).ok();

    let listed = symseal(["token", "list", "--data", &scene.at("data"), "--json"]).ok().stdout;
    assert!(!listed.contains(&token), "{listed}");
    let tokens: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = tokens[0]["id"].as_str().unwrap();
    assert!(tokens[0]["name"] == "pipeline" && tokens[0]["holds"] == true, "{tokens}");
    symseal(["token", "revoke", "--data", &scene.at("data"), id]).ok();
    ran(scene.seal(&server.url).env("SYMSEAL_LOG_TOKEN", &token)).refused(2, &["401"]);
    symseal(["token", "revoke", "--data", &scene.at("data"), "000000000000"]).refused(1, &["symseal token list"]);
    symseal(["token", "list", "--data", &scene.at("nowhere")]).refused(2, &["nowhere"]);
    assert!(!scene.path("nowhere").exists());
    drop(server);

    let verified = symseal(["bundle", "verify", &scene.at("bundle"), "--trust", &trust]);
    verified.ok();
}

#[test]
fn a_server_makes_its_log_when_it_is_told_to_with_a_private_key() {
    let scene = Scene(tempfile::tempdir().unwrap());
    let server = scene.serve();
    assert!(is_private(&scene.path("keys/log.key.pem")));
    assert!(scene.path("data/log/checkpoint").is_file());
    // One writer at a time: the server has the lease.
    let (root, log) = (scene.at("other"), scene.at("data/log"));
    symseal(["key", "generate", "--output", &root]).ok();
    let key = scene.at("other/artifact.pub.pem");
    let arguments = ["trust", "init", "--trust", &scene.at("trust"), "--key", &key, "--name", "app", "--log", &log];
    let log_key = scene.at("keys/log.key.pem");
    symseal(arguments.iter().copied().chain(["--log-key", log_key.as_str()])).refused(2, &["lease"]);
    drop(server);
    symseal(arguments.iter().copied().chain(["--log-key", log_key.as_str()])).ok();
}

#[test]
fn proofs_of_a_log_are_made_over_http_as_from_its_directory() {
    let scene = Scene(tempfile::tempdir().unwrap());
    std::fs::create_dir(scene.path("keys")).unwrap();
    std::fs::create_dir(scene.path("data")).unwrap();
    let key = LogKey::generate_file(&scene.path("keys/log.key.pem")).unwrap();
    let directory = scene.at("data/log");
    let mut log =
        TileLog::create(&scene.path("data/log"), "log.example".parse().unwrap(), key, &scene.path("seen")).unwrap();
    let mut append = |count: u32| {
        for _ in 0..count {
            let entry = format!("entry {}", log.size());
            log.append(entry.as_bytes()).unwrap();
        }
    };
    append(300);
    let seen = symseal(["log", "checkpoint", "--log", &directory]).ok().stdout;
    std::fs::write(scene.path("seen.checkpoint"), &seen).unwrap();
    append(230);
    drop(log);
    // A static file server is enough for a reader, as any C2SP log is one.
    let plain = serve_files(scene.path("data/log"));
    let below = serve_files_below(scene.path("data/log"), "/api/v2/");
    let checkpoint = scene.at("seen.checkpoint");
    let commands: [&[&str]; 5] = [
        &["checkpoint"],
        &["consistency", "--from", "0", "--from", "255", "--from", &checkpoint],
        &["consistency", "--from", "12", "--to", "300"],
        &["fragment", "0"],
        &["fragment", "529"],
    ];
    for command in commands {
        let ask = |log: &str| {
            let (name, rest) = command.split_first().unwrap();
            symseal(["log", *name, "--log", log].iter().chain(rest)).ok().stdout
        };
        let expected = ask(&directory);
        for url in [&plain, &format!("{plain}/"), &below, &format!("rekor-v2+{below}")] {
            assert_eq!(ask(url), expected, "{command:?} {url}");
        }
    }
    // What is not as it should be is told with its URL.
    let consistency = |log: &str, from: &str| symseal(["log", "consistency", "--log", log, "--from", from]);
    consistency(&plain, "531").refused(2, &[&plain, "530 entries", "531"]);
    consistency(&format!("{plain}/nowhere"), "1").refused(2, &["/nowhere", "no checkpoint there", "prefix"]);
    consistency("http://127.0.0.1:9", "1").refused(2, &["http://127.0.0.1:9/checkpoint", "refused"]);
    consistency("rekor-v1+http://127.0.0.1:9", "1").refused(2, &["a Rekor v1, which has none"]);
    let tile = scene.path("data/log/tile/0/000");
    let mut bytes = std::fs::read(&tile).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&tile, bytes).unwrap();
    consistency(&plain, "1").refused(2, &[&plain]);
    std::fs::write(scene.path("data/log/checkpoint"), "x".repeat(70_000)).unwrap();
    consistency(&plain, "1").refused(2, &["at most 64 KiB"]);

    // Our own server, which has its log from the start.
    let server = scene.serve_in("served");
    let local = symseal(["log", "checkpoint", "--log", &scene.at("served/log")]).ok().stdout;
    assert_eq!(symseal(["log", "checkpoint", "--log", &server.url]).ok().stdout, local);
}
