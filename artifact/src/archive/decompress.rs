//! Compressed streams, unpacked within the limits.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::{LzmaReader, XzReader};

use super::error::{ArchiveError, LimitKind};
use super::kind::ArchiveKind;
use super::limits::{Account, MAX_WINDOW_BYTES, RATIO_FLOOR_BYTES};

/// Bytes that are read ahead from packed input.
const READ_AHEAD: usize = 64 << 10;

/// What liblzma's and our xz decoder need beside the window, in KiB; generous, as it is only a bound.
const XZ_OVERHEAD_KIB: u64 = 1024;

/// A reader that counts what passes through it.
pub(super) struct Counted<R> {
    input: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Counted<R> {
    /// Counts on from what `count` has.
    pub(super) fn new(input: R, count: &Rc<Cell<u64>>) -> Self {
        Self { input, count: Rc::clone(count) }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.count.set(self.count.get().saturating_add(read as u64));
        Ok(read)
    }
}

/// Packed and unpacked bytes of one stream, or of all members of one zip.
#[derive(Debug, Clone, Default)]
pub(super) struct Ratio {
    pub(super) packed: Rc<Cell<u64>>,
    unpacked: Rc<Cell<u64>>,
}

impl Ratio {
    /// Counts what `input` gives as packed.
    pub(super) fn packed<R: Read>(&self, input: R) -> Counted<R> {
        Counted { input, count: Rc::clone(&self.packed) }
    }

    /// What was counted, to go back to.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.packed.get(), self.unpacked.get())
    }

    /// Forgets what was counted since then.
    pub(super) fn go_back(&self, (packed, unpacked): (u64, u64)) {
        self.packed.set(packed);
        self.unpacked.set(unpacked);
    }
}

/// An unpacked stream, counted against the limits.
pub(super) struct Unpacked<'a, D> {
    decoder: D,
    ratio: Ratio,
    account: &'a Account<'a>,
    archive: String,
    has_failed: bool,
}

impl<'a, D: Read> Unpacked<'a, D> {
    pub(super) fn new(decoder: D, ratio: Ratio, account: &'a Account<'a>, archive: &str) -> Self {
        Self { decoder, ratio, account, archive: archive.to_owned(), has_failed: false }
    }

    fn count(&self, bytes: usize) -> Result<(), ArchiveError> {
        let unpacked = self.ratio.unpacked.get().saturating_add(bytes as u64);
        self.ratio.unpacked.set(unpacked);
        self.account.unpacked(&self.archive, bytes as u64)?;
        if unpacked <= RATIO_FLOOR_BYTES {
            return Ok(());
        }
        let ratio = unpacked.checked_div(self.ratio.packed.get()).unwrap_or(u64::MAX);
        self.account.within(&self.archive, LimitKind::Ratio, self.account.limits.ratio, ratio)
    }

    fn failed(&mut self, error: &io::Error) -> ArchiveError {
        self.has_failed = true;
        if let Some(failure) = self.account.failure() {
            return failure;
        }
        if let Some(found) = needed_window(error) {
            let limit = self.account.within(&self.archive, LimitKind::WindowBytes, MAX_WINDOW_BYTES, found).err();
            if let Some(limit) = limit {
                return limit;
            }
        }
        let found = if error.kind() == io::ErrorKind::UnexpectedEof { "the end".to_owned() } else { error.to_string() };
        self.account.damaged(&self.archive, "more of a compressed stream", found)
    }
}

impl<D: Read> Read for Unpacked<'_, D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::Error::other("the stream is damaged"));
        }
        let counted = match self.decoder.read(buffer) {
            Ok(read) => self.count(read).map(|()| read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => Err(self.failed(&error)),
        };
        counted.map_err(|error| {
            self.has_failed = true;
            self.account.fail(error)
        })
    }
}

/// The window that a decoder refused, in bytes; for decoders that do not tell it, one more than is allowed.
fn needed_window(error: &io::Error) -> Option<u64> {
    let inner = error.get_ref();
    if let Some(window) = inner.and_then(|inner| inner.downcast_ref::<WindowTooLarge>()) {
        return Some(window.0);
    }
    // lzma-rust2 has a kind of error for it, libzstd a text.
    let is_refusal = error.kind() == io::ErrorKind::OutOfMemory || error.to_string().contains("too much memory");
    is_refusal.then_some(MAX_WINDOW_BYTES.saturating_add(1))
}

/// A zstd frame asks for a window of so many bytes.
#[derive(Debug, thiserror::Error)]
#[error("a window of {0} bytes")]
struct WindowTooLarge(u64);

