//! A server that has a connection and says nothing: whether it works on an answer, or is dead.
//!
//! A debuginfod server that takes an archive apart first is silent for long, and so is one that hangs. The one answers a small question meanwhile,
//! on another connection, and the other does not.

use std::future::Future;
use std::pin::pin;

use reqwest::{Error, RequestBuilder, Response};

use crate::origins::Patience;

/// What came in the place of an answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The request failed.
    Failed(Error),
    /// The server is dead.
    Silent(String),
    /// It lives, and did not answer in time.
    Late(String),
}

/// The head of the answer to a request that is being sent. `question` is something that a server answers at once, whatever it says.
///
/// # Errors
/// [`Unanswered`]: after [`Patience::silence`] twice where the server is dead, after [`Patience::head`] where it is only slow.
pub(crate) async fn answered(
    sent: impl Future<Output = Result<Response, Error>>,
    question: RequestBuilder,
    patience: Patience,
) -> Result<Response, Unanswered> {
    let silence = patience.silence.min(patience.head);
    let mut sent = pin!(sent);
    if let Ok(done) = tokio::time::timeout(silence, &mut sent).await {
        return done.map_err(Unanswered::Failed);
    }
    let dies = async {
        // One that answers this is only slow.
        if let Ok(Ok(_)) = tokio::time::timeout(silence, question.send()).await {
            std::future::pending().await
        }
    };
    let late = tokio::time::sleep(patience.head.saturating_sub(silence));
    tokio::select! {
        done = &mut sent => done.map_err(Unanswered::Failed),
        () = late => Err(Unanswered::Late(format!("no answer came in {} s", patience.head.as_secs_f64()))),
        () = dies => {
            let seconds = (silence * 2).as_secs_f64();
            Err(Unanswered::Silent(format!("it said nothing in {seconds} s, nor to a small question beside")))
        }
    }
}
