//! Where passphrases and PINs come from: the terminal, an environment variable, a file descriptor.

use std::cell::RefCell;
use std::io::{IsTerminal as _, Read as _};

use anyhow::{Result, bail};
use clap::Args as ClapArgs;
use symseal_sealer::{Passphrase, PassphraseError};

/// The longest passphrase that is read, in bytes.
const LIMIT: u64 = 4096;

/// Where the passphrase of an encrypted key, or the PIN of a token, comes from. Without either it is asked for on the
/// terminal.
#[derive(ClapArgs, Clone, Default)]
pub struct PassphraseArgs {
    /// Take the passphrase of an encrypted key, or a token's PIN, from this environment variable.
    #[arg(long, value_name = "VAR", conflicts_with = "passphrase_fd")]
    passphrase_env: Option<String>,
    /// Read it from this file descriptor, up to a line feed or the end.
    #[arg(long, value_name = "N")]
    passphrase_fd: Option<u32>,
}

/// A [`PassphraseArgs`] in use: what a descriptor gave is read once.
pub struct Passphrases<'a> {
    args: &'a PassphraseArgs,
    from_descriptor: RefCell<Option<Passphrase>>,
}

impl PassphraseArgs {
    /// Whether a source other than the terminal is named.
    pub fn is_given(&self) -> bool {
        self.passphrase_env.is_some() || self.passphrase_fd.is_some()
    }

    /// The source, to be asked for each thing that is encrypted.
    pub fn source(&self) -> Passphrases<'_> {
        Passphrases { args: self, from_descriptor: RefCell::new(None) }
    }
}

impl Passphrases<'_> {
    /// The passphrase of what is named; asks on the terminal if nothing else was said.
    pub fn ask(&self, name: &str) -> Result<Passphrase, PassphraseError> {
        if let Some(variable) = &self.args.passphrase_env {
            return from_environment(variable);
        }
        if let Some(descriptor) = self.args.passphrase_fd {
            let mut read = self.from_descriptor.borrow_mut();
            if read.is_none() {
                *read = Some(from_descriptor(descriptor)?);
            }
            return read.clone().ok_or_else(|| refused("nothing was read"));
        }
        prompt(&format!("Passphrase of {name}: "))
    }

    /// A passphrase for new keys: one that is typed is typed twice.
    pub fn new_one(&self, name: &str) -> Result<Passphrase> {
        let first = if self.args.is_given() {
            self.ask(name)?
        } else {
            let first = prompt(&format!("New passphrase of {name}: "))?;
            if first.as_bytes() != prompt("The same again: ")?.as_bytes() {
                bail!("the two passphrases differ; nothing was written");
            }
            first
        };
        if first.is_empty() {
            bail!("expected a passphrase, found an empty one; nothing was written");
        }
        Ok(first)
    }
}

fn refused(reason: impl Into<String>) -> PassphraseError {
    PassphraseError { reason: reason.into() }
}

fn from_environment(variable: &str) -> Result<Passphrase, PassphraseError> {
    match std::env::var(variable) {
        Ok(value) => Ok(Passphrase::new(value.into_bytes())),
        Err(std::env::VarError::NotPresent) => Err(refused(format!("the environment variable {variable} is not set"))),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(refused(format!("the environment variable {variable} is not UTF-8")))
        }
    }
}

/// Through the file system, where every Unix has descriptors: no other way to take one is safe from closing it twice.
#[cfg(unix)]
#[allow(clippy::unbuffered_bytes, reason = "what follows the line is for somebody else, and must stay unread")]
fn from_descriptor(descriptor: u32) -> Result<Passphrase, PassphraseError> {
    let failed = |error: std::io::Error| refused(format!("file descriptor {descriptor} cannot be read: {error}"));
    let file = std::fs::File::open(format!("/dev/fd/{descriptor}")).map_err(failed)?;
    let mut bytes = Vec::new();
    // A byte at a time.
    for byte in file.take(LIMIT + 1).bytes() {
        match byte.map_err(failed)? {
            b'\n' => break,
            byte => bytes.push(byte),
        }
    }
    if bytes.len() as u64 > LIMIT {
        return Err(refused(format!("expected a line of at most {LIMIT} bytes on file descriptor {descriptor}")));
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    Ok(Passphrase::new(bytes))
}

#[cfg(not(unix))]
fn from_descriptor(_descriptor: u32) -> Result<Passphrase, PassphraseError> {
    Err(refused("file descriptors are a matter of Unix; use --passphrase-env"))
}

fn prompt(text: &str) -> Result<Passphrase, PassphraseError> {
    let nobody = "nobody can be asked: there is no terminal; use --passphrase-env or --passphrase-fd";
    if !std::io::stderr().is_terminal() && !std::io::stdin().is_terminal() {
        return Err(refused(nobody));
    }
    rpassword::prompt_password(text)
        .map(|typed| Passphrase::new(typed.into_bytes()))
        .map_err(|error| refused(format!("{nobody} ({error})")))
}
