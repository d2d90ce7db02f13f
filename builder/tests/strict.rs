//! What a strict build does not let pass beside files without their counterpart: what was not read.

use std::path::{Path, PathBuf};

use crate::inputs::{Release, SOURCE, builder, compile, report, run, tool};
use symseal_artifact::{ObjectFile, ReleaseFile};
use symseal_builder::{BuildError, BuildReport, Exclude};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Everything that the report says was not looked into: place and reason.
fn passed_over(report: &BuildReport) -> Vec<(&str, &str)> {
    let archives = report.inputs.archives.iter();
    archives.flat_map(|archive| &archive.passed_over).map(|one| (one.place.as_str(), one.reason.as_str())).collect()
}

/// Builds the directory strictly: it fails because `name` was not looked into, is told so, and passes without it.
#[track_caller]
fn must_be_left_out(dir: &Path, name: &str, kind: &str) {
    let found = report(&[dir.to_owned()]);
    let [(place, reason)] = passed_over(&found)[..] else { panic!("{name}: {found:#?}") };
    assert!(place.ends_with(name) && reason.contains(kind), "{name}: {place}: {reason}");
    assert!(!found.is_complete(), "{name}");
    match builder(&[dir.to_owned()]).strict(true).report() {
        Err(error @ BuildError::Strict { not_looked_into: 1, unpaired: 0, mismatches: 0, damaged: 0, .. }) => {
            let told = error.to_string();
            assert!(told.contains("1 archive not looked into") && told.contains("--exclude"), "{told}");
        }
        other => panic!("{name}: {other:#?}"),
    }
    let exclude = Exclude::new([format!("*{}", name.rsplit('/').next().unwrap())]).unwrap();
    builder(&[dir.to_owned()]).exclude(exclude).strict(true).report().unwrap();
}

/// A directory with a good library of its own build-id.
fn directory(release: &Release) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(release.path("full.so"), dir.path().join("full.so")).unwrap();
    dir
}

#[test]
fn an_archive_that_was_not_looked_into_fails_a_strict_build_until_it_is_left_out() {
    let (Some(release), Some(python)) = (Release::make(), tool("python3")) else { return };
    // Compressed in a way that is not read, and an archive two levels down.
    let script = "
import io, sys, tarfile, zipfile
kind, out, member = sys.argv[1:]
if kind in ('bzip2', 'lzma'):
    method = {'bzip2': zipfile.ZIP_BZIP2, 'lzma': zipfile.ZIP_LZMA}[kind]
    with zipfile.ZipFile(out, 'w', method) as packed:
        packed.write(member, 'inner.so')
else:
    def tar(name, data):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode='w') as packed:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
        return out.getvalue()
    data = tar('inner.so', open(member, 'rb').read())
    open(out, 'wb').write(tar('middle.tar', tar('deep.tar', data)))
";
    for (kind, name, place, said) in [
        ("bzip2", "app.zip", "app.zip!/inner.so", "method 12"),
        ("lzma", "app.zip", "app.zip!/inner.so", "method 14"),
        ("deep", "app.tar", "app.tar!/middle.tar!/deep.tar", "tar within an archive within an archive"),
    ] {
        let dir = directory(&release);
        let archive = dir.path().join(name);
        run(&python, &["-c", script, kind, text(&archive), text(&release.path("bare.so"))]);
        must_be_left_out(dir.path(), place, said);
    }
}

/// A download that broke off behind a member looks like a whole tar otherwise.
#[test]
fn a_tar_that_was_cut_behind_a_member_is_told_and_fails_a_strict_build() {
    let (Some(release), Some(python)) = (Release::make(), tool("python3")) else { return };
    // Two members of which one is left, with its padding.
    let script = "
import sys, tarfile
out, whole, member = sys.argv[1:]
with tarfile.open(whole, 'w') as packed:
    packed.add(member, 'inner.so')
    packed.add(member, 'other.so')
with tarfile.open(whole) as packed:
    end = packed.getmembers()[1].offset
open(out, 'wb').write(open(whole, 'rb').read()[:end])
";
    let (dir, whole) = (directory(&release), directory(&release));
    let (cut, uncut) = (dir.path().join("app.tar"), whole.path().join("app.tar"));
    run(&python, &["-c", script, text(&cut), text(&uncut), text(&release.path("full.so"))]);
    assert!(passed_over(&report(&[uncut])).is_empty());
    must_be_left_out(dir.path(), "app.tar", "without the zeros that end a tar");
}

