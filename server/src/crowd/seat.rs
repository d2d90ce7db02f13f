//! One connection of the [`Crowd`], and whether a request is under way on it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::HttpBody;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

use super::Crowd;

/// No number of [`super::Places::idle`].
const NOWHERE: u64 = 0;

/// What the parts of a connection share.
#[derive(Debug)]
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    leave: Arc<Notify>,
    /// What there is of requests and their answers.
    under_way: AtomicUsize,
    /// Something of an answer may not be out.
    is_unsent: AtomicBool,
    /// Where it stands among those without a request. Changed under the lock of the places alone, as is what follows.
    number: AtomicU64,
    is_leaving: AtomicBool,
}

/// A request, or an answer, while this is kept.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Seat>);

/// A connection's place, until it ends.
#[derive(Debug)]
pub(crate) struct Place(Arc<Seat>);

impl Place {
    pub(super) fn new(crowd: &Arc<Crowd>) -> Self {
        let seat = Seat {
            crowd: Arc::clone(crowd),
            leave: Arc::default(),
            under_way: AtomicUsize::new(0),
            is_unsent: AtomicBool::new(false),
            number: AtomicU64::new(NOWHERE),
            is_leaving: AtomicBool::new(false),
        };
        seat.wait();
        Self(Arc::new(seat))
    }

    pub(crate) fn seat(&self) -> &Arc<Seat> {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.stay();
        let mut places = self.0.crowd.places();
        places.open = places.open.saturating_sub(1);
        drop(places);
        self.0.crowd.changed.notify_waiters();
    }
}

impl Seat {
    /// A request has come, or an answer is to go.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        let before = self.under_way.fetch_add(1, Ordering::AcqRel);
        self.is_unsent.store(true, Ordering::Release);
        // Behind the first it is none of those that wait until all are done, which the one task of the connection sees.
        if before == 0 {
            self.stay();
        }
        UnderWay(Arc::clone(self))
    }

    /// All that was written is out. Of a connection without a request it is known from here on that it waits.
    pub(crate) fn flushed(&self) {
        if self.under_way.load(Ordering::Acquire) == 0 && self.is_unsent.swap(false, Ordering::AcqRel) {
            self.wait();
            self.crowd.changed.notify_waiters();
        }
    }

    /// Completes when another connection needs the place.
    pub(crate) async fn told_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Whether a request is under way, or its answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_unsent.load(Ordering::Acquire)
    }

    /// One of those without a request from now on.
    fn wait(&self) {
        let mut places = self.crowd.places();
        if self.is_leaving.load(Ordering::Relaxed) {
            return;
        }
        places.last += 1;
        let number = places.last;
        self.number.store(number, Ordering::Relaxed);
        places.idle.insert(number, (Instant::now(), Arc::clone(&self.leave)));
    }

    /// None of them any more, nor one that is about to go.
    fn stay(&self) {
        let mut places = self.crowd.places();
        let number = self.number.swap(NOWHERE, Ordering::Relaxed);
        // One that was told to go is not among them.
        if number != NOWHERE && places.idle.remove(&number).is_none() {
            places.leaving = places.leaving.saturating_sub(1);
            self.is_leaving.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A body that keeps what it belongs to under way.
#[derive(Debug)]
pub(crate) struct During<B> {
    body: B,
    _under_way: UnderWay,
}

impl<B> During<B> {
    /// Of a seat's request or answer.
    pub(crate) fn new(body: B, seat: &Arc<Seat>) -> Self {
        Self { body, _under_way: seat.begin() }
    }
}

impl<B: HttpBody + Unpin> HttpBody for During<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
