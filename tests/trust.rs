//! The procedures of docs/trust.md, each as an operator and a verifier would walk it.

use crate::program;
use std::path::PathBuf;

use crate::program::{Ran, compile_c, symseal, tool};
use serde_json::Value;

const SOURCE: &str = "int main(int argc, char **argv) { (void)argv; return argc - 1; }\n";

/// Keys, a log, a trust directory, and releases sealed one after another.
struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    /// A trust directory for `keys/artifact.key.pem` and `log`; `None`, with a word about it, without a compiler.
    fn make() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        tool("objcopy")?;
        compile_c(dir.path(), "app", SOURCE, &["-g", "-O0", "-Wl,--build-id"])?;
        let scene = Self { dir };
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        scene
            .trust(&["init", "--key", &scene.at("keys/artifact.pub.pem"), "--name", "app*", "--log", &scene.at("log")])
            .ok();
        Some(scene)
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// `symseal trust SUBCOMMAND --trust …`.
    fn trust(&self, arguments: &[&str]) -> Ran {
        self.trust_in("trust", arguments)
    }

    fn trust_in(&self, directory: &str, arguments: &[&str]) -> Ran {
        let (command, rest) = arguments.split_first().unwrap();
        symseal(["trust", *command, "--trust", &self.at(directory)].iter().chain(rest))
    }

    /// A change of the trust directory, signed by `keys/root.key.pem`.
    fn change(&self, arguments: &[&str]) -> Ran {
        let (command, rest) = arguments.split_first().unwrap();
        let root = self.at("keys/root.key.pem");
        let signing = [*command, "--root-key", &root];
        self.trust(&signing.iter().chain(rest).copied().collect::<Vec<_>>())
    }

    /// Builds release `version` and seals it with the keys in a folder, in a log.
    fn release(&self, version: &str, keys: &str, log: &str, log_keys: &str) -> String {
        let bundle = self.at(&format!("bundle-{version}"));
        if !PathBuf::from(&bundle).exists() {
            symseal(["bundle", "build", &self.at("app"), "--name", "app", "--version", version, "--output", &bundle])
                .ok();
        }
        symseal([
            "bundle",
            "seal",
            &bundle,
            "--key",
            &self.at(&format!("{keys}/artifact.key.pem")),
            "--log",
            &self.at(log),
            "--log-key",
            &self.at(&format!("{log_keys}/log.key.pem")),
        ])
        .ok();
        bundle
    }

    fn verify(&self, bundle: &str, more: &[&str]) -> Value {
        self.verify_in("trust", bundle, more)
    }

    fn verify_in(&self, trust: &str, bundle: &str, more: &[&str]) -> Value {
        let trust = self.at(trust);
        let ran = symseal(["bundle", "verify", bundle, "--trust", &trust, "--json"].iter().chain(more));
        let report = ran.json();
        assert_eq!(ran.status == 0, report["verdict"] != "refused", "{ran:?}");
        report
    }

    #[track_caller]
    fn holds(&self, bundle: &str) {
        let report = self.verify(bundle, &[]);
        assert_eq!(report["verdict"], "verified", "{report:#}");
    }

    #[track_caller]
    fn refused(&self, bundle: &str, check: &str) {
        assert_eq!(failed(&self.verify(bundle, &[])), [check]);
    }

    fn shown(&self) -> Value {
        self.trust(&["show", "--json"]).ok().json()
    }

    fn origin(&self) -> String {
        self.shown()["logs"][0]["origin"].as_str().unwrap().to_owned()
    }
}

fn failed(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["status"] == "failed").map(|check| check["id"].as_str().unwrap()).collect()
}

