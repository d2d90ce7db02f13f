//! Two servers on one PostgreSQL and one object store, behind nginx, which sends each request to the next of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::nginx::Nginx;
use crate::objects::{ObjectServer, free_port};
use crate::postgres::Postgres;
use crate::program::{Ran, RunningServer, command, compile_c, symseal, tool};
use crate::scene::{Oras, ask, breaks, get, id, noise, publish, sha256, wait_until};

pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) postgres: Postgres,
    pub(crate) objects: ObjectServer,
    /// What the servers are told beside where their stores are.
    more: Vec<String>,
    pub(crate) name: String,
    pub(crate) database: String,
    ports: [u16; 2],
    servers: Vec<Option<RunningServer>>,
}

impl Scene {
    pub(crate) fn new() -> Option<Self> {
        Self::with(&[])
    }

    /// Servers with these arguments.
    pub(crate) fn with(more: &[&str]) -> Option<Self> {
        let (objects, _) = (ObjectServer::start()?, tool("curl")?);
        let postgres = Postgres::start()?;
        let name = postgres.create_database();
        let database = postgres.url(&name);
        let more = more.iter().map(|it| (*it).to_owned()).collect();
        let root = tempfile::tempdir().unwrap();
        let ports = [free_port(), free_port()];
        let mut scene = Self { root, postgres, objects, more, name, database, ports, servers: vec![None, None] };
        scene.start(0);
        scene.start(1);
        Some(scene)
    }

    pub(crate) fn start(&mut self, which: usize) {
        let listen = format!("127.0.0.1:{}", self.ports[which]);
        let data = self.root.path().join(format!("data-{which}"));
        let blobs = self.objects.url();
        let mut environment = self.objects.environment();
        environment.push(("SYMSEAL_SERVER_DATABASE", self.database.clone()));
        let more: Vec<&str> = ["--blobs", &blobs].into_iter().chain(self.more.iter().map(String::as_str)).collect();
        self.servers[which] = Some(RunningServer::start_on(&listen, &data, &more, &environment));
    }

    /// Loses what a server has beside the bucket and the database.
    pub(crate) fn forget(&self, which: usize) {
        std::fs::remove_dir_all(self.root.path().join(format!("data-{which}"))).unwrap();
    }

    /// The one value of a query.
    pub(crate) fn ask(&self, query: &str) -> String {
        self.postgres.ask(&self.name, query)
    }

    /// With SIGKILL.
    pub(crate) fn kill(&mut self, which: usize) {
        self.servers[which] = None;
    }

    /// What an operator does beside the servers.
    pub(crate) fn store(&self, arguments: &[&str]) -> Ran {
        let mut store = command("symseal");
        store.arg("store").args(arguments).args(["--blobs", &self.objects.url(), "--data"]);
        store.arg(self.root.path().join("operator")).env("SYMSEAL_SERVER_DATABASE", &self.database);
        Ran::from(store.envs(self.objects.environment()).output().unwrap())
    }

    pub(crate) fn address(&self, which: usize) -> String {
        format!("127.0.0.1:{}", self.ports[which])
    }
}

