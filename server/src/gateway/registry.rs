//! An upstream that is a repository of a registry: its bundles are heard of before anybody asks for them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use symseal_bundle::sources::TAG_SUFFIX;
use symseal_bundle::{Digest, oci};
use symseal_registry::{Reference, Repository, Target, Tls};
use symseal_resolver::without_secrets;

use super::clients::Place;
use super::fetches::Fetches;
use super::hear::Unheard;
use super::home::{Home, Trouble};
use super::ongoing::Ongoing;
use super::{Gate, lock};

/// Tags of one repository that are looked at.
const TAGS: usize = 2000;
/// Tags and bundles that are asked for at once.
const AT_ONCE: usize = 4;
/// What does not answer in one reading before the registry counts as dead.
const DOWNS: usize = 3;
/// What cannot be told of is remembered so often; beyond that the memory starts anew.
const PASSED_OVER: usize = 10_000;
/// How often what a tag names is tried before the others are believed to be all.
const TRIES: u32 = 3;
/// After that it is tried again so much later.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// A list that was read so long ago is read again before something is said not to be there; the longer reading it took, the later.
const FRESH: Duration = Duration::from_secs(2);
/// How many times as long as reading took a list is left alone.
const REST: u32 = 8;
/// A registry that did not answer is left alone so long.
const PAUSE: Duration = Duration::from_secs(5);

/// The repository.
pub(super) struct RegistryUpstream {
    place: Place,
    /// All tags, where none was named.
    is_whole: bool,
    reading: Arc<Ongoing<()>>,
    state: Mutex<State>,
    pub(super) fetches: Fetches,
}

#[derive(Default)]
struct State {
    /// When the list was read last, and how long that took.
    read: Option<(Instant, Duration)>,
    /// Why it cannot be asked, since when.
    down: Option<(Instant, String)>,
    /// What of it cannot be had.
    problem: Option<String>,
    /// Why there is more of it than was looked at.
    cut: Option<String>,
    passed_over: HashMap<Digest, PassedOver>,
    /// How often in a row it could not be told what a tag names. At most [`TAGS`].
    untold: HashMap<String, u32>,
    bundles: usize,
}

/// Something that a tag names and that was not heard of.
struct PassedOver {
    tries: u32,
    /// When it is tried again; never, where its own bytes are no bundle.
    again: Option<Instant>,
}

/// How an upstream stands, for the status page.
#[derive(Debug, Clone, Serialize)]
pub(super) struct UpstreamStanding {
    /// The URL, without what is secret in it.
    pub(super) url: String,
    /// What kind of server it is.
    pub(super) kind: &'static str,
    /// Why it, or something of it, cannot be asked at this moment.
    pub(super) problem: Option<String>,
    /// Bundles that it offered.
    pub(super) bundles: usize,
}

/// What a reading came to.
#[derive(Default)]
struct Read {
    bundles: usize,
    problem: Option<String>,
    /// Why there is more than was looked at.
    cut: Option<String>,
    /// Whether it may lack something that is there.
    lacks: bool,
    /// How often nobody answered.
    downs: usize,
}

impl Read {
    /// Something did not answer: what is behind it is read all the same, unless nothing answers.
    fn goes_on(&mut self, why: String) -> Result<(), Trouble> {
        self.downs += 1;
        self.lacks = true;
        self.problem = Some(why.clone());
        if self.downs < DOWNS { Ok(()) } else { Err(Trouble::Down(why)) }
    }
}

