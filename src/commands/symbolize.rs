//! `symseal symbolize`: addresses → frames.

mod file;
mod live;
mod prove;
mod questions;
mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_module::{DebugId, Rva, Svma};
use symseal_resolver::{ModuleAddress, Options, Resolver, Symbolized};

use crate::bundle_ref::{self, NamingBundle};
use crate::exit::{Answer, NotFound};
use crate::frames::{Lacks, write_frame, write_lack, write_steps};
use crate::online::{Online, OnlineArgs};
use crate::seal_question::SealQuestion;

use super::trace::resolve::proof;
use questions::{Question, in_portions};
use remote::Remote;

/// An address below the image base is in no function; the largest rva is in none either.
const NOWHERE: Rva = Rva(u64::MAX);

/// Modules whose image bases are remembered.
const IMAGE_BASES: usize = 65_536;

/// Name addresses of modules, from a bundle alone; or of a running process; or of a file.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal symbolize --bundle ./bundle --debug-id 93ac61ec5a8eb1396f9fbd350e3169a558528a40 0x401136
  symseal symbolize --remote registry.example/app:1.0 --trust ./trust --debug-id 93ac61ec… 0x401136
  symseal symbolize --bundle ./bundle --debug-id 93ac61ec… --prove frame.json 0x401136
  symseal symbolize --bundle sha256:… --json <addresses.txt       (lines of DEBUG-ID ADDRESS, of any modules)
  symseal symbolize --online --debug-id 93ac61ec… 0x401136        (DEBUGINFOD_URLS, no bundle)
  symseal symbolize --pid 4711 --local-files --demangle 0x7f20b96d1040 0x55d0a1c2e1a9
  symseal symbolize --pid 4711 --bundle ./bundle 0x55d0a1c2e1a9
  symseal symbolize --file ./target/release/app 0x401136          (no bundle, as addr2line -e)

Addresses are stated addresses (svma), as llvm-symbolizer takes them; with --pid they are those of the process (avma), of any
of its modules, of code that it made itself, or of the kernel. Standard input may have any number of lines; each portion that has come is answered
at once, so that another program can write a line and wait for its answer; a line that is no address is told in its place. Exit status 1: no address has a
name or a line; 2: the call or a line is wrong.")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    #[arg(long)]
    bundle: Option<String>,
    /// A bundle in a registry, of which only the pages that are needed are read; each is verified.
    #[arg(long, value_name = "REF", conflicts_with_all = ["bundle", "prove", "online"])]
    remote: Option<String>,
    #[command(flatten)]
    seal: SealQuestion,
    /// Write a file that proves the name of the one address: `symseal verify-frame` checks it without the bundle.
    #[arg(long, value_name = "FILE")]
    prove: Option<PathBuf>,
    /// The module: build-id, GUID-age or uuid:… Without it every address stands behind its module's.
    #[arg(long, value_parser = super::debug_id)]
    debug_id: Option<DebugId>,
    /// The file name of the module, by which symbol servers for Windows and macOS are asked.
    #[arg(long, value_name = "NAME", requires = "online", requires = "debug_id")]
    module: Option<String>,
    /// A running process whose addresses these are. Its modules are named from --bundle, and with --local-files from their files.
    #[arg(long, conflicts_with_all = ["debug_id", "remote", "prove", "rva"])]
    pid: Option<u32>,
    /// With --pid: also read the files that the process has mapped, and debug files of this machine.
    #[arg(long)]
    local_files: bool,
    /// The file whose addresses these are: it and its debug files on this machine are read, after --bundle where one is given. A program, a library, a
    /// debug file, or a program database (whose addresses are relative to the image base).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "remote", "prove"])]
    file: Option<PathBuf>,
    /// With --file: look for separate debug files below this directory, in place of /usr/lib/debug. Repeat for more.
    #[arg(long, value_name = "DIR", requires = "file")]
    debug_directory: Vec<PathBuf>,
    #[command(flatten)]
    online: OnlineArgs,
    /// Addresses in hexadecimal, each alone or as DEBUG-ID@ADDRESS; read from standard input, one a line, when there are none.
    #[arg(value_parser = Question::parse)]
    addresses: Vec<Question>,
    /// Addresses are relative to the image base.
    #[arg(long)]
    rva: bool,
    /// Give demangled names as `function`; the raw symbol stays beside it.
    #[arg(long)]
    demangle: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Show every step that was tried, with --json also the digests that the name rests on. Tables of the local store are hashed again for it.
    #[arg(long)]
    explain: bool,
    /// The addresses are return addresses, as in a backtrace: the byte before each is looked up, which is in its call.
    #[arg(long, conflicts_with = "prove")]
    return_addresses: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer> {
    args.check()?;
    let online = args.online.open()?;
    if let Some(pid) = args.pid {
        // Everything that a wrong call could be is told before a bundle is opened.
        let answer = live::run(args, pid, online.as_ref());
        online.as_ref().map_or(Ok(()), Online::finish)?;
        return answer;
    }
    if let Some(reference) = &args.remote {
        return from_remote(args, reference);
    }
    if let Some(file) = &args.file {
        let answer = file::run(args, file, online.as_ref());
        online.as_ref().map_or(Ok(()), Online::finish)?;
        return answer;
    }
    if let Some(to) = &args.prove {
        prove(args, to)?;
    }
    let answer = from_bundle(args, online.as_ref());
    online.as_ref().map_or(Ok(()), Online::finish)?;
    answer
}

