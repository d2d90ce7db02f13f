//! `POST /api/v1/resolve`: names for addresses of one module, with what each name rests on.

mod answer;
mod request;

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use symseal_artifact::ObjectFile;
use symseal_module::DebugId;

use super::ApiError;
use crate::access::Caller;
use crate::app::App;
use crate::breakpad::base_name;
use crate::bundled_tables::bundled_table;
use crate::debug_files::{Candidate, FileKind, Key, Scope};
use crate::http::{NotGathered, Peer, Share, content_coding, drain};
use crate::ingest::{answers, breakpad_ids};
use crate::made_tables::{MadeTable, made_table};
use crate::releases::read_symbol_index;
use crate::unbundled::Unbundled;
use crate::upstream::{Hops, Sought};

use answer::resolve;
pub(crate) use request::Request;

/// The largest body that is read, in bytes.
const BODY_LIMIT: usize = 8 << 20;

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
    let text = app.naming.run(move || resolve(&shared, &scope, &request, found, made)).await??;
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
    let tables = breakpad_keys(&id).into_iter().filter_map(|key| bundled_table(app, scope, key));
    // The bundle whose debug file answers names its frames, where it has a table.
    let place = |table: &Candidate| bundles.iter().position(|bundle| *bundle == table.bundle).unwrap_or(usize::MAX);
    Ok(tables.min_by_key(place).map(|table| (id, table)))
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
