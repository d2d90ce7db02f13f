//! `symseal store` as an operator types it: what it prints, in words and as JSON, and with which status it ends.

use std::path::Path;
use std::time::Duration;

use crate::objects::ObjectServer;
use crate::postgres::Postgres;
use crate::program::{Ran, RunningServer, command, symseal, tool};
use crate::scene::{ask, get, id, publish, server, sha256, wait_until};

/// A server's data directory with a configuration beside it.
struct Operator {
    root: tempfile::TempDir,
    /// Where else the server keeps things.
    environment: Vec<(&'static str, String)>,
}

impl Operator {
    fn new(configuration: &str) -> Option<Self> {
        tool("curl")?;
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("server.toml"), configuration).unwrap();
        Some(Self { root, environment: Vec::new() })
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).to_str().unwrap().to_owned()
    }

    fn serve(&self) -> RunningServer {
        server(Path::new(&self.at("data")), &["--config", &self.at("server.toml")], &self.environment)
    }

    fn store(&self, arguments: &[&str]) -> Ran {
        let (data, config) = (self.at("data"), self.at("server.toml"));
        let mut store = command("symseal");
        store.arg("store").args(arguments).args(["--data", &data, "--config", &config]);
        store.envs(self.environment.iter().map(|(name, value)| (name, value))).output().unwrap().into()
    }
}

#[test]
fn pins_hold_against_the_rules_of_retention_until_they_are_taken_off() {
    let Some(operator) = Operator::new("[[retention]]\nprefix = \"*\"\nkeep_last = 1\n") else { return };
    let running = operator.serve();
    let first = publish(operator.root.path(), &running.address, "app", 1);
    // The newest is told by the time of a file.
    std::thread::sleep(Duration::from_millis(20));
    let second = publish(operator.root.path(), &running.address, "app", 2);

    assert!(operator.store(&["pins"]).ok().stdout.contains("nothing is pinned"));
    operator.store(&["pin", &first]).refused(2, &["--reason"]);
    operator.store(&["pin", &format!("sha256:{}", "0".repeat(64)), "--reason", "x"]).refused(1, &[]);
    operator.store(&["pin", "app:1", "--reason", "x"]).refused(2, &["app:1"]);
    let pinned = operator.store(&["pin", &first, "--reason", "shipped", "--by", "ann"]).ok();
    assert_eq!(pinned.stdout, format!("{first} is pinned\n"));
    let listed = operator.store(&["pins"]).ok().stdout;
    assert!(listed.starts_with(&first) && listed.ends_with("ann: shipped\n"), "{listed}");
    let listed = operator.store(&["pins", "--json"]).ok().json();
    let pin = &listed["pins"][0];
    assert_eq!(
        (&pin["digest"], &pin["reason"], &pin["by"]),
        (&first.as_str().into(), &"shipped".into(), &"ann".into())
    );

    // Where the environment names nobody, the user database does.
    let mut pin = command("symseal");
    for name in ["SUDO_USER", "USER", "LOGNAME"] {
        pin.env_remove(name);
    }
    pin.args(["store", "pin", &first, "--reason", "again", "--data", &operator.at("data")]);
    Ran::from(pin.output().unwrap()).ok();
    let own = std::process::Command::new("id").arg("-un").output().unwrap();
    let listed = operator.store(&["pins", "--json"]).ok().json();
    assert_eq!(listed["pins"][0]["by"], String::from_utf8(own.stdout).unwrap().trim());

    let goes = |ran: &Ran| -> Vec<String> {
        let bundles = ran.json()["bundles"].as_array().unwrap().clone();
        let goes = bundles.iter().filter(|it| it["goes"] == true);
        goes.map(|it| it["digest"].as_str().unwrap().to_owned()).collect()
    };
    // Beside the running server nothing but the plan.
    assert_eq!(goes(&operator.store(&["retention", "--json"]).ok()), Vec::<String>::new());
    operator.store(&["retention", "--apply"]).refused(2, &["stop it first"]);
    operator.store(&["unpin", &first]).ok();
    operator.store(&["unpin", &first]).refused(1, &[]);
    assert_eq!(goes(&operator.store(&["retention", "--json"]).ok()), std::slice::from_ref(&first));
    let plan = operator.store(&["retention"]).ok().stdout;
    assert!(plan.ends_with("1 of 2 bundles would go; nothing was changed\n"), "{plan}");
    assert!(plan.contains(&format!("app@{}", "1")) && plan.contains(&second), "{plan}");

    drop(running);
    let applied = operator.store(&["retention", "--apply"]).ok().stdout;
    assert!(applied.ends_with("1 of 2 bundles are gone\n"), "{applied}");
    let running = operator.serve();
    assert_eq!(get(&running.address, &format!("/buildid/{}/debuginfo", id(1))).status, 404);
    assert_eq!(get(&running.address, &format!("/buildid/{}/debuginfo", id(2))).status, 200);
}

