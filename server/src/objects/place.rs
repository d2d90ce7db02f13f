//! Which object store, as the operator writes it.

use std::fmt;
use std::str::FromStr;

/// `s3://BUCKET` or `s3://BUCKET/PREFIX`. Endpoint, region and credentials are settings of their own or come from the usual
/// variables of the environment (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, …), never from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobsUrl {
    pub(super) bucket: String,
    /// Without slashes at its ends; empty for the whole bucket.
    pub(super) prefix: String,
}

impl fmt::Display for BlobsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "s3://{}{slash}{}", self.bucket, self.prefix)
    }
}

/// A text that is no such URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected s3://BUCKET or s3://BUCKET/PREFIX of letters, digits, '.', '-' and '_', found another form; leave it out for the data directory"
)]
pub struct ParseBlobsUrlError;

impl FromStr for BlobsUrl {
    type Err = ParseBlobsUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("s3://").ok_or(ParseBlobsUrlError)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain)
        };
        if !is_part(bucket) || !(prefix.is_empty() || prefix.split('/').all(is_part)) {
            return Err(ParseBlobsUrlError);
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_form() {
        for (text, shown) in [
            ("s3://symbols", "s3://symbols"),
            ("s3://symbols/", "s3://symbols"),
            ("s3://b/team/one/", "s3://b/team/one"),
        ] {
            assert_eq!(text.parse::<BlobsUrl>().unwrap().to_string(), shown);
        }
        for wrong in
            ["", "symbols", "s3://", "s3:///x", "s3://key:secret@symbols", "s3://b/../x", "s3://b//x", "gs://b"]
        {
            assert!(wrong.parse::<BlobsUrl>().is_err(), "{wrong}");
        }
    }
}
