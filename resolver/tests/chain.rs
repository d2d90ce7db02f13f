//! The chain on real binaries: what answers, what is recorded of the steps that did not, and that nothing but the
//! sources decides.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::Command;

use symseal_builder::{Options as BuildOptions, SymbolBundleBuilder};
use symseal_bundle::{Bundle, FileRole, LayoutDir};
use symseal_module::{
    Avma, DebugId, MappedModule, MissReason, ModuleMap, Proof, Quality, ResolverStep, Rva, Svma, UnwindMethod,
};
use symseal_resolver::{
    Access, DigestOf, FrameAddress, ModuleAddress, Options, Outcome, ResolvedFrame, Resolver, SourceFrame, StackFrame,
    StoredBundle, vdso_module,
};

/// Where the modules of these tests are mapped.
const BASE: u64 = 0x7f12_3450_0000;

const SOURCE: &str = r#"
namespace shapes {
static inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
__attribute__((noinline)) int area(int x, volatile int *y) {
    *y = doubled(x);
    return *y + 3;
}
__attribute__((noinline, noreturn)) void leave(volatile int *y) { for (;;) *y += 1; }
__attribute__((noinline)) void never(volatile int *y) { *y = 1; leave(y); }
}
int main(int argc, char **) {
    volatile int y = 0;
    if (argc > 5) shapes::never(&y);
    return shapes::area(argc, &y);
}
"#;

struct Program {
    dir: tempfile::TempDir,
    path: PathBuf,
    id: DebugId,
    size: u64,
}

fn skip(tool: &str) {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == tool), "{tool}: not found, and it is required");
    eprintln!("SKIP {tool}: not found");
}

fn program(arguments: &[&str]) -> Option<Program> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("shapes.cc"), SOURCE).unwrap();
    let path = dir.path().join("shapes");
    let compile = |compiler: &str| {
        Command::new(compiler)
            .current_dir(dir.path())
            .args(["-x", "c++", "-O2", "shapes.cc", "-Wl,--build-id", "-o", "shapes"])
            .args(arguments)
            .status()
            .ok()
    };
    let Some(status) = compile("clang").or_else(|| compile("gcc")) else {
        skip("clang");
        return None;
    };
    assert!(status.success());
    let bytes = std::fs::read(&path).unwrap();
    let id = symseal_artifact::ObjectFile::parse(&bytes).unwrap().debug_id().unwrap().clone();
    Some(Program { dir, path, id, size: bytes.len() as u64 })
}

impl Program {
    fn bundle(&self) -> Bundle {
        let layout = LayoutDir::create(self.dir.path().join("layout")).unwrap();
        let options = BuildOptions { name: "shapes".into(), version: "1".into(), progress: None };
        let built = SymbolBundleBuilder::new(options).add_path(&self.path).build(&layout).unwrap();
        Bundle::open(layout, Some(&built.digest)).unwrap()
    }

    fn map(&self) -> ModuleMap {
        map_of(self.path.to_str().unwrap(), Some(self.id.clone()), self.size)
    }

    /// Address and size of a symbol.
    fn symbol(&self, name: &str) -> (u64, u64) {
        let bytes = std::fs::read(&self.path).unwrap();
        let object = symseal_artifact::ObjectFile::parse(&bytes).unwrap();
        let stream = symseal_artifact::functions(&object, &symseal_artifact::DebugFiles::default()).unwrap();
        let function = stream
            .functions
            .iter()
            .find(|function| stream.strings.get(function.symbol) == name)
            .unwrap_or_else(|| panic!("no symbol {name}"));
        (function.start.0, function.size)
    }
}

fn map_of(path: &str, debug_id: Option<DebugId>, size: u64) -> ModuleMap {
    ModuleMap::new(vec![MappedModule {
        path: path.into(),
        debug_id,
        start: Avma(BASE),
        end: Avma(BASE + size.max(0x10000)),
        bias: BASE,
        image_base: Svma(0),
    }])
}

