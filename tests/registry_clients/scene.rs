//! A server, and an artifact with a referrer that oras pushed to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{RunningServer, peer};

/// A folder, a server on it, and what was pushed: `team/app:v1` with the layers of [`Scene::FILES`] and one note as its
/// referrer.
pub(crate) struct Scene {
    root: tempfile::TempDir,
    pub(crate) server: RunningServer,
    pub(crate) oras: PathBuf,
    pub(crate) digest: String,
    pub(crate) note: String,
}

impl Scene {
    pub(crate) const FILES: [&'static str; 3] = ["text.txt", "folder/bytes.bin", "empty"];

    /// `None`, with a word about it, where there is no oras.
    pub(crate) fn new() -> Option<Self> {
        let oras = peer("oras")?;
        let root = tempfile::tempdir().unwrap();
        let inputs = root.path().join("inputs");
        std::fs::create_dir_all(inputs.join("folder")).unwrap();
        std::fs::write(inputs.join("text.txt"), "one line\n").unwrap();
        let bytes: Vec<u8> = (0..1_500_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(inputs.join("folder/bytes.bin"), bytes).unwrap();
        std::fs::write(inputs.join("empty"), "").unwrap();
        std::fs::write(inputs.join("note.txt"), "a note\n").unwrap();
        let server = RunningServer::start(&root.path().join("data"));
        let mut scene = Self { root, server, oras, digest: String::new(), note: String::new() };
        let reference = scene.reference("team/app:v1");
        let push = ["push", "--plain-http", "--artifact-type", "application/vnd.example.v1", &reference];
        scene.oras(push.into_iter().chain(Self::FILES));
        scene.digest = scene.resolve("team/app:v1");
        let attach = ["attach", "--plain-http", "--artifact-type", "application/vnd.example.note.v1", &reference];
        scene.oras(attach.into_iter().chain(["note.txt:text/plain"]));
        let notes = scene.referrers("team/app:v1");
        assert_eq!(notes.len(), 1);
        scene.note = notes[0].clone();
        Some(scene)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.server.address)
    }

    /// Runs a program in the folder of inputs, with nothing of this machine's set-up; its standard output.
    #[track_caller]
    pub(crate) fn run<'a>(&self, program: &Path, arguments: impl IntoIterator<Item = &'a str>) -> String {
        let mut command = Command::new(program);
        command.env("HOME", self.root.path()).env("DOCKER_CONFIG", self.root.path()).env("COSIGN_PASSWORD", "");
        // No network but loopback may matter.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9");
        let output = command.current_dir(self.path("inputs")).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{command:?}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    #[track_caller]
    pub(crate) fn oras<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        self.run(&self.oras, arguments)
    }

    /// The digest of a reference of this server, as oras finds it.
    #[track_caller]
    pub(crate) fn resolve(&self, rest: &str) -> String {
        self.oras(["resolve", "--plain-http", &self.reference(rest)]).trim().to_owned()
    }

    /// The digests of a reference's referrers, in order.
    #[track_caller]
    pub(crate) fn referrers(&self, rest: &str) -> Vec<String> {
        let text = self.oras(["discover", "--plain-http", "--format", "json", &self.reference(rest)]);
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let list = found["referrers"].as_array().cloned().unwrap_or_default();
        let mut digests: Vec<_> = list.iter().map(|found| found["digest"].as_str().unwrap().to_owned()).collect();
        digests.sort();
        digests
    }

    /// The artifact under another name is the same, to the last byte of its files, with its note.
    #[track_caller]
    pub(crate) fn is_copied_with_its_note(&self, rest: &str) {
        self.is_copied(rest);
        assert_eq!(self.referrers(rest), std::slice::from_ref(&self.note), "{rest}");
    }

    #[track_caller]
    pub(crate) fn is_copied(&self, rest: &str) {
        assert_eq!(self.resolve(rest), self.digest, "{rest}");
        let pulled = tempfile::tempdir_in(self.root.path()).unwrap();
        let output = pulled.path().to_str().unwrap();
        self.oras(["pull", "--plain-http", "--output", output, &self.reference(rest)]);
        self.are_the_files(pulled.path());
    }

    #[track_caller]
    pub(crate) fn are_the_files(&self, folder: &Path) {
        for name in Self::FILES {
            let (expected, found) = (self.path("inputs").join(name), folder.join(name));
            assert!(std::fs::read(&found).unwrap() == std::fs::read(expected).unwrap(), "{}", found.display());
        }
    }
}
