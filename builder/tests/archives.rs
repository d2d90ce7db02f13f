//! Archives, packages and images give the bundle that their files give loose, and leave nothing behind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::downloads::LIBC;
use crate::inputs::{Release, builder, output, report, run, tool};
use symseal_builder::{BuildError, Options, Progress, SymbolBundleBuilder};
use symseal_bundle::verify::verify_contents;
use symseal_bundle::{Bundle, Digest, LayoutDir};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Builds, checks that the layout holds nothing but the bundle, and gives its digest.
#[track_caller]
fn digest(paths: &[PathBuf]) -> Digest {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let built = builder(paths).build(&layout).unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("ingest")).unwrap().count(), 0, "the spool is gone");
    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    let identify =
        |bytes: &[u8]| symseal_artifact::ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default();
    let contents = verify_contents(&bundle, &identify);
    assert!(contents.holds(), "{:#?}", contents.checks);
    built.digest
}

/// A directory with a release, and what to pack it with.
fn packed(release: &Release, commands: &[(&str, &[&str])]) -> Vec<PathBuf> {
    let out = release.path("packed");
    std::fs::create_dir(&out).unwrap();
    let mut archives = Vec::new();
    for (name, command) in commands {
        let Some(program) = tool(command[0]) else { continue };
        let archive = out.join(name);
        let status = Command::new(program)
            .args(&command[1..])
            .arg(&archive)
            .args(["full.so", "split.so", "split.debug", "bare.so"])
            .current_dir(release.dir.path())
            .output()
            .unwrap();
        assert!(status.status.success(), "{name}: {}", String::from_utf8_lossy(&status.stderr));
        archives.push(archive);
    }
    archives
}

#[test]
fn loose_files_and_archives_of_every_kind_give_one_digest() {
    let Some(release) = Release::make() else { return };
    let names = ["full.so", "split.so", "split.debug", "bare.so"];
    let expected = digest(&names.map(|name| release.path(name)));
    let archives = packed(
        &release,
        &[
            ("a.tar", &["tar", "-cf"]),
            ("a.tar.gz", &["tar", "-czf"]),
            ("a.tar.xz", &["tar", "-cJf"]),
            ("a.tar.zst", &["tar", "--zstd", "-cf"]),
            ("a.tar.bz2", &["tar", "-cjf"]),
            ("a.zip", &["python3", "-m", "zipfile", "-c"]),
        ],
    );
    assert!(archives.len() > 3);
    for archive in &archives {
        assert_eq!(digest(std::slice::from_ref(archive)), expected, "{}", archive.display());
    }
    // All of them, one of them within another, and loose copies: the same files.
    let outer = release.path("outer.tar");
    run(&tool("tar").unwrap(), &["-cf", text(&outer), "-C", text(release.dir.path()), "packed"]);
    assert_eq!(digest(&[outer]), expected);
    assert_eq!(digest(&[release.path("packed"), release.path("split.so"), release.path("split.debug")]), expected);
    let found = report(&[release.path("packed")]);
    assert_eq!(found.inputs.doubles, 4 * (archives.len() as u64 - 1));
    assert_eq!(found.inputs.archives.len(), archives.len());
    assert!(found.modules.iter().all(|module| module.binary.as_ref().unwrap().contains("!/")));
}