fn at(resolver: &Resolver, map: &ModuleMap, rva: u64) -> ResolvedFrame {
    resolver.resolve(map, Avma(BASE + rva), true, UnwindMethod::Context)
}

fn outcomes(frame: &ResolvedFrame) -> Vec<(ResolverStep, Outcome)> {
    frame.tried.iter().map(|tried| (tried.step, tried.outcome)).collect()
}

fn names(frames: &[SourceFrame]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame.function.as_deref()).collect()
}

const AREA: &str = "_ZN6shapes4areaEiPVi";

#[test]
fn a_bundle_names_functions_with_inlined_calls_and_lines() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, size) = program.symbol(AREA);
    let bundle = program.bundle();
    let resolver = Resolver::new(Options::default()).with_stored_bundle(bundle.clone(), Proof::Sealed);
    let map = program.map();
    let inlined = (start..start + size)
        .map(|rva| at(&resolver, &map, rva))
        .find(|frame| frame.frames.len() == 2)
        .expect("an address of the inlined call");
    assert_eq!(names(&inlined.frames), ["shapes::doubled", "shapes::area"]);
    assert_eq!(inlined.frames.iter().map(|frame| frame.inlined).collect::<Vec<_>>(), [true, false]);
    assert_eq!((inlined.frames[0].line, inlined.frames[1].line), (Some(3), Some(5)));
    assert_eq!(inlined.frames[1].symbol.as_deref(), Some(AREA));
    assert_eq!((inlined.quality, inlined.proof), (Quality::Full, Proof::Sealed));
    assert_eq!(
        outcomes(&inlined),
        [(ResolverStep::Debuginfod, Outcome::Skipped(MissReason::Offline)), (ResolverStep::LocalBundle, Outcome::Hit)]
    );
    let digest_of = |of| inlined.digests.iter().find(|digest| digest.of == of).map(|found| found.digest);
    let table = bundle.module(&program.id).unwrap().file(FileRole::SymbolTable).unwrap();
    assert_eq!(digest_of(DigestOf::Bundle), bundle.digest());
    assert_eq!(digest_of(DigestOf::SymbolTable), Some(table.sha256));
    assert_eq!(digest_of(DigestOf::Source), table.derived_from.first().copied());
    let flat: Vec<StackFrame> = inlined.stack_frames();
    assert_eq!(flat.len(), 2);
    assert_eq!(flat[1].offset, Some(inlined.ip.0 - BASE - start));
}

#[test]
fn a_return_address_is_looked_up_one_byte_before_and_told_as_it_is() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, size) = program.symbol("_ZN6shapes5neverEPVi");
    let resolver = Resolver::new(Options::default()).with_bundle(program.bundle(), Proof::DigestKnown);
    let map = program.map();
    // A function that ends in a call that never returns: the return address lies past its end.
    let after = Avma(BASE + start + size);
    let caller = resolver.resolve(&map, after, false, UnwindMethod::CfiEhFrame);
    assert_eq!(names(&caller.frames).last(), Some(&"shapes::never"));
    assert_eq!(caller.ip, after);
    assert_eq!(caller.symbol_offset, Some(size));
    assert_eq!(caller.proof, Proof::DigestKnown);
    let exact = resolver.resolve(&map, after, true, UnwindMethod::Context);
    assert_ne!(names(&exact.frames).last(), Some(&"shapes::never"));
    // The module, too, is found by the byte before.
    let end = map.modules()[0].end;
    assert!(resolver.resolve(&map, end, false, UnwindMethod::CfiEhFrame).module.is_some());
    assert!(resolver.resolve(&map, end, true, UnwindMethod::Context).module.is_none());
}