#[test]
fn an_artifact_key_is_replaced_by_letting_both_sign_for_a_while() {
    let Some(scene) = Scene::make() else { return };
    let old = scene.release("1.0", "keys", "log", "keys");
    symseal(["key", "generate", "--output", &scene.at("next")]).ok();
    let new = scene.release("1.1", "next", "log", "keys");
    scene.refused(&new, "trust.key");
    scene.change(&["add-key", "--key", &scene.at("next/artifact.pub.pem"), "--name", "app*"]).ok();
    scene.holds(&old);
    scene.holds(&new);
    // The old key runs out; what it sealed counts until then, and the end is warned of.
    let end = "2027-01-01T00:00:00Z";
    scene
        .change(&[
            "add-key",
            "--key",
            &scene.at("keys/artifact.pub.pem"),
            "--predicate-type",
            "https://symseal.dev/bundle/v1",
            "--predicate-type",
            "https://symseal.dev/kit/v1",
        ])
        .ok();
    let before = scene.shown()["keys"][0].clone();
    let ran = scene.change(&["add-key", "--key", &scene.at("keys/artifact.pub.pem"), "--not-after", end]).ok();
    assert!(ran.stdout.contains("not_after") && ran.stdout.contains("(none)"), "{ran:?}");
    let after = scene.shown()["keys"][0].clone();
    assert_eq!(after["not_after"], end);
    for kept in ["names", "predicate_types", "not_before"] {
        assert_eq!(before[kept], after[kept], "{kept}");
    }
    let at = |bundle: &str, time: &str| scene.verify(bundle, &["--at", time]);
    assert_eq!(at(&old, end)["verdict"], "verified");
    assert_eq!(at(&old, end)["time"], serde_json::json!({"at": end, "source": "asked"}));
    assert_eq!(failed(&at(&old, "2027-01-01T00:00:01Z")), ["trust.key-validity"]);
    assert_eq!(at(&new, "2027-01-01T00:00:01Z")["verdict"], "verified");
    let warned = scene.trust(&["show", "--json", "--at", "2026-12-15T00:00:00Z"]).ok().json();
    assert!(warned["warnings"][0].as_str().unwrap().contains("expires at 2027-01-01"), "{warned}");
    let early = scene.trust(&["show", "--json", "--at", "2026-11-15T00:00:00Z"]).ok().json();
    assert_eq!(early["warnings"], serde_json::json!([]));
    assert_eq!(scene.shown()["policy_version"], 4);
}

#[test]
fn a_stolen_artifact_key_loses_what_comes_after_the_theft() {
    let Some(scene) = Scene::make() else { return };
    let before = scene.release("1.0", "keys", "log", "keys");
    let after = scene.release("1.1", "keys", "log", "keys");
    let key = scene.shown()["keys"][0]["key_id"].as_str().unwrap().to_owned();
    let place = format!("{}#1", scene.origin());
    // By the place in the log: 1.0 is entry 0.
    scene.change(&["revoke", "--key-id", &key, "--reason", "stolen", "--except-before", &place]).ok();
    scene.holds(&before);
    scene.refused(&after, "trust.revocation");
    // By digest, where the log cannot tell; beside the place, and instead of it.
    let digest = scene.verify(&after, &[])["bundle"].as_str().unwrap().to_owned();
    let except = ["revoke", "--key-id", &key, "--reason", "stolen", "--except", &digest];
    let said = scene.change(&except).ok().stdout;
    assert!(said.contains("still counts") && said.contains(&digest), "{said}");
    assert!(said.contains(&format!("entries of {} before 1", scene.origin())), "the earlier exception: {said}");
    scene.holds(&before);
    scene.holds(&after);
    let excepted = serde_json::json!({"digests": [digest], "before": [{"origin": scene.origin(), "index": 1}]});
    assert_eq!(scene.shown()["keys"][0]["exceptions"], excepted);
    let shown = scene.trust(&["show"]).ok().stdout;
    assert!(shown.contains(&digest) && shown.contains(&format!("entries of {} before 1", scene.origin())), "{shown}");
    scene.change(&[&except[..], &["--replace"]].concat()).ok();
    scene.refused(&before, "trust.revocation");
    scene.holds(&after);
    assert_eq!(scene.shown()["keys"][0]["revoked"], "stolen");
    scene.change(&["revoke", "--key-id", "x", "--reason", "r"]).refused(2, &["expected one of the keys", &key]);
    scene
        .change(&["revoke", "--key-id", &key, "--reason", "r", "--except-before", "other.example#1"])
        .refused(2, &["exceptions in the logs"]);
}