#[test]
fn neither_threads_nor_time_zone_nor_umask_nor_locale_nor_order_change_the_digest() {
    let Some(release) = Release::make() else { return };
    // The example beside this test program.
    let program = std::env::current_exe().unwrap();
    let program = program.parent().unwrap().parent().unwrap().join("examples/build_bundle");
    if !program.exists() {
        println!("SKIP build_bundle: examples are not built");
        return;
    }
    let mut digests = BTreeMap::new();
    let names = ["full.so", "split.so", "split.debug", "bare.so"];
    for (at, (zone, locale, umask, threads)) in [
        ("UTC", "C", "022", "1"),
        ("Asia/Kathmandu", "tr_TR.UTF-8", "077", "7"),
        ("America/St_Johns", "C.UTF-8", "000", "2"),
    ]
    .into_iter()
    .enumerate()
    {
        let copy = tempfile::tempdir().unwrap();
        let mut paths: Vec<String> = Vec::new();
        for name in names {
            std::fs::copy(release.path(name), copy.path().join(name)).unwrap();
            paths.push(format!("'{}'", text(&copy.path().join(name))));
        }
        paths.rotate_left(at);
        let script =
            format!("umask {umask}; exec '{}' '{}/layout' {}", text(&program), text(copy.path()), paths.join(" "));
        let run = Command::new("sh")
            .args(["-c", &script])
            .env("TZ", zone)
            .env("LC_ALL", locale)
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{printed}{}", String::from_utf8_lossy(&run.stderr));
        digests.insert(printed.split(' ').next().unwrap().to_owned(), zone);
    }
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn the_number_of_jobs_changes_nothing_and_a_report_alone_writes_nothing() {
    let Some(release) = Release::make() else { return };
    let paths = [release.dir.path().to_owned()];
    let dir = tempfile::tempdir().unwrap();
    let mut digests = Vec::new();
    for jobs in [1, 7] {
        let layout = LayoutDir::create(dir.path().join(jobs.to_string())).unwrap();
        let built = builder(&paths).jobs(jobs).build(&layout).unwrap();
        let mut found = builder(&paths).jobs(jobs).report().unwrap();
        assert_eq!(found.bundle, None);
        found.bundle = Some(built.digest);
        assert_eq!(found, built.report, "a report alone says what the build says");
        digests.push(built.digest);
    }
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn members_that_a_debugger_would_run_are_left_out_and_named() {
    let (Some(release), Some(tar)) = (Release::make(), tool("tar")) else { return };
    std::fs::write(release.path("full.so-gdb.py"), "import os").unwrap();
    std::fs::write(release.path(".gdbinit"), "shell true").unwrap();
    let archive = release.path("a.tar");
    let at = text(release.dir.path());
    run(&tar, &["-cf", text(&archive), "-C", at, "full.so", "full.so-gdb.py", ".gdbinit"]);
    let found = report(&[archive]);
    let places: Vec<&str> = found.inputs.refused.iter().map(|one| one.place.rsplit('/').next().unwrap()).collect();
    assert_eq!(places, [".gdbinit", "full.so-gdb.py"]);
    assert_eq!(found.modules.len(), 1);
}

#[test]
fn packages_that_are_not_read_are_named_wherever_they_lie() {
    let (Some(release), Some(bsdtar), Some(zip)) = (Release::make(), tool("bsdtar"), tool("zip")) else { return };
    let Some(zstd) = tool("zstd") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, format) in [("lib.7z", "7zip"), ("app.pkg", "xar"), ("root.img", "newc")] {
        run(&bsdtar, &["--format", format, "-cf", text(&at(name)), "-C", text(release.dir.path()), "full.so"]);
    }
    run(&zip, &["-qj", text(&at("all.zip")), text(&at("lib.7z")), text(&release.path("bare.so"))]);
    // As initial file systems of Linux are.
    run(&zstd, &["-q", text(&at("root.img"))]);
    std::fs::copy(release.path("full.so"), at("full.so")).unwrap();

    let report = report(&[dir.path().to_owned()]);
    assert_eq!(report.inputs.taken, 2, "{report:#?}");
    assert_eq!(report.inputs.skipped["archive or package that is not looked into"], 5, "{report:#?}");
    assert_eq!(report.inputs.skipped.get("no release file"), None, "{report:#?}");
    let passed: Vec<_> = report.inputs.archives.iter().flat_map(|archive| &archive.passed_over).collect();
    for (place, kind) in [
        ("/lib.7z", "7z"),
        ("/app.pkg", "xar"),
        ("/root.img", "cpio"),
        ("/root.img.zst", "cpio"),
        ("/all.zip!/lib.7z", "7z"),
    ] {
        let named = passed.iter().find(|one| one.place == format!("{}{place}", dir.path().display()));
        assert!(named.is_some_and(|one| one.reason.contains(kind) && one.reason.contains("unpack it")), "{passed:#?}");
    }

    let error = builder(&[at("app.pkg")]).report().unwrap_err();
    assert!(matches!(error, BuildError::Unsuitable { .. }), "{error}");
    assert!(error.to_string().contains("app.pkg") && error.to_string().contains("unpack it"), "{error}");
}

#[test]
fn hostile_names_of_members_lead_nowhere() {
    let (Some(release), Some(python)) = (Release::make(), tool("python3")) else { return };
    let archive = release.path("hostile.tar");
    let script = "
import sys, tarfile
names = ['../../escape.so', '/absolute.so', 'a/../../up.so', 'C:\\\\\\\\windows.so', 'new\\nline.so', 'NUL', 'x.dSYM/../y', '..', 'a/.', 'symbol_index.json']
data = open(sys.argv[2], 'rb').read()
with tarfile.open(sys.argv[1], 'w') as tar:
    for at, name in enumerate(names):
        info = tarfile.TarInfo(name)
        # Each its own build-id, so that each is a module.
        own = data.replace(bytes.fromhex('aa01020304'), bytes.fromhex('aa010203%02x' % (0x10 + at)))
        info.size = len(own)
        import io
        tar.addfile(info, io.BytesIO(own))
";
    run(&python, &["-c", script, text(&archive), text(&release.path("full.so"))]);
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("layout")).unwrap();
    let built = builder(&[archive]).build(&layout).unwrap();
    assert_eq!(built.index.linux.len(), 10);
    for module in built.index.linux.values() {
        assert!(!matches!(module.name.as_str(), "" | "." | ".."), "{:?}", module.name);
        assert!(!module.name.contains('/') && !module.name.chars().any(char::is_control), "{:?}", module.name);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was written beside the layout");
}

#[test]
fn a_file_that_was_compressed_twice_is_called_as_it_was_before() {
    let (Some(release), Some(gzip), Some(xz)) = (Release::make(), tool("gzip"), tool("xz")) else { return };
    let [debug, binary] = ["split.debug", "split.so"].map(|name| release.path(name));
    for packer in [&gzip, &gzip] {
        run(packer, &["-f", "-S", ".gz", text(&debug)]);
        std::fs::rename(release.path("split.debug.gz"), &debug).unwrap();
    }
    std::fs::rename(&debug, release.path("split.debug.gz.gz")).unwrap();
    run(&gzip, &[text(&binary)]);
    run(&xz, &[text(&release.path("split.so.gz"))]);
    let found = builder(&[release.path("split.debug.gz.gz"), release.path("split.so.gz.xz")]).report().unwrap();
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!(module.name, "split.so");
    assert!(found.is_complete(), "{found:#?}");
    let alone = builder(&[release.path("split.debug.gz.gz")]).report().unwrap();
    assert_eq!(alone.modules[0].name, "split.debug");
}

#[test]
fn an_archive_beyond_the_limits_and_a_damaged_member_are_named() {
    let (Some(release), Some(tar)) = (Release::make(), tool("tar")) else { return };
    let archive = release.path("a.tar.gz");
    let at = text(release.dir.path()).to_owned();
    run(&tar, &["-czf", text(&archive), "-C", &at, "full.so", "bare.so"]);
    let limits = symseal_artifact::Limits { members: 1, ..symseal_artifact::Limits::default() };
    let dir = tempfile::tempdir().unwrap();
    let layout = dir.path().join("layout");
    let error = builder(std::slice::from_ref(&archive)).limits(limits).build_into(&layout).unwrap_err();
    assert!(matches!(error, BuildError::Archive { .. }), "{error}");
    assert!(error.to_string().contains("a.tar.gz") && error.to_string().contains("bare.so"), "{error}");
    assert!(error.to_string().ends_with(" (--archive-limit members=NUMBER allows more)"), "{error}");
    assert!(!layout.exists(), "the spool and the layout are gone");

    let whole = std::fs::read(release.path("full.so")).unwrap();
    std::fs::write(release.path("cut.so"), &whole[..whole.len() / 2]).unwrap();
    run(&tar, &["-czf", text(&archive), "-C", &at, "bare.so", "cut.so"]);
    let error = builder(&[archive]).build_into(&layout).unwrap_err();
    assert!(matches!(error, BuildError::Artifact { .. }) && error.to_string().contains("a.tar.gz!/cut.so"), "{error}");
    assert!(!layout.exists());
}

#[test]
fn a_file_that_changes_while_it_is_read_is_named() {
    let Some(release) = Release::make() else { return };
    let path = release.path("full.so");
    let changing = path.clone();
    let progress = Arc::new(move |progress: &Progress<'_>| {
        if let Progress::Looked { .. } = progress {
            let mut bytes = std::fs::read(&changing).unwrap();
            bytes.push(0);
            std::fs::write(&changing, bytes).unwrap();
        }
    });
    let options = Options { name: "app".to_owned(), version: "1.0".to_owned(), progress: Some(progress) };
    let dir = tempfile::tempdir().unwrap();
    let error = SymbolBundleBuilder::new(options).add_path(&path).build_into(&dir.path().join("layout")).unwrap_err();
    assert!(matches!(&error, BuildError::Changed { place } if place == text(&path)), "{error}");
}

