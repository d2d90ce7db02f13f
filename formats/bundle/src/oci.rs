//! The parts of the OCI image specification 1.1 that a bundle uses: descriptors, manifests, image indexes.
//!
//! We write RFC 8785 canonical JSON. We read whatever other tools wrote; unknown fields are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::canonical;
use crate::digest::Digest;

/// Media type of image manifests.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of image indexes.
pub const IMAGE_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of the image manifests that Docker made before OCI had its own (Docker's image manifest version 2, schema 2).
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Media type of the lists of these by platform, in the place of image indexes.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Media type of the empty descriptor.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// Artifact type of a bundle: its image index, its manifests and their descriptors.
pub const BUNDLE: &str = "application/vnd.symseal.bundle.v1";
/// Media type of `symbol_index.json`.
pub const SYMBOL_INDEX: &str = "application/vnd.symseal.symbol-index.v1+json";
/// Media type of a per-module index.
pub const MODULE_INDEX: &str = "application/vnd.symseal.module-index.v1+json";
/// Media type of ELF files: debug files and executables.
pub const ELF: &str = "application/vnd.symseal.symbols.elf.v1";
/// Media type of PE files.
pub const PE: &str = "application/vnd.symseal.symbols.pe.v1";
/// Media type of program databases.
pub const PDB: &str = "application/vnd.symseal.symbols.pdb.v1";
/// Media type of Mach-O files.
pub const MACHO: &str = "application/vnd.symseal.symbols.macho.v1";
/// Media type of the files of dSYM bundles.
pub const DSYM: &str = "application/vnd.symseal.symbols.dsym.v1";
/// Media type of `.symx` symbol tables.
pub const SYMBOL_TABLE: &str = "application/vnd.symseal.symbol-table.v1";
/// Media type of `.uwt` unwind tables.
pub const UNWIND_TABLE: &str = "application/vnd.symseal.unwind-table.v1";
/// Media type of Sigstore bundles; a seal's layer and its manifest's artifact type.
pub const SIGSTORE_BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Annotation: the path at which tools put a layer's bytes.
pub const TITLE: &str = "org.opencontainers.image.title";
/// Annotation in `index.json` alone: the tag.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation of a layer: the debug id of its module.
pub const DEBUG_ID: &str = "vnd.symseal.debug-id";
/// Annotation of a layer: the file's role.
pub const KIND: &str = "vnd.symseal.kind";
/// Annotation of a shard's descriptor: the first debug id in it.
pub const FIRST_DEBUG_ID: &str = "vnd.symseal.debug-id.first";
/// Annotation of a shard's descriptor: the last debug id in it.
pub const LAST_DEBUG_ID: &str = "vnd.symseal.debug-id.last";

/// The largest manifest or image index that is written or read, in bytes: the bound that registries share.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// The bytes of the empty configuration.
pub const EMPTY_JSON: &[u8] = b"{}";

/// Names a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the blob.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Artifact type of the manifest that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Platform of the manifest that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
}

/// A platform in the words of the OCI specification (Go's).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// GOARCH, such as `amd64`.
    pub architecture: String,
    /// GOOS, such as `linux`.
    pub os: String,
}

/// An image manifest, used as an artifact: an empty configuration and titled layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// [`MANIFEST`].
    #[serde(default = "manifest_type")]
    pub media_type: String,
    /// What the artifact is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The configuration, here always [`empty_config`].
    pub config: Descriptor,
    /// The files.
    #[serde(default, deserialize_with = "null_is_default")]
    pub layers: Vec<Descriptor>,
    /// The manifest that this one refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
}

/// An image index: a list of manifests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageIndex {
    /// Always 2.
    pub schema_version: u32,
    /// [`IMAGE_INDEX`].
    #[serde(default = "index_type")]
    pub media_type: String,
    /// What the artifact is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The manifests.
    #[serde(default, deserialize_with = "null_is_default")]
    pub manifests: Vec<Descriptor>,
    /// The manifest that this index refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
}

/// Why some bytes are no manifest or image index.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// Not JSON of the shape.
    #[error("not an OCI {expected}: {source}")]
    Json {
        /// What was expected.
        expected: &'static str,
        /// What the JSON parser says.
        source: serde_json::Error,
    },
    /// Another media type or schema version.
    #[error("expected an OCI {expected}, found media type {found:?}")]
    MediaType {
        /// What was expected.
        expected: &'static str,
        /// The media type that was found.
        found: String,
    },
    /// Larger than [`MAX_MANIFEST_BYTES`].
    #[error("the {expected} is {bytes} bytes, more than the {MAX_MANIFEST_BYTES} that registries accept")]
    TooLarge {
        /// What was expected.
        expected: &'static str,
        /// Its size.
        bytes: u64,
    },
}

