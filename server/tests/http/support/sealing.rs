//! A trust directory with a log, bundles that are sealed by it, and a server that judges them.

use std::path::PathBuf;

use super::programs::run;
use super::{Running, http, options};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use serde_json::Value;
use symseal_builder::{Options, SealOptions, SymbolBundleBuilder, seal_bundle};
use symseal_bundle::oci;
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::push;
use symseal_seal::UtcSeconds;
use symseal_sealer::{ArtifactKey, LogKey, TileLog, TrustInit, trust_init};
use symseal_server::SealRules;
use symseal_server::tokens::{NewToken, Tokens};

/// A key that a trust directory names for every release, one that it does not name, and a log.
pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) root: ArtifactKey,
    pub(crate) key: ArtifactKey,
    pub(crate) stranger: ArtifactKey,
    pub(crate) log: TileLog,
    pub(crate) http: Client,
}

/// A bundle in a layout of its own.
pub(crate) struct Built {
    pub(crate) layout: LayoutDir,
    pub(crate) digest: Digest,
    /// The file that it has for the build-id.
    pub(crate) file: Vec<u8>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let [root, key, stranger] = [(); 3].map(|()| ArtifactKey::generate().unwrap());
        let log = TileLog::create(&at("log"), "log.example".parse().unwrap(), LogKey::generate().unwrap(), &at("seen"))
            .unwrap();
        let init = TrustInit {
            root: &root,
            artifact: key.public(),
            names: &["*".to_owned()],
            log: log.identity(),
            operator: "a test",
            at: UtcSeconds(0),
            expires: None,
        };
        trust_init(&at("trust"), &init).unwrap();
        Self { root, key, stranger, log, http: http(), folder }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) async fn serve(&self, require: &[&str]) -> Running {
        Running::start_judging(&self.data(), self.rules(require)).await
    }

    /// A program with a build-id, whose bytes depend on `text` and which has debug information as `flags` say.
    pub(crate) fn build(&self, release: &str, id: &str, text: &str, flags: &[&str]) -> Built {
        let folder = self.folder.path().join(format!("{release}-{text}"));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, binary) = (folder.join("app.c"), folder.join("app"));
        std::fs::write(
            &source,
            format!("const char *text(void) {{ return \"{text}\"; }} int main(void) {{ return *text(); }}\n"),
        )
        .unwrap();
        let id = format!("-Wl,--build-id=0x{id}");
        let mut arguments = vec![source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id];
        arguments.extend(flags);
        run("cc", &arguments);
        let layout = LayoutDir::create(folder.join("layout")).unwrap();
        let options = Options { name: release.into(), version: "1".into(), ..Options::default() };
        let digest = SymbolBundleBuilder::new(options).add_path(&binary).build(&layout).unwrap().digest;
        Built { layout, digest, file: std::fs::read(binary).unwrap() }
    }

    pub(crate) fn seal(&mut self, built: &Built) -> Digest {
        seal_bundle(&built.layout, &built.digest, &self.key, &mut self.log, &SealOptions::default()).unwrap()
    }

    pub(crate) async fn push(&self, server: &Running, built: &Built, repository: &str) -> Result<(), String> {
        let reference = server.reference(&format!("{repository}:1"));
        push(&built.layout, &built.digest, &reference, &options()).await.map(drop).map_err(|error| error.to_string())
    }

    pub(crate) async fn get(&self, server: &Running, path: &str) -> (StatusCode, Vec<u8>) {
        let answer = self.http.get(server.url(path)).send().await.unwrap();
        (answer.status(), answer.bytes().await.unwrap().to_vec())
    }

    pub(crate) async fn json(&self, server: &Running, path: &str) -> Value {
        serde_json::from_slice(&self.get(server, path).await.1).unwrap()
    }

    /// What a build-id's debug information is; nothing at 404.
    pub(crate) async fn answer(&self, server: &Running, path: &str) -> Option<Vec<u8>> {
        match self.get(server, path).await {
            (StatusCode::OK, bytes) => Some(bytes),
            (StatusCode::NOT_FOUND, _) => None,
            other => panic!("{path}: {other:?}"),
        }
    }

    pub(crate) async fn verification(&self, server: &Running, built: &Built) -> Value {
        self.json(server, &format!("/api/v1/bundles/{}", built.digest)).await["verification"].take()
    }

    /// PUTs a manifest of a layout as it is.
    pub(crate) async fn put(
        &self,
        server: &Running,
        built: &Built,
        repository: &str,
        digest: &Digest,
        kind: &str,
    ) -> (StatusCode, Value) {
        let bytes = built.layout.read_blob(digest, oci::MAX_MANIFEST_BYTES).unwrap();
        let url = server.url(&format!("/v2/{repository}/manifests/{digest}"));
        let answer = self.http.put(url).header(CONTENT_TYPE, kind).body(bytes).send().await.unwrap();
        (answer.status(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    pub(crate) fn rules(&self, require: &[&str]) -> SealRules {
        let require = require.iter().map(ToString::to_string).collect();
        SealRules { trust: self.folder.path().join("trust"), require }
    }

    /// A token of the server's that may do what the grants say.
    pub(crate) async fn token(&self, grants: &[&str]) -> String {
        let tokens = Tokens::open(&self.data(), None).await.unwrap();
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let new = NewToken { name: "t".into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
        tokens.create(new).await.unwrap().0.expose().to_owned()
    }
}
