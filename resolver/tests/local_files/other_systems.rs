//! Debug files of Windows' programs and of macOS': program databases, MinGW's DWARF, dSYM bundles.

use std::sync::Arc;

use symseal_artifact::ObjectFile;
use symseal_module::{MissReason, Quality, ResolverStep, Rva};
use symseal_resolver::{
    CheckFile, DigestOf, FetchedFile, NotFetched, Options, Outcome, Resolver, SymbolServers, WantedFile,
};

use crate::scene::{DEBUG_FILE, SOURCE, Scene, address, ask, id_of, tool, tried};

#[test]
fn a_program_database_beside_its_program_is_of_its_guid_and_age() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    std::fs::write(folder.join("app.c"), SOURCE).unwrap();
    let clang = ["--target=x86_64-pc-windows-msvc", "-O1", "-g", "-gcodeview", "-c", "app.c", "-o", "app.obj"];
    let link = |pdb: &str| {
        let pdb = format!("/pdb:{pdb}");
        let arguments =
            ["/nologo", "/debug", "/nodefaultlib", "/entry:main", "/subsystem:console", "/out:app.exe", "app.obj"];
        tool(&["lld-link-19", "lld-link"], &[&arguments[..], &[pdb.as_str()]].concat(), folder)
    };
    if tool(&["clang", "clang-19"], &clang, folder).is_none() || link("core.pdb").is_none() {
        return;
    }
    let (app, id) = (folder.join("app.exe"), id_of(&folder.join("app.exe")));
    let resolver = || Resolver::new(Options { local_files: true, ..Options::default() });
    // The first address of code, which is that of a function of the source.
    let bytes = std::fs::read(&app).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let rva = object.unwind_inputs().text[0].start - object.image_base().0;
    let frame = ask(&resolver(), &app, &id, rva);
    assert_eq!((frame.resolver, frame.quality), (DEBUG_FILE, Quality::Full), "{:#?}", frame.tried);
    assert_eq!(frame.tried[0].step, ResolverStep::SymbolServer);
    assert!(tried(&frame, DEBUG_FILE).detail.ends_with("core.pdb"));
    // Under the program's own name, too.
    std::fs::rename(folder.join("core.pdb"), folder.join("app.pdb")).unwrap();
    assert_eq!(ask(&resolver(), &app, &id, rva).frames, frame.frames);
    // Of a later build.
    let kept = std::fs::read(&app).unwrap();
    std::fs::write(folder.join("app.c"), SOURCE.replace("+ 3", "+ 4")).unwrap();
    tool(&["clang", "clang-19"], &clang, folder).unwrap();
    link("app.pdb").unwrap();
    std::fs::write(&app, kept).unwrap();
    let stale = ask(&resolver(), &app, &id, rva);
    assert_eq!(tried(&stale, DEBUG_FILE).outcome, Outcome::Miss(MissReason::DebugIdMismatch), "{:#?}", stale.tried);
}

/// A server that has these bytes, whatever it is asked for.
#[derive(Debug)]
struct Gives(Vec<u8>);

impl SymbolServers for Gives {
    fn fetch(&self, _: &WantedFile<'_>, check: CheckFile<'_>) -> Result<FetchedFile, NotFetched> {
        check(&self.0).map_err(|(reason, why)| NotFetched::lasting(reason, why))?;
        Ok(FetchedFile { bytes: self.0.clone(), from: "the server".into() })
    }
}

