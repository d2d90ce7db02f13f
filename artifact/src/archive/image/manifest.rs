//! Which images there are, and which blobs they consist of: OCI image layouts (image-spec 1.1) and what `docker save`
//! writes (`manifest.json`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::blobs::{Blobs, Wanted};
use crate::archive::error::{ArchiveError, Halt};
use crate::archive::report::PassedOverReason;

/// An index may name further indexes, as far as this.
const MAX_INDEX_DEPTH: u32 = 4;
/// Images and indexes of one archive.
const MAX_MANIFESTS: usize = 10_000;
/// Layers of one image; Docker stops at 127.
const MAX_LAYERS: usize = 4096;

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default, rename = "artifactType")]
    artifact_type: Option<String>,
}

#[derive(Deserialize, Clone)]
struct Descriptor {
    #[serde(default, rename = "mediaType")]
    media_type: String,
    digest: String,
    size: u64,
    /// The blob itself, where it is small, in base64.
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Clone)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(flatten)]
    platform: Option<Platform>,
    #[serde(default)]
    rootfs: Option<RootFs>,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Config")]
    config: String,
    #[serde(default, rename = "RepoTags")]
    tags: Option<Vec<String>>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// One image, before its layers are looked at.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) platform: String,
    pub(super) name: String,
    pub(super) layers: Vec<Wanted>,
}

/// The images of an archive, and what in it is none.
#[derive(Debug, Default)]
pub(super) struct Images {
    pub(super) images: Vec<Image>,
    /// What is passed over: what it is called within the archive, and why.
    pub(super) passed_over: Vec<(String, PassedOverReason)>,
    /// Artifacts that are no images, by their type: the first one's digest, and how many more there are. A bundle has one for each module.
    artifacts: BTreeMap<String, (String, u64)>,
    seen: BTreeSet<String>,
}

impl Images {
    /// All images that the archive's indexes name, each platform of each; none where there is no index. Other programs have
    /// an `index.json` or `manifest.json` too, so one of another shape is no index.
    pub(super) fn of(blobs: &mut Blobs<'_>) -> Result<Option<Self>, Halt> {
        let mut images = Self::default();
        if blobs.json("oci-layout")?.is_some()
            && let Some(index) = blobs.json("index.json")?
        {
            let index: Index = parse(blobs, "index.json", &index)?;
            images.add_index(blobs, &index, "", 0)?;
            images.tell_artifacts();
            return Ok(Some(images));
        }
        let Some(saved) = blobs.json("manifest.json")? else { return Ok(None) };
        let Ok(saved) = serde_json::from_slice::<Vec<Saved>>(&saved) else { return Ok(None) };
        for saved in saved.into_iter().take(MAX_MANIFESTS) {
            images.add_saved(blobs, saved)?;
        }
        Ok(Some(images))
    }

    fn add_index(&mut self, blobs: &mut Blobs<'_>, index: &Index, name: &str, depth: u32) -> Result<(), Halt> {
        for descriptor in index.manifests.iter().flatten() {
            if !self.seen.insert(descriptor.digest.clone()) {
                continue;
            }
            if self.seen.len() > MAX_MANIFESTS || depth >= MAX_INDEX_DEPTH {
                let found = format!("{} manifests, {depth} levels deep", self.seen.len());
                let expected = format!("at most {MAX_MANIFESTS} manifests, {MAX_INDEX_DEPTH} levels deep");
                return Err(blobs.damaged("index.json", &expected, found).into());
            }
            let note = |key: &str| descriptor.annotations.as_ref().and_then(|notes| notes.get(key));
            // What BuildKit adds beside an image: statements about it.
            if note("vnd.docker.reference.type").is_some_and(|kind| kind == "attestation-manifest") {
                continue;
            }
            let tag = note("io.containerd.image.name").or_else(|| note("org.opencontainers.image.ref.name"));
            let name = tag.map_or(name, String::as_str);
            if self.is_unread(&descriptor.digest) {
                continue;
            }
            let Some(bytes) = descriptor.json(blobs)? else {
                // Docker names every platform in the index and saves the one that it has.
                self.missing(&descriptor.digest);
                continue;
            };
            let manifest: Index = parse(blobs, &descriptor.digest, &bytes)?;
            if manifest.manifests.is_some() {
                self.add_index(blobs, &manifest, name, depth.saturating_add(1))?;
            } else {
                self.add_manifest(blobs, descriptor, manifest, name)?;
            }
        }
        Ok(())
    }

