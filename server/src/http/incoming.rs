//! A body on its way to the disk: its pieces, and the pace that it has to keep.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout};

use super::drain;
use super::gathered::{NotGathered, PACE, PART};

/// A body whose pieces are taken one after the other. While the disk writes nobody's time runs.
pub(crate) struct Incoming {
    pieces: BodyDataStream,
    pace: Duration,
    /// What is left of the time in which this many bytes are to come, or the end.
    left: Duration,
    wanted: usize,
}

impl Incoming {
    /// A body that nothing was taken of yet.
    pub(crate) fn of(body: Body) -> Self {
        Self::at(body, PACE)
    }

    fn at(body: Body, pace: Duration) -> Self {
        Self { pieces: body.into_data_stream(), pace, left: pace, wanted: PART }
    }

    /// The next piece; none at its end.
    ///
    /// # Errors
    /// [`NotGathered::Stalled`], [`NotGathered::Broken`].
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, NotGathered>> {
        let asked = Instant::now();
        let Ok(piece) = timeout(self.left, self.pieces.next()).await else { return Some(Err(NotGathered::Stalled)) };
        let piece = match piece? {
            Ok(piece) => piece,
            Err(error) => return Some(Err(NotGathered::Broken(error))),
        };
        self.left = self.left.saturating_sub(asked.elapsed());
        match self.wanted.checked_sub(piece.len()) {
            Some(wanted @ 1..) => self.wanted = wanted,
            _ => (self.left, self.wanted) = (self.pace, PART),
        }
        Some(Ok(piece))
    }

    /// Throws away the rest of one that is refused, see [`drain`].
    pub(crate) fn drain(self) {
        drain(self.pieces);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    const SOON: Duration = Duration::from_millis(400);

    /// The bytes of pieces that come one after so many milliseconds, each of which takes so many to be written; whether the body stalled.
    async fn through(pieces: Vec<(u64, usize)>, writing: u64) -> (usize, bool) {
        let pieces = stream::iter(pieces).then(|(millis, length)| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok::<_, Infallible>(vec![0; length])
        });
        let mut incoming = Incoming::at(Body::from_stream(pieces), SOON);
        let mut bytes = 0;
        while let Some(piece) = incoming.next().await {
            match piece {
                Ok(piece) => bytes += piece.len(),
                Err(NotGathered::Stalled) => return (bytes, true),
                Err(other) => panic!("{other}"),
            }
            tokio::time::sleep(Duration::from_millis(writing)).await;
        }
        (bytes, false)
    }

    #[tokio::test]
    async fn a_body_may_be_slow_and_may_neither_stop_nor_trickle() {
        assert_eq!(through(vec![(60, PART); 12], 0).await, (12 * PART, false));
        assert_eq!(through(vec![(0, 7), (5000, 7)], 0).await, (7, true));
        let (bytes, stalled) = through(vec![(20, 1); 1000], 0).await;
        assert!(stalled && (1..=40).contains(&bytes), "{bytes}");
        assert_eq!(through(vec![(0, 1); 10], 100).await, (10, false), "a slow disk is not the client's");
    }
}
