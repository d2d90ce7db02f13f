//! What is to be said anew of a key, a log or a revocation of a policy: only what is given changes. What would make a policy
//! weaker without a word (a closed log open again, a quorum lowered) has to be asked for by name.

use std::str::FromStr;

use symseal_seal::trust::policy::{
    LogPlaceDocument, PolicyKeyDocument, PolicyLogDocument, RevocationDocument, WitnessDocument,
};
use symseal_seal::{UtcSeconds, Witness};

/// The end of a validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its last second.
    At(UtcSeconds),
    /// It has none.
    Never,
}

impl FromStr for End {
    type Err = <UtcSeconds as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "never" { Ok(Self::Never) } else { text.parse().map(Self::At) }
    }
}

impl From<End> for Option<UtcSeconds> {
    fn from(end: End) -> Self {
        match end {
            End::At(time) => Some(time),
            End::Never => None,
        }
    }
}

/// What an edit of a document expected and found instead.
pub(super) type Refused = (String, String);

/// What changes of a key. What is `None` or empty stays as it is, and has its default where the key is new.
#[derive(Debug, Clone, Default)]
pub struct KeyChange {
    /// Release names that it may sign, instead of those before. A new key needs one.
    pub names: Vec<String>,
    /// Predicate types that it may sign, instead of those before. Default: that of a bundle's seal.
    pub predicate_types: Vec<String>,
    /// First second of its validity. Default: now.
    pub not_before: Option<UtcSeconds>,
    /// Its end. Default: none.
    pub not_after: Option<End>,
}

impl KeyChange {
    pub(super) fn apply(self, key: &mut PolicyKeyDocument) -> Result<(), Refused> {
        if !self.names.is_empty() {
            key.names = self.names;
        }
        if !self.predicate_types.is_empty() {
            key.predicate_types = self.predicate_types;
        }
        key.not_before = self.not_before.or(key.not_before);
        key.not_after = self.not_after.map_or(key.not_after, Option::from);
        if key.names.is_empty() {
            let expected = format!("at least one name that the new key {} may sign (--name)", key.key_id);
            return Err((expected, "none".to_owned()));
        }
        Ok(())
    }
}

/// What changes of a log, likewise.
#[derive(Debug, Clone, Default)]
pub struct LogChange {
    /// Who runs it.
    pub operator: Option<String>,
    /// First second of its validity. Default: now.
    pub not_before: Option<UtcSeconds>,
    /// Its end. Default: none.
    pub not_after: Option<End>,
    /// Witnesses that count beside those before. One of a known name has this key from now on.
    pub witnesses: Vec<Witness>,
    /// Names of witnesses that count no more.
    pub without_witnesses: Vec<String>,
    /// How many of the witnesses must have cosigned. Default: none.
    pub witness_quorum: Option<u64>,
    /// Whether the quorum may be lower than before.
    pub may_lower_quorum: bool,
    /// Whether a log that was closed takes entries again.
    pub reopen: bool,
}

impl LogChange {
    pub(super) fn apply(self, log: &mut PolicyLogDocument) -> Result<(), Refused> {
        if let Some(operator) = self.operator {
            log.operator = operator;
        }
        log.not_before = self.not_before.or(log.not_before);
        log.not_after = self.not_after.map_or(log.not_after, Option::from);
        for name in &self.without_witnesses {
            let Some(place) = log.witnesses.iter().position(|known| witness_name(known) == name) else {
                let known: Vec<&str> = log.witnesses.iter().map(witness_name).collect();
                return Err((format!("one of the witnesses {}", known.join(", ")), name.clone()));
            };
            log.witnesses.remove(place);
        }
        for witness in &self.witnesses {
            let key = witness.to_string();
            match log.witnesses.iter_mut().find(|known| witness_name(known) == witness.name()) {
                Some(known) => known.key = key,
                None => log.witnesses.push(WitnessDocument { key, operator: String::new() }),
            }
        }
        if let Some(quorum) = self.witness_quorum {
            if quorum < log.witness_quorum && !self.may_lower_quorum {
                let expected = format!(
                    "a witness quorum of at least {}, as before, or the word that it may be lower (--lower-quorum)",
                    log.witness_quorum
                );
                return Err((expected, quorum.to_string()));
            }
            log.witness_quorum = quorum;
        }
        if self.reopen {
            log.entries_before = None;
        }
        Ok(())
    }
}

/// The name in a witness's published key, `<name>+<hash>+<base64>`.
fn witness_name(witness: &WitnessDocument) -> &str {
    witness.key.split('+').next().unwrap_or_default()
}

/// A revocation of a key. Its exceptions come beside those of an earlier one.
#[derive(Debug, Clone, Default)]
pub struct RevocationChange {
    /// Why, for a person to read.
    pub reason: String,
    /// Digests (`sha256:…`) of bundles or symbol indexes that still count.
    pub except_digests: Vec<String>,
    /// By origin: the place before which the key's entries still count. It stands for an earlier one in the same log.
    pub except_before: Vec<(String, u64)>,
    /// Whether earlier exceptions go.
    pub replace: bool,
}

impl RevocationChange {
    pub(super) fn apply(self, revocation: &mut RevocationDocument) {
        revocation.reason = self.reason;
        if self.replace {
            revocation.except_digests.clear();
            revocation.except_before.clear();
        }
        for digest in self.except_digests {
            if !revocation.except_digests.contains(&digest) {
                revocation.except_digests.push(digest);
            }
        }
        for (origin, index) in self.except_before {
            match revocation.except_before.iter_mut().find(|place| place.origin == origin) {
                Some(place) => place.index = index,
                None => revocation.except_before.push(LogPlaceDocument { origin, index }),
            }
        }
    }
}
