//! Files that claim one debug id and are of different builds: no name of a stale one reaches a bundle unsaid.

use std::path::{Path, PathBuf};

use crate::inputs::{SOURCE, builder, compile, report, run, tool};
use symseal_artifact::{ObjectFile, PdbFile};
use symseal_builder::{BuildError, Conflict};
use symseal_bundle::FileRole;

const ID: &str = "-Wl,--build-id=0x1234567890abcdef";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A function of that name, and one that both builds have.
fn source(name: &str) -> String {
    format!("int {name}(int x) {{ return x * 3 + 1; }}\nint other(int x) {{ return {name}(x) + 2; }}\n")
}

/// In `dir`: `app.so` without symbols beside its `app.debug`, and `old.debug` of a build that told more.
fn stale(dir: &Path, flag: &str) -> Option<[PathBuf; 3]> {
    let (cc, objcopy, strip) = (tool("cc")?, tool("objcopy")?, tool("strip")?);
    let [app, debug, old] = ["app.so", "app.debug", "old.debug"].map(|name| dir.join(name));
    compile(&cc, dir, "app.so", &source("helper_1"), &["-g1", flag, ID]);
    let unstripped = compile(&cc, dir, "old.so", &source("helper_2"), &["-g", flag, ID]);
    for (from, to) in [(&app, &debug), (&unstripped, &old)] {
        run(&objcopy, &["--only-keep-debug", text(from), text(to)]);
    }
    run(&strip, &[text(&app)]);
    std::fs::remove_file(unstripped).unwrap();
    Some([app, debug, old])
}

