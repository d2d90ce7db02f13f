//! A kit is packed.

use std::fs::File;
use std::path::{Path, PathBuf};

use symseal_bundle::oci::ImageIndex;
use symseal_bundle::seal::encoding::to_base64;
use symseal_bundle::seal::kit::{KitPredicate, KitStatement};
use symseal_bundle::seal::statement::BuilderInfo;
use symseal_bundle::seal::{
    ConsistencyProof, Envelope, IN_TOTO_PAYLOAD_TYPE, Release, SignedCheckpoint, SigstoreBundle,
};
use symseal_bundle::{Bundle, Digest};
use symseal_sealer::{PublishedLog, Signer, sign_verified};

use super::output::{self, From, Piece};
use super::{BLOBS, CONSISTENCY, INDEX_FILE, KIT_SEAL, KitError, LAYOUT_FILE, LAYOUT_JSON, PROGRAMS, README, content};

/// What goes into a kit.
pub struct KitContent<'a> {
    /// The bundle, in a layout.
    pub bundle: &'a Bundle,
    /// Whether its sources go along.
    pub with_sources: bool,
    /// The logs whose newest checkpoints go along, with proofs.
    pub logs: &'a [KitLog],
    /// The program that verifies.
    pub verifier: Option<&'a Path>,
}

/// A log, and where the site that receives the kit saw it last.
pub struct KitLog {
    /// The log.
    pub log: PublishedLog,
    /// Sizes that the site has seen.
    pub since: Vec<u64>,
}

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KitReport {
    /// The bundle.
    pub bundle: Digest,
    /// Files, the seal included.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Manifests that refer to the bundle.
    pub referrers: u64,
    /// Origin and size of each checkpoint.
    pub checkpoints: Vec<(String, u64)>,
    /// Consistency proofs.
    pub proofs: u64,
}

/// Packs a kit at `output`: a tar file where the name ends in `.tar`, else a directory. `wrote` is told the bytes of each
/// file.
///
/// # Errors
/// [`KitError`]; nothing is left of the kit then.
pub fn export(
    content: &KitContent<'_>,
    signer: &dyn Signer,
    output: &Path,
    wrote: &dyn Fn(u64),
) -> Result<KitReport, KitError> {
    let bundle = content.bundle;
    let (Some(layout), Some(digest)) = (bundle.layout(), bundle.digest()) else {
        return Err(KitError::NoLayout { path: bundle.root().to_owned() });
    };
    let mut parts = content::of_bundle(layout, &digest)?;
    if content.with_sources {
        let sources = bundle.index().sources;
        let there = sources.filter(|sources| layout.has(sources));
        let sources = there.ok_or(KitError::NoSources { bundle: digest, digest: sources })?;
        content::add_sources(&mut parts, layout, &sources)?;
    }
    let index = ImageIndex::new(None, parts.listed).to_bytes();
    let index = index.map_err(|source| KitError::Oci { place: INDEX_FILE.to_owned(), source })?;
    let mut pieces = vec![Piece::bytes(LAYOUT_FILE, LAYOUT_JSON.to_vec()), Piece::bytes(INDEX_FILE, index)];
    for (blob, size) in parts.blobs {
        let (path, from) = (format!("{BLOBS}/{}", blob.hex()), From::File(layout.blob_path(&blob)));
        pieces.push(Piece { path, from, digest: blob, size, is_program: false });
    }
    let verifier = content.verifier.map(program).transpose()?;
    let mut checkpoints = Vec::new();
    let mut names = Vec::new();
    for (number, KitLog { log, .. }) in content.logs.iter().enumerate() {
        let path = format!("kit/log/{number}.checkpoint");
        pieces.push(Piece::bytes(&path, log.checkpoint_text().as_bytes().to_vec()));
        checkpoints.push((log.checkpoint().origin.clone(), log.size()));
        names.push(path);
    }
    let proofs = proofs(bundle, content.logs)?;
    if !proofs.is_empty() {
        pieces.push(Piece::bytes(CONSISTENCY, ConsistencyProof::to_file(&proofs)));
    }
    let release = Release::new(&bundle.index().name, &bundle.index().version);
    pieces.push(Piece::bytes(README, readme(&release, &digest, verifier.as_ref()).into_bytes()));
    let predicate = KitPredicate {
        release,
        bundle: digest.to_string(),
        builder: BuilderInfo { version: env!("CARGO_PKG_VERSION").to_owned() },
        verifier: verifier.as_ref().map(|piece| piece.path.clone()),
        checkpoints: names,
        consistency: (!proofs.is_empty()).then(|| CONSISTENCY.to_owned()),
    };
    pieces.extend(verifier);
    let listed = pieces.iter().map(|piece| (piece.path.clone(), *piece.digest.as_bytes()));
    let seal = sealed(&KitStatement::new(predicate, listed), signer)?;
    // First in a tar file, so that a reader of a stream knows what to expect.
    pieces.insert(0, Piece::bytes(KIT_SEAL, seal));
    output::write(output, &pieces, wrote)?;
    Ok(KitReport {
        bundle: digest,
        files: pieces.len() as u64,
        bytes: pieces.iter().map(|piece| piece.size).sum(),
        referrers: parts.referrers,
        checkpoints,
        proofs: proofs.len() as u64,
    })
}

