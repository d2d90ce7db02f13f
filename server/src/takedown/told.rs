//! Who is told that something was taken down, and why.

use super::IsTakenDown;
use crate::access::Caller;
use crate::app::App;
use crate::blobs::BlobDigest;

/// What was taken down, with its reason, for those who might read a repository that had it. For others there never was such a thing.
pub(crate) fn gone(app: &App, caller: &Caller, digest: &BlobDigest) -> Option<IsTakenDown> {
    let gone = app.taken_down.get(digest)?;
    let had_it = || app.repositories.named().into_iter().any(|(name, it)| caller.may_read(&name) && it.had(digest));
    (caller.may_read_all() || had_it()).then_some(gone)
}
