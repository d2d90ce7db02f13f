//! PKCS#11 URIs (RFC 7512), read strictly: `pkcs11:token=…;object=…?module-path=…&pin-source=…`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The longest URI that is read, in bytes.
pub const TOKEN_URI_LIMIT: usize = 4096;

/// Which key, in which token, reached through which library.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenUri {
    /// `token`: the token's label.
    pub token: Option<String>,
    /// `manufacturer`.
    pub manufacturer: Option<String>,
    /// `model`.
    pub model: Option<String>,
    /// `serial`.
    pub serial: Option<String>,
    /// `slot-id`.
    pub slot_id: Option<u64>,
    /// `object`: the key's label.
    pub object: Option<String>,
    /// `id`: the key's identifier, bytes.
    pub id: Option<Vec<u8>>,
    /// `module-path`: the library of the token's vendor.
    pub module: Option<PathBuf>,
    /// `pin-source`: a file with the PIN.
    pub pin_source: Option<PathBuf>,
}

/// The text is no PKCS#11 URI that is read here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenUriError {
    /// Too long.
    #[error("expected a PKCS#11 URI of at most {TOKEN_URI_LIMIT} bytes, found {found}")]
    TooLong {
        /// Its size in bytes.
        found: usize,
    },
    /// No `pkcs11:` before it.
    #[error("expected a URI that begins with pkcs11:")]
    Scheme,
    /// An attribute without a value, or with bytes that no URI has.
    #[error("expected name=value with percent-encoding in a PKCS#11 URI, found {found:?}")]
    Attribute {
        /// The attribute.
        found: String,
    },
    /// An attribute twice.
    #[error("expected the attribute {name} once in a PKCS#11 URI, found it again")]
    Twice {
        /// Its name.
        name: String,
    },
    /// An attribute that is not known: to pass over it could choose another key.
    #[error(
        "expected of a PKCS#11 URI token, manufacturer, model, serial, slot-id, object, id, type=private, and after the ? module-path and pin-source; found {name:?}"
    )]
    Unknown {
        /// Its name.
        name: String,
    },
    /// An attribute has a value that it cannot have.
    #[error("expected {expected} as {name} of a PKCS#11 URI, found {found:?}")]
    Value {
        /// Its name.
        name: &'static str,
        /// What can stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// The PIN itself stands in the URI.
    #[error(
        "a PIN on the command line can be read by everybody on the machine: leave out pin-value, and name a file by pin-source=file:/PATH, or use --passphrase-env or --passphrase-fd"
    )]
    PinValue,
    /// No key is named.
    #[error("expected object= or id= in a PKCS#11 URI, to choose a key; found neither")]
    NoKey,
    /// No library is named.
    #[error("expected module-path=/PATH of the vendor's library in a PKCS#11 URI, found none")]
    NoModule,
}

impl FromStr for TokenUri {
    type Err = TokenUriError;

    fn from_str(text: &str) -> Result<Self, TokenUriError> {
        if text.len() > TOKEN_URI_LIMIT {
            return Err(TokenUriError::TooLong { found: text.len() });
        }
        let rest = text.strip_prefix("pkcs11:").ok_or(TokenUriError::Scheme)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        let attributes = path.split(';').map(|part| (part, true)).chain(query.split('&').map(|part| (part, false)));
        for (attribute, in_path) in attributes.filter(|(part, _)| !part.is_empty()) {
            let wrong = || TokenUriError::Attribute { found: attribute.chars().take(80).collect() };
            let (name, value) = attribute.split_once('=').ok_or_else(wrong)?;
            let value = percent_decoded(value).ok_or_else(wrong)?;
            if seen.contains(&name) {
                return Err(TokenUriError::Twice { name: name.chars().take(40).collect() });
            }
            seen.push(name);
            if in_path {
                uri.path_attribute(name, value)?;
            } else {
                uri.query_attribute(name, value)?;
            }
        }
        if uri.object.is_none() && uri.id.is_none() {
            return Err(TokenUriError::NoKey);
        }
        if uri.module.is_none() {
            return Err(TokenUriError::NoModule);
        }
        Ok(uri)
    }
}

fn shown(value: &[u8]) -> String {
    String::from_utf8_lossy(value).chars().take(80).collect()
}

fn text(name: &'static str, value: Vec<u8>) -> Result<String, TokenUriError> {
    String::from_utf8(value).map_err(|error| TokenUriError::Value {
        name,
        expected: "UTF-8 text",
        found: shown(error.as_bytes()),
    })
}

impl TokenUri {
    fn path_attribute(&mut self, name: &str, value: Vec<u8>) -> Result<(), TokenUriError> {
        match name {
            "token" => self.token = Some(text("token", value)?),
            "manufacturer" => self.manufacturer = Some(text("manufacturer", value)?),
            "model" => self.model = Some(text("model", value)?),
            "serial" => self.serial = Some(text("serial", value)?),
            "object" => self.object = Some(text("object", value)?),
            "id" => self.id = Some(value),
            "slot-id" => {
                let digits = text("slot-id", value)?;
                let number = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
                self.slot_id = Some(number.ok_or_else(|| TokenUriError::Value {
                    name: "slot-id",
                    expected: "a decimal number",
                    found: shown(digits.as_bytes()),
                })?);
            }
            // The private key is meant; the public half is looked up beside it.
            "type" if value == b"private" => {}
            "type" => {
                return Err(TokenUriError::Value { name: "type", expected: "private", found: shown(&value) });
            }
            other => return Err(TokenUriError::Unknown { name: other.chars().take(40).collect() }),
        }
        Ok(())
    }

