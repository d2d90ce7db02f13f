//! A pull that broke off goes on behind the last page that is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use symseal_bundle::pages::DEBUG_FILE_PAGE;
use symseal_bundle::{Bundle, LayoutDir};
use symseal_registry::{Options, Progress, Reference, pull};

use crate::program::{self, RunningServer, symseal};
use crate::scene::Scene;

/// Pulls, and tells how many bytes of blobs moved.
fn pulled(reference: &Reference, into: &LayoutDir) -> u64 {
    let moved = Arc::new(AtomicU64::new(0));
    let counted = moved.clone();
    let progress = move |progress: Progress| {
        if let Progress::Moved { bytes } = progress {
            counted.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    let options = Options { progress: Some(Arc::new(progress)), ..Options::default() };
    tokio::runtime::Runtime::new().unwrap().block_on(pull(reference, into, &options)).unwrap();
    moved.load(Ordering::Relaxed)
}

#[test]
fn a_wrong_page_of_an_interrupted_pull_is_found_before_it_is_continued() {
    let Some(scene) = Scene::unsealed() else { return };
    let source = "const char big[3000000] = {1, 2, 3};\nint main(void) { return big[7]; }\n";
    if program::compile_c(&scene.path("inputs"), "large", source, &["-g", "-Wl,--build-id"]).is_none() {
        return;
    }
    scene.build("bundle", &["inputs/large"], "1.0", &[]);
    let server = RunningServer::start(&scene.path("data"));
    let reference = format!("{}/team/app:1.0", server.address);
    symseal(["bundle", "push", &scene.at("bundle"), &reference]).ok();
    let reference = Reference::parse(&reference).unwrap();
    let layout = |name: &str| LayoutDir::create(scene.path(name)).unwrap();
    let all = pulled(&reference, &layout("whole"));

    let bundle = Bundle::open(LayoutDir::open(scene.path("bundle")).unwrap(), None).unwrap();
    let file = bundle.index().files().max_by_key(|file| file.size).unwrap();
    let bytes = bundle.read(file).unwrap();
    let page = u64::from(DEBUG_FILE_PAGE);
    let broken = layout("broken");
    let partial = broken.root().join("ingest").join(format!("{}.partial", file.sha256.hex()));
    for (wrong, kept) in [(Some(20 * page + 5), 20 * page), (None, 30 * page), (Some(0), 0)] {
        let _ = std::fs::remove_file(broken.blob_path(&file.sha256));
        let mut left = bytes[..usize::try_from(30 * page + 100).unwrap()].to_vec();
        if let Some(at) = wrong {
            left[usize::try_from(at).unwrap()] ^= 1;
        }
        std::fs::write(&partial, left).unwrap();
        let moved = pulled(&reference, &broken);
        // At the first time everything else moves too.
        let rest = if wrong == Some(20 * page + 5) { all - file.size } else { 0 };
        assert_eq!(moved, rest + file.size - kept, "{wrong:?}");
        assert!(!partial.exists());
    }
}
