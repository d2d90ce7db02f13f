//! A file on its way from an upstream: stored, and read by everybody who waits for it, while it comes in.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use tempfile::NamedTempFile;
use tokio::sync::watch;

use super::check::Refusal;
use super::packed::{Unpacked, unpack};
use super::server::{Answer, Incoming, UpstreamServer};
use super::{Expected, Hops, Upstreams, Wanted};
use crate::blobs::{Algorithm, Hasher};
use crate::file_cache::{CacheKey, Note};
use crate::pool::Pool;

/// Bytes read at once for a client.
const READ_BLOCK: u64 = 256 << 10;

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Upstreams are asked.
    Asking,
    /// None has it.
    Absent,
    /// It went through too many servers.
    TooManyHops,
    /// So many bytes are there. The last one is held back until the whole was checked.
    Streaming {
        /// From the start.
        bytes: u64,
    },
    /// All are there, checked, and in the cache.
    Whole {
        /// Of the file.
        bytes: u64,
    },
    /// It did not come, or not whole, or is something else.
    Lost(Arc<str>),
}

/// A file on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    progress: watch::Receiver<Progress>,
    cargo: Arc<OnceLock<Cargo>>,
}

/// What is known once the first bytes are there.
#[derive(Debug)]
struct Cargo {
    file: Arc<File>,
    length: Option<u64>,
    headers: OnceLock<Vec<(String, String)>>,
}

/// Why a file that began to come is not there.
enum Loss {
    /// It did not come whole, is something else, or could not be stored.
    Broken(String),
    /// Its server has the module's file of another kind alone.
    OtherKind(String),
    /// It is taken down here.
    TakenDown(String),
}

impl From<String> for Loss {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

impl From<Refusal> for Loss {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::OtherFile(why) => Self::Broken(why),
            Refusal::OtherKind(why) => Self::OtherKind(why),
        }
    }
}

/// What moves a flight.
pub(crate) struct Pilot {
    progress: watch::Sender<Progress>,
    cargo: Arc<OnceLock<Cargo>>,
}

impl Flight {
    /// A flight, and what moves it.
    pub(crate) fn new() -> (Arc<Self>, Pilot) {
        let (sender, progress) = watch::channel(Progress::Asking);
        let cargo = Arc::<OnceLock<Cargo>>::default();
        (Arc::new(Self { progress, cargo: Arc::clone(&cargo) }), Pilot { progress: sender, cargo })
    }

    /// Waits until it is known whether there is a file.
    pub(crate) async fn departed(&self) -> Progress {
        self.wait(|progress| *progress != Progress::Asking).await
    }

    /// Waits for the end.
    pub(crate) async fn arrived(&self) -> Progress {
        self.wait(|progress| !matches!(progress, Progress::Asking | Progress::Streaming { .. })).await
    }

    async fn wait(&self, until: impl FnMut(&Progress) -> bool) -> Progress {
        let mut progress = self.progress.clone();
        let reached = progress.wait_for(until).await.map(|progress| progress.clone());
        reached.unwrap_or_else(|_| Progress::Lost("the work on it was interrupted".into()))
    }

    /// Why it is lost.
    pub(super) fn reason(&self) -> String {
        match &*self.progress.borrow() {
            Progress::Lost(why) => why.to_string(),
            _ => "the work on it was interrupted".to_owned(),
        }
    }

    /// Bytes of the whole file, where the upstream said so.
    pub(crate) fn length(&self) -> Option<u64> {
        self.cargo.get()?.length
    }

    /// The upstream's headers that are passed on.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        self.cargo.get().and_then(|cargo| cargo.headers.get()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The file as a body, as it comes in. One that is lost breaks the connection.
    pub(crate) fn body(self: &Arc<Self>, pool: &Pool) -> Body {
        let state = (Arc::clone(self), self.progress.clone(), pool.clone(), 0_u64);
        Body::from_stream(stream::try_unfold(state, async |(flight, mut progress, pool, at)| {
            let interrupted = || io::Error::other("the work on the file was interrupted");
            let moved = progress
                .wait_for(|progress| match progress {
                    Progress::Streaming { bytes } => *bytes > at,
                    Progress::Asking => false,
                    _ => true,
                })
                .await
                .map_err(|_| interrupted())?
                .clone();
            let end = match moved {
                Progress::Streaming { bytes } | Progress::Whole { bytes } => bytes,
                Progress::Lost(why) => return Err(io::Error::other(why.to_string())),
                _ => return Err(interrupted()),
            };
            let length = end.saturating_sub(at).min(READ_BLOCK);
            if length == 0 {
                return Ok(None);
            }
            let file = Arc::clone(&flight.cargo.get().ok_or_else(interrupted)?.file);
            let block = pool.run(move || read_block(&file, at, length)).await.map_err(io::Error::other)??;
            Ok(Some((block, (flight, progress, pool, at + length))))
        }))
    }
}

