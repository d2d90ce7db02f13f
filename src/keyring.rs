//! The files of the embedded default: three keys for three roles in one directory, and the log that
//! they belong to.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use symseal_sealer::{ArtifactKey, LogKey, Passphrase, TileLog, mint_origin};

/// Signs bundles.
pub const ARTIFACT_KEY: &str = "artifact.key.pem";
/// Its public half.
pub const ARTIFACT_PUBLIC: &str = "artifact.pub.pem";
/// Signs the trust directory; can be taken offline afterwards.
pub const ROOT_KEY: &str = "root.key.pem";
/// Signs the log's checkpoints. Never the artifact key: a log that the signer signs proves nothing.
pub const LOG_KEY: &str = "log.key.pem";
/// How the name ends under which a log's last checkpoint is kept, beside its key and away from the log, so that a restored backup is noticed.
const LAST_CHECKPOINT: &str = ".last-checkpoint";

/// Makes the three keys in `dir`, which must not hold any of them. With a passphrase the artifact and the root key are
/// encrypted; the log key signs whenever something is logged, with nobody there to ask.
pub fn generate(dir: &Path, passphrase: Option<&Passphrase>) -> Result<ArtifactKey> {
    fs::create_dir_all(dir).with_context(|| format!("keys {}: the directory cannot be made", dir.display()))?;
    for name in [ARTIFACT_KEY, ARTIFACT_PUBLIC, ROOT_KEY, LOG_KEY] {
        if dir.join(name).exists() {
            bail!(
                "keys {}: {name} is there already; keys are never overwritten: name another directory",
                dir.display()
            );
        }
    }
    let artifact = ArtifactKey::generate()?;
    artifact.write_as(&dir.join(ARTIFACT_KEY), passphrase)?;
    let public = dir.join(ARTIFACT_PUBLIC);
    fs::write(&public, artifact.public().to_pem()).with_context(|| format!("key {}", public.display()))?;
    ArtifactKey::generate()?.write_as(&dir.join(ROOT_KEY), passphrase)?;
    LogKey::generate_file(&dir.join(LOG_KEY))?;
    Ok(artifact)
}

/// The file `name` in the directory of `key`.
pub fn beside(key: &Path, name: &str) -> PathBuf {
    key.with_file_name(name)
}

/// Where the last checkpoint of the log of this key is kept: `log.last-checkpoint` for `log.key.pem`. Each key has its own, so that the keys of several
/// logs may lie in one folder.
pub(crate) fn last_checkpoint(log_key: &Path) -> PathBuf {
    let name = log_key.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".pem").map_or(&*name, |stem| stem.strip_suffix(".key").unwrap_or(stem));
    beside(log_key, &format!("{stem}{LAST_CHECKPOINT}"))
}

/// Opens the log in `dir`, or makes it with a fresh origin where there is none. This process then holds its lease.
pub fn open_or_create_log(dir: &Path, log_key: &Path) -> Result<TileLog> {
    open_or_create_log_with(dir, LogKey::load_pem(log_key)?, log_key)
}

/// The same with the key that was read from `log_key`.
pub fn open_or_create_log_with(dir: &Path, key: LogKey, log_key: &Path) -> Result<TileLog> {
    let last_seen = last_checkpoint(log_key);
    if TileLog::exists(dir) {
        return Ok(TileLog::open(dir, key, &last_seen)?);
    }
    if dir.exists() && !dir.is_dir() {
        bail!("log {}: expected a directory, found a file; name the log's directory with --log", dir.display());
    }
    if last_seen.exists() {
        bail!(
            "log {}: there is no log here, and the key {} belongs to another one already ({} remembers it); \
             give --log that log's directory, or --log-key a key of its own",
            dir.display(),
            log_key.display(),
            last_seen.display()
        );
    }
    Ok(TileLog::create(dir, mint_origin()?, key, &last_seen)?)
}
