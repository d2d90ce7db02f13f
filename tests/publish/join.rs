//! Parts of several jobs become one bundle; a bundle refers to the product's image.

use std::collections::BTreeMap;
use std::process::Command;

use symseal_bundle::oci::{self, ImageIndex};
use symseal_bundle::{Bundle, Digest, LayoutDir};

use crate::front::Manners;
use crate::program::{RunningServer, peer, symseal};
use crate::scene::{Scene, digest, moved, run};

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
fn a_library_that_two_jobs_ship_under_two_names_is_joined_as_one_build_names_it() {
    let scene = Scene::new(Manners::default());
    let (Some(app), Some(library)) = (scene.module("app", "* 3"), scene.module("libz2.so", "+ 1")) else { return };
    let renamed = scene.at("libz.so");
    std::fs::copy(&library, &renamed).unwrap();
    let expected = scene.built(&[&app, &library, &renamed], "built");
    let parts = ["parts/job-0:1.0", "parts/job-1:1.0"].map(|part| scene.place(part));
    scene.publish([&app, &library, "--to", &parts[0]]).ok();
    scene.publish([&renamed, "--to", &parts[1]]).ok();
    for (at, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
        let to = scene.place(&format!("team/app:{at}"));
        let told = scene.publish(["--join", &parts[order[0]], &parts[order[1]], "--to", &to, "--json"]).ok().json();
        assert_eq!(digest(&told["digest"]), expected, "{told}");
    }
}

#[test]
fn a_part_that_is_named_twice_is_told() {
    let scene = Scene::new(Manners::default());
    let (Some(app), Some(library)) = (scene.module("app", "* 3"), scene.module("libz.so", "+ 1")) else { return };
    let parts = ["parts/job-0:1.0", "parts/job-1:1.0"].map(|part| scene.place(part));
    scene.publish([&app, "--to", &parts[0]]).ok();
    scene.publish([&library, "--to", &parts[1]]).ok();
    let join =
        |second: &str| scene.publish(["--join", &parts[0], second, "--to", &scene.place("team/app:1.0")]).ok().stdout;
    let same = format!("note: {} is the same bundle as {}", parts[0], parts[0]);
    assert!(join(&parts[0]).contains(&same));
    assert!(!join(&parts[1]).contains("the same bundle"));
}

#[test]
fn joined_modules_without_lines_of_their_own_are_counted() {
    let scene = Scene::new(Manners::default());
    let (Some(app), Some(library)) = (scene.module("app", "* 3"), scene.module("libz.so", "+ 1")) else { return };
    let Some(strip) = peer("strip") else { return };
    run(Command::new(strip).args(["-g", &library]));
    let parts = ["parts/job-0:1.0", "parts/job-1:1.0"].map(|part| scene.place(part));
    scene.publish([&app, "--to", &parts[0]]).ok();
    scene.publish([&library, "--to", &parts[1]]).ok();
    let to = scene.place("team/app:1.0");
    let join = |more: &[&str]| {
        let parts = parts.iter().map(String::as_str);
        scene.publish(["--join"].into_iter().chain(parts).chain(["--to", &to]).chain(more.iter().copied())).ok()
    };
    assert_eq!(join(&["--json"]).json()["without_lines"], 1);
    let told = join(&[]).stdout;
    assert!(told.contains("1 of 2 modules have code and no lines of their own"), "{told}");
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

    let Some(oras) = peer("oras") else { return };
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

    let Some(oras) = peer("oras") else { return };
    let discovered = run(Command::new(&oras).args(["discover", "--plain-http", "--format", "tree", &subject]));
    let tree = String::from_utf8(discovered.stdout).expect("text");
    assert!(tree.contains(&bundle.to_string()) && tree.contains(told["seal"].as_str().unwrap()), "{tree}");
}

#[test]
fn a_part_that_is_sealed_must_hold_by_the_trust_directory_that_is_given() {
    let scene = Scene::new(Manners::default());
    let Some((parts, _)) = three_parts(&scene) else { return };
    let to = scene.place("team/app:1.0");
    let join = |more: &[&str]| {
        let parts = parts.iter().map(String::as_str);
        scene.publish(["--join"].into_iter().chain(parts).chain(["--to", &to, "--json"]).chain(more.iter().copied()))
    };
    let seals = |told: &serde_json::Value| {
        told["parts"].as_array().unwrap().iter().map(|part| part["seal"].clone()).collect::<Vec<_>>()
    };
    let unasked = join(&["--dry-run"]).ok().json();
    assert!(seals(&unasked).iter().all(serde_json::Value::is_null), "{unasked}");
    let told = join(&["--dry-run", "--trust", &scene.at("trust")]).ok().json();
    assert_eq!(seals(&told), ["none", "holds", "none"], "{told}");

    // Another's trust directory, which the key of the second part is not in.
    symseal(["key", "generate", "--output", &scene.at("others")]).ok();
    let of_others = ["--key", &scene.at("others/artifact.pub.pem"), "--name", "app", "--log", &scene.at("other-log")];
    symseal(["trust", "init", "--trust", &scene.at("distrust")].into_iter().chain(of_others)).ok();
    join(&["--trust", &scene.at("distrust")]).refused(1, &[&parts[1], "its seal does not hold", "expected"]);
    assert_eq!(symseal(["bundle", "pull", &to, "--output", &scene.at("none")]).status, 1, "nothing was pushed");
    join(&["--trust", &scene.at("nowhere")]).refused(2, &["nowhere"]);
}
