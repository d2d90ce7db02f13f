//! Breakpad's symbol files under Tecken's paths: `app.pdb/ID/app.sym`, `libapp.so/ID/libapp.so.sym`; by the code id as a redirection.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use symseal_artifact::{BreakpadFile, FrameTable, ObjectFile, PdbFile};
use symseal_bundle::{FileRole, ModuleEntry};
use symseal_module::DebugId;
use tempfile::NamedTempFile;

use crate::app::App;
use crate::blobs::{BlobDirectory, NotGiven};
use crate::breakpad::{self, Head, SymbolFiles, base_name, file_name, is_title_of, loose_symbol_file, symbol_files};
use crate::bundled_tables::bundled_table_soon;
use crate::debug_files::{Candidate, FileKind, Key, Scope};
use crate::endpoints::{BY_ID, first_there, not_found, tree_file, unmade, whole_file};
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::http::{FileAnswer, file_response, form_values, percent_decode, percent_encode};
use crate::ingest::{breakpad_ids, parse_breakpad_id};
use crate::releases::read_symbol_index;
use crate::unbundled::Unbundled;
use crate::upstream::{Hops, Sought};

/// Counts the forms that were written so far: files of an older one are made again.
const FORM: u32 = 4;
/// How long a symbol file may be kept that something is missing of, in seconds.
const NOT_WHOLE: &str = "public, max-age=60";
/// The longest id, in digits.
const ID_DIGITS: usize = 128;

/// A symbol file that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// What its debug file is called.
    name: String,
    /// GUID and age.
    debug_id: Option<([u8; 16], u32)>,
    /// Name of the binary, and its code id.
    code: Option<(String, String)>,
}

impl Wanted {
    /// Reads a path and its query; `None` when it names no symbol file.
    pub(crate) fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        let parts: Vec<String> = path.split('/').map(percent_decode).collect::<Option<_>>()?;
        let [name, id, last] = parts.as_slice() else { return None };
        let is_symbol_file =
            last.len() > 4 && last.to_lowercase().ends_with(".sym") && last.to_lowercase() != name.to_lowercase();
        if !is_symbol_file || name.is_empty() {
            return None;
        }
        let is_own = file_name(name).to_lowercase() == last.to_lowercase();
        let debug_id = parse_breakpad_id(id).filter(|_| is_own);
        let value = |key| form_values(query, key).into_iter().find(|value| !value.is_empty());
        let asked = value("code_file").zip(value("code_id"));
        let code = asked.unwrap_or_else(|| (name.clone(), id.clone()));
        let is_id = |id: &str| (1..=ID_DIGITS).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Self { name: name.clone(), debug_id, code: Some(code).filter(|(_, id)| is_id(id)) })
    }
}

/// GET or HEAD. None when the path names no symbol file.
pub(super) async fn answer(
    app: &Arc<App>,
    scope: &Scope,
    (method, request): (&Method, &HeaderMap),
    (path, query): (&str, Option<&str>),
    hops: &Hops,
) -> Option<Response> {
    let wanted = Wanted::parse(path, query)?;
    if let Some((guid, age)) = wanted.debug_id {
        match bundled_table_soon(app, scope, (guid, age)).await {
            Ok(Some(table)) => return Some(symbol_file(app, method, request, table, id_text(guid, age)).await),
            Ok(None) => {}
            Err(lost) => return Some(unmade(request, "a symbol file could not be made", &io::Error::other(lost))),
        }
    }
    if let Some((guid, age)) = wanted.debug_id
        && let Some(answer) = without_bundle(app, scope, (method, request), &wanted, (guid, age)).await
    {
        return Some(answer);
    }
    let sought = Sought { id: None, name: Some(&wanted.name), hops, until: Sought::patience() };
    if let Some((guid, age)) = wanted.debug_id
        && let Some(made) = loose_symbol_file(app, scope, (guid, age), id_text(guid, age), &sought).await
    {
        return Some(match made {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                not_found(&format!("this server has no symbol file of this module, and can make none: {error}"))
            }
            // What is missing may come: clients are not to keep this one for long.
            Ok((file, is_whole)) => {
                answered(app, (method, request), Ok(file), if is_whole { BY_ID } else { NOT_WHOLE })
            }
            Err(error) => answered(app, (method, request), Err(error), BY_ID),
        });
    }
    let missing = || not_found("this server has no symbol table and no symbol file of this module");
    let Some((code_file, code_id)) = wanted.code else { return Some(missing()) };
    Some(redirection(app, scope, &code_file, &code_id).await.unwrap_or_else(missing))
}

