//! A registry in which anybody may add referrers: junk beside a good seal changes nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use symseal_bundle::{Bundle, Digest, FileRole, LayoutDir};

use crate::program::{self, RunningServer, peer, symseal};
use crate::scene::{Scene, failed, run};

const SEAL: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A repository of a server of ours, as any client with the right to push sees it.
struct Repository<'s> {
    server: &'s RunningServer,
    name: &'static str,
}

impl Repository<'_> {
    /// The status of one request.
    fn send(&self, method: &str, path: &str, media_type: &str, body: &[u8]) -> u16 {
        let mut stream = TcpStream::connect(&self.server.address).unwrap();
        let head = format!(
            "{method} /v2/{}/{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
            self.name,
            self.server.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses early may not read all of it.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        text.split(' ').nth(1).unwrap_or_else(|| panic!("{method} {path}: {text}")).parse().unwrap()
    }

    /// Stores a blob; its descriptor.
    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        let status = self.send("POST", &format!("blobs/uploads/?digest={digest}"), "application/octet-stream", bytes);
        assert_eq!(status, 201);
        json!({ "mediaType": media_type, "digest": digest.to_string(), "size": bytes.len() })
    }

    fn put(&self, media_type: &str, manifest: &[u8]) -> u16 {
        self.send("PUT", &format!("manifests/{}", Digest::of(manifest)), media_type, manifest)
    }
}

