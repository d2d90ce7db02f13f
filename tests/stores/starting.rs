//! A server that starts, and is kept from it for a while by its object store.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::objects::{ObjectServer, free_port, wait_for_port};
use crate::program::{command, required, tool};
use crate::scene::{ask, breaks, get, wait_until};

#[test]
fn a_server_that_starts_says_so_and_gives_debuggers_nothing_to_keep() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    objects.hang(true);
    let mut serve = command("symseal");
    serve.args(["serve", "--listen", &address, "--blobs", &objects.url(), "--data"]).arg(root.path().join("data"));
    let mut server = serve.envs(objects.environment()).stdout(Stdio::null()).spawn().unwrap();
    wait_for_port(port);
    assert_eq!(get(&address, "/healthz").status, 200);
    let ready = get(&address, "/readyz");
    assert!(ready.status == 503 && String::from_utf8_lossy(&ready.body).contains("is starting"), "{ready:?}");
    for (path, more) in [("/v2/", vec![]), ("/v2/app/blobs/uploads/", vec!["--request", "POST"]), ("/", vec![])] {
        let told = ask(&address, path, &more);
        assert!(told.status == 503 && told.header("retry-after") == ["5"], "{path}: {told:?}");
    }
    for path in ["/buildid/abcd/debuginfo", "/t/secret/buildid/abcd/section/.text", "/symbols/a.pdb/1/a.pdb"] {
        assert!(breaks(&address, path), "{path}");
    }
    objects.hang(false);
    wait_until("it has started", || get(&address, "/readyz").status == 200);
    assert_eq!((get(&address, "/v2/").status, get(&address, "/buildid/abcd/debuginfo").status), (200, 404));
    server.kill().unwrap();
    server.wait().unwrap();
}

/// How a process ends that is sent a signal; fails where it does not within seconds.
#[track_caller]
fn ended_by(child: &mut Child, id: u32, signal: &str) -> ExitStatus {
    let sent = Instant::now();
    assert!(Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status().unwrap().success());
    while sent.elapsed() < Duration::from_secs(5) {
        if let Some(ended) = child.try_wait().unwrap() {
            return ended;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it goes on after {signal}");
}

#[test]
fn a_server_that_is_told_to_end_while_it_starts_ends_at_once_and_in_order() {
    let Some(objects) = ObjectServer::start() else { return };
    objects.hang(true);
    let serve = |data: &std::path::Path, prefix: &[&str]| {
        let port = free_port();
        let mut serve = command("symseal");
        if let [program, more @ ..] = prefix {
            let program_itself = serve.get_program().to_owned();
            let environment: Vec<_> =
                serve.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
            serve = Command::new(program);
            serve.args(more).arg(program_itself);
            for (name, value) in environment {
                match value {
                    Some(value) => serve.env(name, value),
                    None => serve.env_remove(name),
                };
            }
        }
        serve.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--blobs", &objects.url(), "--data"]).arg(data);
        let child = serve.envs(objects.environment()).stdout(Stdio::piped()).spawn().unwrap();
        (child, port)
    };
    let root = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let (mut child, port) = serve(&root.path().join("data"), &[]);
        wait_for_port(port);
        let id = child.id();
        assert_eq!(ended_by(&mut child, id, signal).code(), Some(0), "{signal}");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
        assert!(!said.contains("serving"), "{said}");
    }
    // As process 1, which no signal ends that it does not wait for.
    let may = Command::new("unshare").args(["--pid", "--fork", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        assert!(!required("namespaces"), "namespaces is required (SYMSEAL_REQUIRE): this user may make no process 1");
        println!("SKIP namespaces: this user may make no process 1");
        return;
    }
    let (mut child, port) = serve(&root.path().join("data"), &["unshare", "--pid", "--fork", "--kill-child"]);
    wait_for_port(port);
    let own = child.id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    let first = children.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(ended_by(&mut child, first, "TERM").code(), Some(0));
}
