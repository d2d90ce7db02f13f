//! Sources: what is found below the given directories, what is proved to be the file that was compiled, and that nothing
//! beside them is ever read.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::inputs::{SOURCE, builder, run, tool};
use symseal_artifact::Checksum;
use symseal_builder::{GatherError, GatheredSources, SourceOptions, WantedSources, gather_sources};
use symseal_bundle::sources::{CheckedBy, Sources};
use symseal_bundle::{Digest, LayoutDir, LayoutError};

/// A scene: directories `root` and `outside`, and a layout.
struct Scene {
    dir: tempfile::TempDir,
    layout: LayoutDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = LayoutDir::create(dir.path().join("layout")).unwrap();
        for name in ["root", "outside"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, layout }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn gather(&self, wanted: &[(&str, Option<Checksum>)], roots: &[&str], maps: &[&str]) -> GatheredSources {
        let options = SourceOptions {
            roots: roots.iter().map(|root| self.path(root)).collect(),
            maps: maps.iter().map(|map| map.parse().unwrap()).collect(),
        };
        gather_sources(&list(wanted), &options, Some(&self.layout)).unwrap()
    }

    /// The artifact's files by path, each read and checked.
    fn read(&self, gathered: &GatheredSources) -> Vec<(String, Vec<u8>, Option<CheckedBy>)> {
        let Some(digest) = gathered.digest() else { return Vec::new() };
        let sources = Sources::open(self.layout.clone(), &digest).unwrap();
        sources.verify().unwrap();
        let files = sources.table().files.iter();
        files.map(|file| (file.path.clone(), sources.read(file).unwrap(), file.checked_by)).collect()
    }
}

fn list(wanted: &[(&str, Option<Checksum>)]) -> WantedSources {
    let mut list = WantedSources::default();
    for (path, checksum) in wanted {
        list.add(path, *checksum);
    }
    list
}

/// What the machine's own program says of a file: `md5sum`, `sha1sum`, `sha256sum`.
fn sum<const N: usize>(program: &str, path: &Path) -> Option<[u8; N]> {
    let output = run(&tool(program)?, &[path.to_str().unwrap()]);
    let hex = String::from_utf8(output.stdout).unwrap();
    let bytes: Vec<u8> = (0..N).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    bytes.try_into().ok()
}

fn paths(read: &[(String, Vec<u8>, Option<CheckedBy>)]) -> Vec<&str> {
    read.iter().map(|(path, ..)| path.as_str()).collect()
}

#[test]
fn files_are_found_by_place_by_map_and_below_each_directory() {
    let scene = Scene::new();
    let here = scene.file("root/src/here.c", b"here");
    scene.file("root/gen/mapped.h", b"mapped");
    scene.file("root/win/Main.cpp", b"windows");
    scene.file("outside/usr/include/sys.h", b"second directory");
    scene.file("root/rel/a.c", b"relative");
    let wanted = [
        (here.to_str().unwrap(), None),
        ("/build/out/mapped.h", None),
        ("c:\\Agent\\_work\\Main.cpp", None),
        ("/usr/include/sys.h", None),
        ("rel/../rel/a.c", None),
        ("/nowhere/missing.c", None),
        ("<built-in>", None),
    ];
    let maps = ["/build/out=gen", "C:\\agent\\_work=win"];
    let gathered = scene.gather(&wanted, &["root", "outside"], &maps);
    let read = scene.read(&gathered);
    let mut expected = vec![
        (wanted[0].0, "here"),
        ("/build/out/mapped.h", "mapped"),
        ("/usr/include/sys.h", "second directory"),
        ("c:\\Agent\\_work\\Main.cpp", "windows"),
        ("rel/../rel/a.c", "relative"),
    ];
    expected.sort();
    let found: Vec<(&str, &str)> =
        read.iter().map(|(path, bytes, _)| (path.as_str(), std::str::from_utf8(bytes).unwrap())).collect();
    assert_eq!(found, expected);
    assert_eq!(gathered.report.wanted, 7);
    assert_eq!(gathered.report.not_found, ["/nowhere/missing.c", "<built-in>"]);
    assert_eq!((gathered.report.statistics.files, gathered.report.statistics.checked), (5, 0));
    let json = serde_json::to_value(&gathered.report).unwrap();
    assert_eq!(json["not_found"][0], "/nowhere/missing.c");
}