    fn query_attribute(&mut self, name: &str, value: Vec<u8>) -> Result<(), TokenUriError> {
        match name {
            "module-path" => self.module = Some(absolute("module-path", value)?),
            "pin-source" => {
                let value = value.strip_prefix(b"file:").map_or_else(|| value.clone(), <[u8]>::to_vec);
                let value = value.strip_prefix(b"//").map_or_else(|| value.clone(), <[u8]>::to_vec);
                self.pin_source = Some(absolute("pin-source", value)?);
            }
            "pin-value" => return Err(TokenUriError::PinValue),
            other => return Err(TokenUriError::Unknown { name: other.chars().take(40).collect() }),
        }
        Ok(())
    }
}

/// A library or PIN is named by its whole path: no search finds another one.
fn absolute(name: &'static str, value: Vec<u8>) -> Result<PathBuf, TokenUriError> {
    let value = text(name, value)?;
    let path = PathBuf::from(&value);
    if path.is_absolute() && !value.contains('\0') {
        return Ok(path);
    }
    Err(TokenUriError::Value { name, expected: "an absolute path", found: shown(value.as_bytes()) })
}

/// Undoes percent-encoding; `None` for a broken escape, or a byte that must be escaped.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                (digit(rest.next()?)? << 4) | digit(rest.next()?)?
            }
            b'!'..=b'~' if !br#""<>\^`{|}"#.contains(&byte) => byte,
            _ => return None,
        });
    }
    Some(bytes)
}

impl fmt::Display for TokenUri {
    /// What chooses the key, without the query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot_id.map(|id| id.to_string());
        let texts = [
            ("token", &self.token),
            ("manufacturer", &self.manufacturer),
            ("model", &self.model),
            ("serial", &self.serial),
            ("slot-id", &slot),
            ("object", &self.object),
        ];
        let mut parts = Vec::new();
        for (name, value) in texts {
            parts.extend(value.as_ref().map(|value| format!("{name}={}", percent_encoded(value.as_bytes()))));
        }
        parts.extend(self.id.as_ref().map(|id| format!("id={}", percent_encoded(id))));
        write!(f, "pkcs11:{}", parts.join(";"))
    }
}

fn percent_encoded(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    bytes.iter().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_path_and_query_are_read() {
        let uri: TokenUri =
            "pkcs11:token=My%20token;object=release;id=%00%ff;type=private?module-path=/usr/lib/p11.so&pin-source=file:/run/pin"
                .parse()
                .unwrap();
        assert_eq!(uri.token.as_deref(), Some("My token"));
        assert_eq!(uri.object.as_deref(), Some("release"));
        assert_eq!(uri.id.as_deref(), Some([0, 255].as_slice()));
        assert_eq!(uri.module, Some("/usr/lib/p11.so".into()));
        assert_eq!(uri.pin_source, Some("/run/pin".into()));
        assert_eq!(uri.to_string(), "pkcs11:token=My%20token;object=release;id=%00%FF");
        for source in ["/run/pin", "file:/run/pin", "file:///run/pin"] {
            let uri: TokenUri = format!("pkcs11:object=a?pin-source={source}&module-path=/m").parse().unwrap();
            assert_eq!(uri.pin_source, Some("/run/pin".into()), "{source}");
        }
    }

    #[test]
    fn what_could_choose_another_key_is_refused() {
        let error = |text: &str| text.parse::<TokenUri>().unwrap_err();
        assert_eq!(error("pkcs11:token=a?module-path=/m"), TokenUriError::NoKey);
        assert_eq!(error("pkcs11:object=a"), TokenUriError::NoModule);
        assert_eq!(error("pkcs11:object=a?module-path=/m&pin-value=1"), TokenUriError::PinValue);
        assert_eq!(error("PKCS11:object=a"), TokenUriError::Scheme);
        assert!(matches!(error("pkcs11:object=a;object=b"), TokenUriError::Twice { .. }));
        assert!(matches!(error("pkcs11:objekt=a"), TokenUriError::Unknown { .. }));
        assert!(matches!(error("pkcs11:module-path=/m"), TokenUriError::Unknown { .. }));
        assert!(matches!(error("pkcs11:object=a?module-name=p11"), TokenUriError::Unknown { .. }));
        for bad in ["object", "object=%", "object=%4", "object=%zz", "object=a b", "object=\u{e4}", "object=<"] {
            assert!(matches!(error(&format!("pkcs11:{bad}")), TokenUriError::Attribute { .. }), "{bad}");
        }
        for bad in [
            "object=a?module-path=m.so",
            "object=a?module-path=/m&pin-source=%7ccat",
            "object=a?module-path=/m%00",
            "object=%ff",
            "slot-id=+1",
            "type=public",
        ] {
            assert!(matches!(error(&format!("pkcs11:{bad}")), TokenUriError::Value { .. }), "{bad}");
        }
        assert!(matches!(error(&format!("pkcs11:object={}", "a".repeat(5000))), TokenUriError::TooLong { .. }));
    }
}