#[test]
fn a_program_database_of_symbols_does_not_hide_the_dwarf_of_its_program() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let sources = [("app.c", SOURCE), ("other.c", "void __main(void) {}\nint other(int x) { return x * 3; }\n")];
    for (name, text) in sources {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let compile = |flag: &str, source: &str, object: &str| {
        let arguments = ["--target=x86_64-w64-windows-gnu", "-O1", "-g", flag, "-c", source, "-o", object];
        tool(&["clang", "clang-19"], &arguments, folder)
    };
    // One unit is described by DWARF, the other one in the program database.
    let made = compile("-gdwarf", "app.c", "app.o").and_then(|()| compile("-gcodeview", "other.c", "other.o"));
    let link = ["-m", "i386pep", "-e", "main", "--build-id", "--pdb=app.pdb", "-o", "app.exe", "app.o", "other.o"];
    if made.and_then(|()| tool(&["ld.lld-19", "ld.lld"], &link, folder)).is_none() {
        return;
    }
    let id = id_of(&folder.join("app.exe"));
    let scene = Scene { root, id };
    let bundled = scene.bundled(&["app.exe", "app.pdb"]);
    std::fs::rename(scene.at("app.exe"), scene.at("app")).unwrap();
    let bytes = std::fs::read(scene.at("app")).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let text = object.unwind_inputs().text.into_iter().flatten();
    let addresses: Vec<u64> = text.map(|svma| svma - object.image_base().0).collect();
    let agrees = |resolver: &Resolver, of_pdb: ResolverStep| {
        let mut steps = std::collections::BTreeMap::<_, usize>::new();
        for rva in addresses.iter().copied() {
            let (found, expected) = (scene.ask(resolver, rva), bundled.symbolize(&scene.id, Rva(rva)));
            let told = (&expected.frames, expected.approximate, expected.symbol_offset);
            assert_eq!((&found.frames, found.approximate, found.symbol_offset), told, "{rva:#x}: {:#?}", found.tried);
            *steps.entry((found.resolver, found.quality)).or_default() += 1;
        }
        for step in [of_pdb, ResolverStep::BinaryDebugInfo] {
            assert!(steps.get(&(step, Quality::Full)).is_some_and(|addresses| *addresses > 2), "{steps:?}");
        }
    };
    agrees(&Resolver::new(Options { local_files: true, ..Options::default() }), DEBUG_FILE);
    // A server has the program database, and this machine the program.
    let servers = Arc::new(Gives(std::fs::read(scene.at("app.pdb")).unwrap()));
    std::fs::remove_file(scene.at("app.pdb")).unwrap();
    let options = Options { local_files: true, online: true, ..Options::default() };
    let online = Resolver::new(options).with_servers(servers.clone());
    agrees(&online, ResolverStep::SymbolServer);
    let of_pdb =
        addresses.iter().map(|rva| scene.ask(&online, *rva)).find(|it| it.resolver == ResolverStep::SymbolServer);
    let of: Vec<DigestOf> = of_pdb.unwrap().digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::DebugFile, DigestOf::Binary]);
    // Where files of this machine may not be read, none is.
    let alone = Resolver::new(Options { online: true, ..Options::default() }).with_servers(servers);
    let read = addresses.iter().any(|rva| scene.ask(&alone, *rva).digests.iter().any(|it| it.of == DigestOf::Binary));
    assert!(!read);
}