/// Writes the bytes over those of the file, and sets its time back to what it was.
fn replace(path: &Path, bytes: &[u8]) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.write_all(bytes).unwrap();
    file.set_modified(before).unwrap();
}

#[test]
fn a_file_whose_content_is_replaced_by_as_many_bytes_at_the_same_time_is_named() {
    let Some(release) = Release::make() else { return };
    let path = release.path("full.so");
    let before = std::fs::read(&path).unwrap();
    let other = with_other_id(&before);
    let changing = path.clone();
    let progress = Arc::new(move |progress: &Progress<'_>| {
        if let Progress::Looked { .. } = progress {
            replace(&changing, &other);
        }
    });
    let options = Options { name: "app".to_owned(), version: "1.0".to_owned(), progress: Some(progress) };
    let dir = tempfile::tempdir().unwrap();
    let error = SymbolBundleBuilder::new(options).add_path(&path).build_into(&dir.path().join("layout")).unwrap_err();
    assert!(matches!(&error, BuildError::Changed { place } if place == text(&path)), "{error}");
}

/// The same library under another build-id of the same length.
fn with_other_id(bytes: &[u8]) -> Vec<u8> {
    let id = [0xaa, 1, 2, 3, 4];
    let at = bytes.windows(id.len()).position(|window| window == id).unwrap();
    let mut other = bytes.to_vec();
    other[at] = 0xdd;
    other
}

