//! `symseal log`, and what verifiers do with what it writes: consistency proofs, tile fragments, cosigned checkpoints.

use std::path::Path;

use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::{UtcSeconds, Witness};
use symseal_sealer::LogKey;

use crate::program::{self, RunningServer, symseal};
use crate::scene::{Scene, failed, status};

/// A witness and its key.
fn witness(name: &str) -> (Witness, LogKey) {
    let key = LogKey::generate().unwrap();
    let identity = key.identity(&"w.example".parse().unwrap()).unwrap();
    // The last 32 bytes of an Ed25519 SPKI.
    let public: [u8; 32] = identity.key.spki()[12..].try_into().unwrap();
    (Witness::new(name, &public).unwrap(), key)
}

/// Adds cosignatures to the checkpoint that is published in a log's directory, as witnesses do.
fn cosign(checkpoint: &Path, witnesses: &[&(Witness, LogKey)]) {
    let mut note = SignedNote::parse(&std::fs::read_to_string(checkpoint).unwrap()).unwrap();
    for (witness, key) in witnesses {
        let time = UtcSeconds(1_780_000_000);
        let mut signature = 1_780_000_000_u64.to_be_bytes().to_vec();
        signature.extend(key.sign(&Witness::message(time, &note.text)));
        note.signatures.push(NoteSignature { name: witness.name().into(), hint: witness.hint(), signature });
    }
    std::fs::write(checkpoint, note.to_text()).unwrap();
}

/// Replaces what the policy says of the log.
fn log_policy(scene: &Scene, more: &[&str]) {
    let public = scene.at("keys/log.pub.pem");
    if !Path::new(&public).exists() {
        let key = LogKey::load_pem(&scene.path("keys/log.key.pem")).unwrap();
        let identity = key.identity(&"log.example".parse().unwrap()).unwrap();
        let base64 = symseal_seal::encoding::to_base64(&identity.key.spki());
        std::fs::write(&public, format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n")).unwrap();
    }
    let checkpoint = symseal(["log", "checkpoint", "--log", &scene.at("log")]).ok().stdout;
    let origin = checkpoint.lines().next().unwrap();
    let fixed = ["add-log", "--log-key", &public, "--origin", origin, "--not-before", "2026-01-01T00:00:00Z"];
    scene.change_trust(&[&fixed[..], more].concat()).ok();
}

#[test]
fn a_consistency_proof_lets_a_newer_release_pass_where_the_policy_asks_for_one() {
    let Some(scene) = Scene::new() else { return };
    let (log, state) = (scene.at("log"), scene.at("state"));
    log_policy(&scene, &["--require-consistency"]);
    let (exit, first) = scene.report("bundle", &["--state", &state]);
    assert_eq!((exit, &first["memory"]), (0, &"recorded".into()), "{first:#}");
    scene.releases(&["1.1", "1.2"]);
    let (exit, report) = scene.report("bundle", &["--state", &state]);
    assert_eq!((exit, failed(&report)), (1, vec!["log.freshness"]), "{report:#}");
    let proofs = scene.at("proofs.json");
    symseal(["log", "consistency", "--log", &log, "--from", "1", "--output", &proofs]).ok();
    let (exit, report) = scene.report("bundle", &["--state", &state, "--consistency", &proofs]);
    assert_eq!((exit, status(&report, "log.freshness")), (0, "passed"), "{report:#}");
    // A proof between other sizes is none.
    scene.releases(&["1.3"]);
    let (exit, report) = scene.report("bundle", &["--state", &state, "--consistency", &proofs]);
    assert_eq!((exit, failed(&report)), (1, vec!["log.freshness"]), "{report:#}");
    // A changed one is refused by the same check.
    std::fs::remove_file(&proofs).unwrap();
    symseal(["log", "consistency", "--log", &log, "--from", "3", "--to", "4", "--output", &proofs]).ok();
    let text = std::fs::read_to_string(&proofs).unwrap();
    let at = text.find("\"hashes\":[\"").unwrap() + 11;
    let other = if &text[at..=at] == "A" { "B" } else { "A" };
    std::fs::write(scene.path("changed.json"), format!("{}{other}{}", &text[..at], &text[at + 1..])).unwrap();
    let changed = scene.at("changed.json");
    let (_, report) = scene.report("bundle", &["--state", &state, "--consistency", &changed]);
    assert_eq!(failed(&report), ["log.freshness"], "{report:#}");
    let (exit, report) = scene.report("bundle", &["--state", &state, "--consistency", &proofs]);
    assert_eq!((exit, status(&report, "log.freshness")), (0, "passed"), "{report:#}");
    // Not proofs at all, and a file that is never overwritten.
    let trust = scene.at("trust");
    let bundle = scene.at("bundle");
    symseal(["bundle", "verify", &bundle, "--trust", &trust, "--consistency", &scene.at("keys/log.pub.pem")])
        .refused(2, &["consistency proofs", "log.pub.pem"]);
    symseal(["log", "consistency", "--log", &log, "--from", "3", "--output", &proofs]).refused(2, &["proofs.json"]);
}

#[test]
fn a_log_tells_proofs_of_its_own_history_alone() {
    let Some(scene) = Scene::new() else { return };
    let log = scene.at("log");
    let seen = symseal(["log", "checkpoint", "--log", &log]).ok().stdout;
    std::fs::write(scene.path("seen"), &seen).unwrap();
    scene.releases(&["1.1"]);
    let seen_file = scene.at("seen");
    let told = symseal(["log", "consistency", "--log", &log, "--from", &seen_file]).ok().json();
    assert_eq!((&told["proofs"][0]["from"], &told["proofs"][0]["to"]), (&1.into(), &2.into()), "{told:#}");
    // The same size with another root: a second history, which the operator must explain.
    let mut lines: Vec<&str> = seen.lines().collect();
    lines[2] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    std::fs::write(scene.path("forked"), lines.join("\n") + "\n").unwrap();
    symseal(["log", "consistency", "--log", &log, "--from", &scene.at("forked")]).refused(2, &["second history"]);
    lines[0] = "other.example";
    std::fs::write(scene.path("other"), lines.join("\n") + "\n").unwrap();
    symseal(["log", "consistency", "--log", &log, "--from", &scene.at("other")]).refused(2, &["other.example"]);
    symseal(["log", "consistency", "--log", &log, "--from", "3"]).refused(2, &["within its 2 entries", "3"]);
    symseal(["log", "fragment", "--log", &log, "2"]).refused(2, &["within its 2 entries", "2"]);
    symseal(["log", "checkpoint", "--log", &scene.at("keys")]).refused(2, &["expected a log", "keys"]);
    // A damaged tile is not made into a proof.
    let tile = scene.path("log/tile/0/000.p/2");
    let mut bytes = std::fs::read(&tile).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&tile, bytes).unwrap();
    symseal(["log", "consistency", "--log", &log, "--from", "1"]).refused(2, &["another root"]);
}