#[test]
fn what_one_server_acknowledged_the_other_serves_at_once() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    for release in 1..6 {
        let (to, from) = if release % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let digest = publish(scene.root.path(), to, "team/app", release);
        let found = get(from, &format!("/buildid/{}/debuginfo", id(release)));
        assert_eq!(found.status, 200, "release {release}");
        assert_eq!(get(from, &format!("/v2/team/app/manifests/{digest}")).status, 200);
        assert_eq!(get(from, &format!("/v2/team/app/manifests/{release}")).status, 200);
        assert_eq!(get(from, &format!("/v2/team/app/blobs/{}", sha256(&found.body))).status, 200);
        assert_eq!(get(from, &format!("/api/v1/bundles/{digest}")).status, 200);
    }
    // A tag that moves, and one that goes.
    for (tag, expected) in [("4", "2"), ("5", "3")] {
        let digest = |address: &str, tag: &str| {
            let head = ask(address, &format!("/v2/team/app/manifests/{tag}"), &["--head"]);
            head.header("docker-content-digest")[0].to_owned()
        };
        let manifest = scene.root.path().join("manifest");
        let source = get(&one, &format!("/v2/team/app/manifests/{expected}"));
        std::fs::write(&manifest, &source.body).unwrap();
        let body = format!("@{}", manifest.display());
        let content_type = format!("Content-Type: {}", source.header("content-type")[0]);
        let put = ["--request", "PUT", "--header", &content_type, "--data-binary", &body];
        assert_eq!(ask(&one, &format!("/v2/team/app/manifests/{tag}"), &put).status, 201);
        assert_eq!(digest(&two, tag), digest(&one, expected), "the tag moves");
    }
    assert_eq!(ask(&two, "/v2/team/app/manifests/5", &["--request", "DELETE"]).status, 202);
    assert_eq!(get(&one, "/v2/team/app/manifests/5").status, 404, "the tag goes");
    let last = format!("/buildid/{}/debuginfo", id(1));
    let digest = ask(&one, "/v2/team/app/manifests/1", &["--head"]).header("docker-content-digest")[0].to_owned();
    assert_eq!(ask(&two, &format!("/v2/team/app/manifests/{digest}"), &["--request", "DELETE"]).status, 202);
    wait_until("the bundle goes", || get(&one, &last).status == 404);
    assert_eq!(get(&two, &last).status, 404);
}

/// An index without manifests that says `text`, as curl sends it to a tag of `team/app` under a condition; the status.
fn put_index(address: &str, tag: &str, text: &str, condition: Option<&str>) -> u16 {
    let index = index(text);
    let mut put =
        vec!["--request", "PUT", "--header", "Content-Type: application/vnd.oci.image.index.v1+json", "--data", &index];
    put.extend(condition.into_iter().flat_map(|condition| ["--header", condition]));
    ask(address, &format!("/v2/team/app/manifests/{tag}"), &put).status
}

fn index(text: &str) -> String {
    format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[],"annotations":{{"text":"{text}"}}}}"#
    )
}

#[test]
fn a_tag_leads_on_every_server_where_it_was_moved_last_and_so_do_conditions_say() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let shown = |address: &str, tag: &str| {
        let found = get(address, &format!("/v2/team/app/manifests/{tag}"));
        (found.status, String::from_utf8(found.body).unwrap())
    };
    // Often: what the other server hears by itself may be there in time now and then.
    for turn in 0..12 {
        let text = format!("turn {turn}");
        assert_eq!(put_index(&one, "moved", &text, None), 201);
        assert_eq!(shown(&two, "moved"), (200, index(&text)), "{text}");
        let matches = format!("If-Match: \"{}\"", sha256(index(&text).as_bytes()));
        assert_eq!(put_index(&one, "moved", "between", Some(&matches)), 201, "{text}");
        assert_eq!(put_index(&two, "moved", "lost", Some(&matches)), 412, "{text}");
        let new = format!("new-{turn}");
        assert_eq!(put_index(&one, &new, "first", Some("If-None-Match: *")), 201, "{text}");
        assert_eq!(put_index(&two, &new, "second", Some("If-None-Match: *")), 412, "{text}");
        assert_eq!(shown(&two, &new), (200, index("first")), "{text}");
        assert_eq!(ask(&one, &format!("/v2/team/app/manifests/{new}"), &["--request", "DELETE"]).status, 202);
        assert_eq!(shown(&two, &new).0, 404, "{text}");
    }
}

