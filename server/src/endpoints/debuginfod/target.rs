//! What a path under `/buildid/` names. The path is read as it came: nothing is normalised, each part is decoded once.

use symseal_module::DebugId;

use crate::debug_files::{FileKind, Key};
use crate::http::percent_decode;

/// A build-id and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The build-id.
    pub(crate) id: Key,
    /// What is wanted.
    pub(crate) file: FileTarget,
}

/// What is wanted of a build-id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileTarget {
    /// A whole file.
    Whole(FileKind),
    /// One section's stored bytes.
    Section(String),
    /// A source file, by its absolute path.
    Source(String),
}

impl Target {
    /// Reads `<id>/<kind>[/<rest>]`; `None` when it is nothing that could be here.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let (id, rest) = path.split_once('/')?;
        // Upper case is folded; other kinds of debug ids have no place in this API.
        let id = percent_decode(id)?.parse::<DebugId>().ok().filter(|id| id.build_id().is_some())?;
        let file = match rest.split_once('/') {
            None if rest == "debuginfo" => FileTarget::Whole(FileKind::Debuginfo),
            None if rest == "executable" => FileTarget::Whole(FileKind::Executable),
            // As elfutils' server has it, which takes anything for nothing there.
            Some(("debuginfo", "")) => FileTarget::Whole(FileKind::Debuginfo),
            Some(("executable", "")) => FileTarget::Whole(FileKind::Executable),
            Some(("section", name)) if !name.is_empty() => FileTarget::Section(percent_decode(name)?),
            Some(("source", path)) => FileTarget::Source(format!("/{}", percent_decode(path)?)),
            _ => return None,
        };
        Some(Self { id: Key::Id(id), file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(path: &str, expected: Option<FileTarget>) {
        assert_eq!(
            Target::parse(path),
            expected.map(|file| Target { id: Key::Id("abcd".parse().unwrap()), file }),
            "{path}"
        );
    }

    #[test]
    fn ids_fold_case_and_names_are_decoded_once() {
        check("abcd/debuginfo", Some(FileTarget::Whole(FileKind::Debuginfo)));
        check("abcd/debuginfo/", Some(FileTarget::Whole(FileKind::Debuginfo)));
        check("ABCD/executable", Some(FileTarget::Whole(FileKind::Executable)));
        check("%61bcd/executable", Some(FileTarget::Whole(FileKind::Executable)));
        check("abcd/section/.debug_line", Some(FileTarget::Section(".debug_line".into())));
        check("abcd/section/%2Etext", Some(FileTarget::Section(".text".into())));
        check("abcd/section/a/../b", Some(FileTarget::Section("a/../b".into())));
        check("abcd/source//a b/../c", Some(FileTarget::Source("//a b/../c".into())));
        check("abcd/source/a%20b/c%2B%2B/x%23y", Some(FileTarget::Source("/a b/c++/x#y".into())));
        check("abcd/source/", Some(FileTarget::Source("/".into())));
    }

    #[test]
    fn what_is_malformed_names_nothing() {
        for path in [
            "",
            "/",
            "abcd",
            "abcd/",
            "abcd/debuginfo//",
            "abcd/debuginfo/x",
            "abcd/other",
            "abcd/section",
            "abcd/section/",
            "abc/debuginfo",
            "xy/debuginfo",
            "/debuginfo",
            "./abcd/debuginfo",
            "0000/debuginfo",
            "uuid:abcd/debuginfo",
            "abcd//debuginfo",
        ] {
            check(path, None);
        }
        check(&format!("{}/debuginfo", "ab".repeat(65)), None);
    }

    proptest! {
        #[test]
        fn no_path_breaks_the_reader(path in "[0-9a-f/%.]{0,60}|.{0,40}") {
            let _ = Target::parse(&path);
        }
    }
}