    fn add_manifest(
        &mut self,
        blobs: &mut Blobs<'_>,
        descriptor: &Descriptor,
        manifest: Index,
        name: &str,
    ) -> Result<(), Halt> {
        let (config, layers) = (manifest.config, manifest.layers.unwrap_or_default());
        // OCI's and Docker's configurations of images; anything else is an artifact of another kind in the same form.
        let is_image = |config: &Descriptor| {
            config.media_type.is_empty()
                || config.media_type.starts_with("application/vnd.oci.image.config.")
                || config.media_type.starts_with("application/vnd.docker.container.image.")
        };
        let Some(config) = config.filter(is_image) else {
            let kind = manifest.artifact_type.unwrap_or_else(|| "unknown type".to_owned());
            let first = || (descriptor.digest.clone(), 0_u64);
            self.artifacts.entry(kind).and_modify(|(_, more)| *more = more.saturating_add(1)).or_insert_with(first);
            return Ok(());
        };
        if self.is_unread(&config.digest) {
            return Ok(());
        }
        let Some(bytes) = config.json(blobs)? else {
            self.missing(&config.digest);
            return Ok(());
        };
        let parsed: Config = parse(blobs, &config.digest, &bytes)?;
        let platform = descriptor.platform.clone().or(parsed.platform);
        let wanted = |layer: &Descriptor| Wanted {
            path: blobs.path_of(&layer.digest),
            digest: Some(layer.digest.clone()),
            size: Some(layer.size),
            diff_id: None,
        };
        let layers = layers.iter().map(wanted).collect();
        self.add(blobs, platform, name.to_owned(), layers, parsed.rootfs)
    }

    fn add_saved(&mut self, blobs: &mut Blobs<'_>, saved: Saved) -> Result<(), Halt> {
        let Some(bytes) = blobs.json(&saved.config)? else {
            self.missing(&saved.config);
            return Ok(());
        };
        let config: Config = parse(blobs, &saved.config, &bytes)?;
        let name = saved.tags.unwrap_or_default().into_iter().next().unwrap_or_default();
        let layers = saved.layers.into_iter().map(|path| Wanted { path, digest: None, size: None, diff_id: None });
        self.add(blobs, config.platform, name, layers.collect(), config.rootfs)
    }

    fn add(
        &mut self,
        blobs: &Blobs<'_>,
        platform: Option<Platform>,
        name: String,
        mut layers: Vec<Wanted>,
        root: Option<RootFs>,
    ) -> Result<(), Halt> {
        let diff_ids = root.map(|root| root.diff_ids).unwrap_or_default();
        let count = layers.len();
        if count > MAX_LAYERS || (!diff_ids.is_empty() && diff_ids.len() != count) {
            let expected = format!(
                "as many layers as the configuration has digests ({}), and at most {MAX_LAYERS}",
                diff_ids.len()
            );
            return Err(blobs.damaged(&name, &expected, format!("{count} layers")).into());
        }
        for (layer, diff_id) in layers.iter_mut().zip(diff_ids) {
            layer.diff_id = Some(diff_id);
        }
        let platform = platform.map(|platform| platform.told()).unwrap_or_default();
        self.images.push(Image { platform, name: crate::escaped(name.as_bytes()).into_owned(), layers });
        Ok(())
    }

    /// Tells what is no image, each type once.
    fn tell_artifacts(&mut self) {
        for (kind, (first, more)) in std::mem::take(&mut self.artifacts) {
            let kind = crate::escaped(kind.as_bytes());
            let others = if more > 0 { format!(", and {more} more of its type") } else { String::new() };
            let reason = format!("an artifact ({kind}) that is no container image{others}");
            self.passed_over
                .push((crate::escaped(first.as_bytes()).into_owned(), PassedOverReason::Unsupported(reason)));
        }
    }

    /// Whether a blob is passed over for its digest, which is told.
    fn is_unread(&mut self, blob: &str) -> bool {
        let reason = super::unread(blob);
        let is_unread = reason.is_some();
        self.passed_over.extend(reason.map(|reason| (crate::escaped(blob.as_bytes()).into_owned(), reason)));
        is_unread
    }

    fn missing(&mut self, blob: &str) {
        let blob = crate::escaped(blob.as_bytes()).into_owned();
        self.passed_over.push((blob.clone(), PassedOverReason::Missing(blob)));
    }
}

impl Descriptor {
    /// The JSON that it names: the blob, and where that is not there, what the descriptor has of it. (OCI image specification, "Embedded Content")
    fn json(&self, blobs: &mut Blobs<'_>) -> Result<Option<Vec<u8>>, Halt> {
        match (blobs.blob_json(&self.digest, self.size)?, &self.data) {
            (None, Some(data)) => blobs.embedded_json(&self.digest, self.size, data).map(Some),
            (blob, _) => Ok(blob),
        }
    }
}

impl Platform {
    fn told(&self) -> String {
        let parts = [Some(&self.os), Some(&self.architecture), self.variant.as_ref()];
        let parts: Vec<&str> =
            parts.into_iter().flatten().map(String::as_str).filter(|part| !part.is_empty()).collect();
        crate::escaped(parts.join("/").as_bytes()).into_owned()
    }
}

fn parse<T: DeserializeOwned>(blobs: &Blobs<'_>, what: &str, bytes: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|error| blobs.damaged(what, "JSON of an image", error.to_string()))
}
