//! What is private does not exist for those who may not read it, on every path.

use crate::curl::curl;
use crate::program::{self, RunningServer};
use crate::scene::{Scene, token};

/// The paths that lead to a release's files.
fn paths(release: &crate::scene::Release) -> Vec<String> {
    let id = &release.build_id;
    vec![
        format!("/buildid/{id}/debuginfo"),
        format!("/buildid/{id}/executable"),
        format!("/buildid/{id}/section/.debug_line"),
        format!("/symbols/app/elf-buildid-{id:0<40}/app"),
        format!("/s/{}/buildid/{id}/debuginfo", release.repository),
        format!("/api/v1/bundles/{}", release.digest),
        format!("/v2/{}/tags/list", release.repository),
        format!("/v2/{}/manifests/1", release.repository),
        format!("/v2/{}/blobs/{}", release.repository, release.digest),
        format!("/v2/{}/referrers/{}", release.repository, release.digest),
    ]
}

/// Whoever is refused before anything was looked for has a line in the log too, by which the request is found.
#[test]
fn who_is_sent_away_has_a_line_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let mut server = program::command("symseal");
    server.args(["serve", "--listen", "127.0.0.1:0", "--access", "tokens", "--data"]).arg(&data);
    server.env("SYMSEAL_LOG", "info").stderr(std::fs::File::create(&log).unwrap());
    let running = RunningServer::started(server);
    let url = format!("http://{}/buildid/00/debuginfo", running.address);
    let Some(answer) = curl(["--header", "Authorization: Bearer symseal_nobody", &url]) else { return };
    assert_eq!(answer.status, 401, "{answer:?}");
    let id = answer.header("x-request-id").remove(0);
    let told = std::fs::read_to_string(&log).unwrap();
    let line = told.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id}: {told}"));
    assert!(line.contains("answered status=401") && !line.contains("nobody"), "{line}");
}

#[test]
fn what_is_private_is_there_for_readers_alone_on_every_path() {
    let Some(scene) = Scene::new(&[]) else { return };
    for (path, public) in paths(&scene.private).iter().zip(paths(&scene.public)) {
        let status = |path: &str, token| scene.get(path, token).unwrap().status;
        assert_eq!(status(&public, Some(&scene.writer)), status(path, Some(&scene.reader)), "{path}");
        assert_eq!(status(path, Some(&scene.writer)), status(path, Some(&scene.reader)), "{path}");
        let stranger = scene.get(path, None).unwrap();
        let is_registry = path.starts_with("/v2/");
        assert_eq!(stranger.status, if is_registry { 401 } else { 404 }, "{path}: {stranger:?}");
        // Nothing tells it from what is nowhere.
        let nowhere = path.replace("team/app", "team/none").replace(&scene.private.build_id, "cccccccc03");
        let nowhere = scene.get(&nowhere, None).unwrap();
        assert_eq!(nowhere.status, stranger.status, "{path}");
        if !path.contains("/bundles/") {
            assert_eq!(nowhere.body, stranger.body, "{path}");
        }
        if !is_registry {
            assert_eq!(status(&public, None), status(path, Some(&scene.reader)), "{public}");
        }
    }
    for path in ["executable", "debuginfo"] {
        let path = format!("/buildid/{}/{path}", scene.private.build_id);
        assert_eq!(scene.get(&path, Some(&scene.reader)).unwrap().status, 200, "{path}");
    }
}

#[test]
fn what_an_upstream_gives_to_this_server_it_gives_to_no_stranger() {
    let Some(scene) = Scene::new(&[]) else { return };
    let data = scene.path("front");
    std::fs::create_dir(&data).unwrap();
    let known = format!("Authorization: Bearer {}", token(&data, &["--read", "other"]));
    let upstream = format!("{}/t/{}", scene.url(""), scene.reader);
    let answers = |anonymous: &str| {
        let arguments = ["--access", "tokens", "--anonymous-read", anonymous, "--upstream", &upstream];
        let symbols = ["--symbol-upstream", &format!("{upstream}/symbols")];
        let front = RunningServer::start_with(&data, &[&arguments[..], &symbols[..]].concat());
        let id = &scene.private.build_id;
        ["debuginfo", "section/.debug_line", "source/x.c"].map(|file| {
            let url = format!("http://{}/buildid/{id}/{file}", front.address);
            let stranger = curl([url.as_str()]).unwrap().status;
            (stranger, curl(["--header", known.as_str(), url.as_str()]).unwrap().status)
        })
    };
    assert_eq!(answers("public"), [(404, 200), (404, 200), (404, 404)]);
    // Whoever lets strangers read everything lets them read that too.
    assert_eq!(answers("*"), [(200, 200), (200, 200), (404, 404)]);
}

