//! `symseal symbolize --prove`: one name's whole chain in a file.

use std::path::Path;

use anyhow::{Context, Result, bail};
use symseal_bundle::frame_proof::{FrameProof, FrameProofError};
use symseal_bundle::module_tree::ModuleTree;
use symseal_bundle::seal::encoding::to_hex;
use symseal_bundle::seal::{SigstoreBundle, Statement};
use symseal_bundle::{Bundle, FileRole};
use symseal_module::{DebugId, Svma};

use crate::exit::NotFound;

/// Seals that a proof takes along: more than any policy asks for.
const MAX_SEALS: usize = 16;

/// Writes the proof of what the bundle says of `address`; returns its size in bytes.
pub(super) fn write(bundle: &Bundle, debug_id: &DebugId, address: Svma, to: &Path) -> Result<usize> {
    let module = bundle.module(debug_id).ok_or_else(|| NotFound(format!("the bundle has no module {debug_id}")))?;
    let table = module
        .file(FileRole::SymbolTable)
        .ok_or_else(|| FrameProofError::Lacks { module: debug_id.clone(), missing: "no symbol table" })?;
    let root = to_hex(&ModuleTree::of(bundle.index_bytes())?.root().0);
    let seals = bundle.read_seals()?;
    // Others may refer to the bundle too; which seal can be trusted is said by whoever verifies the proof.
    let named: Vec<Vec<u8>> =
        seals.iter().filter(|seal| modules_root(seal).as_ref() == Some(&root)).take(MAX_SEALS).cloned().collect();
    if named.is_empty() {
        bail!(
            "expected a seal of the bundle that names its root of modules {root}, found {} without; seal it with `symseal bundle seal`",
            seals.len()
        );
    }
    let proof = FrameProof::make(bundle.index_bytes(), debug_id, address, &bundle.read(table)?, &named)?;
    // A proof that does not hold is worth nothing to anybody.
    proof.check()?;
    let bytes = proof.to_json()?;
    std::fs::write(to, &bytes).with_context(|| format!("the proof {}", to.display()))?;
    Ok(bytes.len())
}

fn modules_root(seal: &[u8]) -> Option<String> {
    let seal = SigstoreBundle::parse(seal).ok()?;
    Statement::parse(&seal.envelope.payload).ok()?.predicate.modules_root
}