/// What was uploaded as it is, or lies in a tree: of several with one id the one that has the name too, as build systems that make up ids give one to
/// several modules.
async fn without_bundle(
    app: &App,
    scope: &Scope,
    asked: (&Method, &HeaderMap),
    wanted: &Wanted,
    (guid, age): ([u8; 16], u32),
) -> Option<Response> {
    let SymbolFiles { named, others } = symbol_files(app, scope, (guid, age), Some(&wanted.name)).await;
    if let Some(answer) = uploaded(app, asked, named).await {
        return Some(answer);
    }
    let key = Key::Breakpad { guid, age };
    let is_titled = |title: &str| is_title_of(title, &wanted.name);
    if let Some(answer) = tree_file(app, scope, asked, &key, FileKind::SymbolFile, |place| is_titled(&place.file)).await
    {
        return Some(answer);
    }
    match uploaded(app, asked, others).await {
        Some(answer) => Some(answer),
        None => tree_file(app, scope, asked, &key, FileKind::SymbolFile, |_| true).await,
    }
}

/// The first of these whose blob is there.
async fn uploaded(app: &App, asked: (&Method, &HeaderMap), files: Vec<Candidate>) -> Option<Response> {
    let mut files = files.into_iter();
    let best = files.next()?;
    Some(match first_there(app, best, |_| files.collect()).await {
        Ok((file, source)) => whole_file(app, asked, (&file.digest, source), []).await,
        Err(broken) => broken,
    })
}

/// GUID in upper case and the age behind it, as Breakpad writes them.
fn id_text(guid: [u8; 16], age: u32) -> String {
    format!("{:032X}{age:x}", u128::from_be_bytes(guid))
}

async fn symbol_file(app: &App, method: &Method, request: &HeaderMap, table: Candidate, id: String) -> Response {
    // It is made of more than the table: what was made before something was taken down is made anew.
    let gone = app.taken_down.all();
    let gone = gone.keys().fold(String::new(), |gone, digest| gone + " " + digest.hex());
    let key = CacheKey::of(&format!("sym {FORM} {} {} {id}{gone}", table.bundle, table.digest));
    let (blobs, limit) = (Arc::clone(&app.blobs), app.cache.capacity() / 2);
    let made = app.cache.make((&app.pool, &app.making), key, move |file| make(&blobs, &table, id, file, limit)).await;
    answered(app, (method, request), made, BY_ID)
}

