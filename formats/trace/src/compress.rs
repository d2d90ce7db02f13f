//! Plain, gzip or zstd, told apart by their first bytes.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// How much of its past a zstd stream may refer to: 2^27 bytes, what the zstd tool itself accepts unasked.
#[cfg(feature = "zstd")]
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// How a stream is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    Plain,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// Tells it from a stream's first bytes. JSON starts with neither magic.
    pub fn of(head: &[u8]) -> Self {
        if head.starts_with(&GZIP_MAGIC) {
            Self::Gzip
        } else if head.starts_with(&ZSTD_MAGIC) {
            Self::Zstd
        } else {
            Self::Plain
        }
    }
}

type Input<R> = Chain<Cursor<Vec<u8>>, R>;

/// A stream, decompressed as it is read: however much comes out of it, so whoever reads it sets a bound.
pub struct Decompressed<R: Read>(Form<R>);

enum Form<R: Read> {
    Plain(Input<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Input<R>>>>),
    #[cfg(feature = "zstd")]
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<Input<R>>>>),
}

impl<R: Read> Decompressed<R> {
    /// Reads the stream's first bytes, which tell how it is compressed.
    ///
    /// # Errors
    /// They cannot be read, or this build does not decompress it.
    pub fn new(mut input: R) -> io::Result<Self> {
        let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
        input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut head)?;
        let compression = Compression::of(&head);
        let input = Cursor::new(head).chain(input);
        match compression {
            Compression::Plain => Ok(Self(Form::Plain(input))),
            Compression::Gzip => Ok(Self(Form::Gzip(Box::new(MultiGzDecoder::new(BufReader::new(input)))))),
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(input)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Ok(Self(Form::Zstd(Box::new(decoder))))
            }
            #[cfg(not(feature = "zstd"))]
            Compression::Zstd => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the stream is compressed with zstd, which this build does not read: unpack it first (zstd -d)",
            )),
        }
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Form::Plain(input) => input.read(out),
            Form::Gzip(input) => input.read(out),
            #[cfg(feature = "zstd")]
            Form::Zstd(input) => input.read(out),
        }
    }
}
