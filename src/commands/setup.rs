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

/// Links one behind the other that are followed, as Linux does.
const LINKS: usize = 40;

/// The lines for one debugger.
type Settings = fn(Option<&str>, Option<&str>) -> Result<Vec<String>>;

pub fn run(command: &Command) -> Result<Answer> {
    let (settings, args): (Settings, _) = match command {
        Command::Gdb(args) => (gdb, args),
        Command::Lldb(args) => (lldb, args),
        Command::Windbg(args) => (windbg, args),
    };
    let server = args.server.as_deref().map(base_url).transpose()?;
    let directory = args.directory.as_deref().map(std::path::absolute).transpose()?;
    let said = directory.as_deref().map(printable).transpose()?;
    if let Some(layout) = directory.as_deref().filter(|directory| directory.join("oci-layout").is_file()) {
        bail!(
            "--directory {0}: an OCI layout, in which debuggers find nothing; symseal bundle export {0} --build-id DIR (gdb), --lldb DIR or --symstore DIR (WinDbg) makes a directory for them",
            layout.display()
        );
    }
    let lines = settings(server, said)?;
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
    let file = behind_links(file)?;
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

/// The file itself: a link stays one, and its file is changed, or made where only its folder is there.
fn behind_links(file: &Path) -> Result<PathBuf> {
    let mut file = file.to_owned();
    for _ in 0..LINKS {
        if let Ok(found) = std::fs::canonicalize(&file) {
            return Ok(found);
        }
        let Ok(to) = std::fs::read_link(&file) else { return Ok(file) };
        let link = file.display().to_string();
        file = file.parent().unwrap_or(Path::new("")).join(to);
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(
            folder.is_dir(),
            "a link to {}, whose folder is not there: make the folder, or remove the link {link}",
            file.display()
        );
    }
    bail!("a link that leads through more than {LINKS} others: remove it, or name another file")
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
    let is_url = rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c.is_control() || "*;'\"".contains(c))
    });
    ensure!(
        is_url && reqwest::Url::parse(url).is_ok(),
        "--server: expected a URL such as http://127.0.0.1:8790, found {url:?}"
    );
    Ok(url.trim_end_matches('/'))
}

/// A directory as the settings have it: what a line of them cannot say is refused.
fn printable(directory: &Path) -> Result<&str> {
    let text = directory.to_str().filter(|text| !text.contains(char::is_control));
    text.with_context(|| {
        format!("--directory {directory:?}: expected a name in UTF-8 without control characters, which no setting can say: rename it, or name a link to it")
    })
}

/// Refuses a directory with a character that has a meaning of its own for a debugger.
fn must_lack(directory: &str, character: char, why: &str) -> Result<()> {
    ensure!(
        !directory.contains(character),
        "--directory {directory:?}: expected no {character:?}, {why}: rename it, or name a link to it"
    );
    Ok(())
}

/// A text between double quotes, where these characters have a meaning.
fn escaped(text: &str, characters: &str) -> String {
    text.chars().flat_map(|c| characters.contains(c).then_some('\\').into_iter().chain([c])).collect()
}

fn gdb(server: Option<&str>, directory: Option<&str>) -> Result<Vec<String>> {
    let mut lines = vec!["# Scripts in debug files are not run.".to_owned(), "set auto-load no".to_owned()];
    if let Some(server) = server {
        lines.push(format!("set debuginfod urls {server}"));
        lines.push("set debuginfod enabled on".to_owned());
    }
    // gdb looks for .build-id in it; its own default stays behind it.
    if let Some(directory) = directory {
        // On Windows every directory has one, behind the drive.
        if cfg!(not(windows)) {
            must_lack(directory, ':', "at which gdb splits its list of directories")?;
        }
        lines.push(format!("set debug-file-directory {directory}:/usr/lib/debug"));
    }
    Ok(lines)
}