#[test]
fn a_fragment_stands_for_the_seals_own_audit_path() {
    let Some(scene) = Scene::new() else { return };
    let log = scene.at("log");
    let first = scene.at("bundle-1.0");
    std::fs::rename(scene.path("bundle"), &first).unwrap();
    scene.releases(&["1.1", "1.2"]);
    let fragment = scene.at("fragment.json");
    symseal(["log", "fragment", "--log", &log, "0", "--output", &fragment]).ok();
    let (exit, report) = scene.report("bundle-1.0", &["--fragment", &fragment]);
    let inclusion = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == "log.inclusion").unwrap();
    assert_eq!((exit, &report["seal"]["tree_size"]), (0, &3.into()), "{report:#}");
    assert!(inclusion["found"].as_str().unwrap().contains("entry 0 of 3, by 1 tiles"), "{inclusion}");
    // That of another entry.
    let (exit, report) = scene.report("bundle", &["--fragment", &fragment]);
    assert_eq!((exit, failed(&report)), (1, vec!["log.inclusion"]), "{report:#}");
}

#[test]
fn a_quorum_of_witnesses_is_met_by_a_checkpoint_that_they_cosigned() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (witness("w1.example"), witness("w2.example"));
    let (one_key, two_key) = (one.0.to_string(), two.0.to_string());
    log_policy(&scene, &["--witness", &one_key, "--witness", &two_key, "--witness-quorum", "2"]);
    let (exit, report) = scene.report("bundle", &[]);
    assert_eq!((exit, failed(&report)), (1, vec!["log.witnesses"]), "{report:#}");
    // Who seals by this policy hears of it at once.
    let (bundle, trust, key) = (scene.at("bundle"), scene.at("trust"), scene.at("keys/artifact.key.pem"));
    let log = scene.at("log");
    let sealed = symseal(["bundle", "seal", &bundle, "--key", &key, "--log", &log, "--trust", &trust]).ok();
    assert!(sealed.stderr.contains("refuses this seal: log.witnesses failed: expected 2"), "{sealed:?}");
    // The witnesses see the log's newest checkpoint; who publishes it puts their lines beside the log's.
    let published = scene.path("published");
    crate::scene::run(std::process::Command::new("cp").arg("-r").arg(scene.path("log")).arg(&published));
    let fragment = |name: &str, witnesses: &[&(Witness, LogKey)]| {
        cosign(&published.join("checkpoint"), witnesses);
        let to = scene.at(name);
        symseal(["log", "fragment", "--log", published.to_str().unwrap(), "0", "--output", &to]).ok();
        to
    };
    let by_one = fragment("by-one.json", &[&one]);
    let (exit, report) = scene.report("bundle", &["--fragment", &by_one]);
    assert_eq!((exit, failed(&report)), (1, vec!["log.witnesses"]), "{report:#}");
    let by_both = fragment("by-both.json", &[&two]);
    let (exit, report) = scene.report("bundle", &["--fragment", &by_both]);
    assert_eq!((exit, &report["seal"]["witnesses"]), (0, &2.into()), "{report:#}");
    assert_eq!(report["seal"]["witness_names"], serde_json::json!(["w1.example", "w2.example"]));
    // One name's chain, likewise.
    let inspected = symseal(["bundle", "inspect", &bundle, "--json"]).ok().json();
    let id = inspected["linux"].as_object().unwrap().keys().next().unwrap().clone();
    let (proof, address) = (scene.at("frame.json"), innermost(&scene));
    symseal(["symbolize", "--bundle", &bundle, "--debug-id", &id, "--prove", &proof, &address]).ok();
    let frame = ["verify-frame", &proof, "--trust", &trust];
    let ran = symseal(frame);
    assert!(ran.status == 1 && ran.stdout.contains("log.witnesses"), "{ran:?}");
    let ran = symseal(frame.iter().chain(&["--fragment", &by_both])).ok();
    assert!(ran.stdout.contains("VERIFIED"), "{ran:?}");
    // A quorum that cannot be met, and a key with a slip in it.
    let log_key = scene.at("keys/log.pub.pem");
    let add_log = ["add-log", "--log-key", &log_key, "--origin", "log2.example", "--witness"];
    let refused = scene.change_trust(&[&add_log[..], &[&one_key, "--witness-quorum", "2"]].concat());
    refused.refused(2, &["at most 1"]);
    let slip = one_key.replacen("w1.", "w2.", 1);
    let refused = scene.change_trust(&[&add_log[..], &[&slip]].concat());
    refused.refused(2, &["expected a witness key"]);
}

