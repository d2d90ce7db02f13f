//! What `POST /api/v1/resolve` answers: names for addresses of one module, with what each name rests on.

use axum::http::StatusCode;
use serde::Serialize;
use symseal_module::{DebugId, MissReason, Proof, Quality, ResolverStep, Rva, Svma};
use symseal_resolver::{SourceFrame, Symbolized};
use symseal_symx::{OpenError, SparseError, SparseTable};

use super::Made;
use super::request::{AddressKind, Platform, Request};
use crate::app::App;
use crate::debug_files::{Candidate, Scope};
use crate::endpoints::api::ApiError;
use crate::http::GrowingText;
use crate::made_tables::MadeTable;
use crate::seals::Verdict;

/// Bytes of a build-id in Breakpad's form.
const BREAKPAD_BYTES: usize = 16;
/// The largest answer, in bytes.
const ANSWER_LIMIT: usize = 64 << 20;

/// The answer, the frames apart.
#[derive(Serialize)]
struct Head<'a> {
    platform: Platform,
    debug_id: Option<String>,
    image_base: Option<Svma>,
    provenance: &'a Provenance,
    /// Why there is no table.
    reason: Option<MissReason>,
}

/// What the names of one module rest on.
#[derive(Debug, Clone, Default, Serialize)]
struct Provenance {
    /// Digest of the bundle.
    bundle: Option<String>,
    /// Digest of the symbol table.
    table: Option<String>,
    /// Its seal, where this server has judged one to hold: `dsse:` and the sha256 of the envelope.
    seal: Option<String>,
    /// Place of that in a log.
    rekor_tile_ref: Option<String>,
    /// Digest of the file that the table was made of, where that came without a bundle.
    made_of: Option<String>,
    /// Digests of the files that it refers to and that the table was made of as well: what dwz moved out, split DWARF.
    made_with: Vec<String>,
    /// Which of these were not to be had, for people.
    lacks: Option<String>,
}

/// One frame: that of `symbolize --json`, and what it rests on.
#[derive(Serialize)]
struct Frame<'a> {
    address: Svma,
    resolver: ResolverStep,
    quality: Quality,
    proof: Proof,
    approximate: bool,
    folded: bool,
    bundle: Option<&'a str>,
    table: Option<&'a str>,
    seal: Option<&'a str>,
    frames: &'a [SourceFrame],
    reason: Option<MissReason>,
}

/// Whether a table is of the module that is asked for. Symbol files of Breakpad may know no more of a build-id than its beginning.
fn is_of(table: &DebugId, asked: &DebugId) -> bool {
    let beginning = |table: &[u8], asked: &[u8]| table.len() == BREAKPAD_BYTES && asked.starts_with(table);
    table == asked
        || matches!((table.build_id(), asked.build_id()), (Some(table), Some(asked)) if beginning(table, asked))
}

/// Names what is asked for by the table that was found, or else by the one that was made.
pub(super) fn resolve(
    app: &App,
    scope: &Scope,
    request: &Request,
    found: Option<(DebugId, Candidate)>,
    made: Made,
) -> Result<GrowingText, ApiError> {
    let answer = app.memory.growing();
    let miss = |answer, reason| write(answer, request, request.id.clone(), None, &Provenance::default(), Some(reason));
    let (id, candidate) = match (found, made, request.id.clone()) {
        (None, Made::Table(made), Some(id)) => return resolve_made(answer, request, id, &made),
        (None, Made::Malformed, _) => return miss(answer, MissReason::Malformed),
        (None, ..) => return miss(answer, MissReason::NotInBundle),
        (Some(found), ..) => found,
    };
    let (mut provenance, sealed) = provenance(app, scope, &candidate);
    let bytes = app.blobs.map(&candidate.digest)?;
    let mut source: &[u8] = &bytes;
    let damaged = |error: SparseError<OpenError>| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "storage-failed", format!("{}: {error:?}", candidate.digest))
    };
    let table = SparseTable::open(bytes.len() as u64, &mut source).map_err(damaged)?;
    if table.debug_id() != id {
        provenance = Provenance::default();
        return write(answer, request, Some(id), None, &provenance, Some(MissReason::DebugIdMismatch));
    }
    let proof = if sealed { Proof::Sealed } else { Proof::DigestKnown };
    write(answer, request, Some(id), Some((&table, source, proof)), &provenance, None)
}

