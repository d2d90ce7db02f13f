//! The transparency log that the server keeps: one writer that takes requests in batches, and readers of the
//! files.

mod files;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use symseal_sealer::Appended;
use tokio::sync::{mpsc, oneshot};

use crate::LogConfig;
use crate::metrics::Metrics;
use crate::pool::Pool;
pub(crate) use files::{LogFile, ReadError, read};
use writer::{Request, Writer};

/// Requests that wait for the writer; more are told to come again.
const QUEUE: usize = 1024;

/// The server's log.
#[derive(Debug)]
pub(crate) struct Log {
    directory: PathBuf,
    queue: mpsc::Sender<Request>,
}

/// Why an entry was not logged.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum AppendError {
    /// Trying again may help: another process writes to the log, or too many requests wait.
    #[error("{0}")]
    Busy(String),
    /// The log cannot be written to until someone looks after it.
    #[error("{0}")]
    Failed(String),
}

impl Log {
    /// Starts the writer, which takes the log's lease as soon as it can.
    pub(crate) fn open(directory: PathBuf, config: LogConfig, pool: Pool, metrics: Arc<Metrics>) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE);
        tokio::spawn(Writer::new(directory.clone(), config, metrics).run(pool, requests));
        Self { directory, queue }
    }

    /// Appends an entry; when this answers, it is durable. Requests at the same time share one round of
    /// writes. The entry may be logged even when the caller goes away.
    pub(crate) async fn append(&self, entry: Vec<u8>) -> Result<Appended, AppendError> {
        let (answer, answered) = oneshot::channel();
        self.queue
            .try_send(Request { entry, answer })
            .map_err(|_| AppendError::Busy("too many entries wait for the log: try again".into()))?;
        answered.await.unwrap_or_else(|_| Err(AppendError::Busy("the server ends: try again".into())))
    }
}