#[test]
fn a_debug_file_of_mingw_is_found_by_its_link_and_counts_by_its_checksum() {
    let objcopy = "x86_64-w64-mingw32-objcopy";
    // Without a build-id nothing but the link says whose a debug file is.
    for (flag, other) in
        [("-Wl,--build-id", MissReason::DebugIdMismatch), ("-Wl,--build-id=none", MissReason::ChecksumMismatch)]
    {
        let made = |source: &str| {
            let root = tempfile::tempdir().unwrap();
            std::fs::write(root.path().join("app.c"), source).unwrap();
            let compile = ["-g", "-O1", flag, "app.c", "-o", "app.exe"];
            tool(&["x86_64-w64-mingw32-gcc"], &compile, root.path())?;
            std::fs::rename(root.path().join("app.exe"), root.path().join("app")).unwrap();
            let id = id_of(&root.path().join("app"));
            Some(Scene { root, id })
        };
        let Some(scene) = made(SOURCE) else { return };
        let hidden = address(&scene.at("app"), "hidden");
        std::fs::create_dir(scene.at("linked")).unwrap();
        scene.run(objcopy, &["--only-keep-debug", "app", "linked/app.dbg"]).unwrap();
        scene.run(objcopy, &["--strip-all", "app"]).unwrap();
        scene.run(objcopy, &["--add-gnu-debuglink=linked/app.dbg", "app"]).unwrap();
        let missed = scene.ask(&scene.resolver(), hidden);
        assert_eq!(tried(&missed, DEBUG_FILE).outcome, Outcome::Miss(MissReason::NoDebugFile), "{:#?}", missed.tried);
        let good = std::fs::read(scene.at("linked/app.dbg")).unwrap();
        let bundled = scene.bundled(&["app", "linked/app.dbg"]);
        // Beside the program, in `.debug`, and below the debug directory.
        let below = scene.at("debug").join(scene.root.path().strip_prefix("/").unwrap()).join("app.dbg");
        for place in [scene.at("app.dbg"), scene.at(".debug/app.dbg"), below] {
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(&place, &good).unwrap();
            let found = scene.ask(&scene.resolver(), hidden);
            assert_eq!((found.resolver, found.quality), (DEBUG_FILE, Quality::Full), "{:#?}", found.tried);
            assert_eq!(found.frames, bundled.symbolize(&scene.id, Rva(hidden)).frames);
            // The same file but for a byte.
            std::fs::write(&place, [&good[..], &[0]].concat()).unwrap();
            let missed = scene.ask(&scene.resolver(), hidden);
            let outcome = tried(&missed, DEBUG_FILE).outcome;
            assert_eq!(outcome, Outcome::Miss(MissReason::ChecksumMismatch), "{:#?}", missed.tried);
            assert!(tried(&missed, DEBUG_FILE).detail.contains("of .gnu_debuglink"));
            std::fs::remove_file(&place).unwrap();
        }
        // Of another program: where there are ids, these say more.
        let another = made(&SOURCE.replace("+ 3", "+ 4")).unwrap();
        another.run(objcopy, &["--only-keep-debug", "app", "app.dbg"]).unwrap();
        std::fs::copy(another.at("app.dbg"), scene.at("app.dbg")).unwrap();
        let missed = scene.ask(&scene.resolver(), hidden);
        assert_eq!(tried(&missed, DEBUG_FILE).outcome, Outcome::Miss(other), "{:#?}", missed.tried);
    }
}

#[test]
fn a_dsym_beside_a_program_is_of_its_uuid() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("Some.app/Contents/MacOS");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("app.c"), SOURCE).unwrap();
    let clang = ["--target=x86_64-apple-macos11", "-O1", "-g", "-c", "app.c", "-o", "app.o"];
    let link = ["-arch", "x86_64", "-platform_version", "macos", "11.0", "11.0", "-undefined", "dynamic_lookup"];
    let link = [&link[..], &["-e", "_main", "-o", "app", "app.o"]].concat();
    let made = tool(&["clang", "clang-19"], &clang, &folder)
        .and_then(|()| tool(&["ld64.lld-19", "ld64.lld"], &link, &folder))
        .and_then(|()| tool(&["dsymutil", "dsymutil-19"], &["app", "-o", "app.dSYM"], &folder));
    if made.is_none() {
        return;
    }
    std::fs::remove_file(folder.join("app.o")).unwrap();
    let (app, id) = (folder.join("app"), id_of(&folder.join("app")));
    let resolver = || Resolver::new(Options { local_files: true, ..Options::default() });
    let dwarf = folder.join("app.dSYM/Contents/Resources/DWARF/app");
    let bytes = std::fs::read(&dwarf).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let stream = symseal_artifact::functions(&object, &symseal_artifact::DebugFiles::default()).unwrap();
    let rva = stream.functions.iter().find(|function| stream.strings.get(function.name) == "main").unwrap().start.0;
    let frame = ask(&resolver(), &app, &id, rva);
    assert_eq!((frame.resolver, frame.quality), (DEBUG_FILE, Quality::Full), "{:#?}", frame.tried);
    // Beside the application around it.
    std::fs::rename(folder.join("app.dSYM"), root.path().join("Some.app.dSYM")).unwrap();
    assert_eq!(ask(&resolver(), &app, &id, rva).frames, frame.frames);
    std::fs::remove_dir_all(root.path().join("Some.app.dSYM")).unwrap();
    let without = ask(&resolver(), &app, &id, rva);
    assert_eq!(tried(&without, DEBUG_FILE).outcome, Outcome::Miss(MissReason::NoDebugFile));
    assert_ne!(without.resolver, DEBUG_FILE);
}