/// What is left of a damaged archive looks whole, where the damage is right behind a member, a compressed stream or a tar.
#[test]
fn what_is_missing_behind_a_sound_part_of_an_archive_is_told() {
    let (Some(release), Some(python)) = (Release::make(), tool("python3")) else { return };
    let script = r"
import bz2, gzip, io, sys, tarfile
kind, out, first, second = sys.argv[1:]
def tar(*members, ends=True):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode='w') as packed:
        for name in members:
            packed.add(name, name.rsplit('/', 1)[1])
        end = packed.offset
    return buffer.getvalue() if ends else buffer.getvalue()[:end]
def ar(*members):
    parts = [b'!<arch>\n']
    for name, data in members:
        parts.append(f'{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n'.encode() + data + b'\n' * (len(data) % 2))
    return b''.join(parts)
version, control = ('debian-binary', b'2.0\n'), ('control.tar.gz', gzip.compress(tar()))
parts = [tar(first, ends=False), tar(second)]
made = {
    'two-members': lambda: b''.join(map(gzip.compress, parts)) + b'\0' * 700,
    'damaged-member': lambda: gzip.compress(parts[0]) + b'\x1e' + gzip.compress(parts[1])[1:],
    'damaged-stream': lambda: bz2.compress(parts[0]) + b'A' + bz2.compress(parts[1])[1:],
    'two-tars': lambda: tar(first) + tar(second),
    'no-payload': lambda: ar(version, control),
    'packed': lambda: ar(version, control, ('data.tar.lz4', b'\x04\x22\x4d\x18' + b'rest' * 100)),
    'two-payloads': lambda: ar(version, control, ('data.tar', tar(first)), ('data.tar.gz', gzip.compress(tar(second)))),
}
open(out, 'wb').write(made[kind]())
";
    let made = |kind: &str, name: &str| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join(name);
        run(&python, &["-c", script, kind, text(&out), text(&release.path("full.so")), text(&release.path("bare.so"))]);
        (dir, out)
    };
    // Of two parts that are sound nothing is lost, and zeros behind them are no damage; of two payloads the first counts.
    for (kind, name, modules) in [("two-members", "app.tar.gz", 2), ("two-payloads", "app.deb", 1)] {
        let (_dir, out) = made(kind, name);
        let found = report(&[out]);
        assert_eq!((found.modules.len(), passed_over(&found)), (modules, Vec::new()), "{kind}");
    }
    for (kind, name, said) in [
        ("damaged-member", "app.tar.gz", "a further gzip member or the end"),
        ("damaged-stream", "app.tar.bz2", "a further bzip2 stream or the end"),
        ("no-payload", "app.deb", "expected a data.tar, found the end"),
    ] {
        let (_dir, out) = made(kind, name);
        let error = builder(&[out]).report().unwrap_err().to_string();
        assert!(error.contains(said), "{kind}: {error}");
    }
    for (kind, name, place, said) in [
        ("two-tars", "app.tar", "app.tar", "behind the end of its first tar"),
        ("packed", "app.deb", "app.deb!/data.tar.lz4", "packed by a method that is not read"),
    ] {
        let ((_made, out), dir) = (made(kind, name), directory(&release));
        std::fs::copy(out, dir.path().join(name)).unwrap();
        must_be_left_out(dir.path(), place, said);
    }
}

