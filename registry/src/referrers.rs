//! What refers to a manifest: by the registry's API, or by a tag where it has none (distribution-spec, "Referrers tag
//! schema").

use reqwest::Url;
use reqwest::header::{HeaderMap, LINK};
use serde::Deserialize;
use serde_json::Value;
use symseal_bundle::Digest;
use symseal_bundle::oci::{self, Descriptor, ImageIndex};

use crate::manifests;
use crate::session::Session;
use crate::transfer::gather;
use crate::{RegistryError, Target};

/// Pages of one list that are followed, and referrers that are taken: a registry must not keep us for ever.
const PAGES_LIMIT: usize = 1000;
const REFERRERS_LIMIT: usize = 10_000;
/// The largest page of a list, in bytes: a registry may put one manifest's annotations on it, as large as manifests are, and escaped.
const PAGE_BYTES_LIMIT: u64 = 8 * oci::MAX_MANIFEST_BYTES;

/// The descriptors of a manifest's referrers.
pub(crate) async fn list(session: &Session, subject: &Digest) -> Result<Vec<Descriptor>, RegistryError> {
    let mut url = session.url(&format!("referrers/{subject}"))?;
    let mut found: Vec<Descriptor> = Vec::new();
    for page in 0..PAGES_LIMIT {
        let response = match manifests::fetch_page(session, &url).await {
            // Registries from before the API answer with some error or other.
            Err(RegistryError::Refused { status, .. }) if page == 0 && matches!(status, 400 | 404 | 405) => {
                return by_tag(session, subject).await;
            }
            page => page?,
        };
        let next = next_page(response.url(), response.headers());
        let bytes = gather(response, PAGE_BYTES_LIMIT).await.map_err(|failure| failure.into_error(1))?;
        let malformed =
            |error: serde_json::Error| RegistryError::Protocol { url: url.to_string(), problem: error.to_string() };
        found.extend(descriptors(&bytes).map_err(malformed)?);
        if found.len() > REFERRERS_LIMIT {
            let problem = format!("more than {REFERRERS_LIMIT} referrers of one manifest");
            return Err(RegistryError::Protocol { url: url.to_string(), problem });
        }
        match next {
            Some(next) if next != url => url = next,
            _ => return Ok(found),
        }
    }
    Err(RegistryError::Protocol {
        url: url.to_string(),
        problem: format!("more than {PAGES_LIMIT} pages of referrers"),
    })
}

/// Adds a referrer to the tag of its subject, for a registry that did not say `OCI-Subject`.
pub(crate) async fn add_by_tag(session: &Session, subject: &Digest, referrer: Descriptor) -> Result<(), RegistryError> {
    let tag = Target::Tag(fallback_tag(subject));
    let mut index = match manifests::get(session, &tag).await? {
        Some(fetched) => parse(session, &fetched.bytes)?,
        None => ImageIndex::new(None, Vec::new()),
    };
    if index.manifests.iter().any(|known| known.digest == referrer.digest) {
        return Ok(());
    }
    index.manifests.push(referrer);
    let problem = |error: oci::OciError| RegistryError::Manifest { digest: *subject, problem: error.to_string() };
    let bytes = index.to_bytes().map_err(problem)?;
    manifests::put(session, &tag, &bytes).await.map(drop)
}

async fn by_tag(session: &Session, subject: &Digest) -> Result<Vec<Descriptor>, RegistryError> {
    match manifests::get(session, &Target::Tag(fallback_tag(subject))).await? {
        Some(fetched) => descriptors(&fetched.bytes).map_err(|error| malformed_tag(session, &error)),
        None => Ok(Vec::new()),
    }
}

fn parse(session: &Session, bytes: &[u8]) -> Result<ImageIndex, RegistryError> {
    ImageIndex::parse(bytes).map_err(|error| malformed_tag(session, &error))
}

fn malformed_tag(session: &Session, error: &dyn std::fmt::Display) -> RegistryError {
    let problem = format!("the tag that lists referrers: {error}");
    RegistryError::Protocol { url: session.reference().to_string(), problem }
}

/// The descriptors of an image index that lists referrers. What anybody added under a digest of a kind that is not read here is
/// passed over, and annotations are not kept.
fn descriptors(bytes: &[u8]) -> Result<Vec<Descriptor>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Page {
        manifests: Vec<Value>,
    }
    let page: Page = serde_json::from_slice(bytes)?;
    let read = |listed: Value| serde_json::from_value::<Descriptor>(listed).ok();
    let bare = |listed: Descriptor| Descriptor { annotations: Default::default(), ..listed };
    Ok(page.manifests.into_iter().filter_map(read).map(bare).collect())
}

/// Whether an error of fetching a referrer says something of that referrer alone: it is left out then, and what can be had is
/// taken, as anybody may have put it there. A registry that is not to be reached, or a layout that cannot be written, is
/// another thing.
pub(crate) fn is_junk(error: &RegistryError) -> bool {
    match error {
        error if error.is_of_one_object() => true,
        // 500: it stumbles over this one. Too busy (429, 503) it is for all of them.
        RegistryError::Refused { status, .. } => (400..=500).contains(status) && *status != 429,
        _ => false,
    }
}

fn fallback_tag(subject: &Digest) -> String {
    subject.to_string().replace(':', "-")
}

/// The URL in `Link: <…>; rel="next"`, on the same host.
pub(crate) fn next_page(at: &Url, headers: &HeaderMap) -> Option<Url> {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    links
        .flat_map(|line| line.split(','))
        .filter_map(|link| {
            let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
            let is_next = parameters.split(';').any(|one| matches!(one.trim(), "rel=\"next\"" | "rel=next"));
            at.join(target).ok().filter(|next| is_next && next.origin() == at.origin())
        })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(link: &'static str, expected: Option<&str>) {
        let at = Url::parse("http://localhost:5000/v2/a/referrers/x").unwrap();
        let headers = HeaderMap::from_iter([(LINK, link.parse().unwrap())]);
        assert_eq!(next_page(&at, &headers).map(String::from).as_deref(), expected, "{link}");
    }

    #[test]
    fn a_list_with_digests_of_another_kind_gives_the_rest() {
        let sha256 = Digest::of(b"x");
        let (good, sha512) = (format!(r#""digest":"{sha256}""#), format!(r#""digest":"sha512:{}""#, "0".repeat(128)));
        let one = |digest: &str| format!(r#"{{"mediaType":"a/b",{digest},"size":1,"annotations":{{"a":"b"}}}}"#);
        let page = format!(r#"{{"manifests":[{},{},3]}}"#, one(&sha512), one(&good));
        assert_eq!(descriptors(page.as_bytes()).unwrap(), [Descriptor::new("a/b", sha256, 1)]);
        assert!(descriptors(b"{}").is_err());
    }

    #[test]
    fn the_next_page_is_followed_on_the_same_host_only() {
        check("</v2/a?last=b>; rel=\"next\"", Some("http://localhost:5000/v2/a?last=b"));
        check("<?last=b>; rel=next", Some("http://localhost:5000/v2/a/referrers/x?last=b"));
        check("</p>; rel=\"prev\", </n>; rel=\"next\"", Some("http://localhost:5000/n"));
        check("<https://elsewhere.example/n>; rel=\"next\"", None);
        check("nonsense", None);
    }
}
