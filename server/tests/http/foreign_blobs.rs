//! What somebody pushes may name any blob of the store by its digest: it is given, read and told of only where a repository that the caller may read has it.

use std::path::{Path, PathBuf};

use reqwest::StatusCode;
use serde_json::Value;
use symseal_builder::{Options, SourceOptions, SymbolBundleBuilder};
use symseal_bundle::{Digest, LayoutDir, oci};
use symseal_registry::push;
use symseal_seal::UtcSeconds;
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{AccessConfig, Config};

use crate::support::programs::{has, run};
use crate::support::{Running, http, options};

const SECRET: &str = "int secret(int x) { return 2 * x; }\nint main(void) { return secret(3) - 6; }\n";

/// A program of this source with the id that both releases have, and the path of its source.
pub(crate) fn compile(folder: &Path) -> (PathBuf, String) {
    let (source, binary) = (folder.join("app.c"), folder.join("app"));
    std::fs::write(&source, SECRET).unwrap();
    let (path, output) = (source.to_str().unwrap(), binary.to_str().unwrap());
    run("cc", &["-g", path, "-o", output, "-Wl,--build-id=0xabcdef01"]);
    (binary, path.to_owned())
}

/// A bundle with its sources in a layout.
pub(crate) struct Release {
    pub(crate) layout: LayoutDir,
    pub(crate) bundle: Digest,
    pub(crate) sources: Digest,
}

impl Release {
    pub(crate) fn build(folder: &Path, name: &str, binary: &Path) -> Self {
        let layout = LayoutDir::create(folder.join(name)).unwrap();
        let release = Options { name: name.into(), version: "1".into(), ..Options::default() };
        let sources = SourceOptions { roots: vec![folder.into()], maps: Vec::new() };
        let built = SymbolBundleBuilder::new(release).add_path(binary).sources(sources).build(&layout).unwrap();
        Self { bundle: built.digest, sources: built.index.sources.unwrap(), layout }
    }

    /// The manifest of its sources: the table, then packs.
    pub(crate) fn sources(&self) -> Value {
        let artifact = self.json(&self.sources.to_string());
        let first = artifact.pointer("/manifests/0/digest").and_then(Value::as_str).map(|first| self.json(first));
        first.unwrap_or(artifact)
    }

    fn table(&self) -> Value {
        self.json(self.sources()["layers"][0]["digest"].as_str().unwrap())
    }

    fn pack(&self) -> String {
        self.sources()["layers"][1]["digest"].as_str().unwrap().to_owned()
    }

    fn json(&self, digest: &str) -> Value {
        serde_json::from_slice(&self.bytes(digest)).unwrap()
    }

    fn bytes(&self, digest: &str) -> Vec<u8> {
        self.layout.read_blob(&digest.parse().unwrap(), 1 << 26).unwrap()
    }
}

/// Somebody who may write to one repository, with no client of ours.
struct Attacker<'s> {
    server: &'s Running,
    token: &'s str,
    repository: &'s str,
}

