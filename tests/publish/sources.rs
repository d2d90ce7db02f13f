//! Sources of published bundles: pushed with them or to a repository of their own, joined with the parts, and never moved twice.

use std::path::Path;

use serde_json::Value;
use symseal_bundle::sources::Sources;
use symseal_bundle::{Bundle, LayoutDir};

use crate::front::Manners;
use crate::program::symseal;
use crate::scene::{Scene, digest, moved};

/// The options that find the sources of modules that a scene compiled.
fn sources(scene: &Scene) -> [String; 2] {
    ["--sources".to_owned(), scene.at("inputs")]
}

fn texts(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().map(String::as_str)
}

/// Paths of the sources that the layout holds for its bundle.
fn paths(layout: &str) -> Vec<String> {
    let bundle = Bundle::open(LayoutDir::open(layout).unwrap(), None).unwrap();
    let all = Sources::of(&bundle).unwrap();
    all.iter().for_each(|sources| sources.verify().unwrap());
    let files = all.iter().flat_map(|sources| &sources.table().files);
    let mut names: Vec<String> =
        files.map(|file| Path::new(&file.path).file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn sources_are_pushed_with_the_bundle_beside_it_or_to_a_repository_of_their_own() {
    let scene = Scene::new(Manners::default());
    let Some(app) = scene.module("app", "* 3") else { return };
    let (to, wanted) = (scene.place("team/app:1.0"), sources(&scene));
    let dry = [app.as_str(), "--to", &to, "--dry-run", "--json"];
    let dry = scene.publish(dry.into_iter().chain(texts(&wanted))).ok().json();
    assert_eq!(dry["sources"]["reference"], format!("{to}.sources"));
    // The table and a pack; the empty configuration too, which the bundle has as well.
    assert_eq!((&dry["sources"]["plan"]["blobs_missing"], &dry["sources"]["push"]), (&3.into(), &Value::Null), "{dry}");
    assert_eq!(dry["report"]["sources"]["statistics"]["files"], 1);
    assert!(scene.front.take().iter().all(|seen| seen.method == "GET" || seen.method == "HEAD"));

    let told = scene.publish([app.as_str(), "--to", &to, "--json"].into_iter().chain(texts(&wanted))).ok().json();
    assert_eq!(told["sources"]["digest"], dry["sources"]["digest"]);
    assert_eq!(digest(&told["digest"]), digest(&dry["digest"]));
    let pulled = scene.at("pulled");
    symseal(["bundle", "pull", &to, "--output", &pulled]).ok();
    symseal(["index", "sources", &pulled]).refused(1, &["do not lie beside it"]);
    symseal(["bundle", "pull", &format!("{to}.sources"), "--output", &pulled]).ok();
    assert_eq!(paths(&pulled), ["app.c"]);

    // Elsewhere: who may read the bundle need not be one who may read the sources.
    let (to, private) = (scene.place("open/app:1.0"), scene.place("closed/app:1.0"));
    let arguments = [app.as_str(), "--to", &to, "--sources-to", &private];
    let told = scene.publish(arguments.into_iter().chain(texts(&wanted))).ok();
    assert!(told.stdout.contains(&format!("to {private}: ")), "{}", told.stdout);
    let apart = scene.at("apart");
    symseal(["bundle", "pull", &to, "--output", &apart]).ok();
    assert_eq!(symseal(["bundle", "pull", &format!("{to}.sources"), "--output", &apart]).status, 1);
    symseal(["bundle", "pull", &private, "--output", &apart]).ok();
    assert_eq!(paths(&apart), ["app.c"]);

    scene.publish([app.as_str(), "--to", &to, "--sources-to", &private]).refused(2, &["--sources-to", "no sources"]);
    let same = [app.as_str(), "--to", &to, "--sources-to", &to];
    scene.publish(same.into_iter().chain(texts(&wanted))).refused(2, &["where the bundle goes"]);
    scene.publish([app.as_str(), "--to", &to, "--source-map", "a=b"]).refused(2, &["--sources"]);
    scene.publish(["--join", &to, "--to", &to].into_iter().chain(texts(&wanted))).refused(2, &["--join", "--sources"]);
}

#[test]
fn joined_parts_have_the_sources_of_all_and_no_pack_moves() {
    let scene = Scene::new(Manners::default());
    let Some(app) = scene.module("app", "* 3") else { return };
    let (one, two) = (scene.module("libone.so", "+ 1").unwrap(), scene.module("libtwo.so", "- 2").unwrap());
    let wanted = sources(&scene);
    let publish = |module: &str, to: &str, more: &[&str]| {
        let arguments = [module, "--to", to].into_iter().chain(more.iter().copied());
        scene.publish(arguments.chain(texts(&wanted))).ok();
    };
    // In one repository, in another one, and with the sources apart from the part.
    let parts = [scene.place("team/app:1.0-a"), scene.place("other/app:1.0-b"), scene.place("team/app:1.0-c")];
    let private = scene.place("closed/app:1.0-c");
    publish(&app, &parts[0], &[]);
    publish(&one, &parts[1], &[]);
    publish(&two, &parts[2], &["--sources-to", &private]);
    let to = scene.place("team/app:1.0-symbols");
    let join = |parts: &[String], more: &[&str]| {
        let arguments = ["--join"].into_iter().chain(texts(parts)).chain(["--to", &to]);
        scene.publish(
            arguments.chain(more.iter().copied()).map(str::to_owned).collect::<Vec<_>>().iter().map(String::as_str),
        )
    };
    join(&parts, &[]).refused(2, &[&parts[2], "not in its repository", "--sources-to"]);

    // The two that are beside their parts.
    scene.front.take();
    let told = join(&parts[..2], &["--json"]).ok().json();
    let (sent, _) = moved(&scene.front.take());
    let index = told["push"]["bytes_sent"].as_u64().unwrap();
    assert_eq!(sent, index, "no table and no pack of sources was sent: {told}");
    let (push, reference) = (&told["sources"]["push"], &told["sources"]["reference"]);
    assert_eq!((&push["blobs_sent"], reference), (&0.into(), &format!("{to}.sources").into()), "{told}");
    assert!(push["blobs_mounted"].as_u64().unwrap() >= 2, "{told}");
    let pulled = scene.at("pulled");
    symseal(["bundle", "pull", &to, "--output", &pulled]).ok();
    symseal(["bundle", "pull", &format!("{to}.sources"), "--output", &pulled]).ok();
    assert_eq!(paths(&pulled), ["app.c", "libone.so.c"]);
    let listed = symseal(["index", "sources", &pulled]).ok().stdout;
    assert!(listed.contains("app.c") && listed.contains("libone.so.c"), "{listed}");
    let disclosed = symseal(["bundle", "inspect", &pulled, "--disclosure", "--json"]).ok().json();
    assert_eq!(disclosed["sources"]["statistics"]["files"], 2, "{disclosed}");

    // All three, into the repository where the third one's are; the joined bundle is a part as any other.
    let all = [to.clone(), parts[2].clone()];
    let whole = scene.place("closed/app:1.0");
    let told = join(&all, &["--json", "--sources-to", &whole]).ok().json();
    assert_eq!(told["sources"]["reference"], whole.as_str());
    let again = join(&parts, &["--json", "--sources-to", &whole]).ok().json();
    assert_eq!(again["sources"]["digest"], told["sources"]["digest"]);
    assert_eq!(again["digest"], told["digest"]);
    let pulled = scene.at("whole");
    symseal(["bundle", "pull", &to, "--output", &pulled]).ok();
    symseal(["bundle", "pull", &whole, "--output", &pulled]).ok();
    assert_eq!(paths(&pulled), ["app.c", "libone.so.c", "libtwo.so.c"]);

    // Where one part alone names sources, the name is kept, whoever has them.
    let alone = [parts[2].clone()];
    let told = join(&alone, &["--json"]).ok().json();
    assert_eq!(told["sources"], Value::Null, "{told}");
    assert!(told["parts"][0]["sources"].is_string(), "{told}");
    assert!(join(&alone, &[]).ok().stdout.contains("stay where they are"));
}
