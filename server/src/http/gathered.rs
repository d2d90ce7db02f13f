//! Bodies and answers that are wholly in memory: a bound for all that is asked, one for all that is written, and a pace that each has to keep.
//!
//! Whoever sends slowly, or does not read, costs what is held for it. So a body that does not come on is ended, an answer that is not taken is
//! let go, and where there is no room for more, clients are told to come again.

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::drain;

/// Bytes of all that is held at once for questions and their answers, beside what is free.
const ROOM: usize = 128 << 20;

/// The same, for what is read of questions while they are worked on, which may come to many times what they are in JSON.
const ROOM_FOR_READING: usize = 64 << 20;

/// The same, for what is written.
const ROOM_FOR_WRITES: usize = 64 << 20;

/// Room is given in parts of so many bytes. What has no more is free: the system's buffers hold as much.
pub(super) const PART: usize = 64 << 10;

/// In this time a body brings [`PART`] bytes or its end, and an answer is taken by as much.
pub(super) const PACE: Duration = Duration::from_secs(30);

/// The room.
#[derive(Debug)]
pub(crate) struct Memory {
    parts: Arc<Semaphore>,
    for_reading: Arc<Semaphore>,
    for_writes: Arc<Semaphore>,
    pace: Duration,
}

/// Whose room something takes. Anybody may ask, so questions must not take what writers need, nor the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Of questions, and of all answers.
    Questions,
    /// Of requests that were found to be allowed to write.
    Writes,
}

/// Room that was taken. It is free again when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room(Option<OwnedSemaphorePermit>);

impl Room {
    /// Makes it one for so many bytes, out of `parts`.
    fn widen(&mut self, parts: &Arc<Semaphore>, bytes: usize) -> Result<(), NoRoom> {
        let wanted = if bytes <= PART { 0 } else { bytes.div_ceil(PART) };
        let more = wanted.saturating_sub(self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).map_err(|_| NoRoom)?;
        let more = Arc::clone(parts).try_acquire_many_owned(more).map_err(|_| NoRoom)?;
        match &mut self.0 {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// A text that is made in memory, with room for what it takes before it takes it.
#[derive(Debug)]
pub(crate) struct GrowingText {
    bytes: Vec<u8>,
    room: Room,
    parts: Arc<Semaphore>,
}

impl GrowingText {
    /// Adds to its end.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub(crate) fn push(&mut self, more: &[u8]) -> Result<(), NoRoom> {
        let whole = self.bytes.len().saturating_add(more.len());
        if whole > self.bytes.capacity() {
            // As of a body: doubled, and all of it counts.
            let capacity = whole.max(self.bytes.capacity().saturating_mul(2));
            self.room.widen(&self.parts, capacity)?;
            self.bytes.reserve_exact(capacity.saturating_sub(self.bytes.len()));
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    /// Its length, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The body of an answer, in its room.
    pub(crate) fn into_body(self, memory: &Memory) -> Body {
        memory.held(self.bytes, self.room)
    }
}

/// There is no room for more.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the server holds as many large requests and answers as it has memory for: try again")]
pub(crate) struct NoRoom;

/// Why a body is not had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotGathered {
    /// It is larger than the endpoint takes.
    #[error("the body is larger than is taken")]
    TooLarge,
    /// It does not come on.
    #[error("the body came too slowly: {PART} bytes in {} s, or its end, are waited for", PACE.as_secs())]
    Stalled,
    /// There is no room for it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The connection.
    #[error("the body broke off: {0}")]
    Broken(axum::Error),
}

/// A whole body, with its room.
#[derive(Debug)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    room: Room,
}

impl Deref for Gathered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Gathered {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::of(ROOM, ROOM_FOR_WRITES, PACE)
    }
}

impl Memory {
    fn of(bytes: usize, for_writes: usize, pace: Duration) -> Self {
        let room = |bytes: usize| Arc::new(Semaphore::new(bytes / PART));
        Self { parts: room(bytes), for_reading: room(ROOM_FOR_READING), for_writes: room(for_writes), pace }
    }

