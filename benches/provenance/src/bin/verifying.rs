//! How long verifying a bundle takes beyond hashing its files.
//!
//!     verifying PROGRAM MODULES [ROUNDS]
//!
//! PROGRAM is an ELF file with a GNU build-id of 20 bytes. MODULES copies of it, each under an id of its own, become a sealed bundle; it is then
//! verified ROUNDS times, in turns with reading and hashing its files alone: the digest, the page tree and the pieces of each, on as many
//! threads. The files are in the page cache. Printed are the medians.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rayon::prelude::*;
use symseal_artifact::ReleaseFile;
use symseal_builder::{Options, SealOptions, SymbolBundleBuilder, seal_bundle};
use symseal_bundle::seal::{LogIdentity, Parts, UtcSeconds};
use symseal_bundle::verify::{Request, TimeSource, Verdict, verify, verify_contents};
use symseal_bundle::{Bundle, Digest, FileEntry, LayoutDir, pages, pieces};
use symseal_sealer::{ArtifactKey, LogKey, TileLog, TrustInit, load_trust, trust_init};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let program = std::fs::read(arguments.next().expect("PROGRAM")).expect("the program");
    let modules: u32 = arguments.next().expect("MODULES").parse().expect("a number");
    let rounds: usize = arguments.next().map_or(9, |text| text.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let layout = sealed(dir.path(), &program, modules);
    let bundle = Bundle::open(layout.clone(), None).unwrap();
    let trust = load_trust(&dir.path().join("trust")).unwrap();
    let identify = |bytes: &[u8]| ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default();
    let request = Request {
        trust: &trust,
        expect_name: None,
        expect_version: None,
        parts: Parts::default(),
        at: now(),
        time_source: TimeSource::Clock,
        signatures: &[],
        signature_files: &[],
        seen: None,
        consistency: &[],
        fragments: &[],
        identify: &identify,
    };
    let mut files: Vec<&FileEntry> = bundle.index().files().collect();
    files.sort_by_key(|file| file.sha256);
    files.dedup_by_key(|file| file.sha256);
    files.sort_by_key(|file| std::cmp::Reverse(file.size));
    let bytes: u64 = files.iter().map(|file| file.size).sum();

    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..rounds {
        times[0].push(time(|| files.par_iter().for_each(|file| hash(&bundle, file))));
        times[1].push(time(|| drop(Bundle::open(layout.clone(), None).unwrap())));
        times[2].push(time(|| assert!(verify_contents(&bundle, &identify).holds())));
        times[3].push(time(|| {
            let report = verify(&bundle, &request);
            assert_eq!(report.verdict, Verdict::Verified, "{:?}", report.first_failure());
        }));
    }
    let [hashing, opening, contents, whole] = times.map(median);
    let beyond = (opening + whole).saturating_sub(hashing);
    println!(
        "{} files, {bytes} bytes, {} threads, {rounds} rounds, medians",
        files.len(),
        rayon::current_num_threads()
    );
    println!("reading and hashing the files alone {hashing:?}");
    println!("opening the bundle                  {opening:?}");
    println!("verifying, contents alone           {contents:?}");
    println!("verifying, all of it                {whole:?}");
    println!("opening and verifying beyond hashing {beyond:?}");
}

fn hash(bundle: &Bundle, file: &FileEntry) {
    let bytes = std::fs::read(bundle.file_path(file)).unwrap();
    assert_eq!(Digest::of(&bytes), file.sha256);
    assert_eq!(pages::root(&pages::leaves(&bytes, file.page_size)), file.page_root);
    if let Some(root) = file.piece_root {
        assert_eq!(pieces::root(&bytes), root);
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn now() -> UtcSeconds {
    UtcSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64)
}

/// A sealed bundle of copies of the program, each with another build-id.
fn sealed(dir: &Path, program: &[u8], modules: u32) -> LayoutDir {
    let ids = ReleaseFile::parse(program).expect("a release file").debug_ids();
    let id = ids.first().expect("a build-id").to_string();
    let id: Vec<u8> = (0..id.len() / 2).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect();
    let at = program.windows(id.len()).position(|window| window == id).expect("the build-id in the file");
    let inputs = dir.join("inputs");
    std::fs::create_dir(&inputs).unwrap();
    let mut copy = program.to_vec();
    for number in 0..modules {
        copy[at..at + 4].copy_from_slice(&number.to_be_bytes());
        std::fs::write(inputs.join(format!("module{number}")), &copy).unwrap();
    }
    let layout = LayoutDir::create(dir.join("layout")).unwrap();
    let options = Options { name: "app".into(), version: "1.0".into(), progress: None };
    let built = SymbolBundleBuilder::new(options).add_path(&inputs).build(&layout).unwrap();
    let (artifact, root) = (ArtifactKey::generate().unwrap(), ArtifactKey::generate().unwrap());
    let log_key = LogKey::generate().unwrap();
    let origin = "log.example".parse().unwrap();
    let identity: LogIdentity = log_key.identity(&origin).unwrap();
    let mut log = TileLog::create(&dir.join("log"), origin, log_key, &dir.join("seen")).unwrap();
    seal_bundle(&layout, &built.digest, &artifact, &mut log, &SealOptions::default()).unwrap();
    let init = TrustInit {
        root: &root,
        artifact: artifact.public(),
        names: &["app".to_owned()],
        log: &identity,
        operator: "this machine",
        at: UtcSeconds(now().0 - 60),
        expires: None,
    };
    trust_init(&dir.join("trust"), &init).unwrap();
    layout
}
