//! `symseal bundle pull` takes bundles and their sources alone, and those that the other commands take: nothing of others is written.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use symseal_bundle::oci::{self, Descriptor, Manifest};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{Options, Reference};

use crate::program::{RunningServer, compile_c, symseal};

const SOURCE: &str = "int innermost_of_the_test(int x) { return x * 3; }\nint main(int n, char **v) { (void)v; return innermost_of_the_test(n); }\n";

struct Scene {
    dir: tempfile::TempDir,
    server: RunningServer,
    layout: LayoutDir,
    digest: Digest,
}

impl Scene {
    /// A server, and a bundle that is not there yet.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let program = compile_c(dir.path(), "app", SOURCE, &["-g", "-Wl,--build-id"])?;
        let bundle = dir.path().join("bundle");
        let text = |path: &Path| path.display().to_string();
        let built = symseal([
            "bundle",
            "build",
            &text(&program),
            "--name",
            "app",
            "--version",
            "1",
            "--json",
            "--output",
            &text(&bundle),
        ]);
        let digest = built.ok().json()["bundle"].as_str().expect("a digest").parse().expect("a digest");
        let layout = LayoutDir::open(&bundle).expect("a layout");
        let server = RunningServer::start(&dir.path().join("data"));
        Some(Self { dir, server, layout, digest })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.server.address)
    }

    fn json(&self, digest: &Digest) -> Value {
        serde_json::from_slice(&self.layout.read_blob(digest, u64::MAX).expect("a blob")).expect("JSON")
    }

    /// The digest that a descriptor names.
    fn named(descriptor: &Value) -> Digest {
        descriptor["digest"].as_str().expect("a digest").parse().expect("a digest")
    }

    /// Stores other JSON in the place of what the descriptor names.
    fn replace(&self, descriptor: &mut Value, content: &Value) {
        let bytes = symseal_bundle::canonical::to_vec(content).expect("JSON");
        let digest = self.layout.write_blob(&bytes).expect("a blob");
        descriptor["digest"] = json!(digest.to_string());
        descriptor["size"] = json!(bytes.len());
    }

    /// The bundle with one title changed: in its index, or in a manifest alone.
    fn with_title(&self, title: &str, in_index: bool) -> Digest {
        let mut image_index = self.json(&self.digest);
        let mut old = None;
        for at in 0..image_index["manifests"].as_array().expect("manifests").len() {
            let mut manifest = self.json(&Self::named(&image_index["manifests"][at]));
            if at == 0 && in_index {
                let mut index = self.json(&Self::named(&manifest["layers"][0]));
                let module = index["linux"].as_object_mut().expect("modules").values_mut().next().expect("a module");
                old = Some(module["files"][0]["path"].clone());
                module["files"][0]["path"] = json!(title);
                self.replace(&mut manifest["layers"][0], &index);
            }
            for layer in manifest["layers"].as_array_mut().expect("layers") {
                let name = &mut layer["annotations"][oci::TITLE];
                let is_it = if in_index { Some(&*name) == old.as_ref() } else { at == 1 };
                if is_it {
                    *name = json!(title);
                }
            }
            self.replace(&mut image_index["manifests"][at], &manifest);
        }
        let bytes = symseal_bundle::canonical::to_vec(&image_index).expect("JSON");
        let digest = self.layout.write_blob(&bytes).expect("a blob");
        let descriptor = Descriptor::of(oci::IMAGE_INDEX, &bytes);
        self.layout.add_to_index(descriptor, None).expect("listed");
        digest
    }

    fn push(&self, digest: &Digest, rest: &str) {
        let reference = Reference::parse(&self.reference(rest)).expect("a reference");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let options = Options::default();
        let pushed = symseal_registry::push(&self.layout, digest, &reference, &options);
        runtime.block_on(pushed).expect("pushed");
    }

    /// The pull is refused with all of this, and leaves nothing.
    #[track_caller]
    fn refused(&self, reference: &str, words: &[&str]) {
        let (output, store) = (self.at("pulled"), self.at("store"));
        symseal(["bundle", "pull", reference, "--output", &output.display().to_string()]).refused(2, words);
        assert!(!output.exists(), "{}", output.display());
        symseal(["bundle", "pull", reference, "--store", &store.display().to_string()]).refused(2, words);
        assert!(!store.exists(), "{}", store.display());
    }
}

