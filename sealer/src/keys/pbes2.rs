//! `ENCRYPTED PRIVATE KEY`: PKCS#8 under PBES2 (RFC 5958, section 3; RFC 8018, section 6.2).

use pkcs8::der::ErrorKind;
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::{Kdf, PBES2_OID, Parameters, Pbkdf2Prf};
use pkcs8::{EncryptedPrivateKeyInfoOwned, EncryptedPrivateKeyInfoRef, SecretDocument};

use super::{DecryptError, KeyFileError, Passphrase, random_bytes};

/// What we write: PBKDF2-HMAC-SHA-256 with as many iterations as OWASP's cheat sheet asks for (2023),
/// which every PKCS#8 reader knows.
const ITERATIONS: u32 = 600_000;
/// The most that is read: some seconds of work.
const MAX_ITERATIONS: u32 = 10_000_000;
const BOUNDS: &str = "PBKDF2 with 1 to 10 000 000 iterations";
const METHODS: &str = "PBES2: AES-CBC or AES-GCM under PBKDF2 with HMAC-SHA-2, or under scrypt";

/// What scrypt may cost: memory 128·N·r bytes, work N·r·p.
pub(super) const SCRYPT_BOUNDS: &str =
    "scrypt with N a power of two from 2, 128·N·r at most 256 MiB and N·r·p at most 2^24";

/// N·r·p, if scrypt's parameters lie within [`SCRYPT_BOUNDS`].
pub(super) fn scrypt_cost(n: u64, r: u64, p: u64) -> Option<u64> {
    let blocks = n.checked_mul(r)?;
    let (memory, work) = (blocks.checked_mul(128)?, blocks.checked_mul(p)?);
    let bounded = n.is_power_of_two() && n >= 2 && work >= 1 && memory <= 256 << 20 && work <= 1 << 24;
    bounded.then_some(work)
}

fn method(found: String) -> DecryptError {
    DecryptError::Method { expected: METHODS, found }
}

/// Reads the frame, and checks what decrypting would cost.
fn read(der: &[u8]) -> Result<(EncryptedPrivateKeyInfoRef<'_>, u64), DecryptError> {
    let malformed = |found: String| DecryptError::Malformed { expected: "an encrypted PKCS#8 key", found };
    let info = EncryptedPrivateKeyInfoRef::try_from(der).map_err(|error| match error {
        pkcs8::Error::Asn1(inner) => match inner.kind() {
            ErrorKind::OidUnknown { oid } => method(format!("the algorithm {oid}")),
            _ if !names_pbes2(der) => method("another scheme".into()),
            _ => malformed(error.to_string()),
        },
        _ => malformed(error.to_string()),
    })?;
    let parameters = match &info.encryption_algorithm {
        EncryptionScheme::Pbes2(parameters) => parameters,
        other => return Err(method(format!("PBES1 ({})", other.oid()))),
    };
    let cost = cost(parameters)?;
    Ok((info, cost))
}

/// Whether PBES2's identifier stands at the start; those of PKCS#12's schemes are not read at all.
fn names_pbes2(der: &[u8]) -> bool {
    let head = der.get(..der.len().min(32)).unwrap_or_default();
    head.windows(PBES2_OID.as_bytes().len()).any(|window| window == PBES2_OID.as_bytes())
}

/// What decrypting would cost, in rounds of the key derivation: iterations, or scrypt's N·r·p.
///
/// # Errors
/// [`DecryptError`] where that is beyond the bounds, or the file is not read at all.
pub fn pbes2_cost(der: &[u8]) -> Result<u64, DecryptError> {
    read(der).map(|(_, cost)| cost)
}

/// Decrypts the DER of an `EncryptedPrivateKeyInfo`; the PKCS#8 document inside.
///
/// # Errors
/// [`DecryptError`]. Bounds are checked before any work is done.
pub fn decrypt(der: &[u8], passphrase: &Passphrase) -> Result<SecretDocument, DecryptError> {
    let (info, _) = read(der)?;
    info.decrypt(passphrase.as_bytes()).map_err(|error| match error {
        pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::UnsupportedAlgorithm { oid }) => {
            method(format!("the algorithm {oid}"))
        }
        // A wrong passphrase shows as bad padding, or as bytes that are no key.
        _ => DecryptError::WrongPassphrase,
    })
}

fn cost(parameters: &Parameters) -> Result<u64, DecryptError> {
    match &parameters.kdf {
        Kdf::Pbkdf2(kdf) => {
            if kdf.prf == Pbkdf2Prf::HmacWithSha1 {
                return Err(method("PBKDF2 with HMAC-SHA-1".into()));
            }
            if (1..=MAX_ITERATIONS).contains(&kdf.iteration_count) {
                return Ok(kdf.iteration_count.into());
            }
            let found = format!("{} iterations", kdf.iteration_count);
            Err(DecryptError::Cost { expected: BOUNDS, found })
        }
        Kdf::Scrypt(kdf) => {
            let (n, r, p) = (kdf.cost_parameter, kdf.block_size, kdf.parallelization);
            let bounded = scrypt_cost(n, r.into(), p.into());
            bounded.ok_or_else(|| DecryptError::Cost {
                expected: SCRYPT_BOUNDS,
                found: format!("N = {n}, r = {r}, p = {p}"),
            })
        }
        _ => Err(method("another key derivation".into())),
    }
}

/// Encrypts a PKCS#8 document: AES-256-CBC under PBKDF2-HMAC-SHA-256.
pub(super) fn encrypt(pkcs8: &[u8], passphrase: &Passphrase) -> Result<SecretDocument, KeyFileError> {
    let failed = |reason: String| KeyFileError::Entropy { reason };
    let (salt, iv) = (random_bytes::<16>()?, random_bytes::<16>()?);
    let parameters = Parameters::generate_pbkdf2_sha256_aes256cbc(ITERATIONS, &salt, iv)
        .map_err(|error| failed(error.to_string()))?;
    let encrypted = parameters.encrypt(passphrase.as_bytes(), pkcs8).map_err(|error| failed(error.to_string()))?;
    let data = pkcs8::der::asn1::OctetString::new(encrypted).map_err(|error| failed(error.to_string()))?;
    let info = EncryptedPrivateKeyInfoOwned { encryption_algorithm: parameters.into(), encrypted_data: data };
    SecretDocument::try_from(&info).map_err(|error| failed(error.to_string()))
}