#[test]
fn a_tag_is_answered_as_it_was_known_while_the_database_is_away() {
    let Some(mut scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    assert_eq!(put_index(&one, "kept", "last", None), 201);
    assert_eq!(get(&two, "/v2/team/app/manifests/kept").status, 200);
    scene.postgres.stop();
    for _ in 0..3 {
        let asked = std::time::Instant::now();
        assert_eq!(get(&two, "/v2/team/app/manifests/kept").status, 200);
        assert!(asked.elapsed().as_secs() < 12, "{:?}", asked.elapsed());
    }
    // A condition cannot be judged by what was known.
    assert_eq!(put_index(&two, "kept", "next", Some("If-None-Match: *")), 503);
    scene.postgres.start_again();
    wait_until("a tag that moved is seen again", || {
        put_index(&one, "kept", "after", None) == 201
            && get(&two, "/v2/team/app/manifests/kept").body == index("after").as_bytes()
    });
}

#[test]
fn one_clients_push_and_anothers_pull_go_through_both_servers_at_once() {
    let Some(mut scene) = Scene::new() else { return };
    let inputs = scene.root.path().join("inputs");
    std::fs::create_dir(&inputs).unwrap();
    // `tool` says that there is none.
    let Some(program) = Nginx::program().or_else(|| tool("nginx").and(None)) else { return };
    let servers = scene.ports.map(|port| ([127, 0, 0, 1], port).into());
    let nginx = Nginx::start(program, &scene.root.path().join("nginx"), servers);
    let Some(oras) = Oras::new(&inputs) else { return };
    let files: Vec<(String, Vec<u8>)> = (1..7).map(|seed| (format!("file-{seed}"), noise(300_000, seed))).collect();
    for (name, bytes) in &files {
        std::fs::write(inputs.join(name), bytes).unwrap();
    }
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let address = nginx.address.to_string();
    let debug = publish(scene.root.path(), &address, "app", 1);
    assert!(debug.starts_with("sha256:"));
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            for turn in 0..4 {
                oras.push(&format!("{address}/team/app:{turn}"), &names[turn..turn + 3]);
            }
        });
        let pulling = scope.spawn(|| {
            for turn in 0..4_usize {
                let reference = format!("{address}/team/app:{turn}");
                wait_until("a tag is there", || oras.run(&["resolve", "--plain-http", &reference]).is_ok());
                let folder = scene.root.path().join(format!("pulled-{turn}"));
                let output = folder.to_str().unwrap();
                oras.run(&["pull", "--plain-http", "--output", output, &reference]).unwrap();
                for (name, bytes) in &files[turn..turn + 3] {
                    assert!(std::fs::read(folder.join(name)).unwrap() == *bytes);
                }
            }
        });
        let debugging = scope.spawn(|| {
            for turn in 0..20 {
                let found = get(&address, &format!("/buildid/{}/debuginfo", id(1)));
                assert_eq!(found.status, 200, "turn {turn}");
            }
        });
        for task in [pushing, pulling, debugging] {
            task.join().unwrap();
        }
    });
    if let Some(skopeo) = tool("skopeo") {
        let target = format!("dir:{}", scene.root.path().join("copied").display());
        let source = format!("docker://{address}/team/app:3");
        let mut copy = Command::new(skopeo);
        copy.args(["copy", "--quiet", "--src-tls-verify=false", &source, &target]);
        assert!(copy.status().unwrap().success());
    }
    if let Some(find) = tool("debuginfod-find") {
        let cache = scene.root.path().join("cache");
        let found = Command::new(find)
            .args(["debuginfo", &id(1)])
            .env("DEBUGINFOD_URLS", format!("http://{address}"))
            .env("DEBUGINFOD_CACHE_PATH", &cache)
            .output();
        assert!(found.unwrap().status.success());
    }

    // A chunk each, to the server whose turn it is; and the same again with one server dead in the middle.
    for (round, kill) in [(1, None), (2, Some(0))] {
        let bytes = noise(2_000_000 + round, 99 + round as u64);
        let begun = ask(&address, "/v2/chunks/blobs/uploads/", &["--request", "POST", "--data", ""]);
        assert_eq!(begun.status, 202, "{begun:?}");
        let location = begun.header("location")[0].to_owned();
        let mut offset = 0;
        for (at, chunk) in bytes.chunks(700_000).enumerate() {
            if let (1, Some(which)) = (at, kill) {
                scene.kill(which);
            }
            let file = inputs.join("chunk");
            std::fs::write(&file, chunk).unwrap();
            let range = format!("Content-Range: {offset}-{}", offset + chunk.len() - 1);
            let body = format!("@{}", file.display());
            let patch = ["--request", "PATCH", "--header", &range, "--data-binary", &body];
            let mut answer = ask(&address, &location, &patch);
            if answer.status != 202 {
                // As a client does whose connection broke.
                answer = ask(&address, &location, &patch);
            }
            assert_eq!(answer.status, 202, "{answer:?}");
            offset += chunk.len();
            assert_eq!(answer.header("range"), [format!("0-{}", offset - 1)]);
        }
        let far = get(&address, &location);
        assert_eq!((far.status, far.header("range")), (204, vec![format!("0-{}", offset - 1).as_str()]));
        let late = ["--request", "PATCH", "--header", "Content-Range: 5-9", "--data-binary", "12345"];
        assert_eq!(ask(&address, &location, &late).status, 416);
        let end = ask(&address, &format!("{location}?digest={}", sha256(&bytes)), &["--request", "PUT", "--data", ""]);
        assert_eq!(end.status, 201, "{end:?}");
        let blob = format!("/v2/chunks/blobs/{}", sha256(&bytes));
        assert!(get(&address, &blob).body == bytes);
        // It has ended, whichever server is asked.
        for _ in 0..2 {
            assert_eq!(get(&address, &location).status, 404);
            let more = ["--request", "PATCH", "--data-binary", "more"];
            assert_eq!(ask(&address, &location, &more).status, 404);
        }
        let elsewhere = location.replace("/chunks/", "/others/");
        assert_eq!(get(&address, &elsewhere).status, 404, "a session is one of its repository");
        if let Some(which) = kill {
            // What went on without it is there when it comes again.
            scene.start(which);
            assert!(get(&scene.address(which), &blob).body == bytes);
            assert_eq!(get(&scene.address(which), &format!("/buildid/{}/debuginfo", id(1))).status, 200);
        }
    }

    // So have those that were cancelled, refused, or that ended with their first request.
    let begin = || {
        let begun = ask(&address, "/v2/chunks/blobs/uploads/", &["--request", "POST", "--data", ""]);
        begun.header("location")[0].to_owned()
    };
    let (cancelled, wrong, whole) = (begin(), begin(), begin());
    assert_eq!(ask(&address, &cancelled, &["--request", "DELETE"]).status, 204);
    let put = ["--request", "PUT", "--data-binary", "bytes"];
    let refused = ask(&address, &format!("{wrong}?digest={}", sha256(b"others")), &put);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(ask(&address, &format!("{whole}?digest={}", sha256(b"bytes")), &put).status, 201);
    for location in [cancelled, wrong, whole] {
        for _ in 0..2 {
            assert_eq!(get(&address, &location).status, 404, "{location}");
        }
    }
}

