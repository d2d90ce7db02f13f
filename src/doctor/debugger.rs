//! Whether gdb runs scripts that lie in or beside debug files by itself.

use std::path::Path;

use symseal_server::Finding;

/// Where gdb reads settings that a user wrote: in the first of these that is there, and in no other. The early files take none of these settings. (gdb,
/// "Initialization Files")
const FILES: [&str; 2] = ["gdb/gdbinit", ".gdbinit"];

/// More is not read of such a file, in bytes.
const LIMIT: u64 = 1 << 20;

/// `configuration`: what XDG_CONFIG_HOME says, else `.config` in the home directory.
pub(super) fn look(home: Option<&Path>, configuration: Option<&Path>) -> Finding {
    const ID: &str = "gdb.auto-load";
    const ADVICE: &str = "symseal setup gdb --server URL --write FILE writes set auto-load no into the file that gdb reads (~/.config/gdb/gdbinit, where there is none ~/.gdbinit); or start it as gdb -iex 'set auto-load no'";
    let Some(home) = home else { return Finding::skipped(ID, "there is no home directory with settings of gdb") };
    let configuration = configuration.map_or_else(|| home.join(".config"), Path::to_owned);
    let said = [configuration.join(FILES[0]), home.join(FILES[1])].into_iter().find(|path| path.is_file());
    let said = said.and_then(|path| last_word(&read(&path)?).map(|word| (path, word)));
    match said {
        Some((path, false)) => {
            Finding::ok(ID, format!("{} keeps gdb from running scripts of debug files", path.display()))
        }
        Some((path, true)) => Finding::warning(
            ID,
            format!("{} lets gdb run scripts that lie in debug files or beside them", path.display()),
            ADVICE,
        ),
        None => Finding::warning(
            ID,
            "gdb runs scripts that lie in debug files, or beside them, by itself: its settings do not say otherwise",
            ADVICE,
        ),
    }
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether scripts are run by a file's words, of which the last counts: one about all kinds of script, or about one kind after that. `None` where it says
/// nothing. What a command is defined by is not run.
fn last_word(text: &str) -> Option<bool> {
    let (mut runs, mut within) = (None, 0_usize);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["end"] => within = within.saturating_sub(1),
            ["define" | "document" | "python" | "guile" | "commands", ..] => within += usize::from(opens(&words)),
            ["if" | "while", ..] if within > 0 => within += 1,
            _ if within > 0 => {}
            ["set", "auto-load", "no" | "off" | "0" | "disable"] => runs = Some(false),
            ["set", "auto-load"] | ["set", "auto-load", "yes" | "on" | "1" | "enable"] => runs = Some(true),
            ["set", "auto-load", kind] | ["set", "auto-load", kind, "yes" | "on" | "1" | "enable"]
                if kind.ends_with("-scripts") =>
            {
                runs = Some(true);
            }
            _ => {}
        }
    }
    runs
}

/// Whether lines up to `end` belong to a command: `python print(1)` is one line.
fn opens(words: &[&str]) -> bool {
    !matches!(words, ["python" | "guile", _, ..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use symseal_server::Standing;

    #[test]
    fn settings_of_gdb_are_read_as_gdb_reads_them() {
        let home = tempfile::tempdir().unwrap();
        let standing = || look(Some(home.path()), None).standing;
        assert_eq!(standing(), Standing::Warning);
        let write = |text: &str| std::fs::write(home.path().join(".gdbinit"), text).unwrap();
        for (text, expected) in [
            ("set pagination off\n  set auto-load  no\n", Standing::Ok),
            ("set auto-load no\nset auto-load yes\n", Standing::Warning),
            ("set auto-load no\nset auto-load python-scripts on\n", Standing::Warning),
            ("set auto-load no\nset auto-load safe-path /x\nset auto-load python-scripts off\n", Standing::Ok),
            ("define foo\nif 1\nset auto-load no\nend\nend\n", Standing::Warning),
            ("define foo\nend\npython print(1)\nset auto-load no\n", Standing::Ok),
            ("# set auto-load no\n", Standing::Warning),
        ] {
            write(text);
            assert_eq!(standing(), expected, "{text}");
        }
        write("set auto-load no\n");
        // gdb reads no second file.
        let other = home.path().join("other");
        std::fs::create_dir_all(other.join("gdb")).unwrap();
        std::fs::write(other.join("gdb/gdbinit"), "set pagination off\n").unwrap();
        assert_eq!(look(Some(home.path()), Some(&other)).standing, Standing::Warning);
        assert_eq!(look(None, None).standing, Standing::Skipped);
    }
}
