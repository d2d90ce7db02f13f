//! A name from a few pages of a bundle in a registry, and a name's whole chain in a file.

use crate::program;
#[path = "publish/scene.rs"]
#[allow(dead_code, reason = "this test uses a part of the scene")]
mod scene;

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::front::Manners;
use crate::program::symseal;
use scene::{Scene, moved};
use serde_json::Value;
use symseal_bundle::{Bundle, FileRole};
use symseal_module::DebugId;

/// A program of many functions, so that its table has many pages.
fn source() -> String {
    let mut text =
        String::from("static inline __attribute__((always_inline)) int twice(int x) {\n  return x * 2;\n}\n");
    for n in 0..4000 {
        writeln!(
            text,
            "int a_function_with_a_long_name_{n}(int x) {{\n  if (x > {n}) x = twice(x + {n});\n  return x - 1;\n}}"
        )
        .unwrap();
    }
    text.push_str("int main(int argc, char **argv) { (void)argv; return a_function_with_a_long_name_17(argc); }\n");
    text
}

struct Published {
    scene: Scene,
    bundle: Bundle,
    id: DebugId,
    addresses: Vec<String>,
}

fn published() -> Option<Published> {
    let scene = Scene::new(Manners::default());
    std::fs::create_dir_all(scene.at("inputs")).unwrap();
    let flags = ["-g", "-O1", "-Wl,--build-id"];
    let app = program::compile_c(scene.at("inputs").as_ref(), "app", &source(), &flags)?;
    let to = scene.place("team/app:1.0");
    let sealing = scene.sealing();
    let arguments = [app.to_str().unwrap(), "--to", &to].into_iter().chain(sealing.iter().map(String::as_str));
    scene.publish(arguments).ok();
    let bundle = scene.verified(&to, "pulled");
    let (id, module) = bundle.index().linux.iter().next().unwrap();
    let id: DebugId = id.parse().unwrap();
    let table = bundle.read(module.file(FileRole::SymbolTable).unwrap()).unwrap();
    let table = symseal_symx::Table::open(&table).unwrap();
    let functions: Vec<_> = table.functions().filter(|function| function.size > 12).collect();
    let addresses = functions
        .iter()
        .step_by(functions.len() / 20)
        .map(|function| format!("{:#x}", module.image_base.0 + function.start.0 + 9));
    let addresses = addresses.collect();
    scene.front.take();
    Some(Published { scene, bundle, id, addresses })
}

#[test]
fn a_name_from_a_registry_costs_a_few_verified_pages() {
    let Some(Published { scene, bundle, id, addresses }) = published() else { return };
    let (id, layout) = (id.to_string(), scene.at("pulled"));
    let (to, trust) = (scene.place("team/app:1.0"), scene.at("trust"));
    let ask = |source: [&str; 2], addresses: &[String]| {
        let arguments = ["symbolize", "--json", "--debug-id", &id].into_iter().chain(source);
        symseal(arguments.map(str::to_owned).chain(addresses.iter().cloned()))
    };
    let expected = ask(["--bundle", &layout], &addresses).ok();
    assert!(expected.stdout.contains("twice") && expected.stdout.contains("\"inlined\":true"), "{}", expected.stdout);
    let found = ask(["--remote", &to], &addresses).ok();
    assert_eq!(found.stdout, expected.stdout);

    scene.front.take();
    let one =
        symseal(["symbolize", "--remote", &to, "--trust", &trust, "--debug-id", &id, "--json", &addresses[3]]).ok();
    // The same name, of which more is proved.
    let sealed = expected.stdout.lines().nth(3).unwrap().replace("\"proof\":\"digest-known\"", "\"proof\":\"sealed\"");
    assert!(sealed.contains("\"sealed\""));
    assert_eq!(one.stdout.trim(), sealed);
    assert!(one.stderr.contains("each verified") && one.stderr.contains("its seal holds"), "{}", one.stderr);
    let (_, received) = moved(&scene.front.take());
    let table = bundle.index().linux[&id].file(FileRole::SymbolTable).unwrap().size;
    let all = bundle.index().statistics.bytes;
    println!("one name: {received} bytes from the registry; the table has {table}, the bundle {all}");
    assert!(received < table && received * 4 < all, "{received} bytes of a table of {table} and a bundle of {all}");
}

