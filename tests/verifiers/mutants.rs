//! One change at a time, in everything that a seal rests on: the check that refuses it here, and what others say of it.

use serde_json::Value;
use symseal_seal::checks::Check;
use symseal_seal::{Expectation, SubjectDigests, Trust, UtcSeconds, examine_seals};

use crate::peers::{Asked, Signer};
use crate::support::{self, NOW, SUBJECTS, World, failures};

/// One change, and what became of it.
pub struct Mutant {
    /// What was changed.
    pub part: &'static str,
    pub name: String,
    /// The check that has to refuse it.
    pub expected: &'static str,
    /// Those that did.
    pub found: Vec<&'static str>,
    /// The same for other verifiers, where it can be said to them.
    pub asked: Option<Asked>,
}

/// How a seal is asked about here.
pub struct Question<'a> {
    pub trust: &'a Trust,
    pub subjects: SubjectDigests,
    pub expectation: Expectation<'a>,
    pub at: UtcSeconds,
}

impl<'a> Question<'a> {
    pub fn of(world: &'a World) -> Self {
        let expectation = Expectation { name: Some("tool"), version: Some("1.0"), ..Expectation::default() };
        Self { trust: &world.trust, subjects: SUBJECTS, expectation, at: NOW }
    }

    pub fn checks(&self, seals: &[Vec<u8>]) -> Vec<Check> {
        examine_seals(seals, &self.subjects, self.trust, &self.expectation, self.at).checks
    }

    pub fn failures(&self, seals: &[Vec<u8>]) -> Vec<&'static str> {
        failures(&self.checks(seals))
    }
}

/// A seal as others are asked about it: the key, the log's key, and the bundle's digest.
pub fn asked(world: &World, seal: &[u8]) -> Asked {
    Asked {
        bundle: String::from_utf8_lossy(seal).into_owned(),
        trusted_root: String::from_utf8_lossy(&world.trust_files[2]).into_owned(),
        signer: Signer::Key(world.artifact.public().to_pem()),
        artifact: None,
        sha256: support::BUNDLE,
    }
}

/// A list of mutants as it grows.
pub struct Mutants<'a> {
    pub world: &'a World,
    pub all: Vec<Mutant>,
}

impl Mutants<'_> {
    /// A changed seal, asked as always.
    pub fn seal(&mut self, part: &'static str, name: impl Into<String>, expected: &'static str, seal: &[u8]) {
        let found = Question::of(self.world).failures(&[seal.to_vec()]);
        self.all.push(Mutant { part, name: name.into(), expected, found, asked: Some(asked(self.world, seal)) });
    }

    /// The seal with its JSON changed.
    pub fn json(
        &mut self,
        part: &'static str,
        name: impl Into<String>,
        expected: &'static str,
        change: impl FnOnce(&mut Value),
    ) {
        let mut seal = self.world.seal_json();
        change(&mut seal);
        self.seal(part, name, expected, seal.to_string().as_bytes());
    }

    /// What only symseal can be asked.
    pub fn ours(
        &mut self,
        part: &'static str,
        name: impl Into<String>,
        expected: &'static str,
        found: Vec<&'static str>,
    ) {
        self.all.push(Mutant { part, name: name.into(), expected, found, asked: None });
    }

    /// The same seal, asked otherwise here: others are asked as always.
    pub fn unchanged(
        &mut self,
        part: &'static str,
        name: impl Into<String>,
        expected: &'static str,
        found: Vec<&'static str>,
        seal: &[u8],
    ) {
        let asked = Some(asked(self.world, seal));
        self.all.push(Mutant { part, name: name.into(), expected, found, asked });
    }
}

/// The paths of all texts and numbers of a document, as JSON pointers.
pub fn leaves(value: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                members
                    .iter()
                    .for_each(|(key, value)| walk(value, &format!("{path}/{}", key.replace('/', "~1")), found));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, item)| walk(item, &format!("{path}/{n}"), found))
            }
            Value::Null => {}
            _ => found.push(path.to_owned()),
        }
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found
}

/// Changes a leaf a little: the first character of a text, a number by one, a truth.
pub fn flip(value: &mut Value) {
    *value = match &*value {
        Value::String(text) => {
            let other = if text.starts_with('1') { '2' } else { '1' };
            let rest: String = text.chars().skip(1).collect();
            format!("{other}{rest}").into()
        }
        Value::Number(number) => (number.as_u64().unwrap_or_default() + 1).into(),
        Value::Bool(truth) => (!truth).into(),
        other => other.clone(),
    };
}

/// As a person reads it: `a.b[0]`.
pub fn readable(pointer: &str) -> String {
    let mut text = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/");
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            text.push_str(&format!("[{part}]"));
        } else {
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(&part);
        }
    }
    text
}
