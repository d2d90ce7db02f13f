//! The first page: how much there is, how to use it, what an operator should look at.

use maud::{Markup, html};
use serde_json::Value;

use super::layout::{self, count, counted};
use super::search::releases_table;
use super::wanted::table as wanted_table;
use crate::access::Caller;
use crate::app::App;
use crate::search::{Summary, summary};
use crate::store::StoreError;

/// Releases, alerts and missing ids shown here; the rest has pages of its own.
const SHOWN: usize = 10;

/// The alerts, or why there are none.
type Alerts<'a> = Result<&'a [Value], &'a StoreError>;

/// The page.
pub(super) fn page(app: &App, caller: &Caller, url: &str, alerts: Alerts<'_>) -> Markup {
    layout::page("", "Debug symbols", "", &content(app, caller, url, alerts))
}

fn content(app: &App, caller: &Caller, url: &str, alerts: Alerts<'_>) -> Markup {
    let Summary { releases, bundles, sealed, first } = summary(app, caller, SHOWN);
    html! {
        h1 { "Debug symbols" }
        ul .figures {
            li { (counted(bundles as u64, "bundle", "bundles")) @if !caller.may_read_all() { " that you may read" } }
            // Without a trust directory no seal is judged, and none counts.
            @if app.seals.are_judged() { li { (counted(sealed as u64, "of them sealed", "of them sealed")) } }
            @if caller.may_read_all() { li { (counted(app.debug_files.len() as u64, "debug id", "debug ids")) } }
        }
        @if app.access.asks_for_tokens() && caller.showed_nothing() {
            p { a href="login" { "Show a token" } " to see what is not for everybody." }
        }
        section {
            h2 { "Use it" }
            dl .commands {
                dt { "gdb, elfutils, valgrind, perf" }
                dd { code { "export DEBUGINFOD_URLS=" (url) } }
                dt { "lldb 18 and newer" }
                dd { code { "symseal setup lldb --server " (url) " >> ~/.lldbinit" } }
                dt { "WinDbg, Visual Studio" }
                dd { code { ".sympath srv*C:\\symbols*" (url) "/symbols" } }
                @if app.access.asks_for_tokens() { (with_token(url)) }
                dt { "A stack trace" }
                dd { code { "symseal symbolize --remote HOST/REPOSITORY:TAG --debug-id ID ADDRESS" } }
            }
        }
        section {
            h2 { "Releases" }
            @if first.is_empty() && !caller.may_read_all() {
                p { "There is nothing that " @if caller.showed_nothing() { "everybody" } @else { "your token" } " may read." }
            } @else if first.is_empty() {
                p { "Nothing was published yet: " code { "symseal publish FILES --name APP --version 1.0 --to HOST/REPOSITORY:TAG" } }
            } @else {
                (releases_table("", &first))
                @if releases > SHOWN { p { a href="releases" { "All " (count(releases as u64)) } } }
            }
        }
        @if app.access.may_watch(caller) {
            (alerts_table(alerts))
            @let wanted = app.wanted.list(|key| app.is_missing(key));
            @if !wanted.is_empty() {
                section {
                    h2 { "Asked for, and not here" }
                    (wanted_table(wanted.get(..SHOWN).unwrap_or(&wanted)))
                    @if wanted.len() > SHOWN { p { a href="wanted" { "All of them" } } }
                }
            }
        }
    }
}

/// How debuggers show a token. What is not found for want of one they believe to be nowhere, for a while.
fn with_token(url: &str) -> Markup {
    let with = format!("{url}/t/TOKEN");
    html! {
        dt { "With a token, which what is not for everybody takes" }
        dd {
            p { code { "DEBUGINFOD_HEADERS_FILE" } " names a file with the line " code { "Authorization: Bearer TOKEN" } ", or the token stands in the path:" }
            code { "export DEBUGINFOD_URLS=" (with) }
        }
        dd { code { ".sympath srv*C:\\symbols*" (with) "/symbols" } }
        dd { "Without it the answer is 404, which elfutils and gdb keep for ten minutes: " code { "rm -r ~/.cache/debuginfod_client" } " forgets it." }
    }
}

/// The newest contradictions.
fn alerts_table(alerts: Alerts<'_>) -> Markup {
    let Ok(alerts) = alerts else {
        return html! { section { h2 { "Alerts" } p { "The database, which has them, does not answer." } } };
    };
    let text =
        |alert: &Value, field: &str| alert.get(field).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    html! {
        @if !alerts.is_empty() {
            section {
                h2 { "Alerts" }
                div .wide { table {
                    thead { tr { th { "When" } th { "What" } th { "Debug id" } th { "File" } th { "Of" } th { "That does not answer" } } }
                    tbody { @for alert in alerts.iter().take(SHOWN) { tr {
                        td { (text(alert, "time")) }
                        td { (text(alert, "kind")) }
                        td { code { (text(alert, "debug_id")) } }
                        td { (text(alert, "file")) }
                        td { (text(alert, "name")) @if !text(alert, "repository").is_empty() { " in " (text(alert, "repository")) } }
                        td { code { (text(alert, "refused")) (text(alert, "passed_over")) } }
                    } } }
                } }
            }
        }
    }
}
