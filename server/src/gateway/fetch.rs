//! A sealed file is brought here: page by page checked, from one source after the other, once for all who wait for it.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use symseal_bundle::pages::{self, Hash};
use symseal_bundle::{Digest, page_hashes};
use tokio::sync::{AcquireError, SemaphorePermit};

use super::catalogue::Offer;
use super::checked::{CheckedFile, Mismatch};
use super::fetches::Fetches;
use super::home::{Home, Incoming, Trouble};
use super::http_upstream::HttpUpstream;
use super::refusals::{Code, Refusal};
use super::{Gate, lock, units};
use crate::endpoints::debuginfod::IMASIGNATURE;
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::seals::Verdict;
use crate::upstream::{Flight, Pilot, Progress};

/// Fetched at once with the header of a file of page hashes: in most bundles the whole list of files is in it.
const DIRECTORY_BYTES: u64 = 16 << 10;
/// The longest list of files that is fetched.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;
/// The most hashes of one file, in bytes: of a file of 64 GiB.
const MAX_HASHES_BYTES: u64 = 32 << 20;
/// How long a source has for its first page, and after that for each next [`FLOOR`] bytes. A server that sends a byte now and then must not keep us for
/// ever.
const PACE_TIME: Duration = Duration::from_secs(60);
/// Bytes in that time.
const FLOOR: u64 = 1 << 20;
/// How long an answer waits for the whole file before it begins, once its first page is there: so a wrong page of most files
/// is a refusal with its reason, and not a body that breaks off.
const WHOLE_TIME: Duration = Duration::from_millis(1500);

/// A file on its way.
pub(super) struct FileFlight {
    flight: Arc<Flight>,
    /// Why it did not arrive.
    lost: OnceLock<Lost>,
}

/// Why a file did not arrive.
#[derive(Debug, Clone)]
pub(super) enum Lost {
    /// What came, or did not come, is known.
    Refused(Refusal),
    /// It cannot be told at this moment.
    Down(String),
}

/// A sealed file.
pub(super) enum Brought {
    /// All of it, checked, in the cache.
    Whole(CachedFile),
    /// Its first pages are here and checked.
    Flying(Arc<Flight>),
}

/// Where a file may come from.
enum Source {
    Home(Home),
    /// A server, by a path below its base.
    Server(Arc<HttpUpstream>, String),
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::Home(home) => home.name(),
            Self::Server(server, _) => server.name(),
        }
    }
}

impl Gate {
    /// Brings a file that a sealed bundle covers and a client `asked` for; `path`: how other servers are asked for it.
    pub(super) async fn bring(
        self: &Arc<Self>,
        offer: &Offer,
        (asked, path): (&str, Option<&str>),
    ) -> Result<Brought, Lost> {
        if let Some(found) = self.cached(&offer.file.sha256).await {
            return Ok(Brought::Whole(found));
        }
        let flying = self.join(offer, (asked, path));
        let end = match flying.flight.departed().await {
            Progress::Streaming { .. } => match tokio::time::timeout(WHOLE_TIME, flying.flight.arrived()).await {
                Ok(end) => end,
                Err(_) => return Ok(Brought::Flying(Arc::clone(&flying.flight))),
            },
            end => end,
        };
        self.landed(&flying, &offer.file.sha256, end).await
    }

    /// The same, and waits for the whole.
    pub(super) async fn bring_whole(
        self: &Arc<Self>,
        offer: &Offer,
        (asked, path): (&str, Option<&str>),
    ) -> Result<CachedFile, Lost> {
        if let Some(found) = self.cached(&offer.file.sha256).await {
            return Ok(found);
        }
        let flying = self.join(offer, (asked, path));
        let end = flying.flight.arrived().await;
        match self.landed(&flying, &offer.file.sha256, end).await? {
            Brought::Whole(found) => Ok(found),
            Brought::Flying(_) => Err(Lost::Down("the work on the file was interrupted".to_owned())),
        }
    }

    async fn landed(&self, flying: &FileFlight, sha256: &Digest, end: Progress) -> Result<Brought, Lost> {
        if matches!(end, Progress::Whole { .. }) {
            let found = self.cached(sha256).await;
            return found
                .map(Brought::Whole)
                .ok_or_else(|| Lost::Down("the cache has no room for the file".to_owned()));
        }
        let interrupted = || Lost::Down("the work on the file was interrupted".to_owned());
        Err(flying.lost.get().cloned().unwrap_or_else(interrupted))
    }

