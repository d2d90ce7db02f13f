//! Registries and servers that lag, lack something, change their mind or lead elsewhere.

use std::process::Command;

use symseal_bundle::Digest;
use symseal_bundle::index::SymbolIndex;

use crate::program::symseal;
use crate::scene::{Gateway, Scene};
use crate::upstream::{Does, Upstream};

const NOT_FOUND: &str = "404 Not Found";
const BUSY: &str = "503 Service Unavailable";

/// A front before the scene's server, as a registry.
fn front(scene: &Scene) -> (Upstream, String) {
    let front = Upstream::before(&scene.server.address);
    let url = format!("oci://{}/team/app", front.address());
    (front, url)
}

/// The digest of the scene's bundle.
fn bundle(scene: &Scene) -> Digest {
    Digest::of(&scene.manifest("team/app/manifests/1.0"))
}

fn in_team(rest: String) -> String {
    format!("/v2/team/app/{rest}")
}

#[test]
fn a_registry_leads_nobody_to_other_machines() {
    let Some(scene) = Scene::new() else { return };
    let debug = std::fs::read(&scene.debug).unwrap();
    let elsewhere = Upstream::start();
    elsewhere.does("/x", Does::Gives(debug.clone()));
    let (leads, url) = front(&scene);
    leads.does(&in_team(format!("blobs/{}", Digest::of(&debug))), Does::Redirects(format!("{}/x", elsewhere.url)));
    let gateway = Gateway::start(&scene, "state", &[&url], &[]);
    gateway.get(&scene.debuginfo_path(), &[]).is_refused("wrong-bytes");

    // Nor by the server of tokens that it names.
    let (asks, url) = front(&scene);
    let challenge: &str =
        format!("401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"{}/token\"", elsewhere.url).leak();
    asks.does("/v2/team/app/tags/list", Does::Says(challenge, String::new()));
    let gateway = Gateway::start(&scene, "state-token", &[&url], &[]);
    assert_ne!(gateway.get(&scene.debuginfo_path(), &[]).status, 200);
    assert_eq!(elsewhere.asked(), 0, "it was led elsewhere");
}

#[test]
fn a_copy_of_a_registry_that_lags_loses_no_bundle() {
    let Some(scene) = Scene::new() else { return };
    let (lags, url) = front(&scene);
    let path = in_team(format!("manifests/{}", bundle(&scene)));
    lags.does(&path, Does::Says(NOT_FOUND, String::new()));
    let gateway = Gateway::start(&scene, "state", &[&url], &[]);
    // What its tag names is not there yet: nobody is told that there is no such file.
    assert_eq!(gateway.get(&scene.debuginfo_path(), &[]).status, 502);
    let standing = gateway.status()["upstreams"][0]["problem"].as_str().unwrap().to_owned();
    assert!(standing.contains(&bundle(&scene).to_string()), "{standing}");
    lags.does(&path, Does::Passes);
    gateway.get_until(&scene.debuginfo_path(), 200);
    assert!(gateway.status()["upstreams"][0]["problem"].is_null());
}

#[test]
fn junk_in_the_place_of_seals_forgets_no_bundle() {
    let Some(scene) = Scene::new() else { return };
    let (junk, url) = front(&scene);
    let path = in_team(format!("referrers/{}", bundle(&scene)));
    junk.does(&path, Does::Says("200 OK", "{\"manifests\":7}".to_owned()));
    let gateway = Gateway::start(&scene, "state", &[&url], &[]);
    // There may be a seal among what cannot be read.
    gateway.get_until(&scene.debuginfo_path(), 502);
    junk.does(&path, Does::Passes);
    gateway.get_until(&scene.debuginfo_path(), 200);
    // A seal that is known does not become wrong by junk that comes later.
    junk.does(&path, Does::Says("200 OK", "{}".to_owned()));
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(gateway.get(&format!("/buildid/{}/executable", scene.build_id), &[]).status, 200);
}

#[test]
fn each_home_of_a_bundle_is_asked_for_seals() {
    let Some(scene) = Scene::new() else { return };
    let (without, first) = front(&scene);
    let none = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    without.does(&in_team(format!("referrers/{}", bundle(&scene))), Does::Says("200 OK", none.to_owned()));
    let second = format!("oci://{}", scene.reference("team/app"));
    for (at, order) in [[&first, &second], [&second, &first]].into_iter().enumerate() {
        let gateway = Gateway::start(&scene, &format!("state-{at}"), &order.map(String::as_str), &[]);
        let got = gateway.get(&scene.debuginfo_path(), &[]);
        assert_eq!(got.status, 200, "{at}: {}", got.head);
    }
}