impl Descriptor {
    /// A descriptor of `bytes` without annotations.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::of(bytes), bytes.len() as u64)
    }

    /// A descriptor without annotations.
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        let annotations = BTreeMap::new();
        Self { media_type: media_type.to_owned(), digest, size, artifact_type: None, platform: None, annotations }
    }

    /// The same with one annotation more.
    pub fn with(mut self, annotation: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(annotation.to_owned(), value.into());
        self
    }

    /// The path at which tools put the bytes, where there is one.
    pub fn title(&self) -> Option<&str> {
        self.annotations.get(TITLE).map(String::as_str)
    }

    /// The tag, in descriptors of `index.json`.
    pub fn ref_name(&self) -> Option<&str> {
        self.annotations.get(REF_NAME).map(String::as_str)
    }
}

impl Manifest {
    /// A manifest of an artifact with an empty configuration.
    pub fn artifact(artifact_type: &str, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: manifest_type(),
            artifact_type: Some(artifact_type.to_owned()),
            config: empty_config(),
            layers,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Reads a manifest of at most [`MAX_MANIFEST_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        let manifest: Self = parse(bytes, "image manifest")?;
        check_type(&manifest.media_type, MANIFEST, manifest.schema_version, "image manifest")?;
        Ok(manifest)
    }

    /// Canonical bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, OciError> {
        to_bytes(self, "image manifest")
    }
}

impl ImageIndex {
    /// An image index with these children.
    pub fn new(artifact_type: Option<&str>, manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: index_type(),
            artifact_type: artifact_type.map(str::to_owned),
            manifests,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Reads an image index of at most [`MAX_MANIFEST_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        let index: Self = parse(bytes, "image index")?;
        check_type(&index.media_type, IMAGE_INDEX, index.schema_version, "image index")?;
        Ok(index)
    }

    /// Reads a list of manifests that has the form of an image index and is none of a registry: its length is for the caller to
    /// bound.
    pub(crate) fn parse_list(bytes: &[u8]) -> Result<Self, OciError> {
        let index: Self =
            serde_json::from_slice(bytes).map_err(|source| OciError::Json { expected: "image index", source })?;
        check_type(&index.media_type, IMAGE_INDEX, index.schema_version, "image index")?;
        Ok(index)
    }

    /// Canonical bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, OciError> {
        to_bytes(self, "image index")
    }
}

/// The descriptor of the empty configuration `{}`.
pub fn empty_config() -> Descriptor {
    Descriptor::of(EMPTY, EMPTY_JSON)
}

/// An architecture code of ours in the OCI specification's words.
pub fn oci_architecture(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" | "arm64e" => "arm64",
        "i686" | "x86" => "386",
        "mipsel" => "mipsle",
        "mips64el" => "mips64le",
        "armeb" => "armbe",
        "aarch64_be" => "arm64be",
        other => other,
    }
}

/// A platform of ours in the OCI specification's words.
pub fn oci_os(platform: &str) -> &str {
    match platform {
        "macos" => "darwin",
        other => other,
    }
}

fn parse<'de, T: Deserialize<'de>>(bytes: &'de [u8], expected: &'static str) -> Result<T, OciError> {
    if bytes.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(OciError::TooLarge { expected, bytes: bytes.len() as u64 });
    }
    serde_json::from_slice(bytes).map_err(|source| OciError::Json { expected, source })
}

fn check_type(found: &str, media_type: &str, schema: u32, expected: &'static str) -> Result<(), OciError> {
    if found != media_type || schema != 2 {
        return Err(OciError::MediaType { expected, found: found.chars().take(120).collect() });
    }
    Ok(())
}

fn to_bytes<T: Serialize>(value: &T, expected: &'static str) -> Result<Vec<u8>, OciError> {
    let bytes = canonical::to_vec(value).map_err(|source| OciError::Json { expected, source })?;
    if bytes.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(OciError::TooLarge { expected, bytes: bytes.len() as u64 });
    }
    Ok(bytes)
}

fn manifest_type() -> String {
    MANIFEST.to_owned()
}

fn index_type() -> String {
    IMAGE_INDEX.to_owned()
}

/// Go programs write `null` for an empty list or map.
fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_configuration_is_the_one_of_the_specification() {
        let config = empty_config();
        assert_eq!(config.size, 2);
        assert_eq!(
            config.digest.to_string(),
            "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    #[test]
    fn a_manifest_reads_what_it_writes_in_canonical_form() {
        let layer = Descriptor::of(ELF, b"x").with(TITLE, "a").with(KIND, "debuginfo");
        let mut manifest = Manifest::artifact(BUNDLE, vec![layer]);
        manifest.subject = Some(Descriptor::of(IMAGE_INDEX, b"y"));
        let bytes = manifest.to_bytes().unwrap();
        assert!(canonical::is_canonical(&bytes));
        assert_eq!(Manifest::parse(&bytes).unwrap(), manifest);
        assert!(ImageIndex::parse(&bytes).is_err());
    }

    #[test]
    fn what_go_programs_write_is_read() {
        let text = r#"{"schemaVersion":2,"manifests":null,"annotations":null,"future":{"a":1}}"#;
        assert_eq!(ImageIndex::parse(text.as_bytes()).unwrap(), ImageIndex::new(None, Vec::new()));
        assert!(ImageIndex::parse(br#"{"schemaVersion":1,"manifests":[]}"#).is_err());
        assert!(ImageIndex::parse(br#"{"schemaVersion":2,"mediaType":"x","manifests":[]}"#).is_err());
    }
}
