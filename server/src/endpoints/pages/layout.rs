//! What all pages have: head, the search field, foot; tables and links between parts of a list.

use axum::http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use super::Problem;

/// A page. `up` leads from it to the server's root: empty, or `../`.
pub(super) fn page(up: &str, title: &str, searched: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · symseal" }
                link rel="stylesheet" href={ (up) "style.css" };
                link rel="icon" href="data:,";
            }
            body {
                header {
                    a .brand href={ (up) "./" } { "symseal" }
                    form role="search" action={ (up) "search" } {
                        input type="search" name="q" value=(searched) aria-label="Search" placeholder="Build-id, GUID, module or release" autocomplete="off" spellcheck="false";
                        button { "Search" }
                    }
                    nav { a href={ (up) "releases" } { "Releases" } a href={ (up) "wanted" } { "Wanted" } }
                }
                main { (content) }
                footer { "symseal " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
}

/// A page that says why there is no other.
pub(super) fn problem(status: StatusCode, up: &str, title: &str, text: &str) -> Problem {
    (status, page(up, title, "", &html! { h1 { (title) } p { (text) } }))
}

/// Links to the other parts of a long list. `link` is the address up to the number.
pub(super) fn pager(link: &str, page: usize, pages: usize) -> Markup {
    html! {
        @if pages > 1 {
            nav .pager aria-label="Pages" {
                @if page > 1 { a rel="prev" href={ (link) (page.saturating_sub(1)) } { "← Previous" } }
                span { "Page " (page) " of " (pages) }
                @if page < pages { a rel="next" href={ (link) (page.saturating_add(1)) } { "Next →" } }
            }
        }
    }
}

/// The rows of a page, from 1, and how many pages there are.
pub(super) fn part<T>(rows: &[T], page: usize, rows_a_page: usize) -> (&[T], usize) {
    let mut parts = rows.chunks(rows_a_page);
    let pages = parts.len().max(1);
    (parts.nth(page.saturating_sub(1)).unwrap_or_default(), pages)
}

/// Bytes as people read them, in units of 1024.
pub(super) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// A count with what is counted.
pub(super) fn counted(number: u64, one: &str, more: &str) -> Markup {
    html! { b { (count(number)) } " " (if number == 1 { one } else { more }) }
}

/// A count with spaces between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len().saturating_mul(2));
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_for_people() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn a_page_beyond_the_end_is_empty() {
        let rows: Vec<u32> = (0..5).collect();
        assert_eq!(part(&rows, 1, 2), (&rows[..2], 3));
        assert_eq!(part(&rows, 3, 2), (&rows[4..], 3));
        assert_eq!(part(&rows, 4, 2), (&[][..], 3));
        assert_eq!(part::<u32>(&[], 1, 2), (&[][..], 1));
    }

    #[test]
    fn what_others_wrote_is_escaped() {
        let text = page("", "<b>", "\"><script>", &html! { p { "<i>" } }).0;
        assert!(!text.contains("<script>") && !text.contains("<b>") && !text.contains("<i>"), "{text}");
    }
}
