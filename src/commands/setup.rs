//! `symseal setup`: what a debugger must be told to find a server's symbols, or those of a pulled directory.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::exit::Answer;
use crate::output::outln;

#[derive(Subcommand)]
pub enum Command {
    Gdb(SetupArgs),
    Lldb(SetupArgs),
    Windbg(SetupArgs),
}

/// Print the settings of this debugger.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal setup gdb --server http://127.0.0.1:8791 --write ~/.gdbinit      a gateway (symseal gateway)
  symseal setup lldb --directory ./symbols >> ~/.lldbinit                  any lldb; --server takes lldb 18 or newer
  symseal setup windbg --server http://symbols.example:8790
  symseal setup windbg --server https://symbols.example/t/TOKEN            a server that asks for tokens

Without its token such a server answers 404, which debuggers keep for a while as \"there is no such file\". What is printed, or written, has the token in
it then; gdb and lldb can also take it from the file that DEBUGINFOD_HEADERS_FILE names (a line Authorization: Bearer TOKEN).
Debuggers believe whoever answers: what a server sends is verified by nobody, unless the server is a gateway on this machine
(symseal gateway). Or verify a pulled bundle with trace-verify, and give the debugger its directory.")]
pub struct SetupArgs {
    /// The server, as http://HOST:PORT.
    #[arg(long, required_unless_present = "directory")]
    server: Option<String>,
    /// A directory that `oras pull` or `symseal bundle export` left, in place of a server or beside it.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Write the settings into this file, such as ~/.gdbinit, between two marks; what else is in it stays.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The lines around what was written.
const BEGIN: &str = "# >>> symseal setup";
const END: &str = "# <<< symseal setup";

/// The lines for one debugger.
type Settings = fn(Option<&str>, Option<&Path>) -> Vec<String>;

pub fn run(command: &Command) -> Result<Answer> {
    let (settings, args): (Settings, _) = match command {
        Command::Gdb(args) => (gdb, args),
        Command::Lldb(args) => (lldb, args),
        Command::Windbg(args) => (windbg, args),
    };
    let server = args.server.as_deref().map(base_url).transpose()?;
    let directory = args.directory.as_deref().map(std::path::absolute).transpose()?;
    if let Some(layout) = directory.as_deref().filter(|directory| directory.join("oci-layout").is_file()) {
        bail!(
            "--directory {0}: an OCI layout, in which debuggers find nothing; symseal bundle export {0} --build-id DIR (gdb), --lldb DIR or --symstore DIR (WinDbg) makes a directory for them",
            layout.display()
        );
    }
    let lines = settings(server, directory.as_deref());
    if matches!(command, Command::Lldb(_)) && server.is_some() {
        eprintln!(
            "note: lldb before 18 asks no servers, and says `invalid value path` of the setting for them: give it a directory (symseal bundle export BUNDLE --lldb DIR, then --directory DIR)"
        );
    }
    let Some(file) = &args.write else {
        lines.iter().for_each(|line| outln!("{line}"));
        return Ok(Answer::Yes);
    };
    ensure!(
        !matches!(command, Command::Windbg(_)),
        "--write: WinDbg has no such file: enter the lines in its command window"
    );
    write(file, &lines).with_context(|| format!("{}", file.display()))?;
    outln!("{}", file.display());
    Ok(Answer::Yes)
}

/// Puts the settings into a file, in the place of those that were written before. The file changes in one step.
fn write(file: &Path, lines: &[String]) -> Result<()> {
    use std::io::Write as _;
    // A link stays one, and its file is changed.
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    let after = with_settings(&before, lines)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(after.as_bytes())?;
    if let Ok(metadata) = std::fs::metadata(&file) {
        new.as_file().set_permissions(metadata.permissions())?;
    }
    new.as_file().sync_all()?;
    new.persist(&file)?;
    Ok(())
}

/// A file's text with the settings between the marks; at its end where there are no marks.
fn with_settings(before: &str, lines: &[String]) -> Result<String> {
    let block = format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"));
    let Some((head, rest)) = before.split_once(BEGIN) else {
        let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{before}{gap}{block}"));
    };
    let Some((_, tail)) = rest.split_once(END) else {
        bail!("expected the line {END:?} behind {BEGIN:?}, found none: remove that part by hand");
    };
    Ok(format!("{head}{block}{}", tail.strip_prefix('\n').unwrap_or(tail)))
}

/// The URL without a slash at its end. Debuggers split lists of servers at blanks and asterisks.
fn base_url(url: &str) -> Result<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let is_url =
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || "*;'\"".contains(c)));
    ensure!(
        is_url && reqwest::Url::parse(url).is_ok(),
        "--server: expected a URL such as http://127.0.0.1:8790, found {url:?}"
    );
    Ok(url.trim_end_matches('/'))
}

