//! The cryptography that `sigstore-crypto` asks for, from crates that are in the tree already: `sha2`, `p256` and
//! `ring`. Its own provider would bring aws-lc, a build in C of several minutes.

use std::cell::{Cell, RefCell};

#[cfg(feature = "keyless")]
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use ring::signature::{self as ring_signature, UnparsedPublicKey, VerificationAlgorithm};
use sha2::{Digest, Sha256, Sha384, Sha512};
use sigstore_crypto::{CryptoProvider, Error, HashContext, SigningScheme};
#[cfg(feature = "keyless")]
use sigstore_crypto::{KeyAlgorithm, SigningKeyPair};
use sigstore_types::HashAlgorithm;

thread_local! {
    /// The artifact's bytes, for schemes whose signature can only be checked over the message itself.
    static MESSAGE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    /// Whether a scheme asked for them while they were not there.
    static WANTED: Cell<bool> = const { Cell::new(false) };
    /// How the bundle that is verified was logged.
    static LOGGED: RefCell<Logged> = const { RefCell::new(Logged { promises: Vec::new(), in_v1_alone: false }) };
}

/// How a bundle was logged, as far as its signatures depend on it.
#[derive(Default)]
pub(super) struct Logged {
    /// Of entries that have another form now.
    pub(super) promises: Vec<Promise>,
    /// Whether it has entries of a Rekor v1, and no others.
    pub(super) in_v1_alone: bool,
}

/// What a log signed of an entry that sigstore-rust is given in another form.
#[derive(Clone)]
pub(super) struct Promise {
    /// What sigstore-rust will ask for.
    pub(super) asked: Vec<u8>,
    /// What the log signed.
    pub(super) logged: Vec<u8>,
}

/// Runs `verify` for a bundle that was logged so.
pub(super) fn with_entries<T>(logged: Logged, verify: impl FnOnce() -> T) -> T {
    LOGGED.set(logged);
    let answer = verify();
    LOGGED.take();
    answer
}

/// Makes this provider the process's; another that was installed before stays.
pub(crate) fn install() {
    let _ = sigstore_crypto::install_default_provider(&PROVIDER);
}

/// Runs `verify` with the artifact's bytes at hand.
pub(super) fn with_message<T>(message: Vec<u8>, verify: impl FnOnce(&[u8]) -> T) -> T {
    // The provider gets its copy; the caller's stays with the caller.
    MESSAGE.with_borrow_mut(|slot| *slot = Some(message.clone()));
    let answer = verify(&message);
    MESSAGE.with_borrow_mut(|slot| *slot = None);
    answer
}

/// Runs `verify` and says whether it failed for want of the artifact's bytes.
pub(super) fn without_message<T>(verify: impl FnOnce() -> T) -> (T, bool) {
    WANTED.set(false);
    let answer = verify();
    (answer, WANTED.replace(false))
}

/// How everything that an envelope's signature is over begins.
const ENVELOPE: &[u8] = b"DSSEv1 ";

static PROVIDER: Provider = Provider;

#[derive(Debug)]
struct Provider;

struct Hasher<D>(D);

impl<D: Digest + Send> HashContext for Hasher<D> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

pub(super) fn digest(algorithm: HashAlgorithm, data: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        HashAlgorithm::Sha2256 => Some(Sha256::digest(data).to_vec()),
        HashAlgorithm::Sha2384 => Some(Sha384::digest(data).to_vec()),
        HashAlgorithm::Sha2512 => Some(Sha512::digest(data).to_vec()),
        _ => None,
    }
}

fn algorithm(scheme: SigningScheme) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match scheme {
        SigningScheme::EcdsaP256Sha256 => &ring_signature::ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &ring_signature::ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &ring_signature::ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &ring_signature::ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &ring_signature::ED25519,
        SigningScheme::RsaPssSha256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
        _ => return None,
    })
}

fn invalid(scheme: SigningScheme) -> Error {
    Error::Verification(format!("the {} signature does not verify", scheme.name()))
}

impl CryptoProvider for Provider {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Error> {
        Ok(match algorithm {
            HashAlgorithm::Sha2256 => Box::new(Hasher(Sha256::new())),
            HashAlgorithm::Sha2384 => Box::new(Hasher(Sha384::new())),
            HashAlgorithm::Sha2512 => Box::new(Hasher(Sha512::new())),
            other => return Err(Error::UnsupportedAlgorithm(format!("{other} digests cannot be computed"))),
        })
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signature: &[u8]) -> Result<(), Error> {
        let Some(algorithm) = algorithm(scheme) else {
            return Err(Error::UnsupportedAlgorithm(format!("{} signatures cannot be verified", scheme.name())));
        };
        let verify = |algorithm, data: &[u8]| UnparsedPublicKey::new(algorithm, key).verify(data, signature);
        let answer = LOGGED.with_borrow(|logged| {
            let promise = logged.promises.iter().find(|promise| promise.asked == data);
            let answer = verify(algorithm, promise.map_or(data, |promise| &promise.logged));
            // An envelope does not say its digest. Before there was a registry of algorithms, SHA-256 went with every curve, and
            // whoever logged in a Rekor v1 may have signed so.
            let is_old = logged.in_v1_alone && data.starts_with(ENVELOPE) && scheme == SigningScheme::EcdsaP384Sha384;
            if is_old { answer.or_else(|_| verify(&ring_signature::ECDSA_P384_SHA256_ASN1, data)) } else { answer }
        });
        answer.map_err(|_| invalid(scheme))
    }