impl Attacker<'_> {
    async fn blob(&self, bytes: &[u8]) -> String {
        let digest = Digest::of(bytes).to_string();
        let url = self.server.url(&format!("/v2/{}/blobs/uploads/?digest={digest}", self.repository));
        let answer = http().post(url).bearer_auth(self.token).body(bytes.to_vec()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED);
        digest
    }

    /// Its digest, or why it was refused.
    async fn manifest(&self, value: &Value) -> Result<String, String> {
        let bytes = value.to_string();
        let digest = Digest::of(bytes.as_bytes()).to_string();
        let url = self.server.url(&format!("/v2/{}/manifests/{digest}", self.repository));
        let request =
            http().put(url).bearer_auth(self.token).header("content-type", value["mediaType"].as_str().unwrap());
        let answer = request.body(bytes).send().await.unwrap();
        if answer.status() == StatusCode::CREATED { Ok(digest) } else { Err(answer.text().await.unwrap()) }
    }

    /// Publishes its own bundle with another table of sources.
    async fn publish(&self, own: &Release, table: &[u8]) {
        self.blob(oci::EMPTY_JSON).await;
        let mut sources = own.sources();
        sources["layers"].as_array_mut().unwrap().truncate(1);
        sources["layers"][0]["digest"] = self.blob(table).await.into();
        sources["layers"][0]["size"] = table.len().into();
        let sources = self.manifest(&sources).await.unwrap();

        let mut index = own.json(&own.bundle.to_string());
        for child in index["manifests"].as_array_mut().unwrap() {
            let mut manifest = own.json(child["digest"].as_str().unwrap());
            for layer in manifest["layers"].as_array_mut().unwrap() {
                let mut bytes = own.bytes(layer["digest"].as_str().unwrap());
                if layer["mediaType"] == oci::SYMBOL_INDEX {
                    let text = String::from_utf8(bytes).unwrap();
                    bytes = text.replace(&own.sources.to_string(), &sources).into_bytes();
                    layer["size"] = bytes.len().into();
                }
                layer["digest"] = self.blob(&bytes).await.into();
            }
            child["digest"] = self.manifest(&manifest).await.unwrap().into();
            child["size"] = manifest.to_string().len().into();
        }
        self.manifest(&index).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_pushed_leads_to_nothing_that_its_repository_has_not() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    let (binary, path) = compile(&folder);
    let (private, own) = (Release::build(&folder, "private", &binary), Release::build(&folder, "own", &binary));
    let data = folder.join("data");
    let server = Running::start(&data).await;
    for digest in [&private.sources, &private.bundle] {
        push(&private.layout, digest, &server.reference("team/app:1"), &options()).await.unwrap();
    }
    server.stop().await;

    let mut config = Config::new(&data, ([127, 0, 0, 1], 0).into());
    config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
    let tokens = Tokens::open(&data, None).await.unwrap();
    let server = Running::start_as(config).await;
    let token = async |grants: &[&str]| {
        let name = grants.join(" ");
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let new = NewToken { name, created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
        tokens.create(new).await.unwrap().0.expose().to_owned()
    };
    let (writer, reader) = (token(&["write:other"]).await, token(&["read:team", "read:other/b"]).await);
    let source = async |prefix: &str, token: &str| {
        let url = server.url(&format!("{prefix}/buildid/abcdef01/source{path}"));
        let answer = http().get(url).bearer_auth(token).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };

    // A table whose one file is the whole pack of the private sources.
    let digest = private.pack();
    let whole = private.bytes(&digest);
    let mut table = own.table();
    table["packs"][0]["sha256"] = digest.clone().into();
    table["packs"][0]["size"] = whole.len().into();
    for (name, value) in [("offset", 0.into()), ("size", whole.len().into()), ("sha256", digest.clone().into())] {
        table["files"][0][name] = value;
    }
    table["statistics"]["bytes"] = whole.len().into();
    let attacker = Attacker { server: &server, token: &writer, repository: "other/a" };
    attacker.publish(&own, table.to_string().as_bytes()).await;
    assert_eq!(source("", &writer).await.0, StatusCode::NOT_FOUND);
    assert_eq!(source("/s/other", &writer).await.0, StatusCode::NOT_FOUND);
    let url = server.url("/buildid/abcdef01/executable");
    let answer = http().get(url).bearer_auth(&writer).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "its own bundle is published");
    // Where its repository has the pack the same table gives it.
    attacker.blob(&whole).await;
    let url = server.url(&format!("/s/other/buildid/abcdef01/source{path}"));
    let answer = http().get(url).bearer_auth(&writer).send().await.unwrap();
    assert_eq!((answer.status(), answer.bytes().await.unwrap().len()), (StatusCode::OK, whole.len()));

    // Nor does it, or what is no table, keep others from what they have.
    let attacker = Attacker { repository: "other/b", ..attacker };
    attacker.publish(&own, b"no table").await;
    assert_eq!(source("", &reader).await, (StatusCode::OK, SECRET.to_owned()));
    assert_eq!(source("/s/other/b", &writer).await.0, StatusCode::NOT_FOUND);

    // An image index over the private root manifest, which is here as no more than a blob.
    let index = private.json(&private.bundle.to_string());
    let attacker = Attacker { repository: "other/c", ..attacker };
    for child in index["manifests"].as_array().unwrap() {
        attacker.blob(&private.bytes(child["digest"].as_str().unwrap())).await;
    }
    let refused = attacker.manifest(&index).await.unwrap_err();
    assert!(refused.contains("is no manifest of the repository") && !refused.contains("debug"), "{refused}");
}