impl Args {
    /// The bundle whose names count; `None` where its seal was refused, which was told. Who asks what names rest on has the digests checked in
    /// this run.
    fn naming_bundle(&self, reference: &str) -> Result<Option<NamingBundle>> {
        if !self.explain && self.seal.asked()?.is_none() {
            return NamingBundle::open(reference, self.store.as_ref()).map(Some);
        }
        let opened = bundle_ref::open(reference, self.store.as_ref())?;
        let proof = proof(&opened, &self.seal)?;
        Ok(proof.map(|proof| NamingBundle::hashed(opened, proof)))
    }

    /// The address that is looked up for one that was given.
    fn lookup(&self, address: u64) -> u64 {
        address.wrapping_sub(u64::from(self.return_addresses))
    }

    /// What clap does not ask for beside an argument that excludes it.
    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(anyhow::anyhow!("{what}"));
        self.seal.asked()?;
        match self {
            Self { bundle: None, remote: None, file: None, pid: None, online, .. } if !online.online => wrong(
                "expected what to take names from: --bundle BUNDLE, --remote REF, --file FILE, --pid PID, or --online with DEBUGINFOD_URLS or _NT_SYMBOL_PATH",
            ),
            Self { seal: SealQuestion { trust: Some(_), .. }, remote: None, bundle: None, .. } => {
                wrong("--trust: expected --bundle or --remote, whose seal is verified")
            }
            Self { local_files: true, pid: None, .. } => wrong("--local-files: expected --pid, whose files these are"),
            Self { module: Some(_), pid: Some(_), .. } => {
                wrong("--module: expected --debug-id, whose name it is, and no --pid")
            }
            Self { module: Some(_), online, .. } if !online.online => wrong("--module: expected --online"),
            Self { online, .. } if !online.online && online.has_lock() => wrong("--lock: expected --online"),
            Self { pid: None, debug_id: None, file: None, addresses, .. } => {
                addresses.iter().try_for_each(|question| module_of(self, question).map(|_| ()))
            }
            _ => Ok(()),
        }
    }
}

/// Names addresses of any modules from a bundle, from servers, or both.
fn from_bundle(args: &Args, online: Option<&Online>) -> Result<Answer> {
    let options = Options { demangle: args.demangle, online: online.is_some(), ..Options::default() };
    let mut resolver = Resolver::new(options);
    if let Some(reference) = &args.bundle {
        let Some(bundle) = args.naming_bundle(reference)? else { return Ok(Answer::No) };
        resolver = bundle.join(resolver);
        if let (false, Some(id)) = (args.online.online, &args.debug_id)
            && resolver.image_base(id).is_none()
        {
            return Err(no_module(reference, id));
        }
    }
    let resolver = Online::ask(online, resolver);
    let (mut named, mut lacks) = (false, Lacks::default());
    let mut image_bases = BTreeMap::new();
    let checked = |question: &Question| module_of(args, question).map(|_| ());
    // The name is that of the one module, and of no other.
    let name_of = |id: &DebugId| args.module.as_deref().filter(|_| args.debug_id.as_ref() == Some(id));
    in_portions(args, checked, |out, questions| {
        if online.is_some() {
            let ids = questions.iter().map(|question| module_of(args, question)).collect::<Result<BTreeSet<_>>>()?;
            let unknown = ids.into_iter().filter(|id| !image_bases.contains_key(*id));
            resolver.open_modules_by_id(&unknown.map(|id| (id, name_of(id))).collect::<Vec<_>>());
        }
        let mut asked = Vec::with_capacity(questions.len());
        for question in questions {
            let id = module_of(args, question)?;
            let name = name_of(id);
            let known = match image_bases.get(id) {
                Some(known) => *known,
                None => {
                    let found = image_base(&resolver, args, id, name)?;
                    if image_bases.len() >= IMAGE_BASES {
                        image_bases.clear();
                    }
                    // A server that failed may say it later.
                    if found.is_some() || online.is_none() {
                        image_bases.insert(id.clone(), found);
                    }
                    found
                }
            };
            let rva = match known {
                Some(image_base) => rva_of(args, args.lookup(question.address), image_base),
                None => NOWHERE,
            };
            asked.push(ModuleAddress { id, name, rva });
        }
        for (question, found) in questions.iter().zip(resolver.symbolize_all(&asked)) {
            named |= !found.frames.is_empty();
            lacks.warn(&found);
            print(out, question, &found, args)?;
        }
        Ok(())
    })?;
    Ok(named.into())
}

