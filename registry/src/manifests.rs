//! Manifests: fetched, checked, walked and sent.

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Deserialize;
use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::{Digest, LayoutDir};

use crate::session::{Expect, Session};
use crate::transfer::gather;
use crate::{RegistryError, Target};

/// What we take for a manifest. Images that Docker pushed are subjects, and are mirrored as they are: a registry that is not told that they are taken makes
/// another manifest of them, or says that there is none.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// What the registry calls the manifest that it sends.
const CONTENT_DIGEST: &str = "docker-content-digest";

const FOUND: Expect = Expect { text: "200 (the manifest)", statuses: &[StatusCode::OK] };
const FOUND_OR_NOT: Expect =
    Expect { text: "200 or 404 (the manifest, or none)", statuses: &[StatusCode::OK, StatusCode::NOT_FOUND] };
const STORED: Expect = Expect { text: "201 (the manifest is stored)", statuses: &[StatusCode::CREATED] };

/// What a manifest names.
pub(crate) struct Children {
    /// Config and layers.
    pub(crate) blobs: Vec<Descriptor>,
    /// Manifests of an image index.
    pub(crate) manifests: Vec<Descriptor>,
}

/// A manifest's bytes with what a descriptor says of it.
pub(crate) struct Fetched {
    pub(crate) descriptor: Descriptor,
    pub(crate) bytes: Vec<u8>,
}

/// Reads what a manifest of either kind names.
pub(crate) fn children(digest: Digest, bytes: &[u8]) -> Result<Children, RegistryError> {
    let malformed = |error: &dyn std::fmt::Display| RegistryError::Manifest { digest, problem: error.to_string() };
    let (config, layers) = match media_type(digest, bytes)?.as_str() {
        oci::IMAGE_INDEX => {
            let index = ImageIndex::parse(bytes).map_err(|error| malformed(&error))?;
            return Ok(Children { blobs: Vec::new(), manifests: index.manifests });
        }
        oci::DOCKER_LIST => {
            let list: DockerList = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
            return Ok(Children { blobs: Vec::new(), manifests: list.manifests });
        }
        oci::DOCKER_MANIFEST => {
            let manifest: DockerManifest = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
            (manifest.config, manifest.layers)
        }
        _ => {
            let manifest = Manifest::parse(bytes).map_err(|error| malformed(&error))?;
            (manifest.config, manifest.layers)
        }
    };
    Ok(Children { blobs: std::iter::once(config).chain(layers).collect(), manifests: Vec::new() })
}

/// What Docker's list of manifests names (Docker registry, "Image Manifest Version 2, Schema 2", "Manifest List").
#[derive(Deserialize)]
struct DockerList {
    manifests: Vec<Descriptor>,
}

/// What Docker's image manifest names (as above, "Image Manifest").
#[derive(Deserialize)]
struct DockerManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// A manifest's own media type; the two kinds can also be told apart by their fields.
pub(crate) fn media_type(digest: Digest, bytes: &[u8]) -> Result<String, RegistryError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        media_type: Option<String>,
        manifests: Option<serde::de::IgnoredAny>,
    }
    let head: Head = serde_json::from_slice(bytes)
        .map_err(|error| RegistryError::Manifest { digest, problem: format!("not a manifest: {error}") })?;
    let by_fields = if head.manifests.is_some() { oci::IMAGE_INDEX } else { oci::MANIFEST };
    Ok(head.media_type.unwrap_or_else(|| by_fields.to_owned()))
}

/// A manifest that refers to another one: its subject's digest, and its own descriptor as a list of referrers has it
/// (distribution-spec, "Listing Referrers": artifact type, else the configuration's media type, and all annotations).
pub(crate) fn as_referrer(digest: Digest, bytes: &[u8]) -> Result<Option<(Digest, Descriptor)>, RegistryError> {
    let malformed = |error: oci::OciError| RegistryError::Manifest { digest, problem: error.to_string() };
    let media_type = media_type(digest, bytes)?;
    if matches!(media_type.as_str(), oci::DOCKER_LIST | oci::DOCKER_MANIFEST) {
        // They came before subjects.
        return Ok(None);
    }
    let (subject, artifact_type, annotations) = if media_type == oci::IMAGE_INDEX {
        let index = ImageIndex::parse(bytes).map_err(malformed)?;
        (index.subject, index.artifact_type, index.annotations)
    } else {
        let manifest = Manifest::parse(bytes).map_err(malformed)?;
        (manifest.subject, manifest.artifact_type.or(Some(manifest.config.media_type)), manifest.annotations)
    };
    let descriptor = Descriptor::new(&media_type, digest, bytes.len() as u64);
    Ok(subject.map(|subject| (subject.digest, Descriptor { artifact_type, annotations, ..descriptor })))
}

/// Fetches what a target names; its digest is checked when the target is one.
pub(crate) async fn fetch(session: &Session, target: &Target) -> Result<Fetched, RegistryError> {
    let not_found = || {
        let reference = match target {
            Target::Digest(digest) => session.reference().with_digest(*digest).to_string(),
            Target::Tag(_) => session.reference().to_string(),
        };
        RegistryError::NotFound { reference, what: "manifest" }
    };
    get(session, target).await?.ok_or_else(not_found)
}