    /// The file out of the cache. One that lay there when the gateway started is read through once before it counts.
    async fn cached(&self, sha256: &Digest) -> Option<CachedFile> {
        let key = key(sha256);
        if !self.cache.has(&key) {
            return None;
        }
        let (cache, wanted) = (Arc::clone(&self.cache), *sha256);
        let is_compared = lock(&self.compared).contains(sha256);
        let found = self.pool.run(move || {
            let found = cache.find(&key)?;
            if is_compared {
                return Some(found);
            }
            let reader = io::Read::take(&found.blob.file, found.size);
            let read = Digest::of_reader(reader).ok().is_some_and(|(digest, _)| digest == wanted);
            if !read {
                tracing::warn!(sha256 = %wanted, "a file of the cache has other bytes: it is fetched again");
                cache.forget(&key);
            }
            read.then_some(found)
        });
        let found = found.await.ok().flatten()?;
        lock(&self.compared).insert(*sha256);
        Some(found)
    }

    fn join(self: &Arc<Self>, offer: &Offer, (asked, path): (&str, Option<&str>)) -> Arc<FileFlight> {
        let mut flights = lock(&self.flights);
        if let Some(flying) = flights.get(&offer.file.sha256) {
            return Arc::clone(flying);
        }
        let (flight, pilot) = Flight::new();
        let flying = Arc::new(FileFlight { flight, lost: OnceLock::new() });
        flights.insert(offer.file.sha256, Arc::clone(&flying));
        let (this, offer, told) = (Arc::clone(self), offer.clone(), Arc::clone(&flying));
        let (asked, path) = (asked.to_owned(), path.map(str::to_owned));
        tokio::spawn(async move {
            let _landing = Landing { gate: &this, file: offer.file.sha256 };
            let end = match this.fly(&offer, (&asked, path.as_deref()), &pilot).await {
                Ok(()) => Progress::Whole { bytes: offer.file.size },
                Err(lost) => {
                    let why = match &lost {
                        Lost::Refused(refusal) => refusal.reason.clone(),
                        Lost::Down(why) => why.clone(),
                    };
                    let _ = told.lost.set(lost);
                    Progress::Lost(why.into())
                }
            };
            pilot.tell(end);
        });
        flying
    }

