//! A Rekor v1 in memory: what its documents say it answers, signed with an ECDSA key.

use symseal_seal::entry::{SignedEntryTimestamp, dsse_v001, timestamp_message};
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::tlog::{Nodes, inclusion_proof, leaf_hash, node_hash, root};
use symseal_seal::trust::policy::PolicyLogDocument;
use symseal_seal::{
    Checkpoint, EntryKind, Envelope, Hash, LogEntry, LogIdentity, LogPublicKey, Origin, Trust, UtcSeconds,
};
use symseal_sealer::ArtifactKey;

use super::{NOW, World, with_policy};

#[derive(Clone)]
pub struct RekorV1 {
    pub key: std::rc::Rc<ArtifactKey>,
    pub origin: Origin,
    /// Entries of the trees before this one.
    pub before: u64,
    pub leaves: Vec<Hash>,
}

struct Leaves<'a>(&'a [Hash]);

impl Nodes for Leaves<'_> {
    type Error = std::convert::Infallible;

    fn node(&mut self, height: u32, index: u64) -> Result<Hash, Self::Error> {
        if height == 0 {
            return Ok(self.0[index as usize]);
        }
        let (left, right) = (self.node(height - 1, 2 * index)?, self.node(height - 1, 2 * index + 1)?);
        Ok(node_hash(&left, &right))
    }
}

impl RekorV1 {
    pub fn new(origin: &str, before: u64) -> Self {
        let key = std::rc::Rc::new(ArtifactKey::generate().unwrap());
        Self { key, origin: origin.parse().unwrap(), before, leaves: Vec::new() }
    }

    pub fn identity(&self) -> LogIdentity {
        LogIdentity { origin: self.origin.clone(), key: LogPublicKey::Ecdsa(self.key.public().clone()) }
    }

    /// The body of an envelope that was submitted as its canonical JSON.
    pub fn body(envelope: &Envelope, key: &ArtifactKey) -> Vec<u8> {
        dsse_v001(envelope, &envelope.digest(), key.public())
    }

    pub fn leaf(&mut self, body: &[u8]) -> u64 {
        self.leaves.push(leaf_hash(body));
        self.leaves.len() as u64 - 1
    }

    pub fn checkpoint(&self) -> String {
        let size = self.leaves.len() as u64;
        let Ok(root) = root(&mut Leaves(&self.leaves), size);
        let text = Checkpoint { origin: self.origin.to_string(), size, root, extensions: Vec::new() }.to_text();
        let signature = NoteSignature {
            name: self.origin.name().to_owned(),
            hint: self.identity().id().hint(),
            signature: self.key.sign(text.as_bytes()),
        };
        SignedNote { text, signatures: vec![signature] }.to_text()
    }

    pub fn entry(&self, body: &[u8], index: u64, time: UtcSeconds) -> LogEntry {
        let size = self.leaves.len() as u64;
        let Ok(hashes) = inclusion_proof(&mut Leaves(&self.leaves), index, size);
        let Ok(proof_root) = root(&mut Leaves(&self.leaves), size);
        let (log_index, log_id) = (self.before + index, self.identity().id());
        let signature = self.key.sign(&timestamp_message(body, time, log_id, log_index));
        LogEntry {
            kind: EntryKind::Dsse(SignedEntryTimestamp { integrated_time: time, signature }),
            log_index,
            log_id,
            canonicalized_body: body.to_vec(),
            proof_index: index,
            proof_size: size,
            proof_root,
            hashes,
            checkpoint: self.checkpoint(),
        }
    }

    pub fn policy(&self) -> PolicyLogDocument {
        PolicyLogDocument::new(&self.identity(), "a Rekor v1", Some(NOW))
    }

    /// The world's policy with this log instead of its own.
    pub fn trust(&self, world: &World) -> Trust {
        with_policy(world, |policy| policy.logs = vec![self.policy()], &[self.identity()]).unwrap()
    }
}
