//! A blob comes in: checked before it is seen in the layout, and continued where it broke off.

use std::path::{Path, PathBuf};

use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode, Url};
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir, LayoutError};
use tokio::io::AsyncWriteExt as _;

use crate::RegistryError;
use crate::options::Progress;
use crate::session::{Expect, Failure, Session, shown};

/// Blobs up to this size are gathered in memory: their transfer is not worth continuing.
const SMALL: u64 = 1 << 20;

/// Bytes gathered before they are written.
const WRITE_BLOCK: usize = 256 << 10;

const WHOLE: Expect = Expect { text: "200 (the blob)", statuses: &[StatusCode::OK] };
const WHOLE_OR_PART: Expect = Expect {
    text: "200 or 206 (the blob, or the rest of it)",
    statuses: &[StatusCode::OK, StatusCode::PARTIAL_CONTENT, StatusCode::RANGE_NOT_SATISFIABLE],
};

/// Where a blob grows until it is whole.
pub(crate) fn partial_path(layout: &LayoutDir, digest: &Digest) -> PathBuf {
    layout.root().join("ingest").join(format!("{}.partial", digest.hex()))
}

/// Brings a blob into the layout unless it is there.
pub(crate) async fn pull_blob(
    session: &Session,
    layout: &LayoutDir,
    descriptor: &Descriptor,
) -> Result<(), RegistryError> {
    let (digest, size) = (descriptor.digest, descriptor.size);
    let existed = layout.blob_size(&digest) == Some(size);
    if !existed {
        let url = session.url(&format!("blobs/{digest}"))?;
        if size <= SMALL {
            let bytes = small(session, &url, digest, size).await?;
            write(layout, bytes).await?;
        } else {
            Download { session, layout, url, digest, size }.run().await?;
        }
    }
    session.options.tell(Progress::Done { digest, bytes: size, existed });
    Ok(())
}

/// Writes checked bytes into the layout.
pub(crate) async fn write(layout: &LayoutDir, bytes: Vec<u8>) -> Result<(), RegistryError> {
    let layout = layout.clone();
    blocking(move || layout.write_blob(&bytes).map(drop)).await
}

async fn blocking(work: impl FnOnce() -> Result<(), LayoutError> + Send + 'static) -> Result<(), RegistryError> {
    let path = PathBuf::new();
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| RegistryError::File { path, source: std::io::Error::other(error) })?.map_err(Into::into)
}

/// A blob in memory, checked.
pub(crate) async fn small(session: &Session, url: &Url, digest: Digest, size: u64) -> Result<Vec<u8>, RegistryError> {
    let mut tried = 0;
    loop {
        tried += 1;
        let gathered = match session.send_once(Method::GET, url, WHOLE, |request| request).await {
            Ok(response) => gather(response, size).await,
            Err(failure) => Err(failure),
        };
        match gathered {
            Ok(bytes) => {
                session.options.tell(Progress::Moved { bytes: bytes.len() as u64 });
                let (bytes, found) = digested(bytes).await?;
                if bytes.len() as u64 != size {
                    return Err(RegistryError::Size {
                        url: url.to_string(),
                        expected: size,
                        found: bytes.len() as u64,
                    });
                }
                if found != digest {
                    return Err(RegistryError::Digest { url: url.to_string(), expected: digest, found });
                }
                return Ok(bytes);
            }
            Err(failure) => session.wait_or_give_up(missing(failure, session, &digest), tried).await?,
        }
    }
}

/// Bytes and their digest. What takes more than a moment is not hashed on a thread that serves others.
async fn digested(bytes: Vec<u8>) -> Result<(Vec<u8>, Digest), RegistryError> {
    if bytes.len() as u64 <= SMALL {
        let digest = Digest::of(&bytes);
        return Ok((bytes, digest));
    }
    let hash = tokio::task::spawn_blocking(move || {
        let digest = Digest::of(&bytes);
        (bytes, digest)
    });
    let failed = |error| RegistryError::File { path: PathBuf::new(), source: std::io::Error::other(error) };
    hash.await.map_err(failed)
}

/// At most one byte more than `limit`: enough to see that there is too much.
pub(crate) async fn gather(mut response: Response, limit: u64) -> Result<Vec<u8>, Failure> {
    let url = response.url().clone();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Failure::broken(&url, &error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > limit {
            let (url, found) = (shown(&url), bytes.len() as u64);
            return Err(Failure::lasting(RegistryError::Size { url, expected: limit, found }));
        }
    }
    Ok(bytes)
}

fn missing(failure: Failure, session: &Session, digest: &Digest) -> Failure {
    if failure.status == Some(StatusCode::NOT_FOUND) {
        let reference = session.reference().with_digest(*digest).to_string();
        return Failure::lasting(RegistryError::NotFound { reference, what: "blob" });
    }
    failure
}

struct Download<'a> {
    session: &'a Session,
    layout: &'a LayoutDir,
    url: Url,
    digest: Digest,
    size: u64,
}

