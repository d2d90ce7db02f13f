//! One step: build, seal and push; a second release pushes what changed; what cannot be published is told first.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use symseal_bundle::{Bundle, Digest, LayoutDir};

use crate::front::Manners;
use crate::program::{self, peer, symseal};
use crate::scene::{Scene, digest, moved, run};

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

    let Some(oras) = peer("oras") else { return };
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
    // A join looks into no files: what would be for them is not taken without a word.
    for (option, value) in [("--exclude", "*.so"), ("--archive-limit", "ratio=3")] {
        publish(&["--join", &part, option, value, "--to", &to]).refused(2, &["--join", option]);
    }
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