impl Pilot {
    /// The file that is being filled, and how long it will be.
    pub(crate) fn load(&self, file: File, length: u64) {
        let _ = self.cargo.set(Cargo { file: Arc::new(file), length: Some(length), headers: OnceLock::new() });
    }

    /// Headers that go with the file from now on. Those of the first call count.
    pub(crate) fn pass_on(&self, headers: Vec<(String, String)>) {
        if let Some(cargo) = self.cargo.get() {
            let _ = cargo.headers.set(headers);
        }
    }

    /// Whether anybody may have seen something of the file.
    fn has_shown(&self) -> bool {
        self.cargo.get().is_some()
    }

    /// How far it is.
    pub(crate) fn tell(&self, progress: Progress) {
        self.progress.send_replace(progress);
    }
}

fn read_block(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut block = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut block, at)?;
    Ok(block.into())
}

impl Upstreams {
    /// Brings a file. Where one server's is refused before anybody saw some of it, the others are asked.
    pub(super) async fn fly(&self, key: &CacheKey, wanted: &Wanted, hops: &Hops, pilot: Pilot) {
        let (mut tried, mut broken) = (Vec::new(), None);
        let end = loop {
            let (server, answer) = self.choose(key, wanted, hops, &tried).await;
            let incoming = match (answer, broken.take()) {
                // Not noted as absent: the tombstone may be lifted.
                (Answer::File(incoming), _) if self.says_taken_down(&incoming) => break Progress::Absent,
                (Answer::File(incoming), before) => {
                    broken = before;
                    incoming
                }
                (Answer::Failed(why), _) | (_, Some(why)) => break Progress::Lost(why.into()),
                (Answer::Absent, None) => {
                    self.note_absence(wanted.question());
                    break Progress::Absent;
                }
                (Answer::TooManyHops, None) => break Progress::TooManyHops,
            };
            let loss = match self.store(key, wanted, *incoming, &pilot).await {
                Ok(bytes) => break Progress::Whole { bytes },
                Err(loss) => loss,
            };
            let upstream = self.servers.get(server).map(|server| server.name());
            let (Loss::Broken(why) | Loss::OtherKind(why) | Loss::TakenDown(why)) = &loss;
            tracing::warn!(upstream, path = wanted.path, why, "a file of an upstream was not kept");
            tried.push(server);
            match loss {
                Loss::OtherKind(why) => {
                    self.note_other_kind(key, server);
                    if pilot.has_shown() {
                        break Progress::Lost(why.into());
                    }
                }
                Loss::Broken(why) => {
                    self.note_failure(key, server);
                    if pilot.has_shown() {
                        break Progress::Lost(why.into());
                    }
                    broken.get_or_insert(why);
                }
                Loss::TakenDown(why) => {
                    self.note_failure(key, server);
                    break Progress::Lost(why.into());
                }
            }
        };
        pilot.progress.send_replace(end);
    }

    /// Whether a server says itself that it sends what is taken down here. One that does not say it is believed to the last byte but one.
    fn says_taken_down(&self, incoming: &Incoming) -> bool {
        incoming.sha256.as_ref().is_some_and(|sha256| self.taken_down.has_sha256(sha256))
    }

    /// Asks all upstreams; the first that has the file brings it, and is told by its number. Absence is what all of them say. One that
    /// began to send the file and did not bring it a moment ago is asked when no other has it: else it would be the first again. Those who
    /// were `tried` already, or have the file of another kind alone, are not asked.
    async fn choose(&self, key: &CacheKey, wanted: &Wanted, hops: &Hops, tried: &[usize]) -> (usize, Answer) {
        let asked =
            (0..self.servers.len()).filter(|number| !tried.contains(number) && !self.has_other_kind(key, *number));
        let (failed, sound): (Vec<usize>, Vec<usize>) = asked.partition(|number| self.has_failed(key, *number));
        let (mut why, mut too_many) = (None, false);
        for group in [sound, failed] {
            let servers = group.into_iter().filter_map(|number| Some((number, Arc::clone(self.servers.get(number)?))));
            let ask = async |(number, server): (usize, Arc<UpstreamServer>)| {
                (number, server.ask(self.http.clone(), wanted.clone(), hops.clone()).await)
            };
            let mut asked: FuturesUnordered<_> = servers.map(ask).collect();
            while let Some((number, answer)) = asked.next().await {
                match answer {
                    Answer::File(incoming) => return (number, Answer::File(incoming)),
                    Answer::Absent => {}
                    Answer::TooManyHops => too_many = true,
                    Answer::Failed(said) => why = Some(said),
                }
            }
        }
        let answer = match why {
            Some(why) => Answer::Failed(why),
            None if too_many => Answer::TooManyHops,
            None => Answer::Absent,
        };
        (self.servers.len(), answer)
    }