/// Unpacks a stream of that kind.
pub(super) fn unpack<'a>(
    kind: ArchiveKind,
    archive: &str,
    input: &'a mut dyn Read,
    account: &'a Account<'a>,
) -> Unpacked<'a, Box<dyn Read + 'a>> {
    let ratio = Ratio::default();
    let input = BufReader::with_capacity(READ_AHEAD, ratio.packed(input));
    let decoder: Box<dyn Read + 'a> = match kind {
        ArchiveKind::Gzip => Box::new(Parts::<_, GzDecoder<_>>::new(input)),
        ArchiveKind::Bzip2 => Box::new(Parts::<_, BzDecoder<_>>::new(input)),
        ArchiveKind::Xz => Box::new(XzReader::new_mem_limit(input, true, lzma_kib())),
        ArchiveKind::Lzma => match LzmaReader::new_mem_limit(input, lzma_kib(), None) {
            Ok(decoder) => Box::new(decoder),
            Err(error) => Box::new(Refused(Some(error))),
        },
        ArchiveKind::Zstd => zstd_decoder(input),
        // No compression: the bytes as they are.
        ArchiveKind::Tar | ArchiveKind::Zip | ArchiveKind::Ar | ArchiveKind::Rpm | ArchiveKind::Cab => Box::new(input),
    };
    Unpacked::new(decoder, ratio, account, archive)
}

/// What decoders of LZMA may take, in KiB.
fn lzma_kib() -> u32 {
    u32::try_from((MAX_WINDOW_BYTES >> 10).saturating_add(XZ_OVERHEAD_KIB)).unwrap_or(u32::MAX)
}

/// A decoder of one gzip member or one bzip2 stream; a file may hold several in a row (`pigz -i`, `pbzip2`, Alpine's apk).
trait Part<R>: Read {
    /// The first byte of a further part. Zeros are padding of the medium, which gzip passes over as well.
    const FIRST_BYTE: u8;
    const NAME: &'static str;
    fn open(input: R) -> Self;
    fn close(self) -> R;
}

impl<R: BufRead> Part<R> for GzDecoder<R> {
    const FIRST_BYTE: u8 = 0x1f;
    const NAME: &'static str = "a further gzip member";
    fn open(input: R) -> Self {
        Self::new(input)
    }
    fn close(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Part<R> for BzDecoder<R> {
    const FIRST_BYTE: u8 = b'B';
    const NAME: &'static str = "a further bzip2 stream";
    fn open(input: R) -> Self {
        Self::new(input)
    }
    fn close(self) -> R {
        self.into_inner()
    }
}

/// Parts in a row, until the input ends. Something else behind them may be a part that is damaged.
struct Parts<R, P> {
    part: Option<P>,
    input: std::marker::PhantomData<R>,
}

impl<R: BufRead, P: Part<R>> Parts<R, P> {
    fn new(input: R) -> Self {
        Self { part: Some(P::open(input)), input: std::marker::PhantomData }
    }
}

/// The first byte behind zeros, which is not taken; none where the input ends with them.
fn first_of_rest(input: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        if let Some(first) = buffer.get(zeros) {
            let first = *first;
            input.consume(zeros);
            return Ok(Some(first));
        }
        input.consume(zeros);
    }
}

impl<R: BufRead, P: Part<R>> Read for Parts<R, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(part) = self.part.as_mut() else { return Ok(0) };
            let read = part.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            let Some(mut input) = self.part.take().map(Part::close) else { return Ok(0) };
            match first_of_rest(&mut input)? {
                None => {}
                Some(first) if first == P::FIRST_BYTE => self.part = Some(P::open(input)),
                Some(first) => {
                    let problem = format!("expected {} or the end, found a byte {first:#04x}", P::NAME);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
            }
        }
    }
}

#[cfg(feature = "zstd-c")]
fn zstd_decoder<'a, R: BufRead + 'a>(input: R) -> Box<dyn Read + 'a> {
    let decoder = zstd::stream::read::Decoder::with_buffer(input).and_then(|mut decoder| {
        decoder.window_log_max(MAX_WINDOW_BYTES.ilog2())?;
        Ok(decoder)
    });
    match decoder {
        Ok(decoder) => Box::new(decoder),
        Err(error) => Box::new(Refused(Some(error))),
    }
}

/// A decoder that could not be made: its first read says why.
struct Refused(Option<io::Error>);

impl Read for Refused {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.take().unwrap_or_else(|| io::ErrorKind::OutOfMemory.into()))
    }
}

#[cfg(not(feature = "zstd-c"))]
fn zstd_decoder<'a, R: BufRead + 'a>(input: R) -> Box<dyn Read + 'a> {
    let mut decoder = ruzstd::decoding::FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW_BYTES);
    Box::new(Frames { input, decoder, is_open: false })
}

/// Zstandard frames in a row, skippable ones between them (RFC 8878, section 3.1).
#[cfg(not(feature = "zstd-c"))]
struct Frames<R> {
    input: R,
    decoder: ruzstd::decoding::FrameDecoder,
    is_open: bool,
}

#[cfg(not(feature = "zstd-c"))]
impl<R: BufRead> Frames<R> {
    /// Opens the next frame; false at the end.
    fn open(&mut self) -> io::Result<bool> {
        use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.input.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { requested, .. }) => {
                    return Err(io::Error::other(WindowTooLarge(requested)));
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.is_open = false;
        let stated = self.decoder.get_checksum_from_data();
        if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a zstd frame with a wrong checksum"));
        }
        Ok(())
    }
}

#[cfg(not(feature = "zstd-c"))]
impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_open && !self.open()? {
                return Ok(0);
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                self.close()?;
                continue;
            }
            self.decoder
                .decode_blocks(&mut self.input, ruzstd::decoding::BlockDecodingStrategy::UptoBlocks(1))
                .map_err(io::Error::other)?;
        }
    }
}
