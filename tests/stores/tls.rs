//! A database and an object store that are reached by TLS, with certificates of an authority of one's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::objects::{ObjectServer, free_port};
use crate::postgres::{PASSWORD, Postgres};
use crate::program::{self, Ran, command};
use crate::scene::{get, id, publish, server};

/// An authority in a folder, and what it signs.
struct Authority {
    openssl: PathBuf,
    folder: PathBuf,
    name: &'static str,
}

impl Authority {
    /// `None`, with a word about it, where there is no openssl.
    fn new(folder: &Path, name: &'static str) -> Option<Self> {
        let this = Self { openssl: program::tool("openssl")?, folder: folder.to_owned(), name };
        let (certificate, key) = (this.certificate(), this.at("key"));
        let fixed = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
        this.run(fixed, &["-subj", &format!("/CN={name}"), "-out", &certificate, "-keyout", &key]);
        Some(this)
    }

    /// The file of its own certificate.
    fn certificate(&self) -> String {
        self.at("pem")
    }

    /// A certificate and its key for a server at a name.
    fn signs(&self, name: &str) -> (PathBuf, PathBuf) {
        let (key, request, certificate, names) =
            (self.at("of.key"), self.at("of.csr"), self.at("of.pem"), self.at("names"));
        std::fs::write(&names, format!("subjectAltName={name}\n")).unwrap();
        let fixed = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server";
        self.run(fixed, &["-out", &request, "-keyout", &key]);
        let (own, own_key) = (self.certificate(), self.at("key"));
        let by = ["-in", &request, "-CA", &own, "-CAkey", &own_key, "-extfile", &names, "-out", &certificate];
        self.run("x509 -req -days 2 -CAcreateserial", &by);
        (certificate.into(), key.into())
    }

    fn at(&self, suffix: &str) -> String {
        self.folder.join(format!("{}.{suffix}", self.name)).display().to_string()
    }

    fn run(&self, fixed: &str, more: &[&str]) {
        let output = Command::new(&self.openssl).args(fixed.split(' ')).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A server that does not start.
fn ends(data: &Path, more: &[&str], environment: &[(&str, String)]) -> Ran {
    let mut serve = command("symseal");
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(more);
    serve.envs(environment.iter().map(|(name, value)| (name, value)));
    serve.output().unwrap().into()
}

#[test]
fn a_database_is_reached_by_tls_when_the_authority_named_vouches_for_its_name() {
    let root = tempfile::tempdir().unwrap();
    let (Some(ours), Some(others)) = (Authority::new(root.path(), "ours"), Authority::new(root.path(), "others"))
    else {
        return;
    };
    let (Some(mut postgres), Some(_)) = (Postgres::start(), program::tool("curl")) else { return };
    let database = postgres.create_database();
    let (certificate, key) = ours.signs("DNS:localhost");
    postgres.listen_by_tls(free_port(), &certificate, &key);
    let url = |host: &str, mode: &str, authority: &Authority| {
        postgres.url_by_tls(host, &database, &format!("sslmode={mode}&sslrootcert={}", authority.certificate()))
    };
    let data = |name: &str| root.path().join(name);

    let sound = url("localhost", "verify-full", &ours);
    let running = server(&data("sound"), &["--database", &sound], &[]);
    publish(root.path(), &running.address, "team/app", 1);
    assert_eq!(get(&running.address, "/readyz").status, 200);
    assert_eq!(get(&running.address, &format!("/buildid/{}/debuginfo", id(1))).status, 200);
    drop(running);

    let refused = |url: &str, parts: &[&str]| {
        let ran = ends(&data("refused"), &["--database", url], &[]).refused(2, parts);
        assert!(!ran.stderr.contains(PASSWORD), "{}", ran.stderr);
    };
    let what_to_do = ["certificate", "sslmode=verify-full&sslrootcert=FILE"];
    refused(&url("localhost", "verify-full", &others), &what_to_do);
    refused(&url("127.0.0.1", "verify-full", &ours), &what_to_do);
    refused(&postgres.url_by_tls("localhost", &database, "sslmode=verify-full"), &what_to_do);
    // The authority alone, whatever the server is called; and no plain text, which it does not take.
    drop(server(&data("sound"), &["--database", &url("127.0.0.1", "verify-ca", &ours)], &[]));
    refused(&postgres.url_by_tls("localhost", &database, "sslmode=disable"), &["pg_hba.conf"]);
}

#[test]
fn an_object_store_is_reached_by_tls_when_the_authority_named_vouches_for_it() {
    let root = tempfile::tempdir().unwrap();
    let (Some(ours), Some(others)) = (Authority::new(root.path(), "ours"), Authority::new(root.path(), "others"))
    else {
        return;
    };
    let tls = Some(ours.signs("IP:127.0.0.1"));
    let (Some(objects), Some(_)) = (ObjectServer::start_with(tls), program::tool("curl")) else { return };
    let mut environment = objects.environment();
    environment.retain(|(name, _)| *name != "AWS_ENDPOINT_URL");
    let endpoint = format!("https://127.0.0.1:{}", objects.port);
    let configured = |name: &str, ca: Option<&str>| {
        let (file, blobs) = (root.path().join(format!("{name}.toml")), objects.url());
        let ca = ca.map_or_else(String::new, |ca| format!("ca = {ca:?}\n"));
        std::fs::write(&file, format!("blobs = {blobs:?}\n[s3]\nendpoint = {endpoint:?}\n{ca}")).unwrap();
        file.display().to_string()
    };
    let (sound, wrong) = (ours.certificate(), others.certificate());
    let running = server(&root.path().join("first"), &["--config", &configured("sound", Some(&sound))], &environment);
    let digest = publish(root.path(), &running.address, "team/app", 1);
    assert!(objects.blob(&digest).exists());
    drop(running);
    // The environment's name for it.
    let mut with_bundle = environment.clone();
    with_bundle.push(("AWS_CA_BUNDLE", sound.clone()));
    let running = server(&root.path().join("second"), &["--config", &configured("plain", None)], &with_bundle);
    assert_eq!(get(&running.address, &format!("/buildid/{}/debuginfo", id(1))).status, 200);
    drop(running);

    for file in [configured("wrong", Some(&wrong)), configured("none", None)] {
        let ran = ends(&root.path().join("refused"), &["--config", &file], &environment);
        ran.refused(2, &[&endpoint, "certificate", "s3.ca"]);
    }
    let no_pem = root.path().join("no.pem");
    std::fs::write(&no_pem, "no certificate").unwrap();
    for (ca, problem) in [(no_pem.to_str().unwrap(), "no certificate is in it"), ("/nowhere/ca.pem", "/nowhere/ca.pem")]
    {
        let file = configured("unreadable", Some(ca));
        for more in [&["--config", file.as_str()][..], &["--config", file.as_str(), "--check-config"]] {
            ends(&root.path().join("refused"), more, &environment).refused(2, &["s3.ca", problem]);
        }
    }
}