#[test]
fn no_symbol_answers_beyond_its_size() {
    let Some(program) = program(&["-g"]) else { return };
    let resolver = Resolver::new(Options::default()).with_bundle(program.bundle(), Proof::DigestKnown);
    // Within the ELF header, below every function; and far above all code.
    for rva in [0x10, 0xfff0] {
        let frame = at(&resolver, &program.map(), rva);
        assert_eq!((frame.resolver, frame.quality), (ResolverStep::ModuleOffset, Quality::ModuleOffset), "{rva:#x}");
        assert_eq!((frame.reason, frame.proof), (Some(MissReason::NoSymbolAtAddress), Proof::None));
        assert!(frame.frames.is_empty() && !frame.counts());
        assert_eq!(frame.module.unwrap().rva, Rva(rva));
    }
}

#[test]
fn every_lack_has_its_reason() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, _) = program.symbol("main");
    let path = program.path.to_str().unwrap();
    let check = |resolver: &Resolver, map: &ModuleMap, expected: MissReason| {
        let frame = at(resolver, map, start);
        assert_eq!((frame.reason, frame.frames.len()), (Some(expected), 0), "{:?}", frame.tried);
    };
    let other: DebugId = "00112233".parse().unwrap();
    let bundled = Resolver::new(Options::default()).with_bundle(program.bundle(), Proof::Sealed);
    check(&bundled, &map_of(path, Some(other.clone()), 0), MissReason::NotInBundle);
    check(&bundled, &map_of(path, None, 0), MissReason::NoDebugId);
    check(&bundled, &ModuleMap::default(), MissReason::NoModule);
    check(&bundled.without_table(&program.id), &program.map(), MissReason::NoSymbolTable);
    let local = Resolver::new(Options { local_files: true, ..Options::default() });
    check(&local, &map_of(path, Some(other), 0), MissReason::DebugIdMismatch);
    check(&local, &map_of("/no/such/file", Some(program.id.clone()), 0), MissReason::FileNotFound);
    check(&local, &map_of("/dev/zero", Some(program.id.clone()), 0), MissReason::FileUnreadable);
    check(&local, &map_of("/tmp", Some(program.id.clone()), 0), MissReason::FileUnreadable);
    let text = program.dir.path().join("shapes.cc");
    check(&local, &map_of(text.to_str().unwrap(), Some(program.id.clone()), 0), MissReason::Malformed);
    let online = Resolver::new(Options { online: true, ..Options::default() });
    let frame = at(&online, &program.map(), start);
    assert_eq!(frame.tried[0].outcome, Outcome::Skipped(MissReason::Unsupported));
    assert!(frame.tried[0].detail.contains("DEBUGINFOD_URLS"));
}

#[test]
fn the_binary_itself_is_read_only_when_allowed_and_proves_nothing() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, _) = program.symbol("main");
    let (debug_info, symbols) = (ResolverStep::BinaryDebugInfo, ResolverStep::BinarySymbols);
    let frame = at(&Resolver::new(Options::default()), &program.map(), start);
    let not_allowed = Outcome::Skipped(MissReason::NotAllowed);
    let steps = [ResolverStep::DebugFile, debug_info, symbols];
    assert_eq!(outcomes(&frame)[2..5], steps.map(|step| (step, not_allowed)));
    let local = Options { local_files: true, ..Options::default() };
    let frame = at(&Resolver::new(local), &program.map(), start);
    assert_eq!((frame.resolver, frame.quality, frame.proof), (debug_info, Quality::Full, Proof::None));
    assert_eq!(frame.digests.iter().map(|digest| digest.of).collect::<Vec<_>>(), [DigestOf::Binary]);
    // The bundle is asked first.
    let both = Resolver::new(local).with_bundle(program.bundle(), Proof::Sealed);
    let bundled = at(&both, &program.map(), start);
    assert_eq!((bundled.resolver, bundled.proof), (ResolverStep::LocalBundle, Proof::Sealed));
    assert_eq!(bundled.frames, frame.frames, "the same functions by the same code");
}