/// The same, where absence is an answer.
pub(crate) async fn get(session: &Session, target: &Target) -> Result<Option<Fetched>, RegistryError> {
    let names = &session.options.other_names;
    let sent = match target {
        Target::Tag(tag) => get_by_name(session, tag).await?,
        Target::Digest(digest) => match (get_by_name(session, &digest.to_string()).await?, names.of(digest)) {
            (None, Some(other)) => get_by_name(session, &other).await?,
            (sent, _) => sent,
        },
    };
    let Some(Sent { url, bytes, own_name }) = sent else { return Ok(None) };
    let found = Digest::of(&bytes);
    match target {
        Target::Digest(expected) if found != *expected => {
            return Err(RegistryError::Digest { url: url.to_string(), expected: *expected, found });
        }
        Target::Digest(_) => {}
        Target::Tag(_) => names.keep(found, &own_name),
    }
    let media_type = media_type(found, &bytes)?;
    Ok(Some(Fetched { descriptor: Descriptor::new(&media_type, found, bytes.len() as u64), bytes }))
}

/// What a registry sent under a name.
struct Sent {
    url: Url,
    bytes: Vec<u8>,
    /// What the registry calls it; empty where it does not say.
    own_name: String,
}

async fn get_by_name(session: &Session, name: &str) -> Result<Option<Sent>, RegistryError> {
    let url = session.url(&format!("manifests/{name}"))?;
    let mut tried = 0;
    loop {
        tried += 1;
        let response =
            session.send(Method::GET, &url, FOUND_OR_NOT, |request| request.header(ACCEPT, ACCEPTED)).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let own_name = response.headers().get(CONTENT_DIGEST).and_then(|value| value.to_str().ok());
        let own_name = own_name.unwrap_or_default().to_owned();
        match gather(response, oci::MAX_MANIFEST_BYTES).await {
            Ok(bytes) => return Ok(Some(Sent { url, bytes, own_name })),
            Err(failure) => session.wait_or_give_up(failure, tried).await?,
        }
    }
}

/// Fetches a page of a list that has a manifest's form.
pub(crate) async fn fetch_page(session: &Session, url: &Url) -> Result<Response, RegistryError> {
    session.send(Method::GET, url, FOUND, |request| request.header(ACCEPT, oci::IMAGE_INDEX)).await
}

/// Reads a manifest of a layout.
pub(crate) async fn read(layout: &LayoutDir, digest: Digest) -> Result<Vec<u8>, RegistryError> {
    let layout = layout.clone();
    let read = tokio::task::spawn_blocking(move || layout.read_blob(&digest, oci::MAX_MANIFEST_BYTES));
    let joined = read.await.map_err(|error| RegistryError::Manifest { digest, problem: error.to_string() })?;
    Ok(joined?)
}

/// Sends a manifest under a name; the registry's answer.
pub(crate) async fn put(session: &Session, target: &Target, bytes: &[u8]) -> Result<Response, RegistryError> {
    let name = match target {
        Target::Tag(tag) => tag.clone(),
        Target::Digest(digest) => digest.to_string(),
    };
    let url = session.url(&format!("manifests/{name}"))?;
    let media_type = media_type(Digest::of(bytes), bytes)?;
    session
        .send(Method::PUT, &url, STORED, |request| request.header(CONTENT_TYPE, &media_type).body(bytes.to_vec()))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_told_apart_with_and_without_a_media_type() {
        let digest = Digest::of(b"");
        let index = br#"{"schemaVersion":2,"manifests":[]}"#;
        assert_eq!(media_type(digest, index).unwrap(), oci::IMAGE_INDEX);
        assert!(children(digest, index).unwrap().blobs.is_empty());
        let manifest = Manifest::artifact("a/b", vec![Descriptor::of("c/d", b"layer")]).to_bytes().unwrap();
        assert_eq!(media_type(digest, &manifest).unwrap(), oci::MANIFEST);
        assert_eq!(children(digest, &manifest).unwrap().blobs.len(), 2);
    }

    #[test]
    fn what_dockers_manifests_name_is_read_and_they_have_no_subject() {
        let digest = Digest::of(b"");
        let one =
            |kind: &str| format!(r#"{{"mediaType":"{kind}","size":1,"digest":"{}"}}"#, Digest::of(kind.as_bytes()));
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"{}","config":{},"layers":[{},{}]}}"#,
            oci::DOCKER_MANIFEST,
            one("a/config"),
            one("a/layer"),
            one("a/other")
        );
        assert_eq!(children(digest, manifest.as_bytes()).unwrap().blobs.len(), 3);
        let platform = r#","platform":{"architecture":"arm","os":"linux","variant":"v7","features":["sse4"]}}"#;
        let listed = one(oci::DOCKER_MANIFEST).replace('}', platform);
        let list = format!(r#"{{"schemaVersion":2,"mediaType":"{}","manifests":[{listed}]}}"#, oci::DOCKER_LIST);
        let named = children(digest, list.as_bytes()).unwrap();
        assert_eq!((named.blobs.len(), named.manifests.len()), (0, 1));
        for bytes in [&manifest, &list] {
            assert!(as_referrer(digest, bytes.as_bytes()).unwrap().is_none());
            for end in 0..bytes.len() {
                assert!(children(digest, &bytes.as_bytes()[..end]).is_err());
            }
        }
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_its_digest() {
        let digest = Digest::of(b"x");
        for bytes in [&b""[..], b"[]", b"{}", br#"{"mediaType":"text/plain"}"#, br#"{"schemaVersion":2,"manifests":3}"#]
        {
            let error = children(digest, bytes).err().unwrap().to_string();
            assert!(error.contains(&digest.to_string()), "{error}");
        }
    }
}
