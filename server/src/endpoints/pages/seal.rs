//! Whether a bundle is sealed, in a word and in full.

use maud::{Markup, html};

use crate::seals::Verdict;

/// In a word.
pub(crate) fn chip(verdict: &Verdict, is_loose: bool) -> Markup {
    let (class, word) = match verdict {
        Verdict::Sealed(_) => ("chip good", "sealed"),
        Verdict::Refused(_) => ("chip bad", "seal refused"),
        Verdict::Unsealed | Verdict::Unjudged if is_loose => ("chip", "loose file"),
        Verdict::Unsealed => ("chip warn", "not sealed"),
        Verdict::Unjudged => ("chip", "not judged"),
    };
    html! { span class=(class) { (word) } }
}

/// In full: by whom and where, or what failed.
pub(crate) fn details(verdict: &Verdict) -> Markup {
    match verdict {
        Verdict::Sealed(by) => html! {
            p { "A seal holds: every check by the trust directory passed." }
            dl {
                dt { "Signed by" } dd { @for signer in &by.signers { code { (signer) } br; } }
                @if let Some(log) = &by.log { dt { "Log" } dd { code { (log) } } }
                @if let Some(place) = &by.rekor_tile_ref { dt { "Entry" } dd { code { (place) } } }
                @if let Some(envelope) = &by.dsse_ref { dt { "Envelope" } dd { code { (envelope) } } }
            }
        },
        Verdict::Refused(refused) => html! {
            p { "Seals have come, and none holds. The first check that failed:" }
            dl {
                dt { "Check" } dd { code { (refused.check) } }
                dt { "Expected" } dd { (refused.expected) }
                dt { "Found" } dd { (refused.found) }
            }
        },
        Verdict::Unsealed => html! { p { "No seal has come for it." } },
        Verdict::Unjudged => {
            html! { p { "This server has no trust directory ("  code { "symseal serve --trust DIR" } "), so it judges no seals. Clients judge by their own." } }
        }
    }
}
