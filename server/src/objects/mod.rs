//! The object store: where blobs, and what repositories say of them, are kept when one machine is outgrown.
//!
//! A key is the path that the same file has in a data directory: `blobs/sha256/ab/…`, `repositories/NAME/_tags/TAG`,
//! `traces/ID`; below `uploads/` are the parts of uploads that are not finished. Every method blocks: call it in the pool.

mod authority;
mod failure;
mod place;
mod writing;

use std::collections::HashSet;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read as _};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig, WriteMultipart,
};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::BLOB_SILENCE;
use crate::http::choose_cryptography;

pub(crate) use authority::{certificates, read as read_certificates};
pub(crate) use failure::{Failure, Why};
pub use place::{BlobsUrl, ParseBlobsUrlError};

use failure::{is_bucket_gone, is_refusal, is_silence};
use writing::Writing;

/// A file up to this many bytes goes in one request; a larger one in parts of this size or more.
const PART: u64 = 8 << 20;

/// S3 takes so many parts of one object.
const PARTS: u64 = 9_000;

/// Parts on their way at once.
const PARTS_AT_ONCE: usize = 4;

/// Parts in memory at once, of all files that are on their way.
const PARTS_IN_MEMORY: usize = 16;

/// S3 copies an object of at most so many bytes by itself (Amazon S3 API reference, `CopyObject`: 5 GB); a larger one goes through here.
const COPY_LIMIT: u64 = 5_000_000_000;

/// Small objects that are read at once when a server starts.
const READS_AT_ONCE: usize = 32;

/// How long the object store may keep silent within a request that changes something, as of a part on a slow line.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(2);

/// No further try is begun after this long, or after most of the silence that is allowed.
const TRIES_FOR: Duration = Duration::from_secs(4);

/// After a failure nobody asks again for so long, so that requests do not queue for what does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// An object that is asked for to see whether the object store answers, and written to see whether it takes what is written: each start writes it.
pub(crate) const MARK: &str = "symseal.txt";

/// How to reach it, where the environment does not say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    /// The server's URL, for other stores than Amazon's.
    pub(crate) endpoint: Option<String>,
    /// Its region.
    pub(crate) region: Option<String>,
    /// A PEM file with a CA that vouches for it, beside those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// How long it may keep silent where somebody waits for what is read.
    pub(crate) silence: Option<Duration>,
}

/// A key with the bytes of its object, or why they are not taken.
type Small = (String, Result<Vec<u8>, String>);

/// A part of a bucket.
#[derive(Debug)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    /// The same, for those who wait.
    reading: Arc<dyn ObjectStore>,
    url: BlobsUrl,
    runtime: Handle,
    in_memory: Arc<Semaphore>,
    /// When it last did not answer, or refused to, and what was said.
    failed: Mutex<Option<(Instant, Failure)>>,
    /// When it last answered though it did not give some object.
    answered: Mutex<Option<Instant>>,
    writing: Writing,
}