#[test]
fn a_binary_without_debug_information_has_its_symbols() {
    let Some(program) = program(&[]) else { return };
    let (start, _) = program.symbol(AREA);
    let resolver = Resolver::new(Options { local_files: true, demangle: true, ..Options::default() });
    let frame = at(&resolver, &program.map(), start);
    assert_eq!((frame.resolver, frame.quality), (ResolverStep::BinarySymbols, Quality::Function));
    assert_eq!(outcomes(&frame)[3], (ResolverStep::BinaryDebugInfo, Outcome::Miss(MissReason::NoDebugInfo)));
    assert_eq!(names(&frame.frames), ["shapes::area(int, int volatile*)"]);
    assert_eq!(frame.frames[0].symbol.as_deref(), Some(AREA), "the raw symbol is kept");
}

#[test]
#[cfg(unix)]
fn a_path_that_is_no_utf_8_is_found_by_its_escaped_text() {
    use std::os::unix::ffi::OsStrExt;
    let Some(program) = program(&["-g"]) else { return };
    let (start, _) = program.symbol("main");
    let odd = program.dir.path().join(std::ffi::OsStr::from_bytes(b"sh\xffapes\\x"));
    std::fs::copy(&program.path, &odd).unwrap();
    let text = symseal_module::escape::escape(odd.as_os_str().as_bytes());
    let resolver = Resolver::new(Options { local_files: true, ..Options::default() });
    let frame = at(&resolver, &map_of(&text, Some(program.id.clone()), 0), start);
    assert_eq!(frame.quality, Quality::Full, "{:?}", frame.tried);
}

#[test]
fn access_caches_and_order_change_no_answer() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, size) = program.symbol("main");
    let map = program.map();
    let bundle = program.bundle();
    let rvas: Vec<u64> = (start - 64..start + size + 64).collect();
    let resolver = |access, address_cache| {
        let options = Options { address_cache, ..Options::default() };
        Resolver::new(options).with_bundle_access(bundle.clone(), Proof::DigestKnown, access)
    };
    let answers = |resolver: &Resolver, rvas: &mut dyn Iterator<Item = &u64>| {
        let mut answers: Vec<ResolvedFrame> = rvas.map(|rva| at(resolver, &map, *rva)).collect();
        answers.sort_by_key(|frame| frame.ip);
        answers
    };
    let expected = answers(&resolver(Access::OwnStore, 0), &mut rvas.iter());
    for access in [Access::OwnStore, Access::Foreign] {
        for capacity in [0, 1, 7, 509, 2048] {
            let resolver = resolver(access, capacity);
            assert_eq!(answers(&resolver, &mut rvas.iter()), expected);
            assert_eq!(answers(&resolver, &mut rvas.iter().rev()), expected);
            assert!(resolver.cached_addresses() <= capacity.next_multiple_of(2));
        }
    }
    let shared = resolver(Access::OwnStore, 7);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(answers(&shared, &mut rvas.iter()), expected));
        }
    });
}

