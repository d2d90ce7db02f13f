//! `--explain`: the chain from a bundle's files to the log's checkpoint as a table.

use symseal_bundle::verify::{Held, Report, chain};

use crate::output::visible;
use crate::table::Table;

/// One row a link: what it is, what vouches for it, and whether the checks say so.
pub(super) fn table(report: &Report) -> Table {
    let mut table = Table::new(&["link", "held by", "checks", "status"]);
    for link in chain(report) {
        table.row([visible(&link.what), link.held_by.to_owned(), link.checks.join(", "), status(&link.held)]);
    }
    table
}

fn status(held: &Held) -> String {
    match held {
        Held::Holds(open) if open.is_empty() => "holds".to_owned(),
        Held::Holds(open) => format!("holds; not checked: {}", open.join(", ")),
        Held::Broken(by) => format!("BROKEN by {}", by.join(", ")),
        Held::Open { refused: true } => "not reached".to_owned(),
        Held::Open { refused: false } => "not checked".to_owned(),
    }
}
