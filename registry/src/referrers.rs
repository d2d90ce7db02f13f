//! What refers to a manifest: by the registry's API, or by a tag where it has none (distribution-spec, "Referrers tag
//! schema").

use reqwest::Url;
use reqwest::header::{HeaderMap, LINK};
use symseal_bundle::Digest;
use symseal_bundle::oci::{self, Descriptor, ImageIndex};

use crate::manifests;
use crate::session::Session;
use crate::transfer::gather;
use crate::{RegistryError, Target};

/// Pages of one list that are followed, and referrers that are taken: a registry must not keep us for ever.
const PAGES_LIMIT: usize = 1000;
const REFERRERS_LIMIT: usize = 10_000;

/// The descriptors of a manifest's referrers.
pub(crate) async fn list(session: &Session, subject: &Digest) -> Result<Vec<Descriptor>, RegistryError> {
    let mut url = session.url(&format!("referrers/{subject}"))?;
    let mut found: Vec<Descriptor> = Vec::new();
    for page in 0..PAGES_LIMIT {
        let (response, limit) = match manifests::fetch_page(session, &url).await {
            // Registries from before the API answer with some error or other.
            Err(RegistryError::Refused { status, .. }) if page == 0 && matches!(status, 400 | 404 | 405) => {
                return by_tag(session, subject).await;
            }
            page => page?,
        };
        let next = next_page(response.url(), response.headers());
        let bytes = gather(response, limit).await.map_err(|failure| failure.into_error(1))?;
        let malformed =
            |error: oci::OciError| RegistryError::Protocol { url: url.to_string(), problem: error.to_string() };
        found.extend(ImageIndex::parse(&bytes).map_err(malformed)?.manifests);
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
        Some(fetched) => Ok(parse(session, &fetched.bytes)?.manifests),
        None => Ok(Vec::new()),
    }
}

fn parse(session: &Session, bytes: &[u8]) -> Result<ImageIndex, RegistryError> {
    ImageIndex::parse(bytes).map_err(|error| RegistryError::Protocol {
        url: session.reference().to_string(),
        problem: format!("the tag that lists referrers: {error}"),
    })
}

fn fallback_tag(subject: &Digest) -> String {
    subject.to_string().replace(':', "-")
}

/// The URL in `Link: <…>; rel="next"`, on the same host.
fn next_page(at: &Url, headers: &HeaderMap) -> Option<Url> {
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
    fn the_next_page_is_followed_on_the_same_host_only() {
        check("</v2/a?last=b>; rel=\"next\"", Some("http://localhost:5000/v2/a?last=b"));
        check("<?last=b>; rel=next", Some("http://localhost:5000/v2/a/referrers/x?last=b"));
        check("</p>; rel=\"prev\", </n>; rel=\"next\"", Some("http://localhost:5000/n"));
        check("<https://elsewhere.example/n>; rel=\"next\"", None);
        check("nonsense", None);
    }
}
