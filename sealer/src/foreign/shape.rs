//! What Sigstore's JSON may not be, and its readers often let pass: a key twice in one object, or two members of which
//! there may be one.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// A JSON value of which only the shape is kept.
#[derive(Debug)]
enum Shape {
    Object(Vec<(String, Shape)>),
    Array,
    Null,
    Other,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let (mut members, mut seen) = (Vec::new(), HashSet::new());
        while let Some((key, value)) = map.next_entry::<String, Shape>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key {key:?} stands twice in one object")));
            }
            members.push((key, value));
        }
        Ok(Shape::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        while items.next_element::<Shape>()?.is_some() {}
        Ok(Shape::Array)
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Other)
    }
}

impl Shape {
    fn member(&self, name: &str) -> Option<&Shape> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Which of these members are there and not null.
    fn present<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let there = |name: &&str| !matches!(self.member(name), None | Some(Shape::Null));
        names.iter().copied().filter(there).collect()
    }
}

/// Checks that no key of a document stands twice in one object.
///
/// # Errors
/// What is wrong, as text for a person.
pub(super) fn check_keys(json: &str) -> Result<(), String> {
    serde_json::from_str::<Shape>(json).map(|_| ()).map_err(|error| error.to_string())
}

/// Checks the shape of a bundle's JSON.
///
/// # Errors
/// What is wrong, as text for a person.
pub(super) fn check(json: &str) -> Result<(), String> {
    let bundle: Shape = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let one_of = |object: &Shape, names: &[&str]| match object.present(names).as_slice() {
        [_] => Ok(()),
        [] => Err(format!("expected one of {}, found none", names.join(", "))),
        several => Err(format!("expected one of {}, found {}", names.join(", "), several.join(" and "))),
    };
    one_of(&bundle, &["messageSignature", "dsseEnvelope"])?;
    let material = bundle.member("verificationMaterial").ok_or("expected verificationMaterial, found none")?;
    one_of(material, &["publicKey", "certificate", "x509CertificateChain"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_refused_wherever_it_stands() {
        let good =
            r#"{"verificationMaterial":{"publicKey":{"hint":"a"},"tlogEntries":[{"logIndex":"1"}]},"dsseEnvelope":{}}"#;
        assert_eq!(check(good), Ok(()));
        for (once, twice) in [
            (r#""hint":"a""#, r#""hint":"a","hint":"a""#),
            (r#""logIndex":"1""#, r#""logIndex":"1","logIndex":"2""#),
            (r#""dsseEnvelope":{}"#, r#""dsseEnvelope":{},"unknown":1,"unknown":1"#),
        ] {
            let error = check(&good.replace(once, twice)).unwrap_err();
            assert!(error.contains("twice"), "{error}");
        }
    }

    #[test]
    fn of_alternatives_there_is_one() {
        let with =
            |material: &str, content: &str| check(&format!(r#"{{"verificationMaterial":{{{material}}},{content}}}"#));
        let (key, envelope) = (r#""publicKey":{}"#, r#""dsseEnvelope":{}"#);
        assert_eq!(with(key, envelope), Ok(()));
        assert_eq!(with(r#""publicKey":{},"certificate":null"#, envelope), Ok(()));
        assert!(with(r#""publicKey":{},"certificate":{}"#, envelope).is_err());
        assert!(with("", envelope).is_err());
        assert!(with(key, r#""dsseEnvelope":{},"messageSignature":{}"#).is_err());
        assert!(with(key, r#""other":{}"#).is_err());
        assert!(check("[]").is_err() && check("").is_err() && check(&"[".repeat(10_000)).is_err());
    }
}
