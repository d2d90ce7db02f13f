//! A bundle: what it is, whether it is sealed, how to fetch it, and its modules.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use maud::{Markup, html};
use symseal_bundle::{DebugInfo, FileRole, ModuleEntry, SymbolIndex};

use super::Problem;
use super::layout::{self, count, counted, pager, part, problem, size};
use super::seal::{chip, details};
use crate::access::Caller;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::debug_files::{Key, Pattern};
use crate::endpoints::api::bundles::gone;
use crate::releases::read_symbol_index;
use crate::repositories::RepositoryName;
use crate::search::FoundRelease;

/// Modules on one page.
const ROWS: usize = 100;

/// From a bundle's page to the root.
const UP: &str = "../";

/// A module of the index with its platform and id.
type Row<'i> = (&'static str, &'i str, &'i ModuleEntry);

/// The page. Reads the symbol index. Blocks.
pub(super) fn page(
    app: &App,
    caller: &Caller,
    digest: &str,
    (filter, number): (&str, usize),
    url: &str,
) -> Result<Markup, Problem> {
    let unknown = || {
        let text = format!("There is no bundle {digest}, or it is not for you to read.");
        problem(StatusCode::NOT_FOUND, UP, "No such bundle", &text)
    };
    if let Some(note) = gone(app, caller, digest).and_then(|gone| gone.told) {
        let text = format!("It was taken down on {}: {}", note.at, note.reason);
        return Err(problem(StatusCode::GONE, UP, "This bundle was taken down", &text));
    }
    let parsed: BlobDigest = digest.parse().map_err(|_| unknown())?;
    let known = app.debug_files.bundle(&parsed).ok_or_else(unknown)?;
    let release = FoundRelease::of(app, caller, parsed, &known).ok_or_else(unknown)?;
    let index = BlobDigest::from_sha256(known.entry.symbol_index);
    if let Some(note) = app.taken_down.get(&index).and_then(|gone| gone.told) {
        let text = format!("Its symbol index was taken down on {}: {}", note.at, note.reason);
        return Err(problem(StatusCode::GONE, UP, "A part of this bundle was taken down", &text));
    }
    let content = if release.is_loose { loose(app, &release) } else { bundle(app, &release, (filter, number), url)? };
    Ok(layout::page(UP, &release.title(), "", &content))
}

fn bundle(app: &App, release: &FoundRelease, (filter, number): (&str, usize), url: &str) -> Result<Markup, Problem> {
    let index = read_symbol_index(&app.blobs, &release.digest).map_err(|error| {
        tracing::error!(bundle = %release.digest, %error, "the symbol index cannot be read");
        problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            UP,
            "The bundle cannot be read",
            "Its symbol index is damaged or gone: the server's log says more.",
        )
    })?;
    let pattern = Pattern::new(filter);
    let is_wanted = |(_, id, module): &Row<'_>| {
        pattern.as_ref().is_none_or(|pattern| pattern.is_in(id) || pattern.is_in(&module.name))
    };
    let rows: Vec<Row<'_>> = index.modules().filter(is_wanted).collect();
    let (shown, pages) = part(&rows, number, ROWS);
    let link = if filter.is_empty() {
        "?page=".to_owned()
    } else {
        format!("?q={}&page=", crate::http::percent_encode(filter, b""))
    };
    let repository = release.repository(app).map(RepositoryName::as_str).unwrap_or_default();
    Ok(html! {
        (head(release))
        section {
            h2 { "Seal" }
            (details(&release.verdict))
        }
        section {
            h2 { "Fetch it" }
            (commands(release, repository, url))
        }
        section {
            h2 { "What is in it" }
            (figures(&index))
        }
        section {
            h2 { "Modules" }
            form .filter {
                input type="search" name="q" value=(filter) aria-label="Modules" placeholder="Name or id" autocomplete="off" spellcheck="false";
                button { "Show" }
                @if pattern.is_some() { " " (count(rows.len() as u64)) " of " (count(index.statistics.modules)) " modules · " a href="?" { "all" } }
            }
            (modules(shown, repository))
            (pager(&link, number, pages))
        }
    })
}

