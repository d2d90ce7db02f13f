//! Servers that refuse one file, or fail for a while: the rest comes in, and the counts add up.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use symseal_bundle::Digest;

use crate::program::{RunningServer, command, run};
use crate::scene::{Report, get, import, put};

const ID: &str = "5A9832E5287241C1838ED98914E9B7FF1";

/// A symbol file of Breakpad.
fn symbols(module: &str) -> Vec<u8> {
    format!("MODULE windows x86 {ID} {module}.pdb\nFILE 0 a.c\nFUNC 1000 10 0 main\n1000 10 5 0\n").into_bytes()
}

/// A store of these modules.
fn store(folder: &Path, modules: &[&str]) {
    for module in modules {
        put(folder, &format!("{module}.pdb/{ID}/{module}.sym"), &symbols(module));
    }
}

fn count(report: &Report, name: &str) -> u64 {
    report.summary[name].as_u64().unwrap_or_else(|| panic!("{name}: {}", report.summary))
}

/// What was found is what is told of.
#[track_caller]
fn adds_up(report: &Report) {
    let fates = [
        "imported",
        "already_there",
        "would_import",
        "refused",
        "taken_down",
        "failed",
        "administration",
        "unfinished",
    ];
    let sum: u64 = fates.iter().map(|fate| count(report, fate)).sum();
    assert_eq!(sum, count(report, "found"), "{}", report.summary);
    assert_eq!(count(report, "found") - count(report, "unfinished"), report.files.len() as u64, "{}", report.summary);
}

#[test]
fn what_was_taken_down_is_told_by_name_and_the_rest_comes_in() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    store(&at("store"), &["gone", "kept"]);
    let data = at("data");
    let server = RunningServer::start(&data);
    let to = format!("http://{}", server.address);
    let first = import(&at("store"), &at("journal"), &["--to", &to]);
    assert_eq!((first.status, count(&first, "imported")), (0, 2), "{}", first.summary);
    adds_up(&first);
    drop(server);
    let digest = Digest::of(&symbols("gone")).to_string();
    run("symseal", ["store", "takedown", &digest, "--reason", "a private name", "--data", data.to_str().unwrap()]).ok();
    let server = RunningServer::start(&data);
    let to = format!("http://{}", server.address);
    store(&at("store"), &["later"]);
    put(&at("store"), "pingme.txt", b"");
    put(&at("store"), &format!("wrong.pdb/{ID}/wrong.sym"), &symbols("other"));
    // With what the run before has noted, and without.
    for journal in ["journal", "another"] {
        let again = import(&at("store"), &at(journal), &["--to", &to, "--jobs", "1"]);
        assert_eq!((again.status, count(&again, "taken_down")), (1, 1), "{}", again.summary);
        assert_eq!(count(&again, "imported") + count(&again, "already_there"), 2, "{}", again.summary);
        assert_eq!((count(&again, "refused"), count(&again, "administration")), (1, 1), "{}", again.summary);
        let (outcome, reason) = again.outcome(&format!("gone.pdb/{ID}/gone.sym"));
        assert!(outcome == "taken-down" && reason.contains("a private name"), "{outcome}: {reason}");
        adds_up(&again);
    }
    assert_eq!(get(&server, &format!("/symbols/later.pdb/{ID}/later.sym")).1, symbols("later"));
    // Others of the same id may answer for it.
    assert_ne!(get(&server, &format!("/symbols/gone.pdb/{ID}/gone.sym")).1, symbols("gone"));
}

/// What befalls a connection before it reaches the server.
#[derive(Clone, Copy, PartialEq)]
enum Mishap {
    Reset,
    Answer(u16),
}

/// A way to a server on which the first connections that ask with one method meet a mishap each.
fn rough_way(server: &str, method: &'static str, mishaps: Vec<Mishap>) -> (String, Arc<Mutex<Vec<Mishap>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let left = Arc::new(Mutex::new(mishaps));
    let (server, shared) = (server.to_owned(), Arc::clone(&left));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (server, left) = (server.clone(), Arc::clone(&shared));
            thread::spawn(move || carry(client, &server, method, &left));
        }
    });
    (address, left)
}

/// One request of a connection, which then ends: so each request meets its own fate.
fn carry(mut client: TcpStream, server: &str, method: &str, left: &Mutex<Vec<Mishap>>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let (mut head, mut body) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
            body = length.trim().parse().unwrap();
        }
        head.push(line);
        if head.last().unwrap() == "\r\n" {
            break;
        }
    }
    let mishap = if head[0].starts_with(method) { left.lock().unwrap().pop() } else { None };
    if mishap == Some(Mishap::Reset) {
        return drop(client.shutdown(Shutdown::Both));
    }
    let mut content = vec![0; body];
    reader.read_exact(&mut content).unwrap();
    if let Some(Mishap::Answer(status)) = mishap {
        let answer =
            format!("HTTP/1.1 {status} Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return client.write_all(answer.as_bytes()).unwrap();
    }
    head.insert(1, "Connection: close\r\n".to_owned());
    let mut upstream = TcpStream::connect(server).unwrap();
    upstream.write_all(&[head.concat().as_bytes(), &content].concat()).unwrap();
    std::io::copy(&mut upstream, &mut client).unwrap();
}

#[test]
fn a_question_or_a_file_that_fails_in_passing_is_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    store(&at("store"), &["app"]);
    for method in ["HEAD", "PUT"] {
        let server = RunningServer::start(&at(method));
        let mishaps = vec![Mishap::Answer(503), Mishap::Reset, Mishap::Answer(500), Mishap::Reset];
        let (address, left) = rough_way(&server.address, method, mishaps);
        let report = import(&at("store"), &at("journal"), &["--to", &format!("http://{address}")]);
        assert_eq!((report.status, count(&report, "imported")), (0, 1), "{method}: {}", report.summary);
        assert!(left.lock().unwrap().is_empty(), "{method}");
        adds_up(&report);
    }
}

#[test]
fn a_server_that_fails_with_one_file_gets_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    store(&at("store"), &["app", "lib"]);
    let server = RunningServer::start(&at("data"));
    let (address, _) = rough_way(&server.address, "PUT", vec![Mishap::Answer(500); 5]);
    let to = format!("http://{address}");
    let report = import(&at("store"), &at("journal"), &["--to", &to, "--jobs", "1"]);
    assert_eq!((report.status, count(&report, "failed"), count(&report, "imported")), (1, 1, 1), "{}", report.summary);
    adds_up(&report);
    let again = import(&at("store"), &at("journal"), &["--to", &to]);
    assert_eq!((again.status, count(&again, "imported"), count(&again, "already_there")), (0, 1, 1));
}

#[test]
fn no_proxy_stands_before_a_server_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    store(&at("store"), &["app"]);
    let server = RunningServer::start(&at("data"));
    // Nobody listens there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = command("symseal")
        .args(["import", at("store").to_str().unwrap(), "--to", &format!("http://{}", server.address)])
        .args(["--journal", at("journal").to_str().unwrap()])
        .envs(["http_proxy", "HTTP_PROXY", "all_proxy"].map(|name| (name, format!("http://{nobody}"))))
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(get(&server, &format!("/symbols/app.pdb/{ID}/app.sym")).1, symbols("app"));
}