/// The envelope names its key: unlike a bundle's seal, it has no public-key hint beside it.
fn sealed(statement: &KitStatement, signer: &dyn Signer) -> Result<Vec<u8>, KitError> {
    let mut envelope = Envelope {
        payload_type: IN_TOTO_PAYLOAD_TYPE.to_owned(),
        payload: statement.to_json(),
        keyid: signer.public().key_id().to_string(),
        signature: Vec::new(),
    };
    envelope.signature = sign_verified(signer, &envelope.pae())?;
    Ok(envelope.to_json())
}

fn program(path: &Path) -> Result<Piece, KitError> {
    let file = File::open(path).map_err(KitError::io("open", path))?;
    let (digest, size) = Digest::of_reader(&file).map_err(KitError::io("read", path))?;
    let windows = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("exe"));
    let path_in_kit = format!("{PROGRAMS}/symseal{}", if windows { ".exe" } else { "" });
    Ok(Piece { path: path_in_kit, from: From::File(PathBuf::from(path)), digest, size, is_program: true })
}

/// From what the site saw to the seals and to the newest checkpoint, and between these.
fn proofs(bundle: &Bundle, logs: &[KitLog]) -> Result<Vec<ConsistencyProof>, KitError> {
    let mut sealed: Vec<(String, u64, String)> = Vec::new();
    let seals = bundle.read_seals()?;
    if seals.is_empty() {
        return Err(KitError::Unsealed { place: bundle.root().display().to_string() });
    }
    for seal in seals {
        let checkpoint = SigstoreBundle::parse(&seal)
            .ok()
            .and_then(|seal| SignedCheckpoint::parse(&seal.entry.checkpoint).ok())
            .map(|signed| signed.checkpoint);
        sealed.extend(checkpoint.map(|found| (found.origin, found.size, to_base64(&found.root))));
    }
    let mut proofs: Vec<ConsistencyProof> = Vec::new();
    for KitLog { log, since } in logs {
        let origin = &log.checkpoint().origin;
        if !sealed.iter().any(|(sealed_in, ..)| sealed_in == origin) {
            let found = sealed.iter().map(|(origin, ..)| origin.as_str()).collect::<Vec<_>>().join(", ");
            let expected = "a log in which the bundle is sealed: the other site would refuse its checkpoint".to_owned();
            return Err(KitError::Log { origin: origin.clone(), expected, found: format!("seals in {found}") });
        }
        let mut sizes: Vec<u64> = since.clone();
        for (_, size, root) in sealed.iter().filter(|(sealed_in, ..)| sealed_in == origin) {
            let found =
                if *size <= log.size() { to_base64(&log.root_at(*size)?) } else { format!("{} entries", log.size()) };
            if found != *root {
                let expected = format!("the history of the seal's checkpoint ({size} entries, root {root})");
                return Err(KitError::Log { origin: origin.clone(), expected, found });
            }
            sizes.push(*size);
        }
        sizes.push(log.size());
        sizes.sort_unstable();
        sizes.dedup();
        for (at, from) in sizes.iter().enumerate() {
            for to in sizes.iter().skip(at + 1) {
                proofs.push(log.consistency(*from, *to)?);
            }
        }
    }
    Ok(proofs)
}

fn readme(release: &Release, bundle: &Digest, verifier: Option<&Piece>) -> String {
    let program = match verifier {
        Some(piece) => format!(
            "{} is a copy of symseal:\n    sha256 {}\nA program that comes with what it verifies proves nothing by itself: compare this\nsha256 with one that you got another way, or use a symseal that you have.\n",
            piece.path,
            piece.digest.hex()
        ),
        None => "This kit has no program: use a symseal that you have.\n".to_owned(),
    };
    format!(
        "Debug symbols of {}\nbundle {bundle}\n\nThis directory or archive is a kit: an OCI layout with the bundle and its seal, and beside\nit what is needed to verify it without a network. {KIT_SEAL} is signed and\nlists every other file.\n\nVerify all of it, and lay the bundle into a store of your own:\n    symseal bundle kit import KIT --trust TRUST --state STATE\n\nTRUST is a trust directory. It is not in here, and must not come the same way: it says\nwhose seals count, and whoever could change this kit could change it, too. STATE remembers\nwhat was seen, so that older policies and second histories of a log are noticed.\n\n{program}",
        release.subject_name()
    )
}
