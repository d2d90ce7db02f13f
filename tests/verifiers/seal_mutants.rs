//! Mutants of a seal: statement, envelope, log entry, proof, checkpoint.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use symseal_seal::checks::id;
use symseal_seal::encoding::{sha256, to_base64};
use symseal_seal::entry::hashedrekord_v002;
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::{Expectation, IN_TOTO_PAYLOAD_TYPE, Origin, Seen, TileFragment, pae};
use symseal_sealer::{ArtifactKey, TileLog, seal};

use crate::bundles;
use crate::mutants::{Mutants, Question, flip, leaves, readable};
use crate::support::{World, statement};

const ENTRY: &str = "/verificationMaterial/tlogEntries/0";
const PROOF: &str = "/verificationMaterial/tlogEntries/0/inclusionProof";
const CHECKPOINT: &str = "/verificationMaterial/tlogEntries/0/inclusionProof/checkpoint/envelope";

/// A seal over any payload, signed by the world's key and logged in its log as a seal is.
pub fn seal_of(world: &mut World, payload: &[u8]) -> Vec<u8> {
    let message = pae(IN_TOTO_PAYLOAD_TYPE, payload);
    let signature = world.artifact.sign(&message);
    let body = hashedrekord_v002(&sha256(&message), &signature, world.artifact.spki());
    let appended = world.log.append(&body).unwrap();
    let entry = bundles::entry(&world.log.id().to_string(), &body, &appended);
    let bundle = json!({
        "mediaType": symseal_seal::SIGSTORE_BUNDLE_MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": world.artifact.key_id().to_string()}, "tlogEntries": [entry]},
        "dsseEnvelope": {
            "payload": to_base64(payload), "payloadType": IN_TOTO_PAYLOAD_TYPE,
            "signatures": [{"sig": to_base64(&signature)}],
        },
    });
    bundle.to_string().into_bytes()
}

/// Seals that only the world's key can make, each lying in one thing, and another product's good one.
pub struct Lies {
    signed: Vec<(&'static str, &'static str, Vec<u8>)>,
    other: Vec<u8>,
    stranger: Vec<u8>,
    stranger_key: ArtifactKey,
}

impl Lies {
    /// Made before the world's own seal is looked at, as they go into its log.
    pub fn make(world: &mut World) -> Self {
        let good: Value = serde_json::from_slice(&world.statement.to_json()).unwrap();
        let true_one = seal_of(world, good.to_string().as_bytes());
        assert_eq!(Question::of(world).failures(&[true_one]), [""; 0]);
        let mut signed = Vec::new();
        let mut lie = |name, check, change: &dyn Fn(&mut Value)| {
            let mut statement = good.clone();
            change(&mut statement);
            signed.push((name, check, seal_of(world, statement.to_string().as_bytes())));
        };
        lie("signed: another statement type", id::STATEMENT_TYPE, &|s| {
            s["_type"] = "https://in-toto.io/Statement/v0.1".into()
        });
        lie("signed: evidence as a bundle's seal", id::STATEMENT_PREDICATE, &|s| {
            s["predicateType"] = "https://symseal.dev/evidence/v1".into();
        });
        lie("signed: the bundle as the only subject", id::STATEMENT_SUBJECT_INDEX, &|s| {
            s["subject"].as_array_mut().unwrap().retain(|one| one["name"] != "symbol_index.json");
        });
        lie("signed: the index as the only subject", id::STATEMENT_SUBJECT_BUNDLE, &|s| {
            s["subject"].as_array_mut().unwrap().retain(|one| one["name"] == "symbol_index.json");
        });
        lie("signed: subjects with each other's digest", id::STATEMENT_SUBJECT_BUNDLE, &|s| {
            let subjects = s["subject"].as_array_mut().unwrap();
            let first = subjects[0]["digest"].clone();
            subjects[0]["digest"] = std::mem::replace(&mut subjects[1]["digest"], first);
        });
        lie("signed: another digest of the bundle", id::STATEMENT_SUBJECT_BUNDLE, &|s| {
            let subject =
                s["subject"].as_array_mut().unwrap().iter_mut().find(|one| one["name"] != "symbol_index.json");
            subject.unwrap()["digest"]["sha256"] = "99".repeat(32).into();
        });
        lie("signed: another version in the predicate than in the subject", id::STATEMENT_SUBJECT_BUNDLE, &|s| {
            let text = s["predicate"].to_string().replace("\"1.0\"", "\"2.0\"");
            s["predicate"] = serde_json::from_str(&text).unwrap();
        });
        lie("signed: another root of modules", id::STATEMENT_MODULES, &|s| {
            s["predicate"]["modules_root"] = "99".repeat(32).into();
        });
        lie("signed: another number of modules", id::STATEMENT_MODULES, &|s| {
            s["predicate"]["modules"]["count"] = 2.into();
        });
        lie("signed: another list of modules", id::STATEMENT_MODULES, &|s| {
            s["predicate"]["modules"]["sha256"] = "99".repeat(32).into();
        });
        lie("signed: no predicate", id::STATEMENT_TYPE, &|s| drop(s.as_object_mut().unwrap().remove("predicate")));
        let twice =
            good.to_string().replacen("\"_type\"", "\"_type\":\"https://in-toto.io/Statement/v1\",\"_type\"", 1);
        signed.push(("signed: a key twice", id::STATEMENT_TYPE, seal_of(world, twice.as_bytes())));
        let other = {
            let mut theirs = statement("tool-b", "1.0");
            // Their own files.
            for (subject, digest) in theirs.subject.iter_mut().zip(["b1", "b2"]) {
                subject.digest.sha256 = digest.repeat(32);
            }
            seal(&theirs, &world.artifact, &mut world.log).unwrap()
        };
        let stranger_key = ArtifactKey::generate().unwrap();
        let stranger = seal(&world.statement, &stranger_key, &mut world.log).unwrap();
        Self { signed, other, stranger, stranger_key }
    }
}