/// Names addresses of one module whose table stays in its registry.
fn from_remote(args: &Args, reference: &str) -> Result<Answer> {
    let debug_id = args.debug_id.as_ref().context("--debug-id: expected the module whose addresses these are")?;
    let mut remote = Remote::open(reference, debug_id, &args.seal)?;
    let mut named = false;
    let checked = |question: &Question| match question.debug_id.as_ref().is_some_and(|id| id != debug_id) {
        true => bail!("--remote: expected addresses of {debug_id} alone, found one of another module"),
        false => Ok(()),
    };
    in_portions(args, checked, |out, questions| {
        for question in questions {
            let rva = rva_of(args, args.lookup(question.address), remote.image_base());
            let found = remote.symbolize(rva, args.demangle)?;
            named |= !found.frames.is_empty();
            print(out, question, &found, args)?;
        }
        Ok(())
    })?;
    eprintln!("{}", remote.account());
    Ok(named.into())
}

/// The module of an address: beside it, else the one of all of them.
fn module_of<'a>(args: &'a Args, question: &'a Question) -> Result<&'a DebugId> {
    let id = question.debug_id.as_ref().or(args.debug_id.as_ref());
    id.with_context(|| format!("{:#x}: expected DEBUG-ID@ADDRESS, or --debug-id for all addresses", question.address))
}

/// The image base of a module; `None` where nobody knows it, as that of a PDB whose program is in no bundle.
fn image_base(resolver: &Resolver, args: &Args, id: &DebugId, name: Option<&str>) -> Result<Option<Svma>> {
    let known = resolver.image_base(id);
    if args.rva || known.is_some() {
        return Ok(Some(known.unwrap_or_default()));
    }
    match id {
        DebugId::Pdb { .. } if args.debug_id.as_ref() == Some(id) => {
            bail!(
                "{id}: expected --rva: a program database does not say where its program is loaded, and no bundle has it"
            )
        }
        DebugId::Pdb { .. } => Ok(None),
        _ => Ok(resolver.image_base_online(id, name)),
    }
}

fn rva_of(args: &Args, address: u64, image_base: Svma) -> Rva {
    if args.rva { Rva(address) } else { Svma(address).to_rva(image_base).unwrap_or(NOWHERE) }
}

fn no_module(reference: &str, id: &DebugId) -> anyhow::Error {
    NotFound(format!("bundle {reference} has no module {id}; `symseal bundle inspect` lists what it has")).into()
}

fn prove(args: &Args, to: &Path) -> Result<()> {
    let [question] = args.addresses.as_slice() else {
        bail!("--prove {}: expected one address, found {}; a proof is of one name", to.display(), args.addresses.len());
    };
    let debug_id = module_of(args, question)?;
    let reference = args.bundle.as_deref().context("--prove: expected --bundle")?;
    let opened = bundle_ref::open(reference, args.store.as_ref())?;
    let image_base = opened.bundle.module(debug_id).ok_or_else(|| no_module(reference, debug_id))?.image_base;
    let address = match args.rva {
        true => Rva(question.address).to_svma(image_base).unwrap_or(Svma(question.address)),
        false => Svma(question.address),
    };
    let size = prove::write(&opened.bundle, debug_id, address, to)?;
    eprintln!("{}: {size} bytes; `symseal verify-frame` checks them", to.display());
    Ok(())
}

fn print(out: &mut impl Write, question: &Question, symbolized: &Symbolized, args: &Args) -> Result<()> {
    let (address, debug_id) = (Svma(question.address), question.debug_id.as_ref());
    if args.json {
        serde_json::to_writer(&mut *out, &symbolized.line(address, debug_id, args.explain))?;
        writeln!(out)?;
        return Ok(());
    }
    let shown = debug_id.map_or_else(|| address.to_string(), |id| format!("{id} {address}"));
    write!(out, "{shown}")?;
    if symbolized.frames.is_empty() {
        write!(out, "  ??  ")?;
        write_lack(out, symbolized)?;
    }
    for (depth, frame) in symbolized.frames.iter().enumerate() {
        let blanks = if depth == 0 { 2 } else { shown.len() + 2 };
        write!(out, "{:blanks$}", "")?;
        write_frame(out, symbolized, frame)?;
        writeln!(out)?;
    }
    if args.explain { Ok(write_steps(out, symbolized)?) } else { Ok(()) }
}