/// Another project's registry, without referrers of its own: they are found by the tag that the specification has for it.
struct ForeignRegistry {
    process: Child,
    address: String,
}

impl ForeignRegistry {
    fn start(log: &Path) -> Option<Self> {
        let crane = program::peer("crane")?;
        let mut command = Command::new(crane);
        command.args(["registry", "serve", "--address", "127.0.0.1:0"]).stdout(Stdio::null());
        let mut started =
            Self { process: command.stderr(File::create(log).unwrap()).spawn().unwrap(), address: String::new() };
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            let said = std::fs::read_to_string(log).unwrap();
            if let Some(port) = said.lines().find_map(|line| line.split("serving on port ").nth(1)) {
                started.address = format!("127.0.0.1:{port}");
                return Some(started);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("crane does not serve");
    }
}

impl Drop for ForeignRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn another_registry_gives_the_same_name_from_a_few_pages() {
    let Some(Published { scene, bundle, id, addresses }) = published() else { return };
    let log = scene.at("crane.log");
    let Some(registry) = ForeignRegistry::start(log.as_ref()) else { return };
    let to = format!("{}/team/app:1.0", registry.address);
    let (app, sealing) = (scene.at("inputs/app"), scene.sealing());
    scene.publish([app.as_str(), "--to", &to].into_iter().chain(sealing.iter().map(String::as_str))).ok();
    let (layout, trust, id) = (scene.at("pulled"), scene.at("trust"), id.to_string());
    let expected =
        symseal(["symbolize", "--bundle", &layout, "--trust", &trust, "--debug-id", &id, "--json", &addresses[3]]);
    let found =
        symseal(["symbolize", "--remote", &to, "--trust", &trust, "--debug-id", &id, "--json", &addresses[3]]).ok();
    assert_eq!(found.stdout, expected.ok().stdout);
    assert!(
        found.stdout.contains("\"sealed\"") && found.stderr.contains("each verified"),
        "{}{}",
        found.stdout,
        found.stderr
    );
    let read: u64 = found.stderr.trim_start_matches("read ").split(' ').next().unwrap().parse().unwrap();
    let table = bundle.index().linux[&id].file(FileRole::SymbolTable).unwrap().size;
    assert!(read < table && read * 4 < bundle.index().statistics.bytes, "{} of a table of {table}", found.stderr);
}

#[test]
fn what_is_asked_of_a_seal_is_asked_of_a_remote_one_too() {
    let Some(Published { scene, id, addresses, .. }) = published() else { return };
    let (to, trust, layout, id) = (scene.place("team/app:1.0"), scene.at("trust"), scene.at("pulled"), id.to_string());
    for source in [["--remote", &to], ["--bundle", &layout]] {
        let ask = |more: &[&str]| {
            let arguments = ["symbolize", "--debug-id", &id, &addresses[0]].into_iter().chain(source);
            symseal(arguments.chain(more.iter().copied()))
        };
        ask(&["--trust", &trust, "--expect-name", "app", "--expect-version", "1.0"]).ok();
        ask(&["--trust", &trust, "--expect-version", "2.0"]).refused(1, &["statement.version", "2.0"]);
        ask(&["--trust", &trust, "--at", "2001-01-01T00:00:00Z"]).refused(1, &["2001-01-01"]);
        ask(&["--expect-name", "app"]).refused(2, &["--expect-name: expected --trust"]);
        // A seal in a file stands instead of those beside the bundle.
        let junk = scene.at("junk.json");
        std::fs::write(&junk, "{}").unwrap();
        ask(&["--trust", &trust, "--signature", &junk]).refused(1, &["seal.structure"]);
        let state = scene.at("state");
        ask(&["--trust", &trust, "--state", &state]).ok();
        assert!(std::fs::read_dir(&state).unwrap().count() > 0, "what was seen is remembered");
    }
}

#[test]
fn a_page_that_was_changed_in_the_registry_is_refused() {
    let Some(Published { scene, bundle, id, addresses }) = published() else { return };
    let file = bundle.index().linux[&id.to_string()].file(FileRole::SymbolTable).unwrap();
    let blob = find(scene.at("data").as_ref(), &file.sha256.hex(), file.size).unwrap();
    let mut bytes = std::fs::read(&blob).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x20;
    }
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, &bytes).unwrap();
    let to = scene.place("team/app:1.0");
    symseal(["symbolize", "--remote", &to, "--debug-id", &id.to_string(), &addresses[0]])
        .refused(1, &["page 0 of", "expected", "found"]);
}

