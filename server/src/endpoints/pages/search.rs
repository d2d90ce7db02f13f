//! What was looked for, and the list of all releases.

use maud::{Markup, html};

use super::layout::{self, count, pager, part};
use super::seal::chip;
use crate::access::Caller;
use crate::app::App;
use crate::debug_files::Pattern;
use crate::endpoints::api::search::file_kind;
use crate::search::{FoundRelease, MOST, releases, search};

/// Releases on one page of the list.
const ROWS: usize = 100;

/// What was found.
pub(super) fn page(app: &App, caller: &Caller, text: &str) -> Markup {
    let Some(pattern) = Pattern::new(text) else {
        let content = html! { h1 { "Search" } p { "Type the beginning of a build-id, GUID or UUID, or a part of a module's or release's name." } };
        return layout::page("", "Search", "", &content);
    };
    let found = search(app, caller, &pattern);
    let content = html! {
        h1 { "Search" }
        @if found.modules.is_empty() && found.releases.is_empty() {
            p { "Nothing that you may read has " code { (text) } " in its name, or an id that begins with it." }
        }
        @if found.is_cut { p { "More than " (MOST) " match: only the first are shown. A longer text finds fewer." } }
        @if !found.releases.is_empty() { section { h2 { "Releases" } (releases_table("", &found.releases)) } }
        @if !found.modules.is_empty() {
            section {
                h2 { "Modules" }
                div .wide { table {
                    thead { tr { th { "Name" } th { "Debug id" } th { "Can be fetched" } th { "From" } } }
                    tbody { @for module in &found.modules { tr {
                        td { (module.name) }
                        td { code { (module.id) } }
                        td { @for (at, kind) in module.kinds.iter().enumerate() { @if at > 0 { ", " } (file_kind(*kind)) } }
                        td { a href={ "bundles/" (module.bundle) "?q=" (module.id) } { code { (short(&module.bundle.to_string())) } } }
                    } } }
                } }
            }
        }
    };
    layout::page("", &format!("{text} · search"), text, &content)
}

/// Every release.
pub(super) fn releases_page(app: &App, caller: &Caller, number: usize) -> Markup {
    let all = releases(app, caller);
    let (rows, pages) = part(&all, number, ROWS);
    let content = html! {
        h1 { "Releases" }
        p { (count(all.len() as u64)) " bundles and loose files" }
        (releases_table("", rows))
        (pager("releases?page=", number, pages))
    };
    layout::page("", "Releases", "", &content)
}

/// One row a release.
pub(super) fn releases_table(up: &str, releases: &[FoundRelease]) -> Markup {
    html! {
        div .wide { table {
            thead { tr { th { "Release" } th { "Seal" } th { "Repositories" } th { "Digest" } } }
            tbody { @for release in releases { tr {
                td .name { a href={ (up) "bundles/" (release.digest) } { (release.title()) } @if !release.is_shown { " " span .chip { "hidden" } } }
                td { (chip(&release.verdict, release.is_loose)) }
                td .name { @for (at, name) in release.repositories.iter().enumerate() { @if at > 0 { ", " } (name) } }
                td { code { (short(&release.digest.to_string())) } }
            } } }
        } }
    }
}

/// Enough of a digest to tell two apart by eye.
fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}