impl Objects {
    /// Takes settings and environment; asks for nothing yet. Call it in a runtime.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub(crate) fn new(url: &BlobsUrl, reach: &Reach) -> Result<Self, String> {
        choose_cryptography();
        let mut client = ClientOptions::new().with_allow_http(true).with_http1_only().with_timeout_disabled();
        for certificate in reach.ca.as_deref().map(certificates).transpose()?.into_iter().flatten() {
            client = client.with_root_certificate(certificate);
        }
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&url.bucket);
        if let Some(endpoint) = &reach.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &reach.region {
            builder = builder.with_region(region);
        }
        let silent_for = |silence: Duration| {
            let client = client.clone().with_read_timeout(silence).with_connect_timeout(CONNECT.min(silence));
            // One that was silent for as long as it may be is not asked again: whoever waits would wait for that too.
            let retry_timeout = TRIES_FOR.min(silence * 9 / 10);
            let backoff = BackoffConfig { max_backoff: Duration::from_secs(1), ..BackoffConfig::default() };
            let retry = RetryConfig { backoff, max_retries: 3, retry_timeout };
            let builder = builder.clone().with_retry(retry).with_client_options(client);
            let store = builder.build().map_err(|error| authority::shown(&error.to_string()))?;
            Ok::<Arc<dyn ObjectStore>, String>(Arc::new(store))
        };
        let (store, reading) = (silent_for(SILENCE)?, silent_for(reach.silence.unwrap_or(BLOB_SILENCE))?);
        let in_memory = Arc::new(Semaphore::new(PARTS_IN_MEMORY));
        let (url, runtime) = (url.clone(), Handle::current());
        let (failed, answered, writing) = Default::default();
        Ok(Self { store, reading, url, runtime, in_memory, failed, answered, writing })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &BlobsUrl {
        &self.url
    }

    /// Where its requests run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Whether it answers, and takes the credentials. Of an absent object the answer to a HEAD says nothing more; where the key is not known versitygw answers
    /// 404 too.
    pub(crate) fn ping(&self) -> io::Result<()> {
        self.read(MARK, |_| Ok(())).map(drop)
    }

    /// Stores bytes under a key, in place of what was there.
    pub(crate) fn put(&self, key: &str, bytes: impl Into<Bytes>) -> io::Result<()> {
        let payload = PutPayload::from(bytes.into());
        let put = self.some("put", key, self.store.put(&self.path(key), payload)).map(drop);
        self.writing.tried(put.as_ref().err());
        put
    }

    /// Whether it takes what is written, as far as is known: where nothing was written of late, the mark of a start is.
    pub(crate) fn takes_writes(&self) -> io::Result<()> {
        self.writing.look(|| self.put(MARK, format!("symseal {}\n", env!("CARGO_PKG_VERSION")).into_bytes()))
    }

    /// Stores a file under a key. It is seen whole or not at all.
    pub(crate) fn put_file(&self, key: &str, path: &FilePath) -> io::Result<()> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        if size <= PART {
            let _room = self.room()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            return self.put(key, bytes);
        }
        let part = PART.max(size.div_ceil(PARTS));
        let mut upload = self.some("begin", key, self.store.put_multipart(&self.path(key)))?;
        let mut running = tokio::task::JoinSet::new();
        let sent = loop {
            // Given back by the part that has gone.
            let room = match self.room() {
                Ok(room) => room,
                Err(error) => break Err(error),
            };
            let mut bytes = Vec::new();
            match (&mut file).take(part).read_to_end(&mut bytes) {
                Err(error) => break Err(error),
                Ok(0) => break Ok(()),
                Ok(_) => {}
            }
            let sent = upload.put_part(bytes.into());
            running.spawn_on(
                async move {
                    let _room = room;
                    sent.await
                },
                &self.runtime,
            );
            if running.len() >= PARTS_AT_ONCE
                && let Some(done) = self.runtime.block_on(running.join_next())
                && let Err(error) = self.part_sent(key, done)
            {
                break Err(error);
            }
        };
        let sent = sent.and_then(|()| {
            while let Some(done) = self.runtime.block_on(running.join_next()) {
                self.part_sent(key, done)?;
            }
            self.some("finish", key, upload.complete()).map(drop)
        });
        if sent.is_err() {
            running.abort_all();
            // What remains costs its owner room until the bucket's own rule for unfinished uploads takes it.
            let _ = self.runtime.block_on(upload.abort());
        }
        sent
    }

    /// Room for a part in memory. Blocks until there is some.
    fn room(&self) -> io::Result<OwnedSemaphorePermit> {
        self.runtime.block_on(Arc::clone(&self.in_memory).acquire_owned()).map_err(io::Error::other)
    }

    fn part_sent(&self, key: &str, done: Result<object_store::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
        match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failed(Doing::Writing("put a part of"), key, &error)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// A small object; `None` where there is none.
    pub(crate) fn get(&self, key: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let found = self.read(key, |chunk| {
            if bytes.len() as u64 + chunk.len() as u64 > limit {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("{key}: expected at most {limit} bytes"),
                ));
            }
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        Ok(found.then_some(bytes))
    }

    /// Gives an object's bytes to `take` as they come; whether there is one.
    pub(crate) fn read(&self, key: &str, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<bool> {
        let Some(found) = self.ask(Doing::Reading("get"), key, self.reading.get(&self.path(key)))? else {
            return Ok(false);
        };
        let mut chunks = found.into_stream();
        while let Some(chunk) = self.runtime.block_on(chunks.next()) {
            take(&chunk.map_err(|error| self.failed(Doing::Body, key, &error))?)?;
        }
        Ok(true)
    }

    /// Small objects, as many at once as are good for a start; in the place of one that has more bytes than `limit`, that it has. What is gone is
    /// left out.
    pub(crate) fn get_all(&self, keys: Vec<String>, limit: u64) -> io::Result<Vec<Small>> {
        let get = |key: String| async move {
            let found = match self.store.get(&self.path(&key)).await {
                Ok(found) => found,
                Err(error) if is_absence(&error) => return Ok(None),
                Err(error) => return Self::of_one(Doing::Reading("get"), key, error),
            };
            if found.meta.size > limit {
                let problem = format!("it has {} bytes, expected at most {limit}", found.meta.size);
                return Ok(Some((key, Ok(Err(problem)))));
            }
            match found.bytes().await {
                Ok(bytes) => Ok(Some((key, Ok(Ok(bytes.to_vec()))))),
                Err(error) => Self::of_one(Doing::Body, key, error),
            }
        };
        let found = self.gathered(keys.into_iter().map(get))?;
        let small = |(key, found): (String, Answered<Result<Vec<u8>, String>>)| {
            let read = match found {
                Ok(read) => read,
                Err((doing, error)) => Err(self.one_object(doing, &key, &error)?),
            };
            Ok((key, read))
        };
        found.into_iter().map(small).collect()
    }

    /// What becomes of an error that may be one object's: it is kept, and looked at when the others have come.
    fn of_one<T>(doing: Doing, key: String, error: object_store::Error) -> Gathered<T> {
        if doing.may_be_of_one(&error) { Ok(Some((key, Err((doing, error))))) } else { Err((doing, key, error)) }
    }

    /// Many answers at once.
    fn gathered<T>(
        &self,
        requests: impl Iterator<Item = impl Future<Output = Gathered<T>>>,
    ) -> io::Result<Vec<(String, Answered<T>)>> {
        let found = futures_util::stream::iter(requests).buffer_unordered(READS_AT_ONCE);
        let found = self.runtime.block_on(found.try_filter_map(|found| async { Ok(found) }).try_collect());
        found.map_err(|(doing, key, error)| self.failed(doing, &key, &error))
    }

    /// What is said of one object, where it is that one's trouble alone.
    fn one_object(&self, doing: Doing, key: &str, error: &object_store::Error) -> io::Result<String> {
        let failure = self.failed(doing, key, error);
        if Failure::why(&failure) == Some(Why::OneObject) { Ok(failure.to_string()) } else { Err(failure) }
    }

    /// Bytes of an object; `None` where there is none.
    pub(crate) fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.ask(Doing::Reading("find"), key, self.reading.head(&self.path(key)))?.map(|meta| meta.size))
    }

    /// When an object was written; `None` where there is none.
    pub(crate) fn modified(&self, key: &str) -> io::Result<Option<SystemTime>> {
        Ok(self
            .ask(Doing::Reading("find"), key, self.reading.head(&self.path(key)))?
            .map(|meta| meta.last_modified.into()))
    }

    /// Those of some keys under which there is an object, asked for many at once.
    pub(crate) fn among(&self, keys: HashSet<String>) -> io::Result<HashSet<String>> {
        let find = |key: String| async move {
            match self.store.head(&self.path(&key)).await {
                Ok(_) => Ok(Some((key, Ok(())))),
                Err(error) if is_absence(&error) => Ok(None),
                Err(error) => Self::of_one(Doing::Reading("find"), key, error),
            }
        };
        let found = self.gathered(keys.into_iter().map(find))?;
        // One that is refused is there: of what is not the object store says so.
        let is_there = |(key, found): (String, Answered<()>)| {
            found.or_else(|(doing, error)| self.one_object(doing, &key, &error).map(drop)).map(|()| key)
        };
        found.into_iter().map(is_there).collect()
    }

    /// Removes an object, which may be gone already.
    pub(crate) fn delete(&self, key: &str) -> io::Result<()> {
        self.ask(Doing::Writing("delete"), key, self.store.delete(&self.path(key))).map(drop)
    }

    /// Gives an object another key.
    pub(crate) fn rename(&self, key: &str, to: &str) -> io::Result<()> {
        if self.size(key)?.is_some_and(|size| size > COPY_LIMIT) {
            self.some("copy", key, self.copy_through(key, to))?;
        } else {
            self.some("copy", key, self.store.copy(&self.path(key), &self.path(to)))?;
        }
        self.delete(key)
    }

    /// Copies an object of any size, in parts that are read here.
    async fn copy_through(&self, key: &str, to: &str) -> object_store::Result<()> {
        let found = self.store.get(&self.path(key)).await?;
        let part = PART.max(found.meta.size.div_ceil(PARTS));
        // What is on its way, and the part that is being gathered.
        let parts = u32::try_from(PARTS_AT_ONCE.saturating_add(1)).unwrap_or(u32::MAX);
        let _room = self.in_memory.acquire_many(parts).await;
        let upload = self.store.put_multipart(&self.path(to)).await?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, usize::try_from(part).unwrap_or(usize::MAX));
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            let written = match chunk {
                Ok(chunk) => writer.wait_for_capacity(PARTS_AT_ONCE).await.map(|()| writer.write(&chunk)),
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                // As above.
                let _ = writer.abort().await;
                return Err(error);
            }
        }
        writer.finish().await.map(drop)
    }

    /// The keys below a prefix with their sizes.
    pub(crate) fn list(&self, below: &str) -> io::Result<Vec<(String, u64)>> {
        let all = self.store.list(Some(&self.path(below)));
        let named = all.map_ok(|meta| (self.key(&meta.location), meta.size));
        self.runtime.block_on(named.try_collect()).map_err(|error| self.failed(Doing::Listing, below, &error))
    }

    /// Gives every key below a prefix to `take` as it comes, with the bytes of its object and the time at which that was written.
    pub(crate) fn each(
        &self,
        below: &str,
        mut take: impl FnMut(&str, u64, SystemTime) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut all = self.store.list(Some(&self.path(below)));
        while let Some(found) = self.runtime.block_on(all.next()) {
            let meta = found.map_err(|error| self.failed(Doing::Listing, below, &error))?;
            take(&self.key(&meta.location), meta.size, meta.last_modified.into())?;
        }
        Ok(())
    }

    /// The keys below a prefix, each with a text that changes when its object is written again.
    pub(crate) fn stamps(&self, below: &str) -> io::Result<Vec<(String, String)>> {
        let stamp = |meta: &object_store::ObjectMeta| {
            format!("{} {} {}", meta.last_modified, meta.size, meta.e_tag.as_deref().unwrap_or_default())
        };
        let all = self.store.list(Some(&self.path(below)));
        let stamped = all.map_ok(|meta| (self.key(&meta.location), stamp(&meta)));
        self.runtime.block_on(stamped.try_collect()).map_err(|error| self.failed(Doing::Listing, below, &error))
    }

    fn path(&self, key: &str) -> Path {
        if self.url.prefix.is_empty() { Path::from(key) } else { Path::from(format!("{}/{key}", self.url.prefix)) }
    }

    fn key(&self, path: &Path) -> String {
        let path = path.as_ref();
        let below = path.strip_prefix(self.url.prefix.as_str()).unwrap_or(path);
        below.strip_prefix('/').unwrap_or(below).to_owned()
    }

    /// `None` where there is no such object.
    fn ask<T>(
        &self,
        doing: Doing,
        key: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> io::Result<Option<T>> {
        {
            let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, failure)) = failed.as_ref()
                && at.elapsed() < PAUSE
            {
                return Err(failure.clone().into());
            }
        }
        match self.runtime.block_on(request) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(self.failed(doing, key, &error)),
        }
    }

    fn some<T>(
        &self,
        doing: &'static str,
        key: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> io::Result<T> {
        self.ask(Doing::Writing(doing), key, request)?.ok_or_else(|| self.odd(doing, key))
    }

    fn odd(&self, doing: &str, key: &str) -> io::Error {
        let problem =
            format!("the object store {} could not {doing} {key}: there is no such bucket or upload", self.url);
        io::Error::new(io::ErrorKind::HostUnreachable, problem)
    }

    /// What is made of an error. Nobody asks again for a while, but where it is the trouble of one object, or of writing alone.
    fn failed(&self, doing: Doing, key: &str, error: &object_store::Error) -> io::Error {
        // What is asked of it to see whether it answers is no object among others.
        let is_mark = key == MARK && !matches!(doing, Doing::Writing(_));
        let why = if doing.may_be_of_one(error) && !is_mark && self.answers() {
            if matches!(doing, Doing::Writing(_)) { Why::CredentialsRefused } else { Why::OneObject }
        } else {
            let why = why(error);
            let failure = self.failure(doing, key, error, why);
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some((Instant::now(), failure.clone()));
            return failure.into();
        };
        self.failure(doing, key, error, why).into()
    }

    fn failure(&self, doing: Doing, key: &str, error: &object_store::Error, why: Why) -> Failure {
        let what = match why {
            Why::CredentialsRefused => "refuses this server's credentials, or they do not let it",
            Why::NoBucket => "has no such bucket",
            Why::OneObject => "answers, but does not give this object, or not whole",
            Why::Silent => "does not answer",
        };
        let doing = doing.name();
        let problem = format!("the object store {} {what} (to {doing} {key}): {}", self.url, authority::told(error));
        tracing::warn!(problem);
        Failure { problem, why }
    }

    /// Whether it answers, and takes the credentials, when it is asked for an object of this server's own. Not asked by each who is refused something.
    fn answers(&self) -> bool {
        let answered = || self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered().is_some_and(|at| at.elapsed() < PAUSE) {
            return true;
        }
        let asked = self.runtime.block_on(async { self.reading.get(&self.path(MARK)).await?.bytes().await });
        let answers = asked.map_or_else(|error| is_absence(&error), |_| true);
        *answered() = answers.then(Instant::now);
        answers
    }
}

