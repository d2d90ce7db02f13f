//! Pages for people: what is in the store, what a bundle holds and whether it is sealed, and what is asked for in vain.
//!
//! Whole on their own: no script, one style sheet, nothing from elsewhere. All links are relative, so that the pages stand below a path token
//! and behind a proxy's prefix too.

mod bundle;
mod home;
mod layout;
mod seal;
mod search;
mod wanted;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::Markup;

use crate::access::Caller;
use crate::app::App;
use crate::endpoints::RETRY_AFTER;
use crate::http::form_values;
use crate::pool::JobLost;
use crate::visible;
pub(crate) use layout::count;
use layout::problem;
pub(crate) use seal::{chip, details};

/// The style sheet of every page.
pub(crate) const STYLE: &str = include_str!("style.css");

/// A page brings its own style and sends its forms here; nothing else is loaded or run, and no other site frames it.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// `GET /`: a page for browsers; for scripts the line by which they know a debuginfod server.
pub(crate) async fn home(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    let mut response = if wants_page(&headers) {
        let url = app.own_url(&headers);
        // Nobody else is shown any.
        let alerts = match app.access.may_watch(&caller) {
            true => app.alerts.list(app.store.as_ref()).await,
            false => Ok(Vec::new()),
        };
        answer(Arc::clone(&app), move |app| Ok(home::page(app, &caller, &url, alerts.as_deref()))).await
    } else {
        format!("debuginfod (symseal) {}\n", env!("CARGO_PKG_VERSION")).into_response()
    };
    response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// `GET /search?q=TEXT`
pub(crate) async fn search(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Response {
    let text = field(query.as_deref(), "q");
    answer(app, move |app| Ok(search::page(app, &caller, &text))).await
}

/// `GET /releases?page=N`
pub(crate) async fn releases(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Response {
    let page = page_number(query.as_deref());
    answer(app, move |app| Ok(search::releases_page(app, &caller, page))).await
}

/// `GET /bundles/<digest>?q=TEXT&page=N`
pub(crate) async fn bundle(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(digest): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let (filter, page) = (field(query.as_deref(), "q"), page_number(query.as_deref()));
    let url = app.own_url(&headers);
    answer(app, move |app| bundle::page(app, &caller, &digest, (&filter, page), &url)).await
}

/// `GET /wanted`
pub(crate) async fn wanted(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    answer(app, move |app| wanted::page(app, &caller)).await
}

/// `GET /login`: has a browser ask for a token, then leads home. On an open server there is nothing to show a token for.
pub(crate) async fn login(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    if app.access.asks_for_tokens() && caller.showed_nothing() {
        let (_, page) = problem(
            StatusCode::UNAUTHORIZED,
            "",
            "A token is needed",
            "Give any user name, and a token as the password.",
        );
        let mut response = (StatusCode::UNAUTHORIZED, html(&app, page)).into_response();
        let challenge = HeaderValue::from_static("Basic realm=\"symseal\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return response;
    }
    (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static("./"))]).into_response()
}

/// `GET /style.css`
pub(crate) async fn style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600")),
    ];
    (headers, STYLE).into_response()
}

/// A page that cannot be shown, with its status.
type Problem = (StatusCode, Markup);

/// Makes a page in the pool: it may read a symbol index, or every id.
async fn answer(app: Arc<App>, page: impl FnOnce(&App) -> Result<Markup, Problem> + Send + 'static) -> Response {
    let shared = Arc::clone(&app);
    match app.looking.run(move || page(&shared)).await {
        Ok(Ok(page)) => html(&app, page),
        Ok(Err((status, page))) => (status, html(&app, page)).into_response(),
        Err(error @ JobLost) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn html(app: &App, page: Markup) -> Response {
    // Here, for whatever a page shows: names and ids are made by others, and some characters turn round what stands beside them.
    let page = visible(&page.into_string()).into_owned();
    let body = match app.memory.answer(page.into_bytes()) {
        Ok(body) => body,
        Err(full) => {
            return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_AFTER)], format!("{full}\n"))
                .into_response();
        }
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        // A path token is part of a page's address.
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("x-frame-options"), HeaderValue::from_static("DENY")),
    ];
    (headers, body).into_response()
}

/// Browsers name HTML; curl and libdebuginfod take anything.
fn wants_page(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|value| value.to_str().is_ok_and(|value| value.contains("text/html")))
}

fn field(query: Option<&str>, name: &str) -> String {
    form_values(query, name).pop().unwrap_or_default()
}

/// From 1.
fn page_number(query: Option<&str>) -> usize {
    field(query, "page").parse().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_in_a_form_is_a_space_and_pages_count_from_one() {
        assert_eq!(field(Some("q=a+b%2B&page=0"), "q"), "a b+");
        assert_eq!(page_number(Some("q=a&page=0")), 1);
        assert_eq!(page_number(Some("page=7")), 7);
        assert_eq!(page_number(Some("page=-3")), 1);
        assert_eq!(page_number(None), 1);
    }
}