#[test]
fn a_bundle_of_the_store_answers_alike_without_its_index() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, size) = program.symbol("main");
    let (map, bundle) = (program.map(), program.bundle());
    let (layout, digest) = (bundle.layout().unwrap().clone(), bundle.digest().unwrap());
    let list = layout.modules_path(&digest);
    let stored = || Resolver::new(Options::default()).with_store(open(&layout, &digest), Proof::DigestKnown);
    let plain = Resolver::new(Options::default()).with_stored_bundle(bundle.clone(), Proof::DigestKnown);
    let alike = |what: &str| {
        let stored = stored();
        for rva in start - 64..start + size + 64 {
            assert_eq!(at(&stored, &map, rva), at(&plain, &map, rva), "{what}: {rva:#x}");
        }
        let ids = [program.id.clone(), "0011".parse().unwrap()];
        for id in &ids {
            assert_eq!(stored.image_base(id), plain.image_base(id));
            assert_eq!(stored.has_line_tables(id), plain.has_line_tables(id));
        }
    };
    assert!(!list.exists());
    alike("the list is made");
    let written = std::fs::read(&list).unwrap();
    // From here on no JSON is read: there is none.
    let index = layout.blob_path(&bundle.index_digest());
    let aside = program.dir.path().join("aside");
    std::fs::rename(&index, &aside).unwrap();
    alike("the list is there");
    std::fs::rename(&aside, &index).unwrap();
    // One of another bundle, one that is damaged in a place or a record, one that is cut, and junk are made again.
    let flipped = |at: usize| {
        let mut bytes = written.clone();
        bytes[at] ^= 1;
        bytes
    };
    let (record, end) = (written.len() - 40, written.len());
    for damaged in [
        flipped(20),
        flipped(60),
        flipped(88),
        flipped(92),
        flipped(96),
        flipped(110),
        flipped(record),
        flipped(end - 1),
        written[..100].to_vec(),
        b"junk".to_vec(),
        Vec::new(),
    ] {
        std::fs::remove_file(&list).unwrap();
        std::fs::write(&list, damaged).unwrap();
        alike("damaged");
        assert_eq!(std::fs::read(&list).unwrap(), written);
    }
    // Without the index nobody can say any more what the list said: that is no "not in the bundle".
    std::fs::write(&list, flipped(record)).unwrap();
    std::fs::rename(&index, &aside).unwrap();
    let unknown = at(&stored(), &map, start);
    let step = unknown.tried.iter().find(|tried| tried.step == ResolverStep::LocalBundle).unwrap();
    assert_eq!(step.outcome, Outcome::Miss(MissReason::FileNotFound), "{step:?}");
    assert!(step.detail.contains(&list.display().to_string()) && step.detail.contains("index"), "{step:?}");
    std::fs::rename(&aside, &index).unwrap();
    std::fs::write(&list, &written).unwrap();
    let table = bundle.module(&program.id).unwrap().file(FileRole::SymbolTable).unwrap();
    let path = bundle.file_path(table);
    let bytes = std::fs::read(&path).unwrap();
    for (content, reason) in [
        (Some(&bytes[..bytes.len() / 2]), MissReason::DigestMismatch),
        (Some(&[0; 0][..]), MissReason::DigestMismatch),
        (None, MissReason::FileNotFound),
    ] {
        std::fs::remove_file(&path).unwrap();
        content.into_iter().for_each(|content| std::fs::write(&path, content).unwrap());
        assert_eq!(at(&stored(), &map, start).reason, Some(reason));
        std::fs::write(&path, &bytes).unwrap();
    }
}

fn open(layout: &LayoutDir, digest: &symseal_bundle::Digest) -> StoredBundle {
    StoredBundle::open(layout.clone(), digest).unwrap()
}

#[test]
fn a_table_that_is_replaced_while_it_is_asked_answers_as_before() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, size) = program.symbol("main");
    let (map, bundle) = (program.map(), program.bundle());
    let table = bundle.module(&program.id).unwrap().file(FileRole::SymbolTable).unwrap();
    let path = bundle.file_path(table);
    let options = Options { address_cache: 0, ..Options::default() };
    for access in [Access::OwnStore, Access::Foreign] {
        let resolver = Resolver::new(options).with_bundle_access(bundle.clone(), Proof::DigestKnown, access);
        let ask = || (start..start + size).map(|rva| at(&resolver, &map, rva)).collect::<Vec<_>>();
        let expected = ask();
        let kept = std::fs::read(&path).unwrap();
        if access == Access::Foreign {
            // Somebody else's file may be cut at any time; what is mapped lies in a store of our own, where nothing is.
            std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
            assert_eq!(ask(), expected);
        }
        // As a store replaces a damaged blob: by a rename. What is mapped or read stays what it was.
        let other = program.dir.path().join("other");
        std::fs::write(&other, b"another table").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(ask(), expected);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(ask(), expected);
        std::fs::write(&path, kept).unwrap();
    }
}

