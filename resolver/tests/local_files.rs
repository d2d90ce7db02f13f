//! Debug files of this machine: found where debuggers look, used only where they are of the module, and as good as a bundle made of them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use symseal_artifact::{ObjectFile, ReleaseFile};
use symseal_builder::{Options as BuildOptions, SymbolBundleBuilder};
use symseal_bundle::{Bundle, LayoutDir};
use symseal_module::{
    Avma, DebugId, MappedModule, MissReason, ModuleMap, Proof, Quality, ResolverStep, Rva, UnwindMethod,
};
use symseal_resolver::{
    CheckFile, DigestOf, FetchedFile, ModuleFiles, NotFetched, Options, Outcome, ResolvedFrame, Resolver,
    SymbolServers, ThisMachine, Tried, WantedFile,
};

const SOURCE: &str = "
static inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
static __attribute__((noinline)) int hidden(int x, volatile int *y) { *y = doubled(x); return *y + 3; }
int main(int argc, char **argv) { volatile int y = 0; (void)argv; return hidden(argc, &y); }
";

/// Where modules are mapped.
const BIAS: u64 = 0x7000_0000;

/// Runs a tool in a folder; `None`, with a word about it, where there is none.
fn tool(names: &[&str], arguments: &[&str], folder: &Path) -> Option<()> {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    for name in names {
        let Ok(ran) = Command::new(name).args(arguments).current_dir(folder).output() else { continue };
        assert!(ran.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        return Some(());
    }
    assert!(!required.split(',').any(|name| names.contains(&name)), "{names:?}: not found, and it is required");
    eprintln!("SKIP {}: not found", names[0]);
    None
}

/// A folder with a program in it, and directories for debug files.
struct Scene {
    root: tempfile::TempDir,
    id: DebugId,
}

impl Scene {
    /// Compiles `app`; every other file is the test's to make.
    fn new(flags: &[&str]) -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("app.c"), SOURCE).unwrap();
        let arguments = [&["-O2", "app.c", "-Wl,--build-id", "-o", "app"], flags].concat();
        tool(&["gcc", "clang"], &arguments, root.path())?;
        let id = id_of(&root.path().join("app"));
        Some(Self { root, id })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Option<()> {
        tool(&[program], arguments, self.root.path())
    }

    /// Moves the debug information to `to`; the program keeps neither it nor its symbols.
    fn split(&self, to: &str) -> Option<()> {
        std::fs::create_dir_all(self.at(to).parent().unwrap()).unwrap();
        self.run("objcopy", &["--only-keep-debug", "app", to])?;
        self.run("objcopy", &["--strip-all", "app"])
    }

    fn by_build_id(&self) -> String {
        let hex = self.id.to_string();
        format!("debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..])
    }

    fn resolver(&self) -> Resolver {
        Resolver::new(Options { local_files: true, ..Options::default() })
            .with_debug_directories(vec![self.at("debug")])
    }

    fn ask(&self, resolver: &Resolver, rva: u64) -> ResolvedFrame {
        ask(resolver, &self.at("app"), &self.id, rva)
    }

    /// What a bundle of these files says, which the builder paired.
    fn bundled(&self, paths: &[&str]) -> Resolver {
        let layout = LayoutDir::create(self.at("layout")).unwrap();
        let options = BuildOptions { name: "app".into(), version: "1".into(), progress: None };
        let builder =
            paths.iter().fold(SymbolBundleBuilder::new(options), |builder, path| builder.add_path(self.at(path)));
        let built = builder.build(&layout).unwrap();
        let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
        Resolver::new(Options::default()).with_bundle(bundle, Proof::DigestKnown)
    }

    /// Every address of the program's code has the same frames in both.
    fn agrees(&self, local: &Resolver, bundled: &Resolver, step: ResolverStep) {
        let bytes = std::fs::read(self.at("app")).unwrap();
        let text = ObjectFile::parse(&bytes).unwrap().unwind_inputs().text;
        let mut named = 0;
        for rva in text.into_iter().flatten() {
            let (found, expected) = (self.ask(local, rva), bundled.symbolize(&self.id, Rva(rva)));
            if expected.quality == Quality::Full {
                assert_eq!((found.resolver, &found.frames), (step, &expected.frames), "{rva:#x}");
                named += 1;
            }
        }
        assert!(named > 20, "{named} addresses have lines");
    }
}

fn id_of(path: &Path) -> DebugId {
    let bytes = std::fs::read(path).unwrap();
    ReleaseFile::parse(&bytes).unwrap().debug_ids().first().unwrap().clone()
}

/// A process in which the file at `path` is mapped by the name `called`.
fn mapped(path: &Path, called: &str, id: &DebugId) -> ModuleMap {
    let bytes = std::fs::read(path).unwrap();
    let image_base = ObjectFile::parse(&bytes).unwrap().image_base();
    ModuleMap::new(vec![MappedModule {
        path: called.into(),
        debug_id: Some(id.clone()),
        start: Avma(BIAS + image_base.0),
        end: Avma(BIAS + image_base.0 + 0x100_0000),
        bias: BIAS,
        image_base,
    }])
}

fn ask_in(resolver: &Resolver, map: &ModuleMap, rva: u64) -> ResolvedFrame {
    let ip = Avma(BIAS + map.modules()[0].image_base.0 + rva);
    resolver.resolve(map, ip, true, UnwindMethod::Context)
}

fn ask(resolver: &Resolver, path: &Path, id: &DebugId, rva: u64) -> ResolvedFrame {
    ask_in(resolver, &mapped(path, path.to_str().unwrap(), id), rva)
}

/// The address of a function, by the program's own symbols before they were taken away.
fn address(path: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let stream = symseal_artifact::functions(&object, &symseal_artifact::DebugFiles::default()).unwrap();
    let found = stream.functions.iter().find(|function| stream.strings.get(function.name) == name);
    found.unwrap_or_else(|| panic!("no function {name}")).start.0
}

fn tried(frame: &ResolvedFrame, step: ResolverStep) -> &Tried {
    frame.tried.iter().find(|tried| tried.step == step).unwrap_or_else(|| panic!("{step}: {:#?}", frame.tried))
}

const DEBUG_FILE: ResolverStep = ResolverStep::DebugFile;

#[test]
fn a_debug_file_is_found_by_its_build_id_and_names_what_a_bundle_names() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    if scene.split(&scene.by_build_id()).is_none() {
        return;
    }
    let resolver = scene.resolver();
    let frame = scene.ask(&resolver, hidden);
    assert_eq!((frame.resolver, frame.quality, frame.proof), (DEBUG_FILE, Quality::Full, Proof::None));
    assert!(tried(&frame, DEBUG_FILE).detail.ends_with(".debug"), "{:?}", frame.tried);
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::DebugFile, DigestOf::Binary]);
    scene.agrees(&resolver, &scene.bundled(&["app", "debug"]), DEBUG_FILE);
    // Without a path there is still the id.
    assert_eq!(resolver.symbolize(&scene.id, Rva(hidden)).resolver, DEBUG_FILE);
    // Nothing is read that was not allowed.
    let frame = scene.ask(&Resolver::new(Options::default()).with_debug_directories(vec![scene.at("debug")]), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Skipped(MissReason::NotAllowed));
    assert_eq!(frame.quality, Quality::ModuleOffset);
}