/// A layout with one program of this build-id, and the program.
fn layout(root: &Path, name: &str, build_id: &str) -> (String, PathBuf) {
    let folder = root.join(name);
    std::fs::create_dir(&folder).unwrap();
    let source = format!("int {name}(int x) {{ return x + 1; }}\nint main(void) {{ return {name}(-1); }}\n");
    let flag = format!("-Wl,--build-id=0x{build_id}");
    let binary = compile_c(&folder, "app", &source, &["-g", &flag]).expect("a compiler");
    let (layout, program) = (folder.join("layout").display().to_string(), binary.display().to_string());
    symseal(["bundle", "build", &program, "--name", "app", "--version", name, "--output", &layout]).ok();
    (layout, binary)
}

#[test]
fn what_two_servers_are_told_in_the_same_instant_they_agree_on() {
    let Some(scene) = Scene::new() else { return };
    let (root, servers) = (scene.root.path(), [scene.address(0), scene.address(1)]);
    let both = |tell: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for which in 0..servers.len() {
                scope.spawn(move || tell(which));
            }
        });
    };
    let tag = |server: &str, tag: &str| {
        let head = ask(server, &format!("/v2/app/manifests/{tag}"), &["--head"]);
        (head.status == 200).then(|| head.header("docker-content-digest")[0].to_owned())
    };
    let agree = |on: &str| tag(&servers[0], on).is_some_and(|digest| tag(&servers[1], on) == Some(digest));
    for round in 0..3_u8 {
        // The same push to both: each is acknowledged, and it is there once.
        let (same, binary) = layout(root, &format!("same{round}"), &id(0x10 + round));
        let name = format!("same{round}");
        both(&|which| drop(symseal(["bundle", "push", &same, &format!("{}/app:{name}", servers[which])]).ok()));
        wait_until("both have the tag", || agree(&name));
        let bytes = std::fs::read(&binary).unwrap();
        for server in &servers {
            assert!(get(server, &format!("/buildid/{}/debuginfo", id(0x10 + round))).body == bytes);
        }
        // The same file by itself.
        let file = binary.display().to_string();
        both(&|which| drop(symseal(["upload", "--to", &format!("http://{}", servers[which]), &file]).ok()));
        let files = |server: &String| {
            let list = get(server, "/api/v1/symbols").json();
            list["files"].as_array().unwrap().len()
        };
        wait_until("both list the file once", || servers.iter().all(|server| files(server) == usize::from(round) + 1));
        // One tag and one id for two bundles: one of each holds, the same on both.
        let shared = id(0x20 + round);
        let sides = ["left", "right"].map(|side| layout(root, &format!("{side}{round}"), &shared));
        let name = format!("other{round}");
        both(&|which| {
            drop(symseal(["bundle", "push", &sides[which].0, &format!("{}/app:{name}", servers[which])]).ok())
        });
        wait_until("both lead the tag to one bundle", || agree(&name));
        let path = format!("/buildid/{shared}/debuginfo");
        wait_until("both answer with one file", || get(&servers[0], &path).body == get(&servers[1], &path).body);
        let found = get(&servers[0], &path).body;
        assert!(sides.iter().any(|(_, binary)| std::fs::read(binary).unwrap() == found), "{} bytes", found.len());
    }
}

