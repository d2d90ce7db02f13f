//! What the registry reads in a manifest: what it refers to, and what its referrers list says of it.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde::de::IgnoredAny;
use symseal_bundle::loose::LOOSE;
use symseal_bundle::oci;

use super::name::Tag;
use crate::blobs::BlobDigest;
use crate::json_object::JsonObject;

/// The largest manifest that is taken, in bytes: what zot, distribution and oras take.
pub(crate) const MANIFEST_LIMIT: usize = 4 << 20;

/// Bytes of a manifest's annotations that are kept in memory. Of one that has more they are read again when they are asked for.
const KEPT_ANNOTATIONS: usize = 4 << 10;

/// The longest media type, or artifact type, of a manifest that is sent, in bytes: what a type and a subtype of RFC 6838 can have.
const TYPE_LIMIT: usize = 255;

/// What a manifest is asked for by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    /// By a name that may move.
    Tag(Tag),
    /// By its content.
    Digest(BlobDigest),
}

/// A manifest, image or index, as the registry needs it.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    /// Its media type.
    pub(crate) media_type: String,
    /// Bytes of it.
    pub(crate) size: u64,
    /// Its artifact type as a referrers list has it: its own, else its config's media type.
    pub(crate) artifact_type: Option<String>,
    /// Its annotations; `None` where they are too many to be kept: [`annotations_of`] reads them.
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    /// What it refers to as its subject.
    pub(crate) subject: Option<BlobDigest>,
    /// Blobs that must be here, config and layers: each once, however often it is named.
    pub(crate) blobs: Vec<Child>,
    /// Manifests that must be here, likewise.
    pub(crate) manifests: Vec<Child>,
}

/// A descriptor inside a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Child {
    /// Its digest.
    pub(crate) digest: BlobDigest,
    /// Its size in bytes as the manifest says.
    pub(crate) size: u64,
}

/// Why bytes are no manifest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    /// No JSON of a manifest's form.
    #[error("the manifest is not what the OCI image specification describes: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another schema version.
    #[error("the manifest has schemaVersion {0}, expected 2")]
    SchemaVersion(u64),
    /// The header says one thing, the bytes another.
    #[error("the manifest's mediaType is {field}, but it was sent as {header}: both must be the same")]
    MediaType {
        /// In the bytes.
        field: String,
        /// In the request.
        header: String,
    },
    /// Who goes by the type reads one thing in it, and who goes by what it has another one.
    #[error(
        "the manifest is of type {media_type} and has {fields}: an index has \"manifests\" alone, an image manifest \"config\" and \"layers\" (OCI image specification, image-index.md and manifest.md)"
    )]
    TwoKinds {
        /// Its type.
        media_type: String,
        /// Names of fields, as shown.
        fields: String,
    },
    /// A type that is none.
    #[error("the manifest's {what} has {length} bytes, expected at most {TYPE_LIMIT}")]
    LongType {
        /// Which one.
        what: &'static str,
        /// Its bytes.
        length: usize,
    },
    /// A descriptor whose digest is none.
    #[error("the manifest refers to {text:?}: {source}")]
    Digest {
        /// What stands in the manifest.
        text: String,
        /// Why it is no digest.
        source: crate::blobs::ParseDigestError,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: u64,
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Option<JsonObject<DescriptorShape>>,
    #[serde(default)]
    layers: Option<Vec<JsonObject<DescriptorShape>>>,
    #[serde(default)]
    manifests: Option<Vec<JsonObject<DescriptorShape>>>,
    subject: Option<JsonObject<DescriptorShape>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    /// Of Docker's first schema.
    fs_layers: Option<IgnoredAny>,
}

