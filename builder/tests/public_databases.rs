//! Program databases without private symbols, as Microsoft's linker writes them beside the whole ones (`/PDBSTRIPPED`).

use std::path::Path;

use crate::inputs::{builder, output, report, run, tool};
use symseal_builder::{PairedBy, PairedRole};
use symseal_bundle::DebugInfo;

const SOURCE: &str = "static __attribute__((noinline)) int hidden(int x) { return x * x + 3; }\n\
                      __declspec(dllexport) int shown(int x) { return hidden(x) + hidden(x + 1); }\n";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// lld knows `/pdbstripped` and does nothing, so a whole database is made one: its header says so, and its modules have no symbols and no
/// lines. (LLVM, "The PDB DBI Stream" and "The MSF File Format")
fn stripped(mut pdb: Vec<u8>) -> Vec<u8> {
    const DBI: usize = 3;
    const HEADER: usize = 64;
    const FLAGS: usize = 56;
    const STRIPPED: u8 = 2;
    let number = |pdb: &[u8], at: usize| u32::from_le_bytes(pdb[at..at + 4].try_into().unwrap()) as usize;
    let page = number(&pdb, 32);
    let directory_pages = number(&pdb, 44).div_ceil(page);
    let directory_map = number(&pdb, 52) * page;
    let directory: Vec<usize> = (0..directory_pages)
        .flat_map(|at| {
            let start = number(&pdb, directory_map + 4 * at) * page;
            (start..start + page).step_by(4).map(|at| number(&pdb, at)).collect::<Vec<_>>()
        })
        .collect();
    let count = directory[0];
    let pages_of = |stream: usize| directory[1 + stream].div_ceil(page);
    let before: usize = (0..DBI).map(pages_of).sum();
    let pages: Vec<usize> = directory[1 + count + before..][..pages_of(DBI)].to_vec();
    let place = |at: usize| pages[at / page] * page + at % page;
    let modules = (0..4).map(|at| usize::from(pdb[place(24 + at)]) << (8 * at)).sum::<usize>();
    pdb[place(FLAGS)] |= STRIPPED;
    let mut at = HEADER;
    while at < HEADER + modules {
        // The stream's number, then the sizes of symbols and of lines in two forms.
        pdb[place(at + 34)] = 0xff;
        pdb[place(at + 35)] = 0xff;
        (36..48).for_each(|byte| pdb[place(at + byte)] = 0);
        at += 64;
        for _ in ["name", "object file"] {
            while pdb[place(at)] != 0 {
                at += 1;
            }
            at += 1;
        }
        at = at.next_multiple_of(4);
    }
    pdb
}

#[test]
fn of_a_private_and_a_public_program_database_the_private_one_is_taken_and_the_other_named() {
    let (Some(clang), Some(link), Some(pdbutil)) = (tool("clang"), tool("lld-link"), tool("llvm-pdbutil")) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("app.c"), SOURCE).unwrap();
    let options = ["--target=x86_64-pc-windows-msvc", "-O1", "-g", "-gcodeview", "-c"];
    run(&clang, &[&options[..], &[text(&at("app.c")), "-o", text(&at("app.obj"))]].concat());
    let out = format!("/out:{}", text(&at("app.dll")));
    run(&link, &["/dll", "/noentry", "/nodefaultlib", "/debug", &out, text(&at("app.obj"))]);
    std::fs::write(at("app_public.pdb"), stripped(std::fs::read(at("app.pdb")).unwrap())).unwrap();
    for (name, is_stripped) in [("app.pdb", false), ("app_public.pdb", true)] {
        let said = output(&pdbutil, &["dump", "--summary", "--publics", "--symbols", text(&at(name))]);
        assert!(said.contains(&format!("Is stripped: {is_stripped}")) && said.contains("`shown`"), "{said}");
        assert_eq!(said.contains("S_LPROC32"), !is_stripped, "{said}");
    }

    // Whatever the order.
    for inputs in [["app.dll", "app.pdb", "app_public.pdb"], ["app_public.pdb", "app.pdb", "app.dll"]] {
        let inputs = inputs.map(at);
        let found = report(&inputs);
        let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
        let [pdb] = module.paired.as_slice() else { panic!("{module:#?}") };
        assert!(pdb.place.ends_with("app.pdb"), "{module:#?}");
        assert_eq!((pdb.role, pdb.paired_by), (PairedRole::Pdb, Some(PairedBy::GuidAge)));
        assert_eq!((module.debug_info, module.functions["pdb"]), (DebugInfo::Full, 2));
        let [public] = found.superseded.as_slice() else { panic!("{found:#?}") };
        assert!(public.place.ends_with("app_public.pdb") && public.by.ends_with("app.pdb"));
        assert_eq!(public.rule, "debug information of the same id that tells more");
        assert!(found.mismatches.is_empty() && found.is_complete(), "{found:#?}");
        builder(&inputs).strict(true).build_into(&at("layout")).unwrap();
    }

    // Alone it pairs, and gives the names that are public.
    let found = report(&[at("app.dll"), at("app_public.pdb")]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!((module.debug_info, module.functions["pdb"]), (DebugInfo::Symbols, 1));
    assert!(module.paired[0].place.ends_with("app_public.pdb") && found.mismatches.is_empty(), "{found:#?}");
}
