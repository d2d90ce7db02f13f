//! `POST /api/v1/resolve`: names for addresses of one module, with what each name rests on.

use std::fmt;
use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use symseal_artifact::ObjectFile;
use symseal_module::{DebugId, MissReason, Proof, Quality, ResolverStep, Rva, Svma};
use symseal_resolver::{SourceFrame, Symbolized};
use symseal_symx::{OpenError, SparseError, SparseTable};

use super::ApiError;
use crate::access::Caller;
use crate::app::App;
use crate::breakpad::base_name;
use crate::debug_files::{Candidate, FileKind, Key, Scope};
use crate::http::{GrowingText, NotGathered, Peer, Share, content_coding, drain};
use crate::ingest::{answers, breakpad_ids, parse_breakpad_id};
use crate::made_tables::{MadeTable, made_table};
use crate::releases::read_symbol_index;
use crate::seals::Verdict;
use crate::unbundled::Unbundled;
use crate::upstream::{Hops, Sought};

/// The largest body that is read, in bytes.
const BODY_LIMIT: usize = 8 << 20;
/// Addresses in one request.
const ADDRESS_LIMIT: usize = 100_000;
/// Digits of a build-id that is a SHA-1: no PDB has an age of as many digits as it were then.
const SHA1_DIGITS: usize = 40;
/// Digits of a UUID in Breakpad's form.
const BREAKPAD_DIGITS: usize = 33;
/// Bytes of a build-id in Breakpad's form.
const BREAKPAD_BYTES: usize = 16;
/// The largest answer, in bytes.
const ANSWER_LIMIT: usize = 64 << 20;

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    platform: Platform,
    #[serde(default)]
    debug_id: Option<String>,
    #[serde(default)]
    code_id: Option<String>,
    /// Name of the PE file that the code id is of, or its path.
    #[serde(default)]
    code_file: Option<String>,
    /// Name of the PDB, by which other symbol servers have it.
    #[serde(default)]
    debug_file: Option<String>,
    #[serde(default)]
    address_kind: AddressKind,
    addresses: Addresses,
    #[serde(default)]
    demangle: bool,
    /// What `debug_id`, or else `code_id`, says; `None` where that is a PE file's code id.
    #[serde(skip)]
    id: Option<DebugId>,
}

/// What is asked for, as many as are taken: the texts of more could come to many times the body.
#[derive(Debug, Default)]
struct Addresses {
    taken: Vec<Svma>,
    /// With those that are too many.
    count: usize,
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Addresses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of addresses")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Addresses, A::Error> {
                let mut all = Addresses::default();
                while let Some(Address(address)) = texts.next_element()? {
                    all.count = all.count.saturating_add(1);
                    if all.count <= ADDRESS_LIMIT {
                        all.taken.push(address);
                    }
                }
                Ok(all)
            }
        }

        deserializer.deserialize_seq(All)
    }
}

/// A text with `0x` alone: without it a number could be meant either way.
struct Address(Svma);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl Visitor<'_> for Read {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Address, E> {
                match text.starts_with("0x") {
                    true => text.parse().map(Address).map_err(E::custom),
                    false => Err(E::custom(format!("expected an address such as 0x1000, found {text:?}"))),
                }
            }
        }

        deserializer.deserialize_str(Read)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Platform {
    Linux,
    Macos,
    Windows,
}

/// What addresses count from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AddressKind {
    /// As the file states them.
    #[default]
    Svma,
    /// From the image base.
    Rva,
}

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

