//! Any bytes as a file of page hashes: every file that is listed is found, and each of its pages has a proof.

use symseal_bundle::page_hashes::PageHashes;
use symseal_bundle::pages;

pub(super) fn run(bytes: &[u8]) {
    let Ok(read) = PageHashes::parse(bytes) else { return };
    for file in read.files() {
        assert_eq!(read.find(&file.sha256, file.page_size), Some(file));
        let leaves = file.leaves();
        assert_eq!(leaves.len() as u64, pages::page_count(file.size, file.page_size));
        let last = leaves.len().saturating_sub(1) as u64;
        // A fuzzer that watches comparisons learns the hash of any page that it is asked about: then the page is the file's.
        let other = b"another page";
        let last_page_bytes = file.size.wrapping_sub(last.wrapping_mul(file.page_size.into()));
        let is_its_own = leaves.last() == Some(&pages::leaf_hash(other)) && last_page_bytes == other.len() as u64;
        if let Some(path) = pages::proof(&leaves, last) {
            // A page that is not of this file is not proved by it.
            assert_eq!(pages::verify(&file.root(), file.size, file.page_size, last, other, &path), is_its_own);
        }
    }
}
