//! RPM packages.

use std::io::Read;

use super::error::Halt;
use super::member::Inside;
use super::report::PassedOverReason;
use super::walk::Walk;

/// Visits the files of an RPM package.
pub(super) fn read(walk: &mut Walk<'_>, inside: &Inside, _: &mut dyn Read) -> Result<(), Halt> {
    walk.report.pass_over(inside.label.clone(), PassedOverReason::Unsupported("RPM packages, so far".to_owned()));
    Ok(())
}