impl Request {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 and 413.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let form = r#"{"platform":"linux","debug_id":"…","addresses":["0x1000"]}"#;
        let invalid = |found: String| {
            let message = format!(
                "expected {form}, with code_id and code_file in the place of debug_id where that is not known; found {found}"
            );
            ApiError::new(StatusCode::BAD_REQUEST, "resolve-invalid", message)
        };
        let mut request: Self = serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
        // Debuggers and dumps have the path by which the module was loaded.
        request.code_file = request.code_file.map(|path| base_name(&path).to_owned());
        if request.debug_id.is_none() && request.code_id.is_none() {
            return Err(invalid("neither debug_id nor code_id".to_owned()));
        }
        if request.platform == Platform::Windows && request.debug_id.is_none() && request.code_file.is_none() {
            return Err(invalid("a code_id of a PE file without its code_file".to_owned()));
        }
        request.id = request
            .read_id()
            .map_err(|(setting, text, forms)| invalid(format!("{setting} {text:?}, where {forms} is read")))?;
        if request.addresses.count > ADDRESS_LIMIT {
            let found = request.addresses.count;
            let message = format!("expected at most {ADDRESS_LIMIT} addresses, found {found}: ask in several requests");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "resolve-too-large", message));
        }
        Ok(request)
    }

    /// The debug id, if any. One that cannot be read is an error, as a module that is merely not known is an answer: with what was given as
    /// what, and the forms that are read.
    fn read_id(&self) -> Result<Option<DebugId>, (&'static str, String, &'static str)> {
        match (&self.debug_id, &self.code_id) {
            (None, Some(code_id)) if self.platform == Platform::Windows => match is_code_id(code_id) {
                true => Ok(None),
                false => {
                    Err(("code_id", code_id.clone(), "a time stamp in eight hex digits with the image's size in hex"))
                }
            },
            (Some(text), _) => {
                self.platform.read_id(text).map(Some).ok_or(("debug_id", text.clone(), self.platform.forms()))
            }
            (None, Some(text)) => {
                self.platform.read_id(text).map(Some).ok_or(("code_id", text.clone(), self.platform.forms()))
            }
            (None, None) => Ok(None),
        }
    }
}

impl Platform {
    /// Reads a debug id of this platform as debuggers, Sentry (with the dashes of a GUID) and Breakpad (a GUID with the age behind it) write
    /// it. A UUID is 16 bytes of hex, as a build-id can be: the platform tells which.
    fn read_id(self, text: &str) -> Option<DebugId> {
        let undashed = |text: &str| text.replace('-', "");
        match self {
            Self::Linux => text.parse().ok().filter(|id| matches!(id, DebugId::BuildId(_))),
            Self::Macos => {
                let hex = undashed(text.strip_prefix("uuid:").unwrap_or(text));
                // Breakpad gives a Mach-O file the age 0.
                let hex = if hex.len() == BREAKPAD_DIGITS { hex.strip_suffix('0')? } else { &hex };
                format!("uuid:{hex}").parse().ok()
            }
            Self::Windows => match text.rsplit_once('-') {
                Some((guid, age)) => format!("{}-{age}", undashed(guid)).parse().ok(),
                None => parse_breakpad_id(text)
                    .filter(|_| text.len() < SHA1_DIGITS)
                    .map(|(guid, age)| DebugId::Pdb { guid, age }),
            },
        }
    }

    fn forms(self) -> &'static str {
        match self {
            Self::Linux => "a build-id (an even number of hex digits)",
            Self::Macos => "a UUID (32 hex digits, with dashes or without)",
            Self::Windows => {
                "a PDB's GUID with its age in hex (GUID-AGE, with the GUID's own dashes or without, or Breakpad's 33 digits and more)"
            }
        }
    }
}

/// Whether a text can be a PE file's time stamp, in eight digits, and size of the image.
fn is_code_id(text: &str) -> bool {
    (9..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// POST.
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    if let Some(coding) = content_coding(&headers) {
        drain(body.into_data_stream());
        let message = format!("Content-Encoding {coding:?}: expected the body as it is, without one");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "resolve-encoding", message));
    }
    let body = app.memory.gather(Share::Questions, body, BODY_LIMIT).await.map_err(|why| match why {
        NotGathered::TooLarge => {
            let message = format!("expected a body of at most {BODY_LIMIT} bytes: ask in several requests");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "resolve-too-large", message)
        }
        why => why.into(),
    })?;
    let (shared, scope) = (Arc::clone(&app), Scope::default().readable_by(&caller));
    // What is read of it takes less than it did, so the body need not be kept.
    let (request, found, scope) = app
        .naming
        .run(move || -> Result<_, ApiError> {
            let request = Request::read(&body)?;
            let found = find(&shared, &scope, &request)?;
            Ok((request, found, scope))
        })
        .await??;
    let (request, found) = match (&found, &request.id) {
        (None, None) => find_by_image(&app, &scope, request).await?,
        _ => (request, found),
    };
    let made = match (&found, request.id.clone()) {
        (None, Some(id)) => {
            let hops = Hops::of(&headers, peer.map(|Extension(Peer(address))| address));
            let name = request.debug_file.as_deref();
            made(&app, &scope, &id, Sought { id: Some(&id), name, hops: &hops, until: Sought::patience() }).await?
        }
        _ => Made::Nothing,
    };
    let shared = Arc::clone(&app);
    let text = app.naming.run(move || resolve(&shared, &request, found, made)).await??;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text.into_body(&app.memory))
        .into_response())
}