fn head(release: &FoundRelease) -> Markup {
    html! {
        h1 { (release.title()) " " (chip(&release.verdict, release.is_loose)) }
        @if !release.is_shown {
            p .note { "Debuggers do not see it: its repository asks for a seal that this server trusts." }
        }
        dl {
            dt { "Digest" } dd { code { (release.digest) } }
            dt { "Repositories" } dd { @for (at, name) in release.repositories.iter().enumerate() { @if at > 0 { ", " } (name) } }
        }
    }
}

fn commands(release: &FoundRelease, repository: &str, url: &str) -> Markup {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    let reference = format!("{host}/{repository}@{}", release.digest);
    html! {
        dl .commands {
            dt { "With its seals" } dd { code { "symseal bundle pull " (reference) } }
            dt { "Checked" } dd { code { "symseal bundle verify " (release.digest) " --trust DIR" } }
            dt { "With any OCI client" } dd { code { "oras cp -r " (reference) " --to-oci-layout bundle" } }
        }
    }
}

/// Bytes and files by what they are for.
fn figures(index: &SymbolIndex) -> Markup {
    let mut by_role: BTreeMap<FileRole, (u64, u64)> = BTreeMap::new();
    for file in index.files() {
        let (files, bytes) = by_role.entry(file.role).or_default();
        (*files, *bytes) = (files.saturating_add(1), bytes.saturating_add(file.size));
    }
    html! {
        ul .figures {
            li { (counted(index.statistics.modules, "module", "modules")) }
            li { (counted(index.statistics.files, "file", "files")) }
            li { b { (size(index.statistics.bytes)) } }
            li { "made by " b { (index.producer.name) " " (index.producer.version) } }
            @if index.sources.is_some() { li { "with sources" } }
        }
        p { "A file that is both, debug information and code, is stored once and stands in two rows." }
        div .wide { table {
            thead { tr { th { "Files" } th .number { "Number" } th .number { "Size" } } }
            tbody { @for (role, (files, bytes)) in &by_role { tr {
                td { (role) } td .number { (count(*files)) } td .number { (size(*bytes)) }
            } } }
        } }
    }
}

fn modules(rows: &[Row<'_>], repository: &str) -> Markup {
    html! {
        div .wide { table {
            thead { tr { th { "Module" } th { "Debug id" } th { "Platform" } th { "Debug information" } th .number { "Functions" } th .number { "Code named" } th { "Files" } } }
            tbody { @for (platform, id, module) in rows { tr {
                td { (module.name) }
                td { code { (id) } }
                td { (platform) " " (module.arch) }
                td { (debug_info(module.debug_info)) @if let Some(others) = module.lines_of { ", " (others.words()) } }
                td .number { (count(module.statistics.functions)) }
                td .number { (covered(module)) }
                td .files { @for (at, file) in module.files.iter().enumerate() {
                    @if at > 0 { ", " }
                    a href={ (UP) "v2/" (repository) "/blobs/" (file.sha256) } title=(file.path) { (file.role) } " " (size(file.size))
                } }
            } } }
        } }
    }
}

/// How much of the code a function covers, in per cent.
fn covered(module: &ModuleEntry) -> String {
    let (all, named) = (module.statistics.text_bytes, module.statistics.covered_bytes);
    if all == 0 { "–".to_owned() } else { format!("{:.1} %", named as f64 * 100.0 / all as f64) }
}

fn debug_info(debug_info: DebugInfo) -> &'static str {
    match debug_info {
        DebugInfo::Full => "full",
        DebugInfo::LineTables => "lines",
        DebugInfo::Symbols => "symbols",
        DebugInfo::None => "none",
    }
}

fn loose(app: &App, release: &FoundRelease) -> Markup {
    let mut ids: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for (key, candidate) in app.debug_files.files_of(&release.digest) {
        if matches!(key, Key::Id(_) | Key::Image(_)) {
            ids.insert(key.to_string(), (candidate.size, candidate.digest.to_string()));
        }
    }
    html! {
        (head(release))
        div .wide { table {
            thead { tr { th { "Id" } th .number { "Size" } th { "SHA-256 of the file" } } }
            tbody { @for (id, (bytes, digest)) in &ids { tr {
                td { code { (id) } } td .number { (size(*bytes)) } td { code { (digest) } }
            } } }
        } }
    }
}