fn gdb(server: Option<&str>, directory: Option<&Path>) -> Vec<String> {
    let mut lines = vec!["# Scripts in debug files are not run.".to_owned(), "set auto-load no".to_owned()];
    if let Some(server) = server {
        lines.push(format!("set debuginfod urls {server}"));
        lines.push("set debuginfod enabled on".to_owned());
    }
    // gdb looks for .build-id in it; its own default stays behind it.
    lines.extend(directory.map(|directory| format!("set debug-file-directory {}:/usr/lib/debug", directory.display())));
    lines
}

fn lldb(server: Option<&str>, directory: Option<&Path>) -> Vec<String> {
    let mut lines = vec![
        "# Scripts in debug files are not run.".to_owned(),
        "settings set target.load-script-from-symbol-file false".to_owned(),
    ];
    if let Some(directory) = directory {
        let directory = directory.display();
        lines.push(format!("settings append target.debug-file-search-paths \"{directory}\""));
        // That setting is for ELF: lldb looks for dSYM bundles beside the binary, and asks macOS.
        lines.push(
            "# dSYM bundles, of a tree that symseal bundle export --lldb made, on macOS (a command of the shell):"
                .to_owned(),
        );
        lines.push(format!("#   defaults write com.apple.DebugSymbols DBGFileMappedPaths \"{directory}\""));
        lines.push("# and elsewhere: target symbols add …/NAME.dSYM/Contents/Resources/DWARF/NAME".to_owned());
    }
    // Last: an older lldb reads no further than to a setting that it does not know.
    if let Some(server) = server {
        lines.push("# lldb 18 or newer:".to_owned());
        lines.push(format!("settings insert-before plugin.symbol-locator.debuginfod.server-urls 0 {server}"));
    }
    lines
}

fn windbg(server: Option<&str>, directory: Option<&Path>) -> Vec<String> {
    let mut places: Vec<String> = directory.map(|directory| directory.display().to_string()).into_iter().collect();
    places.extend(server.map(|server| format!("srv*C:\\symbols*{server}/symbols")));
    vec![format!(".sympath+ {}", places.join(";")), ".reload".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_a_directory_are_named_in_each_debuggers_words() {
        let (server, directory) = (Some("http://h:1"), Some(Path::new("/s")));
        assert!(gdb(server, directory).contains(&"set debuginfod urls http://h:1".to_owned()));
        assert!(gdb(None, directory).contains(&"set debug-file-directory /s:/usr/lib/debug".to_owned()));
        assert_eq!(windbg(server, directory)[0], r".sympath+ /s;srv*C:\symbols*http://h:1/symbols");
        assert_eq!(windbg(server, None)[0], r".sympath+ srv*C:\symbols*http://h:1/symbols");
        assert!(lldb(None, directory).contains(&"settings append target.debug-file-search-paths \"/s\"".to_owned()));
    }

    #[test]
    fn settings_are_written_once_and_what_was_there_stays() {
        let (one, two) = (["a".to_owned()], ["b".to_owned(), "c".to_owned()]);
        let first = with_settings("mine", &one).unwrap();
        assert_eq!(first, format!("mine\n{BEGIN}\na\n{END}\n"));
        let second = with_settings(&format!("{first}more\n"), &two).unwrap();
        assert_eq!(second, format!("mine\n{BEGIN}\nb\nc\n{END}\nmore\n"));
        assert!(with_settings(&format!("{BEGIN}\na\n"), &one).is_err());
        assert_eq!(with_settings("", &one).unwrap(), format!("{BEGIN}\na\n{END}\n"));
    }

    #[test]
    fn what_is_no_url_is_refused() {
        assert_eq!(base_url("https://h/prefix/").unwrap(), "https://h/prefix");
        for url in ["", "h:8790", "http://", "http://a b", "http://a;b", "file:///x"] {
            assert!(base_url(url).is_err(), "{url}");
        }
    }
}
