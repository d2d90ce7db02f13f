//! Bundles with certificates: authorities of @sigstore/mock, our tile log and a Rekor v1 made here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use symseal_seal::encoding::{sha256, to_base64, to_hex};
use symseal_seal::pae;

use crate::bundles::{all_agree, entry};
use crate::peers::{Asked, Signer, node, run};
use crate::rekor_v1::{self, RekorV1};
use crate::support::World;

pub const V01: &str = "application/vnd.dev.sigstore.bundle+json;version=0.1";
pub const V02: &str = "application/vnd.dev.sigstore.bundle+json;version=0.2";
pub const V03: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const TYPE: &str = "application/vnd.in-toto+json";

/// What the mock signed, with somewhere to log it.
pub struct Minted {
    world: World,
    pub v1: RekorV1,
    pub minted: Value,
    artifact: Vec<u8>,
    payload: Vec<u8>,
    root: Value,
}

impl Minted {
    fn new() -> Option<Self> {
        Self::of(&[])
    }

    fn of(keys: &[&str]) -> Option<Self> {
        let artifact = b"an artifact\n".to_vec();
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "artifact", "digest": {"sha256": to_hex(&sha256(&artifact))}}],
            "predicateType": "https://example.org/built/v1", "predicate": {},
        });
        let payload = statement.to_string().into_bytes();
        let input = json!({"artifact": to_base64(&artifact), "statement": to_base64(&payload), "keys": keys});
        let minted: Value =
            serde_json::from_slice(&run(node("sigstore_mint.cjs")?, input.to_string().as_bytes())).unwrap();
        let (world, v1) = (World::new(3), RekorV1::new());
        let mut root = minted["trusted_root"].clone();
        let ours: Value = serde_json::from_slice(&world.trust_files[2]).unwrap();
        let mut ours = ours["tlogs"][0].clone();
        ours["publicKey"]["validFor"] = json!({"start": "2020-01-01T00:00:00Z"});
        root["tlogs"] = json!([ours, v1.trusted(json!({"start": "2020-01-01T00:00:00Z"}))]);
        Some(Self { world, v1, minted, artifact, payload, root })
    }

    /// The same with what a key of another kind signed; of those that `sigstore_mint.cjs` makes.
    pub fn with(kind: &str) -> Option<Self> {
        let mut minted = Self::of(&[kind])?;
        for what in ["message", "envelope"] {
            minted.minted[what] = minted.minted["keys"][kind][what].take();
        }
        Some(minted)
    }

    pub fn part(&self, what: &str, name: &str) -> Vec<u8> {
        STANDARD.decode(self.minted[what][name].as_str().unwrap()).unwrap()
    }

    pub fn pem(&self, what: &str) -> String {
        let text = self.minted[what]["certificate"].as_str().unwrap();
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    pub fn digest(&self, what: &str) -> [u8; 32] {
        if what == "message" { sha256(&self.artifact) } else { sha256(&pae(TYPE, &self.payload)) }
    }

    /// Logs the signature in the tile log.
    fn in_v2(&mut self, what: &str) -> Value {
        let body = json!({
            "apiVersion": "0.0.2",
            "kind": "hashedrekord",
            "spec": {"hashedRekordV002": {
                "data": {"algorithm": "SHA2_256", "digest": to_base64(&self.digest(what))},
                "signature": {
                    "content": self.minted[what]["signature"],
                    "verifier": {
                        "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                        "x509Certificate": {"rawBytes": self.minted[what]["certificate"]},
                    },
                },
            }},
        });
        let body = body.to_string().into_bytes();
        let appended = self.world.log.append(&body).unwrap();
        entry(&self.world.log.id().to_string(), &body, &appended)
    }

    /// Logs it in the Rekor v1.
    pub fn in_v1(&self, what: &str, time: i64) -> Value {
        let signature = self.part(what, "signature");
        let (kind, body) = if what == "message" {
            ("hashedrekord", rekor_v1::hashedrekord(&self.digest(what), &signature, &self.pem(what)))
        } else {
            ("dsse", rekor_v1::dsse(&self.payload, &signature, &self.pem(what)))
        };
        self.v1.entry(kind, "0.0.1", &body, time)
    }

    /// When the mock's timestamp authority says that it was.
    pub fn now(&self) -> i64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().cast_signed()
    }

    pub fn bundle(&self, what: &str, media_type: &str, entry: Value, stamped: bool) -> Asked {
        let certificate = json!({"rawBytes": self.minted[what]["certificate"]});
        let mut material = match media_type {
            V03 => json!({"certificate": certificate}),
            _ => json!({"x509CertificateChain": {"certificates": [certificate]}}),
        };
        material["tlogEntries"] = json!([entry]);
        if stamped {
            let stamps = json!([{"signedTimestamp": self.minted[what]["timestamp"]}]);
            material["timestampVerificationData"] = json!({"rfc3161Timestamps": stamps});
        }
        let signature = &self.minted[what]["signature"];
        let mut bundle = json!({"mediaType": media_type, "verificationMaterial": material});
        if what == "message" {
            let digest = match self.minted[what]["hash"].as_str() {
                Some("sha384") => json!({"algorithm": "SHA2_384", "digest": self.minted[what]["digest"]}),
                _ => json!({"algorithm": "SHA2_256", "digest": to_base64(&sha256(&self.artifact))}),
            };
            bundle["messageSignature"] = json!({"messageDigest": digest, "signature": signature});
        } else {
            let signatures = json!([{"sig": signature}]);
            bundle["dsseEnvelope"] =
                json!({"payload": to_base64(&self.payload), "payloadType": TYPE, "signatures": signatures});
        }
        Asked {
            bundle: bundle.to_string(),
            trusted_root: self.root.to_string(),
            signer: Signer::Certificate {
                identity: self.minted["identity"].as_str().unwrap().into(),
                issuer: self.minted["issuer"].as_str().unwrap().into(),
            },
            artifact: Some(self.artifact.clone()),
            sha256: sha256(&self.artifact),
        }
    }
}

