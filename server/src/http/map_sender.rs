//! A connection that sends what lies in a map without copying it: the kernel takes the bytes from the file itself (`sendfile`).
//!
//! Bodies stay bytes for everybody above: where a slice that is to be written lies in a blob's map, the connection finds that out by its address, and names the
//! kernel the blob's file in its place.

use std::io;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::Breakable;
use crate::blobs::{MappedBlob, mapped_blob_of};

/// Slices that are shorter are copied: the kernel sends a file page by page, and up to about a megabyte that costs more than copying
/// (`docs/performance.md`, "The server beside Debian's debuginfod").
const SHORTEST: usize = 1 << 20;

/// The connection.
#[derive(Debug)]
pub(crate) struct MapSender(Breakable);

impl MapSender {
    /// Over an accepted connection.
    pub(crate) fn new(connection: Breakable) -> Self {
        Self(connection)
    }

    /// Sends a part of a blob's file.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        blob: &MappedBlob,
        at: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.0.about_to_write(length);
        loop {
            ready!(stream.poll_write_ready(cx))?;
            match stream.try_io(Interest::WRITABLE, || send(stream, blob, at, length)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

fn send(stream: &TcpStream, blob: &MappedBlob, at: u64, length: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(at).map_err(io::Error::other)?;
    // SAFETY: both descriptors are open for as long as their owners are borrowed, and `offset` outlives the call.
    #[allow(unsafe_code, reason = "tokio has no sendfile")]
    let sent = unsafe { libc::sendfile(stream.as_raw_fd(), blob.file().as_raw_fd(), &raw mut offset, length) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn in_map(bytes: &[u8]) -> Option<(std::sync::Arc<MappedBlob>, u64)> {
    if bytes.len() < SHORTEST { None } else { mapped_blob_of(bytes) }
}

impl AsyncRead for MapSender {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MapSender {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match in_map(bytes) {
            Some((blob, at)) => self.poll_send(cx, &blob, at, bytes.len()),
            None => Pin::new(&mut self.0).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // What comes before the first slice of a map goes out by itself: an answer's head.
        let is_first = |slice: &io::IoSlice<'_>| !slice.is_empty() && in_map(slice).is_some();
        let before = slices.iter().position(is_first).unwrap_or(slices.len());
        let plain = slices.get(..before).unwrap_or_default();
        if plain.iter().any(|slice| !slice.is_empty()) {
            return Pin::new(&mut self.0).poll_write_vectored(cx, plain);
        }
        match slices.get(before) {
            Some(slice) => self.poll_write(cx, slice),
            None => Poll::Ready(Ok(0)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::blobs::{BlobDigest, BlobDirectory};
    use crate::http::{Answering, Unsent};

    #[tokio::test]
    async fn a_map_a_part_of_it_and_what_is_none_arrive_in_order() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 / 5) as u8).collect();
        let digest = BlobDigest::of(&content);
        blobs.write(&content, &digest).unwrap();
        let Some(blob) = blobs.map_for_requests(&digest).unwrap() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reading = tokio::spawn(async move {
            let mut received = Vec::new();
            TcpStream::connect(address).await.unwrap().read_to_end(&mut received).await.unwrap();
            received
        });
        let stream = Breakable::new(listener.accept().await.unwrap().0, &Unsent::of_the_system());
        let answered = stream.answered();
        let mut sender = Answering::new(MapSender::new(stream), answered);
        let part = blob.bytes(12_345..2_999_999);
        let all = blob.bytes(0..content.len());
        let mut left: Vec<&[u8]> = vec![b"head", &[], &part, b"between", &all, &content[..100_000], b"end"];
        let expected: Vec<u8> = left.concat();
        while !left.is_empty() {
            let slices: Vec<io::IoSlice<'_>> = left.iter().map(|bytes| io::IoSlice::new(bytes)).collect();
            let mut sent = sender.write_vectored(&slices).await.unwrap();
            while let Some(first) = left.first_mut() {
                let taken = sent.min(first.len());
                (*first, sent) = (&first[taken..], sent - taken);
                if !first.is_empty() {
                    break;
                }
                left.remove(0);
            }
        }
        sender.shutdown().await.unwrap();
        drop(sender);
        assert!(reading.await.unwrap() == expected);
    }
}