#[test]
fn a_debug_file_with_symbols_alone_does_not_hide_the_debug_information_of_the_binary() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    let symbols = scene.by_build_id();
    std::fs::create_dir_all(scene.at(&symbols).parent().unwrap()).unwrap();
    if scene.run("objcopy", &["--only-keep-debug", "app", &symbols]).is_none() {
        return;
    }
    scene.run("strip", &["-g", &symbols]).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!((frame.resolver, frame.quality), (ResolverStep::BinaryDebugInfo, Quality::Full), "{:#?}", frame.tried);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::NoDebugInfo));
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::Binary, DigestOf::DebugFile]);
    scene.agrees(&scene.resolver(), &scene.bundled(&["app", "debug"]), ResolverStep::BinaryDebugInfo);
}

#[test]
fn who_expects_an_address_has_the_answer_of_who_does_not() {
    let own = std::env::current_exe().unwrap();
    let (id, map) = (id_of(&own), mapped(&own, own.to_str().unwrap(), &id_of(&own)));
    let bytes = std::fs::read(&own).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let stream = symseal_artifact::functions(&object, &symseal_artifact::DebugFiles::default()).unwrap();
    let step = stream.functions.len() / 24;
    let asked: Vec<Rva> =
        stream.functions.iter().step_by(step).map(|function| Rva(function.start.0 + function.size / 2)).collect();
    // No name, or that of a symbol alone: only the whole file tells.
    let asked = [asked, vec![Rva(8)]].concat();
    let resolver = || {
        Resolver::new(Options { local_files: true, ..Options::default() }).with_debug_directories(vec!["/none".into()])
    };
    let whole = resolver();
    let (expected, other) = asked.split_at(asked.len() / 2);
    let part = resolver().expecting(&id, expected);
    let mut described = 0;
    for rva in expected.iter().chain(other) {
        let (told, found) = (ask_in(&whole, &map, rva.0), ask_in(&part, &map, rva.0));
        described += usize::from(found.resolver == ResolverStep::BinaryDebugInfo);
        assert_eq!(format!("{told:?}"), format!("{found:?}"));
    }
    assert!(described > asked.len() / 2, "{described}");
}

