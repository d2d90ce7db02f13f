//! Values that JSON has as objects. serde takes an array of the fields in their order for a structure as well, which nobody else does who reads such a document.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A structure that is read from an object alone.
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<T> Deref for JsonObject<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object(PhantomData)).map(Self)
    }
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_the_fields_is_no_object() {
        #[derive(serde::Deserialize)]
        struct Pair {
            a: u8,
            b: Option<u8>,
        }
        let read = |text| serde_json::from_str::<JsonObject<Pair>>(text).map(|pair| (pair.0.a, pair.0.b));
        assert_eq!(read(r#"{"b":2,"a":1}"#).unwrap(), (1, Some(2)));
        assert_eq!(read(r#"{"a":1}"#).unwrap(), (1, None));
        assert!(serde_json::from_str::<Pair>("[1,2]").is_ok());
        assert!(read("[1,2]").unwrap_err().to_string().contains("expected an object"));
    }
}
