//! A bundle on its way to a site without a network: kits, and the layouts and archives that oras makes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{self, Ran, RunningServer, peer, symseal};
use crate::scene::{Scene, failed, run, status};

impl Scene {
    fn export(&self, to: &str, more: &[&str]) -> Ran {
        let (bundle, key, to) = (self.at("bundle"), self.at("keys/artifact.key.pem"), self.at(to));
        // The program's own copy is large; what is in the kit as a program matters to one test alone.
        let program = self.at("inputs/app");
        let mut first = vec!["bundle", "kit", "export", &bundle, "--key", &key, "--output", &to];
        if !more.contains(&"--verifier") {
            first.extend(["--verifier", &program]);
        }
        symseal(first.iter().chain(more))
    }

    fn import(&self, kit: &str, into: &str, more: &[&str]) -> Ran {
        let (kit, into, trust) = (self.at(kit), self.at(into), self.at("trust"));
        let first = ["bundle", "kit", "import", &kit, "--output", &into, "--trust", &trust];
        symseal(first.iter().chain(more))
    }
}

fn every_file(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(every_file(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    for file in every_file(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&file, target).unwrap();
    }
}

#[test]
fn a_kit_is_packed_as_a_directory_or_a_tar_file_and_taken_in_elsewhere() {
    let Some(scene) = Scene::new() else { return };
    let log = scene.at("log");
    for kit in ["kit", "kit.tar"] {
        let packed = scene.export(kit, &["--log", &log, "--since", "0", "--json"]).ok().json();
        assert_eq!((&packed["referrers"], &packed["checkpoints"][0]["size"]), (&1.into(), &1.into()), "{packed:#}");
        let (into, state) = (format!("from-{kit}"), scene.at(&format!("state-{kit}")));
        let ran = scene.import(kit, &into, &["--state", &state, "--json"]).ok().json();
        assert_eq!((&ran["verdict"], &ran["memory"]), (&"verified".into(), &"recorded".into()), "{ran:#}");
        for check in ["kit.seal", "kit.files", "kit.log", "log.freshness"] {
            let found = ran["checks"].as_array().unwrap().iter().find(|found| found["id"] == check);
            assert_eq!(found.unwrap()["status"], "passed", "{check}: {ran:#}");
        }
        scene.verifies(&scene.at(&into));
        assert!(Path::new(&state).join("seen.json").is_file());
    }
    // The same kit again, byte by byte but for the signature over the same list.
    let tar = std::fs::read(scene.path("kit.tar")).unwrap();
    let output = Command::new("tar").arg("tf").arg(scene.path("kit.tar")).output().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    assert!(names.starts_with("kit/seal.dsse.json\n") && names.contains("kit/bin/symseal\n"), "{names}");
    assert!(tar.len().is_multiple_of(512));
    scene.export("kit", &[]).refused(2, &["never overwritten"]);
}

#[test]
fn the_program_in_a_kit_runs_and_is_told_to_be_static_or_not() {
    let Some(scene) = Scene::new() else { return };
    let (bundle, key, kit) = (scene.at("bundle"), scene.at("keys/artifact.key.pem"), scene.at("kit"));
    let export = ["bundle", "kit", "export", &bundle, "--key", &key, "--output", &kit, "--json"];
    let packed = symseal(export).ok().json();
    let needs = packed["verifier"].as_str().unwrap().to_owned();
    assert!(needs.starts_with("dynamic") || needs.starts_with("static"), "{needs}");
    let output = Command::new(scene.path("kit/kit/bin/symseal")).arg("--version").output().unwrap();
    assert!(output.status.success());
    let flags = ["-static", "-g"];
    let source = "int main(void) { return 0; }\n";
    if let Some(program) = program::compile_c(scene.folder(), "static-program", source, &flags) {
        let program = program.to_str().unwrap();
        let packed = scene.export("static-kit", &["--verifier", program, "--json"]).ok().json();
        assert!(packed["verifier"].as_str().unwrap().starts_with("static, x86_64"), "{packed:#}");
    }
}

/// The program that `tests/certify static-verifier` builds; it takes minutes, so that other runs do without.
fn static_symseal() -> Option<PathBuf> {
    let named = std::env::var_os("SYMSEAL_STATIC").map(PathBuf::from);
    if named.is_none() {
        assert!(!program::required("static-symseal"), "static-symseal is required, and SYMSEAL_STATIC names none");
        println!("SKIP static-symseal: SYMSEAL_STATIC names none; `tests/certify static-verifier` builds it");
    }
    named
}

#[test]
fn the_static_program_in_a_kit_verifies_it_where_nothing_else_is() {
    let (Some(symseal), Some(unshare)) = (static_symseal(), program::tool("unshare")) else { return };
    let Some(scene) = Scene::new() else { return };
    let (log, symseal) = (scene.at("log"), symseal.display().to_string());
    let packed = scene.export("kit", &["--verifier", &symseal, "--log", &log, "--since", "0", "--json"]).ok().json();
    assert!(packed["verifier"].as_str().unwrap().starts_with("static, "), "{packed:#}");
    // A root directory with the kit and the trust directory: no loader, no library, no /proc, no /dev, no network.
    let root = scene.path("root");
    copy(&scene.path("trust"), &root.join("trust"));
    std::fs::rename(scene.path("kit"), root.join("kit")).unwrap();
    let inside = |arguments: &[&str]| -> Ran {
        let mut command = Command::new(&unshare);
        command.args(["-rn", "--root"]).arg(&root).arg("/kit/kit/bin/symseal").args(arguments).env_clear();
        command.output().unwrap().into()
    };
    let verified = inside(&["bundle", "verify", "/kit", "--trust", "/trust"]).ok();
    assert!(verified.stdout.contains("VERIFIED"), "{verified:?}");
    let imported =
        inside(&["bundle", "kit", "import", "/kit", "--trust", "/trust", "--output", "/into", "--json"]).ok();
    assert_eq!(imported.json()["verdict"], "verified");
    assert!(root.join("into/oci-layout").is_file());
    // It tells bad from good there, too.
    let readme = root.join("kit/kit/README.txt");
    std::fs::write(&readme, "another text").unwrap();
    let refused = inside(&["bundle", "kit", "import", "/kit", "--trust", "/trust", "--output", "/again", "--json"]);
    assert_eq!((refused.status, failed(&refused.json())), (1, vec!["kit.files"]), "{refused:?}");
    let left: Vec<_> = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| ["kit", "trust", "into"].iter().any(|known| name == known)), "{left:?}");
}