#[test]
fn a_log_is_replaced_by_closing_the_old_one() {
    let Some(scene) = Scene::make() else { return };
    let old = scene.release("1.0", "keys", "log", "keys");
    symseal(["key", "generate", "--output", &scene.at("next")]).ok();
    let new = scene.release("1.1", "keys", "log2", "next");
    scene.refused_any(&new, "log.id");
    let checkpoint = std::fs::read_to_string(scene.at("log2/checkpoint")).unwrap();
    let (origin, old_origin) = (checkpoint.lines().next().unwrap().to_owned(), scene.origin());
    let public = scene.log_public("next");
    scene.change(&["add-log", "--log-key", &public, "--origin", &origin, "--operator", "the new machine"]).ok();
    scene.change(&["revoke", "--log", &old_origin, "--before", "1"]).ok();
    scene.holds(&old);
    scene.holds(&new);
    // What the old log takes from now on does not count.
    let late = scene.release("1.2", "keys", "log", "keys");
    scene.refused(&late, "log.index");
    // What is said of it later does not open it.
    let old_public = scene.log_public("keys");
    let mention = ["add-log", "--log-key", &old_public, "--origin", &old_origin];
    let ran = scene.change(&[&mention[..], &["--operator", "the old machine"]].concat()).ok();
    assert!(ran.stdout.contains("operator") && !ran.stdout.contains("entries_before"), "{ran:?}");
    scene.refused(&late, "log.index");
    scene.change(&["revoke", "--log", &old_origin, "--before", "2"]).refused(2, &["at most 1", "--reopen"]);
    scene.change(&[&mention[..], &["--reopen"]].concat()).ok();
    scene.holds(&late);
    scene.change(&["revoke", "--log", &old_origin, "--before", "1"]).ok();
    scene.refused(&late, "log.index");
    // Its key was stolen: nothing in it counts any more, and the old release is sealed again in the new log.
    scene.change(&["revoke", "--log", &old_origin]).ok();
    scene.refused_any(&old, "log.id");
    scene.release("1.0", "keys", "log2", "next");
    scene.holds(&old);
    assert_eq!(scene.shown()["logs"].as_array().unwrap().len(), 1);
    let roots: Value = serde_json::from_slice(&std::fs::read(scene.at("trust/trusted_root.json")).unwrap()).unwrap();
    assert_eq!(roots["tlogs"].as_array().unwrap().len(), 1);
}

impl Scene {
    #[track_caller]
    fn refused_any(&self, bundle: &str, check: &str) {
        let report = self.verify(bundle, &[]);
        assert!(failed(&report).contains(&check), "{report:#}");
    }

    /// The public half of a log key, made by another program.
    fn log_public(&self, keys: &str) -> String {
        let public = self.at(&format!("{keys}/log.pub.pem"));
        let private = self.at(&format!("{keys}/log.key.pem"));
        let openssl = tool("openssl").expect("openssl");
        let mut command = std::process::Command::new(openssl);
        assert!(command.args(["pkey", "-in", &private, "-pubout", "-out", &public]).status().unwrap().success());
        public
    }
}