/// The file of this name and size.
fn find(dir: &Path, name: &str, size: u64) -> Option<PathBuf> {
    std::fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        let metadata = entry.metadata().ok()?;
        if metadata.is_dir() {
            find(&path, name, size)
        } else {
            (path.ends_with(name) && metadata.len() == size).then_some(path)
        }
    })
}

#[test]
fn a_bundle_whose_seal_does_not_hold_gives_no_name() {
    let Some(Published { scene, id, addresses, .. }) = published() else { return };
    let to = scene.place("team/app:1.0");
    // Keys of somebody else, who trusts another log.
    let other = |name: &str| scene.at(&format!("other/{name}"));
    symseal(["key", "generate", "--output", &other("keys")]).ok();
    symseal([
        "trust",
        "init",
        "--trust",
        &other("trust"),
        "--key",
        &other("keys/artifact.pub.pem"),
        "--name",
        "app",
        "--log",
        &other("log"),
    ])
    .ok();
    symseal(["symbolize", "--remote", &to, "--trust", &other("trust"), "--debug-id", &id.to_string(), &addresses[0]])
        .refused(1, &["its seal does not hold", "trust.key"]);
}

#[test]
fn a_name_is_proved_by_a_small_file_without_the_bundle() {
    let Some(Published { scene, id, addresses, .. }) = published() else { return };
    let (id, layout, trust) = (id.to_string(), scene.at("pulled"), scene.at("trust"));
    let mut largest = 0;
    for address in &addresses {
        let file = scene.at("frame.json");
        let said =
            symseal(["symbolize", "--bundle", &layout, "--debug-id", &id, "--json", "--prove", &file, address]).ok();
        let size = std::fs::metadata(&file).unwrap().len();
        largest = largest.max(size);
        let verified = symseal(["verify-frame", &file, "--trust", &trust, "--json"]).ok().json();
        assert_eq!(verified["report"]["verdict"], "verified");
        let said: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(verified["frames"], said["frames"], "{address}");
    }
    println!("the largest of {} proofs has {largest} bytes", addresses.len());
    assert!(largest < 20 << 10, "{largest} bytes");

    let file = scene.at("frame.json");
    let told =
        symseal(["verify-frame", &file, "--trust", &trust, "--expect-name", "app", "--expect-version", "1.0"]).ok();
    assert!(told.stdout.contains("VERIFIED") && told.stdout.contains("frame.proof"), "{}", told.stdout);
    symseal(["verify-frame", &file, "--trust", &trust, "--expect-version", "2.0"]).refused(1, &[]);

    // Another module's entry, an altered piece, another seal: each is named.
    let proof: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let altered = |change: &dyn Fn(&mut Value)| {
        let mut proof = proof.clone();
        change(&mut proof);
        std::fs::write(scene.at("altered.json"), proof.to_string()).unwrap();
        let ran = symseal(["verify-frame", &scene.at("altered.json"), "--trust", &trust, "--json"]);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        let report = ran.json();
        let checks = report["report"]["checks"].as_array().unwrap().clone();
        checks
            .iter()
            .filter(|check| check["status"] == "failed")
            .map(|check| check["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let swap = |text: &str| text.replacen(if text.contains('B') { 'B' } else { 'A' }, "C", 1);
    assert_eq!(
        altered(&|proof| proof["table"]["pieces"][2]["bytes"] =
            swap(proof["table"]["pieces"][2]["bytes"].as_str().unwrap()).into()),
        ["frame.proof"]
    );
    assert_eq!(altered(&|proof| proof["module"]["entry"]["name"] = "other".into()), ["statement.modules"]);
    assert_eq!(altered(&|proof| proof["module"]["index"] = 7.into()), ["frame.proof"]);
    let payload = |proof: &mut Value| {
        let payload = &mut proof["seals"][0]["dsseEnvelope"]["payload"];
        *payload = swap(payload.as_str().unwrap()).into();
    };
    assert!(altered(&payload).contains(&"dsse.signature".to_owned()));
}
