//! One name, proved: the few records of a symbol table that say what is at an address, and the hashes from there to what a
//! seal signs. Described in `docs/formats/frame_proof.md`.
//!
//! What is proved by [`FrameProof::check`] is that the answer follows from a root of modules; whether a seal names that root,
//! and whose seal it is, is the seal's verification.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use symseal_module::{DebugId, Svma};
use symseal_seal::checks::{Check, id};
use symseal_seal::encoding::{from_base64, to_base64};
use symseal_seal::{Checkpoint, Expectation, LogIdentity, SealFacts, SubjectDigests, Trust, UtcSeconds, examine_seals};
use symseal_symx::{ReadAt, SparseError, SparseHit, SparseTable};

use crate::canonical;
use crate::index::{FileEntry, FileRole, ModuleEntry, platform_of};
use crate::module_tree::{self, ModuleTree};
use crate::pages::{self, Hash, MAX_PROOF_HASHES};
use crate::pieces::{self, PIECE_BYTES};
use crate::verify::Verdict;

/// The one schema.
pub const SCHEMA: &str = "symseal.frame_proof.v1";

/// The largest proof that is read, in bytes.
pub const MAX_PROOF_BYTES: u64 = 8 << 20;

/// A frame's proof, as its file has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameProof {
    /// [`SCHEMA`].
    pub schema: String,
    /// The address in its module (svma).
    pub address: Svma,
    /// The module.
    pub debug_id: DebugId,
    /// The module's entry in the symbol index.
    pub module: ModuleProof,
    /// What the lookup reads of the symbol table.
    pub table: TableProof,
    /// Seals of the bundle, Sigstore bundles: several where a policy asks for several keys.
    pub seals: Vec<Value>,
}

/// A module's entry and its place in the tree of modules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModuleProof {
    /// As `symbol_index.json` has it.
    pub entry: Value,
    /// Its place among the modules.
    pub index: u64,
    /// How many modules there are.
    pub count: u64,
    /// The audit path, base64 of its hashes.
    pub path: String,
}

/// Pieces of a symbol table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableProof {
    /// The block of rows in which the lookup ends, so that the search for it need not be proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// The pieces that the lookup reads, rising.
    pub pieces: Vec<Piece>,
    /// The hashes beside them, base64.
    pub nodes: String,
}

/// One piece of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Its index: it begins at this many times [`PIECE_BYTES`].
    pub index: u64,
    /// Base64.
    pub bytes: String,
}

/// What a proof says, its seal apart.
#[derive(Debug, Clone, PartialEq)]
pub struct ProvedFrame {
    /// The module's entry.
    pub entry: ModuleEntry,
    /// What its symbol table has at the address; `None` = no function.
    pub hit: Option<SparseHit>,
    /// Root of the tree of modules: a seal must name it.
    pub modules_root: Hash,
}

/// Why a frame cannot be proved, or a proof does not hold.
#[derive(Debug, thiserror::Error)]
pub enum FrameProofError {
    /// Not JSON of the schema's shape.
    #[error("expected a frame proof, found other JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Another schema.
    #[error("expected schema {SCHEMA}, found {found:?}: a newer symseal may read it")]
    Schema {
        /// The schema that it names.
        found: String,
    },
    /// Too large.
    #[error("expected a frame proof of at most {MAX_PROOF_BYTES} bytes, found {found}")]
    TooLarge {
        /// Its size in bytes.
        found: u64,
    },
    /// The bundle lacks what a proof rests on.
    #[error(
        "module {module} has {missing}, which a frame proof rests on; build the bundle with this version of symseal"
    )]
    Lacks {
        /// The module.
        module: DebugId,
        /// What is not there.
        missing: &'static str,
    },
    /// A part of the proof does not lead to the next.
    #[error("{part}: expected {expected}, found {found}")]
    Broken {
        /// Which part.
        part: &'static str,
        /// What should be there.
        expected: String,
        /// What is.
        found: String,
    },
}

fn broken(part: &'static str, expected: impl Into<String>, found: impl Into<String>) -> FrameProofError {
    FrameProofError::Broken { part, expected: expected.into(), found: found.into() }
}