#[test]
fn root_keys_are_replaced_in_a_chain_that_verifiers_follow() {
    let Some(scene) = Scene::make() else { return };
    let bundle = scene.release("1.0", "keys", "log", "keys");
    let state = scene.at("state");
    assert_eq!(scene.verify(&bundle, &["--state", &state])["verdict"], "verified");
    let fingerprint = scene.shown()["root"]["fingerprint"].as_str().unwrap().to_owned();
    assert_eq!(fingerprint.split(' ').filter(|group| group.len() == 5).count(), 10);

    // A verifier elsewhere takes the directory over, comparing the fingerprint.
    let file = scene.at("trust.json");
    scene.trust(&["export", "--output", &file]).ok();
    let import = |more: &[&str]| scene.trust_in("elsewhere", &[&["import", &file], more].concat());
    import(&[]).refused(2, &["--fingerprint", &fingerprint]);
    let wrong = fingerprint.replace(&fingerprint[..5], "00000");
    import(&["--fingerprint", &wrong]).refused(2, &["do not use this file"]);
    import(&["--fingerprint", &fingerprint.replace(' ', "-")]).ok();
    assert_eq!(scene.verify_in("elsewhere", &bundle, &[])["verdict"], "verified");

    // From one key to two of three.
    for keys in ["b", "c", "d"] {
        symseal(["key", "generate", "--output", &scene.at(keys)]).ok();
    }
    let key = |folder: &str| scene.at(&format!("{folder}/root.key.pem"));
    let (b, c, d) = (key("b"), key("c"), key("d"));
    let add = ["rotate", "--add", &b, "--add", &c, "--root-threshold", "2"];
    scene.change(&add).refused(2, &["2 root keys of the next root"]);
    scene.change(&[&add[..], &["--root-key", &b]].concat()).ok();
    let shown = scene.shown();
    assert_eq!((&shown["root"]["version"], &shown["root"]["threshold"]), (&2.into(), &2.into()));
    assert_eq!(scene.verify(&bundle, &["--state", &state])["verdict"], "verified");
    // One key alone signs nothing any more.
    scene
        .change(&["add-key", "--key", &scene.at("b/artifact.pub.pem"), "--name", "app"])
        .refused(2, &["2 root keys of the root"]);

    // One of the three is stolen: the other two replace it.
    let stolen = shown["root_keys"][0].as_str().unwrap();
    scene.trust(&["rotate", "--root-key", &b, "--root-key", &c, "--remove", stolen, "--add", &d]).ok();
    scene.holds(&bundle);
    assert_eq!(scene.verify(&bundle, &["--state", &state])["verdict"], "verified");
    // The verifier elsewhere follows without being asked; and does not go back.
    let newer = scene.at("newer.json");
    scene.trust(&["export", "--output", &newer]).ok();
    scene.trust_in("elsewhere", &["import", &newer]).ok();
    scene.trust_in("elsewhere", &["import", &file]).refused(2, &["a root that follows from this directory's"]);
    // A verifier with a memory refuses the old directory, too.
    scene.trust_in("old", &["import", &file, "--fingerprint", &fingerprint]).ok();
    let report = scene.verify_in("old", &bundle, &["--state", &state]);
    assert_eq!(failed(&report), ["trust.root-chain", "trust.policy-version"]);
    assert!(report["memory"].as_str().unwrap().starts_with("not recorded"), "{report:#}");
}

#[test]
fn a_stolen_only_root_key_needs_a_new_trust_directory_by_another_way() {
    let Some(scene) = Scene::make() else { return };
    let bundle = scene.release("1.0", "keys", "log", "keys");
    scene.trust(&["export", "--output", &scene.at("first.json")]).ok();
    let first = scene.shown()["root"]["fingerprint"].as_str().unwrap().to_owned();
    scene.trust_in("verifier", &["import", &scene.at("first.json"), "--fingerprint", &first]).ok();
    // The same keys and log under a new root.
    symseal(["key", "generate", "--output", &scene.at("fresh")]).ok();
    scene
        .trust_in(
            "second",
            &[
                "init",
                "--key",
                &scene.at("keys/artifact.pub.pem"),
                "--name",
                "app",
                "--log",
                &scene.at("log"),
                "--root-key",
                &scene.at("fresh/root.key.pem"),
                "--log-key",
                &scene.at("keys/log.key.pem"),
            ],
        )
        .ok();
    scene.trust_in("second", &["export", "--output", &scene.at("second.json")]).ok();
    scene
        .trust_in("verifier", &["import", &scene.at("second.json")])
        .refused(2, &["a root that follows from this directory's"]);
    let shown = scene.trust_in("second", &["show", "--json"]).ok().json();
    let second = shown["root"]["fingerprint"].as_str().unwrap();
    scene.trust_in("verifier2", &["import", &scene.at("second.json"), "--fingerprint", second]).ok();
    assert_eq!(scene.verify_in("verifier2", &bundle, &[])["verdict"], "verified");
}

