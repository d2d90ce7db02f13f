//! Sigstore bundles that others made: v0.1 to v0.3, message signatures and DSSE envelopes, certificates of an identity and
//! keys of one's own, Rekor v1 and v2.
//!
//! What has to hold is the [Sigstore client specification](https://github.com/sigstore/architecture-docs/blob/main/client-spec.md)
//! with its specification of Rekor v2. The crates of sigstore-rust do most of it; [`log`] and [`shape`] ask for what
//! the specifications say and those crates let pass, and [`translate`] is for the entries that they do not read. None of their
//! types leaves this module.
//!
//! For symseal's own seals there is [`symseal_seal::verify_seal`], which also knows names, roles, thresholds and
//! revocation. No network, and no time but the clock's, which bounds times in the future.

mod checks;
mod log;
mod provider;
mod rekor_v1;
mod rekor_v2;
mod shape;
mod translate;

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _};

use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sigstore_trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot};
use sigstore_types::bundle::VerificationMaterialContent;
use sigstore_types::{Bundle, DerPublicKey, HashAlgorithm, KindVersion, Sha256Hash, SignatureContent};
use sigstore_verify::{Policy, PublicKeyVerificationPolicy, VerificationPolicy, VerificationResult, Verifier};
use symseal_seal::{Hash, UtcSeconds};

pub use checks::{CATALOGUE, ForeignCheck, Refusal, id};

#[cfg(feature = "keyless")]
pub(crate) use provider::install as install_provider;

/// The largest bundle that is read, in bytes. An attestation carries its statement in the bundle.
pub const BUNDLE_LIMIT: u64 = 32 << 20;
/// The largest trusted root that is read, in bytes; Sigstore's own has some ten thousand.
pub const ROOT_LIMIT: u64 = 4 << 20;
/// How the media type of a trusted root begins, of whichever version.
const ROOT_MEDIA_TYPE: &str = "application/vnd.dev.sigstore.trustedroot";
/// The largest file whose signature is checked where a scheme needs the file in memory, in bytes.
pub const MEMORY_LIMIT: u64 = 1 << 30;
/// The most log entries of a bundle that are looked at.
const MAX_ENTRIES: usize = 32;

/// Whom to trust: certificate authorities, logs and timestamp authorities.
pub struct ForeignRoot {
    root: TrustedRoot,
    verifier: Verifier,
}

/// A trusted root or a key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ForeignRootError {
    /// The trusted root is malformed, or holds what cannot be a key or a certificate.
    #[error("expected a Sigstore trusted root, found {found}")]
    Root {
        /// What is wrong with it.
        found: String,
    },
    /// The public key is malformed.
    #[error("expected a public key in PEM (SubjectPublicKeyInfo), found {found}")]
    Key {
        /// What is wrong with it.
        found: String,
    },
}

impl ForeignRoot {
    /// Reads a `trusted_root.json`.
    ///
    /// # Errors
    /// [`ForeignRootError::Root`].
    pub fn parse(json: &[u8]) -> Result<Self, ForeignRootError> {
        provider::install();
        let wrong = |found: String| ForeignRootError::Root { found };
        let text = std::str::from_utf8(json).map_err(|error| wrong(error.to_string()))?;
        shape::check_keys(text).map_err(wrong)?;
        let root = TrustedRoot::from_json(text).map_err(|error| wrong(error.to_string()))?;
        // All of its lists may be empty, so that many another document would pass for one.
        if !root.media_type.starts_with(ROOT_MEDIA_TYPE) {
            return Err(wrong(format!("the media type {:?}", root.media_type)));
        }
        let verifier = Verifier::new(&root).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { root, verifier })
    }

    /// The root of Sigstore's public-good instance, as it was when this program was built.
    ///
    /// # Errors
    /// [`ForeignRootError::Root`], which no build has.
    pub fn public_good() -> Result<Self, ForeignRootError> {
        Self::parse(SIGSTORE_PRODUCTION_TRUSTED_ROOT.as_bytes())
    }
}