#[test]
fn every_change_to_a_kit_is_found_before_anything_is_imported() {
    let Some(scene) = Scene::new() else { return };
    scene.export("kit", &["--log", &scene.at("log"), "--since", "0"]).ok();
    let refused = |what: &str, check: &str, change: &dyn Fn(&Path)| {
        let (kit, into) = (format!("kit-{what}"), format!("into-{what}"));
        copy(&scene.path("kit"), &scene.path(&kit));
        change(&scene.path(&kit));
        let ran = scene.import(&kit, &into, &["--json"]);
        assert_eq!(ran.status, 1, "{what}: {ran:?}");
        let report = ran.json();
        assert_eq!(failed(&report)[0], check, "{what}: {report:#}");
        assert!(!scene.path(&into).exists(), "{what}: something was imported");
    };
    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    // Each file in turn.
    for (number, file) in every_file(&scene.path("kit")).iter().enumerate() {
        let name = file.strip_prefix(scene.path("kit")).unwrap().to_owned();
        let check = if name.ends_with("seal.dsse.json") { "kit.seal" } else { "kit.files" };
        refused(&format!("flipped-{number}"), check, &|kit| flip(&kit.join(&name)));
    }
    refused("missing", "kit.files", &|kit| std::fs::remove_file(kit.join("kit/README.txt")).unwrap());
    refused("extra", "kit.files", &|kit| std::fs::write(kit.join("kit/bin/gdbinit"), "shell id").unwrap());
    refused("extra-blob", "kit.files", &|kit| {
        std::fs::write(kit.join(format!("blobs/sha256/{}", "0".repeat(64))), "x").unwrap();
    });
    refused("moved", "kit.files", &|kit| {
        std::fs::rename(kit.join("kit/README.txt"), kit.join("README.txt")).unwrap();
    });
    #[cfg(unix)]
    refused("link", "kit.files", &|kit| {
        std::fs::copy(kit.join("kit/README.txt"), kit.with_extension("elsewhere")).unwrap();
        std::fs::remove_file(kit.join("kit/README.txt")).unwrap();
        std::os::unix::fs::symlink(kit.with_extension("elsewhere"), kit.join("kit/README.txt")).unwrap();
    });
    #[cfg(unix)]
    refused("linked-folder", "kit.files", &|kit| {
        std::fs::rename(kit.join("kit/log"), kit.with_extension("log")).unwrap();
        std::os::unix::fs::symlink(kit.with_extension("log"), kit.join("kit/log")).unwrap();
    });
    // Another key's seal over changed files.
    symseal(["key", "generate", "--output", &scene.at("thief")]).ok();
    let key = scene.at("thief/artifact.key.pem");
    let (bundle, stolen) = (scene.at("bundle"), scene.at("stolen"));
    symseal(["bundle", "kit", "export", &bundle, "--key", &key, "--output", &stolen, "--no-verifier"]).ok();
    let ran = scene.import("stolen", "into-stolen", &["--json"]);
    assert_eq!((ran.status, &ran.json()["checks"][0]["id"]), (1, &"kit.seal".into()), "{ran:?}");
    // What is told of the memory is what was given.
    let ran = scene.import("stolen", "into-stolen", &["--state", &scene.at("state"), "--json"]);
    assert_eq!(ran.json()["memory"], "not recorded, but for the policy: the verdict is refused", "{ran:?}");
    // What somebody else puts into the store meanwhile stays, however the import ends.
    let layout = symseal_bundle::LayoutDir::create(scene.path("into-shared")).unwrap();
    layout.write_blob(b"another's").unwrap();
    assert!(layout.remove_if_empty().is_err());
    assert!(scene.path("into-shared/oci-layout").exists());
    scene.import("inputs", "into-none", &[]).refused(2, &["expected a kit", "seal.dsse.json"]);
}

