//! What a start does with a copy that was made while the server ran: what the manifests of a repository name is linked there again.

use std::sync::Arc;

use crate::app::App;
use crate::repositories::{LinkedAgain, RepositoryName};

/// What is said of what is not here, in one line of the log.
const NAMED: usize = 3;

/// What was linked again, and what is not here.
#[derive(Debug, Default)]
pub(crate) struct MadeWhole {
    pub(crate) linked: u64,
    pub(crate) lost: u64,
}

/// Links again in each repository what its manifests name. What cannot be done now is left to the next start: its bytes stay.
pub(crate) async fn make_whole(app: &Arc<App>) -> MadeWhole {
    let mut made = MadeWhole::default();
    for (name, repository) in app.repositories.named() {
        if repository.unlinked().is_empty() {
            continue;
        }
        // Another server may be about to publish it, or to delete what names it.
        if let Err(error) = app.catch_up_repositories().await {
            tracing::warn!(repository = %name, %error, "what manifests name is not linked again");
            continue;
        }
        let _changes = repository.lock_changes().await;
        let (shared, here) = (Arc::clone(app), Arc::clone(&repository));
        let again = app.pool.run(move || here.link_again(&shared.blobs, |digest| shared.taken_down.has(digest))).await;
        match again.map_err(std::io::Error::other).and_then(|again| again) {
            Ok(again) => {
                made.linked += again.blobs + again.manifests;
                made.lost += again.lost.len() as u64;
                tell(&name, &again);
            }
            Err(error) => tracing::error!(repository = %name, %error, "what manifests name is not linked again"),
        }
    }
    made
}

/// Tells a log of it.
pub(crate) fn tell(name: &RepositoryName, again: &LinkedAgain) {
    let LinkedAgain { blobs, manifests, lost } = again;
    if blobs + manifests > 0 {
        tracing::warn!(repository = %name, blobs, manifests, "what manifests of the repository name was not offered there, as in a copy of a running server: it is again");
    }
    if !lost.is_empty() {
        let some: Vec<String> = lost.iter().take(NAMED).map(ToString::to_string).collect();
        tracing::error!(repository = %name, lost = lost.len(), some = some.join(" "), "manifests of the repository name what is not here: push it again; symseal store scrub lists it");
    }
}
