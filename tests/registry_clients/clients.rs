//! oras, skopeo, regctl and cosign, unmodified: what they push, copy and pull keeps its bytes and its referrers.

use crate::program::peer;
use crate::scene::Scene;

#[test]
fn oras_pushes_and_pulls_files_byte_by_byte() {
    let Some(scene) = Scene::new() else { return };
    scene.is_copied_with_its_note("team/app:v1");
    scene.oras(["tag", "--plain-http", &scene.reference("team/app:v1"), "v2", "latest"]);
    let tags = scene.oras(["repo", "tags", "--plain-http", &scene.reference("team/app")]);
    assert_eq!(tags.lines().collect::<Vec<_>>(), ["latest", "v1", "v2"]);
    assert_eq!(scene.oras(["repo", "ls", "--plain-http", &scene.server.address]).trim(), "team/app");
    scene.oras(["manifest", "delete", "--plain-http", "--force", &scene.reference("team/app:v2")]);
    // oras deletes what the tag names, with all its tags.
    assert_eq!(scene.oras(["repo", "tags", "--plain-http", &scene.reference("team/app")]).trim(), "");
}

#[test]
fn oras_copies_recursively_between_repositories_and_through_a_layout() {
    let Some(scene) = Scene::new() else { return };
    let (from, layout) = (scene.reference("team/app:v1"), format!("{}:v1", scene.path("layout").display()));
    let copy = |arguments: &[&str]| scene.oras(["cp", "-r"].into_iter().chain(arguments.iter().copied()));
    copy(&["--from-plain-http", "--to-plain-http", &from, &scene.reference("other/app:v1")]);
    scene.is_copied_with_its_note("other/app:v1");
    copy(&["--from-plain-http", &from, "--to-oci-layout", &layout]);
    copy(&["--from-oci-layout", &layout, "--to-plain-http", &scene.reference("third/app:v1")]);
    scene.is_copied_with_its_note("third/app:v1");
}

#[test]
fn oras_backs_a_repository_up_and_restores_it() {
    let Some(scene) = Scene::new() else { return };
    let archive = scene.path("backup.tar");
    let archive = archive.to_str().unwrap();
    let from = scene.reference("team/app");
    scene.oras(["backup", "--plain-http", "--include-referrers", "--output", archive, &from]);
    scene.oras(["restore", "--plain-http", "--input", archive, &scene.reference("restored/app")]);
    scene.is_copied_with_its_note("restored/app:v1");
}

