//! A kit as a tar file of anybody's: nothing panics, whatever the headers say; and where the golden key's seal holds and every
//! file is the listed one, what is read out of it is what was signed.

use std::path::PathBuf;
use std::sync::LazyLock;

use symseal_builder::kit::Kit;
use symseal_bundle::LayoutDir;
use symseal_seal::{Trust, UtcSeconds};

const ROOT: &[u8] = include_bytes!("../../../formats/seal/tests/golden/root.json");
const POLICY: &[u8] = include_bytes!("../../../formats/seal/tests/golden/policy.dsse.json");
const TRUSTED_ROOT: &[u8] = include_bytes!("../../../formats/seal/tests/golden/trusted_root.json");
const AT: UtcSeconds = UtcSeconds(1_795_176_000);

static TRUST: LazyLock<Trust> =
    LazyLock::new(|| Trust::load_parts(ROOT, POLICY, TRUSTED_ROOT).expect("the golden trust directory"));
/// A kit is opened by its path: one file, written anew for each input.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("symseal-fuzz-kit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
});

pub(super) fn run(data: &[u8]) {
    let path = FOLDER.join("kit.tar");
    std::fs::write(&path, data).expect("written");
    let Ok(kit) = Kit::open(&path) else { return };
    let Ok(sealed) = kit.verify_seal(&TRUST, AT) else { return };
    let statement = &sealed.statement;
    let whole = !kit.check_files(statement, &|_| ()).is_failed();
    // Each is held to the signed list by itself, as a medium may change between two reads.
    let checkpoints = kit.checkpoints(statement);
    let _ = kit.consistency(statement);
    let layout = FOLDER.join("layout");
    let _ = std::fs::remove_dir_all(&layout);
    let layout = LayoutDir::create(&layout).expect("a layout");
    let copied = kit.copy_into(statement, &layout, &|_| ());
    if whole {
        checkpoints.expect("its checkpoints are of the list");
        copied.expect("its blobs are of the list");
    }
}
