//! What a library exports under other names than its linker has.

use crate::support::{have, run};
use symseal_artifact::{DebugFiles, ObjectFile, PdbFile, functions};
use symseal_symx::SymbolSource;

/// Of code without debug information the database has a public symbol alone: it is longer than what the library calls it, or another name.
#[test]
fn a_program_database_names_what_a_library_exports_otherwise() {
    if !have("clang") || !have("lld-link") {
        return;
    }
    for (target, before) in [("i686-pc-windows-msvc", "_"), ("x86_64-pc-windows-msvc", "")] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let function =
            |name: &str, typed: &str| format!(".globl {before}{name}\n{typed}{before}{name}:\n  nop\n  nop\n  ret\n");
        let typed = format!(".def {before}renamed_one; .scl 2; .type 32; .endef\n");
        let text = [function("exported", ""), function("renamed_one", &typed), function("behind", "")].concat();
        std::fs::write(folder.join("code.s"), text).expect("a source");
        std::fs::write(folder.join("code.def"), "EXPORTS\n  exported\n  short=renamed_one\n").expect("a file");
        run("clang", &["-target", target, "-c", "code.s", "-o", "code.obj"], folder).expect("clang assembles");
        let options = [
            "/dll",
            "/debug",
            "/noentry",
            "/nodefaultlib",
            "/safeseh:no",
            "/def:code.def",
            "/out:code.dll",
            "/pdb:code.pdb",
        ];
        let options = options.iter().copied().filter(|option| !before.is_empty() || *option != "/safeseh:no");
        let options: Vec<&str> = options.chain(["code.obj"]).collect();
        run("lld-link", &options, folder).expect("lld-link links");
        let (library, database) =
            ["code.dll", "code.pdb"].map(|name| std::fs::read(folder.join(name)).expect("a file")).into();
        let library = ObjectFile::parse(&library).expect("a library");
        let database = PdbFile::parse(&database).expect("a database");
        let with = DebugFiles { pdb: Some(&database), ..DebugFiles::default() };
        let stream = functions(&library, &with).expect("functions");
        let found: Vec<_> = stream
            .functions
            .iter()
            .map(|function| {
                let aliases = function.aliases.iter().map(|alias| stream.strings.get(*alias)).collect::<Vec<_>>();
                (stream.strings.get(function.symbol), aliases, function.size > 2)
            })
            .collect();
        let [exported, renamed, behind] = ["exported", "renamed_one", "behind"].map(|name| format!("{before}{name}"));
        let alias = if before.is_empty() { Vec::new() } else { vec!["exported"] };
        let expected = [
            (exported.as_str(), alias, true),
            (renamed.as_str(), vec!["short"], true),
            (behind.as_str(), Vec::new(), true),
        ];
        assert_eq!(found, expected, "{target}");
        // Without it there are the exports.
        let alone = functions(&library, &DebugFiles::default()).expect("functions");
        let names = alone.functions.iter().filter(|function| function.source == SymbolSource::Exports);
        let names: Vec<_> = names.map(|function| alone.strings.get(function.symbol)).collect();
        assert_eq!(names, ["exported", "short"], "{target}");
    }
}
