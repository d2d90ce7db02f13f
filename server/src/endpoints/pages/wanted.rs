//! Ids that are asked for in vain.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::Problem;
use super::layout::{self, count, problem};
use crate::access::Caller;
use crate::app::App;
use crate::wanted::WantedId;

/// Ids on the page.
const SHOWN: usize = 500;

pub(super) fn page(app: &App, caller: &Caller) -> Result<Markup, Problem> {
    let title = "Asked for, and not here";
    if !app.access.may_watch(caller) {
        let text = "What people ask for tells what they debug: a token with the grant audit:read shows this page.";
        return Err(problem(StatusCode::FORBIDDEN, "", title, text));
    }
    let wanted = app.wanted.list(|key| app.is_missing(key));
    let content = html! {
        h1 { (title) }
        p { "Debug ids that clients asked for since the server started, and that no bundle has. Publish the release that they belong to, and they leave this list." }
        @if wanted.is_empty() { p { "None so far." } } @else { (table(wanted.get(..SHOWN).unwrap_or(&wanted))) }
    };
    Ok(layout::page("", title, "", &content))
}

/// One row an id.
pub(super) fn table(wanted: &[WantedId]) -> Markup {
    html! {
        div .wide { table {
            thead { tr { th .number { "Asked" } th { "Debug id" } th { "File" } th { "Last" } } }
            tbody { @for wanted in wanted { tr {
                td .number { (count(wanted.asked)) }
                td { code { (wanted.key) } }
                td { (wanted.name.as_deref().unwrap_or_default()) }
                td { (wanted.last) }
            } } }
        } }
    }
}