/// Whose signature is expected.
pub enum ForeignSigner {
    /// A key of one's own.
    Key(ForeignKey),
    /// A certificate for this identity, vouched for by this OIDC issuer; both compared to the byte.
    Certificate {
        /// The certificate's subject alternative name: an address or a URI.
        identity: String,
        /// Who identified it.
        issuer: String,
    },
}

/// A public key: ECDSA on P-256 or P-384, Ed25519, RSA.
pub struct ForeignKey(DerPublicKey);

impl ForeignKey {
    /// Reads a PEM file with a `PUBLIC KEY`.
    ///
    /// # Errors
    /// [`ForeignRootError::Key`].
    pub fn parse(pem: &str) -> Result<Self, ForeignRootError> {
        let wrong = |found: String| ForeignRootError::Key { found };
        let key = DerPublicKey::from_pem(pem).map_err(|error| wrong(error.to_string()))?;
        sigstore_crypto::KeyAlgorithm::from_spki(&key).map_err(|error| wrong(error.to_string()))?;
        Ok(Self(key))
    }

    /// SHA-256 of the key's SubjectPublicKeyInfo.
    #[must_use]
    pub fn sha256(&self) -> Hash {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// What the bundle is to be about.
pub enum ForeignArtifact<'a> {
    /// The file itself, read from its start.
    File(&'a mut File),
    /// Its SHA-256.
    Sha256(Hash),
}

impl ForeignArtifact<'_> {
    /// A digest of the artifact, which is read for it from its start.
    fn digest(&mut self, algorithm: HashAlgorithm) -> Result<Vec<u8>, Refusal> {
        let unsupported = |found: String| Refusal::new(id::SUPPORTED, found);
        match (self, algorithm) {
            (Self::Sha256(digest), HashAlgorithm::Sha2256) => Ok(digest.to_vec()),
            (Self::Sha256(_), other) => Err(unsupported(format!(
                "a log entry with a digest by {other}, which does not follow from a SHA-256: expected the file itself"
            ))),
            (Self::File(file), HashAlgorithm::Sha2256) => hash_file::<Sha256>(file),
            (Self::File(file), HashAlgorithm::Sha2384) => hash_file::<Sha384>(file),
            (Self::File(file), HashAlgorithm::Sha2512) => hash_file::<Sha512>(file),
            (Self::File(_), other) => Err(unsupported(format!("a digest by {other}"))),
        }
    }
}

fn hash_file<D: sha2::Digest>(file: &mut File) -> Result<Vec<u8>, Refusal> {
    let unread = |error: std::io::Error| Refusal::new(id::ARTIFACT_READ, error.to_string());
    file.rewind().map_err(unread)?;
    let mut hasher = D::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(unread)? {
            0 => return Ok(hasher.finalize().to_vec()),
            read => hasher.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

/// What a bundle that holds says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFacts {
    /// The bundle's media type, which has its version.
    pub media_type: String,
    /// Whether a DSSE envelope is signed, else the artifact itself.
    pub dsse: bool,
    /// The statement's predicate type, of an envelope.
    pub predicate_type: Option<String>,
    /// The certificate's identity, where there is a certificate.
    pub identity: Option<String>,
    /// Its issuer, likewise.
    pub issuer: Option<String>,
    /// The entries in transparency logs: the log's address, the index.
    pub entries: Vec<(String, u64)>,
    /// When it was signed, by the timestamp authorities and logs that say so.
    pub times: Vec<UtcSeconds>,
}

/// Verifies a bundle. Every check of [`CATALOGUE`] that applies is run; the first that fails is the refusal.
///
/// # Errors
/// The [`Refusal`] names the check and says what was found.
pub fn verify_foreign(
    bundle: &[u8],
    artifact: ForeignArtifact<'_>,
    signer: &ForeignSigner,
    root: &ForeignRoot,
) -> Result<ForeignFacts, Refusal> {
    provider::install();
    let mut artifact = artifact;
    let text = std::str::from_utf8(bundle).map_err(|error| Refusal::new(id::BUNDLE_FORM, error.to_string()))?;
    shape::check(text).map_err(|found| Refusal::new(id::BUNDLE_FORM, found))?;
    // A bundle may have many entries: the artifact is read once for each algorithm, not once for each of them.
    let mut digests: Vec<(HashAlgorithm, Vec<u8>)> = Vec::new();
    let translated = translate::translate(text, |algorithm| {
        if let Some((_, digest)) = digests.iter().find(|(of, _)| *of == algorithm) {
            return Ok(digest.clone());
        }
        let digest = artifact.digest(algorithm)?;
        digests.push((algorithm, digest.clone()));
        Ok(digest)
    })?;
    let bundle = parse(translated.as_ref().map_or(text, |translated| &translated.json))?;
    let has_key = matches!(bundle.verification_material.content, VerificationMaterialContent::PublicKey(_));
    let is_read = translated.is_none();
    let logged = provider::Logged {
        promises: translated.as_ref().map(|translated| translated.promises.clone()).unwrap_or_default(),
        in_v1_alone: is_in_v1_alone(&bundle),
    };
    let result = provider::with_entries(logged, || match signer {
        ForeignSigner::Key(key) if has_key => {
            let policy = PublicKeyVerificationPolicy::new(key.0.clone());
            let policy = if is_read { policy } else { policy.skip_tlog_unsafe() };
            verify_artifact(root, &bundle, artifact, &policy)
        }
        ForeignSigner::Certificate { identity, issuer } if !has_key => {
            let policy = VerificationPolicy::new(identity, issuer);
            let policy = if is_read { policy } else { policy.skip_tlog_unsafe() };
            verify_artifact(root, &bundle, artifact, &policy)
        }
        ForeignSigner::Key(_) => Err(Refusal::of(id::SIGNER_KIND, "a bundle of a key", "one with a certificate")),
        ForeignSigner::Certificate { .. } => {
            Err(Refusal::of(id::SIGNER_KIND, "a bundle with a certificate", "one of a key"))
        }
    })?;
    let mut times: Vec<UtcSeconds> =
        result.verified_timestamps().iter().map(|time| UtcSeconds(time.as_second())).collect();
    if let Some(translated) = &translated {
        // What was left out of the crate's verification, over the entries as they were logged.
        let logged = log::check_inclusion(&bundle, &translated.bodies, &root.root)?;
        // Of a certificate's signature the crate has them already.
        times.extend(if has_key { logged } else { Vec::new() });
    }
    log::check(&bundle, &root.root, &result)?;
    Ok(ForeignFacts { times, ..facts(&bundle, &root.root, &result) })
}

/// Whether every log entry is one of a Rekor v1, and there is one.
fn is_in_v1_alone(bundle: &Bundle) -> bool {
    let entries = &bundle.verification_material.tlog_entries;
    !entries.is_empty() && entries.iter().all(|entry| entry.kind_version != KindVersion::HashedRekordV002)
}

/// Reads a bundle's JSON, and holds it to what there may be once.
fn parse(text: &str) -> Result<Bundle, Refusal> {
    let malformed = |found: String| Refusal::new(id::BUNDLE_FORM, found);
    let bundle = Bundle::from_json(text).map_err(|error| malformed(error.to_string()))?;
    let entries = &bundle.verification_material.tlog_entries;
    if entries.len() > MAX_ENTRIES {
        let count = entries.len();
        let expected = format!("at most {MAX_ENTRIES} log entries");
        return Err(Refusal::of(id::BUNDLE_FORM, expected, count.to_string()));
    }
    // Whoever counts entries must not count one twice; sigstore-go refuses it, too.
    let mut places = HashSet::new();
    if let Some(twice) =
        entries.iter().find(|entry| !places.insert((entry.log_id.key_id.as_bytes(), entry.log_index.get())))
    {
        let found = format!("the entry {} of the log {} twice", twice.log_index.get(), twice.log_id.key_id);
        return Err(Refusal::of(id::BUNDLE_FORM, "each log entry once", found));
    }
    if let (VerificationMaterialContent::PublicKey(key), SignatureContent::DsseEnvelope(envelope)) =
        (&bundle.verification_material.content, &bundle.content)
    {
        let keyid = envelope.signature.keyid.as_str();
        if !keyid.is_empty() && !key.hint.is_empty() && keyid != key.hint {
            let expected = format!("a key id of the envelope that is the hint, {:?}", key.hint);
            return Err(Refusal::of(id::BUNDLE_FORM, expected, format!("{keyid:?}")));
        }
    }
    Ok(bundle)
}

/// Most schemes sign a digest, so that a file of any size is read once and never held; others need it in memory.
fn verify_artifact(
    root: &ForeignRoot,
    bundle: &Bundle,
    artifact: ForeignArtifact<'_>,
    policy: &dyn Policy,
) -> Result<VerificationResult, Refusal> {
    log::check_ids(bundle, &root.root)?;
    let verifier = &root.verifier;
    let unread = |error: std::io::Error| Refusal::new(id::ARTIFACT_READ, error.to_string());
    match artifact {
        ForeignArtifact::Sha256(digest) => {
            let verify = || verifier.verify(Sha256Hash::new(digest), bundle, policy);
            match provider::without_message(verify) {
                (Err(error), true) => Err(Refusal::new(id::SUPPORTED, format!("{error}: expected the file itself"))),
                (answer, _) => answer.map_err(|error| checks::refusal(&error)),
            }
        }
        ForeignArtifact::File(file) => {
            file.rewind().map_err(unread)?;
            let (answer, wanted) = provider::without_message(|| verifier.verify_reader(&mut *file, bundle, policy));
            match answer {
                Err(sigstore_verify::Error::UnsupportedArtifact(_)) => {}
                Err(_) if wanted => {}
                answer => return answer.map_err(|error| checks::refusal(&error)),
            }
            let size = file.metadata().map_err(unread)?.len();
            if size > MEMORY_LIMIT {
                let found =
                    format!("a file of {size} bytes; a key of this kind is checked over {MEMORY_LIMIT} at most");
                return Err(Refusal::new(id::SUPPORTED, found));
            }
            file.rewind().map_err(unread)?;
            let mut bytes = Vec::new();
            file.take(MEMORY_LIMIT).read_to_end(&mut bytes).map_err(unread)?;
            provider::with_message(bytes, |bytes| verifier.verify(bytes, bundle, policy))
                .map_err(|error| checks::refusal(&error))
        }
    }
}

fn facts(bundle: &Bundle, root: &TrustedRoot, result: &VerificationResult) -> ForeignFacts {
    let entry = |entry: &sigstore_types::TransparencyLogEntry| {
        let log = log::trusted(entry, root);
        (log.map(|log| log.base_url.clone()).unwrap_or_default(), entry.log_index.get())
    };
    let predicate_type = match &bundle.content {
        SignatureContent::DsseEnvelope(envelope) => predicate_type(envelope.payload.as_bytes()),
        _ => None,
    };
    ForeignFacts {
        media_type: bundle.media_type().as_str().to_owned(),
        dsse: matches!(bundle.content, SignatureContent::DsseEnvelope(_)),
        predicate_type,
        identity: result.identity().map(|identity| identity.as_str().to_owned()),
        issuer: result.issuer().map(str::to_owned),
        entries: bundle.verification_material.tlog_entries.iter().map(entry).collect(),
        times: Vec::new(),
    }
}

fn predicate_type(statement: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Statement {
        predicate_type: String,
    }
    serde_json::from_slice::<Statement>(statement).ok().map(|statement| statement.predicate_type)
}