#[test]
fn copies_of_a_bundle_without_its_seal_hide_it_from_nobody() {
    let Some(scene) = Scene::new() else { return };
    let inputs = [&scene.stripped, &scene.debug].map(|path| path.display().to_string());
    scene.build("bare", &inputs, &["--sources", &scene.at("inputs")]);
    // More of them than a gateway remembers homes of one registry.
    for n in 0..6 {
        symseal(["bundle", "push", &scene.at("bare"), &scene.reference(&format!("copies/a{n}:1.0"))]).ok();
    }
    assert_eq!(Digest::of(&scene.manifest("copies/a5/manifests/1.0")), bundle(&scene), "it is a copy");
    let gateway = Gateway::start(&scene, "state", &[&scene.url()], &[]);
    let got = gateway.get(&scene.debuginfo_path(), &[]);
    assert_eq!(got.status, 200, "{}", got.head);
    // The page of the bundle says from where it is pulled with its seals.
    let page = Command::new("curl").args(["-sf", &format!("{}/bundles/{}", scene.url(), bundle(&scene))]).output();
    let page = String::from_utf8(page.unwrap().stdout).unwrap();
    let command = format!("symseal bundle pull {}@", scene.reference("team/app"));
    assert!(page.contains(&command), "{page}");
}

#[test]
fn sources_are_not_absent_while_one_home_does_not_answer_and_wrong_ones_are_told_of() {
    let Some(scene) = Scene::new() else { return };
    let layout = symseal_bundle::LayoutDir::open(scene.at("layout")).unwrap();
    let opened = symseal_bundle::Bundle::open(layout, Some(&bundle(&scene))).unwrap();
    let sources = SymbolIndex::parse(opened.index_bytes()).unwrap().sources.unwrap();
    let manifest = in_team(format!("manifests/{sources}"));
    let source = format!("/buildid/{}/source{}", scene.build_id, scene.at("inputs/app.c"));
    let (down, at_down) = front(&scene);
    down.does(&manifest, Does::Says(BUSY, String::new()));
    let (lacks, at_lacks) = front(&scene);
    lacks.does(&manifest, Does::Says(NOT_FOUND, String::new()));
    for (at, order) in [[&at_down, &at_lacks], [&at_lacks, &at_down]].into_iter().enumerate() {
        let gateway = Gateway::start(&scene, &format!("state-{at}"), &order.map(String::as_str), &[]);
        assert_eq!(gateway.get_until(&scene.debuginfo_path(), 200).exit, 0);
        assert_eq!(gateway.get(&source, &[]).status, 502, "{at}");
    }
    let (wrong, at_wrong) = front(&scene);
    wrong.does(&manifest, Does::Says("200 OK", "{}".to_owned()));
    let honest = format!("oci://{}", scene.reference("team/app"));
    let alone = Gateway::start(&scene, "state-wrong", &[&at_wrong, &at_lacks], &[]);
    alone.get_until(&scene.debuginfo_path(), 200);
    alone.get(&source, &[]).is_refused("wrong-bytes");
    let beside = Gateway::start(&scene, "state-beside", &[&at_wrong, &honest], &[]);
    beside.get_until(&scene.debuginfo_path(), 200);
    // Whichever home is asked first, the file comes.
    let got = beside.get(&source, &[]);
    assert!(got.status == 200 && got.body == std::fs::read(scene.at("inputs/app.c")).unwrap(), "{}", got.head);
}

#[test]
fn sources_in_a_repository_of_their_own_come_from_there() {
    let Some(scene) = Scene::new() else { return };
    let (bundle, sources) = (scene.reference("apart/app:1.0"), scene.reference("apart/sources:1.0"));
    symseal(["bundle", "push", &scene.at("layout"), &bundle, &format!("--with-sources={sources}")]).ok();
    let source = format!("/buildid/{}/source{}", scene.build_id, scene.at("inputs/app.c"));
    let [bundle, sources] = ["apart/app", "apart/sources"].map(|name| format!("oci://{}", scene.reference(name)));
    let alone = Gateway::start(&scene, "state-apart", &[&bundle], &[]);
    alone.get_until(&scene.debuginfo_path(), 200);
    alone.get(&source, &[]).is_refused("no-such-source");
    let both = Gateway::start(&scene, "state-both", &[&bundle, &sources], &[]);
    both.get_until(&scene.debuginfo_path(), 200);
    let got = both.get(&source, &[]);
    assert!(got.status == 200 && got.body == std::fs::read(scene.at("inputs/app.c")).unwrap(), "{}", got.head);
}

#[test]
fn a_server_that_told_of_bundles_is_no_other_kind_because_of_one_odd_answer() {
    let Some(scene) = Scene::new() else { return };
    let odd = Upstream::before(&scene.server.address);
    let (api, path) = ("/api/v1/bundles?debug_id=", "0123456789abcdef0123456789abcdef01234567");
    odd.does(&format!("{api}{path}"), Does::Says(NOT_FOUND, "<html>".to_owned()));
    let gateway = Gateway::start(&scene, "state", &[&odd.url], &[]);
    assert_eq!(gateway.get(&format!("/buildid/{}/executable", scene.build_id), &[]).status, 200);
    let asked = format!("/buildid/{path}/debuginfo");
    assert_eq!(gateway.get(&asked, &[]).status, 502, "it cannot be told");
    assert_eq!(gateway.status()["upstreams"][0]["kind"], "symseal server");
    odd.does(
        &format!("{api}{path}"),
        Does::Says("200 OK\r\nContent-Type: application/json", "{\"bundles\":".to_owned()),
    );
    assert_eq!(gateway.get(&asked, &[]).status, 502);
    odd.does(&format!("{api}{path}"), Does::Passes);
    gateway.get(&asked, &[]).is_refused("not-covered");
    assert_eq!(gateway.get(&scene.debuginfo_path(), &[]).status, 200);
}
