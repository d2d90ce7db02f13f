//! A key in a PKCS#11 token.

use std::path::Path;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::RawAuthPin;
use p256::pkcs8::EncodePublicKey as _;
use pkcs8::ObjectIdentifier;
use pkcs8::der::Decode as _;
use pkcs8::der::asn1::OctetStringRef;
use symseal_seal::ArtifactPublicKey;
use symseal_seal::encoding::sha256;

use super::{SignError, Signer, TokenUri};
use crate::keys::{AskPassphrase, Passphrase, content};

/// The longest PIN file that is read, in bytes.
const PIN_LIMIT: u64 = 4096;
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");

/// A private key that does not leave its token.
#[derive(Debug)]
pub struct TokenSigner {
    name: String,
    public: ArtifactPublicKey,
    session: Session,
    key: ObjectHandle,
}

impl TokenSigner {
    /// Loads the vendor's library, logs in to the token and finds the key and its public half. The PIN is
    /// read from the URI's `pin-source`, else asked for; not at all where the token has its own keypad.
    ///
    /// # Errors
    /// [`SignError`]; a key of another kind is refused here.
    pub fn open(uri: &TokenUri, ask: &AskPassphrase<'_>) -> Result<Self, SignError> {
        let name = uri.to_string();
        let failed = |reason: String| SignError::Failed { signer: name.clone(), reason };
        let doing = |what: &'static str| {
            let failed = &failed;
            move |error: Error| failed(format!("cannot {what}: {error}"))
        };
        let module = uri.module.as_deref().ok_or_else(|| failed("no module-path was given".into()))?;
        let library =
            Pkcs11::new(module).map_err(|error| failed(format!("cannot load {}: {error}", module.display())))?;
        match library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
            // Another signer of this process has done it.
            Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
            Err(error) => return Err(doing("start the library")(error)),
        }
        let (slot, token) = find_token(&library, uri, &failed)?;
        let session = library.open_ro_session(slot).map_err(doing("open a session"))?;
        if token.login_required() {
            log_in(&session, &token, uri, ask, &failed)?;
        }
        let key = sole(&session, uri, ObjectClass::PRIVATE_KEY, None)
            .map_err(doing("look for the key"))?
            .map_err(|found| failed(format!("expected one private key of this name, found {found}")))?;
        let public = public_half(&session, uri, key, &name)?;
        Ok(Self { public, name, session, key })
    }
}

impl Signer for TokenSigner {
    fn public(&self) -> &ArtifactPublicKey {
        &self.public
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let failed = |reason: String| SignError::Failed { signer: self.name.clone(), reason };
        // Hashed here: more tokens know the bare mechanism than the one that hashes.
        let raw = self
            .session
            .sign(&Mechanism::Ecdsa, self.key, &sha256(message))
            .map_err(|error| failed(format!("cannot sign: {error}")))?;
        // Tokens give r and s one after the other, 32 bytes each (PKCS#11, section 6.3.1).
        let signature = p256::ecdsa::Signature::from_slice(&raw)
            .map_err(|_| failed(format!("expected a signature of 64 bytes, found {} bytes", raw.len())))?;
        Ok(signature.to_der().as_bytes().to_vec())
    }
}

/// The one token that the URI means.
fn find_token(
    library: &Pkcs11,
    uri: &TokenUri,
    failed: &dyn Fn(String) -> SignError,
) -> Result<(Slot, TokenInfo), SignError> {
    let slots = library.get_slots_with_token().map_err(|error| failed(format!("cannot list tokens: {error}")))?;
    let mut found = Vec::new();
    let mut labels = Vec::new();
    for slot in slots {
        // A slot whose token went away meanwhile.
        let Ok(info) = library.get_token_info(slot) else { continue };
        if !info.token_initialized() {
            continue;
        }
        labels.push(format!("{:?}", info.label()));
        let is = |asked: &Option<String>, is: &str| asked.as_deref().is_none_or(|asked| asked == is.trim_end());
        if is(&uri.token, info.label())
            && is(&uri.manufacturer, info.manufacturer_id())
            && is(&uri.model, info.model())
            && is(&uri.serial, info.serial_number())
            && uri.slot_id.is_none_or(|id| id == slot.id())
        {
            found.push((slot, info));
        }
    }
    let count = found.len();
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(failed(format!("expected one token that fits, found {count}; there are: {}", labels.join(", ")))),
    }
}

