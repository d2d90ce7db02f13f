//! Archives that were appended to programs: AppImages, self-extracting zips.
#![cfg(unix)]

use std::path::{Path, PathBuf};

use crate::inputs::{SOURCE, build, builder, compile, report, run, tool};
use symseal_builder::BuildReport;
use symseal_bundle::LayoutDir;

const TOLD: &str = "has an archive behind it that was not looked into";

struct Scene {
    dir: tempfile::TempDir,
    cc: PathBuf,
}

impl Scene {
    fn new() -> Option<Self> {
        let scene = Self { cc: tool("cc")?, dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(scene.path("input")).unwrap();
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program with these bytes behind it.
    fn program(&self, name: &str, behind: &[u8]) -> PathBuf {
        let program = compile(&self.cc, self.dir.path(), "program", SOURCE, &["-g", "-Wl,--build-id=0xaa01020304"]);
        self.append(&program, name, behind)
    }

    fn append(&self, program: &Path, name: &str, behind: &[u8]) -> PathBuf {
        let path = self.path("input").join(name);
        std::fs::write(&path, [std::fs::read(program).unwrap().as_slice(), behind].concat()).unwrap();
        path
    }

    /// A zip with a library in it.
    fn zip(&self) -> Option<Vec<u8>> {
        let zip = tool("zip")?;
        let library = compile(&self.cc, self.dir.path(), "inner.so", SOURCE, &["-g", "-Wl,--build-id=0xbb01020304"]);
        let packed = self.path("packed.zip");
        run(&zip, &["-qj", packed.to_str().unwrap(), library.to_str().unwrap()]);
        Some(std::fs::read(packed).unwrap())
    }

    fn report(&self) -> BuildReport {
        report(&[self.path("input")])
    }
}

/// The first bytes of a SquashFS image (Linux, fs/squashfs/squashfs_fs.h), of version 4.
fn squashfs() -> Vec<u8> {
    let mut image = b"hsqs".to_vec();
    image.resize(28, 0);
    image.extend([4, 0, 0, 0]);
    image.resize(4096, 0);
    image
}

#[track_caller]
fn told(report: &BuildReport, place: &str, what: &str) {
    let told: Vec<_> = report.inputs.archives.iter().flat_map(|archive| &archive.passed_over).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].place.ends_with(place) && told[0].reason.starts_with(TOLD) && told[0].reason.contains(what),
        "{told:?}"
    );
    assert_eq!(report.inputs.not_looked_into(), 1);
    assert_eq!(report.inputs.skipped.get("archive or package that is not looked into"), Some(&1));
}

#[test]
fn an_appimage_is_a_module_with_an_archive_that_is_not_looked_into() {
    let Some(scene) = Scene::new() else { return };
    for (name, behind, what) in [
        ("tool.AppImage", squashfs(), "SquashFS"),
        ("padded.run", [vec![0; 100], squashfs()].concat(), "SquashFS"),
        ("setup.run", b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "7z"),
    ] {
        let path = scene.program(name, &behind);
        let report = scene.report();
        assert_eq!(report.modules.len(), 1);
        told(&report, &format!("/{name}"), what);
        // Named by itself it is no error: the program is one that can be used. Strictness asks for what is in it.
        let layout = LayoutDir::create(scene.path("layout")).unwrap();
        build(std::slice::from_ref(&path), &layout).unwrap();
        let strict = builder(std::slice::from_ref(&path)).strict(true).report().unwrap_err();
        assert!(strict.to_string().contains("not looked into"), "{strict}");
        std::fs::remove_file(path).unwrap();
    }
    // Without one nothing is said, nor of bytes that are no archive.
    for behind in [&b""[..], b"a line of text\n", &[0; 20_000]] {
        let path = scene.program("plain", behind);
        assert_eq!(scene.report().inputs.archives, []);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_zip_behind_a_program_is_looked_into_however_its_offsets_count() {
    let Some(scene) = Scene::new() else { return };
    let (Some(zip), Some(packed)) = (tool("zip"), scene.zip()) else { return };
    for name in ["setup.run", "setup.exe"] {
        let path = if name == "setup.run" {
            scene.program(name, &packed)
        } else {
            let Some(mingw) = tool("x86_64-w64-mingw32-gcc") else { continue };
            let source = format!("{SOURCE}\nint DllMainCRTStartup(void) {{ return 1; }}");
            let program = compile(&mingw, scene.dir.path(), "setup.dll", &source, &["-g"]);
            scene.append(&program, name, &packed)
        };
        for is_adjusted in [false, true] {
            if is_adjusted {
                run(&zip, &["-qA", path.to_str().unwrap()]);
            }
            let report = scene.report();
            let places: Vec<&str> = report.modules.iter().filter_map(|module| module.binary.as_deref()).collect();
            assert!(places.iter().any(|place| place.ends_with(&format!("/{name}!/inner.so"))), "{places:?}");
            assert!(places.iter().any(|place| place.ends_with(&format!("/{name}"))), "{places:?}");
            assert_eq!(report.inputs.not_looked_into(), 0);
            assert_eq!((report.inputs.archives.len(), report.inputs.archives[0].taken), (1, 1));
        }
        // One that is cut is told; the program is sound.
        let mut damaged = std::fs::read(&path).unwrap();
        let directory = damaged.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
        damaged[directory] = b'?';
        std::fs::write(&path, damaged).unwrap();
        told(&scene.report(), &format!("/{name}"), "damaged");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_zip_behind_a_member_of_an_archive_is_told() {
    let Some(scene) = Scene::new() else { return };
    let (Some(tar), Some(packed)) = (tool("tar"), scene.zip()) else { return };
    scene.program("setup.run", &packed);
    let input = scene.path("input");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run(&tar, &["-cf", &text(&input.join("a.tar")), "-C", &text(&input), "setup.run"]);
    std::fs::remove_file(input.join("setup.run")).unwrap();
    let report = scene.report();
    assert_eq!(report.modules.len(), 1);
    told(&report, "/a.tar!/setup.run", "a zip archive");
}