#[test]
fn a_policy_is_prolonged_and_an_older_one_noticed() {
    let Some(scene) = Scene::make() else { return };
    let bundle = scene.release("1.0", "keys", "log", "keys");
    scene.trust(&["export", "--output", &scene.at("one.json")]).ok();
    scene.change(&["rotate"]).refused(2, &["nothing to rotate"]);
    scene.change(&["rotate", "--expires", "2030-01-01T00:00:00Z"]).ok();
    let state = scene.at("state");
    let report = scene.verify(&bundle, &["--state", &state]);
    assert_eq!((&report["verdict"], &report["memory"]), (&"verified".into(), &"recorded".into()));
    assert_eq!(failed(&scene.verify(&bundle, &["--at", "2031-01-01T00:00:00Z"])), ["trust.policy"]);
    let fingerprint = scene.shown()["root"]["fingerprint"].as_str().unwrap().to_owned();
    scene.trust_in("older", &["import", &scene.at("one.json"), "--fingerprint", &fingerprint]).ok();
    assert_eq!(failed(&scene.verify_in("older", &bundle, &["--state", &state])), ["trust.policy-version"]);
    // Without an end again.
    scene.change(&["rotate", "--expires", "never"]).ok();
    assert_eq!(scene.verify(&bundle, &["--at", "2031-01-01T00:00:00Z"])["verdict"], "verified");
    let beyond = format!("log.example#{}", u64::MAX);
    let revoke = ["revoke", "--key-id", "K", "--reason", "stolen", "--except-before", &beyond];
    scene.change(&revoke).refused(2, &["expected a place below"]);
    // A policy by which the bundle is refused is remembered too: the one before it does not come back.
    let key = scene.shown()["keys"][0]["key_id"].as_str().unwrap().to_owned();
    scene.trust(&["export", "--output", &scene.at("two.json")]).ok();
    let with_state = ["--state", &scene.at("state-of-refusal")];
    assert_eq!(scene.verify(&bundle, &with_state)["verdict"], "verified");
    scene.change(&["revoke", "--key-id", &key, "--reason", "stolen"]).ok();
    let report = scene.verify(&bundle, &with_state);
    assert_eq!(failed(&report), ["trust.revocation"]);
    assert_eq!(report["memory"], "not recorded, but for the policy: the verdict is refused");
    scene.trust_in("before", &["import", &scene.at("two.json"), "--fingerprint", &fingerprint]).ok();
    assert_eq!(failed(&scene.verify_in("before", &bundle, &with_state)), ["trust.policy-version"]);
    assert_eq!(scene.verify_in("before", &bundle, &[])["verdict"], "verified", "without a memory");
    // Where nothing can be written the bundle is verified all the same, and the report says so.
    let report = scene.verify_in("before", &bundle, &["--state", "/proc/symseal-state"]);
    assert_eq!(report["verdict"], "verified");
    assert!(report["memory"].as_str().unwrap().starts_with("not recorded: /proc/symseal-state"), "{report:#}");
}