impl RegistryUpstream {
    /// `host[:port]/repository[:tag|@digest]`; without tag and digest, all tags.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Arc<Self>, String> {
        let wrong = |problem: &str| {
            format!("{}: expected oci://HOST[:PORT]/REPOSITORY[:TAG|@DIGEST]", without_secrets(problem))
        };
        let reference = Reference::parse(text).map_err(|error| wrong(&error.problem))?;
        let last = text.rsplit('/').next().unwrap_or_default();
        let is_whole = !last.contains([':', '@']);
        let place = Place { reference, tls: Tls::ByPlace, token: None };
        let (reading, state, fetches) = (Arc::default(), Mutex::default(), Fetches::default());
        Ok(Arc::new(Self { place, is_whole, reading, state, fetches }))
    }

    /// What to call it.
    fn name(&self) -> String {
        if self.is_whole { format!("oci://{}", self.place.name()) } else { format!("oci://{}", self.place.reference) }
    }

    /// Whether a repository, `host[:port]/repository`, is this one.
    pub(super) fn has_repository(&self, name: &str) -> bool {
        *self.place.name() == *name
    }

    /// For the status page.
    pub(super) fn standing(&self) -> UpstreamStanding {
        let state = lock(&self.state);
        let down = state.down.as_ref().map(|(_, problem)| problem.clone());
        UpstreamStanding {
            url: self.name(),
            kind: "registry",
            problem: self.fetches.beside(down.or_else(|| state.problem.clone())),
            bundles: state.bundles,
        }
    }

    /// Reads the list of bundles, unless that was done just now, and waits for it as long as a request can.
    ///
    /// # Errors
    /// Why it cannot be told what the registry has.
    pub(super) async fn refresh(self: &Arc<Self>, gate: &Arc<Gate>) -> Result<(), String> {
        {
            let state = lock(&self.state);
            if let Some((at, problem)) = &state.down
                && at.elapsed() < PAUSE
            {
                return Err(problem.clone());
            }
            if let Some((at, took)) = state.read
                && state.down.is_none()
                && at.elapsed() < FRESH.max(took.saturating_mul(REST))
            {
                return state.cut.clone().map_or(Ok(()), Err);
            }
        }
        let (this, gate) = (Arc::clone(self), Arc::clone(gate));
        let patience = gate.patience.head;
        self.reading.run(((), patience), || self.name(), async move { this.read_now(&gate).await }).await
    }

    async fn read_now(&self, gate: &Gate) -> Result<(), String> {
        let began = Instant::now();
        let read = self.read(gate).await;
        let mut state = lock(&self.state);
        match read {
            Ok(read) => {
                state.bundles = read.bundles;
                state.problem = read.problem.clone().or(read.cut.clone());
                state.cut = read.cut;
                // Where something is missing this list is not the last word, for a while.
                let why = read.problem.filter(|_| read.lacks);
                state.down = why.clone().map(|why| (Instant::now(), why));
                state.read = Some((Instant::now(), began.elapsed()));
                why.or(state.cut.clone()).map_or(Ok(()), Err)
            }
            Err(trouble) => {
                let problem = format!("{}: {}", self.name(), trouble.text());
                tracing::warn!(registry = %self.place.reference, problem, "a registry cannot be asked");
                state.down = Some((Instant::now(), problem.clone()));
                drop(state);
                // Its credentials may have been renewed.
                gate.clients.forget(&self.place);
                Err(problem)
            }
        }
    }

    /// The repository, as a place where files are.
    ///
    /// # Errors
    /// [`Trouble`] where its credentials cannot be read.
    pub(super) async fn home(&self, gate: &Gate) -> Result<Home, Trouble> {
        let repository = gate.clients.of(&gate.pool, &self.place).await?;
        Ok(Home::Registry { name: self.place.name(), repository })
    }

    async fn read(&self, gate: &Gate) -> Result<Read, Trouble> {
        let repository = gate.clients.of(&gate.pool, &self.place).await?;
        let mut read = Read::default();
        for digest in self.listed(&repository, &mut read).await? {
            if self.is_passed_over(&digest) {
                continue;
            }
            match gate.hear((self.place.name(), Arc::clone(&repository)), &digest).await {
                Ok(()) => {
                    lock(&self.state).passed_over.remove(&digest);
                    read.bundles += 1;
                }
                Err(Unheard::Now(Trouble::Down(why))) => read.goes_on(format!("{}: {why}", self.name()))?,
                Err(unheard) => self.pass_over(digest, unheard, &mut read),
            }
        }
        Ok(read)
    }

    /// The digests of the image indexes that tags name, each once.
    async fn listed(&self, repository: &Repository, read: &mut Read) -> Result<Vec<Digest>, Trouble> {
        let tags = match self.place.reference.target() {
            Target::Digest(digest) => return Ok(vec![*digest]),
            Target::Tag(tag) if !self.is_whole => vec![tag.clone()],
            Target::Tag(_) => repository.tags().await?,
        };
        // Tags for referrers name no bundles, nor do those for sources.
        let may_name_one = |tag: &String| !self.is_whole || !(tag.starts_with("sha256-") || tag.ends_with(TAG_SUFFIX));
        let mut tags: Vec<String> = tags.into_iter().filter(may_name_one).collect();
        if tags.len() > TAGS {
            let problem = format!("{}: it has more than {TAGS} tags; the others are not looked at", self.name());
            tracing::warn!(problem, "a repository is too large");
            read.cut = Some(problem);
            tags.truncate(TAGS);
        }
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let is_one = !self.is_whole;
        // Futures of one named function, as they must be `Send` for every caller.
        lock(&self.state).untold.retain(|tag, _| tags.contains(tag));
        let asked: Vec<_> = tags.iter().map(|tag| resolve(repository, tag)).collect();
        let mut answers = stream::iter(asked).buffered(AT_ONCE);
        while let Some((tag, answer)) = answers.next().await {
            match answer {
                Ok(digest) => {
                    lock(&self.state).untold.remove(tag);
                    found.extend(digest.filter(|digest| seen.insert(*digest)));
                }
                // The one that whoever runs the gateway named.
                Err(trouble) if is_one => return Err(trouble),
                Err(Trouble::Down(why)) => read.goes_on(format!("{}: {why}", self.name()))?,
                Err(trouble) => self.tag_is_untold(tag, &trouble, read),
            }
        }
        Ok(found)
    }

    /// A tag that is listed and then not there, or answered with what is no manifest: that may pass, so it is no absence at first.
    fn tag_is_untold(&self, tag: &str, trouble: &Trouble, read: &mut Read) {
        let problem = format!("{}: tag {tag}: {}", self.name(), trouble.text());
        tracing::info!(problem, "what a tag names cannot be told");
        read.problem = Some(problem);
        let mut state = lock(&self.state);
        let tries = state.untold.entry(tag.to_owned()).or_default();
        *tries = tries.saturating_add(1);
        read.lacks |= *tries < TRIES;
    }

    fn is_passed_over(&self, digest: &Digest) -> bool {
        let state = lock(&self.state);
        let known = state.passed_over.get(digest);
        known.is_some_and(|known| known.tries >= TRIES && known.again.is_none_or(|again| Instant::now() < again))
    }

    /// What is no bundle is passed over for good; what cannot be had is tried again, soon for a few times, and then now and then.
    fn pass_over(&self, digest: Digest, unheard: Unheard, read: &mut Read) {
        let text = unheard.text();
        tracing::info!(%digest, why = text, "what a tag names is no bundle that can be used");
        let mut state = lock(&self.state);
        if state.passed_over.len() >= PASSED_OVER {
            state.passed_over.clear();
        }
        let known = state.passed_over.entry(digest).or_insert(PassedOver { tries: 0, again: None });
        match unheard {
            Unheard::Never(_) => known.tries = TRIES,
            Unheard::Now(_) => {
                known.tries = known.tries.saturating_add(1);
                known.again = Some(Instant::now() + TRY_AGAIN);
                read.lacks |= known.tries < TRIES;
                read.problem = Some(format!("{}: bundle {digest}: {text}", self.name()));
            }
        }
    }
}

