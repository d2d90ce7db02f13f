//! `symseal import`: takes over the symbols of another store.

mod content;
mod journal;
mod own_server;
mod place;
mod pointer;
mod report;
mod send;
mod walk;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args as ClapArgs;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use indicatif::ProgressBar;
use reqwest::Url;
use serde::Deserialize;
use symseal_bundle::{Digest, loose};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::content::{Identity, LARGEST, Opened, Refused};
use self::journal::{Journal, Kept};
use self::own_server::OwnServer;
use self::place::{DATABASE, IMAGE, Kind, Layout, Place, Placed};
use self::pointer::{Mapping, Pointers};
use self::report::{Fate, Summary, Told};
use self::send::Sender;
use self::walk::{Found, Root};
use crate::data_owner::must_be_owner;
use crate::exit::Answer;
use crate::places;
use crate::progress::bytes_bar;
use crate::symbols_server::SymbolsServer;

/// Memory for the files that are worked on at once, in KiB. A larger file is worked on alone.
const MEMORY_KIB: u32 = 1 << 20;

/// The largest `meta` file that is read, in bytes.
const META: u64 = 64 << 10;

/// Take over a symbol store: SymStore's, Breakpad's, or Sentry's unified layout.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal import /mnt/symbols --dry-run
  symseal import /mnt/symbols --to https://symbols.example.com --repository loose/old
  symseal import /mnt/symbols --config /etc/symseal/server.toml      into the data directory of a server that is stopped
  symseal import /mnt/symbols --data ./data --pointer '\\\\builds\\drops=/mnt/drops' --json