/// Pieces at hand, and which of them were read.
struct Pieces<'a> {
    bytes: BTreeMap<u64, &'a [u8]>,
    read: BTreeSet<u64>,
}

impl ReadAt for Pieces<'_> {
    type Error = u64;

    /// Fails with the index of a piece that is not there.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), u64> {
        let Self { bytes, read } = self;
        pages::assemble(PIECE_BYTES, offset, into, |index| {
            let piece = bytes.get(&index).copied()?;
            read.insert(index);
            Some(piece)
        })
    }
}

impl FrameProof {
    /// Proves what the bundle says of `address` in a module: from the bytes of its `symbol_index.json` and of the module's
    /// symbol table, and seals of the bundle.
    ///
    /// # Errors
    /// [`FrameProofError::Lacks`] for a bundle of a version before proofs; [`FrameProofError::Broken`] where the table is
    /// not the module's.
    pub fn make(
        symbol_index: &[u8],
        debug_id: &DebugId,
        address: Svma,
        table: &[u8],
        seals: &[Vec<u8>],
    ) -> Result<Self, FrameProofError> {
        let lacks = |missing| FrameProofError::Lacks { module: debug_id.clone(), missing };
        let tree = ModuleTree::of(symbol_index)?;
        let module = tree.prove(platform_of(debug_id), &debug_id.to_string()).ok_or(lacks("no entry in the index"))?;
        let entry: ModuleEntry = serde_json::from_str(module.entry)?;
        table_of(&entry, debug_id)?;
        let leaves = pages::leaves(table, PIECE_BYTES);
        let all = (0u64..).zip(table.chunks(PIECE_BYTES as usize)).collect();
        let mut source = Pieces { bytes: all, read: BTreeSet::new() };
        let sparse = open(table.len() as u64, &mut source)?;
        let missing = |index: u64| broken("symbol table", "the whole file", format!("no piece {index}"));
        let rva = address.to_rva(entry.image_base).ok_or_else(|| outside(address, &entry))?;
        let block = sparse.block_of(&mut source, rva).map_err(missing)?;
        // Again from the start, so that the search's pieces are left out.
        source.read.clear();
        let sparse = open(table.len() as u64, &mut source)?;
        sparse.lookup_near(&mut source, rva, block).map_err(missing)?;
        let wanted: Vec<u64> = source.read.iter().copied().collect();
        let pieces = wanted.iter().filter_map(|index| Some((*index, *source.bytes.get(index)?)));
        Ok(Self {
            schema: SCHEMA.to_owned(),
            address,
            debug_id: debug_id.clone(),
            module: ModuleProof {
                entry: serde_json::from_str(module.entry)?,
                index: module.index,
                count: module.count,
                path: to_base64(&joined(&module.path)),
            },
            table: TableProof {
                block,
                pieces: pieces.map(|(index, bytes)| Piece { index, bytes: to_base64(bytes) }).collect(),
                nodes: to_base64(&joined(&pieces::prove(&leaves, &wanted))),
            },
            seals: seals.iter().map(|seal| serde_json::from_slice(seal)).collect::<Result<_, _>>()?,
        })
    }

