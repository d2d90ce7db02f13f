//! More bundles, repositories, tags and seals than a gateway looks at: what lies behind them is not known not to be there, and nobody is told that it is not.

use std::process::Command;
use std::time::Duration;

use symseal_bundle::Digest;

use crate::program::symseal;
use crate::scene::{Gateway, PAGE, Scene};
use crate::upstream::{Does, Upstream};

const JSON: &str = "200 OK\r\nContent-Type: application/json";

/// A copy of the scene's files in a bundle that nobody sealed.
fn unsealed(scene: &Scene, repository: &str) -> Digest {
    let inputs = [&scene.stripped, &scene.debug].map(|path| path.display().to_string());
    scene.build(repository, &inputs, &[]);
    symseal(["bundle", "push", &scene.at(repository), &scene.reference(&format!("{repository}:1"))]).ok();
    Digest::of(&scene.manifest(&format!("{repository}/manifests/1")))
}

#[test]
fn a_list_of_bundles_or_repositories_that_was_cut_is_no_absence() {
    let Some(scene) = Scene::new() else { return };
    let (junk, good) = (unsealed(&scene, "junk"), Digest::of(&scene.manifest("team/app/manifests/1.0")));
    let asked = format!("/api/v1/bundles?debug_id={}", scene.build_id);
    let told = |bundle: &Digest, repositories: &[String], more: bool| {
        let bundles = serde_json::json!([{ "sha256": bundle.to_string(), "repositories": repositories }]);
        Does::Says(JSON, serde_json::json!({ "bundles": bundles, "more": more }).to_string())
    };
    let repositories: Vec<String> = (0..32).map(|at| format!("none/r{at}")).chain(["team/app".to_owned()]).collect();
    for (at, (does, status)) in [
        (told(&junk, &["junk".to_owned()], false), 404),
        (told(&junk, &["junk".to_owned()], true), 502),
        (told(&good, &repositories, false), 502),
        (told(&good, &repositories[1..], false), 200),
    ]
    .into_iter()
    .enumerate()
    {
        let server = Upstream::before(&scene.server.address);
        server.does(&asked, does);
        let gateway = Gateway::start(&scene, &format!("state-{at}"), &[&server.url], &[]);
        let got = gateway.get(&scene.debuginfo_path(), &[]);
        assert_eq!(got.status, status, "{at}: {} {}", got.head, String::from_utf8_lossy(&got.body));
    }
}

#[test]
fn a_repository_with_more_tags_than_are_looked_at_has_no_absences() {
    let Some(scene) = Scene::new() else { return };
    let index = scene.root.path().join("index.json");
    let other = scene.root.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let program = crate::program::compile_c(&other, "tiny", "int main(void) { return 0; }", &["-g", "-Wl,--build-id"]);
    scene.build("other-layout", &[program.unwrap().display().to_string()], &[]);
    symseal(["bundle", "push", &scene.at("other-layout"), &scene.reference("team/app:other")]).ok();
    std::fs::write(&index, scene.manifest("team/app/manifests/other")).unwrap();
    let tag = |names: &[String]| {
        let query = names.iter().map(|name| format!("tag={name}")).collect::<Vec<_>>().join("&");
        let url =
            format!("{}/v2/team/app/manifests/{}?{query}", scene.url(), Digest::of(&std::fs::read(&index).unwrap()));
        let body = format!("@{}", index.display());
        let kind = "Content-Type: application/vnd.oci.image.index.v1+json";
        let put = Command::new("curl").args(["-sf", "-X", "PUT", "-H", kind, "--data-binary", &body, &url]).status();
        assert!(put.unwrap().success(), "{url}");
    };
    let names: Vec<String> = (0..2000).map(|at| format!("0-{at:04}")).collect();
    names.chunks(10).for_each(tag);
    let gateway = Gateway::start(&scene, "state", &[&format!("oci://{}", scene.reference("team/app"))], &[]);
    let got = gateway.get(&scene.debuginfo_path(), &[]);
    assert_eq!(got.status, 502, "{} {}", got.head, String::from_utf8_lossy(&got.body));
    let problem = gateway.status()["upstreams"][0]["problem"].as_str().unwrap_or_default().to_owned();
    assert!(problem.contains("more than 2000 tags"), "{problem}");
}

#[test]
fn what_is_on_its_way_while_its_key_is_revoked_does_not_arrive() {
    let Some(scene) = Scene::new() else { return };
    let bytes = std::fs::read(&scene.debug).unwrap();
    let upstream = Upstream::start();
    let (first, rest) = bytes.split_at(2 * PAGE);
    upstream.does(&scene.debuginfo_path(), Does::Pauses(first.to_vec(), Duration::from_secs(6), rest.to_vec()));
    let bare = crate::without_files(&scene);
    let gateway = Gateway::start(&scene, "state", &[&upstream.url], &["--bundle", &bare]);
    let section = format!("/buildid/{}/section/.debug_info", scene.build_id);
    let (whole, section) = std::thread::scope(|scope| {
        let asked = [scene.debuginfo_path(), section].map(|path| {
            scope.spawn({
                let gateway = &gateway;
                move || gateway.get(&path, &[])
            })
        });
        std::thread::sleep(Duration::from_secs(3));
        scene.revoke();
        let [whole, section] = asked.map(|asked| asked.join().unwrap());
        (whole, section)
    });
    assert!(whole.exit != 0 && whole.body.len() < bytes.len(), "{} of {} bytes", whole.body.len(), bytes.len());
    section.is_refused("seal-refused");
}
