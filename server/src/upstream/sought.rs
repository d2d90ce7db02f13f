//! Debug files of other servers, for those who name addresses: what a module's is asked for by, and how long it is waited for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use symseal_module::DebugId;
use tokio::time::Instant;

use super::{Expected, Hops, Outcome, Upstreams, Wanted};
use crate::app::App;
use crate::debug_files::{FileKind, Scope};
use crate::http::percent_encode;
use crate::unbundled::Unbundled;

/// Such files on their way at once, whoever asked for them.
pub(super) const AT_ONCE: usize = 16;

/// What is known of a module beside its id in Breakpad's form, and of who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought<'a> {
    /// Its whole id: Breakpad's form has no more than 16 bytes of a build-id.
    pub(crate) id: Option<&'a DebugId>,
    /// What its debug file is called.
    pub(crate) name: Option<&'a str>,
    /// The servers that the request came through.
    pub(crate) hops: &'a Hops,
    /// When the waiting ends.
    pub(crate) until: Instant,
}

/// Whether another server has a file cannot be told now. Which one, and why, is the operator's.
#[derive(Debug, thiserror::Error)]
#[error("another server that may have its debug file does not answer, or has not brought it yet: ask again")]
pub(crate) struct UpstreamAway;

impl UpstreamAway {
    /// Whether an error says so.
    pub(crate) fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|error| error.is::<Self>())
    }
}

/// How long a request for names waits for them. What has not come by then goes on coming, for the next one who asks.
const PATIENCE: Duration = Duration::from_secs(30);

impl Sought<'_> {
    /// When the waiting of a request that begins now ends.
    pub(crate) fn patience() -> Instant {
        Instant::now() + PATIENCE
    }

    /// The module's debug files that other servers have, for those whom they are asked for.
    ///
    /// # Errors
    /// [`UpstreamAway`], of each that may have one.
    pub(crate) async fn bring(
        &self,
        app: &App,
        scope: &Scope,
        (guid, age): ([u8; 16], u32),
    ) -> Vec<io::Result<Unbundled>> {
        if !scope.reaches_upstreams() {
            return Vec::new();
        }
        let debuginfod = app.upstreams.get().into_iter().filter_map(|servers| Some((servers, self.of_build_id()?)));
        let symbols =
            app.symbol_upstreams.get().into_iter().filter_map(|servers| Some((servers, self.of_symbols(guid, age)?)));
        let mut found = Vec::new();
        for (servers, wanted) in debuginfod.chain(symbols) {
            found.extend(self.ask(servers, wanted).await);
        }
        found
    }

    async fn ask(&self, servers: &Arc<Upstreams>, wanted: Wanted) -> Option<io::Result<Unbundled>> {
        let (key, path) = (servers.key(&wanted), wanted.path.clone());
        let name = self.name.unwrap_or_default().to_owned();
        let whole = async {
            let _place = servers.bringing.acquire().await;
            servers.find_whole(wanted, self.hops).await
        };
        match tokio::time::timeout_at(self.until, whole).await {
            Ok(Outcome::Cached(file)) => Some(Ok(Unbundled::Upstream { key, sha256: file.note.sha256, name })),
            Ok(Outcome::Absent | Outcome::TooManyHops) => None,
            Ok(Outcome::Flying(_)) | Err(_) => Some(Err(io::Error::other(UpstreamAway))),
            Ok(Outcome::Unavailable(why)) => {
                tracing::info!(path, why, "whether another server has a debug file cannot be told");
                Some(Err(io::Error::other(UpstreamAway)))
            }
        }
    }

    fn of_build_id(&self) -> Option<Wanted> {
        let id = self.id.filter(|id| matches!(id, DebugId::BuildId(_)))?;
        Some(Wanted::of_build_id(id, FileKind::Debuginfo))
    }

    /// By the keys of symsrv and SSQP. Without a whole id and a name it may be of any kind, and only PDBs are known by their names.
    fn of_symbols(&self, guid: [u8; 16], age: u32) -> Option<Wanted> {
        let is_pdb = self.name.is_some_and(|name| name.to_lowercase().ends_with(".pdb"));
        let (path, id) = match self.id {
            Some(id @ DebugId::BuildId(bytes)) => {
                (format!("_.debug/elf-buildid-sym-{}/_.debug", bytes.ssqp_digits()), id.clone())
            }
            Some(id @ DebugId::MachoUuid(uuid)) => {
                (format!("_.dwarf/mach-uuid-sym-{:032x}/_.dwarf", u128::from_be_bytes(*uuid)), id.clone())
            }
            Some(DebugId::Pdb { .. }) | None if is_pdb => {
                let name = percent_encode(self.name?, b"");
                let path = format!("{name}/{:032X}{age:x}/{name}", u128::from_be_bytes(guid));
                (path, DebugId::Pdb { guid, age })
            }
            Some(DebugId::Pdb { .. }) | None => return None,
        };
        Wanted::of_symbols(&path, Expected::Debuginfo(id))
    }
}