impl Shape {
    fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let JsonObject(shape): JsonObject<Self> = serde_json::from_slice(bytes)?;
        if shape.schema_version == 2 { Ok(shape) } else { Err(ManifestError::SchemaVersion(shape.schema_version)) }
    }

    /// Its media type, sent with `content_type` if the request said one; in lower case, as the case of its letters says nothing (RFC 6838, 4.2).
    fn media_type(&self, content_type: Option<&str>) -> Result<String, ManifestError> {
        let media_type = match (&self.media_type, content_type) {
            (Some(field), Some(header)) if !field.eq_ignore_ascii_case(header) => {
                return Err(ManifestError::MediaType { field: field.clone(), header: header.to_owned() });
            }
            (Some(media_type), _) => media_type.clone(),
            (None, Some(header)) => header.to_owned(),
            (None, None) if self.manifests.is_some() => oci::IMAGE_INDEX.to_owned(),
            (None, None) => oci::MANIFEST.to_owned(),
        };
        Ok(media_type.to_ascii_lowercase())
    }

    /// Refuses what is an index to some and an image to others: whoever signs or scans the one has not seen the other. (CVE-2021-41190)
    fn check_kind(&self, media_type: &str) -> Result<(), ManifestError> {
        let of_image = [
            ("config", self.config.is_some()),
            ("layers", self.layers.is_some()),
            ("fsLayers", self.fs_layers.is_some()),
        ];
        let of_index = [("manifests", self.manifests.is_some())];
        let is_index = self.manifests.is_some() || matches!(media_type, oci::IMAGE_INDEX | oci::DOCKER_LIST);
        let is_image = of_image.iter().any(|(_, is_there)| *is_there)
            || matches!(media_type, oci::MANIFEST | oci::DOCKER_MANIFEST);
        if !(is_index && is_image) {
            return Ok(());
        }
        let there = of_image.into_iter().chain(of_index).filter(|(_, is_there)| *is_there);
        let fields: Vec<String> = there.map(|(name, _)| format!("{name:?}")).collect();
        Err(ManifestError::TwoKinds { media_type: media_type.to_owned(), fields: fields.join(" and ") })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescriptorShape {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
}

impl DescriptorShape {
    /// Layers that a registry may lack by their media type (image-spec, "Non-distributable Layers").
    fn is_nondistributable(&self) -> bool {
        self.media_type.contains(".nondistributable.") || self.media_type.contains(".foreign.")
    }

    fn child(&self) -> Result<Child, ManifestError> {
        Ok(Child { digest: digest(&self.digest)?, size: self.size })
    }
}

/// Children in their order, without those that were named before.
fn once<'d>(descriptors: impl Iterator<Item = &'d JsonObject<DescriptorShape>>) -> Result<Vec<Child>, ManifestError> {
    let (mut seen, mut children) = (HashSet::new(), Vec::new());
    for descriptor in descriptors {
        let child = descriptor.child()?;
        if seen.insert(child.clone()) {
            children.push(child);
        }
    }
    Ok(children)
}

/// All annotations of a manifest.
pub(crate) fn annotations_of(bytes: &[u8]) -> Result<BTreeMap<String, String>, ManifestError> {
    Ok(serde_json::from_slice::<Shape>(bytes)?.annotations.unwrap_or_default())
}

fn digest(text: &str) -> Result<BlobDigest, ManifestError> {
    text.parse().map_err(|source| ManifestError::Digest { text: text.to_owned(), source })
}

impl Manifest {
    /// Whether it is a bundle's image index.
    pub(crate) fn is_bundle(&self) -> bool {
        self.media_type == oci::IMAGE_INDEX && self.artifact_type.as_deref() == Some(oci::BUNDLE)
    }

    /// Whether it is a loose file's.
    pub(crate) fn is_loose(&self) -> bool {
        self.media_type == oci::MANIFEST && self.artifact_type.as_deref() == Some(LOOSE)
    }