#[track_caller]
fn check_conflict(paths: &[PathBuf], expected: FileRole, told: [&str; 4]) {
    for order in [paths.to_vec(), paths.iter().rev().cloned().collect()] {
        let error = builder(&order).report().unwrap_err();
        assert!(matches!(&error, BuildError::Conflict { conflicts, .. } if conflicts[0].role == expected), "{error}");
        let error = error.to_string();
        assert!(told.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn a_debug_file_that_tells_more_of_other_functions_does_not_take_the_place_of_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(files) = stale(dir.path(), "-fvisibility=hidden") else { return };
    check_conflict(&files, FileRole::Debuginfo, ["app.debug", "old.debug", "helper_1", "helper_2"]);
}

#[test]
fn of_two_debug_files_the_one_that_contradicts_the_binarys_own_symbols_is_a_mismatch() {
    let dir = tempfile::tempdir().unwrap();
    let Some([app, debug, old]) = stale(dir.path(), "-fvisibility=default") else { return };
    let found = report(&[app.clone(), debug.clone(), old.clone()]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!(module.debug_file.as_deref(), Some(text(&debug)));
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mismatch.binary.place.as_str(), mismatch.debug_file.place.as_str()), (text(&app), text(&old)));
    assert!(mismatch.expected.contains("helper_1") && mismatch.found.contains("helper_2"), "{mismatch:?}");
    assert!(found.superseded.is_empty() && !found.is_complete(), "{found:#?}");
}

#[test]
fn copies_of_one_build_in_every_state_are_one_module() {
    let (Some(cc), Some(objcopy), Some(strip)) = (tool("cc"), tool("objcopy"), tool("strip")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (language, flags) in [("plain", &["-g"][..]), ("hidden", &["-g", "-fvisibility=hidden", "-O2"])] {
        let source = format!("{}__attribute__((alias(\"other\"))) int again(int);\n", source("helper"));
        let full = compile(&cc, dir.path(), &format!("{language}.so"), &source, &[flags, &[ID]].concat());
        let copies = [
            ("--only-keep-debug", at("a.debug")),
            ("--strip-debug", at("symbols.so")),
            ("--strip-unneeded", at("unneeded.so")),
            ("--discard-all", at("globals.so")),
            ("--strip-all", at("shipped.so")),
        ];
        for (flag, to) in &copies {
            run(&objcopy, &[flag, text(&full), text(to)]);
        }
        run(&strip, &["--strip-debug", "-o", text(&at("symbols.debug")), text(&at("a.debug"))]);
        let mut paths: Vec<PathBuf> = copies.into_iter().map(|(_, path)| path).collect();
        paths.extend([full, at("symbols.debug")]);
        let found = report(&paths);
        let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
        assert_eq!(module.binary.as_deref(), Some(text(&at("shipped.so"))), "{found:#?}");
        assert_eq!(module.debug_file.as_deref(), Some(text(&at("a.debug"))), "{found:#?}");
        assert!(found.is_complete(), "{found:#?}");
    }
}

#[test]
fn copies_of_one_debug_file_that_are_compressed_in_several_ways_are_one() {
    let (Some(cc), Some(objcopy), Some(strip)) = (tool("cc"), tool("objcopy"), tool("strip")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let long: String =
        (0..200).map(|at| source(&format!("helper_{at}")).replace("other", &format!("other_{at}"))).collect();
    let app = compile(&cc, dir.path(), "app.so", &long, &["-g", ID]);
    let mut paths = vec![app.clone()];
    for way in ["none", "zlib", "zlib-gnu"] {
        let debug = at(&format!("{way}.debug"));
        run(&objcopy, &["--only-keep-debug", &format!("--compress-debug-sections={way}"), text(&app), text(&debug)]);
        paths.push(debug);
    }
    let sizes: Vec<u64> = paths.iter().map(|path| path.metadata().unwrap().len()).collect();
    assert!(sizes[2] < sizes[1] && sizes[3] < sizes[1], "{sizes:?}");
    run(&strip, &[text(&app)]);
    let found = report(&paths);
    assert_eq!((found.modules.len(), found.superseded.len()), (1, 2), "{found:#?}");
    assert!(found.is_complete(), "{found:#?}");
}

/// libtool compiles a source twice, for a library and for an archive; the id that clang gives to the unit is made of what both have in common.
#[test]
fn of_split_files_with_one_id_each_module_has_the_one_that_its_unit_names() {
    let Some(clang) = tool("clang-19").or_else(|| tool("clang")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at(".libs")).unwrap();
    std::fs::write(at("b.c"), source("b")).unwrap();
    for (object, flag) in [("b.o", "-fno-pic"), (".libs/b.o", "-fPIC")] {
        // The name in the unit is the one that is given here.
        let mut command = std::process::Command::new(&clang);
        command.args(["-c", "-g", "-O1", "-gsplit-dwarf", flag, "-o", object, "b.c"]).current_dir(dir.path());
        assert!(command.status().unwrap().success());
        let library = at(if flag == "-fPIC" { "shared.so" } else { "other.so" });
        // Both are linked in the same way: what is compared is what their units name.
        let id = format!("-Wl,--build-id=0x{}", if flag == "-fPIC" { "dd0a" } else { "dd0b" });
        run(&clang, &["-shared", "-nostdlib", "-Wl,-z,notext", &id, "-o", text(&library), text(&at(object))]);
    }
    let ids = ["b.dwo", ".libs/b.dwo"].map(|name| {
        let bytes = std::fs::read(at(name)).unwrap();
        ObjectFile::parse(&bytes).unwrap().split_ids()
    });
    assert_eq!(ids[0], ids[1], "the compiler gives them ids of their own");
    let taken = |module: &str| {
        let found = report(&[at(module), at("b.dwo"), at(".libs/b.dwo")]);
        let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
        superseded.by.clone()
    };
    assert_eq!(taken("shared.so"), text(&at(".libs/b.dwo")));
    assert_eq!(taken("other.so"), text(&at("b.dwo")));
}

/// The id that clang gives to a unit knows nothing of the sizes of functions, so that two versions of a source may have one.
#[test]
fn of_split_files_with_one_id_each_module_has_the_one_that_describes_its_code() {
    let Some(clang) = tool("clang-19").or_else(|| tool("clang")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let body = ["s += p[i];", "s = (s << 5) ^ (s >> 3) ^ p[i] ^ (i * 31) + n;"];
    let made = ["1.0", "1.1"].map(|version| {
        let at = |name: &str| dir.path().join(version).join(name);
        std::fs::create_dir(dir.path().join(version)).unwrap();
        let statement = body[usize::from(version == "1.1")];
        let source = format!(
            "int checksum(const unsigned char *p, int n) {{ int s = 0; for (int i = 0; i < n; i++) {statement} return s; }}\n\
             int finish(int x) {{ return x + 1; }}\n"
        );
        std::fs::write(at("z.c"), source).unwrap();
        // Both are compiled in one folder, as far as they tell.
        let folder = format!("-ffile-prefix-map={}=/b", dir.path().join(version).display());
        let mut command = std::process::Command::new(&clang);
        command.args(["-c", "-g", "-gdwarf-5", "-gsplit-dwarf", "-O0", "-fPIC", &folder, "-o", "z.o", "z.c"]);
        assert!(command.current_dir(dir.path().join(version)).status().unwrap().success());
        let library = at("libz.so");
        run(&clang, &["-shared", "-nostdlib", "-Wl,--build-id", "-o", text(&library), text(&at("z.o"))]);
        [library, at("z.dwo")]
    });
    let ids = made.each_ref().map(|[_, split]| {
        let bytes = std::fs::read(split).unwrap();
        ObjectFile::parse(&bytes).unwrap().split_ids()
    });
    assert_eq!(ids[0], ids[1], "the compiler gives them ids of their own");
    // Neither name nor nearness leads to the right one.
    let [[old, old_split], [new, new_split]] = &made;
    let [aside, away] = [("1.0", new_split), ("1.1", old_split)].map(|(version, split)| {
        let moved = dir.path().join(version).join("moved.dwo");
        std::fs::copy(split, &moved).unwrap();
        moved
    });
    for (library, right) in [(old, &away), (new, &aside)] {
        let found = report(&[library.clone(), aside.clone(), away.clone()]);
        let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
        assert_eq!(superseded.by, text(right));
    }
    let found = report(&[old.clone(), new.clone(), aside.clone(), away.clone()]);
    assert!(found.is_complete() && found.superseded.is_empty(), "{found:#?}");
    for (library, right) in [(old, &away), (new, &aside)] {
        let module = found.modules.iter().find(|module| module.binary.as_deref() == Some(text(library))).unwrap();
        let [split] = module.paired.as_slice() else { panic!("{module:#?}") };
        assert_eq!(split.place, text(right));
    }
}

/// Two programs of one source for two processors of a kind, and what both have in common: a unit is in either's package.
#[test]
fn of_packages_that_share_units_each_program_is_read_with_its_own() {
    let (Some(clang), Some(dwp)) =
        (tool("clang-19").or_else(|| tool("clang")), tool("llvm-dwp-19").or_else(|| tool("llvm-dwp")))
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let unit = "unsigned count(const unsigned *p, int n) { unsigned s = 0; for (int i = 0; i < n; i++) s += __builtin_popcount(p[i]); return s; }\n\
                int after(int x) { return x + 1; }\n";
    std::fs::write(at("u.c"), unit).unwrap();
    std::fs::write(at("v.c"), "int other(int x) { return x * 3; }\n").unwrap();
    for (program, flag) in [("app", "-mno-popcnt"), ("tool", "-mpopcnt")] {
        let objects = ["u.c", "v.c"].map(|source| {
            let object = format!("{program}-{source}.o");
            let flag = if source == "u.c" { flag } else { "-mno-popcnt" };
            let mut command = std::process::Command::new(&clang);
            command.args(["-c", "-g", "-gdwarf-5", "-gsplit-dwarf", "-O2", "-fPIC", flag, "-o", &object, source]);
            assert!(command.current_dir(dir.path()).status().unwrap().success());
            at(&object)
        });
        let [u, v] = objects.each_ref().map(|object| text(object));
        run(&clang, &["-shared", "-nostdlib", "-Wl,--build-id", "-o", text(&at(program)), u, v]);
        let package = at(&format!("{program}.dwp"));
        run(&dwp, &["-e", text(&at(program)), "-o", text(&package)]);
    }
    let units = |name: &str| ObjectFile::parse(&std::fs::read(at(name)).unwrap()).unwrap().split_ids();
    // Where the compiler tells them apart there is nothing to see.
    let shared = units("app.dwp").iter().filter(|id| units("tool.dwp").contains(id)).count();
    let alone = ["app", "tool"].map(|program| report(&[at(program), at(&format!("{program}.dwp"))]));
    let files = ["app", "app.dwp", "tool", "tool.dwp"].map(at);
    let renamed = [at("app"), at("1.dwp"), at("tool"), at("2.dwp")];
    for (from, to) in files.iter().zip(&renamed).filter(|(from, to)| from != to) {
        std::fs::copy(from, to).unwrap();
    }
    // By their names, and where these say nothing.
    for inputs in [files.to_vec(), renamed.to_vec()] {
        let found = report(&inputs);
        assert!(found.is_complete(), "{shared} shared units: {found:#?}");
        for (program, alone) in ["app", "tool"].iter().zip(&alone) {
            let of = |report: &symseal_builder::BuildReport| {
                let module = report.modules.iter().find(|module| module.name == *program).unwrap();
                (module.functions.clone(), module.skipped.clone(), module.missing.clone())
            };
            assert_eq!(of(&found), of(alone), "{program}, {shared} shared units");
        }
    }
}

#[test]
fn two_split_files_that_give_other_units_under_one_id_are_a_contradiction() {
    let Some(cc) = tool("cc") else { return };
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let made = |name: &str| {
            let (file, object) = (at(&format!("{name}.c")), at(&format!("{name}.o")));
            std::fs::write(&file, source(name)).unwrap();
            let flags = ["-g", version, "-gsplit-dwarf", "-gno-variable-location-views", "-fPIC", "-c", "-O1", "-o"];
            run(&cc, &[&flags[..], &[text(&object), text(&file)]].concat());
            let split = at(&format!("{name}.dwo"));
            let bytes = std::fs::read(&split).unwrap();
            let ids = ObjectFile::parse(&bytes).unwrap().split_ids();
            let [id] = ids.as_slice() else { panic!("{ids:?}") };
            (object, split, *id, bytes)
        };
        let (object, right, id, bytes) = made("right");
        let (_, stale, old_id, old_bytes) = made("stale");
        run(&cc, &["-shared", "-nostdlib", ID, "-o", text(&at("app.so")), text(&object)]);
        let files = [at("app.so"), right.clone(), stale.clone()];
        // A file of the same id and contents is only another copy.
        let twin = at("twin.dwo");
        std::fs::write(&twin, [&bytes[..], b"\0"].concat()).unwrap();
        let found = report(&[at("app.so"), right.clone(), twin.clone()]);
        let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
        assert_eq!((superseded.place.as_str(), superseded.by.as_str()), (text(&twin), text(&right)));
        assert!(superseded.rule.contains("whose path fits the unit's name"), "{superseded:?}");
        if let Some(dwp) = tool("llvm-dwp") {
            run(&dwp, &[text(&right), "-o", text(&at("app.dwp"))]);
            let found = report(&[at("app.so"), right.clone(), at("app.dwp")]);
            let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
            assert_eq!(superseded.rule, "split DWARF of the same unit; a package comes first", "{found:#?}");
        }

        let place = old_bytes.windows(8).position(|bytes| bytes == old_id.to_le_bytes()).unwrap();
        let mut forged = old_bytes;
        forged[place..place + 8].copy_from_slice(&id.to_le_bytes());
        std::fs::write(&stale, &forged).unwrap();
        check_conflict(&files, FileRole::SplitDwarf, ["right.dwo", "stale.dwo", "right.c", "stale.c"]);
        if at("app.dwp").exists() {
            let files = [at("app.so"), at("app.dwp"), stale];
            check_conflict(&files, FileRole::SplitDwarf, ["app.dwp", "stale.dwo", "right.c", "stale.c"]);
        }
    }
}

/// The conflicts of a build of these files.
#[track_caller]
fn conflicts(paths: &[PathBuf]) -> Vec<Conflict> {
    match builder(paths).report() {
        Err(BuildError::Conflict { conflicts, .. }) => conflicts,
        other => panic!("{other:#?}"),
    }
}

#[test]
fn a_conflict_says_the_first_difference_in_the_order_of_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let code = |number: u32| format!("int answer(void) {{ return {number}; }}");
    for (first, second) in [(17, 34), (34, 17)] {
        let made = |name: &str, number: u32| compile(&cc, dir.path(), name, &code(number), &["-g", ID]);
        let files = [made("a.so", first), made("b.so", second)];
        // Where the tools see the first byte that is another one.
        let dumps = files.each_ref().map(|file| {
            let dump = dir.path().join("text");
            run(&objcopy, &["-O", "binary", "--only-section=.text", text(file), text(&dump)]);
            std::fs::read(dump).unwrap()
        });
        let at = dumps[0].iter().zip(&dumps[1]).position(|(one, other)| one != other).unwrap();
        let bytes = std::fs::read(&files[0]).unwrap();
        let start = ObjectFile::parse(&bytes).unwrap().section(".text").unwrap().0.0;
        for order in [[0, 1], [1, 0]] {
            let found = conflicts(&order.map(|number: usize| files[number].clone()));
            let [conflict] = found.as_slice() else { panic!("{found:#?}") };
            assert_eq!((conflict.first.as_str(), conflict.second.as_str()), (text(&files[0]), text(&files[1])));
            let address = start + at as u64;
            assert_eq!(
                conflict.difference,
                format!(
                    "the one has the byte {first:#04x} at {address:#x}, the other the byte {second:#04x} at {address:#x}"
                )
            );
        }
    }
}

#[test]
fn debug_files_with_the_same_functions_and_other_types_differ_in_their_debug_information() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let debug = ["first", "second"].map(|member| {
        let source = format!("struct s {{ int {member}; }} one; int answer(void) {{ return one.{member}; }}");
        let whole = compile(&cc, dir.path(), "whole.so", &source, &["-g", ID]);
        let debug = dir.path().join(format!("{member}.debug"));
        run(&objcopy, &["--only-keep-debug", text(&whole), text(&debug)]);
        debug
    });
    let found = conflicts(&debug);
    let [conflict] = found.as_slice() else { panic!("{found:#?}") };
    assert!(conflict.difference.contains(" of .debug_"), "{conflict:?}");
}

/// Of two packages that share several units the one is named that is another one.
#[test]
fn a_conflict_of_packages_names_the_unit_that_differs() {
    let (Some(cc), Some(dwp)) = (tool("cc"), tool("llvm-dwp")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let made = |name: &str| {
        let (file, object) = (at(&format!("{name}.c")), at(&format!("{name}.o")));
        std::fs::write(&file, format!("int {name}(int x) {{ return x * 3 + 1; }}\n")).unwrap();
        run(&cc, &["-gdwarf-5", "-gsplit-dwarf", "-fPIC", "-c", "-O1", "-o", text(&object), text(&file)]);
        let bytes = std::fs::read(at(&format!("{name}.dwo"))).unwrap();
        let ids = ObjectFile::parse(&bytes).unwrap().split_ids();
        (object, bytes, ids[0])
    };
    let units = ["one", "two", "three"].map(made);
    let objects = units.each_ref().map(|(object, ..)| text(object).to_owned());
    let library = at("app.so");
    let mut link = vec!["-shared", "-nostdlib", ID, "-o", text(&library)];
    link.extend(objects.iter().map(String::as_str));
    run(&cc, &link);
    let pack = |package: &str, parts: &[&str]| {
        let parts: Vec<String> = parts.iter().map(|part| text(&at(&format!("{part}.dwo"))).to_owned()).collect();
        let mut arguments: Vec<&str> = parts.iter().map(String::as_str).collect();
        let output = at(package);
        arguments.extend(["-o", text(&output)]);
        run(&dwp, &arguments);
    };
    pack("app.dwp", &["one", "two", "three"]);
    let (_, stale, stale_id) = made("stale");
    let place = stale.windows(8).position(|bytes| bytes == stale_id.to_le_bytes()).unwrap();
    for (number, (_, _, id)) in units.iter().enumerate() {
        let mut forged = stale.clone();
        forged[place..place + 8].copy_from_slice(&id.to_le_bytes());
        std::fs::write(at("stale.dwo"), forged).unwrap();
        let mut parts = ["one", "two", "three"];
        parts[number] = "stale";
        pack("stale.dwp", &parts);
        let found = conflicts(&[at("app.so"), at("app.dwp"), at("stale.dwp")]);
        let [conflict] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!(conflict.id, format!("unit {id:016x}"), "{conflict:?}");
        let name = ["one", "two", "three"][number];
        // `app.dwp` comes first.
        let (ours, theirs) = conflict.difference.split_once(", the other ").unwrap();
        assert!(ours.contains(&format!("{name}.c")) && theirs.contains("stale.c"), "{conflict:?}");
    }
}

/// A DLL and its program database, made in a folder of that name.
fn windows(dir: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    let (clang, link) = (tool("clang")?, tool("lld-link")?);
    let at = |name: &str| dir.join(name);
    std::fs::write(
        at("a.c"),
        source(name).replace("int ", "__declspec(dllexport) int ").replace("(__declspec(dllexport) ", "("),
    )
    .unwrap();
    run(
        &clang,
        &["--target=x86_64-pc-windows-msvc", "-g", "-gcodeview", "-c", "-o", text(&at("a.obj")), text(&at("a.c"))],
    );
    let (image, pdb) = (at(&format!("{name}.dll")), at(&format!("{name}.pdb")));
    let outputs = [format!("/out:{}", text(&image)), format!("/pdb:{}", text(&pdb))];
    run(&link, &["/dll", "/noentry", "/nodefaultlib", "/debug", &outputs[0], &outputs[1], text(&at("a.obj"))]);
    Some((image, pdb))
}

#[test]
fn a_program_database_of_other_functions_is_no_later_state_of_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let (Some((image, right)), Some((_, stale))) = (windows(dir.path(), "right"), windows(dir.path(), "stale")) else {
        return;
    };
    // GUID and age as the right one has them, and the age of the stream a step further.
    let with_id_of_right = |from: &Path, to: &Path| {
        let (known, mut bytes) = (std::fs::read(&right).unwrap(), std::fs::read(from).unwrap());
        // Stored as a GUID is: three numbers, then bytes. (DCE 1.1, RPC)
        let stored = |guid: [u8; 16]| {
            let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
            order.map(|at: usize| guid[at])
        };
        let (guid, wanted) = (PdbFile::parse(&bytes).unwrap().guid(), PdbFile::parse(&known).unwrap().guid());
        let at = bytes.windows(16).position(|bytes| bytes == stored(guid)).unwrap();
        bytes[at..at + 16].copy_from_slice(&stored(wanted));
        bytes[at - 4..at].copy_from_slice(&2_u32.to_le_bytes());
        std::fs::write(to, &bytes).unwrap();
        let forged = PdbFile::parse(&bytes).unwrap();
        assert_eq!((forged.guid(), forged.stream_age()), (wanted, 2));
    };
    let later = dir.path().join("later.pdb");
    with_id_of_right(&right, &later);
    let found = report(&[image.clone(), right.clone(), later.clone()]);
    let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
    assert_eq!((superseded.by.as_str(), found.is_complete()), (text(&later), true), "{found:#?}");

    let forged = dir.path().join("forged.pdb");
    with_id_of_right(&stale, &forged);
    check_conflict(&[image, right, forged], FileRole::Debuginfo, ["right.pdb", "forged.pdb", "right at", "stale at"]);
}

#[test]
fn which_of_two_lists_of_one_dsym_is_taken_does_not_depend_on_the_directories_around_it() {
    let Some(clang) = tool("clang") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), source("helper")).unwrap();
    run(&clang, &["--target=arm64-apple-macos11", "-g", "-c", "-o", text(&at("a.o")), text(&at("a.c"))]);
    // What an object file of macOS needs to be the file of a dSYM: its type, and a UUID in place of the command that names its system.
    let mut bytes = std::fs::read(at("a.o")).unwrap();
    bytes[12..16].copy_from_slice(&10_u32.to_le_bytes());
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut place = 32;
    for _ in 0..word(&bytes, 16) {
        if word(&bytes, place) == 0x32 {
            assert_eq!(word(&bytes, place + 4), 24, "a build version without tools has the size of a UUID");
            bytes[place..place + 4].copy_from_slice(&0x1b_u32.to_le_bytes());
            bytes[place + 8..place + 24].copy_from_slice(&[0x42; 16]);
        }
        place += word(&bytes, place + 4) as usize;
    }
    let made = |name: &str, lists: [&str; 2]| {
        for (copy, list) in ["x", "y"].into_iter().zip(lists) {
            let contents = at(name).join(copy).join("App.dSYM/Contents");
            std::fs::create_dir_all(contents.join("Resources/DWARF")).unwrap();
            std::fs::write(contents.join("Resources/DWARF/App"), &bytes).unwrap();
            std::fs::write(contents.join("Info.plist"), list).unwrap();
        }
        let layout = at(&format!("layout-{name}"));
        let built = builder(&[at(name)]).build_into(&layout).unwrap();
        let [left_out] = built.report.superseded.as_slice() else { panic!("{:#?}", built.report) };
        assert!(left_out.place.ends_with("Info.plist") && left_out.by.ends_with("Info.plist"), "{left_out:?}");
        assert_eq!(left_out.rule, "a file of another copy of the same dSYM bundle");
        built.digest
    };
    let digests =
        [made("one", ["<plist>1</plist>", "<plist>2</plist>"]), made("two", ["<plist>2</plist>", "<plist>1</plist>"])];
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_boot_image_of_another_machine_with_the_hypervisors_own_id_is_told_and_the_build_goes_on() {
    let (Some(cc), Some(objcopy), Some(strip), Some(ld)) = (tool("cc"), tool("objcopy"), tool("strip"), tool("ld"))
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    // As mkelf32 of Xen does: the loaded bytes of the 64-bit program, within a program for 32 bits, and the same build-id.
    compile(&cc, dir.path(), "hypervisor", SOURCE, &["-g", "-Wl,--build-id=0xaa01020304"]);
    run(&objcopy, &["-O", "binary", "-j", ".text", &text("hypervisor"), &text("loaded")]);
    let link = || {
        let section = ".data=.text,code,alloc,load,readonly,contents";
        let object = ["-I", "binary", "-O", "elf32-i386", "-B", "i386", "--rename-section", section];
        run(&objcopy, &[&object[..], &[&text("loaded"), &text("loaded.o")]].concat());
        let options = ["-m", "elf_i386", "--build-id=0xaa01020304", "-e", "0", "-o"];
        run(&ld, &[&options[..], &[&text("boot/hypervisor.32"), &text("loaded.o")]].concat());
    };
    std::fs::create_dir(at("boot")).unwrap();
    link();
    run(&strip, &["-s", &text("boot/hypervisor.32")]);
    let found = report(&[at("hypervisor"), at("boot/hypervisor.32")]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!((module.name.as_str(), found.mismatches.len(), found.conflicts.len()), ("hypervisor", 0, 0));
    let [left_out] = found.superseded.as_slice() else { panic!("{found:#?}") };
    assert!(left_out.place.ends_with("hypervisor.32") && left_out.by.ends_with("/hypervisor"), "{left_out:?}");
    assert!(found.is_complete(), "{found:#?}");

    // One that holds other code has the id by mistake, and contradicts.
    std::fs::write(at("loaded"), [0x90; 64]).unwrap();
    link();
    let found = conflicts(&[at("hypervisor"), at("boot/hypervisor.32")]);
    let [conflict] = found.as_slice() else { panic!("{found:#?}") };
    assert!(
        conflict.difference.contains("for the machine x86, the other a file for the machine x86_64"),
        "{conflict:?}"
    );
}