/// The image index that a tag names; `None` where it names something else.
async fn resolve<'t>(repository: &Repository, tag: &'t str) -> (&'t str, Result<Option<Digest>, Trouble>) {
    let found = match repository.resolve_tag(tag).await {
        Ok(Some(found)) => Ok((found.media_type == oci::IMAGE_INDEX).then_some(found.digest)),
        // It was listed, or named by hand: a copy of a registry may lag.
        Ok(None) => Err(Trouble::Absent("there is no such manifest".to_owned())),
        Err(error) => Err(error.into()),
    };
    (tag, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_listed_and_not_there_is_no_absence_at_first() {
        let upstream = RegistryUpstream::parse("registry.example/team/app").unwrap();
        for tries in 1..=TRIES {
            let mut read = Read::default();
            upstream.tag_is_untold("1.0", &Trouble::Absent("404".to_owned()), &mut read);
            assert_eq!(read.lacks, tries < TRIES);
            assert!(read.problem.is_some_and(|problem| problem.contains("tag 1.0: 404")));
        }
    }

    #[test]
    fn what_is_no_bundle_is_passed_over_for_good_and_what_cannot_be_had_is_tried_again() {
        let upstream = RegistryUpstream::parse("registry.example/team/app").unwrap();
        let (never, later) = (Digest::of(b"never"), Digest::of(b"later"));
        let mut read = Read::default();
        upstream.pass_over(never, Unheard::Never("no bundle".to_owned()), &mut read);
        assert!(upstream.is_passed_over(&never) && !read.lacks && read.problem.is_none());
        for tries in 1..=TRIES {
            assert!(!upstream.is_passed_over(&later));
            let mut read = Read::default();
            upstream.pass_over(later, Unheard::Now(Trouble::Absent("404".to_owned())), &mut read);
            // At first nobody is told that a file is not there: a copy of a registry may lag.
            assert_eq!(read.lacks, tries < TRIES);
            assert!(read.problem.is_some_and(|problem| problem.contains("404")));
        }
        assert!(upstream.is_passed_over(&later));
        lock(&upstream.state).passed_over.get_mut(&later).unwrap().again = Some(Instant::now());
        assert!(!upstream.is_passed_over(&later));
    }
}
