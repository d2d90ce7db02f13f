//! A blob goes out: asked for first, streamed from its file, and continued where it broke off.

use std::io::SeekFrom;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use reqwest::{Body, Method, Response, StatusCode, Url};
use symseal_bundle::{Digest, LayoutDir, LayoutError};
use tokio::io::AsyncSeekExt as _;
use tokio_util::io::ReaderStream;

use crate::RegistryError;
use crate::options::Progress;
use crate::session::{Expect, Failure, Session};

/// Bytes read from a file at once.
const READ_BLOCK: usize = 256 << 10;

const EXISTS: Expect = Expect { text: "200 or 404", statuses: &[StatusCode::OK, StatusCode::NOT_FOUND] };
const STARTED: Expect = Expect { text: "202 (a new upload)", statuses: &[StatusCode::ACCEPTED] };
const STORED: Expect = Expect { text: "201 (the blob is stored)", statuses: &[StatusCode::CREATED] };
const CONTINUED: Expect = Expect { text: "202 (the chunk is taken)", statuses: &[StatusCode::ACCEPTED] };
const PROGRESS: Expect = Expect { text: "204 (the upload's status)", statuses: &[StatusCode::NO_CONTENT] };

/// Sends a blob of the layout unless the registry has it; whether it was sent.
pub(crate) async fn push_blob(session: &Session, layout: &LayoutDir, digest: &Digest) -> Result<bool, RegistryError> {
    let size = layout
        .blob_size(digest)
        .ok_or_else(|| LayoutError::Missing { path: layout.root().to_owned(), digest: *digest })?;
    let done = |existed| session.options.tell(Progress::Done { digest: *digest, bytes: size, existed });
    if exists(session, digest).await? {
        done(true);
        return Ok(false);
    }
    let blob = Blob { session, path: layout.blob_path(digest), digest: *digest, size };
    if let Err(error) = blob.push().await {
        // A registry that refuses the digest may be right: then the file here is damaged, and that is the news.
        if let RegistryError::Refused { status: 400, .. } = &error {
            let (layout, digest) = (layout.clone(), *digest);
            let checked = tokio::task::spawn_blocking(move || check(&layout, &digest)).await;
            checked.unwrap_or(Ok(()))?;
        }
        return Err(error);
    }
    done(false);
    Ok(true)
}

/// Whether the repository has a blob.
pub(crate) async fn exists(session: &Session, digest: &Digest) -> Result<bool, RegistryError> {
    let url = session.url(&format!("blobs/{digest}"))?;
    let known = session.send(Method::HEAD, &url, EXISTS, |request| request).await?;
    Ok(known.status() == StatusCode::OK)
}

fn check(layout: &LayoutDir, digest: &Digest) -> Result<(), RegistryError> {
    let path = layout.blob_path(digest);
    let read = std::fs::File::open(&path).and_then(Digest::of_reader);
    let (found, _) = read.map_err(|source| RegistryError::File { path: path.clone(), source })?;
    if found == *digest { Ok(()) } else { Err(LayoutError::Digest { path, expected: *digest, found }.into()) }
}

struct Blob<'a> {
    session: &'a Session,
    path: PathBuf,
    digest: Digest,
    size: u64,
}

/// Where an upload stands at the registry.
struct Progressed {
    location: Url,
    offset: u64,
}