#[test]
fn skopeo_copies_between_repositories_and_through_a_layout() {
    let (Some(scene), Some(skopeo)) = (Scene::new(), peer("skopeo")) else { return };
    let registry = |rest: &str| format!("docker://{}", scene.reference(rest));
    let layout = format!("oci:{}:v1", scene.path("layout").display());
    // Without a policy of its own a machine's, or none, would decide.
    let policy = scene.path("policy.json");
    std::fs::write(&policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
    let policy = policy.to_str().unwrap();
    let copy = |from: &str, to: &str| {
        let fixed = ["--policy", policy, "copy", "--quiet"];
        let tls = ["--src-tls-verify=false", "--dest-tls-verify=false"];
        scene.run(&skopeo, fixed.into_iter().chain(tls).chain([from, to]));
    };
    // skopeo knows no referrers: the note is copied by its digest.
    copy(&registry("team/app:v1"), &registry("other/app:v1"));
    scene.is_copied("other/app:v1");
    copy(&registry(&format!("team/app@{}", scene.note)), &registry("other/app:note"));
    scene.is_copied_with_its_note("other/app:v1");
    copy(&registry("team/app:v1"), &layout);
    copy(&layout, &registry("third/app:v1"));
    scene.is_copied("third/app:v1");
}

#[test]
fn regctl_copies_with_referrers_sends_chunks_reads_and_deletes() {
    let (Some(scene), Some(regctl)) = (Scene::new(), peer("regctl")) else { return };
    let host = format!("reg={},tls=disabled", scene.server.address);
    let run = |arguments: &[&str]| scene.run(&regctl, ["--host", &host].into_iter().chain(arguments.iter().copied()));
    let from = scene.reference("team/app:v1");
    run(&["image", "copy", "--referrers", &from, &scene.reference("other/app:v1")]);
    scene.is_copied_with_its_note("other/app:v1");

    // Its chunked upload, through a layout.
    run(&[
        "registry",
        "set",
        "--tls",
        "disabled",
        "--blob-max",
        "1000",
        "--blob-chunk",
        "70001",
        &scene.server.address,
    ]);
    let layout = format!("ocidir://{}:v1", scene.path("layout").display());
    run(&["image", "copy", "--referrers", &from, &layout]);
    // Another server, where nothing can be mounted.
    let away = crate::program::RunningServer::start(&scene.path("away"));
    let away_host = format!("reg={},tls=disabled", away.address);
    let chunks = ["registry", "set", "--tls", "disabled", "--blob-max", "1000", "--blob-chunk", "70001", &away.address];
    scene.run(&regctl, chunks);
    scene.run(&regctl, ["image", "copy", "--referrers", &layout, &format!("{}/app:v1", away.address)]);
    let raw = |server: &str, rest: &str| {
        let reference = format!("{server}/{rest}");
        scene.run(&regctl, ["--host", &away_host, "manifest", "get", "--format", "raw-body", &reference])
    };
    assert_eq!(raw(&away.address, "app:v1"), raw(&scene.server.address, "team/app:v1"));
    let listed = ["artifact", "list", "--format", "{{range .Descriptors}}{{println .Digest}}{{end}}"];
    let listed = scene.run(&regctl, listed.into_iter().chain([format!("{}/app:v1", away.address).as_str()]));
    assert_eq!(listed.trim(), scene.note);
    let got = scene.path("got");
    let got = got.to_str().unwrap();
    std::fs::create_dir(got).unwrap();
    scene.run(&regctl, ["artifact", "get", "--output", got, &format!("{}/app:v1", away.address)]);
    scene.are_the_files(std::path::Path::new(got));

    run(&["tag", "delete", &scene.reference("other/app:v1")]);
    assert_eq!(run(&["tag", "ls", &scene.reference("other/app")]).trim(), "");
    run(&["manifest", "delete", &scene.reference(&format!("other/app@{}", scene.digest))]);
    assert_eq!(run(&["repo", "ls", &scene.server.address]).lines().collect::<Vec<_>>(), ["other/app", "team/app"]);
    scene.is_copied_with_its_note("team/app:v1");
}

#[test]
fn cosign_signs_and_attaches_in_our_registry_and_verifies_there_and_in_a_copy() {
    let (Some(scene), Some(cosign)) = (Scene::new(), peer("cosign")) else { return };
    let by_digest = scene.reference(&format!("team/app@{}", scene.digest));
    let run = |arguments: &[&str]| scene.run(&cosign, arguments.iter().copied());
    run(&["generate-key-pair"]);
    let offline = ["--tlog-upload=false", "--use-signing-config=false", "--allow-http-registry", "--yes"];
    run(&[&["sign", "--key", "cosign.key"][..], &offline, &[&by_digest]].concat());
    assert_eq!(scene.referrers("team/app:v1").len(), 2);
    let verify = ["verify", "--key", "cosign.pub", "--insecure-ignore-tlog", "--allow-http-registry"];
    assert!(run(&[&verify[..], &[&by_digest]].concat()).contains(&scene.digest));
    // The signature is a referrer, so that a copy of the artifact brings it along.
    let copied = scene.reference("copy/app:v1");
    scene.oras(["cp", "-r", "--from-plain-http", "--to-plain-http", &scene.reference("team/app:v1"), &copied]);
    let copied = scene.reference(&format!("copy/app@{}", scene.digest));
    assert!(run(&[&verify[..], &[&copied]].concat()).contains(&scene.digest));

    // The older way: a signature made elsewhere is attached under a tag.
    std::fs::write(scene.path("inputs/payload.json"), "{}").unwrap();
    std::fs::write(scene.path("inputs/payload.sig"), "c2lnbmF0dXJl").unwrap();
    let attach = ["attach", "signature", "--allow-http-registry", "--signature", "payload.sig"];
    run(&[&attach[..], &["--payload", "payload.json", &by_digest]].concat());
    let tag = format!("{}.sig", scene.digest.replace(':', "-"));
    let tags = scene.oras(["repo", "tags", "--plain-http", &scene.reference("team/app")]);
    assert!(tags.lines().any(|found| found == tag), "{tags}");
}
