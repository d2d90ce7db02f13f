//! A frame's proof follows from the bundle, and no changed one does.

use crate::made;
use crate::made::IDS;
use serde_json::Value;
use symseal_bundle::frame_proof::{FrameProof, FrameProofError};
use symseal_bundle::module_tree::ModuleTree;
use symseal_bundle::{Bundle, FileRole};
use symseal_module::{DebugId, Svma};
use symseal_symx::Table;

fn bundle() -> (tempfile::TempDir, Bundle) {
    let dir = tempfile::tempdir().unwrap();
    let (layout, digest) = made::bundle(dir.path());
    let bundle = Bundle::open(layout, Some(&digest)).unwrap();
    (dir, bundle)
}

fn proof(bundle: &Bundle, id: &DebugId, address: Svma) -> FrameProof {
    let table = bundle.read(bundle.module(id).unwrap().file(FileRole::SymbolTable).unwrap()).unwrap();
    FrameProof::make(bundle.index_bytes(), id, address, &table, &[b"{}".to_vec()]).unwrap()
}

#[test]
fn a_proof_says_what_the_table_says_and_leads_to_the_tree_of_modules() {
    let (_dir, bundle) = bundle();
    let root = ModuleTree::of(bundle.index_bytes()).unwrap().root();
    for id in IDS {
        let id: DebugId = id.parse().unwrap();
        let table = bundle.read(bundle.module(&id).unwrap().file(FileRole::SymbolTable).unwrap()).unwrap();
        let table = Table::open(&table).unwrap();
        for address in [0x40_1000, 0x40_1007, 0x40_1230, 0x40_1c80, 0x40_0fff, 0x50_0000] {
            let address = Svma(address);
            let bytes = proof(&bundle, &id, address).to_json().unwrap();
            let read = FrameProof::parse(&bytes).unwrap();
            let proved = read.check().unwrap();
            assert_eq!(proved.modules_root, root);
            let expected = table.lookup(address.to_rva(table.image_base()).unwrap());
            let frames = |hit: symseal_symx::Hit<'_>| {
                hit.frames().map(|frame| (frame.function.to_string(), frame.line, frame.column())).collect::<Vec<_>>()
            };
            let found = proved.hit.map(|hit| {
                hit.frames.into_iter().map(|frame| (frame.function, frame.line, frame.column)).collect::<Vec<_>>()
            });
            assert_eq!(found, expected.map(frames), "{address}");
            assert!(bytes.len() < 12 * 1024, "{} bytes", bytes.len());
        }
    }
}

/// Every value of the proof changed in turn: a letter of each text, one more for each number, one element less in each list.
fn changed(value: &Value, path: String, all: &mut Vec<(String, Value)>, put: &dyn Fn(Value) -> Value) {
    match value {
        Value::String(text) => {
            for at in [0, text.len() / 2, text.len().saturating_sub(1)] {
                if !text.is_ascii() || text.is_empty() {
                    continue;
                }
                let mut bytes = text.clone().into_bytes();
                bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
                all.push((path.clone(), put(Value::String(String::from_utf8(bytes).unwrap()))));
            }
        }
        Value::Number(number) => all.push((path, put(Value::from(number.as_u64().unwrap() + 1)))),
        Value::Array(items) => {
            if !items.is_empty() {
                all.push((path.clone(), put(Value::Array(items[1..].to_vec()))));
            }
            for (at, item) in items.iter().enumerate() {
                let with = |new: Value| {
                    let mut items = items.clone();
                    items[at] = new;
                    put(Value::Array(items))
                };
                changed(item, format!("{path}[{at}]"), all, &with);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let with = |new: Value| {
                    let mut fields = fields.clone();
                    fields.insert(key.clone(), new);
                    put(Value::Object(fields))
                };
                changed(field, format!("{path}.{key}"), all, &with);
            }
        }
        Value::Bool(flag) => all.push((path, put(Value::Bool(!flag)))),
        Value::Null => {}
    }
}

#[test]
fn a_proof_with_any_value_changed_is_refused_or_leads_elsewhere() {
    let (_dir, bundle) = bundle();
    let id: DebugId = IDS[0].parse().unwrap();
    let original = proof(&bundle, &id, Svma(0x40_1230));
    let expected = original.check().unwrap();
    let value = serde_json::to_value(&original).unwrap();
    let mut all = Vec::new();
    changed(&value, String::new(), &mut all, &|value| value);
    assert!(all.len() > 50, "{} changes", all.len());
    for (path, other) in all {
        let Ok(read) = FrameProof::parse(other.to_string().as_bytes()) else { continue };
        // Another address is another question, honestly answered; and a wrong guess of the block, where the search reads no
        // other pieces, changes nothing.
        let proved = match read.check() {
            Err(_) => continue,
            Ok(proved) => proved,
        };
        let same_root = proved.modules_root == expected.modules_root;
        // The seals are verified by others.
        let harmless = path == ".address" || path == ".seals" || path == ".table.block" && proved.hit == expected.hit;
        assert!(!same_root || harmless, "{path} was changed, and nothing noticed");
    }
}

#[test]
fn a_guess_of_the_block_cannot_hide_a_function() {
    let (_dir, bundle) = bundle();
    let id: DebugId = IDS[0].parse().unwrap();
    for block in [Some(0), Some(1), Some(u64::MAX), None] {
        let mut proof = proof(&bundle, &id, Svma(0x40_1230));
        if proof.table.block == block {
            continue;
        }
        proof.table.block = block;
        match proof.check() {
            Err(FrameProofError::Broken { .. }) => {}
            Ok(proved) => assert!(proved.hit.is_some(), "{block:?}"),
            Err(other) => panic!("{block:?}: {other}"),
        }
    }
}

#[test]
fn what_is_no_proof_is_named() {
    let read = |text: &str| FrameProof::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(read("[]").contains("expected a frame proof"));
    assert!(read(r#"{"schema":"other"}"#).contains("symseal.frame_proof.v1"));
    assert!(read("").contains("expected a frame proof"));
}
