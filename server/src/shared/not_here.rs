//! Before a server says that something is not here it looks at what other servers did.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::endpoints::api::ApiError;
use crate::endpoints::oci::OciError;
use crate::endpoints::told_of_storage;
use crate::http::break_connection;
use crate::metrics::Face;
use crate::repositories::FactKey;
use crate::routes::face_of;

/// How long a client waits while what other servers did is taken over, which may mean to fetch a large file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers a request without a body a second time where the first answer was 404 and other servers have changed something
/// since. Where nothing can be learned the client is not told that there is no such thing.
pub(crate) async fn look_elsewhere(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let again = Request::from_parts(parts.clone(), Body::empty());
    let before = app.learned();
    let answer = next.clone().run(Request::from_parts(parts, body)).await;
    if answer.status() != StatusCode::NOT_FOUND {
        return answer;
    }
    let face = face_of(again.uri().path());
    let look = async {
        match face {
            // It serves what its repositories say, and no ids.
            Face::Oci => app.catch_up_repositories().await,
            _ => app.catch_up().await,
        }
    };
    let looked = tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| {
        let problem = format!("what other servers did could not be taken over within {} s", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, problem))
    });
    if let Err(error) = looked {
        return cannot_tell(face, &error);
    }
    let (method, path) = (again.method().clone(), again.uri().path().to_owned());
    let answer = if app.learned() == before { answer } else { next.run(again).await };
    if answer.status() == StatusCode::NOT_FOUND && may_come(&app, face, &method, &path) {
        let problem = "what another server changed could not be read yet: what is not found here may be there";
        return cannot_tell(face, &io::Error::new(io::ErrorKind::HostUnreachable, problem));
    }
    answer
}

/// Whether something was not read yet that may be what is asked for.
fn may_come(app: &App, face: Face, method: &Method, path: &str) -> bool {
    let Some(follower) = &app.follower else { return false };
    match face {
        // Whoever asks whether a blob is here sends it if it is not.
        Face::Oci if *method == Method::HEAD && path.contains("/blobs/") => false,
        // A tag is in doubt by itself where its manifest is.
        Face::Oci => follower.doubts_one_of(|name, fact| {
            let asked = match fact {
                FactKey::Blob(digest) => format!("/{name}/blobs/{digest}"),
                FactKey::Manifest(digest) => format!("/{name}/manifests/{digest}"),
                FactKey::Tag(tag) => format!("/{name}/manifests/{tag}"),
                FactKey::Orphan(_) | FactKey::Deleted(_) => return false,
            };
            path.ends_with(&asked)
        }),
        _ => follower.doubts_ids(),
    }
}

/// The elfutils clients keep every answer for ten minutes as "there is no such file"; a connection that ends they try again.
fn cannot_tell(face: Face, error: &io::Error) -> Response {
    match face {
        Face::Debuginfod | Face::Symbols => break_connection(&error.to_string()),
        Face::Oci => OciError::away(told_of_storage(error)).into_response(),
        _ => ApiError::away("servers-apart", told_of_storage(error)).into_response(),
    }
}