/// What is asked of the object store, in words.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Reading(&'static str),
    /// An answer whose head has come.
    Body,
    Writing(&'static str),
    Listing,
}

impl Doing {
    fn name(self) -> &'static str {
        match self {
            Self::Reading(name) | Self::Writing(name) => name,
            Self::Body => "get",
            Self::Listing => "list",
        }
    }

    /// Whether an error may say something of one object alone.
    fn may_be_of_one(self, error: &object_store::Error) -> bool {
        match self {
            Self::Reading(_) | Self::Writing(_) => is_refusal(error),
            Self::Body => is_refusal(error) || !is_silence(error),
            Self::Listing => false,
        }
    }
}

/// One of many answers: what was found, or an error that may be the object's own.
type Answered<T> = Result<T, (Doing, object_store::Error)>;

/// The same with its key; `None` where there is nothing. Its error is everybody's.
type Gathered<T> = Result<Option<(String, Answered<T>)>, (Doing, String, object_store::Error)>;

fn why(error: &object_store::Error) -> Why {
    match () {
        () if is_refusal(error) => Why::CredentialsRefused,
        () if is_absence(error) || is_bucket_gone(error) => Why::NoBucket,
        () => Why::Silent,
    }
}

/// Whether an answer says that there is no such object.
fn is_absence(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !is_refusal(error) && !is_bucket_gone(error)
}
