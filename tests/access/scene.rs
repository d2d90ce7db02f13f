//! A server that asks for tokens, with a public release and a private one.

use std::path::PathBuf;

use crate::curl::{Answer, curl};
use crate::program::{self, RunningServer, symseal};

pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) server: RunningServer,
    /// May write to `team` and `public`.
    pub(crate) writer: String,
    /// May read `team`.
    pub(crate) reader: String,
    pub(crate) public: Release,
    pub(crate) private: Release,
}

/// A release on the server.
#[derive(Default)]
pub(crate) struct Release {
    pub(crate) build_id: String,
    pub(crate) digest: String,
    pub(crate) repository: &'static str,
}

impl Scene {
    /// `None`, with a word about it, where there is no compiler or no curl.
    pub(crate) fn new(more: &[&str]) -> Option<Self> {
        program::tool("curl")?;
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let writer = token(&data, &["--write", "team", "--write", "public", "--grant", "audit:read"]);
        let reader = token(&data, &["--read", "team", "--grant", "traces:read"]);
        let arguments = ["--access", "tokens", "--anonymous-read", "public"];
        let arguments: Vec<&str> = arguments.iter().chain(more).copied().collect();
        let server = RunningServer::start_with(&data, &arguments);
        let mut scene = Self { root, server, writer, reader, public: Release::default(), private: Release::default() };
        scene.public = scene.publish("public/app", "aaaaaaaa01")?;
        scene.private = scene.publish("team/app", "bbbbbbbb02")?;
        Some(scene)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    /// A folder with the credentials of docker's configuration, for those who hold `token`.
    pub(crate) fn docker_config(&self, name: &str, token: &str) -> PathBuf {
        use base64::Engine as _;
        let folder = self.path(name);
        std::fs::create_dir_all(&folder).unwrap();
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("ci:{token}"));
        let text = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, self.server.address);
        std::fs::write(folder.join("config.json"), text).unwrap();
        folder
    }

    fn publish(&self, repository: &'static str, build_id: &str) -> Option<Release> {
        let folder = self.path(build_id);
        std::fs::create_dir(&folder).unwrap();
        let id = format!("-Wl,--build-id=0x{build_id}");
        let source =
            format!("int f_{build_id}(int x) {{ return x + 1; }}\nint main(void) {{ return f_{build_id}(-1); }}\n");
        let binary = program::compile_c(&folder, "app", &source, &["-g", &id])?;
        let layout = folder.join("layout");
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        symseal([
            "bundle",
            "build",
            &text(&binary),
            "--name",
            "app",
            "--version",
            build_id,
            "--output",
            &text(&layout),
        ])
        .ok();
        let reference = format!("{}/{repository}:1", self.server.address);
        let pushed: program::Ran = program::command("symseal")
            .env("DOCKER_CONFIG", self.docker_config("writer", &self.writer))
            .args(["bundle", "push", &text(&layout), &reference])
            .output()
            .unwrap()
            .into();
        pushed.ok();
        let shown = self.get(&format!("/v2/{repository}/manifests/1"), Some(&self.writer))?;
        let digest = shown.header("docker-content-digest").first().copied().unwrap_or_default().to_owned();
        Some(Release { build_id: build_id.to_owned(), digest, repository })
    }

    /// GET with or without a token in `Authorization: Bearer`.
    #[track_caller]
    pub(crate) fn get(&self, path: &str, token: Option<&str>) -> Option<Answer> {
        let header = token.map(|token| format!("Authorization: Bearer {token}"));
        let url = self.url(path);
        curl(header.iter().flat_map(|header| ["--header", header]).chain([url.as_str()]))
    }
}

/// A new token.
pub(crate) fn token(data: &std::path::Path, grants: &[&str]) -> String {
    let fixed = ["token", "create", "--data", data.to_str().unwrap(), "--name", "test"];
    symseal(fixed.iter().chain(grants)).ok().stdout.trim().to_owned()
}
