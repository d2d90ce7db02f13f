//! What a path under `/v2/` names. Repository names hold slashes, so the path is read from its end.

use uuid::Uuid;

use super::{Code, OciError};
use crate::blobs::BlobDigest;
use crate::http::percent_decode;
use crate::repositories::{Reference, RepositoryName};

/// The object of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `_catalog`
    Catalog,
    /// `<name>/blobs/<digest>`
    Blob(RepositoryName, BlobDigest),
    /// `<name>/blobs/uploads/`
    Uploads(RepositoryName),
    /// `<name>/blobs/uploads/<id>`
    Upload(RepositoryName, Uuid),
    /// `<name>/manifests/<tag or digest>`
    Manifest(RepositoryName, Reference),
    /// `<name>/tags/list`
    Tags(RepositoryName),
    /// `<name>/referrers/<digest>`
    Referrers(RepositoryName, BlobDigest),
}

impl Target {
    /// The methods that are known for it.
    pub(crate) fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Catalog | Self::Tags(_) | Self::Referrers(..) => &["GET", "HEAD"],
            Self::Blob(..) => &["GET", "HEAD", "DELETE"],
            Self::Uploads(_) => &["POST"],
            Self::Upload(..) => &["GET", "HEAD", "PATCH", "PUT", "DELETE"],
            Self::Manifest(..) => &["GET", "HEAD", "PUT", "DELETE"],
        }
    }

    /// Reads the path's raw bytes after `/v2/`; `None` when it has no form of this API.
    pub(crate) fn parse(path: &str) -> Option<Result<Self, OciError>> {
        if path == "_catalog" {
            return Some(Ok(Self::Catalog));
        }
        let (head, last) = path.rsplit_once('/')?;
        let last = percent_decode(last)?;
        if let Some(name) = head.strip_suffix("/blobs/uploads") {
            return Some(repository(name).and_then(|name| {
                if last.is_empty() {
                    return Ok(Self::Uploads(name));
                }
                let unknown = |_| OciError::new(Code::BlobUploadUnknown, format!("{last}: there is no such upload"));
                Uuid::try_parse(&last).map(|id| Self::Upload(name, id)).map_err(unknown)
            }));
        }
        let (name, kind) = head.rsplit_once('/')?;
        match kind {
            "blobs" if last == "uploads" => Some(repository(name).map(Self::Uploads)),
            "blobs" => Some(repository(name).and_then(|name| Ok(Self::Blob(name, digest(&last)?)))),
            "manifests" => Some(repository(name).and_then(|name| Ok(Self::Manifest(name, reference(&last)?)))),
            "tags" if last == "list" => Some(repository(name).map(Self::Tags)),
            "referrers" => Some(repository(name).and_then(|name| Ok(Self::Referrers(name, digest(&last)?)))),
            _ => None,
        }
    }
}

fn repository(text: &str) -> Result<RepositoryName, OciError> {
    text.parse().map_err(|error| OciError::new(Code::NameInvalid, format!("repository {text:?}: {error}")))
}

fn digest(text: &str) -> Result<BlobDigest, OciError> {
    text.parse().map_err(|error| OciError::new(Code::DigestInvalid, format!("digest {text:?}: {error}")))
}

fn reference(text: &str) -> Result<Reference, OciError> {
    if text.contains(':') {
        return digest(text).map(Reference::Digest);
    }
    text.parse().map(Reference::Tag).map_err(|error| OciError::new(Code::TagInvalid, format!("tag {text:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> RepositoryName {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(path: &str, expected: Target) {
        assert_eq!(Target::parse(path).unwrap().unwrap(), expected, "{path}");
    }

    #[test]
    fn names_with_slashes_and_words_of_the_api_are_names() {
        let digest = BlobDigest::of(b"");
        check("_catalog", Target::Catalog);
        check(&format!("a/blobs/{digest}"), Target::Blob(name("a"), digest.clone()));
        check(&format!("blobs/uploads/blobs/{digest}"), Target::Blob(name("blobs/uploads"), digest.clone()));
        check(
            &format!("a/b/referrers/{}", digest.to_string().replace(':', "%3A")),
            Target::Referrers(name("a/b"), digest.clone()),
        );
        check("a/b/blobs/uploads/", Target::Uploads(name("a/b")));
        check("a/b/blobs/uploads", Target::Uploads(name("a/b")));
        check("a/tags/tags/list", Target::Tags(name("a/tags")));
        check("a/manifests/list", Target::Manifest(name("a"), Reference::Tag("list".parse().unwrap())));
        check(&format!("a/manifests/{digest}"), Target::Manifest(name("a"), Reference::Digest(digest)));
    }

    #[test]
    fn what_has_no_form_is_told_from_what_is_malformed() {
        for path in ["", "a", "a/b", "a/tags", "tags/list", "/"] {
            assert!(Target::parse(path).is_none(), "{path}");
        }
        for path in
            ["A/tags/list", "/tags/list", "a/blobs/sha256:12", "a/manifests/.", "a/blobs/uploads/7", "a/../b/tags/list"]
        {
            assert!(Target::parse(path).unwrap().is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_breaks_the_reader(path in "[a-z0-9/:._%-]{0,60}|.{0,40}") {
            let _ = Target::parse(&path);
        }
    }
}