/// What a process in a container sees, and the machine that it runs on: two trees of files.
#[derive(Debug)]
struct TwoTrees {
    inside: PathBuf,
    outside: PathBuf,
}

impl ModuleFiles for TwoTrees {
    fn open_path(&self, path: &Path) -> io::Result<File> {
        ThisMachine.open_path(&self.inside.join(path.strip_prefix("/").unwrap()))
    }

    fn open_elsewhere(&self, path: &Path) -> io::Result<File> {
        ThisMachine.open_path(&self.outside.join(path.strip_prefix("/").unwrap()))
    }
}

#[test]
fn a_wrong_debug_file_in_a_container_does_not_hide_that_of_the_machine() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let rva = address(&scene.at("app"), "hidden");
    let by_build_id = scene.by_build_id();
    let (inside, outside) = (format!("inside/{by_build_id}"), format!("outside/{by_build_id}"));
    let Some(()) = scene.split(&outside) else { return };
    std::fs::create_dir_all(scene.at(&inside).parent().unwrap()).unwrap();
    // Of another build, at the place of this one's.
    std::fs::write(scene.at("other.c"), "int main(void) { return 0; }").unwrap();
    scene.run("gcc", &["-g", "other.c", "-Wl,--build-id", "-o", &inside]).unwrap();
    std::fs::copy(scene.at("app"), scene.at("inside/app")).unwrap();
    let map = mapped(&scene.at("app"), "/app", &scene.id);
    let ask_with = |inside: PathBuf, outside: PathBuf| {
        let resolver = Resolver::new(Options { local_files: true, ..Options::default() })
            .with_debug_directories(vec!["/debug".into()])
            .with_module_files(Arc::new(TwoTrees { inside, outside }));
        ask_in(&resolver, &map, rva)
    };
    let found = ask_with(scene.at("inside"), scene.at("outside"));
    let function = found.frames.last().and_then(|frame| frame.function.as_deref());
    assert_eq!((found.resolver, function), (ResolverStep::DebugFile, Some("hidden")));
    // Where neither is of the module, the step says so of the first.
    let missed = ask_with(scene.at("inside"), scene.at("inside"));
    assert_eq!(tried(&missed, ResolverStep::DebugFile).outcome, Outcome::Miss(MissReason::DebugIdMismatch));
}

