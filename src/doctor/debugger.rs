//! Whether gdb runs scripts that lie in or beside debug files by itself.

use std::path::Path;

use symseal_server::Finding;

/// Where gdb reads settings that a user wrote (gdb, "Initialization Files").
const FILES: [&str; 4] = [".config/gdb/gdbinit", ".gdbinit", ".config/gdb/gdbearlyinit", ".gdbearlyinit"];

/// More is not read of such a file, in bytes.
const LIMIT: u64 = 1 << 20;

pub(super) fn look(home: Option<&Path>) -> Finding {
    const ID: &str = "gdb.auto-load";
    const ADVICE: &str = "symseal setup gdb --server URL --write ~/.gdbinit writes set auto-load no; or start it as gdb -iex 'set auto-load no'";
    let Some(home) = home else { return Finding::skipped(ID, "there is no home directory with settings of gdb") };
    // The last word counts, in the order in which gdb reads them: the early files only take other settings.
    let said = FILES.iter().filter_map(|name| Some((name, last_word(&read(&home.join(name))?)?))).next_back();
    match said {
        Some((name, false)) => Finding::ok(ID, format!("~/{name} keeps gdb from running scripts of debug files")),
        Some((name, true)) => Finding::warning(
            ID,
            format!("~/{name} lets gdb run scripts that lie in debug files or beside them"),
            ADVICE,
        ),
        None => Finding::warning(
            ID,
            "gdb runs scripts that lie in debug files, or beside them, by itself: nothing in ~/.gdbinit says otherwise",
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

/// Whether a file's last word about it is that scripts are run; `None` where it says nothing.
fn last_word(text: &str) -> Option<bool> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    text.lines()
        .filter_map(|line| {
            let words = words(line);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words.as_slice() {
                ["set", "auto-load", "no" | "off" | "0" | "disable"] => Some(false),
                ["set", "auto-load"] | ["set", "auto-load", "yes" | "on" | "1" | "enable"] => Some(true),
                _ => None,
            }
        })
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;
    use symseal_server::Standing;

    #[test]
    fn settings_of_gdb_are_read_as_gdb_reads_them() {
        let home = tempfile::tempdir().unwrap();
        let standing = || look(Some(home.path())).standing;
        assert_eq!(standing(), Standing::Warning);
        let write = |text: &str| std::fs::write(home.path().join(".gdbinit"), text).unwrap();
        write("set pagination off\n  set auto-load  no\n");
        assert_eq!(standing(), Standing::Ok);
        write("set auto-load no\nset auto-load yes\n");
        assert_eq!(standing(), Standing::Warning);
        write("# set auto-load no\n");
        assert_eq!(standing(), Standing::Warning);
        assert_eq!(look(None).standing, Standing::Skipped);
    }
}