/// The table of the module that is asked for.
fn find(app: &App, scope: &Scope, request: &Request) -> io::Result<Option<(DebugId, Candidate)>> {
    let id = match request.id.clone() {
        Some(id) => Some(id),
        None => id_of_code(app, scope, request)?,
    };
    let Some(id) = id else { return Ok(None) };
    // Tables are found by Breakpad's form of the id, which is shorter than a build-id.
    let bundles = app.debug_files.bundles_of(scope, &Key::Id(id.clone()));
    let tables = breakpad_keys(&id)
        .into_iter()
        .filter_map(|(guid, age)| app.debug_files.find_in(scope, &Key::Breakpad { guid, age }, FileKind::SymbolTable));
    let mut tables: Vec<Candidate> = tables.collect();
    // The bundle whose debug file answers names its frames, where it has a table.
    tables.sort_by_key(|table| bundles.iter().position(|bundle| *bundle == table.bundle).unwrap_or(usize::MAX));
    Ok(tables.into_iter().next().map(|table| (id, table)))
}

/// The debug id of the PE file with a code id.
fn id_of_code(app: &App, scope: &Scope, request: &Request) -> io::Result<Option<DebugId>> {
    let (Some(code_id), Some(code_file)) = (&request.code_id, &request.code_file) else { return Ok(None) };
    let bundles = app.debug_files.bundles_of(scope, &Key::image(code_file, code_id));
    let Some(bundle) = bundles.first() else { return Ok(None) };
    let index = read_symbol_index(&app.blobs, bundle)?;
    let same = |found: Option<&String>, asked: &str| found.is_some_and(|found| found.eq_ignore_ascii_case(asked));
    let found = index
        .windows
        .iter()
        .find(|(_, module)| same(module.code_id.as_ref(), code_id) && same(Some(&module.name), code_file));
    Ok(found.and_then(|(id, _)| id.parse().ok()))
}

/// [`find`] by a PE file with the code id that came without a bundle.
async fn find_by_image(
    app: &Arc<App>,
    scope: &Scope,
    mut request: Request,
) -> io::Result<(Request, Option<(DebugId, Candidate)>)> {
    let (Some(code_id), Some(code_file)) = (&request.code_id, &request.code_file) else { return Ok((request, None)) };
    let Some(file) = Unbundled::find(app, scope, &Key::image(code_file, code_id), FileKind::Executable) else {
        return Ok((request, None));
    };
    let (image, name) = (file.bytes(app).await?, file.name().to_owned());
    let (shared, scope) = (Arc::clone(app), scope.clone());
    let find = move || {
        let image = image.map(&shared.blobs)?;
        // One that cannot be read any more has no id.
        request.id = answers(&image, &name).into_iter().flatten().find_map(|answer| match answer.key {
            Key::Id(id) => Some(id),
            _ => None,
        });
        request.debug_file = request.debug_file.or_else(|| pdb_of(&image));
        let found = find(&shared, &scope, &request)?;
        Ok((request, found))
    };
    app.naming.run(find).await.map_err(io::Error::other)?
}

/// What a PE file's PDB is called.
fn pdb_of(image: &[u8]) -> Option<String> {
    let image = ObjectFile::parse(image).ok()?;
    Some(base_name(&String::from_utf8_lossy(image.pdb_reference()?.path)).to_owned()).filter(|name| !name.is_empty())
}

/// What came of making a table of a file without a bundle.
enum Made {
    /// One that names.
    Table(Box<MadeTable>),
    /// There are files, and what they have in them gives none.
    Malformed,
    /// There is no file.
    Nothing,
}