#[test]
fn a_link_counts_by_id_and_checksum() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    if scene.split("linked/app.debug").is_none() {
        return;
    }
    scene.run("objcopy", &["--add-gnu-debuglink=linked/app.debug", "app"]).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(frame.quality, Quality::ModuleOffset);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::NoDebugFile));
    let good = std::fs::read(scene.at("linked/app.debug")).unwrap();
    // Beside the program, in `.debug`, and below the debug directory.
    let below = scene.at("debug").join(scene.root.path().strip_prefix("/").unwrap()).join("app.debug");
    for place in [scene.at(".debug/app.debug"), below.clone(), scene.at("app.debug")] {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(&place, &good).unwrap();
        assert_eq!(scene.ask(&scene.resolver(), hidden).resolver, DEBUG_FILE, "{}", place.display());
        std::fs::remove_file(&place).unwrap();
    }
    std::fs::create_dir_all(below.parent().unwrap()).unwrap();
    // The same build-id and other bytes.
    let mut changed = good.clone();
    changed.push(0);
    std::fs::write(&below, &changed).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::ChecksumMismatch));
    // Of another program: that says more than the checksum.
    let other = Scene::new(&["-g", "-DOTHER", "-O1"]).unwrap();
    other.run("objcopy", &["--only-keep-debug", "app", "app.debug"]).unwrap();
    std::fs::copy(other.at("app.debug"), &below).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::DebugIdMismatch));
    assert!(tried(&frame, DEBUG_FILE).detail.contains(&other.id.to_string()));
    // Of the same build-id and with other bytes it counts at none of the places to which the link leads, also under a name that debuggers know without one.
    std::fs::remove_file(&below).unwrap();
    for place in [scene.at(".debug/app.debug"), below.clone(), scene.at("app.debug")] {
        std::fs::write(&place, &changed).unwrap();
        let frame = scene.ask(&scene.resolver(), hidden);
        let outcome = tried(&frame, DEBUG_FILE).outcome;
        assert_eq!(outcome, Outcome::Miss(MissReason::ChecksumMismatch), "{}", place.display());
        std::fs::remove_file(&place).unwrap();
    }
    std::fs::write(&below, &changed).unwrap();
    // One that is right somewhere else still counts.
    std::fs::write(scene.at("app.debug"), &good).unwrap();
    assert_eq!(scene.ask(&scene.resolver(), hidden).resolver, DEBUG_FILE);
}

#[test]
fn what_is_no_debug_file_ends_in_a_reason_and_the_binary_is_asked() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    let place = scene.at(&scene.by_build_id());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    let whole = std::fs::read(scene.at("app")).unwrap();
    for (bytes, reason) in [
        (Vec::new(), MissReason::Malformed),
        (b"\x7fELF".to_vec(), MissReason::Malformed),
        (whole[..whole.len() / 2].to_vec(), MissReason::Malformed),
        (b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0".to_vec(), MissReason::Malformed),
    ] {
        std::fs::write(&place, &bytes).unwrap();
        let frame = scene.ask(&scene.resolver(), hidden);
        assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(reason), "{} bytes", bytes.len());
        assert_eq!((frame.resolver, frame.quality), (ResolverStep::BinaryDebugInfo, Quality::Full));
    }
    // What would block or never end.
    std::fs::remove_file(&place).unwrap();
    if scene.run("mkfifo", &[place.to_str().unwrap()]).is_some() {
        let frame = scene.ask(&scene.resolver(), hidden);
        assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::FileUnreadable));
        std::fs::remove_file(&place).unwrap();
    }
    std::os::unix::fs::symlink("/dev/zero", &place).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert_eq!(tried(&frame, DEBUG_FILE).outcome, Outcome::Miss(MissReason::FileUnreadable));
    assert_eq!(frame.resolver, ResolverStep::BinaryDebugInfo);
}

