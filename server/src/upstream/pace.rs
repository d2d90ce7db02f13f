//! How fast an upstream must send what it began to send.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, Stream};
use tokio::time::{Instant, timeout_at};

/// Bytes that must come in each [`Patience::stall`](crate::Patience::stall). elfutils' client gives up on a server that sends fewer than
/// 100 KiB in 90 seconds (debuginfod-find(1), `DEBUGINFOD_TIMEOUT`), and everybody who wants the file waits for the same flight.
const SLOWEST: usize = 16 << 10;

/// The pieces of a body, until one is late or too little came for too long.
///
/// A server that sends a byte now and then is never silent; without this it would hold whoever waits, and a file, for as long as it likes.
pub(super) fn paced(
    pieces: impl Stream<Item = Result<Bytes, String>> + Send + 'static,
    stall: Duration,
) -> BoxStream<'static, Result<Bytes, String>> {
    let state = Some((Box::pin(pieces), Instant::now(), 0_usize));
    stream::unfold(state, move |state| async move {
        let (mut pieces, mut since, mut came) = state?;
        loop {
            let late = format!("{came} bytes came in {} s, at least {SLOWEST} are expected", stall.as_secs_f64());
            match timeout_at(since + stall, pieces.next()).await {
                Ok(None) => return None,
                Ok(Some(Err(error))) => return Some((Err(error), None)),
                Ok(Some(Ok(bytes))) => {
                    came = came.saturating_add(bytes.len());
                    return Some((Ok(bytes), Some((pieces, since, came))));
                }
                Err(_) if came < SLOWEST => return Some((Err(late), None)),
                // Enough came in this time: the next one begins.
                Err(_) => (since, came) = (Instant::now(), 0),
            }
        }
    })
    .fuse()
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_millis(300);

    /// The bytes that come through of pieces that come one after so many milliseconds.
    async fn through(pieces: Vec<(u64, usize)>) -> (usize, Option<String>) {
        let pieces = stream::iter(pieces).then(|(millis, length)| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok::<_, String>(Bytes::from(vec![0; length]))
        });
        let mut paced = paced(pieces, STALL);
        let mut bytes = 0;
        while let Some(piece) = paced.next().await {
            match piece {
                Ok(piece) => bytes += piece.len(),
                Err(error) => return (bytes, Some(error)),
            }
        }
        (bytes, None)
    }

    #[tokio::test]
    async fn a_body_may_be_slow_and_may_not_trickle() {
        assert_eq!(through(vec![(50, SLOWEST); 20]).await, (20 * SLOWEST, None));
        assert_eq!(through(vec![(1, 7)]).await, (7, None), "a small file");
        let (bytes, error) = through(vec![(10, 1); 10_000]).await;
        assert!((1..=30).contains(&bytes), "{bytes}");
        assert!(error.unwrap().contains("at least 16384"));
        let (bytes, error) = through(vec![(0, 1 << 20), (10_000, 1)]).await;
        assert_eq!(bytes, 1 << 20);
        assert!(error.unwrap().starts_with("0 bytes came in 0.3 s"));
    }
}