    /// Over P-256 the digest is enough. `ring` verifies the other schemes over the message alone: it is used where it is
    /// at hand and has this very digest.
    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        digested: &[u8],
        signature: &[u8],
    ) -> Result<(), Error> {
        if matches!(scheme, SigningScheme::EcdsaP256Sha256 | SigningScheme::EcdsaP256Sha384) {
            let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(key).map_err(|_| invalid(scheme))?;
            let signature = p256::ecdsa::Signature::from_der(signature).map_err(|_| invalid(scheme))?;
            return key.verify_prehash(digested, &signature).map_err(|_| invalid(scheme));
        }
        MESSAGE.with_borrow(|message| {
            let Some(message) = message else {
                WANTED.set(true);
                return Err(Error::UnsupportedAlgorithm(format!(
                    "{} signatures are verified over the file itself, not over its digest",
                    scheme.name()
                )));
            };
            let same = scheme.hash_algorithm().and_then(|algorithm| digest(algorithm, message));
            if same.as_deref() != Some(digested) {
                return Err(invalid(scheme));
            }
            self.verify_raw(scheme, key, message, signature)
        })
    }

    #[cfg(feature = "keyless")]
    fn generate_key_pair(&self, algorithm: KeyAlgorithm) -> Result<Box<dyn SigningKeyPair>, Error> {
        if algorithm != KeyAlgorithm::EcdsaP256 {
            return Err(Error::UnsupportedAlgorithm(format!(
                "no key of {algorithm:?} can be made, only of ECDSA P-256"
            )));
        }
        let key = crate::ArtifactKey::generate().map_err(|error| Error::Signing(error.to_string()))?.into_signing_key();
        let public = key.verifying_key().to_sec1_point(false).as_bytes().to_vec();
        Ok(Box::new(EphemeralKey { key, public }))
    }
}

/// A key for one signature.
#[cfg(feature = "keyless")]
struct EphemeralKey {
    key: p256::ecdsa::SigningKey,
    /// The uncompressed point.
    public: Vec<u8>,
}

#[cfg(feature = "keyless")]
impl SigningKeyPair for EphemeralKey {
    fn algorithm(&self) -> KeyAlgorithm {
        KeyAlgorithm::EcdsaP256
    }

    fn public_key_bytes(&self) -> &[u8] {
        &self.public
    }

    fn sign_raw(&self, data: &[u8]) -> Result<Vec<u8>, Error> {
        self.sign_prehashed(&Sha256::digest(data))
    }

    fn sign_prehashed(&self, digest: &[u8]) -> Result<Vec<u8>, Error> {
        let signature: p256::ecdsa::Signature =
            self.key.sign_prehash(digest).map_err(|error| Error::Signing(error.to_string()))?;
        Ok(signature.to_der().as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{EcdsaKeyPair, KeyPair};

    use super::*;

    #[test]
    fn a_signature_over_p384_is_verified_over_the_message_and_never_over_another_digest() {
        let random = ring::rand::SystemRandom::new();
        let scheme = &ring_signature::ECDSA_P384_SHA384_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(scheme, document.as_ref(), &random).unwrap();
        let signature = key.sign(&random, b"message").unwrap();
        let public = key.public_key().as_ref();
        let check = |digested: &[u8]| {
            PROVIDER.verify_prehashed(SigningScheme::EcdsaP384Sha384, public, digested, signature.as_ref())
        };
        let (good, bad) = (Sha384::digest(b"message"), Sha384::digest(b"another"));
        let (answer, wanted) = without_message(|| check(&good));
        assert!(answer.is_err() && wanted);
        with_message(b"message".to_vec(), |_| {
            check(&good).unwrap();
            check(&bad).unwrap_err();
        });
        with_message(b"another".to_vec(), |_| {
            check(&good).unwrap_err();
            check(&bad).unwrap_err();
        });
    }

    #[test]
    fn a_signature_over_p256_is_verified_over_the_digest() {
        let random = ring::rand::SystemRandom::new();
        let scheme = &ring_signature::ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(scheme, document.as_ref(), &random).unwrap();
        let signature = key.sign(&random, b"message").unwrap();
        let check = |message: &[u8], digested: &[u8]| {
            let (scheme, public) = (SigningScheme::EcdsaP256Sha256, key.public_key().as_ref());
            let raw = PROVIDER.verify_raw(scheme, public, message, signature.as_ref());
            let prehashed = PROVIDER.verify_prehashed(scheme, public, digested, signature.as_ref());
            assert_eq!(raw.is_ok(), prehashed.is_ok());
            raw.is_ok()
        };
        assert!(check(b"message", &Sha256::digest(b"message")));
        assert!(!check(b"another", &Sha256::digest(b"another")));
    }
}
