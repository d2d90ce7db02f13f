//! `symseal publish` against a real server: one step, joined parts, images as subjects, second releases, credentials, and the
//! job that a release pipeline runs.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

#[path = "../registry/tests/front/mod.rs"]
mod front;
mod program;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use front::{Front, Login, Manners, Seen};
use program::{Ran, RunningServer, command, compile_c, symseal};
use serde_json::Value;
use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_registry::{Options, Reference};

/// A server, a front before it that counts, keys and a trust directory for `app`.
struct Scene {
    root: tempfile::TempDir,
    front: Front,
    server: RunningServer,
}

impl Scene {
    fn new(manners: Manners) -> Self {
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

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A reference through the front.
    fn place(&self, rest: &str) -> String {
        format!("{}/{rest}", self.front.address)
    }

    fn sealing(&self) -> [String; 4] {
        ["--key".into(), self.at("keys/artifact.key.pem"), "--log".into(), self.at("log")]
    }

    fn release(&self) -> [String; 4] {
        ["--name", "app", "--version", "1.0"].map(str::to_owned)
    }

    /// `symseal publish` as `app 1.0`, with further arguments.
    fn publish<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Ran {
        let arguments = arguments.into_iter().map(str::to_owned).chain(self.release());
        symseal(["publish".to_owned()].into_iter().chain(arguments))
    }

    /// The digest of `symseal bundle build` over the same inputs.
    fn built(&self, inputs: &[&str], layout: &str) -> Digest {
        let layout = self.at(layout);
        let arguments = ["bundle", "build"].into_iter().chain(inputs.iter().copied()).map(str::to_owned);
        symseal(arguments.chain(self.release()).chain(["--output".to_owned(), layout.clone()])).ok();
        Bundle::open(LayoutDir::open(layout).unwrap(), None).unwrap().digest().unwrap()
    }

    /// Pulls a bundle and verifies everything.
    fn verified(&self, reference: &str, into: &str) -> Bundle {
        let into = self.at(into);
        symseal(["bundle", "pull", reference, "--output", &into]).ok();
        let told = symseal(["bundle", "verify", &into, "--trust", &self.at("trust"), "--json"]).ok().json();
        assert_eq!(told["verdict"], "verified", "{told}");
        Bundle::open(LayoutDir::open(into).unwrap(), None).unwrap()
    }

    /// An executable or library whose functions are called after `name`.
    fn module(&self, name: &str, text: &str) -> Option<String> {
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
    fn windows_module(&self, name: &str) -> Option<String> {
        let compiler = program::tool("x86_64-w64-mingw32-gcc")?;
        std::fs::create_dir_all(self.at("inputs")).expect("directory");
        let (source, output) = (self.at(&format!("inputs/{name}.c")), self.at(&format!("inputs/{name}")));
        std::fs::write(&source, "int main(int argc, char **argv) { (void)argv; return argc * 7; }").expect("written");
        run(Command::new(compiler).args(["-g", "-O1", "-o", &output, &source]));
        Some(output)
    }

    /// Pushes something that a container engine would take for an image; its digest.
    fn image(&self, rest: &str) -> Digest {
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
fn moved(seen: &[Seen]) -> (u64, u64) {
    let sum = |wanted: &dyn Fn(&Seen) -> bool, bytes: &dyn Fn(&Seen) -> u64| {
        seen.iter().filter(|seen| wanted(seen)).map(bytes).sum()
    };
    (sum(&Seen::is_upload, &|seen| seen.sent), sum(&Seen::is_download, &|seen| seen.received))
}

fn digest(text: &Value) -> Digest {
    text.as_str().expect("a digest").parse().expect("a digest")
}

/// oras from the cache of peers, or from PATH.
fn oras() -> Option<PathBuf> {
    let cached = std::env::var_os("SYMSEAL_PEERS").map(|cache| PathBuf::from(cache).join("bin/oras"));
    cached.filter(|path| path.is_file()).or_else(|| program::tool("oras"))
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

#[test]
fn one_command_builds_seals_and_pushes_what_three_would() {
    let scene = Scene::new(Manners::default());
    let Some(app) = scene.module("app", "* 3") else { return };
    let to = scene.place("team/app:1.0");
    let expected = scene.built(&[&app], "built");

    let logged = || std::fs::read(scene.at("log/checkpoint")).expect("made with the trust directory");
    let before = logged();
    let dry = scene
        .publish([app.as_str(), "--to", &to, "--dry-run", "--json", "--key", &scene.at("keys/artifact.key.pem")])
        .ok()
        .json();
    assert_eq!(digest(&dry["digest"]), expected);
    assert_eq!((&dry["push"], &dry["seal"]), (&Value::Null, &Value::Null));
    assert_eq!(dry["plan"]["blobs_existing"], 0);
    assert!(dry["plan"]["blobs_missing"].as_u64().unwrap() >= 5 && dry["plan"]["sealed_by"].is_string(), "{dry}");
    assert!(dry["report"]["modules"][0]["name"] == "app", "{dry}");
    let seen = scene.front.take();
    assert!(seen.iter().all(|seen| seen.method == "GET" || seen.method == "HEAD"), "{seen:?}");
    assert!(logged() == before, "a dry run logs nothing");
    assert_eq!(symseal(["bundle", "pull", &to, "--output", &scene.at("none")]).status, 1);

    let sealing = scene.sealing();
    let arguments = [app.as_str(), "--to", &to, "--jobs", "2"].into_iter().chain(sealing.iter().map(String::as_str));
    let told = scene.publish(arguments).ok();
    assert!(told.stdout.contains(&format!("bundle {expected}\n")), "{}", told.stdout);
    assert!(
        told.stdout.contains("seal sha256:") && told.stdout.contains(&format!("pushed to {to}")),
        "{}",
        told.stdout
    );
    let bundle = scene.verified(&to, "pulled");
    assert_eq!((bundle.digest(), bundle.seals().len()), (Some(expected), 1));
    // What was there already: everything that was planned.
    let again = scene.publish([app.as_str(), "--to", &to, "--json"]).ok().json();
    assert_eq!((&again["push"]["blobs_sent"], &again["push"]["bytes_sent"]), (&0.into(), &0.into()), "{again}");
    assert_eq!(again["seal"], Value::Null);
}

/// Three parts in three repositories, as three jobs would publish them; the inputs of all.
fn three_parts(scene: &Scene) -> Option<(Vec<String>, Vec<String>)> {
    let inputs = [scene.module("app", "* 3")?, scene.module("libone.so", "+ 1")?, scene.module("libtwo.so", "- 2")?];
    let mut parts = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        let to = scene.place(&format!("parts/job-{at}:1.0"));
        // The second is sealed by its job.
        let sealing = if at == 1 { scene.sealing().to_vec() } else { Vec::new() };
        scene.publish([input.as_str(), "--to", &to].into_iter().chain(sealing.iter().map(String::as_str))).ok();
        parts.push(to);
    }
    Some((parts, inputs.to_vec()))
}

#[test]
fn joined_parts_are_the_bundle_of_one_build_and_no_file_moves() {
    let scene = Scene::new(Manners::default());
    let Some((parts, inputs)) = three_parts(&scene) else { return };
    let expected = scene.built(&inputs.iter().map(String::as_str).collect::<Vec<_>>(), "built");
    let bundle = Bundle::open(LayoutDir::open(scene.at("built")).unwrap(), None).unwrap();
    let files: BTreeMap<Digest, u64> = bundle.index().files().map(|file| (file.sha256, file.size)).collect();
    let all_bytes: u64 = files.values().sum();
    scene.front.take();

    let to = scene.place("team/app:1.0");
    let sealing = scene.sealing();
    let sealing = || sealing.iter().map(String::as_str);
    let join = || ["--join"].into_iter().chain(parts.iter().map(String::as_str)).chain(["--to", &to, "--json"]);
    let told = scene.publish(join().chain(sealing())).ok().json();
    assert_eq!(digest(&told["digest"]), expected);
    let seen = scene.front.take();
    let (sent, received) = moved(&seen);
    let index = u64::try_from(bundle.index().to_canonical_json().unwrap().len()).unwrap();
    let page_hashes: u64 = bundle.index().shards.iter().map(|shard| shard.page_hashes.size).sum();
    let seal = u64::try_from(bundle_seal_bytes(&scene, &to)).unwrap();
    // Index, page hashes, `{}` and the seal go out; the parts' indexes and page hashes come in. Nothing else.
    assert_eq!(sent, index + page_hashes + 2 + seal, "of {all_bytes} bytes");
    assert!(received < 3 * (index + page_hashes), "{received} of {all_bytes} bytes came back");
    let mounts = seen.iter().filter(|seen| seen.query.contains("mount=")).count();
    assert_eq!(told["push"]["blobs_mounted"].as_u64(), u64::try_from(mounts).ok());
    assert_eq!(mounts, files.len() - 1, "every distinct file but the page hashes: {told}");
    assert_eq!(told["push"]["bytes_fetched"], 0);
    println!("joined {all_bytes} bytes of files: {sent} bytes of blobs sent, {received} received, {mounts} mounts");

    let joined = scene.verified(&to, "pulled");
    assert_eq!((joined.digest(), joined.seals().len()), (Some(expected), 1));
    assert_eq!(joined.index(), bundle.index());

    // Into the repository of a part: its files are found, the others mounted.
    let to = scene.place("parts/job-0:whole");
    let told = scene
        .publish(["--join"].into_iter().chain(parts.iter().map(String::as_str)).chain(["--to", &to, "--json"]))
        .ok()
        .json();
    assert_eq!(digest(&told["digest"]), expected);
    assert!(told["push"]["blobs_existing"].as_u64().unwrap() >= 4, "{told}");

    // Another registry gets copies.
    let other = RunningServer::start(&scene.root.path().join("other-data"));
    let to = format!("{}/team/app:1.0", other.address);
    let told = scene
        .publish(["--join"].into_iter().chain(parts.iter().map(String::as_str)).chain(["--to", &to, "--json"]))
        .ok()
        .json();
    assert_eq!(digest(&told["digest"]), expected);
    assert_eq!(told["push"]["blobs_copied"].as_u64(), u64::try_from(files.len() - 1).ok());
    let copied = LayoutDir::create(scene.at("copied")).unwrap();
    symseal(["bundle", "pull", &to, "--output", &scene.at("copied")]).ok();
    assert_eq!(Bundle::open(copied, None).unwrap().digest(), Some(expected));
}

/// Bytes of the one seal that a reference has.
fn bundle_seal_bytes(scene: &Scene, reference: &str) -> usize {
    symseal(["bundle", "pull", reference, "--output", &scene.at("for-its-seal")]).ok();
    let bundle = Bundle::open(LayoutDir::open(scene.at("for-its-seal")).unwrap(), None).unwrap();
    bundle.seals().iter().map(Vec::len).sum()
}

#[test]
fn a_dry_run_of_a_join_says_what_is_missing_and_moves_no_file() {
    let scene = Scene::new(Manners::default());
    let Some((parts, inputs)) = three_parts(&scene) else { return };
    let expected = scene.built(&inputs.iter().map(String::as_str).collect::<Vec<_>>(), "built");
    scene.front.take();
    let to = scene.place("team/app:1.0");
    let told = scene
        .publish(["--join"].into_iter().chain(parts.iter().map(String::as_str)).chain(["--to", &to, "--dry-run"]))
        .ok();
    assert!(
        told.stdout.contains(&expected.to_string()) && told.stdout.contains("nothing was sealed or pushed"),
        "{}",
        told.stdout
    );
    let seen = scene.front.take();
    assert!(seen.iter().all(|seen| seen.method == "GET" || seen.method == "HEAD"), "{seen:?}");
    assert_eq!(symseal(["bundle", "pull", &to, "--output", &scene.at("none")]).status, 1);
}

#[test]
fn a_bundle_with_a_subject_is_found_from_the_image_with_its_seal_and_copied_along() {
    let scene = Scene::new(Manners::default());
    let Some(app) = scene.module("app", "* 3") else { return };
    let image = scene.image("team/app:1.0");
    let (to, subject) = (scene.place("team/app:1.0-symbols"), scene.place("team/app:1.0"));
    let plain = scene.built(&[&app], "built");
    let sealing = scene.sealing();
    let arguments = [app.as_str(), "--to", &to, "--subject", &subject, "--json"];
    let told = scene.publish(arguments.into_iter().chain(sealing.iter().map(String::as_str))).ok().json();
    let bundle = digest(&told["digest"]);
    assert_ne!(bundle, plain, "the subject is part of the digest");
    assert_eq!(digest(&told["subject"]), image);
    let pulled = scene.verified(&to, "pulled");
    assert_eq!(pulled.digest(), Some(bundle));
    let written = pulled.image_index().unwrap().subject.clone().unwrap();
    assert_eq!((written.digest, written.media_type.as_str()), (image, oci::MANIFEST));
    // The same subject again gives the same digest.
    let again = scene.publish([
        app.as_str(),
        "--to",
        &to,
        "--subject",
        &format!("{}@{image}", scene.place("team/app")),
        "--json",
    ]);
    assert_eq!(digest(&again.ok().json()["digest"]), bundle);

    let Some(oras) = oras() else { return };
    let discovered = run(Command::new(&oras).args(["discover", "--plain-http", "--format", "tree", &subject]));
    let tree = String::from_utf8(discovered.stdout).expect("text");
    let line = |part: &str| {
        tree.lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} in\n{tree}"))
    };
    let rows = [
        line(&image.to_string()),
        line(oci::BUNDLE),
        line(&bundle.to_string()),
        line(oci::SIGSTORE_BUNDLE),
        line(told["seal"].as_str().unwrap()),
    ];
    assert!(rows.is_sorted(), "image, bundle, seal:\n{tree}");

    let mirror = scene.at("mirror");
    run(Command::new(&oras).args([
        "cp",
        "-r",
        "--from-plain-http",
        &subject,
        "--to-oci-layout",
        &format!("{mirror}:1.0"),
    ]));
    let mirrored = symseal(["bundle", "verify", &mirror, "--trust", &scene.at("trust"), "--json"]).ok().json();
    assert_eq!((&mirrored["verdict"], digest(&mirrored["bundle"])), (&"verified".into(), bundle), "{mirrored}");
}

#[test]
fn a_registry_without_referrers_lists_the_bundle_under_the_tag_of_the_image() {
    let scene = Scene::new(Manners { without_referrers: true, ..Manners::default() });
    let Some(app) = scene.module("app", "* 3") else { return };
    let image = scene.image("team/app:1.0");
    let (to, subject) = (scene.place("team/app:1.0-symbols"), scene.place("team/app:1.0"));
    let sealing = scene.sealing();
    let arguments = [app.as_str(), "--to", &to, "--subject", &subject, "--json"];
    let told = scene.publish(arguments.into_iter().chain(sealing.iter().map(String::as_str))).ok().json();
    assert_eq!(told["push"]["referrers_api"], false, "{told}");
    let listed = |of: &Digest| {
        let tag = of.to_string().replace(':', "-");
        let url = format!("http://{}/v2/team/app/manifests/{tag}", scene.server.address);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let bytes =
            runtime.block_on(async { reqwest::get(url).await.expect("an answer").bytes().await.expect("bytes") });
        ImageIndex::parse(&bytes).expect("an image index").manifests
    };
    let bundle = digest(&told["digest"]);
    let of_image = listed(&image);
    assert_eq!(
        (of_image.len(), of_image[0].digest, of_image[0].artifact_type.as_deref()),
        (1, bundle, Some(oci::BUNDLE))
    );
    let of_bundle = listed(&bundle);
    assert_eq!((of_bundle.len(), of_bundle[0].digest), (1, digest(&told["seal"])));
    scene.verified(&to, "pulled");

    let Some(oras) = oras() else { return };
    let discovered = run(Command::new(&oras).args(["discover", "--plain-http", "--format", "tree", &subject]));
    let tree = String::from_utf8(discovered.stdout).expect("text");
    assert!(tree.contains(&bundle.to_string()) && tree.contains(told["seal"].as_str().unwrap()), "{tree}");
}

/// Blobs that a second release has and the first has not, with their sizes.
fn new_blobs(first: &str, second: &str) -> BTreeMap<Digest, u64> {
    let open = |layout: &str| Bundle::open(LayoutDir::open(layout).unwrap(), None).unwrap();
    let (first, second) = (open(first), open(second));
    let known: Vec<Digest> = first.index().files().map(|file| file.sha256).collect();
    let mut new: BTreeMap<Digest, u64> = second
        .index()
        .files()
        .filter(|file| !known.contains(&file.sha256))
        .map(|file| (file.sha256, file.size))
        .collect();
    new.insert(second.index_digest(), second.index().to_canonical_json().unwrap().len() as u64);
    new
}

#[test]
fn a_second_release_with_a_tenth_changed_pushes_the_changed_blobs_alone() {
    let scene = Scene::new(Manners::default());
    let release = |version: &str, changed: usize| {
        let folder = scene.at(&format!("release-{version}"));
        std::fs::create_dir_all(&folder).unwrap();
        for at in 0..20 {
            let text = if at < changed { format!("+ {at} + {}", 1000 + changed) } else { format!("+ {at}") };
            let built = scene.module(&format!("libpart{at}.so"), &text)?;
            std::fs::copy(built, format!("{folder}/libpart{at}.so")).unwrap();
        }
        let layout = scene.at(&format!("layout-{version}"));
        symseal(["bundle", "build", &folder, "--name", "app", "--version", version, "--output", &layout]).ok();
        Some((folder, layout))
    };
    let (Some((first, first_layout)), Some((second, second_layout))) = (release("1.0", 0), release("1.1", 2)) else {
        return;
    };
    let new = new_blobs(&first_layout, &second_layout);
    let new_bytes: u64 = new.values().sum();
    // Two modules of four blobs each (the library, its table, unwind table and index), the page hashes and the index.
    assert_eq!(new.len(), 2 * 4 + 2, "{new:?}");

    let to = |version: &str| scene.place(&format!("team/app:{version}"));
    let publish = |folder: &str, version: &str| {
        symseal(["publish", folder, "--name", "app", "--version", version, "--to", &to(version), "--json"]).ok().json()
    };
    let all = publish(&first, "1.0");
    scene.front.take();
    let told = publish(&second, "1.1");
    let (sent, _) = moved(&scene.front.take());
    assert_eq!(told["push"]["blobs_sent"].as_u64(), Some(new.len() as u64), "{told}");
    assert_eq!((told["push"]["bytes_sent"].as_u64(), sent), (Some(new_bytes), new_bytes), "{told}");
    println!("first release: {} bytes sent; second: {sent}, in {} blobs", all["push"]["bytes_sent"], new.len());

    let Some(oras) = oras() else { return };
    let copy = |layout: &str, version: &str| {
        let to = scene.place(&format!("mirror/app:{version}"));
        run(Command::new(&oras).args([
            "cp",
            "-r",
            "--from-oci-layout",
            &format!("{layout}:{version}"),
            "--to-plain-http",
            &to,
        ]));
        let seen = scene.front.take();
        let blobs = seen.iter().filter(|seen| seen.is_upload() && seen.method == "PUT").count();
        (blobs, moved(&seen).0)
    };
    let (whole, _) = copy(&first_layout, "1.0");
    let (blobs, bytes) = copy(&second_layout, "1.1");
    assert!(whole > 80, "{whole}");
    assert_eq!((blobs, bytes), (new.len(), new_bytes));
}

#[test]
fn a_pipeline_logs_in_by_docker_s_file_or_by_the_environment() {
    let login = Login::Bearer { user: "robot", password: "s:ecret", identity: "-" };
    let scene = Scene::new(Manners { login, ..Manners::default() });
    let Some(app) = scene.module("app", "* 3") else { return };
    let to = scene.place("team/app:1.0");
    let publish = |variables: &[(&str, &str)]| -> Ran {
        let arguments = ["publish", &app, "--to", &to, "--name", "app", "--version", "1.0"];
        command("symseal").args(arguments).envs(variables.iter().copied()).output().expect("it starts").into()
    };
    publish(&[]).refused(2, &["nobody in particular", "docker login", "SYMSEAL_REGISTRY_USER"]);
    let host = scene.front.address.to_string();
    let of_environment = [
        ("SYMSEAL_REGISTRY", host.as_str()),
        ("SYMSEAL_REGISTRY_USER", "robot"),
        ("SYMSEAL_REGISTRY_PASSWORD", "s:ecret"),
    ];
    publish(&of_environment).ok();
    publish(&[of_environment[0], of_environment[1], ("SYMSEAL_REGISTRY_PASSWORD", "wrong")])
        .refused(2, &["the user \"robot\""]);
    publish(&of_environment[1..]).refused(2, &["SYMSEAL_REGISTRY:"]);

    std::fs::create_dir(scene.at("docker")).unwrap();
    // printf robot:s:ecret | base64
    let file = format!(r#"{{"auths":{{"{host}":{{"auth":"cm9ib3Q6czplY3JldA=="}}}}}}"#);
    std::fs::write(scene.at("docker/config.json"), file).unwrap();
    let docker = scene.at("docker");
    publish(&[("DOCKER_CONFIG", &docker)]).ok();
    let pulled: Ran = command("symseal")
        .args(["bundle", "pull", &to, "--output", &scene.at("pulled")])
        .env("DOCKER_CONFIG", &docker)
        .output()
        .unwrap()
        .into();
    pulled.ok();
    std::fs::write(scene.at("docker/config.json"), "{").unwrap();
    publish(&[("DOCKER_CONFIG", &docker)]).refused(2, &["config.json", "not JSON"]);
}

#[test]
fn what_cannot_be_published_is_told_before_anything_is_pushed() {
    let scene = Scene::new(Manners::default());
    let Some(app) = scene.module("app", "* 3") else { return };
    let image = scene.image("team/app:1.0");
    let to = scene.place("team/app:symbols");
    let publish = |arguments: &[&str]| scene.publish(arguments.iter().copied());

    publish(&[&app, "--to", "team/app:1.0"]).refused(2, &["team/app:1.0", "expected host[:port]/repository"]);
    publish(&[&app, "--to", "127.0.0.1:1/team/app:1.0"]).refused(2, &["127.0.0.1:1", "is the registry running"]);
    publish(&[&app, "--to", &to, "--key", &scene.at("keys/none.pem")]).refused(2, &["none.pem"]);
    publish(&[&app, "--to", &to, "--key", &scene.at("keys/root.key.pem")]).refused(2, &["root key"]);
    publish(&[&app, "--to", &to, "--log", "somewhere"]).refused(2, &["--key"]);
    publish(&[&app, "--to", &to, "--key", &scene.at("keys/artifact.key.pem"), "--log-key", &scene.at("keys/none.pem")])
        .refused(2, &["none.pem"]);
    publish(&[&scene.at("nothing-here"), "--to", &to]).refused(2, &["nothing-here"]);
    publish(&["--to", &to]).refused(2, &["PATHS"]);

    let other = scene.place("other/app:1.0");
    publish(&[&app, "--to", &to, "--subject", &other]).refused(2, &[&other, "in the repository of --to", "team/app"]);
    publish(&[&app, "--to", &to, "--subject", &scene.place("team/app:2.0")])
        .refused(1, &["team/app:2.0", "no such image"]);
    let same = scene.place("team/app:1.0");
    publish(&[&app, "--to", &same, "--subject", &same]).refused(2, &["take its tag", "1.0-symbols"]);
    publish(&[&app, "--to", &same, "--subject", &format!("{}@{image}", scene.place("team/app"))])
        .refused(2, &["take its tag"]);

    let part = scene.place("parts/linux:1.0");
    publish(&[&app, "--to", &part]).ok();
    publish(&["--join", &scene.place("parts/windows:1.0"), "--to", &to])
        .refused(1, &["--join", "parts/windows:1.0", "no such manifest"]);
    publish(&["--join", &same, "--to", &to]).refused(2, &[&same, "is no bundle"]);
    publish(&["--join", "nonsense", "--to", &to]).refused(2, &["--join", "nonsense"]);
    publish(&["--join", &part, "127.0.0.1:1/a:b", "--to", &to]).refused(2, &["127.0.0.1:1"]);

    // Other names and versions: an error, unless the caller says what the whole is called.
    let second = scene.place("parts/second:2.0");
    let library = scene.module("libone.so", "+ 1").expect("compiled before");
    symseal(["publish", &library, "--name", "lib", "--version", "2.0", "--to", &second]).ok();
    let join = ["publish", "--join", &part, &second, "--to", &to];
    symseal(join).refused(2, &["different names", &part, "\"app\"", &second, "\"lib\""]);
    symseal(join.iter().chain(&["--name", "app"])).refused(2, &["different versions", "\"1.0\"", "\"2.0\""]);
    let told = symseal(join.iter().chain(&["--name", "app", "--version", "3.0"])).ok();
    assert!(told.stdout.contains("was built as lib 2.0, and is joined as app 3.0"), "{}", told.stdout);

    // One module, described twice: stripped here, whole there.
    let Some(strip) = program::tool("strip") else { return };
    let stripped = scene.at("stripped");
    run(Command::new(strip).arg("-o").arg(&stripped).arg(&app));
    let third = scene.place("parts/third:1.0");
    publish(&[&stripped, "--to", &third]).ok();
    publish(&["--join", &part, &third, "--to", &to]).refused(2, &[&part, &third, "both have the module", "differ in"]);

    assert_eq!(
        scene
            .front
            .take()
            .iter()
            .filter(|seen| seen.path.contains("/v2/team/app/manifests/symbols") && seen.method == "PUT")
            .count(),
        1,
        "the one join that was good"
    );
}

/// Runs the job of a pipeline with its environment.
fn job(scene: &Scene, step: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let mut job = Command::new("sh");
    job.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/release-jobs/publish.sh")).arg(step).args(arguments);
    let of_commands = command("symseal");
    for (name, value) in of_commands.get_envs() {
        match value {
            Some(value) => job.env(name, value),
            None => job.env_remove(name),
        };
    }
    job.env("SYMSEAL", program::symseal_path()).env("SYMSEAL_NAME", "app").env("SYMSEAL_VERSION", "1.0");
    job.env("SYMSEAL_REPOSITORY", scene.place("team/app")).envs(variables.iter().copied());
    job.stdin(Stdio::null()).output().expect("sh starts").into()
}

#[test]
fn the_release_job_publishes_parts_joins_them_and_attaches_them_to_the_image() {
    let scene = Scene::new(Manners::default());
    let Some(built) = scene.module("app", "* 3") else { return };
    let (one, two) = (scene.module("libone.so", "+ 1").unwrap(), scene.module("libtwo.so", "- 2").unwrap());
    // A part of another platform, where its compiler is there.
    let two = scene.windows_module("app.exe").unwrap_or(two);
    let image = scene.image("team/app:1.0");
    // The first job builds its release itself.
    let app = scene.at("app");
    let build = format!("cp {built} {app}");
    let mut parts = Vec::new();
    for (platform, build, path) in [("first", build.as_str(), &app), ("second", "", &one), ("third", "", &two)] {
        let ran = job(&scene, "part", &[("SYMSEAL_PLATFORM", platform), ("SYMSEAL_BUILD", build)], &[path]).ok();
        assert!(
            ran.stdout.starts_with(&scene.place("team/app@sha256:")) && ran.stdout.lines().count() == 1,
            "{}",
            ran.stdout
        );
        parts.push(ran.stdout.trim().to_owned());
    }
    let (parts, key, log) = (parts.join("\n"), scene.at("keys/artifact.key.pem"), scene.at("log"));
    let subject = format!("{}@{image}", scene.place("team/app"));
    let variables =
        [("SYMSEAL_PARTS", parts.as_str()), ("SYMSEAL_KEY", &key), ("SYMSEAL_LOG", &log), ("SYMSEAL_IMAGE", &subject)];
    scene.front.take();
    let ran = job(&scene, "join", &variables, &[]).ok();
    let joined = ran.stdout.trim();
    let (sent, _) = moved(&scene.front.take());
    let bundle = scene.verified(joined, "pulled");
    assert_eq!(bundle.index().statistics.modules, 3);
    assert_eq!(bundle.image_index().unwrap().subject.as_ref().map(|subject| subject.digest), Some(image));
    assert!(sent < bundle.index().statistics.bytes / 2, "{sent} bytes of {}", bundle.index().statistics.bytes);
    assert_eq!(scene.verified(&scene.place("team/app:1.0-symbols"), "by-tag").digest(), bundle.digest());

    // Its exit status is symseal's, and what is missing is named.
    job(&scene, "join", &variables[..1], &[]).refused(2, &["SYMSEAL_KEY"]);
    job(&scene, "part", &[], &[]).refused(2, &["expected the files"]);
    job(&scene, "", &[], &[]).refused(2, &["expected part or join"]);
    job(&scene, "part", &[("SYMSEAL_BUILD", "exit 7")], &[&app]).refused(7, &[]);
    job(&scene, "part", &[("SYMSEAL_NAME", "")], &[&app]).refused(2, &["SYMSEAL_NAME"]);
    let missing = scene.place("team/app:none");
    job(&scene, "join", &[("SYMSEAL_PARTS", &missing), ("SYMSEAL_KEY", &key), ("SYMSEAL_LOG", &log)], &[])
        .refused(1, &[&missing]);
}

#[test]
fn the_release_jobs_are_plain_shell() {
    let Some(shellcheck) = program::tool("shellcheck") else { return };
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/release-jobs")).expect("the folder") {
        let path = entry.expect("an entry").path();
        run(Command::new(&shellcheck).args(["--shell=sh", "--severity=style"]).arg(&path));
    }
}
