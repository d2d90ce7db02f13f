//! A sources artifact in a layout.

use super::{
    ARTIFACT_TYPE, MAX_PACK_BYTES, MAX_TABLE_BYTES, PACK_MEDIA_TYPE, SourceEntry, SourceTable, SourcesError, TABLE,
    TABLE_MEDIA_TYPE,
};
use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::layout::LayoutDir;
use crate::oci::{self, Descriptor, Manifest, OciError};

/// The manifest's bytes for a table: the table's layer, then one layer a pack. It names no subject: it is no part of a
/// bundle and nobody who pulls a bundle is given it.
pub fn manifest(table: &SourceTable, table_json: &[u8]) -> Result<Vec<u8>, OciError> {
    let mut layers = vec![Descriptor::of(TABLE_MEDIA_TYPE, table_json).with(oci::TITLE, TABLE)];
    layers.extend(
        table
            .packs
            .iter()
            .map(|pack| Descriptor::new(PACK_MEDIA_TYPE, pack.sha256, pack.size).with(oci::TITLE, pack.path.as_str())),
    );
    Manifest::artifact(ARTIFACT_TYPE, layers).to_bytes()
}

/// An opened sources artifact. Its table is checked; packs and files are checked as they are read.
#[derive(Debug, Clone)]
pub struct Sources {
    layout: LayoutDir,
    digest: Digest,
    table: SourceTable,
    table_digest: Digest,
}

impl Sources {
    /// Opens the sources with this manifest digest.
    pub fn open(layout: LayoutDir, digest: &Digest) -> Result<Self, SourcesError> {
        let bytes = layout.read_blob(digest, oci::MAX_MANIFEST_BYTES)?;
        let manifest = Manifest::parse(&bytes).map_err(|source| SourcesError::Oci { digest: *digest, source })?;
        let not_sources = |found: String| SourcesError::NotSources { digest: *digest, found };
        if manifest.artifact_type.as_deref() != Some(ARTIFACT_TYPE) {
            return Err(not_sources(format!("artifact type {:?}", manifest.artifact_type.unwrap_or_default())));
        }
        let Some((first, packs)) = manifest.layers.split_first().filter(|(first, _)| first.title() == Some(TABLE))
        else {
            return Err(not_sources(format!("a manifest that does not begin with {TABLE}")));
        };
        let table = SourceTable::parse(&layout.read_blob(&first.digest, MAX_TABLE_BYTES)?)?;
        let listed = table.packs.iter().map(|pack| (Some(pack.path.as_str()), pack.sha256, pack.size));
        if !listed.eq(packs.iter().map(|layer| (layer.title(), layer.digest, layer.size))) {
            return Err(not_sources("layers that are not the packs of its table".to_owned()));
        }
        Ok(Self { layout, digest: *digest, table_digest: first.digest, table })
    }

    /// Opens the sources that a bundle names: one artifact, or those of the parts that it was joined from; none where it names
    /// none.
    ///
    /// # Errors
    /// [`SourcesError::Layout`] where they are not in the bundle's layout: whoever has a bundle need not have its sources.
    pub fn of(bundle: &Bundle) -> Result<Vec<Self>, SourcesError> {
        let Some(digest) = bundle.index().sources else { return Ok(Vec::new()) };
        let Some(layout) = bundle.layout() else {
            let found = "a directory of files without manifests".to_owned();
            return Err(SourcesError::NotSources { digest, found });
        };
        let manifests = super::manifests(&digest, &layout.read_blob(&digest, oci::MAX_MANIFEST_BYTES)?)?;
        manifests.iter().map(|manifest| Self::open(layout.clone(), &manifest.digest)).collect()
    }

    /// The digest of the manifest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The digest of `sources.json`.
    pub fn table_digest(&self) -> Digest {
        self.table_digest
    }

    /// What there is.
    pub fn table(&self) -> &SourceTable {
        &self.table
    }

    /// A pack's bytes; their digest is checked.
    pub fn read_pack(&self, number: usize) -> Result<Vec<u8>, SourcesError> {
        let pack = self.table.packs.get(number);
        let pack = pack.ok_or_else(|| super::value(format!("packs/{number}"), "there is no such pack"))?;
        Ok(self.layout.read_blob(&pack.sha256, MAX_PACK_BYTES)?)
    }

    /// A file's bytes; their digest is checked.
    pub fn read(&self, file: &SourceEntry) -> Result<Vec<u8>, SourcesError> {
        let pack = self.read_pack(usize::try_from(file.pack).unwrap_or(usize::MAX))?;
        file.slice(&pack).map(<[u8]>::to_vec)
    }

    /// Checks every pack and every file in it.
    pub fn verify(&self) -> Result<(), SourcesError> {
        (0..self.table.packs.len()).try_for_each(|number| self.table.check_pack(number, &self.read_pack(number)?))
    }
}
