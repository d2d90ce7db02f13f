//! A body of any length on its way to the disk.

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;

use super::ApiError;
use crate::access::Caller;
use crate::app::App;
use crate::blobs::Spool;
use crate::http::{Incoming, drain};
use crate::quotas::Room;

/// Bytes gathered before they are written and hashed.
const WRITE_BLOCK: usize = 256 << 10;

/// What is too large.
pub(super) struct Bound {
    /// Bytes that are taken.
    pub(super) bytes: u64,
    /// The code of the error.
    pub(super) code: &'static str,
    /// What to call the body, and what to do instead.
    pub(super) message: &'static str,
}

impl Bound {
    fn check(&self, bytes: u64) -> Result<(), ApiError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let message = format!("{} bytes are taken at most: {}", self.bytes, self.message);
        Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, self.code, message))
    }
}

/// Takes a body into a file of its own, for as long as the caller's token holds; memory does not grow with it.
pub(super) async fn spool(
    app: &App,
    caller: &Caller,
    body: Body,
    bound: &Bound,
    room: &mut Room<'_>,
) -> Result<Spool, ApiError> {
    // What is announced is refused before it comes.
    let announced = body.size_hint().lower();
    if let Err(refused) = bound.check(announced).and_then(|()| Ok(room.take(announced)?)) {
        drain(body.into_data_stream());
        return Err(refused);
    }
    let blobs = app.blobs.clone();
    let mut spool = app.pool.run(move || Spool::new(&blobs)).await??;
    let mut body = Incoming::of(body);
    let (mut gathered, mut gathered_bytes) = (Vec::new(), 0);
    loop {
        let chunk = body.next().await.transpose()?;
        let ended = chunk.is_none();
        gathered_bytes += chunk.as_ref().map_or(0, bytes::Bytes::len);
        gathered.extend(chunk);
        if gathered_bytes >= WRITE_BLOCK || ended {
            if let Err(refused) = app.access.check_again(caller).await {
                body.drain();
                return Err(refused.into());
            }
            let block = std::mem::take(&mut gathered);
            gathered_bytes = 0;
            spool = app.pool.run(move || spool.append(&block).map(|()| spool)).await??;
        }
        if let Err(refused) = bound.check(spool.size()).and_then(|()| Ok(room.take(spool.size())?)) {
            body.drain();
            return Err(refused);
        }
        if ended {
            return Ok(spool);
        }
    }
}