    /// Room for so many bytes of what is read of a question, once there is as much: who waits holds no more than the question. `None`: there never is.
    pub(crate) async fn for_reading(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes > ROOM_FOR_READING {
            return None;
        }
        let parts = u32::try_from(bytes.div_ceil(PART)).ok()?;
        Arc::clone(&self.for_reading).acquire_many_owned(parts).await.ok()
    }

    /// An empty text that grows in room of its own.
    pub(crate) fn growing(&self) -> GrowingText {
        GrowingText { bytes: Vec::new(), room: Room::default(), parts: Arc::clone(&self.parts) }
    }

    /// Makes a room one for so many bytes.
    fn widen(&self, share: Share, room: &mut Room, bytes: usize) -> Result<(), NoRoom> {
        match share {
            Share::Questions => room.widen(&self.parts, bytes),
            Share::Writes => room.widen(&self.for_writes, bytes),
        }
    }

    /// A body of at most `limit` bytes. What is left of one that is refused is read and thrown away, within bounds.
    ///
    /// # Errors
    /// [`NotGathered`].
    pub(crate) async fn gather(&self, share: Share, body: Body, limit: usize) -> Result<Gathered, NotGathered> {
        if usize::try_from(body.size_hint().lower()).map_or(true, |announced| announced > limit) {
            drain(body.into_data_stream());
            return Err(NotGathered::TooLarge);
        }
        let mut body = body.into_data_stream();
        let mut gathered = Gathered { bytes: Vec::new(), room: Room::default() };
        let mut deadline = tokio::time::Instant::now() + self.pace;
        let mut expected = PART;
        let refused = loop {
            let Ok(chunk) = tokio::time::timeout_at(deadline, body.next()).await else {
                return Err(NotGathered::Stalled);
            };
            let Some(chunk) = chunk.transpose().map_err(NotGathered::Broken)? else { return Ok(gathered) };
            let whole = gathered.bytes.len().saturating_add(chunk.len());
            if whole > limit {
                break NotGathered::TooLarge;
            }
            if whole > gathered.bytes.capacity() {
                // Doubled, so that it is copied seldom; and what is held counts, full or not.
                let capacity = whole.max(gathered.bytes.capacity().saturating_mul(2)).min(limit);
                if let Err(full) = self.widen(share, &mut gathered.room, capacity) {
                    break full.into();
                }
                gathered.bytes.reserve_exact(capacity.saturating_sub(gathered.bytes.len()));
            }
            gathered.bytes.extend_from_slice(&chunk);
            if whole >= expected {
                expected = whole.saturating_add(PART);
                deadline = tokio::time::Instant::now() + self.pace;
            }
        };
        drop(gathered);
        drain(body);
        Err(refused)
    }

    /// An answer's body, which counts until the client has taken it. One that is not taken in time is let go, and the connection breaks.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub(crate) fn answer(&self, text: Vec<u8>) -> Result<Body, NoRoom> {
        if text.len() <= PART {
            return Ok(Body::from(text));
        }
        let mut room = Room::default();
        self.widen(Share::Questions, &mut room, text.len())?;
        Ok(self.held(text, room))
    }

    /// A body in room that was taken for it.
    fn held(&self, text: Vec<u8>, room: Room) -> Body {
        if text.len() <= PART {
            return Body::from(text);
        }
        let length = text.len();
        let held = Arc::new(Held { text: Mutex::new(Some((text, room))), length, taken: AtomicUsize::new(0) });
        let (watched, pace) = (Arc::clone(&held), self.pace);
        let watcher = tokio::spawn(async move {
            let mut before = None;
            // Whoever has taken something since goes on.
            while before != Some(watched.taken.load(Ordering::Relaxed)) {
                before = Some(watched.taken.load(Ordering::Relaxed));
                tokio::time::sleep(pace).await;
            }
            watched.let_go();
        });
        Body::new(Answer { held, watcher: watcher.abort_handle() })
    }
}

