//! Container images wherever they lie in a tar or in an archive around it: what the image has deleted is in no bundle, and where that cannot be
//! said it is told.

use std::path::{Path, PathBuf};

use crate::inputs::{SOURCE, builder, compile, report, run, tool};
use symseal_artifact::Limits;
use symseal_builder::{BuildError, BuildReport};

/// An image as `docker save` writes it, of two layers, in the folder `image`: the second one deletes `gone.so`.
struct Scene {
    dir: tempfile::TempDir,
    tar: PathBuf,
}

impl Scene {
    fn make() -> Option<Self> {
        let (cc, tar, sums) = (tool("cc")?, tool("tar")?, tool("sha256sum")?);
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        for (layer, names) in [("lower", &["gone.so", "kept.so"][..]), ("upper", &["new.so"][..])] {
            std::fs::create_dir_all(at(layer).join("usr/lib")).unwrap();
            for name in names {
                let id = format!("-Wl,--build-id=0x{:02x}010203", name.as_bytes()[0]);
                compile(&cc, &at(layer).join("usr/lib"), name, SOURCE, &["-g", &id]);
            }
        }
        std::fs::write(at("upper/usr/lib/.wh.gone.so"), "").unwrap();
        std::fs::create_dir(at("image")).unwrap();
        let mut ids = Vec::new();
        for layer in ["lower", "upper"] {
            let packed = text(&at("image").join(format!("{layer}.tar")));
            run(&tar, &["-C", &text(&at(layer)), "-cf", &packed, "usr"]);
            let sum = String::from_utf8(run(&sums, &[&packed]).stdout).unwrap();
            ids.push(format!("\"sha256:{}\"", sum.split(' ').next().unwrap()));
        }
        let config = format!(
            r#"{{"os":"linux","architecture":"amd64","config":{{}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            ids.join(",")
        );
        std::fs::write(at("image/ec.json"), config).unwrap();
        let manifest = r#"[{"Config":"ec.json","RepoTags":["a/b:1"],"Layers":["lower.tar","upper.tar"]}]"#;
        std::fs::write(at("image/manifest.json"), manifest).unwrap();
        Some(Self { dir, tar })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Packs with tar, and says where.
    fn pack(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let to = self.at(name);
        let mut all = vec!["-C", self.dir.path().to_str().unwrap(), "-caf", to.to_str().unwrap()];
        all.extend(arguments);
        run(&self.tar, &all);
        to
    }
}

#[track_caller]
fn check(input: &Path, expected: &[&str]) -> BuildReport {
    let found = report(&[input.to_owned()]);
    let mut names: Vec<&str> = found.modules.iter().map(|module| module.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, expected, "{}: {found:#?}", input.display());
    assert!(found.is_complete(), "{}: {:#?}", input.display(), found.inputs);
    found
}

#[test]
fn whiteouts_hold_wherever_the_files_of_an_image_lie_in_a_tar() {
    let Some(scene) = Scene::make() else { return };
    let image = scene.at("image");
    let files = ["-C", image.to_str().unwrap(), "./ec.json", "./lower.tar", "./upper.tar", "./manifest.json"];
    check(&scene.pack("list-last.tar", &files), &["kept.so", "new.so"]);
    check(&scene.pack("root.tar", &["-C", image.to_str().unwrap(), "."]), &["kept.so", "new.so"]);
    check(&scene.pack("root.tar.gz", &["-C", image.to_str().unwrap(), "."]), &["kept.so", "new.so"]);
    let found = check(&scene.pack("folder.tar", &["image"]), &["kept.so", "new.so"]);
    let place = found.modules[0].binary.as_deref().unwrap();
    assert!(place.contains("folder.tar!/image!/linux/amd64!/sha256:"), "{place}");
    check(&scene.pack("folder.tar.xz", &["image"]), &["kept.so", "new.so"]);

    // What lies beside the image is read as well, before it and behind it.
    std::fs::copy(scene.at("lower/usr/lib/gone.so"), scene.at("beside.so")).unwrap();
    check(&scene.pack("beside.tar", &["beside.so", "image"]), &["beside.so", "kept.so", "new.so"]);
    check(&scene.pack("behind.tar", &["image", "beside.so"]), &["beside.so", "kept.so", "new.so"]);
}

#[test]
fn an_image_within_an_archive_is_read_as_one() {
    let Some(scene) = Scene::make() else { return };
    let image = scene.at("image");
    scene.pack("saved.tar", &["-C", image.to_str().unwrap(), "."]);
    scene.pack("saved.tar.gz", &["image"]);
    check(&scene.pack("release.tar.gz", &["saved.tar"]), &["kept.so", "new.so"]);
    check(&scene.pack("release.tar", &["saved.tar.gz"]), &["kept.so", "new.so"]);
    if let Some(zip) = tool("zip") {
        let to = scene.at("release.zip");
        run(&zip, &["-jq", to.to_str().unwrap(), scene.at("saved.tar.gz").to_str().unwrap()]);
        check(&to, &["kept.so", "new.so"]);
    }
}

#[test]
fn a_layout_in_a_folder_of_a_tar_is_read_as_skopeo_wrote_it() {
    let Some(scene) = Scene::make() else { return };
    let Some(skopeo) = tool("skopeo") else { return };
    let image = scene.at("image");
    let saved =
        scene.pack("saved.tar", &["-C", image.to_str().unwrap(), "ec.json", "lower.tar", "upper.tar", "manifest.json"]);
    let (from, to) = (format!("docker-archive:{}", saved.display()), format!("oci:{}:v1", scene.at("ol").display()));
    run(&skopeo, &["--insecure-policy", "copy", "-q", &from, &to]);
    check(&scene.pack("ol.tar", &["ol"]), &["kept.so", "new.so"]);
    std::fs::create_dir(scene.at("ol/ingest")).unwrap();
    std::fs::write(scene.at("ol/ingest/x"), "left").unwrap();
    let at = scene.at("ol");
    check(
        &scene.pack("first.tar", &["-C", at.to_str().unwrap(), "ingest", "blobs", "index.json", "oci-layout"]),
        &["kept.so", "new.so"],
    );
}

/// As `skopeo copy docker://… oci:dist` leaves it in a directory that has other things to ship.
#[test]
fn what_lies_beside_a_layout_in_a_directory_is_walked_as_it_is_in_a_tar() {
    let Some(scene) = Scene::make() else { return };
    let Some(skopeo) = tool("skopeo") else { return };
    let image = scene.at("image");
    let saved =
        scene.pack("saved.tar", &["-C", image.to_str().unwrap(), "ec.json", "lower.tar", "upper.tar", "manifest.json"]);
    let (from, to) = (format!("docker-archive:{}", saved.display()), format!("oci:{}:v1", scene.at("dist").display()));
    run(&skopeo, &["--insecure-policy", "copy", "-q", &from, &to]);
    std::fs::create_dir(scene.at("dist/deep")).unwrap();
    let cc = tool("cc").unwrap();
    for (folder, name) in [("dist", "beside.so"), ("dist/deep", "below.so")] {
        let id = format!("-Wl,--build-id=0x{:02x}0a0b0c", name.as_bytes()[2]);
        compile(&cc, &scene.at(folder), name, SOURCE, &["-g", &id]);
    }
    std::os::unix::fs::symlink("beside.so", scene.at("dist/link.so")).unwrap();
    let all = ["below.so", "beside.so", "kept.so", "new.so"];
    check(&scene.at("dist"), &all);
    check(&scene.pack("dist.tar", &["dist"]), &all);
    let found = report(&[scene.at("dist")]);
    assert_eq!(found.inputs.skipped.get("symbolic link"), Some(&1), "{:#?}", found.inputs);
}

#[test]
fn an_image_that_cannot_be_read_as_one_is_told_and_fails_a_strict_build() {
    let Some(scene) = Scene::make() else { return };
    let image = scene.at("image");
    scene.pack("saved.tar", &["-C", image.to_str().unwrap(), "."]);
    let release = scene.pack("release.tar", &["saved.tar", "lower/usr/lib/kept.so"]);
    let small = Limits { buffer_bytes: 4096, ..Limits::default() };
    let built = builder(std::slice::from_ref(&release)).limits(small);
    let found = built.report().unwrap();
    let told = format!("{:?}", found.inputs.archives);
    assert!(told.contains("container images") && told.contains("saved.tar"), "{told}");
    assert!(matches!(built.strict(true).report(), Err(BuildError::Strict { .. })));

    // A layer by itself: what it hides is not there, and it says that it hides something.
    let layer = report(&[scene.at("image/upper.tar")]);
    let told = format!("{:?}", layer.inputs.archives);
    assert!(told.contains("whiteout") && told.contains("usr/lib/.wh.gone.so"), "{told}");
}
