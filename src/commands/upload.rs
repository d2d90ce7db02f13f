//! `symseal upload`: debug files to a server, one by one and without a bundle.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use indicatif::ProgressBar;
use reqwest::Url;
use serde_json::{Value, json};
use symseal_artifact::{FileKind, SNIFF_BYTES, sniff};

use crate::bundle_ref::block_on;
use crate::exit::Answer;
use crate::output::{outln, visible};
use crate::progress::bytes_bar;
use crate::symbols_server::SymbolsServer;

/// Bytes that are read and sent at once.
const BLOCK: usize = 256 << 10;

/// Folders inside one another below a directory that is named.
const MAX_DEPTH: usize = 32;

/// Upload debug files, programs and program databases to a server, without a bundle.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal upload ./app.debug ./app.pdb --to http://127.0.0.1:8790
  symseal upload ./App.dSYM --to http://127.0.0.1:8790 --repository loose/team --json

The server reads out of each file what it is and which ids it has: ELF files and their debug files, PE files, PDBs, Mach-O files and the
DWARF files of dSYMs. Of a directory its release files are taken; links are not followed. A bundle is better wherever a release is
made: it can be sealed, has symbol tables, and answers before loose files. The token is read from SYMSEAL_TOKEN where the server
asks for one. Exit status 1: the server refused a file; the others are uploaded.")]
pub struct Args {
    /// Files, and directories such as a dSYM.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The server.
    #[arg(long, value_name = "URL")]
    to: Url,
    /// The repository that they belong to: loose, or one below it.
    #[arg(long, default_value = "loose", value_parser = crate::symbols_server::loose_repository)]
    repository: String,
    /// Print one JSON object for each file.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let server = SymbolsServer::new(&args.to, &args.repository)?;
    let mut files = Vec::new();
    for path in &args.files {
        let metadata = std::fs::metadata(path).with_context(|| format!("{}", path.display()))?;
        if metadata.is_dir() {
            let before = files.len();
            gather(path, MAX_DEPTH, &mut files)?;
            if files.len() == before {
                bail!("{}: expected release files in the directory, found none", path.display());
            }
        } else if metadata.is_file() {
            files.push((path.clone(), metadata.len()));
        } else {
            // Opening a pipe would wait for whoever writes to it.
            bail!("{}: expected a regular file or a directory, found neither", path.display());
        }
    }
    let bar = bytes_bar("uploading");
    bar.inc_length(files.iter().map(|(_, size)| size).sum());
    let all = block_on(async {
        let mut all = true;
        for (path, size) in &files {
            bar.set_message(visible(&path.display().to_string()));
            let (status, answer) = send(&server, path, *size, &bar).await?;
            let is_taken = matches!(status, 200 | 201);
            all &= is_taken;
            bar.suspend(|| tell(args, path, status, answer, is_taken));
        }
        anyhow::Ok(all)
    })??;
    bar.finish_and_clear();
    Ok(all.into())
}

/// The release files below a directory.
fn gather(directory: &Path, depth: usize, files: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
    let mut entries =
        entries.collect::<std::io::Result<Vec<_>>>().with_context(|| format!("{}", directory.display()))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            if depth == 0 {
                bail!("{}: expected at most {MAX_DEPTH} folders inside one another", path.display());
            }
            gather(&path, depth - 1, files)?;
        } else if kind.is_file() && is_release_file(&path)? {
            files.push((path, entry.metadata()?.len()));
        }
    }
    Ok(())
}

fn is_release_file(path: &Path) -> Result<bool> {
    let mut beginning = Vec::new();
    let file = File::open(path).with_context(|| format!("{}", path.display()))?;
    file.take(SNIFF_BYTES as u64).read_to_end(&mut beginning).with_context(|| format!("{}", path.display()))?;
    let kind = sniff(&beginning);
    Ok(matches!(
        kind,
        FileKind::Elf | FileKind::Pe | FileKind::Macho | FileKind::MachoFat | FileKind::Pdb | FileKind::PortablePdb
    ))
}

/// Status and answer of the server; an error only where there is none.
async fn send(server: &SymbolsServer, path: &Path, size: u64, bar: &ProgressBar) -> Result<(u16, Value)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = tokio::fs::File::open(path).await.with_context(|| format!("{}", path.display()))?;
    let told = bar.clone();
    let body = futures_util::stream::try_unfold(file, move |mut file| {
        let told = told.clone();
        async move {
            use tokio::io::AsyncReadExt as _;
            let mut block = vec![0; BLOCK];
            let read = file.read(&mut block).await?;
            block.truncate(read);
            told.inc(read as u64);
            Ok::<_, std::io::Error>((read > 0).then_some((block, file)))
        }
    });
    let sent = server.put(&name, size, reqwest::Body::wrap_stream(body)).await;
    let answer = sent.with_context(|| format!("{} to {}", path.display(), server.url()))?;
    Ok((answer.status, answer.body))
}

fn tell(args: &Args, path: &Path, status: u16, mut answer: Value, is_taken: bool) {
    if args.json {
        if let Some(told) = answer.as_object_mut() {
            told.insert("file".to_owned(), json!(path.display().to_string()));
            told.insert("status".to_owned(), json!(status));
        }
        outln!("{answer}");
        return;
    }
    let shown = path.display().to_string();
    let shown = visible(&shown);
    if !is_taken {
        let why = answer["error"]["message"].as_str().unwrap_or("no reason was given");
        eprintln!("{shown}: refused with {status}: {}", visible(why));
        return;
    }
    for id in answer["ids"].as_array().into_iter().flatten() {
        let files: Vec<&str> = id["files"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        outln!("{shown}: {} ({})", visible(id["id"].as_str().unwrap_or_default()), files.join(", "));
    }
    if status == 200 {
        outln!("{shown}: was there already");
    }
}
