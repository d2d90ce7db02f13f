//! How the gateway stands, as a page: the same style as the server's pages, and nothing from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::standing::{BundleStanding, Standing, Trusted};
use crate::endpoints::pages::{STYLE, chip, count, details};
use crate::gateway::refusals::Refusal;
use crate::gateway::registry::UpstreamStanding;

pub(super) fn page(standing: &Standing) -> Markup {
    let Standing { version, seconds, served, on_the_way, trust, upstreams, bundles, bundles_known, refused, missed } =
        standing;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "symseal gateway" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "symseal gateway" }
                    (trusted(trust))
                    p { b { (count(*served)) } " files given, " b { (count(*on_the_way as u64)) } " on their way. " a href="status.json" { "The same as JSON" } }
                    (refusals("Refused", "Offered, and not what a trusted seal says.", refused))
                    h2 { "Upstreams" }
                    @if upstreams.is_empty() { p { "None: what stands in " code { "--bundle" } " is all." } } @else { (table_of_upstreams(upstreams)) }
                    h2 { "Bundles" }
                    p { b { (count(*bundles_known as u64)) } " known" @if bundles.len() < *bundles_known { "; the first " (bundles.len()) } "." }
                    @for bundle in bundles { (one_bundle(bundle)) }
                    (refusals("Missed", "Nobody offers a bundle that has these.", missed))
                }
                footer { "symseal " (version) ", up for " (count(*seconds)) " s" }
            }
        }
    }
}

fn trusted(trust: &Trusted) -> Markup {
    html! {
        @if let Some(problem) = &trust.problem { p .note { b { "Nobody is trusted, and so nothing is given: " } (problem) } }
        @if let Some(version) = trust.policy_version { p { "Seals are judged by version " (version) " of the trust policy." } }
        @for warning in &trust.warnings { p .note { (warning) } }
    }
}

fn table_of_upstreams(upstreams: &[UpstreamStanding]) -> Markup {
    html! {
        div .wide { table {
            thead { tr { th { "Upstream" } th { "Kind" } th .number { "Bundles" } th { "State" } } }
            tbody { @for upstream in upstreams { tr {
                td { code { (upstream.url) } }
                td { (upstream.kind) }
                td .number { (count(upstream.bundles as u64)) }
                td { @match &upstream.problem {
                    Some(problem) => { span .bad { (problem) } }
                    None => { span .good { "answers" } }
                } }
            } } }
        } }
    }
}

fn one_bundle(bundle: &BundleStanding) -> Markup {
    html! {
        details {
            summary { (bundle.name) " " (bundle.version) " " (chip(&bundle.verification, false)) }
            dl {
                dt { "Digest" } dd { code { (bundle.digest) } }
                dt { "Modules" } dd { (count(bundle.modules)) }
                dt { "Offered by" } dd { @for home in &bundle.homes { code { (home) } br; } }
            }
            (details(&bundle.verification))
        }
    }
}

fn refusals(title: &str, what: &str, list: &[Refusal]) -> Markup {
    html! {
        h2 { (title) }
        p { (what) }
        @if list.is_empty() { p { "Nothing." } }
        @for refusal in list {
            details open[refusal.code.is_alarming()] {
                summary {
                    code { (refusal.asked) } " "
                    span .chip .bad[refusal.code.is_alarming()] { (refusal.code.text()) }
                    " " (refusal.at) @if refusal.times > 1 { ", " (count(refusal.times)) " times" }
                }
                p { (refusal.reason) }
                dl {
                    @for (name, value) in [("Upstream", &refusal.upstream), ("Bundle", &refusal.bundle), ("Expected", &refusal.expected), ("Found", &refusal.found)] {
                        @if let Some(value) = value { dt { (name) } dd { code { (value) } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::refusals::Code;

    #[test]
    fn what_comes_from_outside_is_shown_and_does_nothing() {
        let refusal = Refusal::new(Code::WrongBytes, "<script>alert(1)</script>").asked("/buildid/\"><img src=x>");
        let upstream =
            UpstreamStanding { url: "<b>".into(), kind: "registry", problem: Some("<i>".into()), bundles: 0 };
        let standing = Standing {
            version: "0",
            seconds: 1,
            served: 2,
            on_the_way: 3,
            trust: Trusted { policy_version: None, problem: Some("<u>".into()), warnings: vec!["<s>".into()] },
            upstreams: vec![upstream],
            bundles: Vec::new(),
            bundles_known: 0,
            refused: vec![refusal],
            missed: Vec::new(),
        };
        let page = page(&standing).into_string();
        assert!(
            page.contains("&lt;script&gt;") && page.contains("wrong-bytes") && page.contains("&lt;b&gt;"),
            "{page}"
        );
        for active in ["<script", "<img", "<i>", "<u>", "<s>"] {
            assert!(!page.contains(active), "{active}: {page}");
        }
    }
}
