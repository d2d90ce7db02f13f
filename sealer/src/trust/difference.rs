//! What a change of a policy does, for whoever signs it to read: each value before and after.

use std::collections::BTreeMap;

use serde_json::Value;
use symseal_seal::trust::policy::PolicyDocument;

/// A value of a policy that is another one now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which: `logs[log.example.org].witness_quorum`, by ids and origins.
    pub what: String,
    /// What it was; `None`: it was not there.
    pub before: Option<String>,
    /// What it is; `None`: it is there no more.
    pub after: Option<String>,
}

/// The members by which the items of a list are told apart.
const NAMES_OF_ITEMS: [&str; 3] = ["key_id", "origin", "key"];
/// What follows from the id beside it, and says nothing to a reader.
const FOLLOWS_FROM_ID: [&str; 2] = ["algorithm", "spki"];

/// Every value that differs, in the order of their names.
pub(super) fn difference(before: &PolicyDocument, after: &PolicyDocument) -> Vec<Difference> {
    let (mut before, mut after) = (values(before), values(after));
    before.retain(|what, value| match after.get(what) {
        Some(same) if same == value => after.remove(what).is_none(),
        _ => true,
    });
    let mut differences: Vec<Difference> = before
        .into_iter()
        .map(|(what, before)| Difference { after: after.remove(&what), before: Some(before), what })
        .collect();
    differences.extend(after.into_iter().map(|(what, after)| Difference { what, before: None, after: Some(after) }));
    differences.sort_by(|a, b| a.what.cmp(&b.what));
    differences
}

fn values(policy: &PolicyDocument) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    // A policy is plain JSON: writing it cannot fail, and an empty list of values would show as such.
    collect(&serde_json::to_value(policy).unwrap_or_default(), "", &mut values);
    values
}

fn collect(value: &Value, path: &str, values: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !FOLLOWS_FROM_ID.contains(&name.as_str())) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(value, &path, values);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for item in items {
                let name = NAMES_OF_ITEMS.iter().find_map(|name| item.get(name)?.as_str()).unwrap_or_default();
                collect(item, &format!("{path}[{name}]"), values);
            }
        }
        // What is empty is as good as absent.
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(text).collect();
            values.insert(path.to_owned(), texts.join(", "));
        }
        Value::Null => {}
        scalar => {
            values.insert(path.to_owned(), text(scalar));
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