The layout is told by the paths. Each file's ids are read out of it and held against its path: where the two differ it is left out, and both are told.
Packed files (CAB as SymStore makes them, gzip, zstd, xz) are stored unpacked; symbol server clients find them under the same keys. A second run sends what
is new or has changed; one that was killed is run again. Links are followed within the store alone, and the store is not changed. The token is read from
SYMSEAL_TOKEN. Exit status 1: something was left out; the rest is imported.")]
pub struct Args {
    /// The store.
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// The server.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    to: Option<Url>,
    /// The data directory of a server that is stopped.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The server's configuration, which names the data directory too.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    config: Option<PathBuf>,
    /// The repository that the files come to: loose, or one below it.
    #[arg(long, default_value = "loose", value_parser = crate::symbols_server::loose_repository)]
    repository: String,
    /// How the store is laid out, where its paths do not tell it.
    #[arg(long)]
    layout: Option<Layout>,
    /// Where a folder is here that pointers (file.ptr) name by another path. Repeat for more.
    #[arg(long, value_name = r"\\SERVER\SHARE=DIR")]
    pointer: Vec<Mapping>,
    /// Read and check every file, and send none.
    #[arg(long)]
    dry_run: bool,
    /// Files that are worked on at once; default: two for each processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    jobs: Option<u8>,
    /// Where it is noted which files were read, so that those that did not change are not read again; default: in --data, else in the user's data directory.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Print one JSON object for each file, and a last one with counts.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let own = if args.dry_run { None } else { own_server::place(args)? };
    if args.to.is_none() && own.is_none() && !args.dry_run {
        bail!("expected --to URL, --data DIR or --config FILE that names the data directory, or --dry-run");
    }
    let store = args.store.canonicalize().with_context(|| format!("{}", args.store.display()))?;
    let root = Root::open(&store).with_context(|| format!("{}", store.display()))?;
    let sample = root.sample(place::is_administration);
    let told = || place::told_by(sample.iter().map(String::as_str));
    let Some(layout) = args.layout.or_else(told) else {
        bail!(
            "{}: expected NAME/ID/FILE (symstore), NAME/ID/NAME.sym (breakpad) or AB/CDEF…/debuginfo (unified), found none of them: say --layout if it is one",
            store.display()
        );
    };
    let pointers = Pointers::open(&args.pointer)?;
    if let Some((data, _)) = &own {
        must_be_owner(data)?;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")?;
    let summary = runtime.block_on(async {
        let data = own.as_ref().map(|(data, _)| data.clone());
        let mut own = match own {
            Some((data, file)) => Some(OwnServer::start(args, data, &file).await?),
            None => None,
        };
        let told_to_end = own.as_mut().and_then(OwnServer::told_to_end);
        let prepared = || {
            let server = match (&args.to, &own) {
                _ if args.dry_run => None,
                (Some(url), _) => Some(Sender::new(SymbolsServer::new(url, &args.repository)?)),
                (None, Some(own)) => Some(Sender::new(own.client(&args.repository)?)),
                (None, None) => None,
            };
            // By the path of the data directory, which is there from now on.
            anyhow::Ok((server, journal(args, data.as_deref(), &store)?))
        };
        let (server, journal) = match prepared() {
            Ok(prepared) => prepared,
            Err(error) => {
                if let Some(own) = own {
                    own.stop().await?;
                }
                return Err(error);
            }
        };
        let import = Arc::new(Import {
            root,
            layout,
            pointers,
            server,
            journal: Mutex::new(journal),
            memory: Arc::new(Semaphore::new(MEMORY_KIB as usize)),
            bar: bytes_bar("importing"),
        });
        let summary = import_all(args, import, told_to_end).await;
        if let Some(own) = own {
            own.stop().await?;
        }
        summary
    })?;
    let Some(summary) = summary else {
        eprintln!("ended before its end: what was imported is imported, and the same command goes on from there");
        // What is still read for it is of no use to anybody.
        runtime.shutdown_background();
        return Ok(Answer::No);
    };
    Ok(summary.is_whole().into())
}

/// What every file is worked on with.
struct Import {
    root: Root,
    layout: Layout,
    pointers: Pointers,
    /// None: nothing is sent.
    server: Option<Sender>,
    journal: Mutex<Journal>,
    memory: Arc<Semaphore>,
    bar: ProgressBar,
}

fn journal(args: &Args, data: Option<&Path>, store: &Path) -> Result<Journal> {
    if args.dry_run {
        return Ok(Journal::none());
    }
    let server = match (&args.to, data) {
        (Some(url), _) => url.to_string(),
        (None, Some(data)) => data.canonicalize().unwrap_or_else(|_| data.to_owned()).display().to_string(),
        (None, None) => String::new(),
    };
    if let Some(path) = &args.journal {
        return Journal::open(path);
    }
    // Who may write to the data directory may not have one of his own: a service's user has no home.
    let folder = data.map_or_else(places::data_dir, |data| Ok(data.to_owned()));
    folder
        .and_then(|folder| Journal::open(&Journal::default_path(&folder, store, &server, &args.repository)))
        .context("no journal can be kept there: name another place (--journal FILE)")
}

/// `None` where somebody wanted it to end.
async fn import_all(
    args: &Args,
    import: Arc<Import>,
    told_to_end: Option<BoxFuture<'static, ()>>,
) -> Result<Option<Summary>> {
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(2, |n| 2 * n.get()), usize::from);
    let found = import.root.walk();
    let bar = import.bar.clone();
    let files = futures_util::stream::unfold(found, |mut found| async { found.recv().await.map(|file| (file, found)) });
    let summary = Mutex::new(Summary { layout: import.layout.to_string(), ..Summary::default() });
    let summary_of = || summary.lock().unwrap_or_else(PoisonError::into_inner);
    let work = |file: Found| {
        let import = Arc::clone(&import);
        bar.inc_length(file.size);
        summary_of().find();
        async move {
            let told = import.file(&file).await;
            import.bar.inc(file.size);
            told
        }
    };
    let mut told = std::pin::pin!(files.map(work).buffer_unordered(jobs));
    let mut told_to_end = told_to_end.unwrap_or_else(|| Box::pin(std::future::pending()));
    let mut ended = Ok(true);
    loop {
        let next = tokio::select! {
            () = &mut told_to_end => {
                ended = Ok(false);
                break;
            }
            next = told.next() => next,
        };
        match next {
            None => break,
            Some(Ok(next)) => bar.suspend(|| summary_of().tell(&next, args.json)),
            Some(Err(error)) => {
                ended = Err(error);
                break;
            }
        }
    }
    bar.finish_and_clear();
    let summary = summary_of().clone();
    // What was imported before an end is imported.
    summary.end(args.json);
    ended.map(|is_whole| is_whole.then_some(summary))
}

/// A file that is ready to be sent.
struct Ready {
    bytes: Bytes,
    packed: Option<&'static str>,
    identity: Identity,
    name: String,
    note: Option<String>,
    kept: Kept,
}