    /// Room on the disk for a file on its way: together they have half of what the cache may fill.
    async fn room_for(&self, bytes: u64) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.room.acquire_many(u32::try_from(units(bytes)).unwrap_or(u32::MAX)).await
    }

    /// The place among those that a source's host has.
    async fn place_of<'a>(&'a self, source: &'a Source) -> Result<SemaphorePermit<'a>, Trouble> {
        let fetches = match source {
            Source::Home(Home::Layout(_)) => &self.local_fetches,
            _ => self.fetches_of(source).next().unwrap_or(&self.fetches),
        };
        // Nobody waits longer than for an upstream that does not answer.
        fetches.place(self.patience.head).await.map_err(Trouble::Down)
    }

    async fn fly(
        self: &Arc<Self>,
        offer: &Offer,
        (asked, path): (&str, Option<&str>),
        pilot: &Pilot,
    ) -> Result<(), Lost> {
        let down = |error: &dyn std::fmt::Display| Lost::Down(error.to_string());
        let limit = self.cache.capacity() / 2;
        if offer.file.size > limit {
            let reason = format!(
                "it has {} bytes, more than half of the cache ({limit} bytes): give --cache-bytes",
                offer.file.size
            );
            return Err(Lost::Refused(Refusal::of(offer, Code::TooLarge, reason)));
        }
        let room = tokio::time::timeout(self.patience.head, self.room_for(offer.file.size));
        let busy = |_| Lost::Down("files that are on their way have all the room in the cache".to_owned());
        let _room = room.await.map_err(busy)?.map_err(|error| down(&error))?;
        let leaves = self.leaves(offer).await;
        let has_pages = leaves.is_some();
        let (cache, entry) = (Arc::clone(&self.cache), offer.file.clone());
        let begun = self.pool.run(move || cache.begin().map(|file| CheckedFile::new(entry, leaves, file))).await;
        let mut file = begun.map_err(|error| down(&error))?.map_err(|error| down(&error))?;
        let reader = file.reader().map_err(|error| down(&error))?;
        pilot.load(reader, offer.file.size);
        let (mut wrong, mut absent, mut unavailable): (Option<Refusal>, Vec<String>, Option<String>) =
            (None, Vec::new(), None);
        let mut with_it = Vec::new();
        for source in self.sources(offer, path) {
            let name = source.name();
            let begins = file.written() == 0;
            let place = self.place_of(&source).await;
            let opened = match &place {
                Ok(_) => self.open_source(&source, offer, file.written()).await,
                Err(busy) => Err(busy.clone()),
            };
            let came;
            (file, came) = match opened {
                Ok((incoming, signature)) => {
                    // Of whoever sent the file from its start.
                    if begins {
                        let header = |signature| (IMASIGNATURE.as_str().to_owned(), signature);
                        with_it = signature.map(header).into_iter().collect();
                    }
                    let source = (incoming, &offer.file.sha256, with_it.as_slice());
                    self.receive(file, source, pilot).await.map_err(|error| down(&error))?
                }
                Err(trouble) => (file, Err(Came::Trouble(trouble))),
            };
            let came = match came {
                Ok(()) => match file.finish() {
                    Ok(whole) => {
                        self.fetches_of(&source).for_each(Fetches::succeeded);
                        drop(place);
                        // It may have taken long, and whoever waits has not had all of it.
                        self.holds_still(offer).await?;
                        return self.keep(&offer.file.sha256, whole, with_it).await.map_err(|error| down(&error));
                    }
                    // With page hashes only an index that contradicts itself leads here.
                    Err(mismatch) if has_pages => {
                        return Err(Lost::Refused(Refusal::wrong_bytes(offer, &name, mismatch)));
                    }
                    Err(mismatch) => {
                        let (cache, entry) = (Arc::clone(&self.cache), offer.file.clone());
                        let begun =
                            self.pool.run(move || cache.begin().map(|file| CheckedFile::new(entry, None, file))).await;
                        file = begun.map_err(|error| down(&error))?.map_err(|error| down(&error))?;
                        Came::Mismatch(mismatch)
                    }
                },
                Err(came) => {
                    file.break_off().map_err(|error| down(&error))?;
                    came
                }
            };
            let came = match (came, &source) {
                // A file has an end of its own.
                (Came::Ended, Source::Home(Home::Layout(_))) => {
                    Came::Trouble(Trouble::Wrong("it ends before the file's end".to_owned()))
                }
                (came, _) => came,
            };
            match came {
                Came::Mismatch(mismatch) => {
                    let refusal = Refusal::wrong_bytes(offer, &name, mismatch);
                    self.note_wrong(&mut wrong, refusal.asked(asked));
                }
                Came::Trouble(Trouble::Wrong(why)) => {
                    let expected = format!("{} of {} bytes", offer.file.sha256, offer.file.size);
                    let refusal = Refusal::wrong_bytes(offer, &name, Mismatch { expected, found: why });
                    self.note_wrong(&mut wrong, refusal.asked(asked));
                }
                // Whatever said how long its answer is broke off; of what ends with its connection that cannot be told from an end. All of it was right.
                Came::Ended => {
                    let why = "it ended before the file's end";
                    self.fetches_of(&source).for_each(|fetches| fetches.failed(why));
                    unavailable = Some(format!("{name}: {why}"));
                }
                Came::Trouble(Trouble::Absent(why)) => absent.push(format!("{name}: {why}")),
                Came::Trouble(Trouble::Down(why)) => {
                    self.fetches_of(&source).for_each(|fetches| fetches.failed(&why));
                    unavailable = Some(format!("{name}: {why}"));
                }
            }
        }
        match (unavailable, wrong) {
            // Another time it may come from there.
            (Some(why), _) => Err(Lost::Down(why)),
            (None, Some(refusal)) => Err(Lost::Refused(refusal)),
            (None, None) => {
                let reason = format!("a sealed bundle names the file, and no upstream has it: {}", absent.join("; "));
                Err(Lost::Refused(Refusal::of(offer, Code::NotThere, reason)))
            }
        }
    }

    /// Whether a bundle that was sealed when its file was asked for is so now.
    async fn holds_still(self: &Arc<Self>, offer: &Offer) -> Result<(), Lost> {
        match self.verdict_now(&offer.bundle).await.map_err(Lost::Down)? {
            Verdict::Sealed(_) => Ok(()),
            verdict => {
                let revoked = || Refusal::of(offer, Code::SealRefused, "its seal does not hold any more".to_owned());
                Err(Lost::Refused(Refusal::of_verdict(&offer.bundle, &verdict).unwrap_or_else(revoked)))
            }
        }
    }

    /// Notes wrong bytes when they come: a client that has a part of the file already is told nothing more.
    fn note_wrong(&self, wrong: &mut Option<Refusal>, refusal: Refusal) {
        self.refusals.note(refusal.clone());
        wrong.get_or_insert(refusal.noted());
    }

    /// Where a file may come from: where its bundle is, then every server that may have it.
    fn sources(&self, offer: &Offer, path: Option<&str>) -> Vec<Source> {
        let homes = offer.bundle.homes().into_iter().map(Source::Home);
        let servers = path
            .into_iter()
            .flat_map(|path| self.servers.iter().map(|server| Source::Server(Arc::clone(server), path.to_owned())));
        homes.chain(servers).collect()
    }

    /// What the status page says of a source's upstream. A bundle may be in a repository of none.
    fn fetches_of<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a Fetches> {
        let servers = self.servers.iter().filter(move |server| match source {
            Source::Server(it, _) => Arc::ptr_eq(it, server),
            Source::Home(Home::Registry { name, .. }) => server.has_repository(name),
            Source::Home(Home::Layout(_)) => false,
        });
        let registries = self.registries.iter().filter(move |registry| match source {
            Source::Home(Home::Registry { name, .. }) => registry.has_repository(name),
            Source::Home(Home::Layout(_)) | Source::Server(..) => false,
        });
        servers.map(|server| &server.fetches).chain(registries.map(|registry| &registry.fetches))
    }

    async fn open_source(
        &self,
        source: &Source,
        offer: &Offer,
        at: u64,
    ) -> Result<(Incoming, Option<String>), Trouble> {
        match source {
            Source::Home(home) => Ok((home.stream(&self.pool, &offer.file.sha256, at).await?, None)),
            Source::Server(server, path) => server.stream(path, (at, offer.file.size)).await,
        }
    }

    /// Takes what one source sends, as far as it is right.
    async fn receive(
        &self,
        mut file: CheckedFile,
        (mut incoming, sha256, headers): (Incoming, &Digest, &[(String, String)]),
        pilot: &Pilot,
    ) -> io::Result<(CheckedFile, Result<(), Came>)> {
        let mut pace = Pace::new(file.written());
        while !file.is_full() {
            let piece = match tokio::time::timeout_at(pace.until, incoming.next()).await {
                Err(_) if self.has_waiters(sha256) && pace.goes_on(file.written()) => continue,
                Err(_) => {
                    let why = if self.has_waiters(sha256) {
                        format!("it sends less than {FLOOR} bytes in {} s", PACE_TIME.as_secs())
                    } else {
                        "nobody waits for it any more, and it is slow".to_owned()
                    };
                    return Ok((file, Err(Came::Trouble(Trouble::Down(why)))));
                }
                Ok(None) => {
                    return Ok((file, Err(Came::Ended)));
                }
                Ok(Some(Err(trouble))) => return Ok((file, Err(Came::Trouble(trouble)))),
                Ok(Some(Ok(piece))) => piece,
            };
            let before = file.written();
            let job = move || {
                let taken = file.take(&piece);
                (file, taken)
            };
            let (returned, taken) = self.pool.run(job).await.map_err(io::Error::other)?;
            file = returned;
            if let Err(mismatch) = taken? {
                return Ok((file, Err(Came::Mismatch(mismatch))));
            }
            if file.written() > before && file.shown() > 0 {
                pilot.pass_on(headers.to_vec());
                pilot.tell(Progress::Streaming { bytes: file.shown() });
            }
        }
        Ok((file, Ok(())))
    }

    /// Whether anybody waits for a file on its way: more have it than the list of flights and the work itself, or a body reads it.
    fn has_waiters(&self, sha256: &Digest) -> bool {
        let flights = lock(&self.flights);
        let counted = |flying: &Arc<FileFlight>| Arc::strong_count(flying) > 2 || Arc::strong_count(&flying.flight) > 1;
        flights.get(sha256).is_some_and(counted)
    }

    async fn keep(
        &self,
        sha256: &Digest,
        whole: tempfile::NamedTempFile,
        headers: Vec<(String, String)>,
    ) -> io::Result<()> {
        let (cache, key, note) = (Arc::clone(&self.cache), key(sha256), Note { sha256: sha256.hex(), headers });
        self.making.run(move || cache.keep(&key, whole, &note)).await.map_err(io::Error::other)??;
        lock(&self.compared).insert(*sha256);
        Ok(())
    }

    /// The hashes of a file's pages, whose root is the sealed index's; none where nobody has them.
    async fn leaves(&self, offer: &Offer) -> Option<Vec<Hash>> {
        for home in offer.bundle.homes() {
            match self.leaves_of(&home, offer).await {
                Ok(leaves) => return Some(leaves),
                Err(why) => tracing::info!(home = home.name(), why, "the page hashes of a file cannot be had there"),
            }
        }
        None
    }

    async fn leaves_of(&self, home: &Home, offer: &Offer) -> Result<Vec<Hash>, String> {
        let list = &offer.shard().ok_or("no shard of its bundle holds the module")?.page_hashes;
        let text = |trouble: Trouble| trouble.text().to_owned();
        let first = 0..list.size.min(DIRECTORY_BYTES);
        let mut directory = home.part(&self.pool, &list.sha256, first).await.map_err(text)?;
        let end = page_hashes::directory_end(&directory).map_err(|error| error.to_string())?;
        if end > list.size.min(MAX_DIRECTORY_BYTES) {
            return Err(format!("{}: expected a list of files within it, found one of {end} bytes", list.path));
        }
        let there = directory.len() as u64;
        if end > there {
            directory.extend(home.part(&self.pool, &list.sha256, there..end).await.map_err(text)?);
        }
        directory.truncate(usize::try_from(end).map_err(|error| error.to_string())?);
        let file = &offer.file;
        let range = page_hashes::locate(&directory, &file.sha256, file.page_size);
        let is_sound = |range: &std::ops::Range<u64>| {
            range.end <= list.size && range.end.saturating_sub(range.start) <= MAX_HASHES_BYTES
        };
        let range = range.filter(is_sound).ok_or_else(|| format!("{}: no hashes of {}", list.path, file.path))?;
        let bytes = home.part(&self.pool, &list.sha256, range).await.map_err(text)?;
        let hash = move || {
            let leaves: Vec<Hash> = bytes.as_chunks::<32>().0.iter().copied().map(Hash).collect();
            (pages::root(&leaves), leaves)
        };
        let (root, leaves) = self.pool.run(hash).await.map_err(|error| error.to_string())?;
        if root != file.page_root || leaves.len() as u64 != pages::page_count(file.size, file.page_size) {
            return Err(format!("{}: the hashes of {} have another root than the index says", list.path, file.path));
        }
        Ok(leaves)
    }
}

