//! Programs of others, with their own ways to show a token.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::curl::curl;
use crate::program::{self, peer, symseal};
use crate::scene::Scene;

fn run(scene: &Scene, docker_config: &Path, program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.env("HOME", scene.root.path()).env("DOCKER_CONFIG", docker_config).env_remove("REGISTRY_AUTH_FILE");
    command.env("HTTPS_PROXY", "http://127.0.0.1:9").current_dir(scene.root.path());
    command.args(arguments).output().unwrap()
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn oras_logs_in_pushes_pulls_and_is_refused_where_its_token_ends() {
    let (Some(scene), Some(oras)) = (Scene::new(&[]), peer("oras")) else { return };
    let empty = scene.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let as_nobody = |arguments: &[&str]| run(&scene, &empty, &oras, arguments);
    let login = |folder: &Path, token: &str| {
        let arguments = ["login", "--plain-http", "--username", "ci", "--password", token, &scene.server.address];
        run(&scene, folder, &oras, &arguments)
    };
    let (writer, reader) = (scene.path("login-writer"), scene.path("login-reader"));
    succeeds(&login(&writer, &scene.writer));
    succeeds(&login(&reader, &scene.reader));
    assert!(!login(&scene.path("login-wrong"), &scene.reader.replace(['0', '1', '2', '3'], "4")).status.success());
    std::fs::write(scene.path("file.txt"), "a file\n").unwrap();
    let to = |rest: &str| format!("{}/{rest}", scene.server.address);
    let push = |folder: &Path, rest: &str| run(&scene, folder, &oras, &["push", "--plain-http", &to(rest), "file.txt"]);
    let pull =
        |folder: &Path, rest: &str| run(&scene, folder, &oras, &["manifest", "fetch", "--plain-http", &to(rest)]);
    succeeds(&push(&writer, "team/files:1"));
    succeeds(&push(&writer, "public/files:1"));
    assert!(!push(&writer, "other/files:1").status.success());
    assert!(!push(&reader, "team/files:2").status.success());
    assert!(!push(&empty, "public/files:2").status.success());
    succeeds(&pull(&reader, "team/files:1"));
    succeeds(&pull(&empty, "public/files:1"));
    assert!(!pull(&empty, "team/files:1").status.success());
    succeeds(&run(
        &scene,
        &writer,
        &oras,
        &["cp", "-r", "--from-plain-http", "--to-plain-http", &to("team/app:1"), &to("public/copy:1")],
    ));
    assert!(as_nobody(&["repo", "tags", "--plain-http", &to("public/copy")]).status.success());
}

#[test]
fn skopeo_and_regctl_log_in_and_copy() {
    let Some(scene) = Scene::new(&[]) else { return };
    let config = scene.docker_config("writer", &scene.writer);
    let to = |rest: &str| format!("{}/{rest}", scene.server.address);
    if let Some(skopeo) = peer("skopeo") {
        let policy = scene.path("policy.json");
        std::fs::write(&policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
        let credentials = format!("ci:{}", scene.writer);
        let (from, there) = (format!("docker://{}", to("team/app:1")), format!("docker://{}", to("public/skopeo:1")));
        let tls = ["--src-tls-verify=false", "--dest-tls-verify=false"];
        let creds = ["--src-creds", &credentials, "--dest-creds", &credentials];
        let fixed = ["--policy", policy.to_str().unwrap(), "copy", "--all", "--quiet"];
        let all: Vec<&str> = fixed.into_iter().chain(tls).chain(creds).chain([from.as_str(), &there]).collect();
        succeeds(&run(&scene, &scene.path("none"), &skopeo, &all));
        // Strangers read what is public, with the session that is theirs.
        let inspect = ["--policy", policy.to_str().unwrap(), "inspect", "--raw", "--tls-verify=false", &there];
        succeeds(&run(&scene, &scene.path("none"), &skopeo, &inspect));
        let private = format!("docker://{}", to("team/app:1"));
        let inspect = ["--policy", policy.to_str().unwrap(), "inspect", "--raw", "--tls-verify=false", &private];
        assert!(!run(&scene, &scene.path("none"), &skopeo, &inspect).status.success());
    }
    if let Some(regctl) = peer("regctl") {
        let host = format!("reg={},tls=disabled", scene.server.address);
        let (from, there) = (to("team/app:1"), to("public/regctl:1"));
        succeeds(&run(&scene, &config, &regctl, &["--host", &host, "image", "copy", "--referrers", &from, &there]));
        assert!(
            !run(&scene, &scene.path("none"), &regctl, &["--host", &host, "manifest", "get", &from]).status.success()
        );
    }
}

#[test]
fn debuginfod_find_shows_a_token_in_a_header_and_in_the_path() {
    let (Some(scene), Some(find)) = (Scene::new(&[]), program::tool("debuginfod-find")) else { return };
    let ask = |cache: &str, url: &str, headers: Option<&Path>| {
        let mut command = Command::new(&find);
        command
            .env("DEBUGINFOD_URLS", url)
            .env("DEBUGINFOD_CACHE_PATH", scene.path(cache))
            .env("HOME", scene.root.path());
        if let Some(headers) = headers {
            command.env("DEBUGINFOD_HEADERS_FILE", headers);
        }
        command.args(["debuginfo", &scene.private.build_id]).output().unwrap()
    };
    assert!(!ask("c1", &scene.url(""), None).status.success());
    let headers = scene.path("headers");
    std::fs::write(&headers, format!("Authorization: Bearer {}\n", scene.reader)).unwrap();
    succeeds(&ask("c2", &scene.url(""), Some(&headers)));
    succeeds(&ask("c3", &scene.url(&format!("/t/{}", scene.reader)), None));
    std::fs::write(&headers, "Authorization: Bearer symseal_wrong\n").unwrap();
    assert!(!ask("c4", &scene.url(""), Some(&headers)).status.success());
}

#[test]
fn a_token_is_a_password_a_bearer_or_a_part_of_the_path_and_no_longer_when_revoked() {
    let Some(scene) = Scene::new(&[]) else { return };
    let path = format!("/buildid/{}/debuginfo", scene.private.build_id);
    let (user, url) = (format!("anybody:{}", scene.reader), scene.url(&path));
    let in_path = scene.url(&format!("/t/{}{path}", scene.reader));
    let ways = || {
        let bearer = scene.get(&path, Some(&scene.reader)).unwrap().status;
        [bearer, curl(["--user", &user, &url]).unwrap().status, curl([in_path.as_str()]).unwrap().status]
    };
    assert_eq!(ways(), [200; 3]);
    let session =
        curl(["--user", &user, &scene.url("/api/v1/token?service=x&scope=repository:team/app:pull,push")]).unwrap();
    assert_eq!(session.header("cache-control"), ["no-store"]);
    let session = session.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(scene.get(&path, Some(&session)).unwrap().status, 200);
    // It opens no other, or it would never end.
    assert_eq!(scene.get("/api/v1/token", Some(&session)).unwrap().status, 403);
    // It lets its holder do what was asked for and is the token's: not more.
    let other = scene.get("/v2/public/app/tags/list", Some(&session)).unwrap();
    assert_eq!(other.status, 200, "anybody may");
    let upload = scene.url("/v2/team/app/blobs/uploads/");
    let bearer = format!("Authorization: Bearer {session}");
    assert_eq!(
        curl(["--header", &bearer, "--request", "POST", "--data", "", &upload]).unwrap().status,
        403,
        "its token may not either"
    );
    let id = symseal(["token", "list", "--data", scene.path("data").to_str().unwrap(), "--json"]).ok().json();
    let id =
        id.as_array().unwrap().iter().find(|token| token["scope"] == "read:team traces:read").unwrap()["id"].clone();
    symseal(["token", "revoke", "--data", scene.path("data").to_str().unwrap(), id.as_str().unwrap()]).ok();
    let deadline = Instant::now() + Duration::from_secs(20);
    while ways() != [401; 3] {
        assert!(Instant::now() < deadline, "{:?}", ways());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(scene.get(&path, Some(&session)).unwrap().status, 401, "and with it its sessions");
}
