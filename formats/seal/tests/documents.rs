//! The page and the schemas say what the code does.

use std::path::Path;

use serde_json::Value;
use symseal_seal::{CATALOGUE, Envelope};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_lists_every_check_with_its_sentence() {
    let page = read("../../docs/formats/seal.md");
    let rows: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("| check "))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let expected: Vec<String> =
        CATALOGUE.iter().map(|info| format!("| `{}` | {} | {} |", info.id, info.group.code(), info.sentence)).collect();
    assert_eq!(rows, expected);
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&read(&format!("../../docs/formats/schemas/{name}.schema.json"))).unwrap()
}

#[track_caller]
fn errors(schema: &Value, instance: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).unwrap();
    validator.iter_errors(instance).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The golden value fits its schema; each of the changes does not.
#[track_caller]
fn check(name: &str, value: &Value, changes: &[(&str, Value)]) {
    let schema = schema(name);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(errors(&schema, value), [""; 0], "{name}");
    for (pointer, other) in changes {
        let mut changed = value.clone();
        *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("{name}: {pointer}")) = other.clone();
        assert!(!errors(&schema, &changed).is_empty(), "{name}: {pointer} = {other}");
    }
}

#[test]
fn statement_root_and_policy_fit_their_schemas() {
    let statement: Value = serde_json::from_str(&read("tests/golden/statement.json")).unwrap();
    check(
        "statement",
        &statement,
        &[
            ("/_type", "https://in-toto.io/Statement/v0.1".into()),
            ("/predicateType", "https://example.com".into()),
            ("/subject", Value::Array(Vec::new())),
            ("/subject/0/digest/sha256", "AA".into()),
            ("/predicate/release/name", "a b".into()),
            ("/predicate/modules/count", (-1).into()),
            ("/predicate/inputs/0/name", "dir/file".into()),
        ],
    );
    let root: Value = serde_json::from_str(&read("tests/golden/root.json")).unwrap();
    check(
        "root",
        &root,
        &[
            ("/root/schema", "symseal.root.v2".into()),
            ("/root/keys/0/algorithm", "rsa".into()),
            ("/root/threshold", 0.into()),
            ("/signatures", Value::Array(Vec::new())),
        ],
    );
    let envelope = Envelope::parse(read("tests/golden/policy.dsse.json").trim_end().as_bytes()).unwrap();
    let policy: Value = serde_json::from_slice(&envelope.payload).unwrap();
    check(
        "policy",
        &policy,
        &[
            ("/schema", "symseal.policy.v2".into()),
            ("/keys/0/names/0", "a*b".into()),
            ("/keys/0/key_id", "short".into()),
            ("/logs/0/origin", "localhost/log".into()),
            ("/logs/0/witness_quorum", (-1).into()),
            ("/expires", "tomorrow".into()),
        ],
    );
}

#[test]
fn unknown_fields_fit_a_statement_but_not_a_root_or_policy() {
    let mut statement: Value = serde_json::from_str(&read("tests/golden/statement.json")).unwrap();
    statement["predicate"]["later"] = 1.into();
    assert_eq!(errors(&schema("statement"), &statement), [""; 0]);
    let mut root: Value = serde_json::from_str(&read("tests/golden/root.json")).unwrap();
    root["root"]["later"] = 1.into();
    assert!(!errors(&schema("root"), &root).is_empty());
}