#[test]
fn an_index_that_lies_about_a_digest_gives_no_name() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, _) = program.symbol("main");
    let bundle = program.bundle();
    let pulled = program.dir.path().join("pulled");
    std::fs::create_dir(&pulled).unwrap();
    let module = bundle.module(&program.id).unwrap();
    let table = module.file(FileRole::SymbolTable).unwrap();
    for file in bundle.index().files() {
        let to = pulled.join(&file.path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(bundle.file_path(file), to).unwrap();
    }
    let index = String::from_utf8(bundle.index_bytes().to_vec()).unwrap();
    // The digest of another file of the bundle.
    let other = bundle.index().files().find(|file| file.sha256 != table.sha256).unwrap().sha256;
    let lie = index.replace(&table.sha256.to_string(), &other.to_string());
    assert_ne!(lie, index);
    std::fs::write(pulled.join("symbol_index.json"), lie).unwrap();
    let lying = Bundle::open_pulled(&pulled).unwrap();
    let resolver = Resolver::new(Options::default()).with_bundle(lying, Proof::DigestKnown);
    let frame = at(&resolver, &program.map(), start);
    assert_eq!((frame.reason, frame.proof), (Some(MissReason::DigestMismatch), Proof::None), "{frame:#?}");
    std::fs::write(pulled.join("symbol_index.json"), &index).unwrap();
    let honest = Bundle::open_pulled(&pulled).unwrap();
    let resolver = Resolver::new(Options::default()).with_bundle(honest, Proof::DigestKnown);
    assert_eq!(at(&resolver, &program.map(), start).quality, Quality::Full);
    // The table of another module, with the digest and the size that it has.
    let Some(other) = self::program(&["-g", "-O0"]) else { return };
    let bundle = other.bundle();
    let foreign = bundle.module(&other.id).unwrap().file(FileRole::SymbolTable).unwrap();
    std::fs::copy(bundle.file_path(foreign), pulled.join(&table.path)).unwrap();
    let mut index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let files = index["linux"][program.id.to_string()]["files"].as_array_mut().unwrap();
    let entry = files.iter_mut().find(|file| file["sha256"] == table.sha256.to_string()).unwrap();
    entry["sha256"] = foreign.sha256.to_string().into();
    entry["size"] = foreign.size.into();
    std::fs::write(pulled.join("symbol_index.json"), index.to_string()).unwrap();
    let swapped = Bundle::open_pulled(&pulled).unwrap();
    let resolver = Resolver::new(Options::default()).with_bundle(swapped, Proof::DigestKnown);
    let frame = at(&resolver, &program.map(), start);
    assert_eq!((frame.reason, frame.proof), (Some(MissReason::DebugIdMismatch), Proof::None), "{frame:#?}");
}

#[test]
fn a_batch_answers_as_one_address_after_the_other() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, size) = program.symbol("main");
    let (map, bundle) = (program.map(), program.bundle());
    let resolver = Resolver::new(Options::default()).with_bundle(bundle, Proof::DigestKnown);
    let unknown: DebugId = "0011".parse().unwrap();
    let rvas: Vec<u64> = (start - 64..start + size + 64).cycle().take(10_000).collect();
    let frames: Vec<FrameAddress> = rvas
        .iter()
        .map(|rva| FrameAddress { ip: Avma(BASE + rva), exact: rva % 2 == 0, unwind: UnwindMethod::CfiEhFrame })
        .collect();
    let expected: Vec<_> =
        frames.iter().map(|frame| resolver.resolve(&map, frame.ip, frame.exact, frame.unwind)).collect();
    assert_eq!(resolver.resolve_all(&map, &frames), expected);
    let addresses: Vec<ModuleAddress<'_>> = rvas
        .iter()
        .map(|rva| ModuleAddress { id: if rva % 3 == 0 { &unknown } else { &program.id }, name: None, rva: Rva(*rva) })
        .collect();
    let expected: Vec<_> = addresses.iter().map(|asked| resolver.symbolize(asked.id, asked.rva)).collect();
    assert_eq!(resolver.symbolize_all(&addresses), expected);
}