#[test]
fn what_is_published_of_a_file_that_is_written_to_all_the_time_agrees_with_itself() {
    let Some(release) = Release::make() else { return };
    let path = release.path("full.so");
    let one = std::fs::read(&path).unwrap();
    let other = with_other_id(&one);
    let (mut published, mut refused) = (0, 0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Never shorter or longer, and never newer.
                replace(&path, &other);
                replace(&path, &one);
            }
        });
        for _ in 0..60 {
            let dir = tempfile::tempdir().unwrap();
            let layout = LayoutDir::create(dir.path()).unwrap();
            match builder(std::slice::from_ref(&path)).build(&layout) {
                Ok(built) => {
                    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
                    let identify = |bytes: &[u8]| {
                        symseal_artifact::ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default()
                    };
                    let contents = verify_contents(&bundle, &identify);
                    assert!(contents.holds(), "{:#?}", contents.checks);
                    published += 1;
                }
                // What was read the second time was not what was read first; or neither the one nor the other.
                Err(BuildError::Changed { place } | BuildError::Artifact { place, .. }) => {
                    assert_eq!(place, text(&path));
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    println!("{published} bundles, {refused} refusals");
    assert_eq!(published + refused, 60);
}

#[test]
fn an_image_layout_gives_the_files_of_its_layers_and_a_bundle_beside_them_is_no_input() {
    let (Some(release), Some(tar)) = (Release::make(), tool("tar")) else { return };
    let at = text(release.dir.path()).to_owned();
    let layer = release.path("layer.tar");
    run(&tar, &["-cf", text(&layer), "-C", &at, "split.so", "split.debug"]);
    let image = release.path("image");
    let layout = LayoutDir::create(&image).unwrap();
    let layer = std::fs::read(layer).unwrap();
    let config = br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
    let (layer, config) =
        ((layout.write_blob(&layer).unwrap(), layer.len()), (layout.write_blob(config).unwrap(), config.len()));
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{}","size":{}}}]}}"#,
        config.0, config.1, layer.0, layer.1
    );
    let digest_of_manifest = layout.write_blob(manifest.as_bytes()).unwrap();
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{digest_of_manifest}","size":{},"platform":{{"architecture":"amd64","os":"linux"}}}}]}}"#,
        manifest.len()
    );
    std::fs::write(image.join("index.json"), index).unwrap();

    let found = report(std::slice::from_ref(&image));
    assert_eq!((found.modules.len(), found.inputs.archives[0].images.as_slice()), (1, &["linux/amd64".to_owned()][..]));
    assert_eq!(digest(std::slice::from_ref(&image)), digest(&[release.path("split.so"), release.path("split.debug")]));

    // Built into the directory that is read: the second build does not read the first one's bundle.
    let output = release.path("bundle");
    let paths = [release.dir.path().to_owned()];
    let first = builder(&paths).build_into(&output).unwrap();
    let second = builder(&paths).build_into(&output).unwrap();
    assert_eq!(first.digest, second.digest);
    assert_eq!(first.report, second.report);
}