    /// Reads a proof.
    ///
    /// # Errors
    /// [`FrameProofError`], of shape alone.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameProofError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        if bytes.len() as u64 > MAX_PROOF_BYTES {
            return Err(FrameProofError::TooLarge { found: bytes.len() as u64 });
        }
        let head: Head = serde_json::from_slice(bytes)?;
        if head.schema != SCHEMA {
            return Err(FrameProofError::Schema { found: head.schema.chars().take(80).collect() });
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// The file's bytes: canonical JSON.
    ///
    /// # Errors
    /// Those of the JSON writer.
    pub fn to_json(&self) -> Result<Vec<u8>, FrameProofError> {
        Ok(canonical::to_vec(self)?)
    }

    /// The bytes of the seals.
    pub fn seals(&self) -> Vec<Vec<u8>> {
        self.seals.iter().map(|seal| seal.to_string().into_bytes()).collect()
    }

    /// Follows the proof from the records to the root of modules.
    ///
    /// # Errors
    /// [`FrameProofError::Broken`] names the part that does not hold.
    pub fn check(&self) -> Result<ProvedFrame, FrameProofError> {
        let entry: ModuleEntry = serde_json::from_value(self.module.entry.clone())?;
        let file = table_of(&entry, &self.debug_id)?;
        let expected = file.piece_root.ok_or(FrameProofError::Lacks {
            module: self.debug_id.clone(),
            missing: "a symbol table without the root of its pieces",
        })?;
        let mut source = Pieces { bytes: BTreeMap::new(), read: BTreeSet::new() };
        let decoded = self.pieces(file.size)?;
        let hashes: Vec<(u64, Hash)> = decoded.iter().map(|(index, bytes)| (*index, pages::leaf_hash(bytes))).collect();
        let count = pages::page_count(file.size, PIECE_BYTES);
        let nodes = hashes_of(&self.table.nodes, "table.nodes", hashes.len().saturating_mul(MAX_PROOF_HASHES))?;
        let found = pieces::root_from(count, &hashes, &nodes);
        if found != Some(expected) {
            let found = found.map_or("pieces that give none".to_owned(), |found| found.to_string());
            return Err(broken("table.pieces", format!("pieces with the root {expected}"), found));
        }
        source.bytes = decoded.iter().map(|(index, bytes)| (*index, bytes.as_slice())).collect();

        let sparse = open(file.size, &mut source)?;
        if sparse.debug_id() != self.debug_id {
            return Err(broken(
                "symbol table",
                format!("one of {}", self.debug_id),
                format!("one of {}", sparse.debug_id()),
            ));
        }
        if sparse.image_base() != entry.image_base {
            let (expected, found) = (entry.image_base.to_string(), sparse.image_base().to_string());
            return Err(broken("image base of the symbol table", expected, found));
        }
        let rva = self.address.to_rva(entry.image_base).ok_or_else(|| outside(self.address, &entry))?;
        let hit = sparse
            .lookup_near(&mut source, rva, self.table.block)
            .map_err(|index| broken("table.pieces", format!("piece {index}, which the lookup reads"), "none"))?;
        if source.read.len() != source.bytes.len() {
            return Err(broken("table.pieces", "only pieces that the lookup reads", "others beside them"));
        }

        let leaf = module_tree::leaf(
            platform_of(&self.debug_id),
            &self.debug_id.to_string(),
            &canonical::to_vec(&self.module.entry)?,
        );
        let path = hashes_of(&self.module.path, "module.path", MAX_PROOF_HASHES)?;
        let modules_root = (self.module.index < self.module.count)
            .then(|| pages::fold(leaf, self.module.index, self.module.count, &path))
            .flatten()
            .ok_or_else(|| {
                let (index, count) = (self.module.index, self.module.count);
                let expected = format!("the audit path of module {index} of {count}");
                broken("module.path", expected, format!("{} hashes", path.len()))
            })?;
        Ok(ProvedFrame { entry, hit, modules_root })
    }

    /// The pieces, decoded, each as long as its place in a file of `size` bytes asks.
    fn pieces(&self, size: u64) -> Result<Vec<(u64, Vec<u8>)>, FrameProofError> {
        let piece = u64::from(PIECE_BYTES);
        let decode = |given: &Piece| {
            let start = given.index.checked_mul(piece).filter(|start| *start < size);
            let expected = start.map_or(0, |start| piece.min(size - start));
            let bytes = from_base64(&given.bytes).filter(|bytes| expected > 0 && bytes.len() as u64 == expected);
            let bytes = bytes.ok_or_else(|| {
                broken("table.pieces", format!("base64 of {expected} bytes for piece {}", given.index), "others")
            })?;
            Ok((given.index, bytes))
        };
        self.table.pieces.iter().map(decode).collect()
    }
}

