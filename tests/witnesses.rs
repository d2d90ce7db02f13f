//! `symseal bundle seal --witness` and litewitness, a witness by others, as an operator would run them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use symseal_seal::encoding::to_hex;
use symseal_seal::{LogIdentity, Witness};
use symseal_sealer::{LogKey, PublishedLog};

use crate::program::{Ran, compile_c, peer, symseal, tool};

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn appears(what: &str, mut there: impl FnMut() -> bool) {
    let started = Instant::now();
    while !there() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} did not appear");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// litewitness, its key in an agent of its own.
struct LiteWitness {
    folder: PathBuf,
    name: String,
    key: Witness,
    fingerprint: String,
    url: String,
    program: PathBuf,
    server: Option<Running>,
    _agent: Running,
}

impl LiteWitness {
    /// `None`, with a word about it, where it or OpenSSH's programs are not to be had.
    fn start(folder: &Path, name: &str) -> Option<Self> {
        let program = peer("litewitness")?;
        let (agent, keygen, add) = (tool("ssh-agent")?, tool("ssh-keygen")?, tool("ssh-add")?);
        tool("python3")?;
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        let (socket, key) = (folder.join("agent"), folder.join("key"));
        run(Command::new(&keygen).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
        let agent = Command::new(agent).arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        let agent = Running(agent);
        appears("the agent", || socket.exists());
        run(Command::new(add).arg("-q").arg(&key).env("SSH_AUTH_SOCK", &socket));
        let listed = run(Command::new(keygen).arg("-lf").arg(&key));
        let fingerprint = listed.split(' ').nth(1).unwrap().to_owned();
        // RFC 8709: a name and the 32 bytes of the key, each with its length.
        let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
        let blob = STANDARD.decode(public.split(' ').nth(1).unwrap()).unwrap();
        let public: [u8; 32] = blob[blob.len() - 32..].try_into().unwrap();
        let key = Witness::new(name, &public).unwrap();
        let url = String::new();
        let mut witness =
            Self { folder, name: name.to_owned(), key, fingerprint, url, program, server: None, _agent: agent };
        witness.serve();
        Some(witness)
    }

    fn serve(&mut self) {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let server = Command::new(&self.program)
            .current_dir(&self.folder)
            .args(["-name", &self.name, "-key", &self.fingerprint, "-ssh-agent", "agent", "-db", "db"])
            .arg(format!("-listen=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(Running(server));
        self.url = format!("http://127.0.0.1:{port}");
        appears("litewitness", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// What `witnessctl add-log` and `add-key` write.
    fn knows(&self, log: &LogIdentity) {
        let mut key = vec![0x01];
        // The last 32 bytes of an Ed25519 SPKI.
        key.extend_from_slice(&log.key.spki()[12..]);
        let key = format!("{}+{}+{}", log.origin.name(), to_hex(&log.id().hint()), STANDARD.encode(key));
        let script = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=20)
nothing = '47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
db.execute('INSERT INTO log VALUES (?, 0, ?)', (sys.argv[2], nothing))
db.execute('INSERT INTO key VALUES (?, ?)', (sys.argv[2], sys.argv[3]))
db.commit()";
        let db = self.folder.join("db");
        run(Command::new("python3").args(["-c", script]).arg(db).args([log.origin.as_str(), &key]));
    }
}

/// Keys, a log, a trust directory, and an unsealed bundle.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Option<Self> {
        let scene = Self(tempfile::tempdir().unwrap());
        compile_c(scene.0.path(), "app", "int main(void) { return 0; }\n", &["-g", "-Wl,--build-id"])?;
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        let (trust, artifact, log) = (scene.at("trust"), scene.at("keys/artifact.pub.pem"), scene.at("log"));
        symseal(["trust", "init", "--trust", &trust, "--key", &artifact, "--name", "app", "--log", &log]).ok();
        let public = symseal(["key", "show", "--key", &scene.at("keys/log.key.pem")]).ok().stdout;
        std::fs::write(scene.path("log.pub.pem"), public).unwrap();
        scene.build("1.0");
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// Another release in the place of the bundle.
    fn build(&self, version: &str) {
        let _ = std::fs::remove_dir_all(self.path("bundle"));
        let (app, to) = (self.at("app"), self.at("bundle"));
        symseal(["bundle", "build", &app, "--name", "app", "--version", version, "--output", &to]).ok();
    }

    fn log(&self) -> LogIdentity {
        let origin = PublishedLog::open(&self.path("log")).unwrap().checkpoint().origin.parse().unwrap();
        LogKey::load_pem(&self.path("keys/log.key.pem")).unwrap().identity(&origin).unwrap()
    }

    fn entries(&self) -> u64 {
        PublishedLog::open(&self.path("log")).unwrap().size()
    }

    /// The policy names these witnesses of the log, and asks for so many.
    fn policy(&self, witnesses: &[&Witness], quorum: &str) {
        let (trust, root, key) = (self.at("trust"), self.at("keys/root.key.pem"), self.at("log.pub.pem"));
        let origin = self.log().origin.to_string();
        let keys: Vec<String> = witnesses.iter().map(ToString::to_string).collect();
        let mut arguments = vec!["trust", "add-log", "--trust", &trust, "--root-key", &root, "--log-key", &key];
        arguments.extend(["--origin", &origin, "--witness-quorum", quorum, "--lower-quorum"]);
        arguments.extend(keys.iter().flat_map(|key| ["--witness", key]));
        symseal(arguments).ok();
    }

    fn seal(&self, witnesses: &[&str]) -> Ran {
        let (bundle, key, log) = (self.at("bundle"), self.at("keys/artifact.key.pem"), self.at("log"));
        let trust = self.at("trust");
        let mut arguments = vec!["bundle", "seal", &bundle, "--key", &key, "--log", &log, "--trust", &trust];
        arguments.extend(["--log-timeout", "20"]);
        arguments.extend(witnesses.iter().flat_map(|url| ["--witness", url]));
        symseal(arguments)
    }

    fn report(&self) -> (i32, Value) {
        let ran = symseal(["bundle", "verify", &self.at("bundle"), "--trust", &self.at("trust"), "--json"]);
        (ran.status, ran.json())
    }

    /// The bundle verifies, with so many witnesses.
    #[track_caller]
    fn holds(&self, witnesses: u64) {
        let (status, report) = self.report();
        assert_eq!((status, &report["seal"]["witnesses"]), (0, &witnesses.into()), "{report:#}");
    }

    #[track_caller]
    fn fails(&self, check: &str) {
        let (status, report) = self.report();
        let failed = report["checks"].as_array().unwrap().iter().filter(|check| check["status"] == "failed");
        let failed: Vec<&str> = failed.map(|check| check["id"].as_str().unwrap()).collect();
        assert_eq!((status, failed), (1, vec![check]), "{report:#}");
    }
}

#[test]
fn a_quorum_of_real_witnesses_cosigns_what_is_sealed() {
    let Some(scene) = Scene::new() else { return };
    let folder = scene.0.path();
    let Some(one) = LiteWitness::start(folder, "w1.example") else { return };
    let Some(mut two) = LiteWitness::start(folder, "w2.example") else { return };
    let entries = scene.entries();
    // Nobody's key to believe: said before anything is signed.
    scene.seal(&[&one.url]).refused(2, &["--witness", "found none for log-", "trust add-log --witness"]);
    assert_eq!(scene.entries(), entries);
    scene.policy(&[&one.key, &two.key], "2");
    // A witness that knows nothing of the log.
    one.knows(&scene.log());
    scene.seal(&[&one.url, &two.url]).refused(2, &[&two.url, "404", "found 1 (w1.example)", "nothing was sealed"]);
    scene.fails("seal.present");
    two.knows(&scene.log());
    let sealed = scene.seal(&[&one.url, &two.url]).ok();
    assert!(sealed.stderr.is_empty(), "{sealed:?}");
    scene.holds(2);
    // The entry of the try before, found again.
    assert_eq!(scene.entries(), entries + 1);

    // The next ones need consistency proofs.
    for version in ["1.1", "1.2", "1.3"] {
        scene.build(version);
        scene.seal(&[&two.url, &one.url]).ok();
        scene.holds(2);
    }
    scene.build("1.4");
    two.server = None;
    scene.seal(&[&one.url, &two.url]).refused(2, &[&two.url, "2 witnesses", "trying again is safe"]);
    scene.fails("seal.present");
    // One of the two is enough for another policy, and not for the first.
    scene.policy(&[], "1");
    let warned = scene.seal(&[&one.url, &two.url]).ok();
    assert_eq!(warned.stderr.lines().count(), 1, "{warned:?}");
    assert!(warned.stderr.starts_with(&format!("warning: witness {}: ", two.url)), "{warned:?}");
    scene.holds(1);
    scene.policy(&[], "2");
    scene.fails("log.witnesses");
    two.serve();
    scene.build("1.4");
    scene.seal(&[&one.url, &two.url]).ok();
    scene.holds(2);
    assert_eq!(scene.entries(), entries + 5);
}

#[test]
fn a_real_witness_with_another_key_or_of_another_history_lets_nothing_be_sealed() {
    let Some(scene) = Scene::new() else { return };
    let Some(witness) = LiteWitness::start(scene.0.path(), "w1.example") else { return };
    witness.knows(&scene.log());
    let other = LogKey::generate().unwrap().identity(&scene.log().origin).unwrap();
    let other = Witness::new("w1.example", other.key.spki()[12..].try_into().unwrap()).unwrap();
    scene.policy(&[&other], "1");
    scene.seal(&[&witness.url]).refused(2, &["a cosignature by w1.example+", "does not name", "nothing was sealed"]);
    scene.fails("seal.present");
    scene.policy(&[&witness.key], "1");
    scene.seal(&[&witness.url]).ok();
    scene.holds(1);

    // A backup of the log and of the memory of it, put back after another release.
    let copy = |from: &str, to: &str| run(Command::new("cp").args(["-r", &scene.at(from), &scene.at(to)]));
    copy("log", "log.backup");
    copy("keys/log.last-checkpoint", "memory.backup");
    scene.build("1.1");
    scene.seal(&[&witness.url]).ok();
    scene.holds(1);
    std::fs::remove_dir_all(scene.path("log")).unwrap();
    copy("log.backup", "log");
    copy("memory.backup", "keys/log.last-checkpoint");
    // The same size with another entry, and then a larger tree on that.
    scene.build("1.2");
    let backup = ["put back from a backup", "second history", &witness.url, "nothing was sealed"];
    scene.seal(&[&witness.url]).refused(2, &backup);
    scene.build("1.3");
    scene.seal(&[&witness.url]).refused(2, &backup);
    scene.fails("seal.present");
    // The log as it was in the backup, one entry behind what the witness saw.
    std::fs::remove_dir_all(scene.path("log")).unwrap();
    copy("log.backup", "log");
    copy("memory.backup", "keys/log.last-checkpoint");
    scene.build("1.0");
    scene.seal(&[&witness.url]).refused(2, &[&backup[..], &["found one that has seen 2"]].concat());
}