pub fn changed(asked: &Asked, change: impl FnOnce(&mut Value)) -> Asked {
    let mut bundle: Value = serde_json::from_str(&asked.bundle).unwrap();
    change(&mut bundle);
    Asked { bundle: bundle.to_string(), ..asked.clone() }
}

fn with_root(asked: &Asked, change: impl FnOnce(&mut Value)) -> Asked {
    let mut root: Value = serde_json::from_str(&asked.trusted_root).unwrap();
    change(&mut root);
    Asked { trusted_root: root.to_string(), ..asked.clone() }
}

#[test]
fn bundles_with_certificates_are_judged_as_everybody_judges_them() {
    let Some(mut minted) = Minted::new() else { return };
    let now = minted.now();
    let mut questions = Vec::new();
    for what in ["message", "envelope"] {
        let v2 = minted.in_v2(what);
        questions.push(("v0.3, Rekor v2, timestamp", minted.bundle(what, V03, v2, true), None));
        for media_type in [V01, V02, V03] {
            let v1 = minted.in_v1(what, now);
            questions.push(("Rekor v1", minted.bundle(what, media_type, v1.clone(), false), None));
            questions.push(("Rekor v1 and timestamp", minted.bundle(what, media_type, v1, true), None));
        }
    }
    let logged = minted.in_v2("message");
    let v2 = minted.bundle("message", V03, logged.clone(), true);
    let v1 = minted.bundle("message", V03, minted.in_v1("message", now), false);
    let refused = [
        ("no time", minted.bundle("message", V03, logged.clone(), false), "signed-time"),
        (
            "another artifact",
            Asked { artifact: Some(b"b".to_vec()), sha256: sha256(b"b"), ..v2.clone() },
            "artifact.digest",
        ),
        (
            "another identity",
            Asked {
                signer: Signer::Certificate {
                    identity: "dev@example.com".into(),
                    issuer: "https://issuer.example.org".into(),
                },
                ..v2.clone()
            },
            "certificate.identity",
        ),
        (
            "another issuer",
            Asked {
                signer: Signer::Certificate {
                    identity: "dev@example.org".into(),
                    issuer: "https://issuer.example.com".into(),
                },
                ..v2.clone()
            },
            "certificate.issuer",
        ),
        (
            "another message's timestamp",
            changed(&v2, |bundle| {
                let stamp = &minted.minted["envelope"]["timestamp"];
                bundle["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"][0]["signedTimestamp"] =
                    stamp.clone();
            }),
            "timestamp",
        ),
        (
            "another certificate",
            changed(&v2, |bundle| {
                bundle["verificationMaterial"]["certificate"]["rawBytes"] =
                    minted.minted["envelope"]["certificate"].clone();
            }),
            "signature",
        ),
        (
            "another signature",
            changed(&v2, |bundle| {
                bundle["messageSignature"]["signature"] = minted.minted["envelope"]["signature"].clone()
            }),
            "timestamp",
        ),
        (
            "after the certificate",
            minted.bundle("message", V03, minted.in_v1("message", now - 7200), false),
            "certificate.time",
        ),
        (
            "an unsigned time",
            changed(&v1, |bundle| {
                bundle["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = (now - 1).to_string().into()
            }),
            "log.promise",
        ),
        (
            "a log that is not trusted",
            with_root(&v2, |root| drop(root["tlogs"].as_array_mut().unwrap().remove(0))),
            "log.id",
        ),
        (
            "another certificate log",
            with_root(&v2, |root| {
                let stranger = minted.world.artifact.spki();
                root["ctlogs"][0]["publicKey"]["rawBytes"] = to_base64(stranger).into();
                root["ctlogs"][0]["logId"]["keyId"] = to_base64(&sha256(stranger)).into();
            }),
            "certificate.sct",
        ),
        (
            "an authority before its time",
            with_root(&v2, |root| {
                root["certificateAuthorities"][0]["validFor"] =
                    json!({"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"});
            }),
            "certificate.time",
        ),
        (
            "a timestamp authority that ended",
            with_root(&v2, |root| {
                root["timestampAuthorities"][0]["validFor"] =
                    json!({"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"});
            }),
            "timestamp",
        ),
        (
            "a Rekor v1's key that ended",
            with_root(&v1, |root| {
                root["tlogs"][1]["publicKey"]["validFor"] =
                    json!({"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"});
            }),
            "log.promise",
        ),
        (
            "no inclusion proof",
            changed(&v2, |bundle| {
                bundle["verificationMaterial"]["tlogEntries"][0].as_object_mut().unwrap().remove("inclusionProof");
            }),
            "bundle.form",
        ),
        (
            "a key where a certificate is asked for",
            changed(&v2, |bundle| {
                let material = bundle["verificationMaterial"].as_object_mut().unwrap();
                material.remove("certificate");
                material.insert("publicKey".into(), json!({"hint": "x"}));
            }),
            "signer.kind",
        ),
    ];
    questions.extend(refused.into_iter().map(|(name, asked, check)| (name, asked, Some(check))));
    // It does not look at the times for which a root trusts an authority or a log.
    let lenient = [("PyPI sigstore", "an authority before its time"), ("PyPI sigstore", "a Rekor v1's key that ended")];
    all_agree(&questions, |_| true, &lenient);
}

/// What the specifications ask for and at least one of the others lets pass.
#[test]
fn what_the_specifications_ask_is_asked_where_others_are_lenient() {
    let Some(mut minted) = Minted::new() else { return };
    let logged = minted.in_v2("message");
    let good = minted.bundle("message", V03, logged, true);
    let envelope = "/verificationMaterial/tlogEntries/0/inclusionProof/checkpoint/envelope";
    let signed = |text: &str| {
        let identity = minted.world.log.identity();
        let signature = minted.world.log_key.sign(text.as_bytes());
        let line = symseal_seal::note::NoteSignature {
            name: identity.origin.to_string(),
            hint: identity.id().hint(),
            signature,
        };
        symseal_seal::note::SignedNote { text: text.to_owned(), signatures: vec![line] }.to_text()
    };
    let note = |text: String| changed(&good, |bundle| *bundle.pointer_mut(envelope).unwrap() = signed(&text).into());
    let (origin, size) = (minted.world.log.identity().origin.to_string(), minted.world.log.size());
    let root = to_base64(&minted.world.log.root());
    let ended = json!({"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"});
    let twice = good.bundle.replacen("\"kindVersion\"", "\"logIndex\":\"7\",\"kindVersion\"", 1);
    for (name, asked, check) in [
        ("as it is", note(format!("{origin}\n{size}\n{root}\n")), None),
        ("another origin", note(format!("other.example.org\n{size}\n{root}\n")), Some("log.checkpoint")),
        ("a size with a sign", note(format!("{origin}\n+{size}\n{root}\n")), Some("log.checkpoint")),
        ("a size with a zero", note(format!("{origin}\n0{size}\n{root}\n")), Some("log.checkpoint")),
        ("blanks", note(format!("{origin}\n{size} \n{root}\n")), Some("log.checkpoint")),
        (
            "an unknown log id",
            changed(&good, |bundle| {
                bundle["verificationMaterial"]["tlogEntries"][0]["logId"]["keyId"] = to_base64(&[0; 32]).into();
            }),
            Some("log.id"),
        ),
        (
            "a log's key that ended before",
            with_root(&good, |root| root["tlogs"][0]["publicKey"]["validFor"] = ended),
            Some("log.key-validity"),
        ),
        ("a key twice", Asked { bundle: twice, ..good.clone() }, Some("bundle.form")),
    ] {
        assert_eq!(crate::bundles::verdict(&asked, false).as_deref(), check, "{name}");
    }
}
