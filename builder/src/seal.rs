//! Sealing: a statement about a bundle, and the seal as a referrer of it.

use std::collections::BTreeSet;

use symseal_bundle::oci::{self, Descriptor, Manifest};
use symseal_bundle::seal::{PREDICATE_TYPE, Release, Statement, StatementError, StatementParts};
use symseal_bundle::{Bundle, BundleError, Digest, LayoutDir, LayoutError, module_tree, title};
use symseal_sealer::{Signer, TransparencyLog};

/// What a seal says beyond the bundle itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealOptions {
    /// Such as `stable`.
    pub channel: Option<String>,
    /// Rises with every release of the channel; below 2^53.
    pub sequence: Option<u64>,
    /// Bundles that this one replaces.
    pub supersedes: Vec<Digest>,
}

/// Why a bundle was not sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The bundle cannot be opened.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The statement cannot be made.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The statement cannot be signed or logged.
    #[error(transparent)]
    Sealer(#[from] symseal_sealer::SealError),
    /// The layout cannot be written.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The seal's manifest cannot be made.
    #[error(transparent)]
    Oci(#[from] oci::OciError),
}

/// What there is to sign about a bundle: its digest, its index, its release, inputs and modules.
pub fn statement(bundle: &Bundle, digest: &Digest, options: &SealOptions) -> Result<Statement, StatementError> {
    let index = bundle.index();
    let inputs: BTreeSet<(String, [u8; 32])> = index
        .modules()
        .flat_map(|(_, _, module)| &module.inputs)
        .map(|input| (input.name.clone(), *input.sha256.as_bytes()))
        .collect();
    Statement::build(StatementParts {
        bundle: *digest.as_bytes(),
        symbol_index: *bundle.index_digest().as_bytes(),
        release: Release {
            name: index.name.clone(),
            version: index.version.clone(),
            channel: options.channel.clone(),
            sequence: options.sequence,
        },
        builder_version: &index.producer.version,
        inputs: inputs.into_iter().collect(),
        modules_root: module_tree::root_of(bundle.index_bytes()),
        debug_ids: index.modules().map(|(_, id, _)| id.to_owned()).collect(),
        supersedes: options.supersedes.iter().map(|digest| *digest.as_bytes()).collect(),
    })
}

/// Signs a statement about the bundle `digest` of `layout`, logs the signature, and attaches the seal; returns the digest
/// of the seal's manifest. Where the log fails the bundle stays unsealed, and trying again is safe.
pub fn seal_bundle(
    layout: &LayoutDir,
    digest: &Digest,
    signer: &dyn Signer,
    log: &mut dyn TransparencyLog,
    options: &SealOptions,
) -> Result<Digest, SealError> {
    let bundle = Bundle::open(layout.clone(), Some(digest))?;
    let seal = symseal_sealer::seal(&statement(&bundle, digest, options)?, signer, log)?;
    attach_seal(layout, digest, &seal)
}

/// Stores `sigstore_bundle` and a manifest that refers from it to the bundle `digest`; returns the manifest's digest.
pub fn attach_seal(layout: &LayoutDir, digest: &Digest, sigstore_bundle: &[u8]) -> Result<Digest, SealError> {
    let subject = layout.read_blob(digest, oci::MAX_MANIFEST_BYTES)?;
    let mut subject = Descriptor::of(oci::IMAGE_INDEX, &subject);
    subject.artifact_type = Some(oci::BUNDLE.to_owned());
    let layer = Descriptor::of(oci::SIGSTORE_BUNDLE, sigstore_bundle).with(oci::TITLE, title::SEAL);
    let mut manifest = Manifest::artifact(oci::SIGSTORE_BUNDLE, vec![layer]);
    manifest.subject = Some(subject);
    // What cosign writes, apart from the time of creation, so that it finds the seal.
    manifest.annotations.insert("dev.sigstore.bundle.content".to_owned(), "dsse-envelope".to_owned());
    manifest.annotations.insert("dev.sigstore.bundle.predicateType".to_owned(), PREDICATE_TYPE.to_owned());
    let bytes = manifest.to_bytes()?;
    layout.write_blob(oci::EMPTY_JSON)?;
    layout.write_blob(sigstore_bundle)?;
    let manifest_digest = layout.write_blob(&bytes)?;
    let mut descriptor = Descriptor::of(oci::MANIFEST, &bytes);
    descriptor.artifact_type = Some(oci::SIGSTORE_BUNDLE.to_owned());
    layout.add_to_index(descriptor, None)?;
    Ok(manifest_digest)
}