#[test]
fn two_keys_of_two_are_asked_for_and_the_chain_is_explained() {
    let Some(scene) = Scene::make() else { return };
    let bundle = scene.release("1.0", "keys", "log", "keys");
    symseal(["key", "generate", "--output", &scene.at("second")]).ok();
    let second = scene.at("second/artifact.pub.pem");
    scene.change(&["add-key", "--key", &second, "--name", "app", "--threshold", "2"]).ok();
    scene.refused(&bundle, "trust.threshold");
    scene.release("1.0", "second", "log", "keys");
    let report = scene.verify(&bundle, &[]);
    assert_eq!(report["verdict"], "verified", "{report:#}");
    assert_eq!(report["seal"]["signers"].as_array().unwrap().len(), 2);
    let unchecked: Vec<&str> =
        report["not_checked"].as_array().unwrap().iter().map(|check| check["id"].as_str().unwrap()).collect();
    assert_eq!(
        unchecked,
        [
            "table.rederived",
            "trust.root-chain",
            "trust.policy-version",
            "statement.name",
            "statement.version",
            "log.freshness",
        ]
    );
    assert_eq!(report["time"]["source"], "clock");
    assert_eq!(report["seal"]["witnesses"], 0);
    let trust = scene.at("trust");
    let explained = symseal(["bundle", "verify", &bundle, "--trust", &trust, "--explain"]).ok().stdout;
    for part in
        ["files,", "statement of app@1.0", "artifact key", "policy, version 2", "entry 0", "checkpoint", "holds"]
    {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    assert!(explained.contains("nobody but the operator vouches for the log"), "{explained}");
    let parts = program::run("trace-verify", ["--bundle", &bundle, "--trust", &trust, "--dsse", "--json"]);
    let report = parts.ok().json();
    assert_eq!(report["verdict"], "partial");
    assert!(report["not_checked"].as_array().unwrap().iter().any(|check| check["id"] == "log.inclusion"));
}

#[test]
fn a_pulled_directory_with_an_extra_file_or_a_link_is_refused() {
    let Some(scene) = Scene::make() else { return };
    let bundle = scene.release("1.0", "keys", "log", "keys");
    // What `oras pull` leaves: each layer at its title, and the seal beside it.
    let pulled = PathBuf::from(scene.at("pulled"));
    let layout = PathBuf::from(&bundle);
    let read = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap();
        std::fs::read(layout.join("blobs/sha256").join(hex)).unwrap()
    };
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let image_index = json(&read(scene.verify(&bundle, &[])["bundle"].as_str().unwrap()));
    for child in image_index["manifests"].as_array().unwrap() {
        for layer in json(&read(child["digest"].as_str().unwrap()))["layers"].as_array().unwrap() {
            let path = pulled.join(layer["annotations"]["org.opencontainers.image.title"].as_str().unwrap());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, read(layer["digest"].as_str().unwrap())).unwrap();
        }
    }
    let listed = json(&std::fs::read(layout.join("index.json")).unwrap());
    let seal = listed["manifests"].as_array().unwrap().iter().find_map(|entry| {
        let manifest = json(&read(entry["digest"].as_str().unwrap()));
        manifest["subject"].is_object().then(|| read(manifest["layers"][0]["digest"].as_str().unwrap()))
    });
    let signature = scene.at("seal.json");
    std::fs::write(&signature, seal.expect("a seal")).unwrap();
    let directory = pulled.display().to_string();
    let verify = |signature: &str| scene.verify(&directory, &["--signature", signature]);
    let report = verify(&signature);
    assert_eq!(report["verdict"], "verified", "{report:#}");
    assert!(report["bundle"].is_null() && report["seal"]["signed_bundle_sha256"].is_string());
    // The seal itself may lie there, under any name that is given.
    let inside = pulled.join("the seal.json");
    std::fs::copy(&signature, &inside).unwrap();
    assert_eq!(failed(&verify(&signature)), ["blob.extra"]);
    assert_eq!(verify(&inside.display().to_string())["verdict"], "verified");
    std::fs::remove_file(&inside).unwrap();
    let extra = pulled.join("app-gdb.py");
    std::fs::write(&extra, "import os").unwrap();
    assert_eq!(failed(&verify(&signature)), ["blob.extra"]);
    std::fs::remove_file(&extra).unwrap();
    // A link, even one that leads to the right bytes.
    let index = pulled.join("symbol_index.json");
    std::fs::rename(&index, scene.at("moved.json")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(scene.at("moved.json"), &index).unwrap();
    assert_eq!(failed(&verify(&signature)), ["blob.extra"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_file_is_named_and_nobody_waits_for_it() {
    let Some(scene) = Scene::make() else { return };
    let bundle = scene.release("1.0", "keys", "log", "keys");
    let pipe = scene.at("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let trust = scene.at("trust");
    let verify = |bundle: &str, more: &[&str]| {
        let arguments = ["bundle", "verify", bundle, "--trust", &trust];
        symseal(arguments.iter().chain(more))
    };
    verify(&bundle, &["--signature", &pipe]).refused(2, &["expected a file, found a directory, a pipe", &pipe]);
    verify(&bundle, &["--fragment", &pipe]).refused(2, &["expected a file", &pipe]);
    symseal(["verify-frame", &pipe, "--trust", &trust]).refused(2, &["expected a file", &pipe]);
    // In a layout, and in the trust directory.
    for (file, parts) in [(format!("{bundle}/index.json"), "expected a file"), (format!("{trust}/root.json"), "a pipe")]
    {
        let kept = format!("{file}.kept");
        std::fs::rename(&file, &kept).unwrap();
        std::fs::rename(&pipe, &file).unwrap();
        verify(&bundle, &[]).refused(2, &[parts, &file]);
        std::fs::rename(&file, &pipe).unwrap();
        std::fs::rename(&kept, &file).unwrap();
    }
    verify(&bundle, &[]).ok();
}

/// Ends a program that opens a socket.
const NO_SOCKET: &str = "#include <stdlib.h>\n#include <unistd.h>\nint socket(int a, int b, int c) { (void)a; (void)b; (void)c; if (write(2, \"a socket was opened\\n\", 20)) {} abort(); }\n";

#[test]
fn verifying_opens_no_socket() {
    let Some(scene) = Scene::make() else { return };
    let bundle = scene.release("1.0", "keys", "log", "keys");
    let (trust, state) = (scene.at("trust"), scene.at("state"));
    let arguments = ["--bundle", &bundle, "--trust", &trust, "--dsse", "--rekor", "--state", &state];
    // Without a network at all.
    let unshared = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.arg("-rn").arg(program::program(program)).args(arguments).env("XDG_DATA_HOME", "/nonexistent");
        command.output()
    };
    let permitted = std::process::Command::new("unshare").args(["-rn", "true"]).output();
    if permitted.is_ok_and(|output| output.status.success()) {
        let ran: Ran = unshared("trace-verify", &arguments).expect("unshare").into();
        assert!(ran.ok().stdout.contains("VERIFIED"));
    } else {
        assert!(!program::required("unshare"), "unshare -rn is required and is not permitted");
        println!("SKIP unshare: network namespaces are not permitted here");
    }
    // And with a socket() that ends the program, which a pull shows to work.
    let made = compile_c(scene.dir.path(), "no-socket.so", NO_SOCKET, &["-shared", "-fPIC"]);
    let Some(library) = made else { return };
    let trapped = |program: &str, arguments: &[&str]| -> Ran {
        let mut command = program::command(program);
        command.args(arguments).env("LD_PRELOAD", &library).output().expect("the program starts").into()
    };
    let pull = trapped("symseal", &["bundle", "pull", "127.0.0.1:9/a/b:c", "--output", &scene.at("pull")]);
    assert!(pull.stderr.contains("a socket was opened"), "{pull:?}");
    let ran = trapped("trace-verify", &arguments);
    assert!(ran.stdout.contains("VERIFIED") && ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn an_encrypted_root_key_signs_with_its_passphrase() {
    let Some(scene) = Scene::make() else { return };
    let with = |arguments: &[&str], passphrase: &str| -> Ran {
        let mut command = program::command("symseal");
        command.args(arguments).env("ROOT_PASSPHRASE", passphrase).stdin(std::process::Stdio::null());
        command.output().expect("the program starts").into()
    };
    let (keys, trust, root) = (scene.at("safe"), scene.at("safe-trust"), scene.at("safe/root.key.pem"));
    let from = ["--passphrase-env", "ROOT_PASSPHRASE"];
    with(&[&["key", "generate", "--output", &keys, "--encrypt"], &from[..]].concat(), "open sesame").ok();
    let public = scene.at("safe/artifact.pub.pem");
    let log = scene.at("safe-log");
    let init = ["trust", "init", "--trust", &trust, "--key", &public, "--name", "app", "--log", &log];
    with(&[&init[..], &from].concat(), "wrong").refused(2, &["safe/root.key.pem"]);
    with(&[&init[..], &from].concat(), "open sesame").ok();
    let prolong = ["trust", "rotate", "--trust", &trust, "--root-key", &root, "--expires", "2030-01-01T00:00:00Z"];
    with(&[&prolong[..], &from].concat(), "wrong").refused(2, &["safe/root.key.pem"]);
    with(&[&prolong[..], &from].concat(), "open sesame").ok();
}