impl Download<'_> {
    async fn run(&self) -> Result<(), RegistryError> {
        let partial = partial_path(self.layout, &self.digest);
        let mut resumed = self.fill(&partial).await?;
        loop {
            let (layout, path, digest) = (self.layout.clone(), partial.clone(), self.digest);
            match blocking(move || layout.adopt(&path, &digest)).await {
                Err(RegistryError::Layout(LayoutError::Digest { found, .. })) => {
                    remove(&partial).await?;
                    if !resumed {
                        return Err(RegistryError::Digest { url: self.url.to_string(), expected: self.digest, found });
                    }
                    // What an earlier run left was wrong, not what the registry has: once more from the start.
                    resumed = false;
                    self.fill(&partial).await?;
                }
                adopted => return adopted,
            }
        }
    }

    /// Fills the partial file to the blob's size; whether bytes of an earlier run are in it.
    async fn fill(&self, partial: &Path) -> Result<bool, RegistryError> {
        if let Some(folder) = partial.parent() {
            tokio::fs::create_dir_all(folder).await.map_err(|source| file_error(folder, source))?;
        }
        let mut resumed = false;
        let mut tried = 0;
        loop {
            let before = length(partial).await?;
            tried += 1;
            match self.fill_once(partial, before).await {
                Ok(kept) => return Ok(resumed || kept),
                Err(failure) => {
                    let after = length(partial).await?;
                    if after > before {
                        // It moves: tries are counted only while it does not.
                        tried = 1;
                    }
                    resumed |= before > 0;
                    self.session.wait_or_give_up(missing(failure, self.session, &self.digest), tried).await?;
                }
            }
        }
    }

    /// One request for what is missing; whether the bytes that were there were kept.
    async fn fill_once(&self, partial: &Path, length: u64) -> Result<bool, Failure> {
        let offset = if length <= self.size { length } else { 0 };
        if offset == self.size {
            return Ok(true);
        }
        let ask = |request: reqwest::RequestBuilder| {
            if offset > 0 { request.header(RANGE, format!("bytes={offset}-")) } else { request }
        };
        let mut response = self.session.send_once(Method::GET, &self.url, WHOLE_OR_PART, ask).await?;
        let kept = response.status() == StatusCode::PARTIAL_CONTENT && continues(&response, offset, self.size);
        let lasting = |source| Failure::lasting(file_error(partial, source));
        let mut options = tokio::fs::OpenOptions::new();
        let file =
            options.create(true).write(true).append(kept).truncate(!kept).open(partial).await.map_err(lasting)?;
        if !kept && response.status() != StatusCode::OK {
            // A part that was not asked for, or none at all: the file is empty now, and the next try asks for all of it.
            return Err(Failure::again(&self.url, "the registry sent another part than was asked for"));
        }
        let mut file = tokio::io::BufWriter::with_capacity(WRITE_BLOCK, file);
        let mut at = if kept { offset } else { 0 };
        let received = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    at = at.saturating_add(chunk.len() as u64);
                    if at > self.size {
                        let (url, found) = (self.url.to_string(), at);
                        break Err(Failure::lasting(RegistryError::Size { url, expected: self.size, found }));
                    }
                    file.write_all(&chunk).await.map_err(lasting)?;
                    self.session.options.tell(Progress::Moved { bytes: chunk.len() as u64 });
                }
                Ok(None) if at == self.size => break Ok(kept),
                Ok(None) => break Err(Failure::again(&self.url, "the registry sent less than the blob's size")),
                Err(error) => break Err(Failure::broken(&self.url, &error)),
            }
        };
        // What has arrived is kept in either case.
        file.flush().await.map_err(lasting)?;
        received
    }
}

/// Whether a 206 is the rest from `offset` on.
fn continues(response: &Response, offset: u64, size: u64) -> bool {
    let text = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    parse_content_range(text) == Some((offset, size.saturating_sub(1), Some(size)))
        || parse_content_range(text) == Some((offset, size.saturating_sub(1), None))
}

/// `bytes FIRST-LAST/TOTAL`, the total a number or `*`.
pub(crate) fn parse_content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.parse().ok()?, last.parse().ok()?, total))
}

async fn length(path: &Path) -> Result<u64, RegistryError> {
    match tokio::fs::metadata(path).await {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(file_error(path, source)),
    }
}

async fn remove(path: &Path) -> Result<(), RegistryError> {
    tokio::fs::remove_file(path).await.map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: std::io::Error) -> RegistryError {
    RegistryError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_content_range_is_one() {
        assert_eq!(parse_content_range("bytes 5-9/10"), Some((5, 9, Some(10))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, 9, None)));
        for text in ["", "bytes", "bytes 5-9", "bytes */10", "bytes 5/10", "5-9/10", "bytes a-b/c"] {
            assert_eq!(parse_content_range(text), None, "{text}");
        }
    }
}