#[test]
fn a_checksum_decides_and_a_file_with_another_is_reported_with_both_and_left_out() {
    let scene = Scene::new();
    let stale = scene.file("root/a.c", b"edited since");
    let sound = scene.file("outside/a.c", b"as compiled");
    let (Some(md5), Some(sha1), Some(sha256)) =
        (sum("md5sum", &sound), sum("sha1sum", &sound), sum("sha256sum", &sound))
    else {
        return;
    };
    for (checksum, kind) in [
        (Checksum::Md5(md5), CheckedBy::Md5),
        (Checksum::Sha1(sha1), CheckedBy::Sha1),
        (Checksum::Sha256(sha256), CheckedBy::Sha256),
    ] {
        let wanted = [("/b/a.c", Some(checksum))];
        // The first directory's file is another one; the second's is the one that was compiled.
        let gathered = scene.gather(&wanted, &["root", "outside"], &["/b=."]);
        assert_eq!(scene.read(&gathered), [("/b/a.c".to_owned(), b"as compiled".to_vec(), Some(kind))]);
        assert!(gathered.report.mismatched.is_empty());

        let gathered = scene.gather(&wanted, &["root"], &["/b=."]);
        assert_eq!(gathered.digest(), None);
        let [mismatch] = gathered.report.mismatched.as_slice() else { panic!("{:?}", gathered.report) };
        assert_eq!((mismatch.path.as_str(), mismatch.file.as_str()), ("/b/a.c", stale.to_str().unwrap()));
        assert!(mismatch.expected.starts_with(kind.code()) && mismatch.found.starts_with(kind.code()));
        assert_ne!(mismatch.expected, mismatch.found);
    }
    // Two modules that mean two files by one path get both.
    let other: [u8; 16] = sum("md5sum", &stale).unwrap();
    let wanted = [("/b/a.c", Some(Checksum::Md5(md5))), ("/b/a.c", None), ("/b/a.c", Some(Checksum::Md5(other)))];
    let gathered = scene.gather(&wanted, &["root", "outside"], &["/b=."]);
    assert_eq!(gathered.report.statistics.checked, 2);
    assert_eq!(paths(&scene.read(&gathered)), ["/b/a.c", "/b/a.c"]);
    // Where one of the two is nowhere, the file that is the other's is not it, whichever comes first.
    for (there, checksum, missed) in [(&stale, other, md5), (&sound, md5, other)] {
        let root = there.parent().and_then(|parent| parent.file_name()).and_then(|name| name.to_str()).unwrap();
        let gathered = scene.gather(&wanted, &[root], &["/b=."]);
        let report = &gathered.report;
        let hex = |md5: [u8; 16]| format!("md5:{}", md5.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let [mismatch] = report.mismatched.as_slice() else { panic!("{report:?}") };
        assert_eq!((&mismatch.expected, &mismatch.found), (&hex(missed), &hex(checksum)));
        assert_eq!(mismatch.file, there.to_str().unwrap());
        assert_eq!((report.wanted, report.statistics.files, report.not_found.len()), (2, 1, 0), "{report:?}");
        assert_eq!(scene.read(&gathered).len(), 1);
    }
    // A third one that is nobody's is told before the one that is another module's; where none is there, the path is told once.
    scene.file("root/inner/a.c", b"nobody's");
    let gathered = scene.gather(&wanted, &["outside", "root/inner"], &["/b=."]);
    let [mismatch] = gathered.report.mismatched.as_slice() else { panic!("{:?}", gathered.report) };
    assert!(mismatch.file.ends_with("root/inner/a.c"), "{mismatch:?}");
    let gathered = scene.gather(&wanted, &["outside"], &["/b=nowhere"]);
    assert_eq!((gathered.report.wanted, gathered.report.not_found.as_slice()), (1, &["/b/a.c".to_owned()][..]));
    // One file has the checksums of two kinds, of two compilers.
    let wanted = [("/b/a.c", Some(Checksum::Md5(md5))), ("/b/a.c", Some(Checksum::Sha256(sha256)))];
    let report = scene.gather(&wanted, &["outside"], &["/b=."]).report;
    assert_eq!((report.wanted, report.statistics.files, report.mismatched.len()), (1, 1, 0), "{report:?}");
    // A file without a checksum in one module is not taken where another one's says that it is stale.
    let gathered = scene.gather(&[("/b/a.c", Some(Checksum::Md5(md5))), ("/b/a.c", None)], &["root"], &["/b=."]);
    assert_eq!(gathered.digest(), None);
}

#[test]
fn links_are_followed_inside_and_refused_where_they_lead_out() {
    let scene = Scene::new();
    scene.file("root/real/a.c", b"inside");
    let secret = scene.file("outside/secret.c", b"SECRET");
    let root = scene.path("root");
    symlink("real", root.join("inner")).unwrap();
    symlink("../outside", root.join("up")).unwrap();
    symlink(scene.path("outside"), root.join("absolute")).unwrap();
    symlink(&secret, root.join("file.c")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink(&root, scene.path("alias")).unwrap();
    let magic = format!("/b/magic{}", secret.display());
    let aliased = scene.path("alias/real/a.c");
    let wanted: Vec<(&str, Option<Checksum>)> = [
        "/b/inner/a.c",
        "/b/up/secret.c",
        "/b/absolute/secret.c",
        "/b/file.c",
        "/b/loop/x",
        &magic,
        "/b/real/../../outside/secret.c",
        secret.to_str().unwrap(),
        "../outside/secret.c",
        aliased.to_str().unwrap(),
    ]
    .iter()
    .map(|path| (*path, None))
    .collect();
    let gathered = scene.gather(&wanted, &["alias"], &["/b=."]);
    let read = scene.read(&gathered);
    let mut expected = vec!["/b/inner/a.c", aliased.to_str().unwrap()];
    expected.sort_unstable();
    assert_eq!(paths(&read), expected);
    assert!(read.iter().all(|(_, bytes, _)| bytes == b"inside"));
    let refused: Vec<&str> = gathered.report.refused.iter().map(|refused| refused.path.as_str()).collect();
    let mut expected = vec!["/b/absolute/secret.c", "/b/file.c", "/b/loop/x", &magic, "/b/up/secret.c"];
    expected.sort_unstable();
    assert_eq!(refused, expected, "{:?}", gathered.report);
    assert_eq!(gathered.report.not_found.len(), 3);
}

#[test]
fn what_is_no_file_or_too_large_is_listed_and_nothing_hangs() {
    let scene = Scene::new();
    let root = scene.path("root");
    let Some(mkfifo) = tool("mkfifo") else { return };
    run(&mkfifo, &[root.join("pipe.c").to_str().unwrap()]);
    fs::create_dir(root.join("directory.c")).unwrap();
    let large = fs::File::create(root.join("large.c")).unwrap();
    large.set_len(symseal_bundle::sources::MAX_SOURCE_BYTES + 1).unwrap();
    let wanted = [("pipe.c", None), ("directory.c", None), ("large.c", None), ("a\0b.c", None), ("", None)];
    let gathered = scene.gather(&wanted, &["root"], &[]);
    assert_eq!(gathered.digest(), None);
    assert_eq!(gathered.report.refused[0].path, "pipe.c");
    assert_eq!(gathered.report.too_large[0].path, "large.c");
    assert_eq!(gathered.report.not_found, ["a\0b.c", "directory.c"]);
    let options = SourceOptions { roots: vec![scene.path("absent")], maps: Vec::new() };
    let error = gather_sources(&list(&wanted), &options, Some(&scene.layout)).unwrap_err();
    assert!(matches!(&error, GatherError::Root { path, .. } if *path == scene.path("absent")), "{error}");
}

#[test]
fn a_directory_that_is_swapped_for_a_link_while_we_look_leads_nowhere_else() {
    let scene = Scene::new();
    scene.file("root/src/a.c", b"inside");
    scene.file("outside/a.c", b"SECRET");
    let (src, aside) = (scene.path("root/src"), scene.path("root/aside"));
    let (over, link) = (AtomicBool::new(false), scene.path("root/link"));
    symlink(scene.path("outside"), &link).unwrap();
    let (mut inside, mut elsewhere) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&src, &aside).unwrap();
                fs::rename(&link, &src).unwrap();
                fs::rename(&src, &link).unwrap();
                fs::rename(&aside, &src).unwrap();
            }
        });
        for _ in 0..3000 {
            let gathered = scene.gather(&[("src/a.c", None)], &["root"], &[]);
            match scene.read(&gathered).as_slice() {
                [] => elsewhere += 1,
                [(_, bytes, _)] => {
                    assert_eq!(bytes, b"inside", "a file outside of the directory was read");
                    inside += 1;
                }
                more => panic!("{more:?}"),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("{inside} times read inside, {elsewhere} times not");
    assert!(inside > 0 && elsewhere > 0, "the race was not run: {inside} {elsewhere}");
}

#[test]
fn the_same_sources_give_the_same_digest_wherever_they_lie_and_are_tagged_when_published() {
    let mut digests = Vec::new();
    for (at, mode) in [0o644, 0o700].into_iter().enumerate() {
        let scene = Scene::new();
        let mut files: Vec<String> = (0..40).map(|number| format!("d{}/{number}.c", number % 7)).collect();
        if at == 1 {
            files.reverse();
        }
        for name in &files {
            let path = scene.file(&format!("root/{name}"), name.as_bytes());
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let wanted: Vec<(&str, Option<Checksum>)> = files.iter().map(|name| (name.as_str(), None)).collect();
        let gathered = scene.gather(&wanted, &["root"], &[]);
        let digest = gathered.digest().unwrap();
        assert!(scene.layout.manifests().unwrap().is_empty(), "nothing is visible before it is published");
        gathered.publish("1.0", &scene.layout).unwrap();
        gathered.publish("no tag", &scene.layout).unwrap();
        let [listed] = &scene.layout.manifests().unwrap()[..] else { panic!("one manifest") };
        assert_eq!((listed.digest, listed.ref_name()), (digest, Some("1.0.sources")));
        assert!(scene.layout.referrers(&Digest::of(b"any")).is_ok_and(|found| found.is_empty()));
        assert!(matches!(scene.layout.read_blob(&Digest::of(b"any"), 1), Err(LayoutError::Missing { .. })));
        digests.push(digest);
    }
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_build_gathers_what_its_line_tables_name_and_the_index_leads_there() {
    let Some(clang) = tool("clang") else { return };
    let scene = Scene::new();
    // A compiler that notes the MD5 of every source file.
    scene.file("root/src/a.c", format!("#include \"b.h\"\n{SOURCE}").as_bytes());
    scene.file(
        "root/src/b.h",
        b"static inline int twelve(void) { return 12; }\nint t(int x) { return x + twelve(); }\n",
    );
    let library = scene.path("liba.so");
    let prefix = format!("-ffile-prefix-map={}=/build/app", scene.path("root").display());
    let source = scene.path("root/src/a.c");
    let flags = ["-gdwarf-5", "-O1", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id=0xab01020304", "-o"];
    let last = [library.to_str().unwrap(), &prefix, source.to_str().unwrap()];
    run(&clang, &flags.into_iter().chain(last).collect::<Vec<_>>());

    let options = SourceOptions { roots: vec![scene.path("root")], maps: vec!["/build/app=.".parse().unwrap()] };
    let built = builder(std::slice::from_ref(&library)).sources(options.clone()).build(&scene.layout).unwrap();
    let report = built.report.sources.unwrap();
    assert_eq!(report.wanted, 2, "{report:?}");
    assert_eq!(report.statistics.files, 2, "{report:?}");
    let bundle = symseal_bundle::Bundle::open(scene.layout.clone(), Some(&built.digest)).unwrap();
    let sources = Sources::of(&bundle).unwrap().remove(0);
    sources.verify().unwrap();
    assert_eq!(bundle.index().sources, report.digest);
    assert_eq!(sources.read(&sources.table().find("/build/app/src/a.c")[0]).unwrap(), fs::read(&source).unwrap());
    let told = symseal_bundle::disclosure::disclosure(&bundle, &|bytes| {
        let object = symseal_artifact::ObjectFile::parse(bytes).unwrap();
        let (compile_directories, build_paths) = (object.compile_directories(), object.build_paths());
        symseal_bundle::disclosure::NamedPaths { compile_directories, build_paths, ..Default::default() }
    })
    .unwrap();
    assert!(told.paths.iter().eq(["/build/app/src/a.c", "/build/app/src/b.h"]), "{:?}", told.paths);
    assert!(["add", "t"].iter().all(|name| told.names.contains(*name)), "{:?}", told.names);
    assert_eq!(told.source_directories[0].directory, "/build/app/src");
    let attached = told.sources.unwrap();
    assert_eq!(attached.statistics, Some(report.statistics));
    assert_eq!(attached.paths, Some(told.paths));
    let here = std::env::current_dir().unwrap();
    assert_eq!(told.compile_directories.iter().collect::<Vec<_>>(), [here.to_str().unwrap()]);
    println!("{} of {} files were checked by a checksum", report.statistics.checked, report.statistics.files);

    // The bundle itself is the same, but for the digest that it names.
    let without = builder(std::slice::from_ref(&library)).build(&scene.layout).unwrap();
    assert_ne!(without.digest, built.digest);
    assert_eq!(without.index.linux, built.index.linux);
    // Its manifests do not lead to the sources.
    let named = bundle.image_index().unwrap().manifests.iter().map(|child| child.digest);
    assert!(named.into_iter().all(|digest| Some(digest) != report.digest));

    if report.statistics.checked > 0 {
        fs::write(&source, "edited").unwrap();
        let built = builder(&[library]).sources(options).build(&scene.layout).unwrap();
        let report = built.report.sources.unwrap();
        assert_eq!(report.mismatched.len(), 1, "{report:?}");
        assert_eq!(report.mismatched[0].path, "/build/app/src/a.c");
    }
}

#[test]
fn files_of_line_tables_without_code_are_gathered_and_reported_where_they_are_missing() {
    let (Some(clang), Some(gcc)) = (tool("clang"), tool("gcc")) else { return };
    let scene = Scene::new();
    scene.file("root/types.h", b"struct product { int weight; };\n");
    scene.file("root/tab.h", b"#define TABLE { 1, 2, 3 }\n");
    scene.file("root/foo.y", b"int parse(struct product *p) { return p->weight + table[0]; }\n");
    let generated = "#include \"types.h\"\n#include \"tab.h\"\nstatic volatile int table[] = TABLE;\n#line 1 \"foo.y\"\n\
        int parse(struct product *p) { return p->weight + table[0]; }\n";
    let source = scene.file("root/foo.c", generated.as_bytes());
    let library = scene.path("foo.so");
    let prefix = format!("-ffile-prefix-map={}=/b", scene.path("root").display());
    for (compiler, version) in
        [(&gcc, "-gdwarf-5"), (&gcc, "-gdwarf-4"), (&gcc, "-gdwarf-3"), (&clang, "-gdwarf-5"), (&clang, "-gdwarf-4")]
    {
        let flags = ["-g3", version, "-O1", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id=0xab01020304", &prefix];
        let paths = ["-o", library.to_str().unwrap(), source.to_str().unwrap()];
        run(compiler, &flags.into_iter().chain(paths).collect::<Vec<_>>());
        let wanted = ["/b/foo.c", "/b/types.h"];
        let mut options = SourceOptions { roots: vec![scene.path("root")], maps: vec!["/b=.".parse().unwrap()] };
        let report = |options: &SourceOptions| {
            builder(std::slice::from_ref(&library)).sources(options.clone()).build(&scene.layout).unwrap()
        };
        let built = report(&options);
        let bundle = symseal_bundle::Bundle::open(scene.layout.clone(), Some(&built.digest)).unwrap();
        let sources = Sources::of(&bundle).unwrap().remove(0);
        let files: Vec<&str> = sources.table().files.iter().map(|file| file.path.as_str()).collect();
        for path in wanted {
            assert!(files.contains(&path), "{compiler:?} {version} {path}: {files:?}");
        }
        // A compiler names the file of a macro where it records macros.
        assert!(compiler != &gcc || files.contains(&"/b/tab.h"), "{version} {files:?}");
        let all = built.report.sources.unwrap();
        assert!(all.not_found.iter().all(|path| !path.contains('<')), "{all:?}");
        options.roots = vec![scene.path("outside")];
        let missing = report(&options).report.sources.unwrap();
        assert!(wanted.iter().all(|path| missing.not_found.iter().any(|found| found == path)), "{missing:?}");
        assert_eq!(missing.statistics.files, 0);
    }
}

/// DWARF before version 5 has an instruction for it.
#[test]
fn files_that_instructions_of_a_line_table_define_are_gathered() {
    let Some(gcc) = tool("gcc") else { return };
    let scene = Scene::new();
    let names = ["main.c", "include/made.h", "call.h", "include/unused.h"];
    for name in names {
        scene.file(&format!("root/{name}"), b"text\n");
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../artifact/tests/defined_files/program.s");
    let library = scene.path("defines.so");
    let output = library.to_str().unwrap();
    run(&gcc, &["-shared", "-nostdlib", "-Wl,--build-id", "-Wa,--defsym,VERSION=3", program, "-o", output]);
    let options = SourceOptions { roots: vec![scene.path("root")], maps: vec!["/build=.".parse().unwrap()] };
    let built = builder(std::slice::from_ref(&library)).sources(options).build(&scene.layout).unwrap();
    let report = built.report.sources.unwrap();
    assert_eq!((report.wanted, report.statistics.files), (5, 4), "{report:?}");
    assert_eq!(report.not_found, ["/else/made.x"]);
    let bundle = symseal_bundle::Bundle::open(scene.layout.clone(), Some(&built.digest)).unwrap();
    let sources = Sources::of(&bundle).unwrap().remove(0);
    let files: Vec<&str> = sources.table().files.iter().map(|file| file.path.as_str()).collect();
    assert!(names.iter().all(|name| files.contains(&format!("/build/{name}").as_str())), "{files:?}");
}

#[test]
fn every_file_that_a_program_database_has_a_checksum_of_is_gathered() {
    let (Some(clang), Some(link)) = (tool("clang"), tool("lld-link")) else { return };
    let scene = Scene::new();
    let source = scene.file("root/a.c", b"int start(int x) { return x * 3; }\n#include \"b.h\"\n");
    scene.file(
        "root/b.h",
        b"static inline int unused(int x) { return x; }\nint twice(int x) { return unused(x) * 2; }\n",
    );
    let (object, library) = (scene.path("a.obj"), scene.path("a.dll"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run(&clang, &["--target=x86_64-windows-msvc", "-g", "-gcodeview", "-c", &text(&source), "-o", &text(&object)]);
    // The code of the header is dropped, its file stays in the module's list.
    run(
        &link,
        &[
            "/dll",
            "/debug",
            "/noentry",
            "/nodefaultlib",
            "/export:start",
            &text(&object),
            &format!("/out:{}", text(&library)),
        ],
    );
    let options = SourceOptions { roots: vec![scene.path("root")], maps: Vec::new() };
    let database = scene.path("a.pdb");
    for inputs in [vec![library, database.clone()], vec![database]] {
        let report = builder(&inputs).sources(options.clone()).build(&scene.layout).unwrap().report.sources.unwrap();
        assert_eq!((report.wanted, report.statistics.files, report.statistics.checked), (2, 2, 2), "{report:?}");
    }
}

#[test]
fn below_the_map_of_a_windows_path_letters_count_without_case_and_two_such_files_are_refused() {
    let scene = Scene::new();
    scene.file("root/src/foo.c", b"foo");
    scene.file("root/Src/Main.c", b"main");
    scene.file("root/src/exact.c", b"exact");
    scene.file("root/src/EXACT.c", b"another");
    scene.file("root/src/two.c", b"one");
    scene.file("root/src/Two.c", b"other");
    symlink(scene.path("outside"), scene.path("root/Out")).unwrap();
    scene.file("outside/secret.c", b"SECRET");
    let wanted = [
        ("C:\\Proj\\Src\\Foo.c", None),
        ("c:\\proj\\src\\main.C", None),
        ("C:\\Proj\\src\\exact.c", None),
        ("C:\\Proj\\src\\TWO.c", None),
        ("C:\\Proj\\out\\Secret.c", None),
        ("C:\\Proj\\src\\nothing.c", None),
    ];
    let gathered = scene.gather(&wanted, &["root"], &["C:\\Proj=."]);
    let read = scene.read(&gathered);
    let read: Vec<(&str, &[u8])> = read.iter().map(|(path, bytes, _)| (path.as_str(), bytes.as_slice())).collect();
    assert_eq!(read, [(wanted[0].0, &b"foo"[..]), (wanted[2].0, b"exact"), (wanted[1].0, b"main")]);
    let [refused] = gathered.report.refused.as_slice() else { panic!("{:?}", gathered.report) };
    assert_eq!(refused.path, wanted[3].0);
    assert!(refused.reason.contains("root/src/Two.c") && refused.reason.contains("root/src/two.c"), "{refused:?}");
    // Nothing is told of what lies outside.
    assert_eq!(gathered.report.not_found, [wanted[4].0, wanted[5].0]);
    // Paths of other systems mean what they say.
    let gathered = scene.gather(&[("/proj/Src/Foo.c", None)], &["root"], &["/proj=."]);
    assert_eq!(gathered.report.not_found, ["/proj/Src/Foo.c"]);
}