#[test]
fn what_is_taken_down_is_listed_with_its_reason_and_comes_back() {
    taken_down(Vec::new(), false);
}

#[test]
fn a_takedown_with_postgresql_and_a_directory() {
    let Some(postgres) = Postgres::start() else { return };
    taken_down(vec![("SYMSEAL_SERVER_DATABASE", postgres.url(&postgres.create_database()))], false);
}

#[test]
fn a_takedown_with_sqlite_and_a_bucket() {
    let Some(objects) = ObjectServer::start() else { return };
    let mut environment = objects.environment();
    environment.push(("SYMSEAL_SERVER_BLOBS", objects.url()));
    taken_down(environment, true);
}

/// A server with nothing but a bucket looks for tombstones twice a minute: then it `starts_again`.
fn taken_down(environment: Vec<(&'static str, String)>, starts_again: bool) {
    let Some(operator) = Operator::new("") else { return };
    let operator = Operator { environment, ..operator };
    let mut running = Some(operator.serve());
    let digest = publish(operator.root.path(), &running.as_ref().unwrap().address, "app", 1);
    // One that was deleted a moment ago, with its file.
    let deleted = publish(operator.root.path(), &running.as_ref().unwrap().address, "app", 2);
    let address = running.as_ref().unwrap().address.clone();
    let file = sha256(&get(&address, &format!("/buildid/{}/debuginfo", id(2))).body);
    let gone = ask(&address, &format!("/v2/app/manifests/{deleted}"), &["--request", "DELETE"]);
    assert_eq!(gone.status, 202, "{gone:?}");
    let file = format!("/v2/app/blobs/{file}");
    assert_eq!(get(&address, &file).status, 200);
    operator.store(&["takedown", &deleted, "--reason", "another"]).ok();
    let mut becomes = |path: &str, status| {
        if starts_again {
            running = None;
            running = Some(operator.serve());
        }
        let address = &running.as_ref().unwrap().address;
        wait_until("a takedown is taken over", || get(address, path).status == status);
    };
    becomes(&file, 404);
    operator.store(&["takedown", &deleted, "--lift"]).ok();
    becomes(&file, 200);
    let mut answers = |status| becomes(&format!("/buildid/{}/debuginfo", id(1)), status);
    answers(200);
    assert!(operator.store(&["tombstones"]).ok().stdout.contains("nothing is taken down"));
    operator.store(&["takedown", &digest]).refused(2, &["--reason"]);
    operator.store(&["takedown", &digest, "--lift"]).refused(1, &[]);
    let taken = operator.store(&["takedown", &digest, "--reason", "ticket 4711", "--by", "ann"]).ok();
    assert_eq!(taken.stdout, format!("{digest} is taken down\n"));
    answers(404);
    let listed = operator.store(&["tombstones"]).ok().stdout;
    assert!(listed.starts_with(&digest) && listed.ends_with("ann: ticket 4711\n"), "{listed}");
    let listed = operator.store(&["tombstones", "--json"]).ok().json();
    assert_eq!(
        (&listed["tombstones"][0]["digest"], listed["tombstones"].as_array().unwrap().len()),
        (&digest.into(), 1)
    );
    let digest = listed["tombstones"][0]["digest"].as_str().unwrap().to_owned();
    assert_eq!(
        operator.store(&["takedown", &digest, "--lift"]).ok().stdout,
        format!("{digest} is no longer taken down\n")
    );
    answers(200);
}

#[test]
fn usage_tells_of_quotas_that_are_exceeded_by_its_status() {
    let Some(operator) = Operator::new("[[quotas]]\nprefix = \"app\"\nbytes = \"1GiB\"\nbundles = 2\n") else { return };
    let running = operator.serve();
    for release in [1, 2] {
        publish(operator.root.path(), &running.address, "app", release);
    }
    let used = operator.store(&["usage", "--json"]).ok().json();
    assert_eq!((&used["repositories"][0]["name"], &used["repositories"][0]["bundles"]), (&"app".into(), &2.into()));
    assert_eq!((&used["quotas"][0]["bundles_limit"], &used["quotas"][0]["exceeded"]), (&2.into(), &false.into()));
    assert!(operator.store(&["usage"]).ok().stdout.contains("app"));
    // A limit that was lowered later.
    std::fs::write(operator.at("server.toml"), "[[quotas]]\nprefix = \"app\"\nbundles = 1\n").unwrap();
    let exceeded = operator.store(&["usage", "--json"]);
    assert_eq!((exceeded.status, &exceeded.json()["quotas"][0]["exceeded"]), (1, &true.into()));
}

#[test]
fn a_mistyped_place_makes_no_store() {
    let Some(operator) = Operator::new("") else { return };
    let nowhere = operator.at("nowhere");
    for command in ["rebuild", "scrub", "gc", "usage", "pins", "tombstones", "retention"] {
        let ran = symseal(["store", command, "--data", &nowhere]);
        assert_eq!((ran.status, Path::new(&nowhere).exists()), (2, false), "{command}: {ran:?}");
    }
}
