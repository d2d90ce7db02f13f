//! From SQLite to PostgreSQL: what stays behind is told.

use std::process::Stdio;

use crate::postgres::Postgres;
use crate::program::{RunningServer, command, symseal, tool};
use crate::scene::{get, publish, wait_until};

#[test]
fn tokens_and_audit_lines_that_stay_in_sqlite_are_told_until_there_are_others() {
    let (Some(postgres), Some(_)) = (Postgres::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let (data, log) = (root.path().join("data"), root.path().join("log"));
    let place = data.to_str().unwrap();
    let running = RunningServer::start(&data);
    publish(root.path(), &running.address, "app", 1);
    drop(running);
    for name in ["one", "two"] {
        symseal(["token", "create", "--data", place, "--name", name, "--write", "app"]).ok();
    }
    let database = postgres.create_database();
    let url = postgres.url(&database);
    // What a start says, once it serves.
    let said = || {
        let mut serve = command("symseal");
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data", place]).env("SYMSEAL_SERVER_DATABASE", &url);
        serve.stdin(Stdio::null()).stdout(std::fs::File::create(root.path().join("out")).unwrap());
        let mut serving = serve.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let out = || std::fs::read_to_string(root.path().join("out")).unwrap();
        wait_until("it serves", || out().ends_with('\n'));
        let address = out().trim().rsplit("://").next().unwrap().trim_end_matches('/').to_owned();
        let status = get(&address, "/v2/app/tags/list").status;
        serving.kill().unwrap();
        serving.wait().unwrap();
        (status, std::fs::read_to_string(&log).unwrap())
    };
    for _ in 0..2 {
        let (status, told) = said();
        assert_eq!(status, 200, "the bundles are there");
        let lines: Vec<&str> = told.lines().filter(|line| line.contains("has what the new database has not")).collect();
        assert!(
            lines.len() == 1 && lines[0].contains("tokens=2 audit_lines=") && lines[0].contains(" alerts=0"),
            "{told}"
        );
        assert!(!told.contains("audit_lines=0"), "{told}");
    }
    let mut create = command("symseal");
    create.args(["token", "create", "--data", place, "--name", "new", "--write", "app"]);
    assert!(create.env("SYMSEAL_SERVER_DATABASE", &url).stdout(Stdio::null()).status().unwrap().success());
    let (_, told) = said();
    assert!(!told.contains("new database"), "{told}");
}