impl Blob<'_> {
    async fn push(&self) -> Result<(), RegistryError> {
        let mut location = self.start().await?;
        let mut tried = 0;
        loop {
            tried += 1;
            let mut failure = match self.put(&location, 0).await {
                Ok(_) => return Ok(()),
                Err(failure) => failure,
            };
            // The registry forgot the upload, or counts otherwise than we do: a new one may do.
            failure.may_pass |=
                matches!(failure.status, Some(StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE));
            self.session.wait_or_give_up(failure, tried).await?;
            // Where did it break off? A registry that does not know, or has nothing, gets a new upload.
            let mut progressed = self.progress(&location).await;
            while let Some(Progressed { location: next, offset }) = progressed.take().filter(|at| at.offset > 0) {
                tried += 1;
                match self.resume(&next, offset).await {
                    Ok(()) => return Ok(()),
                    Err(failure) if failure.may_pass => {
                        self.session.wait_or_give_up(failure, tried).await?;
                        progressed = self.progress(&next).await;
                    }
                    // 416, 404, 405: this registry cannot go on there.
                    Err(_) => break,
                }
            }
            location = self.start().await?;
        }
    }

    async fn start(&self) -> Result<Url, RegistryError> {
        let url = self.session.url("blobs/uploads/")?;
        let response =
            self.session.send(Method::POST, &url, STARTED, |request| request.header(CONTENT_LENGTH, 0)).await?;
        self.session.location(&response)
    }

    async fn progress(&self, location: &Url) -> Option<Progressed> {
        let response = self.session.send(Method::GET, location, PROGRESS, |request| request).await.ok()?;
        let location = self.session.location(&response).unwrap_or_else(|_| location.clone());
        let range = response.headers().get(RANGE)?.to_str().ok()?;
        let last: u64 = range.trim_start_matches("bytes=").strip_prefix("0-")?.parse().ok()?;
        // `0-0` is what registries say of an empty upload; one byte is not worth telling the two apart.
        let offset = if last == 0 { 0 } else { last.checked_add(1)? };
        (offset <= self.size).then_some(Progressed { location, offset })
    }

    /// Sends the rest as one chunk and ends the upload.
    async fn resume(&self, location: &Url, offset: u64) -> Result<(), Failure> {
        let mut location = location.clone();
        if offset < self.size {
            let range = format!("{offset}-{}", self.size - 1);
            let response = self.send_from(Method::PATCH, &location, offset, CONTINUED, Some(&range)).await?;
            location = self.session.location(&response).map_err(Failure::lasting)?;
        }
        self.put(&location, self.size).await.map(drop)
    }

    /// Ends the upload with the bytes from `offset` on.
    async fn put(&self, location: &Url, offset: u64) -> Result<Response, Failure> {
        let mut url = location.clone();
        url.query_pairs_mut().append_pair("digest", &self.digest.to_string());
        self.send_from(Method::PUT, &url, offset, STORED, None).await
    }

    async fn send_from(
        &self,
        method: Method,
        url: &Url,
        offset: u64,
        expect: Expect,
        content_range: Option<&str>,
    ) -> Result<Response, Failure> {
        let moved = Arc::new(AtomicU64::new(0));
        let mut file = tokio::fs::File::open(&self.path).await.map_err(|source| self.unreadable(source))?;
        file.seek(SeekFrom::Start(offset)).await.map_err(|source| self.unreadable(source))?;
        // One body for one try: `finish` runs again only when the registry asks for credentials after it refused the
        // first, and then the file is opened anew.
        let body = std::sync::Mutex::new(Some(self.body(file, &moved)));
        let sent = self.session.send_once(method, url, expect, |request| {
            let body = body.lock().ok().and_then(|mut body| body.take());
            let body = body.or_else(|| Some(self.body(self.reopen(offset)?, &moved)));
            let mut request = request
                .header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_LENGTH, self.size.saturating_sub(offset));
            if let Some(range) = content_range {
                request = request.header(CONTENT_RANGE, range);
            }
            request.body(body.unwrap_or_default())
        });
        tokio::select! {
            sent = sent => sent,
            () = stalled(&moved, self.session.options.stall_timeout) => {
                let stall = std::io::Error::other("no byte moved for too long");
                Err(Failure::broken(url, &stall))
            }
        }
    }

    fn reopen(&self, offset: u64) -> Option<tokio::fs::File> {
        use std::io::Seek as _;
        let mut file = std::fs::File::open(&self.path).ok()?;
        file.seek(SeekFrom::Start(offset)).ok()?;
        Some(tokio::fs::File::from_std(file))
    }

    fn body(&self, file: tokio::fs::File, moved: &Arc<AtomicU64>) -> Body {
        let (moved, progress) = (Arc::clone(moved), self.session.options.progress.clone());
        Body::wrap_stream(ReaderStream::with_capacity(file, READ_BLOCK).map(move |block| {
            if let Ok(block) = &block {
                moved.fetch_add(block.len() as u64, Ordering::Relaxed);
                if let Some(tell) = &progress {
                    tell(Progress::Moved { bytes: block.len() as u64 });
                }
            }
            block
        }))
    }

    fn unreadable(&self, source: std::io::Error) -> Failure {
        Failure::lasting(RegistryError::File { path: self.path.clone(), source })
    }
}

/// Ends when `moved` has not changed for `timeout`.
async fn stalled(moved: &AtomicU64, timeout: Duration) {
    let mut last = moved.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(timeout).await;
        let now = moved.load(Ordering::Relaxed);
        if now == last {
            return;
        }
        last = now;
    }
}
