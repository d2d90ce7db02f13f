//! The transparency log in the data directory: its tiles against its checkpoint, the checkpoint against its key and the one seen last, and its writer.

use std::io::ErrorKind;
use std::path::Path;

use symseal_bundle::open_plain_file;
use symseal_seal::{Origin, SignedCheckpoint};
use symseal_sealer::{LogKey, PublishedLog, TileLog};

use super::lock::{Holder, holder_of};
use super::{Examined, Finding, key_file};
use crate::config::LOG_FOLDER;

/// The file whose lock is the log's lease.
const LEASE_FILE: &str = ".lease";

/// The file by which a log is one.
const CHECKPOINT_FILE: &str = "checkpoint";

/// More bytes than a checkpoint has.
const CHECKPOINT_LIMIT: u64 = 64 << 10;

pub(super) fn look(examined: &Examined) -> Vec<Finding> {
    let directory = examined.config.data.join(LOG_FOLDER);
    if let Err(why) = looked_for(&directory) {
        return vec![Finding::problem(
            "log.tiles",
            why,
            "run this as the server's user, or as root, with files in the places of files",
        )];
    }
    if !TileLog::exists(&directory) && examined.log_last_seen.exists() {
        return vec![Finding::problem(
            "log.tiles",
            format!(
                "{}: expected the log whose last checkpoint is remembered in {}, found none",
                directory.display(),
                examined.log_last_seen.display()
            ),
            "put the log back from a backup that is not older than that checkpoint (docs/operating.md, Recovery): no other can be begun with its key",
        )];
    }
    if !TileLog::exists(&directory) {
        return vec![Finding::skipped("log.tiles", "the server keeps no transparency log")];
    }
    let log = match PublishedLog::open(&directory) {
        Ok(log) => log,
        Err(error) => {
            let advice = "stop the server and put the log back from a backup that is not older than its last checkpoint (docs/operating.md, Recovery)";
            return vec![Finding::problem("log.tiles", error.to_string(), advice)];
        }
    };
    let checkpoint = log.checkpoint();
    let tiles = Finding::ok(
        "log.tiles",
        format!("the tiles of {} give the root of its checkpoint, {} entries", checkpoint.origin, log.size()),
    );
    let mut findings = vec![tiles, key(examined, &log), last_seen(examined, &log), lease(&directory)];
    findings.extend(key_file::look("log.key-permissions", &examined.log_key));
    findings
}

/// Whether it can be told if there is a log: not where this user may not look, and not where something lies that a log has not.
fn looked_for(directory: &Path) -> Result<(), String> {
    let checkpoint = directory.join(CHECKPOINT_FILE);
    match std::fs::metadata(&checkpoint) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(format!("{}: expected a file, found a directory, a pipe or a device", checkpoint.display())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(error) => Err(format!("{}: {error}", checkpoint.display())),
    }
}

fn key(examined: &Examined, log: &PublishedLog) -> Finding {
    const ID: &str = "log.key";
    let shown = examined.log_key.display();
    let key = match LogKey::load_pem(&examined.log_key) {
        Ok(key) => key,
        Err(error) => {
            let advice = "name the log's key (log.key, --log-key), and let the server's user read it: without it the server does not start";
            return Finding::problem(ID, error.to_string(), advice);
        }
    };
    let identity = log.checkpoint().origin.parse::<Origin>().ok().and_then(|origin| key.identity(&origin));
    match identity.as_ref().map(|identity| log.verify(identity)) {
        Some(Ok(())) => Finding::ok(ID, format!("{shown} signed the checkpoint")),
        Some(Err(error)) => Finding::problem(
            ID,
            format!("{shown} is not the key of this log: {error}"),
            "name the key that the log was made with (log.key)",
        ),
        None => Finding::problem(
            ID,
            format!("{shown}, or the log's origin, can be no log's"),
            "name the key that the log was made with (log.key)",
        ),
    }
}

/// A log that was put back from a backup has fewer entries than were seen of it, or others.
fn last_seen(examined: &Examined, log: &PublishedLog) -> Finding {
    const ID: &str = "log.last-checkpoint";
    let path = examined.log_last_seen.as_path();
    let shown = path.display();
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && log.size() == 0 => {
            return Finding::ok(ID, "the log is empty, and none was seen of it");
        }
        Err(error) => {
            let advice = "put the file back beside the log's key: without it nobody notices a log that went back, and the server takes no entries";
            return Finding::problem(ID, format!("{shown}: {error}"), advice);
        }
    };
    let forked = "do not write to it: it is not the log that was published. Put the log back from a newer backup (docs/operating.md, Recovery)";
    match SignedCheckpoint::parse(&text).map(|seen| seen.checkpoint) {
        Err(error) => {
            Finding::problem(ID, format!("{shown}: {error}"), "put the file back from a backup of the log's key")
        }
        Ok(seen) if seen.origin != log.checkpoint().origin => Finding::problem(
            ID,
            format!("{shown} is of the log {}, not of {}", seen.origin, log.checkpoint().origin),
            "name this log's key (log.key), beside which its last checkpoint is",
        ),
        Ok(seen) if seen.size > log.size() => Finding::problem(
            ID,
            format!("the log has {} entries, and {} were seen of it", log.size(), seen.size),
            forked,
        ),
        Ok(seen) => match log.root_at(seen.size) {
            Ok(root) if root == seen.root => Finding::ok(
                ID,
                format!("the log goes on from the checkpoint that was seen last, {} entries", seen.size),
            ),
            Ok(_) => Finding::problem(ID, format!("the first {} entries are others than were seen", seen.size), forked),
            Err(error) => Finding::problem(ID, error.to_string(), forked),
        },
    }
}