/// Names that rest on a file that somebody uploaded, that lies in a tree, or that another server sent.
fn resolve_made(
    answer: GrowingText,
    request: &Request,
    id: DebugId,
    made: &MadeTable,
) -> Result<GrowingText, ApiError> {
    let mut source: &[u8] = made;
    let damaged = |error: SparseError<OpenError>| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "storage-failed", format!("{}: {error:?}", made.sha256))
    };
    let table = SparseTable::open(source.len() as u64, &mut source).map_err(damaged)?;
    if !is_of(&table.debug_id(), &id) {
        return write(answer, request, Some(id), None, &Provenance::default(), Some(MissReason::DebugIdMismatch));
    }
    let digest = |hex: &str| Some(format!("sha256:{hex}"));
    let provenance = Provenance {
        table: digest(&made.sha256),
        made_of: digest(&made.source),
        made_with: made.companions.iter().filter_map(|hex| digest(hex)).collect(),
        lacks: Some(made.lacks.clone()).filter(|lacks| !lacks.is_empty()),
        ..Provenance::default()
    };
    write(answer, request, Some(id), Some((&table, source, Proof::None)), &provenance, None)
}

/// What the names of a table rest on, and whether a seal of its bundle was judged to hold where the caller may read it.
fn provenance(app: &App, scope: &Scope, table: &Candidate) -> (Provenance, bool) {
    let known = app.debug_files.bundle(&table.bundle);
    let sealed = match known.map(|bundle| bundle.standing.among(|name| scope.covers(name))) {
        Some(Verdict::Sealed(by)) => Some(by),
        _ => None,
    };
    let provenance = Provenance {
        bundle: Some(table.bundle.to_string()),
        table: Some(table.digest.to_string()),
        seal: sealed.as_ref().and_then(|by| by.dsse_ref.clone()),
        rekor_tile_ref: sealed.as_ref().and_then(|by| by.rekor_tile_ref.clone()),
        ..Provenance::default()
    };
    (provenance, sealed.is_some())
}

type Opened<'t> = (&'t SparseTable, &'t [u8], Proof);

fn write(
    mut answer: GrowingText,
    request: &Request,
    id: Option<DebugId>,
    table: Option<Opened<'_>>,
    provenance: &Provenance,
    reason: Option<MissReason>,
) -> Result<GrowingText, ApiError> {
    let image_base = table.as_ref().map(|(table, ..)| table.image_base());
    let head =
        Head { platform: request.platform, debug_id: id.map(|id| id.to_string()), image_base, provenance, reason };
    let mut head = json(&head)?;
    head.pop();
    answer.push(&head)?;
    answer.push(br#","frames":["#)?;
    for (at, address) in request.addresses.taken.iter().enumerate() {
        answer.push(if at > 0 { b"," } else { b"" })?;
        answer.push(&json_of_frame(request, *address, table, provenance, reason)?)?;
        if answer.len() > ANSWER_LIMIT {
            let message = format!("the answer has more than {ANSWER_LIMIT} bytes: ask in several requests");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "resolve-too-large", message));
        }
    }
    answer.push(b"]}")?;
    Ok(answer)
}

fn json_of_frame(
    request: &Request,
    address: Svma,
    table: Option<Opened<'_>>,
    provenance: &Provenance,
    reason: Option<MissReason>,
) -> Result<Vec<u8>, ApiError> {
    let Some((table, mut source, proof)) = table else {
        return json(&Frame {
            address,
            resolver: ResolverStep::ModuleOffset,
            quality: Quality::ModuleOffset,
            proof: Proof::None,
            approximate: false,
            folded: false,
            bundle: None,
            table: None,
            seal: None,
            frames: &[],
            reason,
        });
    };
    let rva = match request.address_kind {
        AddressKind::Rva => Some(Rva(address.0)),
        AddressKind::Svma => address.0.checked_sub(table.image_base().0).map(Rva),
    };
    let hit = rva.map(|rva| table.lookup(&mut source, rva)).transpose().ok().flatten().flatten();
    let named = Symbolized::from_sparse(rva.unwrap_or_default(), hit, proof, request.demangle);
    let known = named.reason.is_none();
    // No bundle had it.
    let resolver = match named.resolver {
        ResolverStep::LocalBundle if provenance.made_of.is_some() => ResolverStep::BinaryDebugInfo,
        step => step,
    };
    // What is missing may have told of more functions, and by other names, than what is there: which of the frames are whole nobody can say.
    let is_partial = known && provenance.lacks.is_some();
    json(&Frame {
        address,
        resolver,
        quality: if is_partial { named.quality.max(Quality::Function) } else { named.quality },
        proof: named.proof,
        approximate: named.approximate,
        folded: named.folded,
        bundle: provenance.bundle.as_deref().filter(|_| known),
        table: provenance.table.as_deref().filter(|_| known),
        seal: provenance.seal.as_deref().filter(|_| known),
        frames: &named.frames,
        reason: if is_partial { Some(MissReason::NoDebugFile) } else { named.reason },
    })
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    let failed = |error: serde_json::Error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "interrupted", error);
    serde_json::to_vec(value).map_err(failed)
}
