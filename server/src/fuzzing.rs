//! Every reader of outside bytes that no endpoint's type hides behind a parser of another room, for the fuzz target.

use crate::endpoints::{api, debuginfod, oci, symbolicate, symbols};
use crate::http::{parse_content_range, percent_decode, query_values};
use crate::repositories::Manifest;

/// Reads `bytes` as each part of a request: headers, paths, queries, a manifest.
///
/// # Panics
/// When a reader gives something that it must not.
pub fn read_requests(bytes: &[u8]) {
    let size = bytes.len() as u64 * 7;
    if let crate::http::Ranged::Part(part) = crate::http::parse_range(Some(bytes), size) {
        assert!(part.length > 0 && part.start.checked_add(part.length).is_some_and(|end| end <= size));
    }
    if let Some(range) = parse_content_range(bytes) {
        assert!(range.length > 0 && range.start.checked_add(range.length - 1).is_some());
    }
    let _ = Manifest::parse(bytes, None);
    if let Some(found) = crate::upstream::build_ids_at_start(bytes) {
        assert!(found.iter().all(|id| id.len() <= bytes.len()));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = (percent_decode(text), query_values(Some(text), "n"));
    let _ = oci::Target::parse(text);
    let _ = (debuginfod::Target::parse(text), symbols::Target::parse(text));
    let _ = api::resolve::Request::read(bytes);
    let _ = symbols::WantedSymbolFile::parse(text, Some(text));
    let _ = symbolicate::Request::read(bytes);
    if let Ok(digest) = text.parse::<crate::blobs::BlobDigest>() {
        assert_eq!(digest.to_string(), text);
        assert!(!digest.hex().contains(['/', '.']));
    }
    if let Ok(name) = text.parse::<crate::repositories::RepositoryName>() {
        assert!(name.as_str().split('/').all(|part| !part.is_empty() && !part.starts_with(['.', '_'])));
    }
    if let Ok(tag) = text.parse::<crate::repositories::Tag>() {
        assert!(!tag.as_str().contains('/') && !tag.as_str().starts_with('.'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_requests_are_read_without_harm() {
        let seeds: [&[u8]; 8] = [
            b"bytes=500-1499",
            b"bytes 0-1023/2048",
            b"team/app/blobs/sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            b"team/app/manifests/v1.0",
            b"abcdef01/section/.debug_line",
            b"n=10&last=v1&artifactType=application/x+json",
            br#"{"schemaVersion":2,"config":{"mediaType":"a/b","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[]}"#,
            b"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        ];
        for seed in seeds {
            for at in 0..=seed.len() {
                read_requests(&seed[..at]);
                for replacement in [0, b'/', b'%', b'-', b'9', 0xff] {
                    let mut damaged = seed.to_vec();
                    damaged.insert(at, replacement);
                    read_requests(&damaged);
                    if let Some(byte) = damaged.get_mut(at + 1) {
                        *byte = replacement;
                    }
                    read_requests(&damaged);
                }
            }
        }
    }
}
