//! Key files on the disk: written whole and once, read as one PEM block, decrypted where that is needed.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use pkcs8::SecretDocument;
use pkcs8::der::pem;
use zeroize::Zeroizing;

use super::{AskPassphrase, DecryptError, KeyFileError, Passphrase, content, cosign, encoding_failed, pbes2};
use crate::durable::{directory_of, sync_directory};

/// More than any key file; bounds what is read of a wrong file.
const KEY_FILE_LIMIT: u64 = 64 * 1024;
const PLAIN: &str = "PRIVATE KEY";
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

/// Writes a PKCS#8 document to a new file, encrypted where there is a passphrase.
pub(super) fn write_pkcs8(path: &Path, pkcs8: &[u8], passphrase: Option<&Passphrase>) -> Result<(), KeyFileError> {
    let encode = |label, der: &[u8]| {
        pem::encode_string(label, pem::LineEnding::LF, der)
            .map(Zeroizing::new)
            .map_err(|error| encoding_failed(path, &error))
    };
    let pem = match passphrase {
        None => encode(PLAIN, pkcs8)?,
        Some(passphrase) => encode(ENCRYPTED, pbes2::encrypt(pkcs8, passphrase)?.as_bytes())?,
    };
    write_private(path, pem.as_bytes())
}

/// Writes a private file that does not exist yet; readable by its owner alone from its first byte on.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    let io = |doing| move |source| KeyFileError::Io { path: path.to_owned(), doing, source };
    let directory = directory_of(path);
    if path.symlink_metadata().is_ok() {
        return Err(KeyFileError::Exists { path: path.to_owned() });
    }
    // `tempfile` makes files of mode 0600, whatever the umask.
    let mut file =
        tempfile::Builder::new().prefix(".key-").tempfile_in(directory).map_err(io("create a file beside it"))?;
    file.write_all(bytes).map_err(io("write it"))?;
    file.as_file().sync_all().map_err(io("write it"))?;
    file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
        _ => KeyFileError::Io { path: path.to_owned(), doing: "put it in place", source: error.error },
    })?;
    sync_directory(directory).map_err(io("make it durable"))
}

/// Reads the PKCS#8 document of a key file.
pub(super) fn read_pkcs8(
    path: &Path,
    expected: &'static str,
    ask: &AskPassphrase<'_>,
) -> Result<SecretDocument, KeyFileError> {
    let text = read_text(path, expected)?;
    let kind = |found: String| KeyFileError::Kind { path: path.to_owned(), expected, found };
    let encrypted = |source: DecryptError| KeyFileError::Encrypted { path: path.to_owned(), source };
    let label = text
        .lines()
        .find_map(|line| line.trim_end().strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")))
        .unwrap_or_default();
    let readable = label == PLAIN || label == ENCRYPTED || cosign::LABELS.contains(&label);
    if !readable {
        return Err(kind(content::of_label(label)));
    }
    let Ok((_, body)) = pem::decode_vec(text.as_bytes()) else {
        return Err(kind(content::of_label(PLAIN)));
    };
    let body = Zeroizing::new(body);
    if label == PLAIN {
        return SecretDocument::try_from(body.as_slice()).map_err(|_| kind(content::of_label(PLAIN)));
    }
    let passphrase = ask(&format!("key {}", path.display()))
        .map_err(|source| KeyFileError::Passphrase { path: path.to_owned(), source })?;
    let decrypt = if label == ENCRYPTED { pbes2::decrypt } else { cosign::decrypt };
    decrypt(&body, &passphrase).map_err(encrypted)
}

fn read_text(path: &Path, expected: &'static str) -> Result<Zeroizing<String>, KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), doing: "read it", source };
    let kind = |found: String| KeyFileError::Kind { path: path.to_owned(), expected, found };
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(kind("no regular file".into()));
    }
    if metadata.len() > KEY_FILE_LIMIT {
        return Err(kind(format!("{} bytes", metadata.len())));
    }
    let bytes = Zeroizing::new(fs::read(path).map_err(io)?);
    let text = std::str::from_utf8(&bytes).map_err(|_| kind("bytes that are no text".into()))?;
    Ok(Zeroizing::new(text.to_owned()))
}
