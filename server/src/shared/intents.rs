//! What became of changes that their writer did not come to tell of.
//!
//! A server says in the database which fact it is about to change, before it does (`facts`). Where the telling after it fails, it tells as soon as it can.
//! Where it was killed, or the object store gave no answer, the intent is left: any server looks in the object store what is there, once no request of its
//! writer can be on its way any more, tells of it, and settles the intent with that. Several may do so at once, and the writer too: all of them tell to
//! look there, and what counts is what is found then.
//!
//! A server that reads the object store whole counts what it finds there, told of or not. So it tells the others at once of everything that anybody
//! intends.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::facts::unreachable;
use super::follow::run;
use crate::app::App;
use crate::store::Intent;

/// How often a server looks for what is to be told.
const LOOK: Duration = Duration::from_secs(2);

/// After so long no request to the object store that was announced is on its way any more: one begins within the first seconds of it, and is given up
/// well within the rest.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// Intents settled at once.
const AT_ONCE: u32 = 1000;

/// Tells until the server ends.
pub(crate) async fn settle(app: Arc<App>) {
    let mut is_failing = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let settled = async {
            let again = tell_again(&app).await;
            settle_old(&app).await.and(again)
        };
        match settled.await {
            Ok(()) => is_failing = false,
            // Said once: whoever follows says that the database is away.
            Err(error) if !is_failing => {
                tracing::warn!(%error, "what servers did not come to tell of is not told");
                is_failing = true;
            }
            Err(_) => {}
        }
    }
}

/// Tells of everything that anybody intends, done or not. Called after the object store was read whole.
///
/// # Errors
/// The database or the object store does not answer.
pub(crate) async fn tell_of_intents(app: &Arc<App>) -> io::Result<()> {
    let intents = app.store.intents(Duration::ZERO, u32::MAX).await.map_err(unreachable)?;
    // Their writers may be at it: nothing is settled.
    tell(app, intents, false).await
}

async fn settle_old(app: &Arc<App>) -> io::Result<()> {
    loop {
        let intents = app.store.intents(SETTLED_AFTER, AT_ONCE).await.map_err(unreachable)?;
        let is_all = intents.len() < AT_ONCE as usize;
        if !intents.is_empty() {
            tracing::warn!(
                intents = intents.len(),
                "a server did not come to tell what it changed: what the object store has now is told"
            );
        }
        tell(app, intents, true).await?;
        if is_all {
            return Ok(());
        }
    }
}

async fn tell(app: &Arc<App>, intents: Vec<Intent>, settles: bool) -> io::Result<()> {
    let Some(facts) = app.repositories.facts().cloned().filter(|_| !intents.is_empty()) else { return Ok(()) };
    let settled: Vec<_> = intents.iter().map(|intent| intent.id).filter(|_| settles).collect();
    let keys: HashSet<String> = intents.into_iter().flat_map(|intent| intent.keys).collect();
    run(app, move || facts.tell_what_is(keys, &settled)).await
}

async fn tell_again(app: &Arc<App>) -> io::Result<()> {
    let Some(facts) = app.repositories.facts().cloned() else { return Ok(()) };
    run(app, move || facts.tell_again()).await
}
