//! `symseal bundle seal` with keys of every kind, as a user would call it.

use crate::program;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{Ran, command, symseal};
use symseal_seal::UtcSeconds;
use symseal_sealer::{ArtifactKey, LogKey, TrustInit, trust_init};

/// Keys, a trust directory for them and an embedded log, and an unsealed bundle of a small program.
struct Scene(tempfile::TempDir);

impl Scene {
    /// `None`, with a word about it, when there is no compiler.
    fn new() -> Option<Self> {
        let scene = Self(tempfile::tempdir().unwrap());
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        scene.build()?;
        scene.trust(&scene.at("keys/artifact.pub.pem"));
        Some(scene)
    }

    fn build(&self) -> Option<()> {
        let inputs = self.path("inputs");
        std::fs::create_dir(&inputs).unwrap();
        let program = program::compile_c(&inputs, "app", "int main(void) { return 0; }\n", &["-g", "-Wl,--build-id"])?;
        let program = program.to_str().unwrap();
        symseal(["bundle", "build", program, "--name", "app", "--version", "1.0", "--output", &self.at("bundle")]).ok();
        Some(())
    }

    fn trust(&self, public: &str) {
        let root = self.at("keys/root.key.pem");
        let log = [self.at("log"), self.at("keys/log.key.pem")];
        let _ = std::fs::remove_dir_all(self.path("trust"));
        let arguments = ["trust", "init", "--trust", &self.at("trust"), "--key", public, "--name", "app"];
        let rest = ["--log", &log[0], "--root-key", &root, "--log-key", &log[1]];
        symseal(arguments.iter().chain(&rest)).ok();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// `bundle seal` with this key and the embedded log.
    fn seal(&self, key: &str) -> Command {
        let mut command = command("symseal");
        command.args(["bundle", "seal", &self.at("bundle"), "--key", key]);
        command.args(["--log", &self.at("log"), "--log-key", &self.at("keys/log.key.pem")]).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn verifies(&self) {
        symseal(["bundle", "verify", &self.at("bundle"), "--trust", &self.at("trust")]).ok();
    }

    #[track_caller]
    fn is_unsealed(&self) {
        let ran = symseal(["bundle", "verify", &self.at("bundle"), "--trust", &self.at("trust")]);
        assert!(ran.status == 1 && ran.stdout.contains("seal.present"), "{ran:?}");
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) {
        let output = Command::new(program).current_dir(self.0.path()).args(arguments).output().expect(program);
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn ran(command: &mut Command) -> Ran {
    command.output().expect("the program starts").into()
}

#[test]
fn an_encrypted_key_takes_its_passphrase_from_where_the_user_says() {
    let Some(scene) = Scene::new() else { return };
    let generate = |arguments: &[&str]| {
        let mut command = command("symseal");
        command.args(["key", "generate", "--output", &scene.at("secret")]).args(arguments);
        ran(command.env("SECRET", "open sesame").env("EMPTY", "").stdin(Stdio::null()))
    };
    generate(&["--encrypt"]).refused(2, &["--passphrase-env"]);
    generate(&["--passphrase-env", "EMPTY"]).refused(2, &["an empty one"]);
    generate(&["--passphrase-env", "UNSET"]).refused(2, &["UNSET is not set"]);
    assert!(!scene.path("secret").exists());
    let made = generate(&["--passphrase-env", "SECRET", "--json"]).ok().json();
    assert_eq!(made["encrypted"], true, "{made}");
    for (name, frame) in
        [("artifact", "ENCRYPTED PRIVATE KEY"), ("root", "ENCRYPTED PRIVATE KEY"), ("log", "PRIVATE KEY")]
    {
        let pem = std::fs::read_to_string(scene.path(&format!("secret/{name}.key.pem"))).unwrap();
        assert!(pem.starts_with(&format!("-----BEGIN {frame}-----")), "{name}: {pem}");
    }
    scene.trust(&scene.at("secret/artifact.pub.pem"));

    let key = scene.at("secret/artifact.key.pem");
    ran(&mut scene.seal(&key)).refused(2, &["artifact.key.pem", "the key is encrypted", "--passphrase-fd"]);
    ran(scene.seal(&key).args(["--passphrase-env", "SECRET"]).env("SECRET", "open")).refused(2, &["does not decrypt"]);
    scene.is_unsealed();
    ran(scene.seal(&key).args(["--passphrase-env", "SECRET"]).env("SECRET", "open sesame")).ok();
    scene.verifies();
    // The root key signs no bundle, though nobody can see which key the file holds.
    let root = scene.at("secret/root.key.pem");
    ran(scene.seal(&root).args(["--passphrase-env", "SECRET"]).env("SECRET", "open sesame"))
        .refused(2, &["this is the root key"]);
}

#[cfg(unix)]
#[test]
fn a_passphrase_comes_through_a_file_descriptor() {
    let Some(scene) = Scene::new() else { return };
    let encrypt =
        ["pkcs8", "-topk8", "-in", "keys/artifact.key.pem", "-out", "keys/encrypted.pem", "-passout", "pass:p"];
    let (Some(_), Some(_)) = (program::tool("openssl"), program::tool("sh")) else { return };
    scene.run("openssl", &encrypt);
    // What follows the line stays in the pipe.
    let mut sealing = scene
        .seal(&scene.at("keys/encrypted.pem"))
        .args(["--passphrase-fd", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    sealing.stdin.take().unwrap().write_all(b"p\nfor somebody else\n").unwrap();
    Ran::from(sealing.wait_with_output().unwrap()).ok();
    scene.verifies();
    ran(scene.seal(&scene.at("keys/encrypted.pem")).args(["--passphrase-fd", "77"])).refused(2, &["77"]);
    // Through the shell, as the documentation shows it.
    let script = format!(
        "printf 'p\\n' | '{}' bundle seal bundle --key keys/encrypted.pem --log log --passphrase-fd 3 3<&0 </dev/null",
        program::symseal_path().display()
    );
    scene.run("sh", &["-c", &script]);
}

#[cfg(unix)]
#[test]
fn a_passphrase_is_typed_on_a_terminal_and_not_shown() {
    let Some(scene) = Scene::new() else { return };
    let Some(python) = program::tool("python3") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles/on_a_terminal.py");
    let typed = |lines: &[&str], arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.arg(&script).args(lines).arg("--").arg(program::symseal_path()).args(arguments);
        let ran = ran(command.env("XDG_DATA_HOME", "/nonexistent").env("XDG_CONFIG_HOME", "/nonexistent"));
        assert!(!ran.stdout.contains("open sesame"), "{ran:?}");
        ran
    };
    let keys = scene.at("secret");
    let differing = typed(&["open sesame", "open"], &["key", "generate", "--output", &keys, "--encrypt"]);
    assert!(differing.status == 2 && differing.stdout.contains("differ"), "{differing:?}");
    assert!(!scene.path("secret").exists());
    typed(&["open sesame", "open sesame"], &["key", "generate", "--output", &keys, "--encrypt"]).ok();
    scene.trust(&scene.at("secret/artifact.pub.pem"));
    let (bundle, log, key) = (scene.at("bundle"), scene.at("log"), scene.at("secret/artifact.key.pem"));
    let log_key = scene.at("keys/log.key.pem");
    let seal = ["bundle", "seal", &bundle, "--key", &key, "--log", &log, "--log-key", &log_key];
    let wrong = typed(&["close sesame"], &seal);
    assert!(wrong.status == 2 && wrong.stdout.contains("does not decrypt"), "{wrong:?}");
    let sealed = typed(&["open sesame"], &seal).ok();
    assert!(sealed.stdout.contains("Passphrase of key") && sealed.stdout.contains("artifact.key.pem"), "{sealed:?}");
    scene.verifies();
}

#[cfg(unix)]
#[test]
fn a_program_signs_and_a_bundle_that_it_does_not_sign_stays_unsealed() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(scene) = Scene::new() else { return };
    if program::tool("openssl").is_none() {
        return;
    }
    let program = |name: &str, sign: &str| {
        let text = format!(
            "#!/bin/sh\ncd '{}'\ncase $1 in\npublic-key) cat keys/artifact.pub.pem ;;\nsign) {sign} ;;\nesac\n",
            scene.0.path().display()
        );
        std::fs::write(scene.path("new"), text).unwrap();
        std::fs::set_permissions(scene.path("new"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(scene.path("new"), scene.path(name)).unwrap();
        format!("exec:{}", scene.at(name))
    };
    let broken = program("broken", "echo 'no such key' >&2; exit 1");
    ran(&mut scene.seal(&broken)).refused(2, &["broken", "no such key"]);
    let forger = program("forger", "openssl dgst -sha256 -sign keys/root.key.pem | openssl base64");
    ran(&mut scene.seal(&forger)).refused(2, &["expected a signature that its public key", "nothing was sealed"]);
    scene.is_unsealed();
    let good = program("good", "openssl dgst -sha256 -sign keys/artifact.key.pem | openssl base64");
    ran(&mut scene.seal(&good)).ok();
    scene.verifies();
    let public = std::fs::read_to_string(scene.path("keys/artifact.pub.pem")).unwrap();
    assert_eq!(symseal(["key", "show", "--key", &good]).ok().stdout, public);
    assert_eq!(
        symseal(["key", "show", "--key", &scene.at("keys/artifact.key.pem"), "--json"]).ok().json()["pem"],
        public
    );
    symseal(["key", "show", "--key", &broken.replace("broken", "none")]).refused(2, &["cannot be started"]);
    // Without a file there is nothing beside it.
    let mut no_log_key = command("symseal");
    no_log_key.args(["bundle", "seal", &scene.at("bundle"), "--key", &good, "--log", &scene.at("log")]);
    ran(&mut no_log_key).refused(2, &["--log-key"]);
}

#[test]
fn a_token_signs() {
    let Some(scene) = Scene::new() else { return };
    let (Some(_), Some(_)) = (program::tool("softhsm2-util"), program::tool("openssl")) else { return };
    let modules = ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"];
    let module = modules.into_iter().find(|path| Path::new(path).exists()).expect("SoftHSM's library");
    std::fs::create_dir(scene.path("tokens")).unwrap();
    let configuration = scene.at("softhsm2.conf");
    std::fs::write(&configuration, format!("directories.tokendir = {}\n", scene.at("tokens"))).unwrap();
    let softhsm = |arguments: &[&str]| {
        let mut command = Command::new("softhsm2-util");
        command.current_dir(scene.0.path()).env("SOFTHSM2_CONF", &configuration).args(arguments);
        assert!(command.output().unwrap().status.success(), "{arguments:?}");
    };
    softhsm(&["--init-token", "--free", "--label", "release", "--so-pin", "4321", "--pin", "1234"]);
    softhsm(&[
        "--import",
        "keys/artifact.key.pem",
        "--token",
        "release",
        "--label",
        "symseal",
        "--id",
        "01",
        "--pin",
        "1234",
    ]);

    let uri = format!("pkcs11:token=release;object=symseal?module-path={module}");
    let seal = |key: &str, pin: &str| {
        let mut command = scene.seal(key);
        ran(command.args(["--passphrase-env", "PIN"]).env("PIN", pin).env("SOFTHSM2_CONF", &configuration))
    };
    seal(&uri, "0000").refused(2, &["pkcs11:token=release;object=symseal", "refused the PIN"]);
    seal(&format!("{uri}&pin-value=1234"), "").refused(2, &["pin-source"]);
    seal("pkcs11:token=release;object=symseal", "1234").refused(2, &["module-path"]);
    scene.is_unsealed();
    seal(&uri, "1234").ok();
    scene.verifies();
}

/// A server that is stopped with the test.
struct Stopped(std::process::Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn listens(port: u16) {
    let started = std::time::Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "nothing listens on port {port}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_real_rekor_takes_the_seal_and_the_bundle_verifies_offline() {
    let Some(scene) = Scene::new() else { return };
    let Some(rekor) = program::tool("rekor-posix") else { return };
    let port = || std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let ports = [port(), port(), port()];
    let serve = Command::new(rekor)
        .args(["serve", "--hostname=rekor-local", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"])
        .arg(format!("--http-port={}", ports[0]))
        .arg(format!("--grpc-port={}", ports[1]))
        .arg(format!("--http-metrics-port={}", ports[2]))
        .arg(format!("--storage-dir={}", scene.at("rekor")))
        .arg(format!("--signer-filepath={}", scene.at("keys/log.key.pem")))
        .args(["--checkpoint-interval=200ms", "--batch-max-age=50ms"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Stopped(serve);
    listens(ports[0]);
    // The directory of the embedded log pins another origin, and the answer is refused.
    let log = format!("http://127.0.0.1:{}", ports[0]);
    let key = scene.at("keys/artifact.key.pem");
    let seal = |more: &[&str]| {
        let (bundle, trust) = (scene.at("bundle"), scene.at("trust"));
        let arguments = ["bundle", "seal", &bundle, "--key", &key, "--log", &log, "--trust", &trust];
        symseal(arguments.iter().chain(more))
    };
    seal(&[]).refused(2, &["a log that the trust directory pins", "nothing was sealed"]);
    scene.is_unsealed();

    let load = |name: &str| ArtifactKey::load_pem(&scene.path(name)).unwrap();
    let (root, artifact) = (load("keys/root.key.pem"), load("keys/artifact.key.pem"));
    let identity = LogKey::load_pem(&scene.path("keys/log.key.pem")).unwrap().identity(&"rekor-local".parse().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let init = TrustInit {
        root: &root,
        artifact: artifact.public(),
        names: &["app".to_owned()],
        log: &identity.unwrap(),
        operator: "a Rekor v2",
        at: UtcSeconds(i64::try_from(now).unwrap()),
        expires: None,
    };
    std::fs::remove_dir_all(scene.path("trust")).unwrap();
    trust_init(&scene.path("trust"), &init).unwrap();
    // The entry is in the log since the first try, and this server does not give its tiles.
    seal(&[]).refused(2, &["stands in the log already, at index 0", "--log-read"]);
    scene.is_unsealed();
    let Some(python) = program::tool("python3") else { return };
    let reads = port();
    let files = Command::new(python)
        .args(["-m", "http.server", "--bind", "127.0.0.1", "--directory", &scene.at("rekor"), &reads.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _files = Stopped(files);
    listens(reads);
    seal(&["--log-read", &format!("http://127.0.0.1:{reads}")]).ok();
    scene.verifies();
}

#[test]
fn a_log_that_does_not_answer_leaves_the_bundle_unsealed_and_a_retry_completes_it() {
    let Some(scene) = Scene::new() else { return };
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let key = scene.at("keys/artifact.key.pem");
    let seal = |log: &str, trust: &str| {
        let bundle = scene.at("bundle");
        symseal(["bundle", "seal", &bundle, "--key", &key, "--log", log, "--trust", trust])
    };
    let down = format!("rekor-v2+http://127.0.0.1:{port}");
    seal(&down, &scene.at("trust")).refused(2, &["nothing was sealed", "try again", &port.to_string()]);
    seal(&down, &scene.at("nowhere")).refused(2, &["--trust", "nowhere"]);
    seal("ftp://log.example", &scene.at("trust")).refused(2, &["ftp://log.example", "rekor-v1+https://HOST"]);
    scene.is_unsealed();
    seal(&scene.at("log"), &scene.at("trust")).ok();
    scene.verifies();
}
