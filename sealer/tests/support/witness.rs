//! A witness of these tests: it keeps the tree that it saw last, checks what the specification says, and signs with its own key.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use symseal_seal::cosignature::Witness;
use symseal_seal::encoding::to_base64;
use symseal_seal::tlog::{empty_root, verify_consistency};
use symseal_seal::{Hash, LogIdentity, SignedCheckpoint, UtcSeconds};
use symseal_sealer::{LogKey, WitnessUrl};

use super::rekor::{reply, serve_bodies};

/// A running witness; it ends with the test.
pub struct TestWitness {
    pub witness: Witness,
    pub url: WitnessUrl,
    /// Size and root that it saw last.
    pub seen: Arc<Mutex<(u64, Hash)>>,
}

/// A witness of this name and its key.
pub fn keyed(name: &str) -> (Witness, LogKey) {
    let key = LogKey::generate().unwrap();
    let identity = key.identity(&"w.example".parse().unwrap()).unwrap();
    // The last 32 bytes of an Ed25519 SPKI.
    let public: [u8; 32] = identity.key.spki()[12..].try_into().unwrap();
    (Witness::new(name, &public).unwrap(), key)
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The signature line over a note's text at a time.
pub fn line(witness: &Witness, key: &LogKey, time: u64, text: &str) -> String {
    let mut bytes = witness.hint().to_vec();
    bytes.extend(time.to_be_bytes());
    bytes.extend(key.sign(&Witness::message(UtcSeconds(i64::try_from(time).unwrap()), text)));
    format!("\u{2014} {} {}\n", witness.name(), to_base64(&bytes))
}

impl TestWitness {
    /// One that knows this log, and has seen nothing of it.
    pub fn start(name: &str, log: LogIdentity) -> Self {
        let (witness, key) = keyed(name);
        let seen = Arc::new(Mutex::new((0, empty_root())));
        let (its_seen, its_witness) = (seen.clone(), witness.clone());
        let url = serve_bodies(move |method, path, body, stream| {
            assert_eq!((method, path), ("POST", "/w/add-checkpoint"));
            let mut seen = its_seen.lock().unwrap();
            answer(&log, &mut seen, &its_witness, &key, std::str::from_utf8(body).unwrap(), stream);
        });
        Self { witness, url: format!("{url}/w/").parse().unwrap(), seen }
    }
}

fn answer(
    log: &LogIdentity,
    seen: &mut (u64, Hash),
    witness: &Witness,
    key: &LogKey,
    body: &str,
    stream: &mut TcpStream,
) {
    let (head, note) = body.split_once("\n\n").unwrap();
    let mut lines = head.split('\n');
    let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
    let proof: Vec<Hash> = lines.map(|line| symseal_seal::encoding::hash_from_base64(line).unwrap()).collect();
    let signed = SignedCheckpoint::parse(note).unwrap();
    if signed.checkpoint.origin != log.origin.as_str() {
        return reply(stream, 404, "", b"unknown log");
    }
    if signed.verify(log).is_err() {
        return reply(stream, 403, "", b"invalid signature");
    }
    let size = signed.checkpoint.size;
    if old != seen.0 || (old == size && seen.1 != signed.checkpoint.root) {
        let text = format!("{}\n", seen.0);
        return reply(stream, 409, "Content-Type: text/x.tlog.size\r\n", text.as_bytes());
    }
    if verify_consistency((old, &seen.1), (size, &signed.checkpoint.root), &proof).is_err() {
        return reply(stream, 422, "", b"bad consistency proof");
    }
    *seen = (size, signed.checkpoint.root);
    reply(stream, 200, "", self::line(witness, key, now(), &signed.note.text).as_bytes());
}
