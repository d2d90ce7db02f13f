//! Compressed forms of files: made once, at the first demand, apart from the request that asked; kept in the cache.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::blobs::{BlobDigest, BlobDirectory};
use crate::file_cache::{CacheKey, CachedFile, FileCache, Note};
use crate::http::Coding;
use crate::pool::Pool;

/// Smaller files are sent as they are: a header costs as much as is saved.
const SMALLEST: u64 = 4096;
/// Larger ones too: the work would go on for minutes.
const LARGEST: u64 = 4 << 30;
/// A form is worth its place when it saves at least one byte of so many. Sections that are compressed already save less.
const WORTH: u64 = 10;
/// Bytes that are tried first.
const SAMPLE: u64 = 1 << 20;
/// Levels at which a gigabyte takes some ten seconds of one processor.
const ZSTD_LEVEL: i32 = 6;
const GZIP_LEVEL: u32 = 6;

/// The compressed forms of blobs.
#[derive(Debug)]
pub(crate) struct Encoded {
    cache: Arc<FileCache>,
    /// Compressing under way.
    making: Mutex<HashSet<CacheKey>>,
}

impl Encoded {
    /// Forms that are kept in `cache`.
    pub(crate) fn new(cache: Arc<FileCache>) -> Arc<Self> {
        Arc::new(Self { cache, making: Mutex::default() })
    }

    /// A blob's compressed form. None when there is no use in one, or it is not made yet: then its making begins, and this request gets
    /// the file itself.
    pub(crate) async fn find(
        self: &Arc<Self>,
        (pool, slow): (&Pool, &Pool),
        blobs: &Arc<BlobDirectory>,
        (digest, size): (&BlobDigest, u64),
        coding: Coding,
    ) -> Option<CachedFile> {
        if !(SMALLEST..=LARGEST).contains(&size) {
            return None;
        }
        let key = CacheKey::of(&format!("{}:{digest}", coding.name()));
        if self.cache.has(&key) {
            let (cache, wanted) = (Arc::clone(&self.cache), key.clone());
            // An empty one says that it is not worth it.
            return pool.run(move || cache.find(&wanted)).await.ok().flatten().filter(|found| found.size > 0);
        }
        if self.making.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            let (this, slow, blobs, digest) = (Arc::clone(self), slow.clone(), Arc::clone(blobs), digest.clone());
            tokio::spawn(async move {
                let (cache, wanted) = (Arc::clone(&this.cache), key.clone());
                let named = digest.clone();
                let made = slow.run(move || make(&cache, &wanted, &blobs, &digest, coding)).await;
                if let Ok(Err(error)) = made {
                    tracing::warn!(%error, digest = %named, "a compressed form could not be made");
                }
                this.making.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            });
        }
        None
    }
}

fn make(
    cache: &FileCache,
    key: &CacheKey,
    blobs: &BlobDirectory,
    digest: &BlobDigest,
    coding: Coding,
) -> io::Result<()> {
    let blob = blobs.open_blob(digest)?;
    let mut file = cache.begin()?;
    let worth = |saved_of: u64, left: u64| left.saturating_mul(WORTH) <= saved_of.saturating_mul(WORTH - 1);
    // The middle of a debug file is like most of it; its start and end are headers and tables of sections.
    let (sample, whole) = (SAMPLE.min(blob.size), blob.size);
    let mut reader = &blob.file;
    reader.seek(SeekFrom::Start((whole - sample) / 2))?;
    let tried = compress(&mut reader.take(sample), io::sink(), coding)?;
    if worth(sample, tried) {
        reader.seek(SeekFrom::Start(0))?;
        let made = compress(&mut reader.take(whole), file.as_file_mut(), coding)?;
        if !worth(whole, made) {
            file.as_file().set_len(0)?;
            file.as_file_mut().seek(SeekFrom::Start(0))?;
        }
    }
    cache.keep(key, file, &Note { sha256: digest.hex().to_owned(), headers: Vec::new() })
}

/// Bytes that came out.
fn compress(from: &mut io::Take<&File>, to: impl Write, coding: Coding) -> io::Result<u64> {
    let mut counted = Counted { to, bytes: 0 };
    match coding {
        Coding::Zstd => {
            let mut encoder = zstd::Encoder::new(&mut counted, ZSTD_LEVEL)?;
            io::copy(from, &mut encoder)?;
            encoder.finish()?;
        }
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(&mut counted, Compression::new(GZIP_LEVEL));
            io::copy(from, &mut encoder)?;
            encoder.finish()?;
        }
    }
    Ok(counted.bytes)
}

struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