#[test]
fn a_change_that_a_server_could_not_take_over_is_not_forgotten() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    // The second server can bring nothing to its disk.
    let temporary = scene.root.path().join("data-1/temporary");
    std::fs::remove_dir(&temporary).unwrap();
    std::fs::write(&temporary, "").unwrap();
    let digest = publish(scene.root.path(), &one, "app", 1);
    let (file, manifest) = (format!("/buildid/{}/debuginfo", id(1)), format!("/v2/app/manifests/{digest}"));
    assert!(breaks(&two, &file), "it cannot tell");
    assert_ne!(get(&two, &manifest).status, 404);
    std::fs::remove_file(&temporary).unwrap();
    std::fs::create_dir(&temporary).unwrap();
    wait_until("it is taken over", || get(&two, &manifest).status == 200);
    wait_until("debuggers are told", || get(&two, &file).status == 200);
}

#[test]
fn a_quota_behind_an_object_store_has_room_again_when_a_bundle_is_deleted_on_any_server() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let digest = publish(scene.root.path(), &one, "team/app", 1);
    let kept = publish(scene.root.path(), &one, "team/app", 2);
    let usage = || {
        let usage = scene.store(&["usage", "--json"]).ok().json();
        let repositories = usage["repositories"].as_array().unwrap();
        repositories.iter().map(|it| it["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let whole = usage();
    assert_eq!(ask(&two, &format!("/v2/team/app/manifests/{digest}"), &["--request", "DELETE"]).status, 202);
    let rest = usage();
    let file = get(&one, &format!("/buildid/{}/debuginfo", id(2))).body.len() as u64;
    assert!(rest >= file && rest + file <= whole, "{whole} became {rest}, a file has {file}");
    assert_eq!(ask(&two, &format!("/v2/team/app/manifests/{kept}"), &["--request", "DELETE"]).status, 202);
    assert_eq!(usage(), 0);
}

#[test]
fn no_server_says_that_something_is_not_there_while_it_cannot_know() {
    let Some(mut scene) = Scene::new() else { return };
    let address = scene.address(0);
    publish(scene.root.path(), &address, "app", 1);
    scene.postgres.stop();
    let unknown = format!("/buildid/{}/debuginfo", id(9));
    assert_eq!(get(&address, &format!("/buildid/{}/debuginfo", id(1))).status, 200);
    assert!(breaks(&address, &unknown));
    assert_eq!(get(&address, "/v2/app/manifests/nothing").status, 503);
    let named = |id: &str| String::from_utf8(get(&address, &format!("/metadata?key=buildid&value={id}")).body).unwrap();
    assert!(named(&id(1)).contains(&id(1)) && named(&id(1)).contains("\"complete\":false"), "{}", named(&id(1)));
    scene.postgres.start_again();
    wait_until("the server recovers", || get(&address, &unknown).status == 404);
    publish(scene.root.path(), &scene.address(1), "app", 2);
    // Before anything else has asked for what the other one did.
    assert!(named(&id(2)).contains(&id(2)) && named(&id(2)).contains("\"complete\":true"), "{}", named(&id(2)));
    assert_eq!(get(&address, &format!("/buildid/{}/debuginfo", id(2))).status, 200);
}

#[test]
fn a_takedown_is_seen_by_both_servers_and_so_is_its_end() {
    let Some(scene) = Scene::new() else { return };
    let servers = [scene.address(0), scene.address(1)];
    let digest = publish(scene.root.path(), &servers[0], "team/app", 1);
    let kept = publish(scene.root.path(), &servers[1], "team/app", 2);
    let store = |arguments: &[&str]| scene.store(arguments);
    let paths = [
        format!("/v2/team/app/manifests/{digest}"),
        "/v2/team/app/manifests/1".to_owned(),
        format!("/buildid/{}/debuginfo", id(1)),
    ];
    let all_are =
        |status: u16| servers.iter().all(|server| paths.iter().all(|path| get(server, path).status == status));
    assert!(all_are(200));
    store(&["takedown", &digest, "--reason", "a mistake"]).ok();
    wait_until("it is taken down", || all_are(404));
    for server in &servers {
        assert_eq!(get(server, &format!("/api/v1/bundles/{digest}")).status, 410);
        assert_eq!(get(server, &format!("/v2/team/app/manifests/{kept}")).status, 200);
        assert_eq!(get(server, &format!("/buildid/{}/debuginfo", id(2))).status, 200);
    }
    let listed = store(&["tombstones", "--json"]).ok().json();
    assert_eq!(
        (&listed["tombstones"][0]["digest"], &listed["tombstones"][0]["reason"]),
        (&digest.into(), &"a mistake".into())
    );
    let digest = listed["tombstones"][0]["digest"].as_str().unwrap();
    store(&["takedown", digest, "--lift"]).ok();
    wait_until("it is back", || all_are(200));
    store(&["takedown", digest, "--lift"]).refused(1, &[]);
    // Pins and figures are read there too.
    store(&["pin", digest, "--reason", "long support"]).ok();
    let delete = ask(&servers[1], &format!("/v2/team/app/manifests/{digest}"), &["--request", "DELETE"]);
    assert_eq!(delete.status, 405);
    let usage = store(&["usage", "--json"]).ok().json();
    assert_eq!(
        (&usage["repositories"][0]["name"], &usage["repositories"][0]["bundles"]),
        (&"team/app".into(), &2.into())
    );
}

#[test]
fn what_was_deleted_on_one_server_is_taken_down_on_all_with_what_it_alone_named() {
    let Some(mut scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let servers = [scene.address(0), scene.address(1)];
    let digest = publish(scene.root.path(), &servers[0], "team/app", 1);
    let kept = publish(scene.root.path(), &servers[1], "team/app", 2);
    let file = get(&servers[1], &format!("/buildid/{}/debuginfo", id(1))).body;
    let index = get(&servers[0], &format!("/v2/team/app/manifests/{digest}")).json();
    let children = index["manifests"].as_array().unwrap().iter();
    let manifest = |it: &serde_json::Value| format!("/v2/team/app/manifests/{}", it["digest"].as_str().unwrap());
    let mut alone: Vec<String> = children.map(manifest).collect();
    alone.push(format!("/v2/team/app/blobs/{}", sha256(&file)));
    let are = |status: u16| servers.iter().all(|server| alone.iter().all(|path| get(server, path).status == status));
    let delete = ask(&servers[0], &format!("/v2/team/app/manifests/{digest}"), &["--request", "DELETE"]);
    assert_eq!((delete.status, are(200)), (202, true));
    scene.store(&["takedown", &digest, "--reason", "a name"]).ok();
    wait_until("it is taken down", || are(404));
    // A server that knows nothing but the bucket, with it.
    scene.kill(1);
    scene.forget(1);
    scene.start(1);
    assert!(are(404));
    assert_eq!(get(&servers[1], &format!("/v2/team/app/manifests/{kept}")).status, 200);
    scene.store(&["takedown", &digest, "--lift"]).ok();
    wait_until("it is back", || are(200));
    scene.store(&["takedown", &digest, "--reason", "a name"]).ok();
    wait_until("it is taken down again", || are(404));
    // And it goes from the bucket whole.
    let bucket = scene.objects.file("blobs/sha256");
    let is_stored = |digest: &str| {
        let hex = digest.rsplit(':').next().unwrap();
        bucket.join(&hex[..2]).join(hex).exists()
    };
    assert!(alone.iter().all(|path| is_stored(path)) && is_stored(&digest));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let began = std::time::Instant::now();
    while is_stored(&digest) || alone.iter().any(|path| is_stored(path)) {
        assert!(began.elapsed() < std::time::Duration::from_secs(120), "it is there still");
        scene.store(&["gc", "--grace", "1s", "--json"]).ok();
    }
    assert!(is_stored(&kept));
    let marks = scene.objects.file("repositories/team/app/_deleted/sha256");
    assert_eq!(std::fs::read_dir(marks).map_or(0, |marks| marks.count()), 0);
}

#[test]
fn a_server_that_fell_behind_reads_everything_again() {
    let Some(mut scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let gone = publish(scene.root.path(), &one, "team/app", 1);
    assert_eq!(get(&two, &format!("/v2/team/app/manifests/{gone}")).status, 200);
    let signal = |scene: &Scene, name: &str| {
        let pid = scene.servers[1].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal(&scene, "-STOP");
    let new = publish(scene.root.path(), &one, "team/other", 2);
    assert_eq!(ask(&one, &format!("/v2/team/app/manifests/{gone}"), &["--request", "DELETE"]).status, 202);
    // Facts that somebody damaged are no reason to read no other.
    for key in ["repositories/team/app/_tags/damaged", "traces/00000000-0000-4000-8000-000000000000"] {
        let file = scene.objects.file(key);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, [0xff, 0xfe]).unwrap();
    }
    // A week passes, and a server deletes what is older.
    let database = scene.database.rsplit('/').find(|part| part.starts_with("symbols")).unwrap();
    let database = database.split('?').next().unwrap().to_owned();
    scene.postgres.run(&database, "UPDATE changes SET at = now() - interval '8 days'");
    scene.kill(0);
    scene.start(0);
    let left = "DO $$ BEGIN ASSERT (SELECT count(*) FROM changes) = 0; END $$";
    std::thread::sleep(std::time::Duration::from_secs(1));
    scene.postgres.run(&database, left);
    signal(&scene, "-CONT");
    wait_until("the new one is there", || get(&two, &format!("/buildid/{}/debuginfo", id(2))).status == 200);
    assert_eq!(get(&two, &format!("/v2/team/other/manifests/{new}")).status, 200);
    assert_eq!(get(&two, "/v2/team/other/manifests/2").status, 200);
    assert_eq!(get(&two, &format!("/v2/team/app/manifests/{gone}")).status, 404);
    assert_eq!(get(&two, &format!("/buildid/{}/debuginfo", id(1))).status, 404);
    // And goes on from there.
    publish(scene.root.path(), &one, "team/app", 3);
    assert_eq!(get(&two, &format!("/buildid/{}/debuginfo", id(3))).status, 200);
}

#[test]
fn what_the_bucket_lost_is_there_again_once_it_is_pushed_though_servers_have_it_cached() {
    let Some(mut scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    publish(scene.root.path(), &one, "app", 1);
    let path = format!("/buildid/{}/debuginfo", id(1));
    let file = get(&one, &path);
    assert_eq!((file.status, get(&two, &path).status), (200, 200));
    let digest = sha256(&file.body);
    let object = scene.objects.blob(&digest);
    let whole = std::fs::read(&object).unwrap();
    let damage = || {
        let mut damaged = whole.clone();
        damaged[1000] ^= 1;
        std::fs::write(&object, damaged).unwrap();
    };
    damage();
    let scrubbed = scene.store(&["scrub", "--json"]);
    let found = scrubbed.json();
    assert_eq!(scrubbed.status, 1, "{}", scrubbed.stderr);
    assert_eq!((&found["missing"][0]["digest"], &found["restored"]), (&digest.as_str().into(), &serde_json::json!([])));
    assert!(!object.exists());
    // Both servers have it cached, so that the client need not send it: but the bucket must have it.
    publish(scene.root.path(), &one, "app", 1);
    assert_eq!(std::fs::read(&object).unwrap(), whole);
    std::fs::remove_file(&object).unwrap();
    publish(scene.root.path(), &two, "other", 1);
    assert_eq!(std::fs::read(&object).unwrap(), whole);
    std::fs::remove_file(&object).unwrap();
    let mount = format!("/v2/third/blobs/uploads/?mount={digest}&from=app");
    assert_eq!(ask(&one, &mount, &["--request", "POST"]).status, 201);
    assert_eq!(std::fs::read(&object).unwrap(), whole);
    // A cached file that is damaged vouches for nothing.
    std::fs::remove_file(&object).unwrap();
    let hex = digest.strip_prefix("sha256:").unwrap();
    let cached = |which: u8| scene.root.path().join(format!("data-{which}/blobs/sha256/{}/{hex}", &hex[..2]));
    let mut damaged = whole.clone();
    damaged[1000] ^= 1;
    std::fs::write(cached(1), damaged).unwrap();
    let head = |address: &str| ask(address, &format!("/v2/app/blobs/{digest}"), &["--head"]).status;
    assert_eq!(head(&two), 404);
    publish(scene.root.path(), &two, "app", 1);
    assert_eq!(std::fs::read(&object).unwrap(), whole);
    assert_eq!((head(&two), get(&two, &path).body == file.body), (200, true));
    // A scrub with the data directory of a server gives the bucket what is cached there.
    damage();
    let mut scrub = command("symseal");
    scrub.args(["store", "scrub", "--json", "--blobs", &scene.objects.url(), "--data"]);
    scrub.arg(scene.root.path().join("data-0")).envs(scene.objects.environment());
    let scrubbed = Ran::from(scrub.output().unwrap());
    let found = scrubbed.json();
    let digest = serde_json::json!(digest);
    assert_eq!((&found["damaged"][0]["digest"], &found["restored"][0]), (&digest, &digest), "{}", scrubbed.stderr);
    assert_eq!((&found["missing"], scrubbed.status), (&serde_json::json!([]), 1));
    assert_eq!(std::fs::read(&object).unwrap(), whole);
    // So that a server that has nothing cached serves it.
    scene.kill(0);
    scene.forget(0);
    scene.start(0);
    assert_eq!(get(&one, &path).body, file.body);
}