fn log_in(
    session: &Session,
    token: &TokenInfo,
    uri: &TokenUri,
    ask: &AskPassphrase<'_>,
    failed: &dyn Fn(String) -> SignError,
) -> Result<(), SignError> {
    let result = if token.protected_authentication_path() && uri.pin_source.is_none() {
        session.login(UserType::User, None)
    } else {
        let pin = match &uri.pin_source {
            Some(path) => {
                read_pin(path).map_err(|reason| failed(format!("pin-source {}: {reason}", path.display())))?
            }
            None => ask(&format!("PIN of {uri}")).map_err(|error| failed(format!("no PIN: {error}")))?,
        };
        session.login_with_raw(UserType::User, &RawAuthPin::new(Box::new(pin.as_bytes().to_vec())))
    };
    match result {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        Err(Error::Pkcs11(RvError::PinIncorrect, _)) => {
            // Said with care: a few wrong tries lock most tokens.
            Err(failed("the token refused the PIN; after a few wrong ones it locks itself".into()))
        }
        Err(error) => Err(failed(format!("cannot log in: {error}"))),
    }
}

fn read_pin(path: &Path) -> Result<Passphrase, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.len() > PIN_LIMIT {
        return Err(format!("expected at most {PIN_LIMIT} bytes, found {}", metadata.len()));
    }
    let mut bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    Ok(Passphrase::new(bytes))
}

/// The one object of a class that the URI, and an id, mean; else how many there are.
fn sole(
    session: &Session,
    uri: &TokenUri,
    class: ObjectClass,
    id: Option<&[u8]>,
) -> Result<Result<ObjectHandle, usize>, Error> {
    let mut template = vec![Attribute::Class(class)];
    template.extend(uri.object.as_ref().map(|label| Attribute::Label(label.clone().into_bytes())));
    template.extend(id.or(uri.id.as_deref()).map(|id| Attribute::Id(id.to_vec())));
    let found = session.find_objects(&template)?;
    Ok(match found.as_slice() {
        [one] => Ok(*one),
        others => Err(others.len()),
    })
}

/// The public key, from its own object: a private one need not tell its point.
fn public_half(
    session: &Session,
    uri: &TokenUri,
    private: ObjectHandle,
    name: &str,
) -> Result<ArtifactPublicKey, SignError> {
    let failed = |reason: String| SignError::Failed { signer: name.to_owned(), reason };
    let kind =
        |found: String| SignError::Kind { signer: name.to_owned(), found: format!("{found}; {}", content::WHY_P256) };
    let read = |object: ObjectHandle, attributes: &[AttributeType]| {
        session.get_attributes(object, attributes).map_err(|error| failed(format!("cannot read the key: {error}")))
    };
    let mut id = None;
    for attribute in read(private, &[AttributeType::KeyType, AttributeType::Id])? {
        match attribute {
            Attribute::KeyType(KeyType::EC) => {}
            Attribute::KeyType(KeyType::RSA) => return Err(kind("an RSA key".into())),
            Attribute::KeyType(KeyType::EC_EDWARDS) => return Err(kind("an Ed25519 or Ed448 key".into())),
            Attribute::KeyType(other) => return Err(kind(format!("a key of the type {other}"))),
            Attribute::Id(bytes) if !bytes.is_empty() => id = Some(bytes),
            _ => {}
        }
    }
    let public = sole(session, uri, ObjectClass::PUBLIC_KEY, id.as_deref())
        .map_err(|error| failed(format!("cannot look for the public key: {error}")))?
        .map_err(|found| failed(format!("expected one public key beside the private one, found {found}")))?;
    let (mut parameters, mut point) = (None, None);
    for attribute in read(public, &[AttributeType::EcParams, AttributeType::EcPoint])? {
        match attribute {
            Attribute::EcParams(bytes) => parameters = Some(bytes),
            Attribute::EcPoint(bytes) => point = Some(bytes),
            _ => {}
        }
    }
    let curve = parameters.as_deref().and_then(|der| ObjectIdentifier::from_der(der).ok());
    match curve {
        Some(P256) => {}
        Some(other) => return Err(kind(content::name_of(EC_PUBLIC_KEY, Some(other)))),
        None => return Err(kind("an EC key on a curve without a name".into())),
    }
    // An OCTET STRING by the standard; some tokens give its content alone.
    let point = point.unwrap_or_default();
    let point = <&OctetStringRef>::from_der(&point).map_or(point.as_slice(), OctetStringRef::as_bytes);
    let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(point)
        .map_err(|_| failed("expected the public key's point on the curve, found another value".into()))?;
    let spki = key.to_public_key_der().map_err(|error| failed(error.to_string()))?;
    super::public_key(name, spki.as_bytes())
}