fn lldb(server: Option<&str>, directory: Option<&str>) -> Result<Vec<String>> {
    let mut lines = vec![
        "# Scripts in debug files are not run.".to_owned(),
        "settings set target.load-script-from-symbol-file false".to_owned(),
    ];
    if let Some(directory) = directory {
        must_lack(directory, '`', "between two of which lldb evaluates expressions")?;
        let quoted = escaped(directory, "\"\\");
        lines.push(format!("settings append target.debug-file-search-paths \"{quoted}\""));
        // That setting is for ELF: lldb looks for dSYM bundles beside the binary, and asks macOS.
        lines.push(
            "# dSYM bundles, of a tree that symseal bundle export --lldb made, on macOS (a command of the shell):"
                .to_owned(),
        );
        let quoted = escaped(directory, "\"\\$");
        lines.push(format!("#   defaults write com.apple.DebugSymbols DBGFileMappedPaths \"{quoted}\""));
        lines.push("# and elsewhere: target symbols add …/NAME.dSYM/Contents/Resources/DWARF/NAME".to_owned());
    }
    // Last: an older lldb reads no further than to a setting that it does not know.
    if let Some(server) = server {
        lines.push("# lldb 18 or newer:".to_owned());
        lines.push(format!("settings insert-before plugin.symbol-locator.debuginfod.server-urls 0 {server}"));
    }
    Ok(lines)
}

fn windbg(server: Option<&str>, directory: Option<&str>) -> Result<Vec<String>> {
    if let Some(directory) = directory {
        must_lack(directory, ';', "at which WinDbg splits its list of places")?;
    }
    let mut places: Vec<String> = directory.map(str::to_owned).into_iter().collect();
    places.extend(server.map(|server| format!("srv*C:\\symbols*{server}/symbols")));
    Ok(vec![format!(".sympath+ {}", places.join(";")), ".reload".to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_a_directory_are_named_in_each_debuggers_words() {
        let (server, directory) = (Some("http://h:1"), Some("/s"));
        let has = |lines: Result<Vec<String>>, line: &str| lines.unwrap().contains(&line.to_owned());
        assert!(has(gdb(server, directory), "set debuginfod urls http://h:1"));
        assert!(has(gdb(None, directory), "set debug-file-directory /s:/usr/lib/debug"));
        assert!(has(windbg(server, directory), r".sympath+ /s;srv*C:\symbols*http://h:1/symbols"));
        assert!(has(windbg(server, None), r".sympath+ srv*C:\symbols*http://h:1/symbols"));
        assert!(has(lldb(None, directory), "settings append target.debug-file-search-paths \"/s\""));
    }

    #[test]
    fn a_directory_is_said_as_it_is_or_refused() {
        let quoted = lldb(None, Some(r#"/a "b\c$d"#)).unwrap();
        assert!(
            quoted.contains(&r#"settings append target.debug-file-search-paths "/a \"b\\c$d""#.to_owned()),
            "{quoted:?}"
        );
        let for_a_shell = r#"#   defaults write com.apple.DebugSymbols DBGFileMappedPaths "/a \"b\\c\$d""#;
        assert!(quoted.contains(&for_a_shell.to_owned()), "{quoted:?}");
        for directory in ["/a\nshell id", "/a\u{1b}[2J", "/a\u{7f}", "/a\u{9b}"] {
            assert!(printable(Path::new(directory)).unwrap_err().to_string().contains("control"), "{directory:?}");
        }
        let refused = |lines: Result<Vec<String>>| lines.unwrap_err().to_string();
        assert!(refused(gdb(None, Some("/a:b"))).contains("':'"));
        assert!(refused(lldb(None, Some("/a`b`"))).contains("'`'"));
        assert!(refused(windbg(None, Some("/a;b"))).contains("';'"));
        assert!(lldb(None, Some("/a:b;c")).is_ok() && windbg(None, Some(r"C:\a")).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_one_also_where_its_file_is_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
        std::fs::create_dir(at("dotfiles")).unwrap();
        link("dotfiles/gdbinit", "second");
        link("second", "first");
        for line in ["a", "b"] {
            write(&at("first"), &[line.to_owned()]).unwrap();
            assert!(at("first").is_symlink() && at("second").is_symlink());
            let written = std::fs::read_to_string(at("dotfiles/gdbinit")).unwrap();
            assert_eq!(written, format!("{BEGIN}\n{line}\n{END}\n"));
        }
        link("nowhere/gdbinit", "third");
        let refused = write(&at("third"), &[]).unwrap_err().to_string();
        assert!(refused.contains("whose folder is not there") && at("third").is_symlink(), "{refused}");
        link("round", "round");
        assert!(write(&at("round"), &[]).unwrap_err().to_string().contains("more than 40"));
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
        for url in ["", "h:8790", "http://", "http://a b", "http://a;b", "http://a\u{1b}b", "file:///x"] {
            assert!(base_url(url).is_err(), "{url}");
        }
    }
}
