//! Encrypted connections, with a certificate that is renewed while the server runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::curl::curl;
use crate::program::{self, RunningServer, symseal};

/// Makes a certificate for 127.0.0.1 that signs itself; `None` where there is no openssl.
fn certificate(folder: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    let openssl = program::tool("openssl")?;
    let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let fixed =
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -addext subjectAltName=IP:127.0.0.1";
    let mut command = Command::new(openssl);
    command
        .args(fixed.split(' '))
        .args(["-subj", &format!("/CN={name}"), "-out"])
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((certificate, key))
}

#[test]
fn connections_are_encrypted_and_a_renewed_certificate_is_used() {
    let root = tempfile::tempdir().unwrap();
    let Some((first, first_key)) = certificate(root.path(), "first") else { return };
    let Some((second, second_key)) = certificate(root.path(), "second") else { return };
    let (chain, key) = (root.path().join("chain.pem"), root.path().join("key.pem"));
    let install = |certificate: &Path, its_key: &Path| {
        std::fs::copy(its_key, &key).unwrap();
        std::fs::copy(certificate, &chain).unwrap();
    };
    install(&first, &first_key);
    let options =
        ["--tls-certificate", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap(), "--access", "tokens"];
    let server = RunningServer::start_with(&root.path().join("data"), &options);
    let url = format!("https://{}/v2/", server.address);
    let trusting = |certificate: &Path| curl(["--cacert", certificate.to_str().unwrap(), &url]);
    let Some(answer) = trusting(&first) else { return };
    assert_eq!(answer.status, 401);
    let challenge = answer.header("www-authenticate").join("");
    assert!(challenge.contains(&format!("realm=\"https://{}/api/v1/token\"", server.address)), "{challenge}");
    assert_eq!(trusting(&second).unwrap().status, 0, "not this one's");
    assert_eq!(curl([url.replace("https", "http").as_str()]).unwrap().status, 0, "plain text is not answered");
    install(&second, &second_key);
    let deadline = Instant::now() + Duration::from_secs(60);
    while trusting(&second).unwrap().status != 401 {
        assert!(Instant::now() < deadline, "the renewed certificate is not used");
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// What is encrypted is read by the process itself: out of a map, a disk that fails would end it.
#[test]
#[cfg(target_os = "linux")]
fn a_server_that_encrypts_answers_out_of_no_map() {
    let root = tempfile::tempdir().unwrap();
    let Some((chain, key)) = certificate(root.path(), "server") else { return };
    let bytes = root.path().join("bytes");
    std::fs::write(&bytes, [7; 1 << 20]).unwrap();
    let (digest, body) = (symseal_bundle::Digest::of(&[7; 1 << 20]), format!("@{}", bytes.display()));
    for is_encrypted in [false, true] {
        let data = root.path().join(format!("data-{is_encrypted}"));
        let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
        let options = ["--tls-certificate", chain, "--tls-key", key];
        let server = RunningServer::start_with(&data, if is_encrypted { &options } else { &[] });
        let scheme = if is_encrypted { "https" } else { "http" };
        let at = |path: &str| format!("{scheme}://{}/v2/app/blobs/{path}", server.address);
        let push = at(&format!("uploads/?digest={digest}"));
        let sent = curl(["--cacert", chain, "--request", "POST", "--data-binary", &body, &push]);
        let Some(sent) = sent else { return };
        assert_eq!(sent.status, 201, "{sent:?}");
        let answer = curl(["--cacert", chain, &at(&digest.to_string())]).unwrap();
        assert!(answer.status == 200 && answer.body.len() == 1 << 20);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.id())).unwrap();
        assert_eq!(maps.contains("/blobs/sha256/"), !is_encrypted, "{maps}");
    }
}

#[test]
fn a_certificate_and_a_key_that_do_not_belong_together_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let Some((first, first_key)) = certificate(root.path(), "first") else { return };
    let Some((second, _)) = certificate(root.path(), "second") else { return };
    let data = root.path().join("data");
    let serve = |certificate: &Path, key: &Path| {
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
        let tls = ["--tls-certificate", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        symseal(fixed.into_iter().chain(tls))
    };
    serve(&second, &first_key).refused(2, &["first.key", "second.pem"]);
    serve(&first_key, &first_key).refused(2, &["first.key", "certificate"]);
    serve(&first, &root.path().join("none")).refused(2, &["none"]);
}