/// How fast a source is.
struct Pace {
    until: tokio::time::Instant,
    /// Bytes that were there when this time began, where it is not the first.
    since: Option<u64>,
    began: u64,
}

impl Pace {
    fn new(began: u64) -> Self {
        Self { until: tokio::time::Instant::now() + PACE_TIME, since: None, began }
    }

    /// Whether it was fast enough in the time that ends; the next one begins.
    fn goes_on(&mut self, written: u64) -> bool {
        let is_enough = match self.since {
            None => written > self.began,
            Some(since) => written.saturating_sub(since) >= FLOOR,
        };
        self.since = Some(written);
        self.until += PACE_TIME;
        is_enough
    }
}

/// How a source failed.
enum Came {
    Mismatch(Mismatch),
    Trouble(Trouble),
    /// It ended before the file did, and nothing of it was wrong.
    Ended,
}

fn key(sha256: &Digest) -> CacheKey {
    CacheKey::of(&format!("sealed:{sha256}"))
}

struct Landing<'g> {
    gate: &'g Gate,
    file: Digest,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.gate.flights).remove(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_has_a_minute_for_its_first_page_and_then_a_mebibyte_a_minute() {
        let mut pace = Pace::new(0);
        let first = pace.until;
        assert!(pace.goes_on(64 << 10) && pace.until == first + PACE_TIME);
        assert!(pace.goes_on((64 << 10) + FLOOR));
        assert!(!pace.goes_on((64 << 10) + 2 * FLOOR - 1));
        assert!(!Pace::new(7).goes_on(7));
    }
}
