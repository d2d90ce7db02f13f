//! A program that signs: the way to any key management service.
//!
//! `PROGRAM public-key` prints the public key (PEM, `PUBLIC KEY`). `PROGRAM sign` gets the message on
//! standard input, and its SHA-256 as lower-case hex in the environment variable `SYMSEAL_SHA256` for
//! services that sign a digest; it prints the base64 of the ASN.1 DER signature. Exit status 0 means
//! done; for any other, what stands on standard error is repeated to the user. The program is started
//! without a shell.

use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use symseal_seal::ArtifactPublicKey;
use symseal_seal::encoding::{from_base64, sha256, to_hex};

use super::{SignError, Signer, public_key, quoted};

/// How long a program may take: a service across the world, or a person who touches a key.
pub const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of output that are read; a key or signature is below 1 KiB.
const OUTPUT_LIMIT: usize = 64 * 1024;
/// How often the end of the program is looked for.
const POLL: Duration = Duration::from_millis(5);

/// A key behind a program.
#[derive(Debug)]
pub struct ProgramSigner {
    program: PathBuf,
    public: ArtifactPublicKey,
    limit: Duration,
}

impl ProgramSigner {
    /// Asks the program for its public key. A name without a slash is looked for in `PATH`.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn open(program: &Path) -> Result<Self, SignError> {
        Self::open_within(program, PROGRAM_LIMIT)
    }

    /// [`Self::open`] with another limit on the time of each call.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn open_within(program: &Path, limit: Duration) -> Result<Self, SignError> {
        let signer = name(program);
        let pem = run(program, "public-key", &[], limit)?;
        let failed = |reason: String| SignError::Failed { signer: signer.clone(), reason };
        let document = std::str::from_utf8(&pem)
            .ok()
            .and_then(|pem| pkcs8::Document::from_pem(pem.trim()).ok())
            .filter(|(label, _)| *label == "PUBLIC KEY");
        let (_, spki) = document.ok_or_else(|| {
            failed(format!("`public-key`: expected a PEM block \"PUBLIC KEY\", found {:?}", quoted(&pem)))
        })?;
        let public = public_key(&signer, spki.as_bytes())?;
        Ok(Self { program: program.to_owned(), public, limit })
    }
}

fn name(program: &Path) -> String {
    format!("exec:{}", program.display())
}

impl Signer for ProgramSigner {
    fn public(&self) -> &ArtifactPublicKey {
        &self.public
    }

    fn name(&self) -> String {
        name(&self.program)
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let output = run(&self.program, "sign", message, self.limit)?;
        let text: String = String::from_utf8_lossy(&output).split_whitespace().collect();
        from_base64(&text).ok_or_else(|| SignError::Failed {
            signer: self.name(),
            reason: format!("`sign`: expected the base64 of an ASN.1 DER signature, found {:?}", quoted(&output)),
        })
    }
}

/// Runs the program with one argument; what it printed.
fn run(program: &Path, argument: &str, input: &[u8], limit: Duration) -> Result<Vec<u8>, SignError> {
    let failed =
        |reason: String| SignError::Failed { signer: name(program), reason: format!("`{argument}`: {reason}") };
    let mut child = Command::new(program)
        .arg(argument)
        .env("SYMSEAL_SHA256", to_hex(&sha256(input)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("the program cannot be started: {error}")))?;
    // What the program started may live on and hold the pipes, so nobody waits for these threads.
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // A program that does not read its input is free not to.
        thread::spawn(move || stdin.write_all(&input));
    }
    let stdout = child.stdout.take().map(read_bounded);
    let stderr = child.stderr.take().map(read_bounded);
    let deadline = Instant::now() + limit;
    let mut printed = None;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(error.to_string()))? {
            break status;
        }
        printed = printed.or_else(|| stdout.as_ref().and_then(|stdout| stdout.try_recv().ok()));
        if printed.as_deref().is_some_and(is_flood) {
            stop(&mut child);
            return Err(failed(flood()));
        }
        if Instant::now() >= deadline {
            stop(&mut child);
            return Err(failed(format!("no answer within {} seconds; it was stopped", limit.as_secs())));
        }
        thread::sleep(POLL);
    };
    // The pipes are at their end when the program is; a moment is for the threads that read them.
    let until = deadline.max(Instant::now() + Duration::from_secs(1));
    let taken = |from: Option<mpsc::Receiver<Vec<u8>>>| {
        from.and_then(|from| from.recv_timeout(until.saturating_duration_since(Instant::now())).ok())
    };
    if !status.success() {
        let said = taken(stderr).unwrap_or_default();
        return Err(failed(format!("it ended with {status} and said: {}", quoted(&said))));
    }
    let stdout = printed.or_else(|| taken(stdout)).ok_or_else(|| failed("its output did not end with it".into()))?;
    if is_flood(&stdout) { Err(failed(flood())) } else { Ok(stdout) }
}

fn is_flood(printed: &[u8]) -> bool {
    printed.len() > OUTPUT_LIMIT
}

fn flood() -> String {
    format!("expected at most {OUTPUT_LIMIT} bytes of output, found more")
}

/// Ends a program that is waited for no longer. One that has ended already needs no end.
fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads a pipe, and hands over all of it at its end, or its start as soon as it is one byte above the limit.
fn read_bounded<R: Read + Send + 'static>(mut pipe: R) -> mpsc::Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut start = Vec::new();
        let _ = pipe.by_ref().take(OUTPUT_LIMIT as u64 + 1).read_to_end(&mut start);
        let _ = tell.send(start);
        // What follows is read and dropped, so that the program does not hang on a full pipe.
        let _ = io::copy(&mut pipe, &mut io::sink());
    });
    told
}