#[test]
fn archives_and_disk_images_of_kinds_that_are_not_read_are_named_and_fail_a_strict_build() {
    let (Some(release), Some(bsdtar)) = (Release::make(), tool("bsdtar")) else { return };
    let member = release.path("full.so");
    let from = text(release.dir.path());
    let made: Vec<(&str, &str, Option<PathBuf>, Vec<&str>)> = vec![
        ("x.tar.lz", "lzip", Some(bsdtar.clone()), vec!["--lzip", "-cf", "OUT", "-C", from, "full.so"]),
        ("x.tar.lz4", "LZ4", tool("lz4"), vec!["-q", "-f", text(&member), "OUT"]),
        ("x.iso", ".iso", Some(bsdtar), vec!["--format", "iso9660", "-cf", "OUT", "-C", from, "full.so"]),
    ];
    for (name, kind, program, arguments) in made {
        let Some(program) = program else { continue };
        let dir = directory(&release);
        let out = dir.path().join(name);
        let arguments: Vec<&str> =
            arguments.into_iter().map(|argument| if argument == "OUT" { text(&out) } else { argument }).collect();
        run(&program, &arguments);
        must_be_left_out(dir.path(), name, kind);
        // The same in an archive.
        let Some(zip) = tool("zip") else { continue };
        let packed = dir.path().join("all.zip");
        run(&zip, &["-qjm", text(&packed), text(&out)]);
        must_be_left_out(dir.path(), &format!("all.zip!/{name}"), kind);
    }
}

/// No free program makes disk images of macOS here: what stands at their end is written by the description of the format.
#[test]
fn a_disk_image_of_macos_is_known_by_its_end() {
    let Some(release) = Release::make() else { return };
    let dir = directory(&release);
    let mut image = vec![7; 300_000];
    let mut trailer = vec![0; 512];
    trailer[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
    image.extend(trailer);
    std::fs::write(dir.path().join("App.dmg"), &image).unwrap();
    must_be_left_out(dir.path(), "App.dmg", ".dmg");
    let Some(zip) = tool("zip") else { return };
    run(&zip, &["-qjm", text(&dir.path().join("all.zip")), text(&dir.path().join("App.dmg"))]);
    must_be_left_out(dir.path(), "all.zip!/App.dmg", ".dmg");
}

#[test]
fn static_libraries_hold_no_modules_at_any_depth() {
    let (Some(release), Some(ar), Some(tar)) = (Release::make(), tool("ar"), tool("tar")) else { return };
    let dir = directory(&release);
    let at = |name: &str| dir.path().join(name);
    run(&ar, &["rc", text(&at("libx.a")), text(&release.path("bare.so"))]);
    run(&tar, &["-cf", text(&at("inner.tar")), "-C", text(dir.path()), "libx.a"]);
    run(&tar, &["-cf", text(&at("middle.tar")), "-C", text(dir.path()), "inner.tar"]);
    run(&tar, &["-cf", text(&at("outer.tar")), "-C", text(dir.path()), "middle.tar", "libx.a"]);
    for name in ["inner.tar", "libx.a"] {
        std::fs::remove_file(at(name)).unwrap();
    }
    // The library three levels down lies in an archive that is not looked into.
    let found = report(&[at("outer.tar"), at("full.so")]);
    assert_eq!(found.inputs.not_looked_into(), 1, "{found:#?}");
    std::fs::remove_file(at("outer.tar")).unwrap();
    let found = report(&[dir.path().to_owned()]);
    let [(place, reason)] = passed_over(&found)[..] else { panic!("{found:#?}") };
    assert!(place.ends_with("middle.tar!/inner.tar!/libx.a") && reason.contains("static library"), "{place}: {reason}");
    assert!(found.is_complete(), "{found:#?}");
    builder(&[dir.path().to_owned()]).strict(true).report().unwrap();
}

#[test]
fn a_damaged_unit_among_others_fails_a_strict_build() {
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("other.c"), "int other(int x) { return x * 5; }\n").unwrap();
    let other = at("other.c");
    let whole = compile(&cc, dir.path(), "whole.so", SOURCE, &["-g", "-Wl,--build-id", text(&other)]);
    let good = report(std::slice::from_ref(&whole));
    assert!(good.is_complete() && good.damaged_modules() == 0, "{good:#?}");
    // The abbreviation of the second unit's first entry is one that there is not: its offset comes from the lengths of the units.
    let bytes = std::fs::read(&whole).unwrap();
    let object = match ReleaseFile::parse(&bytes).unwrap() {
        ReleaseFile::Object(object) => object,
        other => panic!("{other:?}"),
    };
    let mut info = section(&object, ".debug_info");
    let first = u32::from_le_bytes(info[..4].try_into().unwrap()) as usize + 4;
    assert!(info.len() > first + 16, "two units");
    let header = if u16::from_le_bytes([info[first + 4], info[first + 5]]) >= 5 { 12 } else { 11 };
    info[first + header] = 0x7f;
    std::fs::write(at("info"), info).unwrap();
    let update = format!("--update-section=.debug_info={}", text(&at("info")));
    std::fs::create_dir(at("release")).unwrap();
    let damaged = at("release/whole.so");
    run(&objcopy, &[&update, text(&whole), text(&damaged)]);

    let found = report(&[at("release")]);
    let [module] = found.modules.as_slice() else { panic!("{found:#?}") };
    assert_eq!((module.damaged_units(), found.damaged_modules(), found.is_complete()), (1, 1, false), "{found:#?}");
    assert!(module.functions["dwarf"] < good.modules[0].functions["dwarf"]);
    let strict = builder(&[at("release")]).strict(true).report();
    assert!(matches!(strict, Err(BuildError::Strict { damaged: 1, unpaired: 0, .. })), "{strict:#?}");

    // With its only unit damaged, it has no lines at all.
    let alone = compile(&cc, dir.path(), "alone.so", SOURCE, &["-g", "-Wl,--build-id"]);
    let bytes = std::fs::read(&alone).unwrap();
    let ReleaseFile::Object(object) = ReleaseFile::parse(&bytes).unwrap() else { panic!("no object file") };
    let mut info = section(&object, ".debug_info");
    info[header] = 0x7f;
    std::fs::write(at("info"), info).unwrap();
    run(&objcopy, &[&update, text(&alone), text(&damaged)]);
    let found = report(&[at("release")]);
    let [unpaired] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    let id = found.modules[0].debug_id.to_string();
    assert!(unpaired.advice.contains("is damaged: build it anew") && unpaired.advice.ends_with(&id), "{unpaired:?}");
}

