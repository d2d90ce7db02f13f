//! What `POST /api/v1/resolve` is asked.

use std::fmt;

use axum::http::StatusCode;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use symseal_module::{DebugId, Svma};

use crate::breakpad::base_name;
use crate::endpoints::api::ApiError;
use crate::ingest::parse_breakpad_id;

/// Addresses in one request.
const ADDRESS_LIMIT: usize = 100_000;
/// Digits of a build-id that is a SHA-1: no PDB has an age of as many digits as it were then.
const SHA1_DIGITS: usize = 40;
/// Digits of a UUID in Breakpad's form.
const BREAKPAD_DIGITS: usize = 33;

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(super) platform: Platform,
    #[serde(default)]
    pub(super) debug_id: Option<String>,
    #[serde(default)]
    pub(super) code_id: Option<String>,
    /// Name of the PE file that the code id is of, or its path.
    #[serde(default)]
    pub(super) code_file: Option<String>,
    /// Name of the debug file: by it other symbol servers have a PDB, and symbol files with one id are told apart.
    #[serde(default)]
    pub(super) debug_file: Option<String>,
    #[serde(default)]
    pub(super) address_kind: AddressKind,
    pub(super) addresses: Addresses,
    #[serde(default)]
    pub(super) demangle: bool,
    /// What `debug_id`, or else `code_id`, says; `None` where that is a PE file's code id.
    #[serde(skip)]
    pub(super) id: Option<DebugId>,
}

/// What is asked for, as many as are taken: the texts of more could come to many times the body.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    pub(super) taken: Vec<Svma>,
    /// With those that are too many.
    count: usize,
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Addresses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of addresses")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Addresses, A::Error> {
                let mut all = Addresses::default();
                while let Some(Address(address)) = texts.next_element()? {
                    all.count = all.count.saturating_add(1);
                    if all.count <= ADDRESS_LIMIT {
                        all.taken.push(address);
                    }
                }
                Ok(all)
            }
        }

        deserializer.deserialize_seq(All)
    }
}

/// A text with `0x` alone: without it a number could be meant either way.
struct Address(Svma);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl Visitor<'_> for Read {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Address, E> {
                match text.starts_with("0x") {
                    true => text.parse().map(Address).map_err(E::custom),
                    false => Err(E::custom(format!("expected an address such as 0x1000, found {text:?}"))),
                }
            }
        }

        deserializer.deserialize_str(Read)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Platform {
    Linux,
    Macos,
    Windows,
}

/// What addresses count from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AddressKind {
    /// As the file states them.
    #[default]
    Svma,
    /// From the image base.
    Rva,
}

impl Request {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 and 413.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let form = r#"{"platform":"linux","debug_id":"…","addresses":["0x1000"]}"#;
        let invalid = |found: String| {
            let message = format!(
                "expected {form}, with code_id and code_file in the place of debug_id where that is not known; found {found}"
            );
            ApiError::new(StatusCode::BAD_REQUEST, "resolve-invalid", message)
        };
        let mut request: Self = serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
        // Debuggers and dumps have the path by which the module was loaded.
        request.code_file = request.code_file.map(|path| base_name(&path).to_owned());
        if request.debug_id.is_none() && request.code_id.is_none() {
            return Err(invalid("neither debug_id nor code_id".to_owned()));
        }
        if request.platform == Platform::Windows && request.debug_id.is_none() && request.code_file.is_none() {
            return Err(invalid("a code_id of a PE file without its code_file".to_owned()));
        }
        request.id = request
            .read_id()
            .map_err(|(setting, text, forms)| invalid(format!("{setting} {text:?}, where {forms} is read")))?;
        if request.addresses.count > ADDRESS_LIMIT {
            let found = request.addresses.count;
            let message = format!("expected at most {ADDRESS_LIMIT} addresses, found {found}: ask in several requests");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "resolve-too-large", message));
        }
        Ok(request)
    }

    /// The debug id, if any. One that cannot be read is an error, as a module that is merely not known is an answer: with what was given as
    /// what, and the forms that are read.
    fn read_id(&self) -> Result<Option<DebugId>, (&'static str, String, &'static str)> {
        match (&self.debug_id, &self.code_id) {
            (None, Some(code_id)) if self.platform == Platform::Windows => match is_code_id(code_id) {
                true => Ok(None),
                false => {
                    Err(("code_id", code_id.clone(), "a time stamp in eight hex digits with the image's size in hex"))
                }
            },
            (Some(text), _) => {
                self.platform.read_id(text).map(Some).ok_or(("debug_id", text.clone(), self.platform.forms()))
            }
            (None, Some(text)) => {
                self.platform.read_id(text).map(Some).ok_or(("code_id", text.clone(), self.platform.forms()))
            }
            (None, None) => Ok(None),
        }
    }
}