pub fn add(mutants: &mut Mutants<'_>, lies: &Lies, other: &World) {
    statements(mutants, lies);
    envelopes(mutants, lies);
    entries(mutants, lies);
    proofs(mutants, other);
    checkpoints(mutants, other);
}

fn statements(mutants: &mut Mutants<'_>, lies: &Lies) {
    let world = mutants.world;
    let payload: Value = serde_json::from_slice(&world.statement.to_json()).unwrap();
    for leaf in leaves(&payload) {
        let mut changed = payload.clone();
        flip(changed.pointer_mut(&leaf).unwrap());
        let text = to_base64(changed.to_string().as_bytes());
        mutants.json("statement", readable(&leaf), id::DSSE_SIGNATURE, |seal| {
            seal["dsseEnvelope"]["payload"] = text.into()
        });
    }
    for (name, check, seal) in &lies.signed {
        mutants.seal("statement", *name, check, seal);
    }
    // The same key, and everything in it is true: of another product.
    let question = Question::of(world);
    let subjects =
        symseal_seal::SubjectDigests { bundle: Some([0xB1; 32]), symbol_index: Some([0xB2; 32]), ..question.subjects };
    let on_other = Question { subjects, ..Question::of(world) };
    mutants.unchanged(
        "statement",
        "product B's valid seal on A",
        id::STATEMENT_NAME,
        question.failures(std::slice::from_ref(&lies.other)),
        &lies.other,
    );
    let found = on_other.failures(std::slice::from_ref(&world.seal));
    mutants.unchanged("statement", "a valid seal on other files", id::STATEMENT_SUBJECT_BUNDLE, found, &world.seal);
    if let Some(last) = mutants.all.last_mut().and_then(|mutant| mutant.asked.as_mut()) {
        last.sha256 = [0xB1; 32];
    }
    let expectation = Expectation { version: Some("2.0"), ..question.expectation };
    let found = Question { expectation, ..Question::of(world) }.failures(std::slice::from_ref(&world.seal));
    mutants.unchanged("statement", "release 1.0 under the name of 2.0", id::STATEMENT_VERSION, found, &world.seal);
}

