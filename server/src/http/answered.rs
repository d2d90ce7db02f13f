//! Whether anything was said over a connection, above what encrypts it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::crowd::Seat;

/// Shared by the two ends of a connection: what writes answers tells it, and what closes the connection asks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answered(Arc<AtomicBool>);

impl Answered {
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that tells of its first written byte, and of each time when all that was written is out.
#[derive(Debug)]
pub(crate) struct Answering<S> {
    stream: S,
    answered: Answered,
    seat: Option<Arc<Seat>>,
}

impl<S> Answering<S> {
    pub(crate) fn new(stream: S, answered: Answered) -> Self {
        Self { stream, answered, seat: None }
    }

    /// Tells a seat of what is out, too.
    pub(crate) fn seated(self, seat: &Arc<Seat>) -> Self {
        Self { seat: Some(Arc::clone(seat)), ..self }
    }

    fn written(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(result, Poll::Ready(Ok(bytes)) if bytes > 0) {
            self.answered.0.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Answering<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Answering<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(())))
            && let Some(seat) = &self.seat
        {
            seat.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
