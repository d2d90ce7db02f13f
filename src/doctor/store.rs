//! The local bundle store: whether it can be read, what it holds, and which of it is gone or cut short. File names and sizes are compared, and the
//! digests of manifests; the other digests were checked on entry.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use symseal_bundle::oci::{Descriptor, IMAGE_INDEX, ImageIndex, MANIFEST, Manifest};
use symseal_bundle::{LayoutDir, LayoutError};
use symseal_server::Finding;

/// The largest manifest that is read, in bytes: a registry takes none that is larger.
const MANIFEST_LIMIT: u64 = 4 << 20;

/// So many broken blobs are named; the others are counted.
const NAMED: usize = 3;

pub(super) fn look(directory: &Path) -> Vec<Finding> {
    const ID: &str = "store.layout";
    let shown = directory.display();
    let layout = match LayoutDir::open(directory) {
        Ok(layout) => layout,
        Err(LayoutError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return vec![Finding::skipped(ID, format!("{shown} is not there: symseal bundle pull makes it"))];
        }
        Err(error) => {
            return vec![Finding::problem(
                ID,
                error.to_string(),
                "let this user read it, or name another directory (--store)",
            )];
        }
    };
    let roots = match layout.manifests() {
        Ok(roots) => roots,
        Err(error) => {
            let advice = "move the directory aside, and pull again what is needed (symseal bundle pull)";
            return vec![Finding::problem(ID, error.to_string(), advice)];
        }
    };
    let mut walk = Walk { layout: &layout, seen: HashSet::new(), bytes: 0, broken: Vec::new() };
    for root in &roots {
        walk.visit(root);
    }
    let found =
        format!("{shown}: {} bundles and seals, {} blobs with {} bytes", roots.len(), walk.seen.len(), walk.bytes);
    vec![Finding::ok(ID, found), blobs(&walk.broken)]
}

fn blobs(broken: &[String]) -> Finding {
    const ID: &str = "store.blobs";
    if broken.is_empty() {
        return Finding::ok(ID, "every blob is there with its size");
    }
    let more = broken.len().saturating_sub(NAMED);
    let mut named: Vec<String> = broken.iter().take(NAMED).cloned().collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    Finding::problem(
        ID,
        named.join("; "),
        "pull the bundle again: what is damaged or missing is fetched anew (symseal bundle pull)",
    )
}

/// All that the store's bundles lead to.
struct Walk<'a> {
    layout: &'a LayoutDir,
    seen: HashSet<symseal_bundle::Digest>,
    bytes: u64,
    broken: Vec<String>,
}

impl Walk<'_> {
    /// A descriptor leads to others of other digests, as nothing can hold its own: the walk ends, and `seen` bounds it.
    fn visit(&mut self, root: &Descriptor) {
        let mut waiting = vec![root.clone()];
        while let Some(descriptor) = waiting.pop() {
            if !self.seen.insert(descriptor.digest) {
                continue;
            }
            let digest = descriptor.digest;
            match self.layout.blob_size(&digest) {
                None => self.broken.push(format!("{digest} is missing")),
                Some(size) if size != descriptor.size => {
                    self.broken.push(format!("{digest} has {size} bytes in place of {}", descriptor.size));
                }
                Some(size) => {
                    self.bytes = self.bytes.saturating_add(size);
                    match self.children(&descriptor) {
                        Ok(children) => waiting.extend(children),
                        Err(problem) => self.broken.push(problem),
                    }
                }
            }
        }
    }

    /// What a manifest names; nothing for other blobs.
    fn children(&self, descriptor: &Descriptor) -> Result<Vec<Descriptor>, String> {
        let read = || self.layout.read_blob(&descriptor.digest, MANIFEST_LIMIT).map_err(|error| error.to_string());
        let wrong = |error: symseal_bundle::oci::OciError| format!("{}: {error}", descriptor.digest);
        match descriptor.media_type.as_str() {
            IMAGE_INDEX => ImageIndex::parse(&read()?).map(|index| index.manifests).map_err(wrong),
            MANIFEST => {
                let manifest = Manifest::parse(&read()?).map_err(wrong)?;
                Ok(std::iter::once(manifest.config).chain(manifest.layers).collect())
            }
            _ => Ok(Vec::new()),
        }
    }
}
