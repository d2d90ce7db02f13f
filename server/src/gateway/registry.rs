//! An upstream that is a repository of a registry: its bundles are heard of before anybody asks for them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symseal_bundle::index::SymbolIndex;
use symseal_bundle::{Digest, oci};
use symseal_registry::{Options, Reference, Repository, credentials};

use super::catalogue::Catalogue;
use super::home::{Home, Trouble};

/// Tags of one repository that are looked at.
const TAGS: usize = 2000;
/// What is no bundle is remembered so often; beyond that the memory starts anew.
const PASSED_OVER: usize = 10_000;
/// A list that was read so long ago is read again before something is said not to be there; the longer reading it took, the later.
const FRESH: Duration = Duration::from_secs(2);
/// How many times as long as reading took a list is left alone.
const REST: u32 = 8;
/// A registry that did not answer is left alone so long.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a bundle's seals are believed to be all.
const SEALS_FRESH: Duration = Duration::from_secs(5);

/// The repository.
pub(super) struct RegistryUpstream {
    reference: Reference,
    /// All tags, where none was named.
    is_whole: bool,
    /// Held while the list is read, so that all who miss something wait for one reading.
    reading: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the list was read last, and how long that took.
    read: Option<(Instant, Duration)>,
    problem: Option<(Instant, String)>,
    /// What is no bundle is looked at only once.
    passed_over: HashSet<Digest>,
    bundles: usize,
}

/// How an upstream stands, for the status page.
#[derive(Debug, Clone)]
pub(super) struct UpstreamStanding {
    /// The URL, without what is secret in it.
    pub(super) url: String,
    /// What kind of server it is.
    pub(super) kind: &'static str,
    /// Why it cannot be asked at this moment.
    pub(super) problem: Option<String>,
    /// Bundles that it offered.
    pub(super) bundles: usize,
}

impl RegistryUpstream {
    /// `host[:port]/repository[:tag|@digest]`; without tag and digest, all tags.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let reference = Reference::parse(text).map_err(|error| error.to_string())?;
        let last = text.rsplit('/').next().unwrap_or_default();
        let is_whole = !last.contains([':', '@']);
        Ok(Self { reference, is_whole, reading: tokio::sync::Mutex::default(), state: Mutex::default() })
    }

    /// For the status page.
    pub(super) fn standing(&self) -> UpstreamStanding {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let place = format!("{}/{}", self.reference.registry(), self.reference.repository());
        UpstreamStanding {
            url: format!("oci://{}", if self.is_whole { place } else { self.reference.to_string() }),
            kind: "registry",
            problem: state.problem.as_ref().map(|(_, problem)| problem.clone()),
            bundles: state.bundles,
        }
    }

    /// Reads the list of bundles, unless that was done just now.
    ///
    /// # Errors
    /// Why the registry could not be asked.
    pub(super) async fn refresh(&self, catalogue: &Catalogue) -> Result<(), String> {
        let _reading = self.reading.lock().await;
        {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, problem)) = &state.problem
                && at.elapsed() < PAUSE
            {
                return Err(problem.clone());
            }
            if let Some((at, took)) = state.read
                && state.problem.is_none()
                && at.elapsed() < FRESH.max(took.saturating_mul(REST))
            {
                return Ok(());
            }
        }
        let began = Instant::now();
        let read = self.read(catalogue).await;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(bundles) => {
                state.bundles = bundles;
                state.problem = None;
                state.read = Some((Instant::now(), began.elapsed()));
                Ok(())
            }
            Err(trouble) => {
                let problem = trouble.text().to_owned();
                tracing::warn!(registry = %self.reference, problem, "a registry cannot be asked");
                state.problem = Some((Instant::now(), problem.clone()));
                Err(problem)
            }
        }
    }

    async fn read(&self, catalogue: &Catalogue) -> Result<usize, Trouble> {
        let references = if self.is_whole {
            let place = format!("{}/{}", self.reference.registry(), self.reference.repository());
            let tags = open(&self.reference)?.tags().await?;
            if tags.len() > TAGS {
                tracing::warn!(repository = place, "it has more than {TAGS} tags: the others are not looked at");
            }
            let named = tags.iter().take(TAGS).filter(|tag| !tag.starts_with("sha256-"));
            named.filter_map(|tag| Reference::parse(&format!("{place}:{tag}")).ok()).collect()
        } else {
            vec![self.reference.clone()]
        };
        let mut bundles = 0;
        for reference in references {
            let repository = open(&reference)?;
            let Some(found) = repository.resolve().await? else { continue };
            let is_passed_over = {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.passed_over.contains(&found.digest)
            };
            if is_passed_over || found.media_type != oci::IMAGE_INDEX {
                continue;
            }
            match hear(catalogue, &reference.with_digest(found.digest)).await {
                Ok(()) => bundles += 1,
                Err(Trouble::Down(why)) => return Err(Trouble::Down(why)),
                // What is no bundle, or not whole, is not worth the others.
                Err(trouble) => {
                    tracing::info!(%reference, why = trouble.text(), "what a tag names is no bundle that can be used");
                    let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    if state.passed_over.len() >= PASSED_OVER {
                        state.passed_over.clear();
                    }
                    state.passed_over.insert(found.digest);
                }
            }
        }
        Ok(bundles)
    }
}

/// Takes the bundle that a reference with a digest names into the catalogue; of one that is known, the seals that came since.
pub(super) async fn hear(catalogue: &Catalogue, reference: &Reference) -> Result<(), Trouble> {
    let symseal_registry::Target::Digest(digest) = reference.target() else {
        return Err(Trouble::Wrong(format!("{reference}: expected a digest")));
    };
    let name: Arc<str> = format!("{}/{}", reference.registry(), reference.repository()).into();
    let repository = Arc::new(open(reference)?);
    let home = Home::Registry { name, repository: Arc::clone(&repository) };
    if let Some(known) = catalogue.known_at(digest, || home.clone()) {
        let age = known.seals_asked.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if age >= SEALS_FRESH {
            known.take_seals(repository.seals(digest).await?);
        }
        return Ok(());
    }
    let indexes = repository.bundle_indexes().await?;
    let seals = match repository.seals(digest).await {
        Err(error) => match Trouble::from(error) {
            Trouble::Down(why) => return Err(Trouble::Down(why)),
            // Junk beside it: as if there were none.
            _ => Vec::new(),
        },
        Ok(seals) => seals,
    };
    let bytes = indexes.symbol_index.len() as u64;
    let subjects = indexes.subjects();
    let parsed = tokio::task::spawn_blocking(move || SymbolIndex::parse(&indexes.symbol_index)).await;
    let index = parsed
        .map_err(|error| Trouble::Down(error.to_string()))?
        .map_err(|error| Trouble::Wrong(format!("{reference}: {error}")))?;
    catalogue.add((*digest, subjects), (index, bytes), seals, home);
    Ok(())
}

fn open(reference: &Reference) -> Result<Repository, Trouble> {
    let found = credentials::find(reference).map_err(|error| Trouble::Down(error.to_string()))?;
    let options = Options {
        auth: found.auth,
        tries: 2,
        connect_timeout: Duration::from_secs(3),
        stall_timeout: Duration::from_secs(20),
        ..Options::default()
    };
    Ok(Repository::open(reference, &options)?)
}
