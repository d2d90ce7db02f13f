//! JSON forms of single fields: numbers as `0x` strings, bytes as base64.

/// A 64-bit number that may exceed 2^53−1, as a lower-case `0x` string.
pub(crate) mod hex_u64 {
    use serde::{Deserialize, Deserializer, Serializer};
    use symseal_module::Avma;

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Avma(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Avma::deserialize(deserializer).map(|address| address.0)
    }
}

/// The same, where the number may be absent (null).
pub(crate) mod hex_u64_option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use symseal_module::Avma;

    pub(crate) fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Avma).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Avma>::deserialize(deserializer)?.map(|address| address.0))
    }
}

/// Bytes as standard base64 with padding (RFC 4648, section 4).
pub(crate) mod base64_bytes {
    use std::borrow::Cow;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map_err(|error| D::Error::custom(format!("expected padded base64: {error}")))
    }
}

/// The same, where the bytes may be absent (null).
pub(crate) mod base64_option {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::base64_bytes::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        #[derive(Deserialize)]
        struct Bytes(#[serde(with = "super::base64_bytes")] Vec<u8>);
        Ok(Option::<Bytes>::deserialize(deserializer)?.map(|bytes| bytes.0))
    }
}