    async fn store(&self, key: &CacheKey, wanted: &Wanted, incoming: Incoming, pilot: &Pilot) -> Result<u64, Loss> {
        let Incoming { is_packed, length, sha256: mut said, headers, start, mut rest } = incoming;
        let limit = self.cache.capacity() / 2;
        let too_large = || format!("it has more than {limit} bytes, half of the cache");
        if length.is_some_and(|length| length > limit) {
            return Err(too_large().into());
        }
        // Nobody can be shown anything of what has to be unpacked first, and is to be shown nothing of what may be refused for its kind: then another
        // upstream's can still be sent.
        let is_held = is_packed || wanted.expected.may_be_of_another_kind(&start, length);
        let cache = Arc::clone(&self.cache);
        let begun = self.pool.run(move || {
            let file = cache.begin()?;
            let reading = Arc::new(file.reopen()?);
            Ok::<_, io::Error>((Receiving { file, hasher: Hasher::new(Algorithm::Sha256), bytes: 0 }, reading))
        });
        let (mut receiving, mut reading) = begun.await.map_err(text)?.map_err(text)?;
        receiving = self.append(receiving, start, length).await?;
        let show = |bytes| {
            if !is_held {
                pilot.progress.send_replace(Progress::Streaming { bytes });
            }
        };
        if !is_held {
            let file = Arc::clone(&reading);
            let _ = pilot.cargo.set(Cargo { file, length, headers: headers.clone().into() });
        }
        show(receiving.shown());
        while let Some(chunk) = rest.next().await {
            receiving = self.append(receiving, chunk?, length).await?;
            if receiving.bytes > limit {
                return Err(too_large().into());
            }
            show(receiving.shown());
        }
        if let Some(length) = length.filter(|length| *length != receiving.bytes) {
            return Err(format!("expected {length} bytes, found {}", receiving.bytes).into());
        }
        if is_packed {
            said = None;
            (receiving, reading) = self.unpacked(receiving, limit).await?;
        }
        let bytes = receiving.bytes;
        let (cache, key, expected, relayed) =
            (Arc::clone(&self.cache), key.clone(), wanted.expected.clone(), headers.clone());
        let kept = self.making.run(move || receiving.keep(&cache, &key, (&expected, said.as_deref()), relayed));
        let sha256 = kept.await.map_err(text)?.map_err(text)??;
        if self.taken_down.has_sha256(&sha256) {
            // It stays in the cache, so that the next one who asks is told at once.
            return Err(Loss::TakenDown(format!("sha256:{sha256} is taken down here")));
        }
        if is_held {
            let _ = pilot.cargo.set(Cargo { file: reading, length: Some(bytes), headers: headers.into() });
        }
        Ok(bytes)
    }

    /// What lies in a cabinet that has come, and its file for those who read.
    async fn unpacked(&self, packed: Receiving, limit: u64) -> Result<(Receiving, Arc<File>), String> {
        let cache = Arc::clone(&self.cache);
        let job = move || {
            let mut cabinet = packed.file.reopen()?;
            let unpacked = match unpack(&mut cabinet, &cache, limit)? {
                Ok(Unpacked { file, hasher, bytes }) => Receiving { file, hasher, bytes },
                Err(why) => return Ok(Err(why)),
            };
            let reading = Arc::new(unpacked.file.reopen()?);
            Ok::<_, io::Error>(Ok((unpacked, reading)))
        };
        self.making.run(job).await.map_err(text)?.map_err(text)?
    }

    async fn append(&self, mut receiving: Receiving, chunk: Bytes, length: Option<u64>) -> Result<Receiving, String> {
        receiving.bytes = receiving.bytes.saturating_add(chunk.len() as u64);
        if length.is_some_and(|length| receiving.bytes > length) {
            return Err("more came than was announced".to_owned());
        }
        let written = self.pool.run(move || {
            receiving.file.write_all(&chunk)?;
            receiving.hasher.update(&chunk);
            Ok::<_, io::Error>(receiving)
        });
        written.await.map_err(text)?.map_err(text)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

struct Receiving {
    file: NamedTempFile,
    hasher: Hasher,
    bytes: u64,
}

impl Receiving {
    /// What clients may have: all but the last byte.
    fn shown(&self) -> u64 {
        self.bytes.saturating_sub(1)
    }

    /// Checks and keeps it; its SHA-256 in hex, or why it is refused. What is kept is read on through handles that were opened before.
    fn keep(
        self,
        cache: &crate::file_cache::FileCache,
        key: &CacheKey,
        (expected, said): (&Expected, Option<&str>),
        headers: Vec<(String, String)>,
    ) -> io::Result<Result<String, Refusal>> {
        if let Some(why) = expected.refuses(self.file.as_file())? {
            return Ok(Err(why));
        }
        let sha256 = self.hasher.finish().hex().to_owned();
        if let Some(said) = said.filter(|said| *said != sha256) {
            let why = format!("expected sha256:{said}, as its server says, found sha256:{sha256}");
            return Ok(Err(Refusal::OtherFile(why)));
        }
        cache.keep(key, self.file, &Note { sha256: sha256.clone(), headers })?;
        Ok(Ok(sha256))
    }
}
