//! Canonical JSON told by its length.
//!
//! Of all spellings of a document whose members are in order, the canonical one is the shortest, and no other is as short: blanks add
//! bytes, and so does each escape that need not be. So one pass that adds up the least length of each value is enough, and nothing is written.
//! Where that is not so (numbers that are no plain integers, control characters whose escape has hex digits in either case, keys
//! outside ASCII, which are ordered by UTF-16), the answer is left to the writer.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// RFC 8785 writes numbers as ECMAScript does, as doubles: up to here each integer is itself.
const MAX_EXACT: u64 = 1 << 53;

/// Whether `bytes` are surely canonical JSON. `false` says nothing.
pub(super) fn is_shortest(bytes: &[u8]) -> bool {
    let mut length = Length(0);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    length.deserialize(&mut reader).is_ok() && reader.end().is_ok() && length.0 == bytes.len()
}

/// Bytes of the canonical form so far.
struct Length(usize);

impl Length {
    fn add(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
    }

    /// Of a list's or object's brackets, and the commas between `items`.
    fn add_brackets(&mut self, items: usize) {
        self.add(2 + items.saturating_sub(1));
    }

    fn add_text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        let mut escapes = 0;
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => escapes += 1,
                0..32 => return Err(E::custom("an escape in hex")),
                _ => {}
            }
        }
        self.add(text.len() + escapes + 2);
        Ok(())
    }
}

/// One value, of which the length is added.
impl<'de> DeserializeSeed<'de> for &mut Length {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Length {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value whose canonical form is known by its length")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.add("null".len());
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.add(if value { "true".len() } else { "false".len() });
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        if value > MAX_EXACT {
            return Err(E::custom("no exact integer"));
        }
        self.add(value.checked_ilog10().unwrap_or_default() as usize + 1);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.add(1);
        self.visit_u64(value.unsigned_abs())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.add_text(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut count = 0;
        while items.next_element_seed(&mut *self)?.is_some() {
            count += 1;
        }
        self.add_brackets(count);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut count, mut before) = (0, None);
        // A key with an escape cannot be borrowed, and is an error.
        while let Some(key) = members.next_key::<&'de str>()? {
            if !key.is_ascii() || before.is_some_and(|before| before >= key) {
                return Err(A::Error::custom("a key outside ASCII or out of order"));
            }
            self.add_text(key)?;
            self.add(1);
            members.next_value_seed(&mut *self)?;
            before = Some(key);
            count += 1;
        }
        self.add_brackets(count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::canonical;

    /// Documents with what makes trouble: escapes, keys in two orders, numbers of every kind.
    fn documents() -> impl Strategy<Value = Value> {
        let text = prop::sample::select(vec![
            "",
            "a",
            "b\n",
            "\"",
            "\\",
            "\u{1f}",
            "\u{7f}",
            "é",
            "\u{ffff}",
            "\u{1f600}",
            "/",
        ]);
        let text = prop::collection::vec(text, 0..3).prop_map(|parts| parts.concat());
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-3i64..2000).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn plain_documents_are_known_without_writing_them() {
        for text in [r#"{"a":-1,"b":[0,true,null,"é\n"],"c":{}}"#, "[]", "9007199254740992", r#""\"\\""#, "10", "9"] {
            assert!(is_shortest(text.as_bytes()), "{text}");
        }
    }

    /// Shorter spellings of numbers must not make up for bytes that are too many elsewhere.
    #[test]
    fn other_spellings_are_not_taken_for_canonical() {
        for text in [
            "[1e3  ]",
            "[1e3,1.0]",
            "-0",
            r#"["\u001F"]"#,
            r#"{"b":1,"a":1}"#,
            r#"{"a":1,"a":1}"#,
            "1 ",
            "18446744073709551615",
        ] {
            assert!(!is_shortest(text.as_bytes()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shortest_is_what_the_writer_would_write(document in documents(), pretty in any::<bool>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = if pretty { serde_json::to_vec(&document).unwrap() } else { canonical::to_vec(&document).unwrap() };
            let written = |text: &[u8]| {
                serde_json::from_slice::<Value>(text).is_ok_and(|value| canonical::to_vec(&value).is_ok_and(|again| again == text))
            };
            prop_assert!(!is_shortest(&text) || written(&text));
            let at = at.index(text.len());
            text[at] = byte;
            prop_assert!(!is_shortest(&text) || written(&text));
        }
    }
}