fn section(object: &ObjectFile<'_>, name: &str) -> Vec<u8> {
    object.section(name).unwrap().1.to_vec()
}

/// `objcopy --remove-section` takes what it is told, and the units go on naming it.
#[test]
fn a_section_that_units_name_and_that_is_not_there_fails_a_strict_build() {
    let (Some(cc), Some(objcopy)) = (tool("cc"), tool("objcopy")) else { return };
    let dir = tempfile::tempdir().unwrap();
    // The second range of the unit is in a section of its own.
    let source =
        "__attribute__((section(\".text.other\"))) int other(int x) { return x * 5; }\nint f(int x) { return x; }\n";
    let whole = compile(&cc, dir.path(), "whole.so", source, &["-g", "-gdwarf-5", "-Wl,--build-id"]);
    assert!(report(std::slice::from_ref(&whole)).is_complete());
    std::fs::create_dir(dir.path().join("release")).unwrap();
    let cut = dir.path().join("release/whole.so");
    for section in [".debug_line", ".debug_str", ".debug_line_str", ".debug_rnglists"] {
        run(&objcopy, &["--remove-section", section, text(&whole), text(&cut)]);
        let found = report(std::slice::from_ref(&cut));
        let told = format!("section {section} that is not there");
        assert!(found.modules[0].skipped.contains_key(&told), "{section}: {:#?}", found.modules[0].skipped);
        assert!(!found.is_complete() && found.damaged_modules() == 1, "{section}: {found:#?}");
        let strict = builder(std::slice::from_ref(&cut)).strict(true).report();
        assert!(matches!(strict, Err(BuildError::Strict { damaged: 1, .. })), "{section}: {strict:#?}");
    }
}

/// The form of debug information before DWARF.
#[test]
fn debug_information_in_stabs_is_told_as_not_read() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("f.s");
    let stabs = ".stabs \"f.c\",100,0,0,f\n.text\n.globl f\n.type f,@function\nf:\n.stabn 68,0,1,0\nret\n.size f,.-f\n";
    std::fs::write(&source, stabs).unwrap();
    let library = dir.path().join("f.so");
    run(&cc, &["-shared", "-nostdlib", "-Wl,--build-id", text(&source), "-o", text(&library)]);
    let found = report(&[library]);
    let [unpaired] = found.binaries_without_debug_files.as_slice() else { panic!("{found:#?}") };
    assert!(unpaired.advice.contains("STABS, which is not read"), "{unpaired:?}");
}
