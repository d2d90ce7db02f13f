//! Work that many wait for, each for as long as it can, and that nobody's going away interrupts.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::lock;

/// Pieces of work under way at once; more are refused.
const AT_ONCE: usize = 64;

type End = Option<Result<(), String>>;

/// The work that is under way, by what it is about.
pub(super) struct Ongoing<K>(Mutex<HashMap<K, watch::Receiver<End>>>);

impl<K> Default for Ongoing<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> Ongoing<K> {
    /// Begins `work`, or joins the one under way for the same key, and waits for its end. It goes on when the wait is over.
    ///
    /// # Errors
    /// The work's own; or that it is still under way after this time.
    pub(super) async fn run(
        self: &Arc<Self>,
        (key, patience): (K, Duration),
        what: impl Fn() -> String,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
    ) -> Result<(), String> {
        let mut told = self.join(key, &what, work)?;
        let ended = tokio::time::timeout(patience, told.wait_for(Option::is_some)).await;
        match ended {
            Ok(Ok(end)) => end.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err(format!("{}: the reading was interrupted", what())),
            Err(_) => Err(format!("{} is still being read", what())),
        }
    }

    fn join(
        self: &Arc<Self>,
        key: K,
        what: impl Fn() -> String,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
    ) -> Result<watch::Receiver<End>, String> {
        let mut ongoing = lock(&self.0);
        if let Some(told) = ongoing.get(&key) {
            return Ok(told.clone());
        }
        if ongoing.len() >= AT_ONCE {
            return Err(format!("{} is asked for too much at once", what()));
        }
        let (tell, told) = watch::channel(None);
        ongoing.insert(key.clone(), told.clone());
        let landing = Landing { ongoing: Arc::clone(self), key };
        tokio::spawn(async move {
            let end = work.await;
            // First out of the list, so that who comes now begins anew.
            drop(landing);
            tell.send_replace(Some(end));
        });
        Ok(told)
    }
}

/// Takes the work out of the list, also where it panics.
struct Landing<K: Hash + Eq> {
    ongoing: Arc<Ongoing<K>>,
    key: K,
}

impl<K: Hash + Eq> Drop for Landing<K> {
    fn drop(&mut self) {
        lock(&self.ongoing.0).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn work_is_done_once_and_goes_on_when_nobody_waits() {
        let (ongoing, done) = (Arc::<Ongoing<u8>>::default(), Arc::<AtomicUsize>::default());
        let work = |time: u64| {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(Duration::from_millis(time)).await;
                done.fetch_add(1, Ordering::SeqCst);
                Err("no".to_owned())
            }
        };
        let (short, long) = (Duration::from_millis(10), Duration::from_secs(20));
        let late = ongoing.run((1, short), || "it".to_owned(), work(200)).await;
        assert_eq!(late, Err("it is still being read".to_owned()));
        // The second one joins the first, whose end it gets.
        assert_eq!(ongoing.run((1, long), || "it".to_owned(), work(0)).await, Err("no".to_owned()));
        assert_eq!(done.load(Ordering::SeqCst), 1);
        assert_eq!(ongoing.run((1, long), || "it".to_owned(), async { Ok(()) }).await, Ok(()));
        let panicked = ongoing.run((1, long), || "it".to_owned(), async { panic!("as a test") }).await;
        assert!(panicked.unwrap_err().contains("interrupted"));
        assert_eq!(ongoing.run((1, long), || "it".to_owned(), async { Ok(()) }).await, Ok(()));
    }
}
