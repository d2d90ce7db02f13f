//! What is asked of other debuginfod servers.

use std::io;
use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use axum::response::Response;
use symseal_module::DebugId;

use super::{Answering, not_found, section};
use crate::debug_files::{FileKind, Key};
use crate::endpoints::{not_found as not_found_line, unavailable, upstream_file};
use crate::file_cache::CachedFile;
use crate::http::{ByteRange, break_connection, percent_encode};
use crate::sections::locate;
use crate::sources::canonical;
use crate::upstream::{Outcome, TOO_MANY_HOPS, Upstreams, Wanted};

/// A whole file.
pub(super) async fn file(asked: &Answering<'_>, id: &Key, kind: FileKind) -> Response {
    // Most servers ask no other: nothing is made for them of what nobody has.
    let Some(upstreams) = asked.upstreams() else { return not_found() };
    match wanted(id, kind) {
        Some(wanted) => answer(asked, upstreams, wanted).await,
        None => not_found(),
    }
}

/// A source file.
pub(super) async fn source(asked: &Answering<'_>, id: &Key, path: &str) -> Response {
    let (Some(upstreams), Key::Id(id)) = (asked.upstreams(), id) else { return not_found() };
    // Without dots: a URL with them would be another.
    // As elfutils' client writes paths.
    let path = format!("buildid/{id}/source{}", percent_encode(canonical(path), b"/"));
    answer(asked, upstreams, Wanted::of_source(path)).await
}

/// A section, out of the whole file: of a section alone nothing says what module it is of.
pub(super) async fn section(asked: &Answering<'_>, id: &Key, name: &str) -> Response {
    let Some(upstreams) = asked.upstreams() else { return not_found() };
    for kind in [FileKind::Debuginfo, FileKind::Executable] {
        let Some(wanted) = wanted(id, kind) else { continue };
        let found = match upstreams.find_whole(wanted, asked.hops).await {
            Outcome::Cached(found) => found,
            Outcome::TooManyHops => return not_found_line(TOO_MANY_HOPS),
            Outcome::Absent => continue,
            Outcome::Flying(_) => return unavailable(asked.request, "the file did not arrive"),
            Outcome::Unavailable(why) => return unavailable(asked.request, &why),
        };
        let wanted = name.to_owned();
        let place = move || -> io::Result<(CachedFile, Option<ByteRange>)> {
            let place = locate(&found.blob.file, &wanted)?;
            Ok((found, place))
        };
        match asked.app.pool.run(place).await {
            Ok(Ok((found, Some(place)))) => {
                let etag = format!("\"sha256:{}-{}-{}\"", found.note.sha256, place.start, place.length);
                return section::part(asked, found.blob.into(), place, etag, None);
            }
            Ok(Ok((_, None))) => {}
            Ok(Err(error)) => return break_connection(&error.to_string()),
            Err(error) => return break_connection(&error.to_string()),
        }
    }
    not_found()
}

async fn answer(asked: &Answering<'_>, upstreams: &Arc<Upstreams>, wanted: Wanted) -> Response {
    let (method, request): (&Method, &HeaderMap) = (asked.method, asked.request);
    upstream_file(asked.app, upstreams, (method, request), wanted, asked.hops).await
}

fn wanted(id: &Key, kind: FileKind) -> Option<Wanted> {
    let Key::Id(id @ DebugId::BuildId(_)) = id else { return None };
    Some(Wanted::of_build_id(id, kind))
}