#[test]
fn a_kit_of_another_name_than_its_bundle_is_refused() {
    let Some(scene) = Scene::new() else { return };
    scene.export("kit", &[]).ok();
    // The same list, signed anew by a key that may sign for any name.
    let seal = scene.path("kit/kit/seal.dsse.json");
    let key = symseal_sealer::ArtifactKey::load_pem(&scene.path("keys/artifact.key.pem")).unwrap();
    let mut envelope = symseal_seal::Envelope::parse(&std::fs::read(&seal).unwrap()).unwrap();
    let mut statement = symseal_seal::KitStatement::parse(&envelope.payload).unwrap();
    let name = statement.predicate.release.name.clone();
    statement.predicate.release.version = "9.9".into();
    envelope.payload = statement.to_json();
    envelope.signature = key.sign(&envelope.pae());
    std::fs::write(&seal, envelope.to_json()).unwrap();
    let ran = scene.import("kit", "into", &["--json"]);
    let report = ran.json();
    assert_eq!((ran.status, failed(&report)), (1, vec!["kit.seal"]), "{report:#}");
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["status"] == "failed").unwrap();
    assert_eq!(check["found"], format!("{name} 9.9"), "{report:#}");
    assert!(!scene.path("into").exists());
}

#[test]
fn what_the_other_site_would_refuse_is_not_packed() {
    let Some(scene) = Scene::unsealed() else { return };
    scene.build("bundle", &["inputs/app"], "1.0", &[]);
    scene.export("kit", &[]).refused(2, &["expected a bundle with a seal", "bundle seal"]);
    scene.seal("bundle");
    let (other, key) = (scene.at("other-log"), scene.at("other.key.pem"));
    let origin = symseal(["log", "create", "--log", &other, "--log-key", &key]).ok().stdout;
    scene.export("kit", &["--log", &other]).refused(2, &["a log in which the bundle is sealed", origin.trim()]);
    assert!(!scene.path("kit").exists());
    // Each key remembers its own log, in one folder.
    assert!(scene.path("other.last-checkpoint").is_file());
    symseal(["log", "create", "--log", &other, "--log-key", &key]).refused(2, &["never made anew"]);
    let pem = symseal(["key", "show", "--key", &key]).ok().stdout;
    std::fs::write(scene.path("other.pub.pem"), &pem).unwrap();
    let add = ["add-log", "--log-key", &scene.at("other.pub.pem"), "--origin", origin.trim()];
    assert!(scene.change_trust(&add).ok().stdout.contains("policy version 2"));
}

