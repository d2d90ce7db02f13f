//! What a file holds instead of the key that is needed, named for a person.

use pkcs8::ObjectIdentifier;

/// Object identifiers of algorithms and curves (RFC 3279, 5480, 8410).
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const NAMES: [(ObjectIdentifier, &str); 10] = [
    (ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"), "an ECDSA P-256 key"),
    (ObjectIdentifier::new_unwrap("1.3.132.0.34"), "an ECDSA P-384 key"),
    (ObjectIdentifier::new_unwrap("1.3.132.0.35"), "an ECDSA P-521 key"),
    (ObjectIdentifier::new_unwrap("1.3.132.0.10"), "an ECDSA secp256k1 key"),
    (ObjectIdentifier::new_unwrap("1.3.101.112"), "an Ed25519 key"),
    (ObjectIdentifier::new_unwrap("1.3.101.113"), "an Ed448 key"),
    (ObjectIdentifier::new_unwrap("1.3.101.110"), "an X25519 key"),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1"), "an RSA key"),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10"), "an RSA-PSS key"),
    (ObjectIdentifier::new_unwrap("1.2.840.10040.4.1"), "a DSA key"),
];

/// Names the key of an algorithm identifier's parts.
pub(crate) fn name_of(algorithm: ObjectIdentifier, curve: Option<ObjectIdentifier>) -> String {
    let wanted = if algorithm == EC_PUBLIC_KEY { curve.unwrap_or(algorithm) } else { algorithm };
    let known = NAMES.iter().find(|(oid, _)| *oid == wanted);
    known.map_or_else(|| format!("a key of the algorithm {wanted}"), |(_, name)| (*name).to_owned())
}

/// Names the key in a PKCS#8 document.
pub(crate) fn of_pkcs8(der: &[u8]) -> String {
    match pkcs8::PrivateKeyInfoRef::try_from(der) {
        Ok(info) => name_of(info.algorithm.oid, info.algorithm.parameters_oid().ok()),
        Err(_) => "a damaged key".into(),
    }
}

/// Names the key in a public key's SPKI.
pub(crate) fn of_spki(der: &[u8]) -> String {
    match pkcs8::spki::SubjectPublicKeyInfoRef::try_from(der) {
        Ok(info) => name_of(info.algorithm.oid, info.algorithm.parameters_oid().ok()),
        Err(_) => "no public key".into(),
    }
}

/// Names what a PEM block with this label is, where it is none that is read.
pub(crate) fn of_label(label: &str) -> String {
    match label {
        "" => "no PEM block".into(),
        "PRIVATE KEY" | "ENCRYPTED PRIVATE KEY" => "a damaged key".into(),
        "EC PRIVATE KEY" | "EC PARAMETERS" => {
            "a key in SEC 1 form; convert it with `openssl pkcs8 -topk8 -nocrypt`".into()
        }
        "RSA PRIVATE KEY" => "an RSA key in PKCS#1 form".into(),
        "DSA PRIVATE KEY" => "a DSA key".into(),
        "OPENSSH PRIVATE KEY" => "a key in OpenSSH's own form".into(),
        "PUBLIC KEY" => "a public key; the private one is needed to sign".into(),
        "CERTIFICATE" => "a certificate; the private key is needed to sign".into(),
        other => format!("a PEM block {:?}", other.chars().take(40).collect::<String>()),
    }
}

/// Why an artifact key is P-256: added to the name of any other.
pub(crate) const WHY_P256: &str =
    "a log entry holds only a SHA-256 digest, and logs and clients take ECDSA P-256 keys for that";