impl Platform {
    /// Reads a debug id of this platform as debuggers, Sentry (with the dashes of a GUID) and Breakpad (a GUID with the age behind it) write
    /// it. A UUID is 16 bytes of hex, as a build-id can be: the platform tells which.
    fn read_id(self, text: &str) -> Option<DebugId> {
        let undashed = |text: &str| text.replace('-', "");
        match self {
            Self::Linux => text.parse().ok().filter(|id| matches!(id, DebugId::BuildId(_))),
            Self::Macos => {
                let hex = undashed(text.strip_prefix("uuid:").unwrap_or(text));
                // Breakpad gives a Mach-O file the age 0.
                let hex = if hex.len() == BREAKPAD_DIGITS { hex.strip_suffix('0')? } else { &hex };
                format!("uuid:{hex}").parse().ok()
            }
            Self::Windows => match text.rsplit_once('-') {
                Some((guid, age)) => format!("{}-{age}", undashed(guid)).parse().ok(),
                None => parse_breakpad_id(text)
                    .filter(|_| text.len() < SHA1_DIGITS)
                    .map(|(guid, age)| DebugId::Pdb { guid, age }),
            },
        }
    }

    fn forms(self) -> &'static str {
        match self {
            Self::Linux => "a build-id (an even number of hex digits)",
            Self::Macos => "a UUID (32 hex digits, with dashes or without)",
            Self::Windows => {
                "a PDB's GUID with its age in hex (GUID-AGE, with the GUID's own dashes or without, or Breakpad's 33 digits and more)"
            }
        }
    }
}

/// Whether a text can be a PE file's time stamp, in eight digits, and size of the image.
fn is_code_id(text: &str) -> bool {
    (9..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_of_its_platform() {
        let read = |text: &str| Request::read(text.as_bytes());
        let linux = read(r#"{"platform":"linux","code_id":"ABCD","addresses":["0x10"]}"#).unwrap();
        assert_eq!((linux.id.unwrap().to_string().as_str(), linux.addresses.taken), ("abcd", vec![Svma(16)]));
        let code = r#"{"platform":"windows","code_id":"5f3a1b2c1f000","code_file":"a.exe","addresses":[]}"#;
        assert_eq!(read(code).unwrap().id, None);
        for path in ["a.exe", r"C:\\x\\a.exe", "/opt/x/a.exe"] {
            let body = code.replace("a.exe", path);
            assert_eq!(read(&body).unwrap().code_file.as_deref(), Some("a.exe"), "{path}");
        }
        for text in [
            "",
            "[]",
            "{}",
            r#"{"platform":"linux","addresses":["0x1"]}"#,
            r#"{"platform":"windows","code_id":"5f3a1b2c1f000","addresses":["0x1"]}"#,
            r#"{"platform":"linux","debug_id":"ab","addresses":[1]}"#,
            r#"{"platform":"linux","debug_id":"ab","addresses":["1"]}"#,
            r#"{"platform":"os2","debug_id":"ab","addresses":["0x1"]}"#,
            r#"{"platform":"linux","debug_id":"ab","addresses":["0x1"],"adresses":[]}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_is_read_in_the_forms_that_tools_print() {
        let guid = "72e103a85cb249078b76b2e7c06257b1";
        let (pdb, uuid) = (format!("{guid}-1a"), format!("uuid:{guid}"));
        for (platform, text, expected) in [
            ("windows", "72E103A85CB249078B76B2E7C06257B1-1a", &pdb),
            ("windows", "72E103A8-5CB2-4907-8B76-B2E7C06257B1-1A", &pdb),
            ("windows", "72E103A85CB249078B76B2E7C06257B11a", &pdb),
            ("macos", "72E103A85CB249078B76B2E7C06257B1", &uuid),
            ("macos", "72E103A8-5CB2-4907-8B76-B2E7C06257B1", &uuid),
            ("macos", "uuid:72e103a85cb249078b76b2e7c06257b1", &uuid),
            ("macos", "72E103A85CB249078B76B2E7C06257B10", &uuid),
            ("linux", "72E103A85CB249078B76B2E7C06257B1", &guid.to_owned()),
        ] {
            let body = format!(r#"{{"platform":"{platform}","debug_id":"{text}","addresses":[]}}"#);
            let id = Request::read(body.as_bytes()).unwrap().id.unwrap();
            assert_eq!(id, expected.parse().unwrap(), "{platform} {text}");
        }
    }
}