#[test]
fn one_memory_serves_bundles_frames_and_remote_reading() {
    let Some(scene) = Scene::new() else { return };
    let (trust, state) = (scene.at("trust"), scene.at("state"));
    let inspected = symseal(["bundle", "inspect", &scene.at("bundle"), "--json"]).ok().json();
    let id = inspected["linux"].as_object().unwrap().keys().next().unwrap().clone();
    let (bundle, proof) = (scene.at("bundle"), scene.at("frame.json"));
    let address = innermost(&scene);
    symseal(["symbolize", "--bundle", &bundle, "--debug-id", &id, "--prove", &proof, &address]).ok();
    let frame = |more: &[&str]| {
        let ran = symseal(["verify-frame", &proof, "--trust", &trust, "--json"].iter().chain(more));
        (ran.status, ran.json()["report"].clone())
    };
    let (exit, report) = frame(&[]);
    assert_eq!(exit, 0, "{report:#}");
    assert!(report["memory"].as_str().unwrap().contains("no state directory was given"), "{report:#}");
    assert_eq!(status(&report, "log.freshness"), "skipped");
    let (exit, report) = frame(&["--state", &state]);
    assert_eq!((exit, &report["memory"]), (0, &"recorded".into()), "{report:#}");

    let server = RunningServer::start(&scene.path("data"));
    let reference = format!("{}/team/app:1.0", server.address);
    symseal(["bundle", "push", &bundle, &reference]).ok();
    let remote = || {
        symseal([
            "symbolize",
            "--remote",
            &reference,
            "--trust",
            &trust,
            "--state",
            &state,
            "--debug-id",
            &id,
            &address,
        ])
    };
    let ran = remote().ok();
    assert!(ran.stderr.contains("memory of what was seen: recorded"), "{}", ran.stderr);
    symseal(["symbolize", "--remote", &reference, "--state", &state, "--debug-id", &id, &address])
        .refused(2, &["--trust"]);

    // What one saw, the others hold the log to: the same size with another root.
    let seen = std::fs::read_to_string(scene.path("state/seen.json")).unwrap();
    let at = seen.find("\"root\":\"").map(|at| at + 8).unwrap();
    let other = if &seen[at..=at] == "A" { "B" } else { "A" };
    std::fs::write(scene.path("state/seen.json"), format!("{}{other}{}", &seen[..at], &seen[at + 1..])).unwrap();
    let (exit, report) = frame(&["--state", &state]);
    assert_eq!((exit, failed(&report)), (1, vec!["log.freshness"]), "{report:#}");
    remote().refused(1, &["log.freshness"]);
    let (exit, report) = scene.report("bundle", &["--state", &state]);
    assert_eq!((exit, failed(&report)), (1, vec!["log.freshness"]), "{report:#}");
}

/// The address of a function of the program, as nm tells it.
fn innermost(scene: &Scene) -> String {
    let nm = program::tool("nm").expect("binutils, which the compiler needs");
    let output = std::process::Command::new(nm).arg(scene.path("inputs/app")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.ends_with(" innermost")).unwrap();
    format!("0x{}", line.split_whitespace().next().unwrap().trim_start_matches('0'))
}
