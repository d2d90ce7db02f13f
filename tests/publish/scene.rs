//! What the tests of publishing share: a server, a front before it that counts, keys, and modules to publish.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use symseal_bundle::oci::{self, Descriptor, Manifest};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_registry::{Options, Reference};

use crate::front::{Front, Manners, Seen};
use crate::program::{self, Ran, RunningServer, compile_c, symseal};

/// A server, a front before it that counts, keys and a trust directory for `app`.
pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) front: Front,
    pub(crate) server: RunningServer,
}

impl Scene {
    pub(crate) fn new(manners: Manners) -> Self {
        let root = tempfile::tempdir().expect("tempdir");
        let server = RunningServer::start(&root.path().join("data"));
        let front = Front::start(&server.address, manners);
        let scene = Self { root, front, server };
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        symseal([
            "trust",
            "init",
            "--trust",
            &scene.at("trust"),
            "--key",
            &scene.at("keys/artifact.pub.pem"),
            "--name",
            "app",
            "--log",
            &scene.at("log"),
        ])
        .ok();
        scene
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.root.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A reference through the front.
    pub(crate) fn place(&self, rest: &str) -> String {
        format!("{}/{rest}", self.front.address)
    }

    pub(crate) fn sealing(&self) -> [String; 4] {
        ["--key".into(), self.at("keys/artifact.key.pem"), "--log".into(), self.at("log")]
    }

    pub(crate) fn release(&self) -> [String; 4] {
        ["--name", "app", "--version", "1.0"].map(str::to_owned)
    }

    /// `symseal publish` as `app 1.0`, with further arguments.
    pub(crate) fn publish<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Ran {
        let arguments = arguments.into_iter().map(str::to_owned).chain(self.release());
        symseal(["publish".to_owned()].into_iter().chain(arguments))
    }

    /// The digest of `symseal bundle build` over the same inputs.
    pub(crate) fn built(&self, inputs: &[&str], layout: &str) -> Digest {
        let layout = self.at(layout);
        let arguments = ["bundle", "build"].into_iter().chain(inputs.iter().copied()).map(str::to_owned);
        symseal(arguments.chain(self.release()).chain(["--output".to_owned(), layout.clone()])).ok();
        Bundle::open(LayoutDir::open(layout).unwrap(), None).unwrap().digest().unwrap()
    }

    /// Pulls a bundle and verifies everything.
    pub(crate) fn verified(&self, reference: &str, into: &str) -> Bundle {
        let into = self.at(into);
        symseal(["bundle", "pull", reference, "--output", &into]).ok();
        let told = symseal(["bundle", "verify", &into, "--trust", &self.at("trust"), "--json"]).ok().json();
        assert_eq!(told["verdict"], "verified", "{told}");
        Bundle::open(LayoutDir::open(into).unwrap(), None).unwrap()
    }

    /// An executable or library whose functions are called after `name`.
    pub(crate) fn module(&self, name: &str, text: &str) -> Option<String> {
        let is_library = name.starts_with("lib");
        let main = if is_library { "" } else { "int main(int argc, char **argv) { (void)argv; return argc; }" };
        let stem = name.trim_end_matches(".so");
        let source = format!("{main}\nint of_{stem}(int x) {{ return x {text}; }}\n");
        let flags: &[&str] = if is_library {
            &["-g", "-O1", "-fPIC", "-shared", "-Wl,--build-id"]
        } else {
            &["-g", "-O1", "-Wl,--build-id"]
        };
        std::fs::create_dir_all(self.at("inputs")).expect("directory");
        compile_c(Path::new(&self.at("inputs")), name, &source, flags)
            .map(|path| path.to_str().expect("UTF-8").to_owned())
    }

    /// A Windows program with DWARF; `None`, with a word about it, without the cross compiler.
    pub(crate) fn windows_module(&self, name: &str) -> Option<String> {
        let compiler = program::tool("x86_64-w64-mingw32-gcc")?;
        std::fs::create_dir_all(self.at("inputs")).expect("directory");
        let (source, output) = (self.at(&format!("inputs/{name}.c")), self.at(&format!("inputs/{name}")));
        std::fs::write(&source, "int main(int argc, char **argv) { (void)argv; return argc * 7; }").expect("written");
        run(Command::new(compiler).args(["-g", "-O1", "-o", &output, &source]));
        Some(output)
    }

    /// Pushes something that a container engine would take for an image; its digest.
    pub(crate) fn image(&self, rest: &str) -> Digest {
        let layout = LayoutDir::create(self.root.path().join(format!("image-{}", rest.replace(['/', ':'], "-"))))
            .expect("a layout");
        let config = br#"{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[]}}"#;
        let layer = format!("the layer of {rest}");
        layout.write_blob(config).expect("written");
        layout.write_blob(layer.as_bytes()).expect("written");
        let mut manifest =
            Manifest::artifact("", vec![Descriptor::of("application/vnd.oci.image.layer.v1.tar", layer.as_bytes())]);
        manifest.artifact_type = None;
        manifest.config = Descriptor::of("application/vnd.oci.image.config.v1+json", config);
        let bytes = manifest.to_bytes().expect("a manifest");
        let digest = layout.write_blob(&bytes).expect("written");
        layout.add_to_index(Descriptor::of(oci::MANIFEST, &bytes), Some("image")).expect("listed");
        let reference = Reference::parse(&format!("{}/{rest}", self.server.address)).expect("a reference");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(symseal_registry::push(&layout, &digest, &reference, &Options::default())).expect("pushed");
        digest
    }
}

/// Bytes of blobs to the registry and from it.
pub(crate) fn moved(seen: &[Seen]) -> (u64, u64) {
    let sum = |wanted: &dyn Fn(&Seen) -> bool, bytes: &dyn Fn(&Seen) -> u64| {
        seen.iter().filter(|seen| wanted(seen)).map(bytes).sum()
    };
    (sum(&Seen::is_upload, &|seen| seen.sent), sum(&Seen::is_download, &|seen| seen.received))
}

pub(crate) fn digest(text: &Value) -> Digest {
    text.as_str().expect("a digest").parse().expect("a digest")
}

#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}