impl Memory {
    /// [`answer`](Self::answer) with a value as JSON.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<Response, NoRoom> {
        // Values of these kinds have a text each.
        let mut response = Response::new(self.answer(serde_json::to_vec(value).unwrap_or_default())?);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }
}

/// A text that is held.
struct Held {
    text: Mutex<Option<(Vec<u8>, Room)>>,
    length: usize,
    /// Bytes that went to the connection.
    taken: AtomicUsize,
}

impl Held {
    fn let_go(&self) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The next bytes, copied: what waits in the connection does not hold the rest.
    fn next(&self) -> Option<io::Result<Bytes>> {
        let at = self.taken.load(Ordering::Relaxed);
        if at == self.length {
            return None;
        }
        let mut held = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((text, _)) = held.as_ref() else {
            return Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not take the answer")));
        };
        let next = Bytes::copy_from_slice(text.get(at..at.saturating_add(PART).min(self.length))?);
        let taken = at.saturating_add(next.len());
        self.taken.store(taken, Ordering::Relaxed);
        if taken == self.length {
            *held = None;
        }
        Some(Ok(next))
    }
}

struct Answer {
    held: Arc<Held>,
    watcher: AbortHandle,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.watcher.abort();
        self.held.let_go();
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.held.next().map(|next| next.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.held.taken.load(Ordering::Relaxed) == self.held.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.held.length.saturating_sub(self.held.taken.load(Ordering::Relaxed)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Instant;

    use super::*;

    const SOON: Duration = Duration::from_millis(600);

    /// A body that sends these and then nothing more.
    fn stalled(chunks: Vec<Vec<u8>>) -> Body {
        let sent = futures_util::stream::iter(chunks.into_iter().map(Ok::<_, Infallible>));
        Body::from_stream(sent.chain(futures_util::stream::pending()))
    }

    fn left(memory: &Memory) -> usize {
        memory.parts.available_permits()
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_on_is_ended_and_its_room_is_free_again() {
        let memory = Memory::of(1 << 20, 1 << 20, SOON);
        let started = Instant::now();
        let refused = memory.gather(Share::Questions, stalled(vec![vec![1; 200_000]; 2]), 1 << 20).await.unwrap_err();
        assert!(matches!(refused, NotGathered::Stalled), "{refused}");
        assert!(started.elapsed() < SOON * 10 && left(&memory) == 16);
        // Nor one that comes by single bytes.
        let drops = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(SOON / 10).await;
            Some((Ok::<_, Infallible>(vec![1]), ()))
        });
        let refused = memory.gather(Share::Questions, Body::from_stream(drops), 1 << 20).await.unwrap_err();
        assert!(matches!(refused, NotGathered::Stalled), "{refused}");
    }

    #[tokio::test]
    async fn there_is_room_for_so_much_and_for_small_bodies_always() {
        let memory = Memory::of(1 << 20, 1 << 20, Duration::from_secs(60));
        let whole = |bytes: usize| Body::from(vec![1; bytes]);
        let first = memory.gather(Share::Questions, whole(1 << 20), 1 << 20).await.unwrap();
        assert_eq!((first.len(), left(&memory)), (1 << 20, 0));
        assert!(matches!(memory.gather(Share::Questions, whole(PART + 1), 1 << 20).await, Err(NotGathered::NoRoom(_))));
        assert!(memory.answer(vec![1; PART + 1]).is_err());
        assert!(memory.json(&"x".repeat(PART)).is_err() && memory.json(&"x".repeat(PART - 2)).is_ok());
        assert_eq!(memory.gather(Share::Questions, whole(PART), 1 << 20).await.unwrap().len(), PART);
        // What is written has its own, and takes none of this.
        let written = memory.gather(Share::Writes, whole(1 << 20), 1 << 20).await.unwrap();
        assert!(matches!(memory.gather(Share::Writes, whole(PART + 1), 1 << 20).await, Err(NotGathered::NoRoom(_))));
        drop(first);
        assert_eq!((left(&memory), memory.for_writes.available_permits()), (16, 0));
        drop(written);
        assert_eq!(memory.for_writes.available_permits(), 16);
        let chunks = futures_util::stream::iter(vec![Ok::<_, Infallible>(vec![1; 50_000]); 9]);
        assert_eq!(memory.gather(Share::Questions, Body::from_stream(chunks), 1 << 20).await.unwrap().len(), 450_000);
        for body in [whole((1 << 20) + 1), stalled(vec![vec![1; 600_000]; 2])] {
            assert!(matches!(memory.gather(Share::Questions, body, 1 << 20).await, Err(NotGathered::TooLarge)));
        }
        assert_eq!(left(&memory), 16);
    }

    #[tokio::test]
    async fn a_text_has_room_before_it_grows_and_is_an_answer_in_the_same_room() {
        let memory = Memory::of(1 << 20, 1 << 20, SOON);
        let (mut text, mut other) = (memory.growing(), memory.growing());
        for _ in 0..9 {
            text.push(&[1; 50_000]).unwrap();
        }
        assert_eq!((text.len(), left(&memory)), (450_000, 16 - 13), "what is had counts, full or not");
        other.push(&[1; 3 * PART]).unwrap();
        assert!(other.push(&[1]).is_err() && left(&memory) == 0);
        drop(other);
        let body = text.into_body(&memory);
        assert_eq!((body.size_hint().exact(), left(&memory)), (Some(450_000), 3));
        assert_eq!(axum::body::to_bytes(body, 1 << 20).await.unwrap().len(), 450_000);
        assert_eq!(left(&memory), 16);
    }

    #[tokio::test]
    async fn what_is_read_of_questions_waits_for_room_of_its_own() {
        let memory = Memory::of(1 << 20, 1 << 20, SOON);
        assert!(memory.for_reading(ROOM_FOR_READING + 1).await.is_none());
        let first = memory.for_reading(ROOM_FOR_READING - PART).await.unwrap();
        let small = tokio::time::timeout(SOON, memory.for_reading(PART)).await.unwrap();
        assert!(tokio::time::timeout(SOON, memory.for_reading(1)).await.is_err());
        drop((first, small));
        assert!(tokio::time::timeout(SOON, memory.for_reading(ROOM_FOR_READING)).await.unwrap().is_some());
        assert_eq!(left(&memory), 16);
    }

    #[tokio::test]
    async fn an_answer_counts_until_it_is_taken_and_is_let_go_where_it_is_not() {
        let memory = Memory::of(1 << 20, 1 << 20, SOON);
        let text: Vec<u8> = (0..900_000_u32).map(|at| (at / 7) as u8).collect();
        let body = memory.answer(text.clone()).unwrap();
        assert_eq!((body.size_hint().exact(), left(&memory)), (Some(900_000), 2));
        assert!(memory.answer(text.clone()).is_err());
        assert!(axum::body::to_bytes(body, 1 << 20).await.unwrap() == text);
        assert_eq!(left(&memory), 16);
        // Slowly, but on and on.
        let mut slow = memory.answer(text.clone()).unwrap().into_data_stream();
        let mut received = Vec::new();
        while let Some(next) = slow.next().await {
            received.extend_from_slice(&next.unwrap());
            tokio::time::sleep(SOON / 6).await;
        }
        assert!(received == text);
        let mut body = memory.answer(text).unwrap().into_data_stream();
        assert!(body.next().await.unwrap().is_ok());
        tokio::time::sleep(SOON * 3).await;
        assert_eq!(left(&memory), 16, "it is still held");
        assert!(body.next().await.unwrap().is_err());
    }
}
