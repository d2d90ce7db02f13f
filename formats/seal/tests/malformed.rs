//! Every reader of this crate over truncated, changed and spliced inputs: none panics, none accepts a
//! changed seal.

use symseal_seal::tiles::{TilePath, parse_entries, parse_hashes};
use symseal_seal::{
    Envelope, Expectation, SignedCheckpoint, SigstoreBundle, Statement, SubjectDigests, Trust, UtcSeconds, examine_seal,
};

const SEAL: &[u8] = include_bytes!("golden/seal.sigstore.json");
const STATEMENT: &[u8] = include_bytes!("golden/statement.json");
const ROOT: &[u8] = include_bytes!("golden/root.json");
const POLICY: &[u8] = include_bytes!("golden/policy.dsse.json");
const TRUSTED_ROOT: &[u8] = include_bytes!("golden/trusted_root.json");
const CHECKPOINT: &[u8] = include_bytes!("golden/checkpoint");
const TILE: &[u8] = include_bytes!("golden/tile/0/000.p/5");
const ENTRIES: &[u8] = include_bytes!("golden/tile/entries/000.p/5");

const AT: UtcSeconds = UtcSeconds(1_795_176_000);
const SUBJECTS: SubjectDigests =
    SubjectDigests { bundle: Some([0x11; 32]), symbol_index: Some([0x22; 32]), modules_root: None, modules: None };

fn trust() -> Trust {
    Trust::load_parts(ROOT, POLICY, TRUSTED_ROOT).unwrap()
}

/// A small generator, the same on every run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Calls the reader with every truncation and with `rounds` changed copies of the input.
fn each_damaged(input: &[u8], rounds: usize, mut read: impl FnMut(&[u8])) {
    for length in 0..input.len() {
        read(&input[..length]);
    }
    let mut random = Random(input.len() as u64);
    for _ in 0..rounds {
        let mut bytes = input.to_vec();
        for _ in 0..=random.below(3) {
            let place = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[place] ^= 1 << random.below(8),
                1 => bytes[place] = random.next() as u8,
                2 => {
                    let end = (place + random.below(40)).min(bytes.len());
                    let piece = bytes[place..end].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                _ => {
                    let end = (place + random.below(40)).min(bytes.len());
                    bytes.drain(place..end);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        if bytes != input {
            read(&bytes);
        }
    }
}

#[test]
fn the_golden_seal_holds() {
    let found = examine_seal(SEAL, &SUBJECTS, &trust(), &Expectation::default(), AT);
    assert!(found.holds(), "{:#?}", found.checks);
    assert_eq!(SigstoreBundle::parse(SEAL).unwrap().to_json(), SEAL);
    assert_eq!(Statement::parse(STATEMENT).unwrap().to_json(), STATEMENT);
}

#[test]
fn damaged_seals_are_refused_without_a_panic() {
    let trust = trust();
    let original = SigstoreBundle::parse(SEAL).unwrap();
    each_damaged(SEAL, 4_000, |bytes| {
        let found = examine_seal(bytes, &SUBJECTS, &trust, &Expectation::default(), AT);
        // Other bytes may spell the same seal (a number without quotes, an escaped letter), no other one.
        assert!(!found.holds() || SigstoreBundle::parse(bytes).unwrap() == original);
        assert!(!found.holds() || found.facts.signed_bundle_sha256 == Some("11".repeat(32)));
    });
}

#[test]
fn damaged_trust_directories_are_refused_without_a_panic() {
    each_damaged(ROOT, 2_000, |bytes| {
        let _ = Trust::load_parts(bytes, POLICY, TRUSTED_ROOT);
    });
    each_damaged(POLICY, 2_000, |bytes| {
        let _ = Trust::load_parts(ROOT, bytes, TRUSTED_ROOT);
    });
    each_damaged(TRUSTED_ROOT, 2_000, |bytes| {
        let _ = Trust::load_parts(ROOT, POLICY, bytes);
    });
    let payload = Envelope::parse(POLICY).unwrap().payload;
    each_damaged(&payload, 500, |bytes| {
        let mut envelope = Envelope::parse(POLICY).unwrap();
        envelope.payload = bytes.to_vec();
        assert!(Trust::load_parts(ROOT, &envelope.to_json(), TRUSTED_ROOT).is_err());
    });
}

#[test]
fn damaged_checkpoints_statements_and_tiles_are_refused_without_a_panic() {
    let log = &trust().policy.logs[0].identity;
    each_damaged(CHECKPOINT, 4_000, |bytes| {
        let parsed = std::str::from_utf8(bytes).ok().and_then(|text| SignedCheckpoint::parse(text).ok());
        if let Some(parsed) = parsed.filter(|parsed| parsed.verify(log).is_ok()) {
            // Only an unknown signer's line can have come or gone.
            assert_eq!(
                parsed.note.text,
                SignedCheckpoint::parse(std::str::from_utf8(CHECKPOINT).unwrap()).unwrap().note.text
            );
        }
    });
    each_damaged(STATEMENT, 2_000, |bytes| {
        let _ = Statement::parse(bytes);
    });
    each_damaged(TILE, 1_000, |bytes| {
        for width in [1, 5, 256] {
            let _ = parse_hashes(bytes, width);
        }
    });
    each_damaged(ENTRIES, 1_000, |bytes| {
        for width in [1, 5, 256] {
            let _ = parse_entries(bytes, width);
        }
    });
    each_damaged(b"tile/entries/x001/x234/067.p/12", 2_000, |bytes| {
        if let Some(path) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<TilePath>().ok()) {
            assert_eq!(path.to_string().as_bytes(), bytes, "a tile has one name");
        }
    });
}

#[test]
fn deeply_nested_json_is_refused() {
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert!(SigstoreBundle::parse(&deep).is_err());
    assert!(Trust::load_parts(&deep, &deep, &deep).is_err());
    let nested = format!(r#"{{"later":{}}}"#, String::from_utf8(deep).unwrap());
    assert!(Statement::parse(nested.as_bytes()).is_err());
}
