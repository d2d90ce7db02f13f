//! A server that runs as its own user, and an operator who is root.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use crate::program::{Ran, RunningServer, command, tool};
use crate::scene::{ask, get, publish, wait_until};

/// Whom the server runs as, and somebody else.
const USER: u32 = 4242;
const STRANGER: u32 = 4343;

/// A place of the server's user's, where this test may be another user: only root may.
fn place() -> Option<(tempfile::TempDir, PathBuf)> {
    let root = tempfile::tempdir().unwrap();
    if std::fs::metadata(root.path()).unwrap().uid() != 0 {
        eprintln!("skipped: only root can start a server as another user");
        return None;
    }
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let data = root.path().join("data");
    std::fs::create_dir(&data).unwrap();
    chown(&data, Some(USER), Some(USER)).unwrap();
    Some((root, data))
}

/// What lies below a folder and is not the server's user's.
fn of_others(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let Ok(metadata) = entry.metadata() else { continue };
        if (metadata.uid(), metadata.gid()) != (USER, USER) {
            found.push(entry.path());
        }
        if metadata.is_dir() {
            found.extend(of_others(&entry.path()));
        }
    }
    found
}

fn delete(address: &str, digest: &str) -> u16 {
    ask(address, &format!("/v2/app/manifests/{digest}"), &["--request", "DELETE"]).status
}

#[test]
fn what_root_does_beside_a_server_is_its_users() {
    let (Some((root, data)), Some(_)) = (place(), tool("curl")) else { return };
    let run = |arguments: &[&str]| {
        let mut symseal = command("symseal");
        symseal.args(arguments).args(["--data"]).arg(&data);
        Ran::from(symseal.output().unwrap())
    };
    let running = RunningServer::start_as(USER, &data);
    let [gone, kept] = [1, 2].map(|release| publish(root.path(), &running.address, "app", release));
    run(&["store", "pin", &kept, "--reason", "shipped"]).ok();
    run(&["store", "takedown", &gone, "--reason", "ticket 1"]).ok();
    run(&["store", "scrub"]).ok();
    run(&["token", "create", "--name", "pipeline", "--write", "team"]).ok();
    assert_eq!(of_others(&data), Vec::<PathBuf>::new());
    wait_until("it is hidden", || get(&running.address, &format!("/v2/app/manifests/{gone}")).status == 404);
    assert_eq!(delete(&running.address, &kept), 405);
    // A user who can give nothing to the server's is told so, and nothing is written.
    let mut stranger = command("symseal");
    stranger.args(["store", "takedown", &kept, "--reason", "none", "--data"]).arg(&data).uid(STRANGER).gid(STRANGER);
    let refused = Ran::from(stranger.output().unwrap());
    assert!(refused.status != 0 && refused.stderr.contains("setpriv --reuid=4242 --regid=4242"), "{}", refused.stderr);
    drop(running);
    run(&["store", "rebuild"]).ok();
    run(&["store", "gc"]).ok();
    assert_eq!(of_others(&data), Vec::<PathBuf>::new());
    let running = RunningServer::start_as(USER, &data);
    assert_eq!(get(&running.address, "/readyz").status, 200);
    assert_eq!(get(&running.address, &format!("/v2/app/manifests/{gone}")).status, 404);
    assert_eq!(delete(&running.address, &kept), 405);
}

#[test]
fn notes_that_cannot_be_read_hold_all_the_same() {
    let (Some((root, data)), Some(_)) = (place(), tool("curl")) else { return };
    let running = RunningServer::start_as(USER, &data);
    let [gone, kept] = [1, 2].map(|release| publish(root.path(), &running.address, "app", release));
    let note = |folder: &str, digest: &str| {
        let folder = data.join(folder).join("sha256");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(digest.strip_prefix("sha256:").unwrap());
        std::fs::write(&file, "{}").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        folder
    };
    note("pins", &kept);
    let folder = note("tombstones", &gone);
    let status = |address: &str, digest: &str| get(address, &format!("/v2/app/manifests/{digest}")).status;
    wait_until("it is hidden", || status(&running.address, &gone) == 404);
    assert_eq!((status(&running.address, &kept), delete(&running.address, &kept)), (200, 405));
    assert_eq!(get(&running.address, "/readyz").status, 200);
    // Where not even their names can be read, what is known stays hidden, and the server says what it cannot know.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    wait_until("it is told", || get(&running.address, "/readyz").status == 503);
    let ready = get(&running.address, "/readyz").body;
    assert!(String::from_utf8_lossy(&ready).contains("what was taken down cannot be read"));
    assert_eq!(status(&running.address, &gone), 404);
    drop(running);
    let refused = RunningServer::command_as(USER, &data).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(&format!("{}: ", folder.display())), "{said}");
    chown(&folder, Some(USER), Some(USER)).unwrap();
    let running = RunningServer::start_as(USER, &data);
    assert_eq!((status(&running.address, &gone), get(&running.address, "/readyz").status), (404, 200));
}

#[test]
fn what_root_makes_before_a_server_was_there_is_its_users() {
    let Some((root, above)) = place() else { return };
    let create = |data: &Path| {
        let mut symseal = command("symseal");
        symseal.args(["token", "create", "--name", "pipeline", "--read", "team", "--data"]).arg(data);
        Ran::from(symseal.output().unwrap()).ok()
    };
    // The folder above is the user's: so is what comes into it.
    let data = above.join("deep/data");
    let made = create(&data);
    assert!(data.join("symseal.sqlite").exists() && !made.stderr.contains("warning"), "{}", made.stderr);
    assert_eq!(of_others(&above), Vec::<PathBuf>::new());
    drop(RunningServer::start_as(USER, &data));
    // Of one that is root's nobody can tell whose it will be.
    let of_root = root.path().join("other/data");
    assert!(create(&of_root).stderr.contains("it is made, and is root's"));
}
