//! An object store that gives a wrong answer now and then, or that does not give one object: what is to be had otherwise is had, and nothing is forgotten.

use std::path::Path;

use crate::gate::Gate;
use crate::objects::ObjectServer;
use crate::postgres::Postgres;
use crate::program::{RunningServer, command, tool};
use crate::scene::{ask, breaks, get, id, publish, server, sha256, wait_until};

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const REFUSED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 80\r\nConnection: close\r\n\r\n<Error><Code>InvalidObjectState</Code><Message>It is archived.</Message></Error>";
const HEAD: &str =
    "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: close\r\n";

/// Other bytes than were asked for, of which so many are announced.
fn wrong(length: usize) -> Vec<u8> {
    format!("{HEAD}Content-Length: {length}\r\n\r\nwrong").into_bytes()
}

/// Two servers, the second of which reaches the object store through a gate.
struct Scene {
    root: tempfile::TempDir,
    _postgres: Postgres,
    objects: ObjectServer,
    database: String,
    gate: Gate,
    one: RunningServer,
}

impl Scene {
    fn new() -> Option<Self> {
        let (objects, _) = (ObjectServer::start()?, tool("curl")?);
        let postgres = Postgres::start()?;
        let database = postgres.url(&postgres.create_database());
        let root = tempfile::tempdir().unwrap();
        let gate = Gate::before(objects.port);
        let one = Self::serve(&root.path().join("one"), &objects, &database, objects.port);
        Some(Self { root, _postgres: postgres, objects, database, gate, one })
    }

    fn serve(data: &Path, objects: &ObjectServer, database: &str, port: u16) -> RunningServer {
        let mut environment = ObjectServer::environment_at(port);
        environment.push(("SYMSEAL_SERVER_DATABASE", database.to_owned()));
        server(data, &["--blobs", &objects.url()], &environment)
    }

    /// The second server, with nothing cached.
    fn second(&self, name: &str) -> RunningServer {
        Self::serve(&self.root.path().join(name), &self.objects, &self.database, self.gate.port)
    }
}

#[test]
fn one_wrong_answer_of_the_object_store_takes_no_change_of_another_server_away() {
    let Some(scene) = Scene::new() else { return };
    let two = scene.second("two");
    let faults: [(&str, Vec<u8>); 4] = [
        ("/_manifests/", NOT_FOUND.to_vec()),
        ("/_tags/", NOT_FOUND.to_vec()),
        ("/blobs/", NOT_FOUND.to_vec()),
        ("/blobs/", wrong(5)),
    ];
    for ((part, answer), release) in faults.into_iter().zip(1..) {
        scene.gate.answer("GET", part, &answer);
        publish(scene.root.path(), &scene.one.address, "app", release);
        let (by_id, by_tag) = (format!("/buildid/{}/debuginfo", id(release)), format!("/v2/app/manifests/{release}"));
        assert_eq!(get(&scene.one.address, &by_id).status, 200, "{part}");
        // Nobody is told that it is not here: elfutils would keep that for ten minutes.
        if part == "/_tags/" {
            assert_eq!(get(&two.address, &by_tag).status, 503, "{part}");
        } else {
            assert!(breaks(&two.address, &by_id), "{part}");
            assert!(breaks(&two.address, &format!("/buildid/{}/debuginfo", id(200))), "{part}");
        }
        let metrics = String::from_utf8(get(&two.address, "/metrics").body).unwrap();
        assert!(!metrics.contains("\nsymseal_changes_unread 0\n"), "{metrics}");
        scene.gate.answer_nothing();
        wait_until("the debugger's file is there", || get(&two.address, &by_id).status == 200);
        wait_until("the tag is there", || get(&two.address, &by_tag).status == 200);
        let other = format!("/buildid/{}/debuginfo", id(200));
        wait_until("nothing is in doubt", || get(&two.address, &other).status == 404);
    }
    drop(two);
    // So it is with a start.
    scene.gate.answer("GET", "/_tags/", NOT_FOUND);
    let two = scene.second("three");
    assert_eq!(get(&two.address, "/v2/app/manifests/1").status, 503);
    scene.gate.answer_nothing();
    wait_until("the tag is there", || get(&two.address, "/v2/app/manifests/1").status == 200);
}