#[test]
fn an_archive_with_links_doubles_or_a_cut_end_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let Some(tar) = program::tool("tar") else { return };
    scene.export("kit", &[]).ok();
    let pack = |name: &str, more: &[&str]| {
        let mut command = Command::new(&tar);
        // A second time the same file would be a hard link to the first.
        command
            .arg("cf")
            .arg(scene.path(name))
            .arg("--hard-dereference")
            .arg("-C")
            .arg(scene.path("kit"))
            .args(more)
            .arg(".");
        run(&mut command);
    };
    // What GNU tar packs of an untouched kit is the same kit: with folders, owners and times.
    pack("again.tar", &[]);
    scene.import("again.tar", "into-again", &[]).ok();
    pack("doubles.tar", &["./oci-layout"]);
    std::os::unix::fs::symlink("/etc/passwd", scene.path("kit/kit/link")).unwrap();
    pack("link.tar", &[]);
    let whole = std::fs::read(scene.path("again.tar")).unwrap();
    std::fs::write(scene.path("cut.tar"), &whole[..whole.len() / 2]).unwrap();
    // A second archive behind the end, which other programs are asked to read (tar -i), or anything else.
    std::fs::write(scene.path("two.tar"), [whole.as_slice(), &whole].concat()).unwrap();
    std::fs::write(scene.path("tail.tar"), [whole.as_slice(), b"x"].concat()).unwrap();
    let behind = "behind the archive's end";
    let cases = [("doubles.tar", "twice"), ("link.tar", "kit/link, no file"), ("cut.tar", "")];
    for (name, part) in cases.into_iter().chain([("two.tar", behind), ("tail.tar", behind)]) {
        let ran = scene.import(name, "into-bad", &[]);
        assert!(ran.status == 1 || (ran.status == 2 && name == "cut.tar"), "{name}: {ran:?}");
        assert!(ran.stdout.contains(part), "{name}: {ran:?}");
        assert!(!scene.path("into-bad").exists(), "{name}");
    }
}