impl Import {
    /// An error ends the whole run: the server cannot be reached, or takes nothing from this caller.
    async fn file(self: &Arc<Self>, file: &Found) -> Result<Told> {
        if let Some(problem) = &file.problem {
            return Ok(Told::refused(&file.path, problem));
        }
        let place = match self.layout.place(&file.path) {
            Place::Administration => return Ok(Told::new(&file.path, Fate::Administration)),
            Place::NotTaken(why) => return Ok(Told::refused(&file.path, why)),
            Place::File(placed) => placed,
        };
        // What a pointer names may change without it.
        let is_plain = place.kind != Kind::Pointer;
        if is_plain && let Some(told) = self.known(file).await? {
            return Ok(told);
        }
        let (ready, _memory) = match self.ready(&file.path, place).await? {
            Ok(ready) => ready,
            Err(refused) => return Ok(Told::refused(&file.path, refused)),
        };
        let mut told = Told {
            ids: ready.identity.ids.clone(),
            name: Some(ready.name.clone()),
            bytes: ready.bytes.len() as u64,
            packed: ready.packed,
            stack: ready.identity.stack.map_or((0, 0), |stack| (stack.cfi, stack.win)),
            note: ready.note.clone(),
            ..Told::new(&file.path, Fate::WouldImport)
        };
        if let Some(server) = &self.server {
            let sent = server.send(&ready.name, &ready.bytes, &ready.kept).await;
            told.fate = sent.with_context(|| format!("{} to {}", file.path, server.url()))?;
        }
        if is_plain && matches!(told.fate, Fate::Imported | Fate::Already) {
            let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            journal.add(&file.path, &file.stamp, ready.kept, &told.ids)?;
        }
        Ok(told)
    }

    /// A file that an earlier run has read and the server still has.
    async fn known(&self, file: &Found) -> Result<Option<Told>> {
        let entry = {
            let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            journal.find(&file.path, &file.stamp).cloned()
        };
        let (Some(entry), Some(server)) = (entry, &self.server) else { return Ok(None) };
        let has = server.has(&entry.kept).await.with_context(|| format!("{}", server.url()))?;
        Ok(has.then(|| Told { ids: entry.ids, ..Told::new(&file.path, Fate::Already) }))
    }

    /// Reads a file once there is memory for it, which is taken until what comes with it is let go.
    async fn ready(
        self: &Arc<Self>,
        path: &str,
        place: Placed,
    ) -> Result<Result<(Ready, OwnedSemaphorePermit), Refused>> {
        let (import, named, of) = (Arc::clone(self), path.to_owned(), place.clone());
        let expected = tokio::task::spawn_blocking(move || import.expected(&named, &of)).await?;
        let mut kib = match expected {
            Ok(expected) => u32::try_from(expected.div_ceil(1 << 10)).unwrap_or(u32::MAX).clamp(1, MEMORY_KIB),
            Err(refused) => return Ok(Err(refused)),
        };
        loop {
            let memory = Arc::clone(&self.memory).acquire_many_owned(kib).await?;
            // Alone it may take what a server takes.
            let at_most = if kib == MEMORY_KIB { LARGEST } else { u64::from(kib) << 10 };
            let (import, named, of) = (Arc::clone(self), path.to_owned(), place.clone());
            match tokio::task::spawn_blocking(move || import.read(&named, of, at_most)).await? {
                // It is larger than it said.
                Err(Refused::LargerThan(_)) if kib < MEMORY_KIB => kib = MEMORY_KIB,
                read => return Ok(read.map(|ready| (ready, memory))),
            }
        }
    }

    /// Opens a file, or what a pointer names.
    fn open(&self, path: &str, kind: Kind) -> Result<Opened, Refused> {
        let (file, _) = self.root.file(path)?;
        let file = if kind == Kind::Pointer { self.pointers.follow(file)? } else { file };
        Opened::of(file, last(path))
    }

    /// Bytes that are in memory while a file is read and sent. Blocks.
    fn expected(&self, path: &str, place: &Placed) -> Result<u64, Refused> {
        let own = self.open(path, place.kind)?;
        // Before it waits for memory.
        own.may_fit(LARGEST)?;
        let own = own.expected();
        // A PDB without a name is called what its PE file calls it.
        let image = place.name.is_none().then(|| self.beside(path, DATABASE, IMAGE)).flatten();
        Ok(own.saturating_add(image.map_or(0, |image| image.expected())))
    }

    /// Of the unified layout: another file of the same folder.
    fn beside(&self, path: &str, own: &str, other: &str) -> Option<Opened> {
        let folder = path.strip_suffix(own)?.strip_suffix('/')?;
        let (file, _) = self.root.file(&format!("{folder}/{other}")).ok()?;
        Opened::of(file, other).ok()
    }

