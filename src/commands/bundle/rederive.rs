//! `--rederive`: the check `table.rederived` of a verification.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use symseal_builder::{PRODUCER, Progress, ProgressFn, Rederived, RederivedTable, rederive};
use symseal_bundle::Bundle;
use symseal_bundle::verify::Report;
use symseal_seal::Check;
use symseal_seal::checks::id;

use crate::output::visible;
use crate::progress;

/// How many tables of one kind are named.
const MAX_NAMED: usize = 20;

/// Makes the tables of the bundle again, and puts what came of it into the report.
pub(super) fn add_to(report: &mut Report, bundle: &Bundle, inputs: &[PathBuf]) -> Result<()> {
    let bar = progress::bytes_bar("making the tables again");
    let shown = bar.clone();
    let told: ProgressFn = Arc::new(move |progress: &Progress<'_>| {
        if let Progress::Module { name, bytes, total_bytes, .. } = progress {
            shown.set_length(*total_bytes);
            shown.set_message(visible(name));
            shown.inc(*bytes);
        }
    });
    let tables = rederive(bundle, inputs, Some(&told))?;
    bar.finish_and_clear();
    report.replace(id::TABLE_REDERIVED, checks(&tables));
    Ok(())
}

/// One failure a table, and what was not made, each reason once.
fn checks(tables: &[RederivedTable]) -> Vec<Check> {
    let mut checks = Vec::new();
    let (mut same, mut failed) = (0_u64, 0_u64);
    let mut not_made: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for table in tables {
        match &table.outcome {
            Rederived::Same => same += 1,
            Rederived::Differs { expected, found } => {
                failed += 1;
                if failed <= MAX_NAMED as u64 {
                    // What this program makes is what has to be there.
                    let check = Check::failed(id::TABLE_REDERIVED, found.clone(), expected.to_string());
                    checks.push(check.with_detail(format!("{}, made again by {PRODUCER}", table.path)));
                }
            }
            Rederived::NotComparable { made_by } => {
                let reason = format!("not comparable: made by {made_by}, and this is {PRODUCER}");
                not_made.entry(reason).or_default().push(&table.path);
            }
            Rederived::NotChecked { reason } => {
                not_made.entry(format!("not checked: {reason}")).or_default().push(&table.path);
            }
        }
    }
    if failed > MAX_NAMED as u64 {
        let more = failed - MAX_NAMED as u64;
        checks.push(Check::failed(id::TABLE_REDERIVED, "no such table", format!("{more} more like these")));
    }
    if failed == 0 && same > 0 {
        checks.push(Check::passed(id::TABLE_REDERIVED, format!("{same} tables")));
    }
    for (reason, paths) in not_made {
        let more = paths.len().saturating_sub(MAX_NAMED);
        let named: Vec<&str> = paths.into_iter().take(MAX_NAMED).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        checks.push(Check::skipped(id::TABLE_REDERIVED, format!("{reason}; {}{more}", named.join(", "))));
    }
    if checks.is_empty() {
        checks.push(Check::skipped(id::TABLE_REDERIVED, "the bundle has no tables"));
    }
    checks
}