#[test]
fn a_table_with_a_flipped_byte_answers_nothing() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, _) = program.symbol("main");
    let bundle = program.bundle();
    let table = bundle.module(&program.id).unwrap().file(FileRole::SymbolTable).unwrap();
    let path = bundle.file_path(table);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    for access in [Access::OwnStore, Access::Foreign] {
        let resolver = Resolver::new(Options::default()).with_bundle_access(bundle.clone(), Proof::Sealed, access);
        let frame = at(&resolver, &program.map(), start);
        assert_eq!((frame.reason, frame.proof), (Some(MissReason::DigestMismatch), Proof::None));
    }
    std::fs::remove_file(&path).unwrap();
    for access in [Access::OwnStore, Access::Foreign] {
        let resolver = Resolver::new(Options::default()).with_bundle_access(bundle.clone(), Proof::Sealed, access);
        assert_eq!(at(&resolver, &program.map(), start).reason, Some(MissReason::FileNotFound));
    }
}

#[test]
fn addresses_without_a_process_are_named_by_debug_id() {
    let Some(program) = program(&["-g"]) else { return };
    let (start, _) = program.symbol("main");
    let resolver = Resolver::new(Options::default()).with_bundle(program.bundle(), Proof::DigestKnown);
    assert_eq!(resolver.image_base(&program.id), Some(Svma(0)));
    let found = resolver.symbolize(&program.id, Rva(start));
    let line = serde_json::to_value(found.line(Svma(start), None, false)).unwrap();
    assert_eq!(line["address"], format!("{start:#x}"));
    assert_eq!(line["resolver"], "local-bundle");
    let frame = line["frames"][0].as_object().unwrap();
    let keys: Vec<&str> = frame.keys().map(String::as_str).collect();
    assert_eq!(keys, ["column", "file", "function", "inlined", "line", "symbol"]);
    assert_eq!(frame["function"], "main");
    let lost = resolver.symbolize(&"0011".parse().unwrap(), Rva(start));
    assert_eq!((lost.resolver, lost.reason), (ResolverStep::ModuleOffset, Some(MissReason::NotInBundle)));
}

#[test]
fn the_image_of_the_vdso_names_its_functions() {
    let Ok(Some(image)) = symseal_process::vdso_bytes(std::process::id()) else { return skip("ptrace") };
    let module = vdso_module(&image).unwrap();
    assert!(!module.unwind.text.is_empty() && module.unwind.eh_frame.is_some());
    let resolver = Resolver::new(Options::default()).with_image(&module);
    let map = map_of("[vdso]", Some(module.debug_id.clone()), image.len() as u64);
    let named: Vec<ResolvedFrame> =
        (0..image.len() as u64).map(|rva| at(&resolver, &map, rva)).filter(|frame| !frame.frames.is_empty()).collect();
    assert!(named.iter().any(|frame| names(&frame.frames) == ["__vdso_clock_gettime"]));
    assert!(named.iter().all(|frame| frame.resolver == ResolverStep::BinarySymbols && frame.proof == Proof::None));
}

#[test]
fn damaged_images_are_refused_or_read_but_never_panic() {
    let Ok(Some(image)) = symseal_process::vdso_bytes(std::process::id()) else { return skip("ptrace") };
    for cut in (0..image.len()).step_by(97) {
        let _ = vdso_module(&image[..cut]);
    }
    let mut state = 1_u64;
    for _ in 0..2000 {
        let mut damaged = image.clone();
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % damaged.len();
            damaged[at] = (state >> 24) as u8;
        }
        let _ = vdso_module(&damaged);
    }
    assert!(vdso_module(&vec![0; symseal_resolver::MAX_IMAGE_BYTES + 1]).is_err());
    assert!(vdso_module(b"no image").is_err());
}
