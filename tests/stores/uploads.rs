//! What uploads ask of the object store of servers that share it.

use crate::gate::Gate;
use crate::objects::ObjectServer;
use crate::postgres::Postgres;
use crate::program::tool;
use crate::scene::{ask, get, server, sha256};

#[test]
fn an_upload_of_one_request_asks_the_bucket_four_times_and_none_once_it_has_ended() {
    let (Some(objects), Some(_), Some(postgres)) = (ObjectServer::start(), tool("curl"), Postgres::start()) else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let (gate, blobs) = (Gate::before(objects.port), objects.url());
    let mut environment = ObjectServer::environment_at(gate.port);
    environment.push(("SYMSEAL_SERVER_DATABASE", postgres.url(&postgres.create_database())));
    let running = server(&root.path().join("data"), &["--blobs", &blobs, "--gc-interval", "0s"], &environment);
    let upload = |number: u8| {
        let bytes = format!("blob {number}");
        let begun = ask(&running.address, "/v2/app/blobs/uploads/", &["--request", "POST", "--data", ""]);
        let location = begun.header("location")[0].to_owned();
        let put = ["--request", "PUT", "--data-binary", &bytes];
        let end = format!("{location}?digest={}", sha256(bytes.as_bytes()));
        assert_eq!(ask(&running.address, &end, &put).status, 201);
        location
    };
    let counted = |what: &mut dyn FnMut()| {
        gate.requests();
        what();
        gate.requests()
    };
    // The server asks for other things beside: the fewest are what it takes.
    let mut ended = String::new();
    let fewest = (0..8).map(|number| counted(&mut || ended = upload(number))).min();
    // What it has of parts, whether the blob is there, the blob, and that the repository has it.
    assert_eq!(fewest, Some(4));
    let fewest = (0..8).map(|_| counted(&mut || assert_eq!(get(&running.address, &ended).status, 404))).min();
    assert_eq!(fewest, Some(0));
}