#[test]
fn what_dwz_moved_out_is_followed_and_missed() {
    let Some(scene) = Scene::new(&["-g"]) else { return };
    let hidden = address(&scene.at("app"), "hidden");
    if scene.split(&scene.by_build_id()).is_none() {
        return;
    }
    // dwz moves what two files share.
    std::fs::copy(scene.at(&scene.by_build_id()), scene.at("second.debug")).unwrap();
    std::fs::create_dir_all(scene.at("debug/.dwz")).unwrap();
    let (debug, shared) = (scene.by_build_id(), scene.at("debug/.dwz/shared"));
    if scene.run("dwz", &["-m", shared.to_str().unwrap(), "-M", "../../.dwz/shared", &debug, "second.debug"]).is_none()
    {
        return;
    }
    assert!(shared.exists(), "dwz moved something");
    let expected = {
        let unpacked = Scene::new(&["-g"]).unwrap();
        ask(&unpacked.resolver(), &unpacked.at("app"), &unpacked.id, hidden).frames.clone()
    };
    let frame = scene.ask(&scene.resolver(), hidden);
    let names =
        |frame: &ResolvedFrame| frame.frames.iter().map(|it| (it.function.clone(), it.line)).collect::<Vec<_>>();
    let expected: Vec<_> = expected.iter().map(|it| (it.function.clone(), it.line)).collect();
    assert_eq!((frame.resolver, names(&frame)), (DEBUG_FILE, expected));
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::DebugFile, DigestOf::Binary, DigestOf::Companion]);
    // One of another build is as good as none.
    let other = Scene::new(&["-g", "-O1"]).unwrap();
    std::fs::copy(other.at("app"), &shared).unwrap();
    let frame = scene.ask(&scene.resolver(), hidden);
    assert!(tried(&frame, DEBUG_FILE).lacks.contains("supplementary file"), "{:?}", frame.tried);
    let of: Vec<DigestOf> = frame.digests.iter().map(|digest| digest.of).collect();
    assert_eq!(of, [DigestOf::DebugFile, DigestOf::Binary]);
}

#[test]
fn split_dwarf_is_found_and_a_skeleton_alone_says_so() {
    let Some(scene) = Scene::new(&["-g", "-gsplit-dwarf"]) else { return };
    let hidden = address(&scene.at("app"), "main");
    let dwo = std::fs::read_dir(scene.root.path()).unwrap().flatten().map(|entry| entry.path());
    let dwo = dwo.into_iter().find(|path| path.extension().is_some_and(|end| end == "dwo")).expect("a .dwo file");
    let step = ResolverStep::BinaryDebugInfo;
    let whole = scene.ask(&scene.resolver(), hidden);
    assert_eq!((whole.resolver, whole.quality), (step, Quality::Full));
    assert_eq!(
        whole.digests.iter().map(|digest| digest.of).collect::<Vec<_>>(),
        [DigestOf::Binary, DigestOf::Companion]
    );
    // A package stands in for it.
    let package = Command::new("dwp").args(["-e", "app", "-o", "app.dwp"]).current_dir(scene.root.path()).status();
    let kept = std::fs::read(&dwo).unwrap();
    std::fs::remove_file(&dwo).unwrap();
    if package.is_ok_and(|status| status.success()) && scene.at("app.dwp").exists() {
        assert_eq!(scene.ask(&scene.resolver(), hidden).frames, whole.frames);
        std::fs::remove_file(scene.at("app.dwp")).unwrap();
    }
    let skeleton = scene.ask(&scene.resolver(), hidden);
    let told = skeleton.tried.iter().any(|tried| tried.lacks.contains("skeleton-only"));
    assert!(told && skeleton.digests.len() <= 1, "{:#?}", skeleton.tried);
    // One that was compiled again is not the one that is asked for.
    let other = Scene::new(&["-g", "-gsplit-dwarf", "-O1"]).unwrap();
    let theirs = other.at(dwo.file_name().unwrap().to_str().unwrap());
    std::fs::copy(theirs, &dwo).unwrap();
    let stale = scene.ask(&scene.resolver(), hidden);
    let why = "cannot be used (";
    let is_told =
        |lacks: &str| lacks.contains("skeleton-only") && lacks.contains(why) && lacks.contains("of this build");
    assert!(stale.tried.iter().any(|tried| is_told(&tried.lacks)), "{:#?}", stale.tried);
    std::fs::write(&dwo, kept).unwrap();
    assert_eq!(scene.ask(&scene.resolver(), hidden).frames, whole.frames);
}

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