#[test]
fn what_is_no_bundle_is_not_pulled() {
    let Some(scene) = Scene::new() else { return };
    let layers = vec![Descriptor::of("text/plain", b"a file").with(oci::TITLE, "a.txt")];
    scene.layout.write_blob(b"a file").expect("a blob");
    scene.layout.write_blob(oci::EMPTY_JSON).expect("a blob");
    let manifest = Manifest::artifact("application/vnd.example.v1", layers).to_bytes().expect("a manifest");
    let digest = scene.layout.write_blob(&manifest).expect("a blob");
    scene.push(&digest, "team/files:1");
    let reference = scene.reference("team/files:1");
    scene.refused(&reference, &["is no bundle", &reference, oci::BUNDLE]);
    // As another command says it.
    symseal(["symbolize", "--remote", &reference, "--debug-id", "aa", "0x1"]).refused(2, &["is no bundle"]);

    // Beside what is in a layout already nothing appears either.
    scene.push(&scene.digest, "team/app:1");
    let pulled = scene.at("pulled").display().to_string();
    symseal(["bundle", "pull", &scene.reference("team/app:1"), "--output", &pulled]).ok();
    let before = files(&scene.at("pulled"));
    symseal(["bundle", "pull", &reference, "--output", &pulled]).refused(2, &["is no bundle"]);
    assert_eq!(files(&scene.at("pulled")), before);
    // And the bundle is there under its tag.
    let index: Value =
        serde_json::from_slice(&std::fs::read(scene.at("pulled/index.json")).expect("a file")).expect("JSON");
    let tags: Vec<_> = index["manifests"]
        .as_array()
        .expect("manifests")
        .iter()
        .map(|listed| &listed["annotations"][oci::REF_NAME])
        .collect();
    assert_eq!(tags, [&json!("1")]);
}

/// A registry that gives what is in a layout, whatever it is: ours refuses a bundle with such an index when it is pushed. Its address.
fn careless_registry(layout: &LayoutDir) -> SocketAddr {
    let (listener, layout) = (TcpListener::bind("127.0.0.1:0").expect("a port"), layout.clone());
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let layout = layout.clone();
            std::thread::spawn(move || answer(&stream, &layout));
        }
    });
    address
}

/// `GET /v2/NAME/manifests/DIGEST` and the same of blobs; one request to a connection.
fn answer(mut stream: &TcpStream, layout: &LayoutDir) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let digest = path.rsplit('/').next().and_then(|digest| digest.parse::<Digest>().ok());
    let is_asked = path.contains("/manifests/") || path.contains("/blobs/");
    let bytes = digest.filter(|_| is_asked).and_then(|digest| layout.read_blob(&digest, u64::MAX).ok());
    let status = if bytes.is_some() { "200 OK" } else { "404 Not Found" };
    let bytes = bytes.unwrap_or_default();
    let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let media_type = json["mediaType"].as_str().unwrap_or("application/octet-stream");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        bytes.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes));
}

#[test]
fn a_bundle_with_a_title_that_the_other_commands_refuse_is_not_pulled() {
    let Some(scene) = Scene::new() else { return };
    let registry = careless_registry(&scene.layout);
    // The registry gives what can be pulled.
    let whole = format!("{registry}/team/app@{}", scene.digest);
    symseal(["bundle", "pull", &whole, "--output", &scene.at("whole").display().to_string()]).ok();
    let titles =
        [("../../escaped", "`..`"), ("/etc/passwd", "absolute"), ("x-gdb.py", "debugger"), ("a\u{202e}b", "not seen")];
    for (title, why) in titles {
        for in_index in [true, false] {
            let digest = scene.with_title(title, in_index);
            scene.refused(&format!("{registry}/team/app@{digest}"), &["the title", why]);
            if in_index {
                let layout = scene.dir.path().join("bundle").display().to_string();
                symseal(["bundle", "inspect", &digest.to_string(), "--store", &layout]).refused(2, &["the title", why]);
            }
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    crate::release::regular_files(folder)
}