    /// Everything that must be here while the manifest is.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Child> {
        self.blobs.iter().chain(&self.manifests)
    }

    /// Its digests.
    pub(crate) fn child_digests(&self) -> impl Iterator<Item = &BlobDigest> {
        self.children().map(|child| &child.digest)
    }

    /// Refuses types that are longer than any is: those of every manifest are in memory.
    fn check_types(&self) -> Result<(), ManifestError> {
        let types = [("mediaType", Some(&self.media_type)), ("artifactType", self.artifact_type.as_ref())];
        let long =
            types.into_iter().find_map(|(what, text)| Some((what, text?.len())).filter(|(_, it)| *it > TYPE_LIMIT));
        long.map_or(Ok(()), |(what, length)| Err(ManifestError::LongType { what, length }))
    }

    /// Reads a manifest that is sent, with the media type `content_type` if the request said one.
    ///
    /// # Errors
    /// Also of what is read all the same where it was stored before: types without end, and what is an image and an index at once.
    pub(crate) fn parse_sent(bytes: &[u8], content_type: Option<&str>) -> Result<Self, ManifestError> {
        let shape = Shape::read(bytes)?;
        let media_type = shape.media_type(content_type)?;
        shape.check_kind(&media_type)?;
        let manifest = Self::of(shape, media_type, bytes)?;
        manifest.check_types()?;
        Ok(manifest)
    }

    /// Reads a manifest's bytes, stored with the media type `content_type` if that is known.
    pub(crate) fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, ManifestError> {
        let shape = Shape::read(bytes)?;
        let media_type = shape.media_type(content_type)?;
        Self::of(shape, media_type, bytes)
    }

    fn of(shape: Shape, media_type: String, bytes: &[u8]) -> Result<Self, ManifestError> {
        let config_type = shape.config.as_ref().map(|config| config.media_type.clone());
        let layers = shape.layers.unwrap_or_default();
        let annotations = shape.annotations.unwrap_or_default();
        let bytes_of_annotations: usize =
            annotations.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum();
        Ok(Self {
            media_type,
            size: bytes.len() as u64,
            artifact_type: shape.artifact_type.filter(|text| !text.is_empty()).or(config_type),
            annotations: (bytes_of_annotations <= KEPT_ANNOTATIONS).then_some(annotations),
            subject: shape.subject.map(|subject| digest(&subject.digest)).transpose()?,
            blobs: once(shape.config.iter().chain(&layers).filter(|descriptor| !descriptor.is_nondistributable()))?,
            manifests: once(shape.manifests.unwrap_or_default().iter())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    fn manifest(extra: &str) -> String {
        format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.empty.v1+json","digest":"{EMPTY}","size":2}}{extra}}}"#
        )
    }

    #[test]
    fn an_array_is_no_manifest_and_no_descriptor() {
        let descriptor = format!(r#"["a/b","{EMPTY}",2]"#);
        let whole = format!("[2,null,null,{descriptor},null,null,null,null,null]");
        for text in [
            whole,
            format!(r#"{{"schemaVersion":2,"config":{descriptor}}}"#),
            manifest(&format!(r#","layers":[{descriptor}]"#)),
        ] {
            let refused = Manifest::parse_sent(text.as_bytes(), None).unwrap_err().to_string();
            assert!(refused.contains("expected an object"), "{refused}");
        }
    }

    #[test]
    fn a_media_type_is_the_same_whatever_the_case_of_its_letters() {
        let mixed = "Application/vnd.OCI.image.Manifest.v1+json";
        let text = manifest(&format!(r#","mediaType":"{mixed}""#));
        for sent in [None, Some(oci::MANIFEST), Some(mixed), Some("APPLICATION/VND.OCI.IMAGE.MANIFEST.V1+JSON")] {
            assert_eq!(Manifest::parse_sent(text.as_bytes(), sent).unwrap().media_type, oci::MANIFEST, "{sent:?}");
        }
        // Nor does it hide that something is an index and an image.
        let both = manifest(r#","mediaType":"application/vnd.OCI.image.index.v1+json""#);
        assert!(matches!(Manifest::parse_sent(both.as_bytes(), None), Err(ManifestError::TwoKinds { .. })));
    }

    #[test]
    fn the_artifact_type_falls_back_to_the_configs_media_type() {
        let plain = Manifest::parse(manifest("").as_bytes(), None).unwrap();
        assert_eq!(plain.artifact_type.as_deref(), Some("application/vnd.oci.empty.v1+json"));
        assert_eq!(plain.media_type, "application/vnd.oci.image.manifest.v1+json");
        assert_eq!(plain.blobs.len(), 1);
        let typed = Manifest::parse(manifest(r#","artifactType":"a/b""#).as_bytes(), None).unwrap();
        assert_eq!(typed.artifact_type.as_deref(), Some("a/b"));
    }

    #[test]
    fn a_nondistributable_layer_need_not_be_here() {
        let layer = format!(
            r#","layers":[{{"mediaType":"application/vnd.oci.image.layer.nondistributable.v1.tar","digest":"{EMPTY}","size":9}}]"#
        );
        assert_eq!(Manifest::parse(manifest(&layer).as_bytes(), None).unwrap().blobs.len(), 1);
    }

    #[test]
    fn what_is_long_or_said_often_is_not_kept() {
        let annotated = |bytes: usize| manifest(&format!(r#","annotations":{{"a":"{}"}}"#, "x".repeat(bytes)));
        let kept = Manifest::parse(annotated(4095).as_bytes(), None).unwrap();
        assert_eq!(kept.annotations.unwrap()["a"].len(), 4095);
        let long = annotated(4096);
        assert_eq!(Manifest::parse(long.as_bytes(), None).unwrap().annotations, None);
        assert_eq!(annotations_of(long.as_bytes()).unwrap()["a"].len(), 4096);
        let layer = |size: u32| format!(r#"{{"mediaType":"a/b","digest":"{EMPTY}","size":{size}}}"#);
        let often = manifest(&format!(r#","layers":[{0},{0},{1},{0}]"#, layer(2), layer(3)));
        let sizes: Vec<u64> = Manifest::parse(often.as_bytes(), None).unwrap().blobs.iter().map(|it| it.size).collect();
        assert_eq!(sizes, [2, 3]);
        for (bytes, is_taken) in [(255, true), (256, false)] {
            let typed = manifest(&format!(r#","artifactType":"{}""#, "x".repeat(bytes)));
            assert_eq!(Manifest::parse_sent(typed.as_bytes(), None).is_ok(), is_taken);
            // As it is at a start, where it was stored before.
            assert!(Manifest::parse(typed.as_bytes(), None).is_ok());
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let two_types = manifest(r#","mediaType":"a/b""#);
        assert!(matches!(Manifest::parse(two_types.as_bytes(), Some("c/d")), Err(ManifestError::MediaType { .. })));
        let bad_digest = manifest(r#","layers":[{"mediaType":"a/b","digest":"sha256:no","size":1}]"#);
        assert!(matches!(Manifest::parse(bad_digest.as_bytes(), None), Err(ManifestError::Digest { .. })));
        assert!(matches!(Manifest::parse(br#"{"schemaVersion":1}"#, None), Err(ManifestError::SchemaVersion(1))));
        assert!(Manifest::parse(b"[]", None).is_err());
    }

    #[test]
    fn what_is_an_index_and_an_image_at_once_is_not_taken_and_is_read_where_it_is_stored() {
        let taken = |text: &str, sent_as: &str| Manifest::parse_sent(text.as_bytes(), Some(sent_as)).is_ok();
        for (fields, as_index, as_image, as_other) in [
            (r#""manifests":[]"#, true, false, true),
            (r#""layers":[]"#, false, true, true),
            (r#""manifests":null,"layers":[]"#, false, true, true),
            (r#""manifests":[],"layers":[]"#, false, false, false),
            (r#""manifests":[],"config":null,"layers":null"#, true, false, true),
            (r#""manifests":[],"fsLayers":[]"#, false, false, false),
            (r#""fsLayers":[]"#, false, true, true),
            (r#""annotations":{}"#, true, true, true),
        ] {
            let text = format!(r#"{{"schemaVersion":2,{fields}}}"#);
            for index in [oci::IMAGE_INDEX, oci::DOCKER_LIST] {
                assert_eq!(taken(&text, index), as_index, "{fields} {index}");
            }
            for image in [oci::MANIFEST, oci::DOCKER_MANIFEST] {
                assert_eq!(taken(&text, image), as_image, "{fields} {image}");
            }
            assert_eq!(taken(&text, "application/vnd.example+json"), as_other, "{fields}");
            assert!(Manifest::parse(text.as_bytes(), None).is_ok(), "{fields}");
        }
    }

    #[test]
    fn no_prefix_of_a_manifest_breaks_the_reader() {
        let whole = manifest(r#","annotations":{"a":"b"},"layers":[]"#);
        assert!(Manifest::parse(whole.as_bytes(), None).is_ok());
        for end in 0..whole.len() {
            assert!(Manifest::parse(&whole.as_bytes()[..end], None).is_err());
        }
    }
}