#[test]
fn junk_referrers_beside_a_good_seal_change_nothing() {
    let Some(scene) = Scene::new() else { return };
    scene.build("other", &["inputs/app"], "2.0", &[]);
    scene.seal("other");
    let open = |name: &str| Bundle::open(LayoutDir::open(scene.path(name)).unwrap(), None).unwrap();
    let theirs = open("other").read_seals().unwrap().remove(0);
    let bundle = open("bundle");
    let subject_size = std::fs::metadata(bundle.layout().unwrap().blob_path(&bundle.digest().unwrap())).unwrap().len();
    let subject = json!({ "mediaType": INDEX, "digest": bundle.digest().unwrap().to_string(), "size": subject_size });

    let server = RunningServer::start(&scene.path("data"));
    let reference = format!("{}/team/app:1.0", server.address);
    symseal(["bundle", "push", &scene.at("bundle"), &reference]).ok();
    let repository = Repository { server: &server, name: "team/app" };
    let config = repository.blob("application/vnd.oci.empty.v1+json", b"{}");
    let manifest = |artifact_type: &str, layers: &[&Value], note: &str| {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": artifact_type, "config": config,
            "layers": layers, "subject": subject, "annotations": { "note": note },
        });
        manifest.to_string().into_bytes()
    };
    let garbage = repository.blob(SEAL, b"{\"mediaType\": garbage");
    let text = repository.blob("text/plain", b"no seal at all");
    let other_seal = repository.blob(SEAL, &theirs);

    let accept = |manifest: &[u8]| assert_eq!(repository.put(MANIFEST, manifest), 201);
    accept(&manifest(SEAL, &[&text], "a layer of another media type"));
    accept(&manifest("text/plain", &[&other_seal], "an artifact type of something else"));
    accept(&manifest(SEAL, &[&garbage], "garbage as a seal"));
    accept(&manifest(SEAL, &[&other_seal], "another bundle's seal"));
    accept(&manifest(SEAL, &[], "no layer"));
    accept(&manifest(&"x/".repeat(127), &[&garbage], "an artifact type as long as is taken"));
    assert_eq!(repository.put(MANIFEST, &manifest(&"x/".repeat(5000), &[&garbage], "one without an end")), 400);
    let room = (4 << 20) - manifest(SEAL, &[&garbage], "").len();
    let largest = manifest(SEAL, &[&garbage], &"x".repeat(room));
    assert_eq!(largest.len(), 4 << 20);
    accept(&largest);
    let index =
        json!({ "schemaVersion": 2, "mediaType": INDEX, "artifactType": SEAL, "manifests": [], "subject": subject });
    assert_eq!(repository.put(INDEX, index.to_string().as_bytes()), 201);
    for number in 0..300 {
        accept(&manifest(SEAL, &[&garbage], &number.to_string()));
    }
    // What is no manifest at all gets in nowhere.
    assert_eq!(repository.put(MANIFEST, b"{\"schemaVersion\": 2, garbage"), 400);
    assert!(repository.put(MANIFEST, &manifest(SEAL, &[&garbage], &"x".repeat(room + 1))) >= 400);

    let trust = scene.at("trust");
    // What another client brings along as it is: a layout with all of it.
    if let Some(oras) = peer("oras") {
        let disk = scene.at("disk");
        run(std::process::Command::new(oras).args([
            "cp",
            "-r",
            "--from-plain-http",
            &reference,
            "--to-oci-layout",
            &format!("{disk}:1.0"),
        ]));
        scene.verifies(&disk);
    }

    // One that lists a large blob a thousand times, and one of a thousand names: what is read has a bound.
    let large = repository.blob(SEAL, &vec![b' '; 600 << 10]);
    accept(&manifest(SEAL, &vec![&large; 1000], "a seal too large, many times"));
    accept(&manifest(SEAL, &vec![&garbage; 1000], "garbage, many times"));

    // A layer that a registry need not have, and does not.
    let absent = json!({
        "mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "digest": Digest::of(b"never stored").to_string(), "size": 12,
    });
    accept(&manifest(SEAL, &[&absent], "a blob that was never there"));

    let store = scene.at("store");
    let verify = ["bundle", "verify", &reference, "--trust", &trust, "--store", &store];
    let ran = symseal(verify).ok();
    assert!(ran.stdout.contains("VERIFIED"), "{ran:?}");
    assert!(ran.stderr.contains("was left out"), "{ran:?}");
    let lines = ran.stderr.lines().filter(|line| line.contains("left out")).count();
    assert!(lines <= 5, "{lines} lines:\n{}", ran.stderr);
    let store = scene.at("another-store");
    let trace_verify = ["--bundle", &reference, "--dsse", "--rekor", "--trust", &trust, "--store", &store];
    let ran = program::run("trace-verify", trace_verify).ok();
    assert!(ran.stdout.contains("VERIFIED"), "{ran:?}");
    symseal(["bundle", "pull", &reference, "--output", &scene.at("pulled")]).ok();
    scene.verifies(&scene.at("pulled"));
    // Without bringing the bundle home.
    let id = bundle.index().linux.keys().next().unwrap().clone();
    let module = bundle.index().linux[&id].file(FileRole::ModuleIndex).unwrap();
    let functions: Value = serde_json::from_slice(&bundle.read(module).unwrap()).unwrap();
    let address = functions["functions"][0]["address"].as_str().unwrap();
    symseal(["symbolize", "--remote", &reference, "--trust", &trust, "--debug-id", &id, "--json", address]).ok();
    // And on into a kit.
    let (pulled, key, kit) = (scene.at("pulled"), scene.at("keys/artifact.key.pem"), scene.at("kit.tar"));
    symseal(["bundle", "kit", "export", &pulled, "--key", &key, "--output", &kit, "--no-verifier"]).ok();
    let into = scene.at("from-kit");
    symseal(["bundle", "kit", "import", &kit, "--output", &into, "--trust", &trust]).ok();

    // A key that was revoked: that is what is told, whatever was put beside its seal.
    let key_id = symseal(["trust", "show", "--trust", &trust, "--json"]).ok().json()["keys"][0]["key_id"].clone();
    let revoke = ["revoke", "--key-id", key_id.as_str().unwrap(), "--reason", "stolen"];
    let before = scene.at("trust-before");
    run(std::process::Command::new("cp").args(["-r", &trust, &before]));
    scene.change_trust(&revoke).ok();
    let store = scene.at("store-after-theft");
    let ran = symseal(["bundle", "verify", &reference, "--trust", &trust, "--store", &store, "--json"]);
    assert_eq!((ran.status, failed(&ran.json())), (1, vec!["trust.revocation"]), "{ran:?}");
    std::fs::remove_dir_all(&trust).unwrap();
    std::fs::rename(&before, &trust).unwrap();

    // Junk alone is no seal, and the explanation names what is broken.
    let unsealed = RunningServer::start(&scene.path("unsealed-data"));
    scene.build("bare", &["inputs/app"], "3.0", &[]);
    let bare = format!("{}/team/app:3.0", unsealed.address);
    symseal(["bundle", "push", &scene.at("bare"), &bare]).ok();
    let repository = Repository { server: &unsealed, name: "team/app" };
    let config = repository.blob("application/vnd.oci.empty.v1+json", b"{}");
    let seal = repository.blob(SEAL, &theirs);
    let digest = open("bare").digest().unwrap().to_string();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SEAL, "config": config, "layers": [seal],
        "subject": { "mediaType": INDEX, "digest": digest, "size": 1 },
    });
    assert_eq!(repository.put(MANIFEST, manifest.to_string().as_bytes()), 201);
    let ran = symseal(["bundle", "verify", &bare, "--trust", &trust, "--store", &scene.at("third-store")]);
    assert!(ran.status == 1 && ran.stdout.contains("REFUSED"), "{ran:?}");
    let junk = scene.at("junk.json");
    std::fs::write(&junk, "junk").unwrap();
    let explain = ["bundle", "verify", &scene.at("bare"), "--trust", &trust, "--signature", &junk, "--explain"];
    let ran = symseal(explain);
    assert!(ran.status == 1 && ran.stdout.contains("BROKEN by seal.structure"), "{ran:?}");
    // Without any seal no question is left out.
    let (exit, report) = scene.report("bare", &[]);
    assert_eq!((exit, failed(&report)), (1, vec!["seal.present"]), "{report:#}");
    for check in ["table.rederived", "dsse.signature", "log.inclusion", "trust.threshold"] {
        assert!(report["not_checked"].as_array().unwrap().iter().any(|open| open["id"] == check), "{check}");
    }
}
