//! A body that takes its bytes from a caller's budget.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::{Budget, Key};

/// The body. What it says that it will have is taken at once, so that requests at the same time see it; what it had not when it is dropped
/// is put back. Its frames pass unchanged.
pub(super) struct Metered {
    body: Body,
    meter: Meter,
}

struct Meter {
    budget: Arc<Budget>,
    caller: Key,
    /// Taken, and not moved yet.
    announced: u64,
}

impl Metered {
    pub(super) fn new(body: Body, budget: Arc<Budget>, caller: Key) -> Self {
        let announced = body.size_hint().exact().unwrap_or(0);
        budget.spend(&caller, announced);
        Self { body, meter: Meter { budget, caller, announced } }
    }
}

impl Meter {
    fn moved(&mut self, bytes: u64) {
        match self.announced.checked_sub(bytes) {
            Some(left) => self.announced = left,
            None => {
                let more = bytes.saturating_sub(self.announced);
                self.announced = 0;
                self.budget.spend(&self.caller, more);
            }
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.announced > 0 {
            self.budget.give_back(&self.caller, self.announced);
        }
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            self.meter.moved(bytes.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt as _;

    use super::super::{Direction, Key, Limits};
    use super::*;
    use crate::config::LimitsConfig;

    fn limits() -> Limits {
        Limits::new(&LimitsConfig { read_per_hour: Some(3600), ..LimitsConfig::default() })
    }

    fn moved(limits: &Limits) -> u64 {
        let text = limits.metrics();
        let line = text.lines().find(|line| line.starts_with("symseal_limited_bytes_total{")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn what_is_announced_counts_at_once_and_what_is_not_sent_is_put_back() {
        let (limits, caller) = (limits(), Key::of(Some("t"), None));
        let body = limits.metered(Direction::Read, &caller, Body::from(vec![0; 5000]));
        assert_eq!((moved(&limits), body.size_hint().exact()), (5000, Some(5000)));
        assert!(limits.wait_for_bytes(Direction::Read, &caller) > Duration::from_secs(1390));
        drop(body);
        assert_eq!(moved(&limits), 0);
        assert_eq!(limits.wait_for_bytes(Direction::Read, &caller), Duration::ZERO);
        let body = limits.metered(Direction::Read, &caller, Body::from(vec![0; 3000]));
        assert_eq!(body.into_data_stream().count().await, 1);
        assert_eq!(moved(&limits), 3000);
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_counts_as_it_comes() {
        let (limits, caller) = (limits(), Key::of(Some("t"), None));
        let chunks =
            futures_util::stream::iter([100_usize, 0, 23].map(|bytes| Ok::<_, std::io::Error>(vec![0; bytes])));
        let mut stream = limits.metered(Direction::Read, &caller, Body::from_stream(chunks)).into_data_stream();
        assert_eq!(moved(&limits), 0);
        assert_eq!(stream.next().await.unwrap().unwrap().len(), 100);
        assert_eq!(moved(&limits), 100);
        while stream.next().await.is_some() {}
        assert_eq!(moved(&limits), 123);
    }
}