    /// Reads a file of at most so many bytes and holds it against its path. Blocks.
    fn read(&self, path: &str, Placed { name, id, kind }: Placed, at_most: u64) -> Result<Ready, Refused> {
        let opened = self.open(path, kind)?;
        let packed = opened.packed();
        let bytes = opened.read(last(path), at_most)?;
        if bytes.is_empty() {
            return Err(Refused::Because("an empty file".to_owned()));
        }
        let identity = Identity::of(&bytes)?;
        if !identity.spellings.contains(&id) {
            let found = if identity.ids.is_empty() { "no id".to_owned() } else { identity.ids.join(", ") };
            return Err(Refused::Because(format!("its path says {id}, and the file itself {found}")));
        }
        if (kind == Kind::SymbolFile) != identity.stack.is_some() {
            return Err(Refused::Because("a symbol file of Breakpad lies under .sym alone".to_owned()));
        }
        if let (Some(own), Some(name)) = (&identity.name, &name)
            && !own.eq_ignore_ascii_case(name)
        {
            return Err(Refused::Because(format!("its path says {name:?}, and the file itself {own:?}")));
        }
        let left = at_most.saturating_sub(bytes.len() as u64);
        let (name, note) = self.name(path, name, (&id, &identity), left)?;
        let digest = Digest::of(&bytes);
        let manifest = loose::manifest(&name, digest, bytes.len() as u64);
        let manifest = Digest::of(&manifest.map_err(|error| Refused::Because(error.to_string()))?);
        let kept = Kept { manifest, file: digest };
        let packed = packed.map(symseal_artifact::ArchiveKind::name);
        Ok(Ready { bytes: bytes.into(), packed, identity, name, note, kept })
    }

    /// The name under which a file is sent: clients ask for PDBs and PE files by name. What is read for it has at most `at_most` bytes.
    fn name(
        &self,
        path: &str,
        name: Option<String>,
        (id, identity): (&str, &Identity),
        at_most: u64,
    ) -> Result<(String, Option<String>), Refused> {
        if identity.stack.is_some() {
            let module = identity.name.clone().or(name).unwrap_or_default();
            return Ok((symbol_file_name(&module), None));
        }
        Ok(match name {
            // SSQP's names of debug files say nothing.
            Some(name) if name.starts_with("_.") => (format!("{id}{}", name.trim_start_matches('_')), None),
            Some(name) => (name, None),
            None => match self.name_beside(path, identity, at_most)? {
                Some(name) => (name, None),
                None => {
                    let is_asked_by_name = identity.ids.iter().any(|id| id.contains('-') || id.len() < 20);
                    let note = "its name is not known, so that symbol server clients cannot ask for it by name";
                    (id.to_owned(), is_asked_by_name.then(|| note.to_owned()))
                }
            },
        })
    }

    /// Of the unified layout: what the PE file of the same folder says about its PDB, else what `meta` says.
    fn name_beside(&self, path: &str, identity: &Identity, at_most: u64) -> Result<Option<String>, Refused> {
        let is_database = identity.pdb.is_none() && identity.ids.iter().any(|id| id.contains('-'));
        if is_database && let Some(image) = self.beside(path, DATABASE, IMAGE) {
            let image = match image.read(IMAGE, at_most) {
                Err(larger @ Refused::LargerThan(_)) => return Err(larger),
                read => read.ok().and_then(|bytes| Identity::of(&bytes).ok()),
            };
            if let Some(name) = image.and_then(|image| image.pdb).filter(|name| !name.is_empty()) {
                return Ok(Some(name));
            }
        }
        Ok(self.name_in_meta(path))
    }

    fn name_in_meta(&self, path: &str) -> Option<String> {
        use std::io::Read as _;
        let (folder, _) = path.rsplit_once('/')?;
        let (meta, _) = self.root.file(&format!("{folder}/meta")).ok()?;
        let mut text = Vec::new();
        meta.take(META).read_to_end(&mut text).ok()?;
        let meta: Meta = serde_json::from_slice(&text).ok()?;
        let name = meta.name?.rsplit(['/', '\\']).next()?.to_owned();
        (!name.is_empty()).then_some(name)
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What symsorter notes of a file.
#[derive(Deserialize)]
struct Meta {
    name: Option<String>,
    #[serde(flatten)]
    _more: HashMap<String, serde_json::Value>,
}

fn symbol_file_name(module: &str) -> String {
    let stem = module.len().checked_sub(4).and_then(|at| module.split_at_checked(at));
    match stem {
        Some((stem, extension)) if extension.eq_ignore_ascii_case(".pdb") => format!("{stem}.sym"),
        _ => format!("{module}.sym"),
    }
}