/// The table that is made of a file without a bundle.
async fn made(app: &App, scope: &Scope, id: &DebugId, sought: Sought<'_>) -> io::Result<Made> {
    let mut none = Made::Nothing;
    for (guid, age) in breakpad_keys(id) {
        match made_table(app, scope, (guid, age), &sought).await {
            Some(Ok(table)) => return Ok(Made::Table(Box::new(table))),
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => none = Made::Malformed,
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    Ok(none)
}

/// Breakpad's forms of an id, in either byte order.
fn breakpad_keys(id: &DebugId) -> Vec<([u8; 16], u32)> {
    let mut keys: Vec<([u8; 16], u32)> = ["", "arm"].iter().flat_map(|arch| breakpad_ids(id, arch)).collect();
    keys.dedup();
    keys
}

/// Whether a table is of the module that is asked for. Symbol files of Breakpad may know no more of a build-id than its beginning.
fn is_of(table: &DebugId, asked: &DebugId) -> bool {
    let beginning = |table: &[u8], asked: &[u8]| table.len() == BREAKPAD_BYTES && asked.starts_with(table);
    table == asked
        || matches!((table.build_id(), asked.build_id()), (Some(table), Some(asked)) if beginning(table, asked))
}

fn resolve(
    app: &App,
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
    let (mut provenance, sealed) = provenance(app, &candidate);
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

/// What the names of a table rest on, and whether its bundle's seal was judged to hold.
fn provenance(app: &App, table: &Candidate) -> (Provenance, bool) {
    let sealed = match app.debug_files.bundle(&table.bundle).map(|bundle| bundle.verdict) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_of_its_platform() {
        let read = |text: &str| Request::read(text.as_bytes());
        let linux = read(r#"{"platform":"linux","code_id":"ABCD","addresses":["0x10"]}"#).unwrap();
        assert_eq!((linux.id.unwrap().to_string().as_str(), linux.addresses.taken), ("abcd", vec![Svma(16)]));
        let code = r#"{"platform":"windows","code_id":"5f3a1b2c1f000","code_file":"a.exe","addresses":[]}"#;
        assert_eq!(read(code).unwrap().id, None);
        for path in ["a.exe", r"C:\\x\\a.exe", "/opt/x/a.exe"] {
            let body = code.replace("a.exe", path);
            assert_eq!(read(&body).unwrap().code_file.as_deref(), Some("a.exe"), "{path}");
        }
        for text in [
            "",
            "[]",
            "{}",
            r#"{"platform":"linux","addresses":["0x1"]}"#,
            r#"{"platform":"windows","code_id":"5f3a1b2c1f000","addresses":["0x1"]}"#,
            r#"{"platform":"linux","debug_id":"ab","addresses":[1]}"#,
            r#"{"platform":"linux","debug_id":"ab","addresses":["1"]}"#,
            r#"{"platform":"os2","debug_id":"ab","addresses":["0x1"]}"#,
            r#"{"platform":"linux","debug_id":"ab","addresses":["0x1"],"adresses":[]}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_is_read_in_the_forms_that_tools_print() {
        let guid = "72e103a85cb249078b76b2e7c06257b1";
        let (pdb, uuid) = (format!("{guid}-1a"), format!("uuid:{guid}"));
        for (platform, text, expected) in [
            ("windows", "72E103A85CB249078B76B2E7C06257B1-1a", &pdb),
            ("windows", "72E103A8-5CB2-4907-8B76-B2E7C06257B1-1A", &pdb),
            ("windows", "72E103A85CB249078B76B2E7C06257B11a", &pdb),
            ("macos", "72E103A85CB249078B76B2E7C06257B1", &uuid),
            ("macos", "72E103A8-5CB2-4907-8B76-B2E7C06257B1", &uuid),
            ("macos", "uuid:72e103a85cb249078b76b2e7c06257b1", &uuid),
            ("macos", "72E103A85CB249078B76B2E7C06257B10", &uuid),
            ("linux", "72E103A85CB249078B76B2E7C06257B1", &guid.to_owned()),
        ] {
            let body = format!(r#"{{"platform":"{platform}","debug_id":"{text}","addresses":[]}}"#);
            let id = Request::read(body.as_bytes()).unwrap().id.unwrap();
            assert_eq!(id, expected.parse().unwrap(), "{platform} {text}");
        }
    }
}
