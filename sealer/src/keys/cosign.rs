//! cosign's encrypted keys: `ENCRYPTED SIGSTORE PRIVATE KEY`, before cosign 2 `ENCRYPTED COSIGN PRIVATE
//! KEY`.
//!
//! The PEM block holds JSON: a PKCS#8 document in NaCl's secretbox (XSalsa20-Poly1305), under a key
//! that scrypt derives from the passphrase. Source: go-securesystemslib, `encrypted/encrypted.go`.

use crypto_secretbox::aead::{Aead as _, KeyInit as _};
use crypto_secretbox::{Key, Nonce, XSalsa20Poly1305};
use pkcs8::SecretDocument;
use serde::Deserialize;
use symseal_seal::encoding::from_base64;
use zeroize::Zeroizing;

use super::pbes2::{SCRYPT_BOUNDS, scrypt_cost};
use super::{DecryptError, Passphrase};

/// The labels of the PEM blocks.
pub(super) const LABELS: [&str; 2] = ["ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY"];
/// The longest salt that is read, in bytes; cosign writes 32.
const MAX_SALT: usize = 256;

#[derive(Deserialize)]
struct Encrypted {
    kdf: Kdf,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Deserialize)]
struct Kdf {
    name: String,
    params: Params,
    salt: String,
}

#[derive(Deserialize)]
struct Params {
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
}

#[derive(Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

fn malformed(expected: &'static str, found: &str) -> DecryptError {
    DecryptError::Malformed { expected, found: found.chars().take(120).collect() }
}

/// Reads the JSON, and checks what decrypting would cost.
fn read(json: &[u8]) -> Result<(Encrypted, u64), DecryptError> {
    let encrypted: Encrypted = serde_json::from_slice(json)
        .map_err(|error| malformed("the JSON of an encrypted cosign key", &error.to_string()))?;
    for (expected, found) in [("scrypt", &encrypted.kdf.name), ("nacl/secretbox", &encrypted.cipher.name)] {
        if found != expected {
            let found = format!("{:?}", found.chars().take(40).collect::<String>());
            return Err(DecryptError::Method { expected: "nacl/secretbox under scrypt, as cosign does", found });
        }
    }
    let Params { n, r, p } = encrypted.kdf.params;
    let cost = scrypt_cost(n, r.into(), p.into()).ok_or_else(|| too_costly(&encrypted.kdf.params))?;
    Ok((encrypted, cost))
}

fn too_costly(Params { n, r, p }: &Params) -> DecryptError {
    DecryptError::Cost { expected: SCRYPT_BOUNDS, found: format!("N = {n}, r = {r}, p = {p}") }
}

/// What decrypting would cost, in rounds of the key derivation: scrypt's N·r·p.
///
/// # Errors
/// [`DecryptError`] where that is beyond the bounds, or the JSON is not read at all.
pub fn cosign_cost(json: &[u8]) -> Result<u64, DecryptError> {
    read(json).map(|(_, cost)| cost)
}

/// Decrypts the JSON of a cosign key; the PKCS#8 document inside.
///
/// # Errors
/// [`DecryptError`]. Bounds are checked before any work is done.
pub fn decrypt(json: &[u8], passphrase: &Passphrase) -> Result<SecretDocument, DecryptError> {
    let (encrypted, _) = read(json)?;
    let Params { n, r, p } = encrypted.kdf.params;
    let cost = |_| too_costly(&encrypted.kdf.params);
    // A power of two below 2^24, so that its logarithm fits.
    let log_n = u8::try_from(n.ilog2()).map_err(|_| too_costly(&encrypted.kdf.params))?;
    let parameters = scrypt::Params::new(log_n, r, p).map_err(cost)?;

    let salt = from_base64(&encrypted.kdf.salt)
        .filter(|salt| salt.len() <= MAX_SALT)
        .ok_or_else(|| malformed("the base64 of a salt", &encrypted.kdf.salt))?;
    let nonce: Option<[u8; 24]> = from_base64(&encrypted.cipher.nonce).and_then(|nonce| nonce.try_into().ok());
    let nonce = nonce.ok_or_else(|| malformed("the base64 of a nonce of 24 bytes", &encrypted.cipher.nonce))?;
    let ciphertext =
        from_base64(&encrypted.ciphertext).ok_or_else(|| malformed("the base64 of a ciphertext", "something else"))?;

    let mut key = Zeroizing::new([0_u8; 32]);
    scrypt::scrypt(passphrase.as_bytes(), &salt, &parameters, &mut *key)
        .map_err(|_| too_costly(&encrypted.kdf.params))?;
    let plain = XSalsa20Poly1305::new(<&Key>::from(&*key))
        .decrypt(<&Nonce>::from(&nonce), ciphertext.as_slice())
        .map_err(|_| DecryptError::WrongPassphrase)?;
    let plain = Zeroizing::new(plain);
    SecretDocument::try_from(plain.as_slice()).map_err(|error| malformed("a PKCS#8 key inside", &error.to_string()))
}