/// The symbol table of a module that can be proved.
fn table_of<'e>(entry: &'e ModuleEntry, debug_id: &DebugId) -> Result<&'e FileEntry, FrameProofError> {
    let lacks = |missing| FrameProofError::Lacks { module: debug_id.clone(), missing };
    let table = entry.file(FileRole::SymbolTable).ok_or(lacks("no symbol table"))?;
    table.piece_root.map(|_| table).ok_or(lacks("a symbol table without the root of its pieces"))
}

fn outside(address: Svma, entry: &ModuleEntry) -> FrameProofError {
    broken("address", format!("one at or above the image base {}", entry.image_base), address.to_string())
}

fn open(size: u64, source: &mut Pieces<'_>) -> Result<SparseTable, FrameProofError> {
    SparseTable::open(size, source).map_err(|error| match error {
        SparseError::Read(index) => broken("table.pieces", format!("piece {index}, which the lookup reads"), "none"),
        SparseError::Table(error) => broken("symbol table", "one of version 1", error.to_string()),
    })
}

fn joined(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

fn hashes_of(base64: &str, part: &'static str, most: usize) -> Result<Vec<Hash>, FrameProofError> {
    let wrong = |found: String| broken(part, format!("base64 of at most {most} hashes of 32 bytes"), found);
    let bytes = from_base64(base64).ok_or_else(|| wrong("other text".to_owned()))?;
    let (hashes, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() || hashes.len() > most {
        return Err(wrong(format!("{} bytes", bytes.len())));
    }
    Ok(hashes.iter().copied().map(Hash).collect())
}

/// What came of verifying a proof.
#[derive(Debug, Serialize)]
pub struct FrameReport {
    /// Whether all of it holds.
    pub verdict: Verdict,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// What the seal says.
    pub seal: SealFacts,
    /// What is proved; `None` where the proof itself does not hold.
    #[serde(skip)]
    pub frame: Option<ProvedFrame>,
    /// Whether what was seen is remembered now, or why not; the caller's word.
    pub memory: String,
    /// The checkpoints that were verified, to be remembered.
    #[serde(skip)]
    pub checkpoints: Vec<(LogIdentity, Checkpoint)>,
}

/// Verifies a proof from the records to the seal, offline. The bundle's digest and that of its index are reported as signed:
/// a proof has neither.
pub fn verify(proof: &FrameProof, trust: &Trust, expectation: &Expectation<'_>, at: UtcSeconds) -> FrameReport {
    let mut checks = Vec::new();
    let frame = match proof.check() {
        Ok(frame) => {
            let pieces = proof.table.pieces.len();
            checks.push(Check::passed(id::FRAME_PROOF, format!("{pieces} pieces of a symbol table")));
            Some(frame)
        }
        Err(FrameProofError::Broken { part, expected, found }) => {
            checks.push(Check::failed(id::FRAME_PROOF, expected, found).with_detail(part));
            None
        }
        Err(error) => {
            checks.push(Check::failed(
                id::FRAME_PROOF,
                "a frame proof that leads to a root of modules",
                error.to_string(),
            ));
            None
        }
    };
    let modules_root = frame.as_ref().map(|frame| frame.modules_root.0);
    let subjects = SubjectDigests { modules_root, ..SubjectDigests::default() };
    let seal = examine_seals(&proof.seals(), &subjects, trust, expectation, at);
    // A statement without a root says nothing of any frame.
    let unnamed = seal.facts.signed_modules_root.is_none().then_some(frame.as_ref()).flatten().map(|frame| {
        Check::failed(
            id::STATEMENT_MODULES,
            frame.modules_root.to_string(),
            "a statement that names no root of modules",
        )
    });
    for check in seal.checks {
        match &unnamed {
            Some(unnamed) if check.id == id::STATEMENT_MODULES => checks.push(unnamed.clone()),
            _ => checks.push(check),
        }
    }
    let verdict = if checks.iter().any(Check::is_failed) { Verdict::Refused } else { Verdict::Verified };
    FrameReport {
        verdict,
        checks,
        seal: seal.facts,
        frame,
        checkpoints: seal.checkpoints,
        memory: "no state directory was given".to_owned(),
    }
}
