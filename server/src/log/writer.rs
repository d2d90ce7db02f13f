//! The one writer: what waits is appended together, so that concurrent requests share their fsyncs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use symseal_sealer::{Appended, LogError, TileLog};
use tokio::sync::{mpsc, oneshot};

use super::AppendError;
use crate::LogConfig;
use crate::metrics::Metrics;
use crate::pool::Pool;

/// The most entries of one round.
const BATCH: usize = 256;

/// An entry that waits.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) entry: Vec<u8>,
    pub(super) answer: oneshot::Sender<Result<Appended, AppendError>>,
}

/// Holds the log, and with it the lease, while the server runs.
pub(super) struct Writer {
    directory: PathBuf,
    config: LogConfig,
    metrics: Arc<Metrics>,
    /// `None` until the lease was had, and after a failure: then the log is opened, and checked, again.
    log: Option<TileLog>,
}

impl Writer {
    pub(super) fn new(directory: PathBuf, config: LogConfig, metrics: Arc<Metrics>) -> Self {
        Self { directory, config, metrics, log: None }
    }

    /// Runs until the last sender is gone.
    pub(super) async fn run(mut self, pool: Pool, mut requests: mpsc::Receiver<Request>) {
        let mut batch = Vec::new();
        // The first round has nothing to append: it takes the lease.
        loop {
            let round = std::mem::take(&mut batch);
            let spare = (self.directory.clone(), self.config.clone(), Arc::clone(&self.metrics));
            self = match pool.run(move || self.round(round)).await {
                Ok(writer) => writer,
                // It panicked: the log's value is gone with it, and its lease.
                Err(_) => Self::new(spare.0, spare.1, spare.2),
            };
            if requests.recv_many(&mut batch, BATCH).await == 0 {
                return;
            }
        }
    }

    fn round(mut self, requests: Vec<Request>) -> Self {
        let entries: Vec<&[u8]> = requests.iter().map(|request| request.entry.as_slice()).collect();
        match self.append(&entries) {
            Ok(answers) => {
                let new = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|one| !one.duplicate)).count();
                self.metrics.logged(new as u64);
                for (request, answer) in requests.into_iter().zip(answers) {
                    // Whoever went away finds the entry when it asks again.
                    let _ = request.answer.send(answer.map_err(|error| AppendError::Failed(error.to_string())));
                }
            }
            Err(error) => {
                let error = self.failed(&error);
                for request in requests {
                    let _ = request.answer.send(Err(error.clone()));
                }
            }
        }
        self
    }

    fn append(&mut self, entries: &[&[u8]]) -> Result<Vec<Result<Appended, LogError>>, LogError> {
        let log = match &mut self.log {
            Some(log) => log,
            absent @ None => {
                let log = TileLog::open_within(
                    &self.directory,
                    self.config.key.clone(),
                    &self.config.last_seen,
                    Duration::ZERO,
                )?;
                tracing::info!(origin = %log.identity().origin, entries = log.size(), "the log is open");
                absent.insert(log)
            }
        };
        log.append_batch(entries)
    }

    fn failed(&mut self, error: &LogError) -> AppendError {
        self.log = None;
        match error {
            LogError::Leased { .. } => {
                tracing::warn!(%error, "the log takes no entries");
                AppendError::Busy("another process writes to the log: try again when it is done".into())
            }
            _ => {
                tracing::error!(%error, "the log takes no entries");
                AppendError::Failed("the log cannot be written to; the server's own log says why".into())
            }
        }
    }
}