#[test]
fn lists_show_what_the_caller_may_read() {
    let Some(scene) = Scene::new(&[]) else { return };
    let catalog = |token| scene.get("/v2/_catalog", Some(token)).unwrap().json()["repositories"].clone();
    assert_eq!(catalog(&scene.writer), serde_json::json!(["public/app", "team/app"]));
    let only_team = token(&scene.path("data"), &["--read", "team/app"]);
    assert_eq!(catalog(&only_team), serde_json::json!(["public/app", "team/app"]), "and what anybody may");
    let nothing = token(&scene.path("data"), &["--read", "other"]);
    assert_eq!(catalog(&nothing), serde_json::json!(["public/app"]));
    assert_eq!(scene.get("/v2/_catalog", None).unwrap().status, 401);
    let ids = |token: Option<&str>| {
        let found = scene.get("/metadata?key=file&value=app", token).unwrap().json();
        let results = found["results"].as_array().unwrap().clone();
        let mut ids: Vec<String> =
            results.iter().map(|result| result["buildid"].as_str().unwrap().to_owned()).collect();
        ids.dedup();
        ids
    };
    assert_eq!(ids(None), std::slice::from_ref(&scene.public.build_id));
    assert_eq!(ids(Some(&scene.reader)), [scene.public.build_id.clone(), scene.private.build_id.clone()]);
    // The Firefox Profiler's way: ids of Breakpad.
    let breakpad = |id: &str| {
        let bytes: Vec<&str> = (0..16).map(|at| id.get(2 * at..2 * at + 2).unwrap_or("00")).collect();
        let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        order.iter().map(|at| bytes[*at].to_uppercase()).collect::<String>() + "0"
    };
    let body = format!(
        r#"{{"version":5,"jobs":[{{"memoryMap":[["app","{}"],["app","{}"]],"stacks":[[[0,4096],[1,4096]]]}}]}}"#,
        breakpad(&scene.public.build_id),
        breakpad(&scene.private.build_id)
    );
    let (url, bearer) = (scene.url("/symbolicate/v5"), format!("Authorization: Bearer {}", scene.reader));
    let found = |headers: &[&str]| {
        let answer = curl(headers.iter().copied().chain(["--data", &body, &url])).unwrap().json();
        let found = answer["results"][0]["found_modules"].as_object().unwrap().clone();
        found.values().filter(|found| found.as_bool() == Some(true)).count()
    };
    assert_eq!(found(&[]), 1);
    assert_eq!(found(&["--header", &bearer]), 2);
    let resolve = scene.url("/api/v1/resolve");
    let body = format!(r#"{{"platform":"linux","debug_id":"{}","addresses":["0x1139"]}}"#, scene.private.build_id);
    let bundle = |headers: &[&str]| {
        let answer = curl(headers.iter().copied().chain(["--data", &body, &resolve])).unwrap().json();
        answer["provenance"]["bundle"].clone()
    };
    assert!(bundle(&[]).is_null());
    assert_eq!(bundle(&["--header", &bearer]), scene.private.digest.as_str());
}

#[test]
fn no_proxy_keeps_for_one_what_another_was_answered() {
    let Some(scene) = Scene::new(&[]) else { return };
    let path = format!("/buildid/{}/debuginfo", scene.private.build_id);
    let mine = scene.get(&path, Some(&scene.reader)).unwrap();
    assert_eq!(mine.header("cache-control"), ["private, max-age=3600"]);
    assert!(mine.header("vary").join(",").contains("Authorization"));
    let not_mine = scene.get(&path, None).unwrap();
    assert!(not_mine.header("vary").join(",").contains("Authorization"), "{not_mine:?}");
}

#[test]
fn traces_alerts_and_the_audit_log_have_readers_of_their_own() {
    let Some(scene) = Scene::new(&[]) else { return };
    let trace = "/api/v1/traces/00000000-0000-0000-0000-000000000001";
    assert_eq!(scene.get(trace, Some(&scene.reader)).unwrap().json()["error"]["code"], "trace-unknown");
    let url = scene.url(trace);
    assert_eq!(curl(["--request", "PUT", "--data", "{}", &url]).unwrap().status, 403);
    for path in ["/api/v1/alerts", "/api/v1/audit"] {
        assert_eq!(scene.get(path, None).unwrap().status, 403, "{path}");
        assert_eq!(scene.get(path, Some(&scene.reader)).unwrap().status, 403, "{path}");
        assert_eq!(scene.get(path, Some(&scene.writer)).unwrap().status, 200, "{path}");
    }
    // A session may do what it was opened for.
    let narrow = scene.get("/api/v1/token?scope=repository:team/app:pull", Some(&scene.writer)).unwrap().json();
    assert_eq!(scene.get("/api/v1/audit", narrow["token"].as_str()).unwrap().status, 403);
    // A refused writer with a token is in the log, a stranger is not.
    let denied = scene.url("/v2/public/app/manifests/1");
    assert_eq!(curl(["--request", "DELETE", &denied]).unwrap().status, 401);
    let bearer = format!("Authorization: Bearer {}", scene.reader);
    assert_eq!(curl(["--header", &bearer, "--request", "DELETE", &denied]).unwrap().status, 403);
    let entries = scene.get("/api/v1/audit", Some(&scene.writer)).unwrap().json()["entries"].clone();
    let entries = entries.as_array().unwrap();
    let pushes = entries.iter().filter(|entry| entry["method"] == "PUT" && entry["status"] == 201);
    let pushed: Vec<&str> = pushes.filter_map(|entry| entry["digest"].as_str()).collect();
    assert!(
        pushed.contains(&scene.public.digest.as_str()) && pushed.contains(&scene.private.digest.as_str()),
        "{entries:?}"
    );
    let deletions: Vec<_> = entries.iter().filter(|entry| entry["method"] == "DELETE").collect();
    assert_eq!(deletions.len(), 1, "{entries:?}");
    assert_eq!((&deletions[0]["status"], &deletions[0]["path"]), (&403.into(), &"/v2/public/app/manifests/1".into()));
    let after = entries.last().unwrap()["number"].as_u64().unwrap();
    let rest = scene.get(&format!("/api/v1/audit?after={after}"), Some(&scene.writer)).unwrap().json();
    assert_eq!(rest["entries"], serde_json::json!([]));
}

#[test]
fn a_blob_is_mounted_only_by_those_who_may_read_it() {
    let Some(scene) = Scene::new(&[]) else { return };
    let mount = |token: &str, from: &str| {
        let url = scene.url(&format!("/v2/mine/blobs/uploads/?mount={}{from}", secret_blob(&scene)));
        let bearer = format!("Authorization: Bearer {token}");
        curl(["--header", &bearer, "--request", "POST", "--data", "", &url]).unwrap().status
    };
    let blind = token(&scene.path("data"), &["--write", "mine"]);
    let sees = token(&scene.path("data"), &["--write", "mine", "--read", "team"]);
    let ways = ["&from=team/app", ""];
    assert_eq!(ways.map(|from| mount(&blind, from)), [202; 2], "uploads are begun instead");
    assert_eq!(ways.map(|from| mount(&sees, from)), [201; 2]);
}

/// A blob of the private repository.
fn secret_blob(scene: &Scene) -> String {
    let index = scene.get("/v2/team/app/manifests/1", Some(&scene.reader)).unwrap().json();
    let child = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let manifest = scene.get(&format!("/v2/team/app/manifests/{child}"), Some(&scene.reader)).unwrap().json();
    manifest["layers"][0]["digest"].as_str().unwrap().to_owned()
}