#[test]
fn debian_packages_are_paired_line_by_line_as_elfutils_says() {
    let (Some(dpkg), Some(unstrip)) = (tool("dpkg-deb"), tool("eu-unstrip")) else { return };
    let Some(packages) = LIBC.directory() else { return };
    let found = report(std::slice::from_ref(&packages));
    let unpacked = tempfile::tempdir().unwrap();
    for package in std::fs::read_dir(&packages).unwrap() {
        run(&dpkg, &["-x", text(&package.unwrap().path()), text(unpacked.path())]);
    }
    let mut files = vec![unpacked.path().to_owned()];
    let (mut binaries, mut paired) = (0, 0);
    while let Some(path) = files.pop() {
        if path.is_symlink() {
        } else if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if std::fs::read(&path).unwrap().starts_with(b"\x7fELF") && !text(&path).contains("/usr/lib/debug/") {
            let Some(printed) = output(&unstrip, &["-n", "-e", text(&path)]).lines().next().map(str::to_owned) else {
                continue;
            };
            // `0x0+0x1 BUILD-ID@0x2 FILE DEBUG-FILE`
            let id = printed.split(' ').nth(1).unwrap().split('@').next().unwrap();
            if path.extension().is_some_and(|extension| extension == "o") {
                continue;
            }
            let module = found.modules.iter().find(|module| module.debug_id.to_string() == id);
            let module = module.unwrap_or_else(|| panic!("{printed} is not in the report"));
            binaries += 1;
            let debug = unpacked.path().join(format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
            assert_eq!(module.debug_file.is_some(), debug.exists(), "{printed}");
            if let Some(place) = &module.debug_file {
                assert!(place.ends_with(&format!(".build-id/{}/{}.debug", &id[..2], &id[2..])), "{place}");
                paired += 1;
            }
        }
    }
    println!("{binaries} binaries, {paired} with their debug files, {} in the report", found.modules.len());
    assert!(binaries > 200 && paired > 200);
    assert_eq!(found.mismatches, []);
}

#[cfg(unix)]
#[test]
fn the_name_of_an_archive_that_is_no_text_is_escaped_once() {
    use std::os::unix::ffi::OsStrExt as _;
    let Some(release) = Release::make() else { return };
    let Some(tar) = tool("tar") else { return };
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join(std::ffi::OsStr::from_bytes(b"a\xff\x1b.tar"));
    let mut pack = std::process::Command::new(tar);
    pack.arg("-cf").arg(&archive).arg("-C").arg(release.dir.path()).arg("full.so");
    assert!(pack.status().unwrap().success());
    let found = report(std::slice::from_ref(&archive));
    let place = format!("{}/a\\xff\\x1b.tar", folder.path().display());
    assert_eq!(found.inputs.archives[0].place, place);
    assert_eq!(found.modules[0].binary, Some(format!("{place}!/full.so")));
    std::fs::write(&archive, &std::fs::read(&archive).unwrap()[..700]).unwrap();
    let error = builder(&[archive]).report().unwrap_err().to_string();
    assert!(error.contains(&place) && error.matches(&place).count() == 1, "{error}");
}

#[test]
fn a_file_with_several_names_is_called_the_same_packed_in_any_order_and_loose() {
    let Some(release) = Release::make() else { return };
    let Some(tar) = tool("tar") else { return };
    let tree = release.path("tree");
    std::fs::create_dir_all(tree.join("lib")).unwrap();
    std::fs::copy(release.path("full.so"), tree.join("m.so")).unwrap();
    for other in ["lib/z.so", "lib/a.so"] {
        std::fs::hard_link(tree.join("m.so"), tree.join(other)).unwrap();
    }
    let expected = digest(std::slice::from_ref(&tree));
    let names = ["m.so", "lib/z.so", "lib/a.so"];
    for first in 0..names.len() {
        let mut order = names;
        order.rotate_left(first);
        let archive = release.path("links.tar");
        run(&tar, &[&["-C", text(&tree), "-cf", text(&archive)][..], &order].concat());
        assert_eq!(digest(std::slice::from_ref(&archive)), expected, "{order:?}");
        let found = report(std::slice::from_ref(&archive));
        assert_eq!((found.inputs.files, found.inputs.doubles, found.inputs.archives[0].taken), (3, 2, 3), "{order:?}");
        assert!(!found.inputs.skipped.contains_key("hard link to another member"), "{:?}", found.inputs.skipped);
    }
    // Within another archive, and packed by itself.
    let outer = release.path("outer.tar.gz");
    run(&tar, &["-C", text(release.dir.path()), "-czf", text(&outer), "links.tar"]);
    assert_eq!(digest(&[outer]), expected);
    if let Some(xz) = tool("xz") {
        std::fs::create_dir(release.path("xz")).unwrap();
        std::fs::copy(release.path("full.so"), release.path("xz/m.so")).unwrap();
        run(&xz, &[text(&release.path("xz/m.so"))]);
        for other in ["xz/z.so.xz", "xz/a.so.xz"] {
            std::fs::hard_link(release.path("xz/m.so.xz"), release.path(other)).unwrap();
        }
        let packed = release.path("packed.tar");
        let order = ["xz/z.so.xz", "xz/m.so.xz", "xz/a.so.xz"];
        run(&tar, &[&["-C", text(release.dir.path()), "-cf", text(&packed)][..], &order].concat());
        assert_eq!(digest(&[packed]), expected);
    }
}

#[test]
fn a_file_with_several_names_in_an_rpm_package_is_called_as_it_is_loose() {
    let Some(release) = Release::make() else { return };
    let Some(rpmbuild) = tool("rpmbuild") else { return };
    let tree = release.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::copy(release.path("full.so"), tree.join("m.so")).unwrap();
    for other in ["z.so", "a.so"] {
        std::fs::hard_link(tree.join("m.so"), tree.join(other)).unwrap();
    }
    let spec = format!(
        "%define __os_install_post %{{nil}}\n%define debug_package %{{nil}}\nAutoReqProv: no\nName: linked\nVersion: 1\nRelease: 1\nSummary: links\nLicense: none\n\
         %description\nlinks\n%install\nmkdir -p %{{buildroot}}/opt\ncp -a {}/. %{{buildroot}}/opt/\n%files\n/opt/*\n",
        tree.display()
    );
    std::fs::write(release.path("linked.spec"), spec).unwrap();
    let top = format!("_topdir {}", text(&release.path("rpm")));
    run(&rpmbuild, &["-bb", "--quiet", "--define", &top, text(&release.path("linked.spec"))]);
    let packages = release.path("rpm/RPMS");
    assert_eq!(digest(std::slice::from_ref(&packages)), digest(std::slice::from_ref(&tree)));
    assert_eq!(report(&[packages]).inputs.files, 3);
}

#[test]
fn of_two_members_with_one_path_the_later_counts_as_unpacking_leaves_it() {
    let Some(release) = Release::make() else { return };
    let Some(tar) = tool("tar") else { return };
    let archive = release.path("appended.tar");
    for from in ["bare.so", "full.so"] {
        std::fs::create_dir_all(release.path("tree")).unwrap();
        std::fs::copy(release.path(from), release.path("tree/app.so")).unwrap();
        run(&tar, &["-C", text(&release.path("tree")), "-rf", text(&archive), "app.so"]);
    }
    assert_eq!(digest(std::slice::from_ref(&archive)), digest(&[release.path("tree")]));
    let found = report(&[archive]);
    assert_eq!(found.inputs.skipped.get("member that a later one of the same path replaces"), Some(&1));
    assert_eq!((found.modules.len(), found.inputs.archives[0].taken), (1, 1));
}

#[test]
fn files_and_tars_of_zstandard_that_begin_with_a_frame_to_skip_are_unpacked() {
    let (Some(release), Some(tar), Some(zstd)) = (Release::make(), tool("tar"), tool("zstd")) else { return };
    let at = release.dir.path();
    std::fs::create_dir(at.join("in")).unwrap();
    run(&tar, &["-cf", text(&at.join("a.tar")), "-C", text(at), "full.so"]);
    for name in ["a.tar", "split.so"] {
        let packed = at.join("packed.zst");
        run(&zstd, &["-q", "-f", text(&at.join(name)), "-o", text(&packed)]);
        let frame = std::fs::read(&packed).unwrap();
        // As pzstd begins its files: how long the next frame is.
        let mut bytes = vec![0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0];
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend(frame);
        std::fs::write(at.join(format!("in/{name}.zst")), bytes).unwrap();
    }
    let found = builder(&[at.join("in")]).report().unwrap();
    let mut names: Vec<&str> = found.modules.iter().map(|module| module.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["full.so", "split.so"], "{found:#?}");
}