fn envelopes(mutants: &mut Mutants<'_>, lies: &Lies) {
    let other: Value = serde_json::from_slice(&lies.other).unwrap();
    let theirs = |pointer: &str| other.pointer(pointer).unwrap().clone();
    let cut = |value: &Value| {
        let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
        Value::from(to_base64(&bytes[..bytes.len() - 1]))
    };
    let part = "envelope";
    mutants.json(part, "payload type", id::DSSE_PAYLOAD_TYPE, |seal| {
        seal["dsseEnvelope"]["payloadType"] = "text/plain".into()
    });
    mutants.json(part, "payload of another seal", id::DSSE_SIGNATURE, |seal| {
        seal["dsseEnvelope"]["payload"] = theirs("/dsseEnvelope/payload");
    });
    mutants.json(part, "payload cut short", id::DSSE_SIGNATURE, |seal| {
        seal["dsseEnvelope"]["payload"] = cut(&seal["dsseEnvelope"]["payload"]);
    });
    const SIG: &str = "/dsseEnvelope/signatures/0/sig";
    mutants.json(part, "signature: a bit", id::DSSE_SIGNATURE, |seal| {
        let sig = seal.pointer_mut(SIG).unwrap();
        let mut bytes = STANDARD.decode(sig.as_str().unwrap()).unwrap();
        bytes[20] ^= 1;
        *sig = to_base64(&bytes).into();
    });
    mutants.json(part, "signature of another seal", id::DSSE_SIGNATURE, |seal| {
        *seal.pointer_mut(SIG).unwrap() = theirs(SIG)
    });
    mutants.json(part, "signature cut short", id::DSSE_SIGNATURE, |seal| {
        let sig = seal.pointer_mut(SIG).unwrap();
        *sig = cut(sig);
    });
    mutants.json(part, "no signature", id::SEAL_STRUCTURE, |seal| seal["dsseEnvelope"]["signatures"] = json!([]));
    mutants.json(part, "two signatures", id::SEAL_STRUCTURE, |seal| {
        let signatures = seal["dsseEnvelope"]["signatures"].as_array_mut().unwrap();
        signatures.push(theirs("/dsseEnvelope/signatures/0"));
    });
    mutants.json(part, "key id unlike the hint", id::DSSE_KEYID, |seal| {
        seal["dsseEnvelope"]["signatures"][0]["keyid"] = to_base64(&[7; 32]).into();
    });
    mutants.json(part, "hint of another key", id::TRUST_KEY, |seal| {
        seal["verificationMaterial"]["publicKey"]["hint"] = lies.stranger_key.key_id().to_string().into();
    });
    mutants.json(part, "another media type", id::SEAL_STRUCTURE, |seal| {
        seal["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.9".into();
    });
    mutants.seal(part, "by a stranger's key, logged", id::TRUST_KEY, &lies.stranger);
    let text = mutants.world.seal_json().to_string();
    let twice = text.replacen("\"payloadType\":", "\"payloadType\":\"text/plain\",\"payloadType\":", 1);
    mutants.seal(part, "a key twice", id::SEAL_STRUCTURE, twice.as_bytes());
    mutants.seal(part, "cut in the middle", id::SEAL_STRUCTURE, &text.as_bytes()[..text.len() / 2]);
}

fn entries(mutants: &mut Mutants<'_>, lies: &Lies) {
    let other: Value = serde_json::from_slice(&lies.other).unwrap();
    let theirs = other.pointer(ENTRY).unwrap().clone();
    let part = "log entry";
    let mut set = |name: &str, check, field: &str, value: Value| {
        mutants.json(part, name, check, |seal| *seal.pointer_mut(&format!("{ENTRY}/{field}")).unwrap() = value);
    };
    set("log id: unknown", id::LOG_ID, "logId/keyId", to_base64(&[0; 32]).into());
    set("index: another", id::LOG_INCLUSION, "logIndex", "1".into());
    set("index: negative", id::SEAL_STRUCTURE, "logIndex", "-4".into());
    set("kind: another", id::SEAL_STRUCTURE, "kindVersion/kind", "dsse".into());
    set("version: another", id::SEAL_STRUCTURE, "kindVersion/version", "0.0.1".into());
    set("body of another entry", id::LOG_ENTRY, "canonicalizedBody", theirs["canonicalizedBody"].clone());
    set("body: empty", id::LOG_ENTRY, "canonicalizedBody", "".into());
    // As a Rekor v1 has them, with a time that this log never signed. Said to symseal alone: others have no log of one kind.
    let mut v1 = mutants.world.seal_json();
    let entry = v1.pointer_mut(ENTRY).unwrap();
    entry["kindVersion"] = json!({"kind": "dsse", "version": "0.0.1"});
    entry["integratedTime"] = "1795176000".into();
    entry["inclusionPromise"] = json!({"signedEntryTimestamp": to_base64(&[7; 70])});
    let found = Question::of(mutants.world).failures(&[v1.to_string().into_bytes()]);
    mutants.ours(part, "kind: that of another log's entries", id::LOG_KIND, found.clone());
    mutants.ours(part, "a timestamp that the log did not sign", id::LOG_TIMESTAMP, found);
    let body = STANDARD
        .decode(mutants.world.seal_json().pointer(&format!("{ENTRY}/canonicalizedBody")).unwrap().as_str().unwrap());
    let body: Value = serde_json::from_slice(&body.unwrap()).unwrap();
    for leaf in leaves(&body) {
        let mut changed = body.clone();
        flip(changed.pointer_mut(&leaf).unwrap());
        let text = to_base64(changed.to_string().as_bytes());
        let name = format!("body: {}", readable(&leaf));
        mutants.json(part, name, id::LOG_ENTRY, |seal| {
            *seal.pointer_mut(&format!("{ENTRY}/canonicalizedBody")).unwrap() = text.into()
        });
    }
    let entries = "/verificationMaterial/tlogEntries";
    mutants.json(part, "another seal's whole entry", id::LOG_ENTRY, |seal| {
        *seal.pointer_mut(ENTRY).unwrap() = theirs.clone()
    });
    mutants.json(part, "none", id::SEAL_STRUCTURE, |seal| *seal.pointer_mut(entries).unwrap() = json!([]));
    mutants.json(part, "the same one twice", id::SEAL_STRUCTURE, |seal| {
        let entries = seal.pointer_mut(entries).unwrap().as_array_mut().unwrap();
        entries.push(entries[0].clone());
    });
    mutants.json(part, "another seal's beside its own", id::SEAL_STRUCTURE, |seal| {
        seal.pointer_mut(entries).unwrap().as_array_mut().unwrap().push(theirs);
    });
}

fn proofs(mutants: &mut Mutants<'_>, other: &World) {
    let part = "proof";
    let theirs = other.seal_json().pointer(PROOF).unwrap().clone();
    let hashes = mutants.world.seal_json().pointer(&format!("{PROOF}/hashes")).unwrap().as_array().unwrap().clone();
    let mut with = |name: String, hashes: Vec<Value>| {
        mutants.json(part, name, id::LOG_INCLUSION, |seal| seal.pointer_mut(PROOF).unwrap()["hashes"] = hashes.into());
    };
    for n in 0..hashes.len() {
        let mut changed = hashes.clone();
        changed[n] = to_base64(&[n as u8; 32]).into();
        with(format!("hash {n}: another"), changed);
    }
    with("hashes: one less".into(), hashes[1..].to_vec());
    with("hashes: one more".into(), [&hashes[..], &hashes[..1]].concat());
    with("hashes: in reverse".into(), hashes.iter().rev().cloned().collect());
    with("hashes: none".into(), Vec::new());
    with("hashes: of another log's seal".into(), theirs["hashes"].as_array().unwrap().clone());
    for (field, value) in
        [("treeSize", "6"), ("logIndex", "3"), ("rootHash", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    {
        mutants.json(part, format!("{field}: another"), id::LOG_INCLUSION, |seal| {
            seal.pointer_mut(PROOF).unwrap()[field] = value.into()
        });
    }
    mutants.json(part, "of another log's seal", id::LOG_CHECKPOINT, |seal| *seal.pointer_mut(PROOF).unwrap() = theirs);
    mutants.json(part, "none", id::SEAL_STRUCTURE, |seal| {
        drop(seal.pointer_mut(ENTRY).unwrap().as_object_mut().unwrap().remove("inclusionProof"))
    });

    // Tiles instead of the audit path.
    let world = mutants.world;
    let index = symseal_seal::SigstoreBundle::parse(&world.seal).unwrap().entry.log_index;
    let fragment = world.log.fragment(index).unwrap();
    let judge = |fragment: &TileFragment| {
        let bytes = [fragment.to_json()];
        let question = Question::of(world);
        let expectation = Expectation { fragments: &bytes, ..question.expectation };
        Question { expectation, ..question }.failures(std::slice::from_ref(&world.seal))
    };
    assert_eq!(judge(&fragment), [""; 0]);
    let mut forged = fragment.clone();
    forged.tiles.values_mut().next().unwrap()[0] = [9; 32];
    let found = judge(&forged);
    mutants.ours("tiles", "a forged hash", id::LOG_INCLUSION, found);
    let mut short = fragment.clone();
    short.tiles.values_mut().next().unwrap().pop();
    let found = judge(&short);
    mutants.ours("tiles", "a tile cut short", id::LOG_INCLUSION, found);
    let mut less = fragment.clone();
    less.tiles.clear();
    let found = judge(&less);
    mutants.ours("tiles", "none", id::LOG_INCLUSION, found);
    let mut moved = fragment;
    moved.index = 0;
    let found = judge(&moved);
    mutants.ours("tiles", "of another entry", id::LOG_INCLUSION, found);
}

/// A checkpoint text signed by the world's log key under this name.
fn signed(world: &World, text: &str, name: &Origin) -> String {
    let identity = world.log_key.identity(name).unwrap();
    let signature = world.log_key.sign(text.as_bytes());
    let line = NoteSignature { name: name.to_string(), hint: identity.id().hint(), signature };
    SignedNote { text: text.to_owned(), signatures: vec![line] }.to_text()
}

fn checkpoints(mutants: &mut Mutants<'_>, other: &World) {
    let part = "checkpoint";
    let world = mutants.world;
    let sealed = symseal_seal::SigstoreBundle::parse(&world.seal).unwrap();
    let (size, root) = (sealed.entry.proof_size, to_base64(&sealed.entry.proof_root));
    let own = world.log.identity().origin.clone();
    let note = sealed.entry.checkpoint.clone();
    let stranger: Origin = "log-other.symseal.internal".parse().unwrap();
    let mut set = |name: &str, check, note: String| {
        mutants.json(part, name, check, |seal| *seal.pointer_mut(CHECKPOINT).unwrap() = note.into());
    };
    set("origin: another, unsigned", id::LOG_ORIGIN, note.replacen(own.as_str(), stranger.as_str(), 1));
    set(
        "wrong origin, signed by the same key under its own name",
        id::LOG_ORIGIN,
        signed(world, &format!("{stranger}\n{size}\n{root}\n"), &own),
    );
    set(
        "wrong origin, signed by the same key under that name",
        id::LOG_ORIGIN,
        signed(world, &format!("{stranger}\n{size}\n{root}\n"), &stranger),
    );
    set("same origin, another key", id::LOG_CHECKPOINT, {
        let text = format!("{own}\n{size}\n{root}\n");
        let identity = other.log_key.identity(&own).unwrap();
        let line = NoteSignature {
            name: own.to_string(),
            hint: identity.id().hint(),
            signature: other.log_key.sign(text.as_bytes()),
        };
        SignedNote { text, signatures: vec![line] }.to_text()
    });
    set(
        "size: another, unsigned",
        id::LOG_CHECKPOINT,
        note.replacen(&format!("\n{size}\n"), &format!("\n{}\n", size + 1), 1),
    );
    set("wrong tree size, signed", id::LOG_INCLUSION, signed(world, &format!("{own}\n{}\n{root}\n", size + 2), &own));
    set("size with a sign, signed", id::LOG_CHECKPOINT, signed(world, &format!("{own}\n+{size}\n{root}\n"), &own));
    set(
        "size with a zero in front, signed",
        id::LOG_CHECKPOINT,
        signed(world, &format!("{own}\n0{size}\n{root}\n"), &own),
    );
    set(
        "another root, signed",
        id::LOG_INCLUSION,
        signed(world, &format!("{own}\n{size}\n{}\n", to_base64(&[9; 32])), &own),
    );
    set("lines in another order, signed", id::LOG_CHECKPOINT, signed(world, &format!("{size}\n{own}\n{root}\n"), &own));
    set("cut short", id::LOG_CHECKPOINT, note.trim_end().to_owned());
    set("no signature line", id::LOG_CHECKPOINT, format!("{own}\n{size}\n{root}\n\n"));
    set("signature: a bit", id::LOG_CHECKPOINT, {
        let mut parsed = SignedNote::parse(&note).unwrap();
        parsed.signatures[0].signature[0] ^= 1;
        parsed.to_text()
    });
    set("a text in front of it", id::LOG_CHECKPOINT, format!("{own}\n9\n{root}\n\n{note}"));
    set("another log's", id::LOG_CHECKPOINT, other.log.checkpoint().to_owned());
    mutants.json(part, "none", id::SEAL_STRUCTURE, |seal| {
        drop(seal.pointer_mut(PROOF).unwrap().as_object_mut().unwrap().remove("checkpoint"))
    });

    // A second history of the same length, by the same log: only who saw the first one can know.
    let fork = {
        let at = |name: &str| world.path(name);
        let mut log = TileLog::create(&at("fork"), own, world.log_key.clone(), &at("fork-seen")).unwrap();
        for n in 0..size - 1 {
            log.append(format!("another entry {n}").as_bytes()).unwrap();
        }
        seal(&world.statement, &world.artifact, &mut log).unwrap()
    };
    let question = Question::of(world);
    let first =
        symseal_seal::examine_seal(&world.seal, &question.subjects, question.trust, &question.expectation, question.at);
    let mut seen = Seen::default();
    seen.record(&world.trust, &first.checkpoints, &[]);
    let expectation = Expectation { seen: Some(&seen), ..question.expectation };
    let question = Question { expectation, ..question };
    assert_eq!(question.failures(std::slice::from_ref(&world.seal)), [""; 0]);
    let found = question.failures(std::slice::from_ref(&fork));
    mutants.unchanged(part, "a fork of the same size, after the first was seen", id::LOG_FRESHNESS, found, &fork);
}
