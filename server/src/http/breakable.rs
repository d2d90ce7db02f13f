//! A connection that ends in order, or with a reset, and keeps to its share of what the kernel holds.
//!
//! elfutils' client keeps "there is no such file" for ten minutes also where a connection is closed in order before an answer, or before an
//! answer's end; a reset it does not keep (measured with 0.188). So whatever does not come to an orderly end is reset: also a connection over which nothing
//! was said yet, when a server that stops ends it, as its first request may be on its way.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::answered::Answered;
use super::unsent::{Bound, Unsent};

/// The connection. Dropped before it was shut down, it is reset.
#[derive(Debug)]
pub(crate) struct Breakable {
    stream: TcpStream,
    bound: Bound,
    answered: Answered,
    /// The client sends nothing more.
    has_ended: bool,
    is_shut_down: bool,
}

impl Breakable {
    /// Of an accepted stream.
    pub(crate) fn new(stream: TcpStream, unsent: &Unsent) -> Self {
        // Answers are written whole: waiting for more only delays small ones.
        let _ = stream.set_nodelay(true);
        let answered = Answered::default();
        Self { bound: Bound::new(&stream, unsent), stream, answered, has_ended: false, is_shut_down: false }
    }

    /// Whether anything was said over it, for what says it.
    pub(crate) fn answered(&self) -> Answered {
        self.answered.clone()
    }

    /// The stream itself, to which so many bytes are about to be written.
    pub(super) fn about_to_write(&mut self, length: usize) -> &TcpStream {
        self.bound.adapt(&self.stream, length);
        &self.stream
    }
}

impl Drop for Breakable {
    fn drop(&mut self) {
        if !self.is_shut_down {
            // One that the client has closed cannot be reset any more.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Breakable {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.remaining();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if matches!(read, Poll::Ready(Ok(()))) && before > 0 && into.remaining() == before {
            self.has_ended = true;
        }
        read
    }
}

impl AsyncWrite for Breakable {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.about_to_write(bytes.len());
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.about_to_write(parts.iter().map(|part| part.len()).fold(0, usize::saturating_add));
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.answered.is_so() && !self.has_ended {
            return Poll::Ready(Ok(()));
        }
        self.is_shut_down = true;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
