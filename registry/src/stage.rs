//! Manifests come in without their blobs, for a push whose blobs go from one registry to the other.

use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::{Digest, LayoutDir};

use crate::pull::list;
use crate::tree::{Bounds, Tree, is_bundle, referrer_tree};
use crate::{RegistryError, Repository, Target, manifests, referrers};

/// What was staged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Staged {
    /// The blobs that the manifests name, for [`Elsewhere::add`](crate::Elsewhere::add).
    pub blobs: Vec<Digest>,
    /// The referrers that were taken.
    pub referrers: Vec<Digest>,
    /// Those that were passed over, each with the reason.
    pub passed_over: Vec<(Digest, String)>,
}

/// Brings the manifests of what has this digest, and those of the `referrers` that were listed for it, into a layout of the caller's own. As in a
/// [`pull`](crate::pull()) a referrer that is no manifest, not whole or too large is passed over.
///
/// # Errors
/// [`RegistryError`] names what could not be fetched.
pub async fn stage(
    repository: &Repository,
    digest: &Digest,
    referrers: &[Descriptor],
    layout: &LayoutDir,
) -> Result<Staged, RegistryError> {
    let session = &repository.session;
    let root = manifests::fetch(session, &Target::Digest(*digest)).await?;
    let (descriptor, beside_bundle) = (root.descriptor.clone(), is_bundle(&root));
    let mut staged = Staged::default();
    let tree = Tree::read(session, root, Bounds::WIDE).await?;
    staged.blobs.extend(tree.blobs.iter().map(|blob| blob.digest));
    tree.write_manifests(layout).await?;
    list(layout, descriptor, None).await?;
    for referrer in referrers {
        match referrer_tree(session, referrer.clone(), beside_bundle).await {
            Ok((descriptor, tree)) => {
                staged.referrers.push(descriptor.digest);
                staged.blobs.extend(tree.blobs.iter().map(|blob| blob.digest));
                tree.write_manifests(layout).await?;
                list(layout, descriptor, None).await?;
            }
            Err(error) if referrers::is_junk(&error) => {
                staged.passed_over.push((referrer.digest, error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    // Every manifest's empty configuration; a registry may not have been sent it as a blob of its own.
    layout.write_blob(oci::EMPTY_JSON)?;
    Ok(staged)
}