#[test]
fn a_pin_that_the_object_store_does_not_give_holds() {
    let Some(scene) = Scene::new() else { return };
    let two = scene.second("two");
    let digest = publish(scene.root.path(), &scene.one.address, "app", 1);
    let mut pin = command("symseal");
    pin.args(["store", "pin", &digest, "--reason", "shipped", "--blobs", &scene.objects.url(), "--data"]);
    pin.arg(scene.root.path().join("operator")).env("SYMSEAL_SERVER_DATABASE", &scene.database);
    assert!(pin.envs(scene.objects.environment()).status().unwrap().success());
    scene.gate.answer("GET", "/pins/", NOT_FOUND);
    let path = format!("/v2/app/manifests/{digest}");
    assert_eq!(ask(&two.address, &path, &["--request", "DELETE"]).status, 405);
    assert_eq!(get(&two.address, &path).status, 200);
}

#[test]
fn what_the_object_store_does_not_give_of_one_object_is_that_objects_trouble() {
    let Some(scene) = Scene::new() else { return };
    for release in 1..8 {
        publish(scene.root.path(), &scene.one.address, "app", release);
    }
    let blob = |release: u8| {
        let digest = sha256(&get(&scene.one.address, &format!("/buildid/{}/debuginfo", id(release))).body);
        format!("/v2/app/blobs/{digest}")
    };
    let [refused, others @ ..] = [1, 2, 3, 4, 5, 6, 7].map(blob);
    let two = scene.second("two");
    for (answer, others) in [(REFUSED.to_vec(), &others[..3]), (wrong(5000), &others[3..])] {
        let hex = refused.rsplit(':').next().unwrap();
        scene.gate.answer("GET", hex, &answer);
        for other in others {
            let found = get(&two.address, &refused);
            assert!(found.status == 503 || found.status == 500, "{}", found.status);
            assert_eq!(get(&two.address, "/readyz").status, 200);
            assert_eq!(get(&two.address, other).status, 200);
        }
        scene.gate.answer_nothing();
    }
    assert_eq!(get(&two.address, &refused).status, 200);
    // No start ends for it.
    let manifest = ask(&two.address, "/v2/app/manifests/3", &["--head"]).header("docker-content-digest")[0].to_owned();
    drop(two);
    scene.gate.answer("GET", manifest.strip_prefix("sha256:").unwrap(), REFUSED);
    let two = scene.second("three");
    assert_eq!(get(&two.address, "/v2/app/manifests/2").status, 200);
    assert_eq!(get(&two.address, "/v2/app/manifests/3").status, 503);
    scene.gate.answer_nothing();
    wait_until("it is read again", || get(&two.address, "/v2/app/manifests/3").status == 200);
    // All of them is another matter.
    scene.gate.answer("GET", "", REFUSED);
    let said = get(&two.address, "/readyz");
    assert_eq!(said.status, 503);
    assert!(String::from_utf8_lossy(&said.body).contains("refuses the server's credentials"), "{said:?}");
}

#[test]
fn a_server_is_not_ready_where_its_bucket_is_gone_or_takes_nothing() {
    let Some(scene) = Scene::new() else { return };
    let two = scene.second("two");
    let ready = || {
        let said = get(&two.address, "/readyz");
        (said.status, String::from_utf8(said.body).unwrap())
    };
    assert_eq!(ready().0, 200);
    scene.gate.answer("PUT", "", REFUSED);
    let push = ["--request", "POST", "--data-binary", "bytes"];
    let digest = sha256(b"bytes");
    let pushed = ask(&two.address, &format!("/v2/app/blobs/uploads/?digest={digest}"), &push);
    assert_eq!(pushed.status, 503);
    for _ in 0..3 {
        assert_eq!(ready().0, 503, "{:?}", ready());
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
    scene.gate.answer_nothing();
    wait_until("it is ready again", || ready().0 == 200);

    let bucket = scene.objects.file("").ancestors().nth(2).unwrap().to_owned();
    let away = bucket.with_file_name("elsewhere");
    std::fs::rename(&bucket, &away).unwrap();
    for _ in 0..4 {
        let (status, said) = ready();
        assert!(status == 503 && said.contains("no such bucket"), "{status} {said}");
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
    std::fs::rename(&away, &bucket).unwrap();
    wait_until("it is ready again", || ready().0 == 200);
}