#[test]
fn a_site_that_saw_an_older_checkpoint_gets_its_proof_in_the_kit() {
    let Some(scene) = Scene::new() else { return };
    let (log, state) = (scene.at("log"), scene.at("state"));
    let trust = scene.at("trust");
    symseal(["bundle", "verify", &scene.at("bundle"), "--trust", &trust, "--state", &state]).ok();
    let seen = symseal(["log", "checkpoint", "--log", &log]).ok().stdout;
    std::fs::write(scene.path("site.checkpoint"), seen).unwrap();
    scene.releases(&["1.1", "1.2", "1.3"]);
    // Without the proof nobody can tell, and nothing new is remembered of the log.
    scene.export("bare", &["--log", &log]).ok();
    let bare = scene.import("bare", "into-bare", &["--state", &state, "--json"]).ok().json();
    assert_eq!((status(&bare, "kit.log"), status(&bare, "log.freshness")), ("skipped", "skipped"));
    scene.releases(&["1.4"]);
    let packed = scene.export("kit.tar", &["--log", &log, "--since", &scene.at("site.checkpoint"), "--json"]);
    assert_eq!(packed.ok().json()["consistency_proofs"], 1, "1 to 5, where the seal is the newest entry");
    let report = scene.import("kit.tar", "into", &["--state", &state, "--json"]).ok().json();
    assert_eq!((status(&report, "kit.log"), status(&report, "log.freshness")), ("passed", "passed"));

    // A checkpoint of another history gets no kit.
    scene.export("none", &["--log", &log, "--since", "99"]).refused(2, &["within its 5 entries", "99"]);
    let text = std::fs::read_to_string(scene.path("site.checkpoint")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[2] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    std::fs::write(scene.path("forked.checkpoint"), lines.join("\n") + "\n").unwrap();
    let forked = scene.at("forked.checkpoint");
    scene.export("none", &["--log", &log, "--since", &forked]).refused(2, &["second history"]);
}

#[test]
fn a_kit_on_a_read_only_medium_is_read_and_nothing_is_written_there() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(scene) = Scene::new() else { return };
    scene.export("kit", &[]).ok();
    let read_only = |to: u32| {
        for file in every_file(&scene.path("kit")) {
            for path in file.ancestors().take_while(|path| path.starts_with(scene.path("kit"))) {
                let mode = if path.is_dir() { to | 0o111 } else { to };
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    };
    read_only(0o444);
    let before = listing(&scene.path("kit"));
    // A kit is a layout too: it can be verified where it lies.
    let ran = scene.verifies(&scene.at("kit"));
    assert!(ran.stdout.contains("not recorded: no state directory was given"), "{}", ran.stdout);
    scene.import("kit", "into", &[]).ok();
    assert_eq!(before, listing(&scene.path("kit")));
    // Also where permissions do not bind, as root's do not: a real read-only mount.
    let mounted = scene.path("mounted");
    std::fs::create_dir(&mounted).unwrap();
    let script = "mount --bind \"$1\" \"$2\" && mount -o remount,bind,ro \"$2\" && ! touch \"$2/x\" 2>/dev/null && \
        \"$3\" bundle verify \"$2\" --trust \"$4\" --state \"$2/state\" && \
        \"$3\" bundle kit import \"$2\" --trust \"$4\" --output \"$5\"";
    let output = program::tool("unshare").map(|unshare| {
        Command::new(unshare)
            .args(["-rmn", "--", "sh", "-c", script, "sh"])
            .args([scene.path("kit"), mounted, program::symseal_path().to_owned()])
            .args([scene.path("trust"), scene.path("into-mounted")])
            .output()
            .unwrap()
    });
    read_only(0o644);
    if let Some(output) = output {
        let text = String::from_utf8_lossy(&output.stdout);
        if text.is_empty() && String::from_utf8_lossy(&output.stderr).contains("unshare") {
            assert!(!program::required("unshare"), "{output:?}");
            println!("SKIP unshare: {}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        assert!(output.status.success() && text.contains("imported sha256:"), "{output:?}");
        assert!(text.contains("Read-only file system") || text.contains("read-only"), "{text}");
    }
}

fn listing(dir: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let of = |path: PathBuf| {
        let metadata = std::fs::metadata(&path).unwrap();
        (path, metadata.len(), metadata.modified().unwrap())
    };
    every_file(dir).into_iter().map(of).collect()
}

#[test]
fn a_bundle_that_oras_carried_as_a_layout_a_backup_or_a_kit_verifies_after_each() {
    let Some(oras) = peer("oras") else { return };
    let Some(scene) = Scene::new() else { return };
    let home = RunningServer::start(&scene.path("home"));
    let reference = format!("{}/team/app:1.0", home.address);
    symseal(["bundle", "push", &scene.at("bundle"), &reference]).ok();
    let oras = |arguments: &[&str]| run(Command::new(&oras).args(arguments));

    // A layout on a disk.
    let disk = scene.at("disk");
    oras(&["cp", "-r", "--from-plain-http", &reference, "--to-oci-layout", &format!("{disk}:1.0")]);
    scene.verifies(&disk);

    // A backup, restored into a registry that never saw the bundle.
    let backup = scene.at("backup.tar");
    oras(&["backup", "--plain-http", "--include-referrers", "--output", &backup, &reference]);
    let away = RunningServer::start(&scene.path("away"));
    let restored = format!("{}/mirror/app", away.address);
    oras(&["restore", "--plain-http", "--input", &backup, &format!("{restored}:1.0")]);
    symseal(["bundle", "pull", &format!("{restored}:1.0"), "--output", &scene.at("restored")]).ok();
    scene.verifies(&scene.at("restored"));

    // A kit is a layout: oras takes the bundle out of it, too, from a directory and from an archive.
    scene.export("kit", &[]).ok();
    scene.export("kit.tar", &[]).ok();
    for (number, kit) in [scene.at("kit"), scene.at("kit.tar")].iter().enumerate() {
        let to = format!("{}/kits/app{number}:1.0", away.address);
        oras(&["cp", "-r", "--from-oci-layout", &format!("{kit}:1.0"), "--to-plain-http", &to]);
        let pulled = format!("kit-pulled-{number}");
        symseal(["bundle", "pull", &to, "--output", &scene.at(&pulled)]).ok();
        scene.verifies(&scene.at(&pulled));
    }
}

#[test]
fn sources_go_along_when_they_are_asked_for() {
    let Some(scene) = Scene::new() else { return };
    let inputs = scene.at("inputs");
    scene.build("bundle", &["inputs/app"], "2.0", &["--sources", &inputs]);
    scene.seal("bundle");
    let without = scene.export("without", &["--json"]).ok().json();
    assert!(without["sources_left_out"].as_str().unwrap().starts_with("sha256:"), "{without:#}");
    let with = scene.export("with", &["--with-sources", "--json"]).ok().json();
    assert!(with["files"].as_u64() > without["files"].as_u64(), "{with:#}");
    scene.import("with", "into", &[]).ok();
    let sources = without["sources_left_out"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
    assert!(scene.path("into/blobs/sha256").join(&sources).is_file());
    scene.import("without", "into-without", &[]).ok();
    assert!(!scene.path("into-without/blobs/sha256").join(&sources).exists());
}
