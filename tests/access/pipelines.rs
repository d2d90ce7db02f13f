//! A server that takes the identity tokens of a CI system, and asks nobody else anything.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::curl::curl;
use crate::program::RunningServer;

/// Tells who it is, and then that it has no keys, to two who ask.
fn issuer(listener: TcpListener, name: String) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for body in [format!(r#"{{"issuer":"{name}","jwks_uri":"{name}/keys"}}"#), r#"{"keys":[]}"#.to_owned()] {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
                .unwrap();
        }
    })
}

#[test]
fn the_keys_of_an_issuer_are_asked_for_by_a_server_with_no_other_to_ask() {
    let root = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("http://{}", listener.local_addr().unwrap());
    let asked = issuer(listener, name.clone());
    let file = root.path().join("server.toml");
    let rules = "[[access.oidc.rules]]\nclaims = { sub = 'ci' }\ngrants = ['write:acme']\n";
    let text = format!("[access]\nmode = 'tokens'\n[[access.oidc]]\nissuer = '{name}'\naudience = 'symbols'\n{rules}");
    std::fs::write(&file, text).unwrap();
    let server = RunningServer::start_with(&root.path().join("data"), &["--config", file.to_str().unwrap()]);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"iss":"{name}","aud":"symbols","sub":"ci","exp":4102444800}}"#);
    let token = format!("{}.{}.{}", part(r#"{"alg":"RS256","kid":"1"}"#), part(&claims), part("unsigned"));
    let url = format!("http://{}/v2/acme/app/blobs/uploads/", server.address);
    let authorization = format!("Authorization: Bearer {token}");
    let Some(answer) = curl(["-X", "POST", "--header", &authorization, &url]) else { return };
    assert_eq!(answer.status, 401, "{answer:?}");
    asked.join().unwrap();
}
