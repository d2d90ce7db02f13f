//! A server that starts, and is kept from it for a while by its object store.

use std::process::Stdio;

use crate::objects::{ObjectServer, free_port, wait_for_port};
use crate::program::{command, tool};
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