fn answered(
    app: &App,
    (method, request): (&Method, &HeaderMap),
    made: io::Result<CachedFile>,
    kept: &'static str,
) -> Response {
    match made {
        Ok(found) => {
            let headers = vec![
                (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
                (header::CACHE_CONTROL, HeaderValue::from_static(kept)),
            ];
            let (etag, window) = (format!("\"sha256:{}\"", found.note.sha256), Some(found.window()));
            file_response(&app.pool, method, request, FileAnswer { source: found.blob.into(), window, etag, headers })
        }
        // A file that it would be made of is taken down.
        Err(error) if NotGiven::is_why(&error) => not_found("this server has no symbol file of this module"),
        Err(error) => unmade(request, "a symbol file could not be made", &error),
    }
}

fn make(
    blobs: &BlobDirectory,
    table: &Candidate,
    id: String,
    file: &mut NamedTempFile,
    limit: u64,
) -> io::Result<Note> {
    let index = read_symbol_index(blobs, &table.bundle)?;
    let is_table = |module: &ModuleEntry| {
        let mut files = module.files.iter();
        files.any(|file| file.role == FileRole::SymbolTable && file.sha256.as_bytes()[..] == *table.digest.bytes())
    };
    let found = index.modules().find(|(.., module)| is_table(module));
    let (platform, debug_id, module) = found.ok_or_else(|| invalid("its bundle does not list it"))?;
    let is_elf = platform == "linux";
    let code_id = if is_elf { Some(debug_id.to_owned()) } else { module.code_id.clone() };
    let head = Head {
        platform: platform.to_owned(),
        arch: module.arch.clone(),
        id,
        name: debug_file(module).to_owned(),
        code_id,
        code_file: (platform == "windows").then(|| module.name.clone()),
    };
    let bytes = blobs.map(&table.digest)?;
    let symbols = symseal_symx::Table::open(&bytes).map_err(invalid)?;
    let unwind = module.files.iter().find(|file| file.role == FileRole::UnwindTable && file.size > 0);
    let unwind = unwind.map(|file| blobs.map(&file.sha256.into())).transpose()?;
    let unwind = unwind.as_deref().map(symseal_unwind::Table::open).transpose().map_err(invalid)?;
    let frames = frame_data(blobs, platform, module)?;
    breakpad::write_file(&head, &symbols, unwind.as_ref(), &frames, (file, limit))
}

/// Of the PDB of a module of 32-bit x86: nothing else says how its frames are laid out.
fn frame_data(blobs: &BlobDirectory, platform: &str, module: &ModuleEntry) -> io::Result<FrameTable> {
    let database = module.files.iter().find(|file| file.role == FileRole::Debuginfo && file.size > 0);
    let Some(database) = database.filter(|_| platform == "windows" && module.arch == "x86") else {
        return Ok(FrameTable::default());
    };
    let bytes = blobs.map(&database.sha256.into())?;
    // A PE file with DWARF is its own debug file.
    PdbFile::parse(&bytes).map_or_else(|_| Ok(FrameTable::default()), |pdb| pdb.frame_data().map_err(invalid))
}

/// The debug file's name: a PE module's is its PDB. One with DWARF alone may have the record of a PDB without a name (GNU ld with `--build-id`).
fn debug_file(module: &ModuleEntry) -> &str {
    module.pdb.as_ref().map(|pdb| pdb.name.as_str()).filter(|name| !name.is_empty()).unwrap_or(&module.name)
}

/// 302 to the symbol file of the module with this code id.
async fn redirection(app: &App, scope: &Scope, code_file: &str, code_id: &str) -> Option<Response> {
    let key = match code_id.parse::<DebugId>() {
        Ok(id @ DebugId::BuildId(_)) => Key::Id(id),
        _ => Key::image(code_file, code_id),
    };
    let image = Key::image(code_file, code_id);
    let loose = [&key, &image].into_iter().find_map(|key| app.debug_files.find_in(scope, key, FileKind::SymbolFile));
    let mut bundles = app.debug_files.bundles_of(scope, &key);
    bundles.extend(app.debug_files.bundles_of(scope, &image));
    let Some(bundle) = bundles.into_iter().next() else {
        return match loose {
            Some(file) => redirection_to_loose(app, file).await,
            None => redirection_to_made(app, scope, code_file, (&key, &image)).await,
        };
    };
    let (blobs, code_file, code_id) = (Arc::clone(&app.blobs), code_file.to_lowercase(), code_id.to_lowercase());
    let find = move || -> io::Result<Option<(String, String)>> {
        let index = read_symbol_index(&blobs, &bundle)?;
        let found = index.modules().find(|(platform, id, module)| match *platform {
            "linux" => **id == code_id,
            _ => {
                let same_id = module.code_id.as_ref().is_some_and(|found| found.to_lowercase() == code_id);
                same_id && module.name.to_lowercase() == code_file
            }
        });
        let Some((_, id, module)) = found else { return Ok(None) };
        let id = id.parse::<DebugId>().ok().and_then(|id| breakpad_ids(&id, &module.arch).next());
        Ok(id.map(|(guid, age)| (debug_file(module).to_owned(), id_text(guid, age))))
    };
    let (name, id) = app.making.run(find).await.ok()?.ok()??;
    redirected(&name, &id)
}

/// To a symbol file that was uploaded, by what its head says.
async fn redirection_to_loose(app: &App, file: Candidate) -> Option<Response> {
    let blobs = Arc::clone(&app.blobs);
    let head = move || -> io::Result<Option<(String, String)>> {
        let bytes = blobs.map(&file.digest)?;
        Ok(BreakpadFile::parse(&bytes).ok().map(|file| (file.name().to_owned(), file.id())))
    };
    let (name, id) = app.making.run(head).await.ok()?.ok()??;
    redirected(&name, &id)
}

/// To the symbol file that can be made of a debug file which came without a bundle.
async fn redirection_to_made(
    app: &App,
    scope: &Scope,
    code_file: &str,
    (key, image): (&Key, &Key),
) -> Option<Response> {
    let has_debug_file = |(guid, age)| {
        let key = Key::Breakpad { guid, age };
        Unbundled::find(app, scope, &key, FileKind::Debuginfo).is_some()
    };
    // A build-id says all that is asked for.
    if let Key::Id(id) = key
        && let Some((guid, age)) = breakpad_ids(id, "").find(|id| has_debug_file(*id))
    {
        return redirected(code_file, &id_text(guid, age));
    }
    // What a PE file's PDB is called stands in the PE file.
    let bytes = Unbundled::find(app, scope, image, FileKind::Executable)?.bytes(app).await.ok()?;
    let (blobs, code_file) = (Arc::clone(&app.blobs), code_file.to_owned());
    let read = move || -> io::Result<Option<(DebugId, String)>> {
        let bytes = bytes.map(&blobs)?;
        let Ok(object) = ObjectFile::parse(&bytes) else { return Ok(None) };
        let pdb = object.pdb_reference().map(|pdb| base_name(&String::from_utf8_lossy(pdb.path)).to_owned());
        let pdb = pdb.filter(|name| !name.is_empty());
        Ok(object.debug_id().cloned().map(|id| (id, pdb.unwrap_or(code_file))))
    };
    let (id, name) = app.making.run(read).await.ok()?.ok()??;
    // Where it leads it is found out whether another server has the PDB.
    let may_be_elsewhere = app.symbol_upstreams.get().is_some() && scope.reaches_upstreams();
    let (guid, age) = breakpad_ids(&id, "").find(|id| may_be_elsewhere || has_debug_file(*id))?;
    redirected(&name, &id_text(guid, age))
}

fn redirected(name: &str, id: &str) -> Option<Response> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    // Relative: the server may lie below a prefix.
    let location = format!("../../{}/{id}/{}", percent_encode(name, b""), percent_encode(file_name(name), b""));
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_str(&location).ok()?);
    Some(response)
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_file_is_named_by_debug_id_or_by_code_id() {
        let id = "D6FEA1B2C3D4E5F60718293A4B5C6D7E1a";
        let wanted = Wanted::parse(&format!("App.pdb/{id}/app.sym"), None).unwrap();
        assert_eq!(wanted.debug_id, parse_breakpad_id(id));
        let wanted = Wanted::parse("app.exe/5F3A1B2C1f000/app.sym", None).unwrap();
        let name = "app.exe".into();
        assert_eq!(wanted, Wanted { name, debug_id: None, code: Some(("app.exe".into(), "5F3A1B2C1f000".into())) });
        let wanted = Wanted::parse("x/y/x.sym", Some("code_file=app.dll&code_id=AB12")).unwrap();
        assert_eq!(wanted.code, Some(("app.dll".into(), "AB12".into())));
        for path in ["a.pdb/ID/a.pdb", "a/b", "a.sym/ID/a.sym", "/ID/a.sym", "a/ID/.sym", "a/b/c/a.sym"] {
            assert_eq!(Wanted::parse(path, None), None, "{path}");
        }
    }
}