fn lease(directory: &Path) -> Finding {
    const ID: &str = "log.lease";
    let path = directory.join(LEASE_FILE);
    match holder_of(&path) {
        Holder::Nobody => Finding::ok(ID, "nobody writes to the log"),
        Holder::Server(Some(process)) => Finding::ok(ID, format!("{process} writes to the log")),
        Holder::Server(None) => Finding::ok(ID, "a process writes to the log; the system does not say which"),
        Holder::Unknown(error) => Finding::problem(
            ID,
            format!("{}: {error}", path.display()),
            "give the log to the server's user, or run this as that user",
        ),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    open_plain_file(path)?.take(CHECKPOINT_LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use symseal_sealer::mint_origin;

    use super::*;
    use crate::Config;
    use crate::doctor::Standing::{self, Ok as Fine, Problem};
    use crate::origins::Origins;

    /// A data directory with a log of some entries, which nobody writes to.
    struct Scene {
        folder: tempfile::TempDir,
        examined: Examined,
    }

    impl Scene {
        fn new(entries: u64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let config = Config::new(folder.path().join("data"), ([127, 0, 0, 1], 0).into());
            let (log_key, log_last_seen) = (folder.path().join("log.key.pem"), folder.path().join("last"));
            let examined = Examined {
                config,
                origins: Origins::default(),
                seals: None,
                schedule: None,
                log_key,
                log_last_seen,
                online: false,
            };
            let key = LogKey::generate_file(&examined.log_key).unwrap();
            let directory = examined.config.data.join(LOG_FOLDER);
            drop(TileLog::create(&directory, mint_origin().unwrap(), key, &examined.log_last_seen).unwrap());
            let scene = Self { folder, examined };
            scene.append(0..entries);
            scene
        }

        fn open(&self) -> TileLog {
            let key = LogKey::load_pem(&self.examined.log_key).unwrap();
            TileLog::open(&self.directory(), key, &self.examined.log_last_seen).unwrap()
        }

        fn append(&self, entries: std::ops::Range<u64>) {
            let mut log = self.open();
            for entry in entries {
                log.append(format!("entry {entry}").as_bytes()).unwrap();
            }
        }

        fn directory(&self) -> std::path::PathBuf {
            self.examined.config.data.join(LOG_FOLDER)
        }

        #[track_caller]
        fn check(&self, expected: &[Standing]) {
            let mut found = look(&self.examined);
            // Of the key's file alone.
            found.retain(|it| it.id != "log.key-permissions");
            assert_eq!(found.iter().map(|it| it.standing).collect::<Vec<_>>(), expected, "{found:#?}");
        }
    }

    #[test]
    fn a_log_is_whole_whether_somebody_writes_to_it_or_not() {
        let scene = Scene::new(0);
        scene.check(&[Fine; 4]);
        scene.append(0..5);
        scene.check(&[Fine; 4]);
        let writer = scene.open();
        let lease = look(&scene.examined).into_iter().find(|it| it.id == "log.lease").unwrap();
        assert!(lease.found.contains("writes to the log") && !lease.found.starts_with("nobody"), "{lease:?}");
        drop(writer);
    }

    #[test]
    fn a_log_that_was_put_back_from_a_backup_is_told() {
        let scene = Scene::new(3);
        let backup = fs::read(scene.directory().join("checkpoint")).unwrap();
        scene.append(3..9);
        fs::write(scene.directory().join("checkpoint"), backup).unwrap();
        scene.check(&[Fine, Fine, Problem, Fine]);
    }

    #[test]
    fn a_log_that_forked_has_other_entries_than_were_seen() {
        let (one, other) = (Scene::new(3), Scene::new(0));
        // The same log, with other entries, by the same key.
        fs::copy(&one.examined.log_key, &other.examined.log_key).unwrap();
        fs::remove_dir_all(other.directory()).unwrap();
        fs::remove_file(&other.examined.log_last_seen).unwrap();
        let origin = PublishedLog::open(&one.directory()).unwrap().checkpoint().origin.parse().unwrap();
        let key = LogKey::load_pem(&other.examined.log_key).unwrap();
        drop(TileLog::create(&other.directory(), origin, key, &other.examined.log_last_seen).unwrap());
        other.append(100..104);
        other.check(&[Fine; 4]);
        fs::copy(&one.examined.log_last_seen, &other.examined.log_last_seen).unwrap();
        other.check(&[Fine, Fine, Problem, Fine]);
    }

    #[test]
    fn what_is_damaged_or_gone_is_told() {
        let scene = Scene::new(3);
        fs::rename(&scene.examined.log_last_seen, scene.folder.path().join("away")).unwrap();
        scene.check(&[Fine, Fine, Problem, Fine]);
        let another = Scene::new(1);
        fs::copy(&another.examined.log_last_seen, &scene.examined.log_last_seen).unwrap();
        scene.check(&[Fine, Fine, Problem, Fine]);
        fs::rename(scene.folder.path().join("away"), &scene.examined.log_last_seen).unwrap();
        fs::copy(&another.examined.log_key, &scene.examined.log_key).unwrap();
        scene.check(&[Fine, Problem, Fine, Fine]);
        fs::remove_file(&scene.examined.log_key).unwrap();
        scene.check(&[Fine, Problem, Fine, Fine]);
        let tile = scene.directory().join("tile/0/000.p/3");
        let mut bytes = fs::read(&tile).unwrap();
        bytes[0] ^= 1;
        fs::write(&tile, bytes).unwrap();
        scene.check(&[Problem]);
    }
}
