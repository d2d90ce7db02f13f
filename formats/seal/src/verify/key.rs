//! The checks of who signed: the envelope's signature, the key's place in the policy, its revocation.

use super::SubjectDigests;
use super::run::{Run, shortened, shortened_plain};
use crate::checks::{Check, CheckGroup, id};
use crate::dsse::IN_TOTO_PAYLOAD_TYPE;
use crate::encoding::to_hex;
use crate::sigstore::SigstoreBundle;
use crate::statement::Statement;
use crate::time::UtcSeconds;
use crate::trust::{PolicyKey, Trust};

impl Run {
    pub(super) fn key(
        &mut self,
        seal: &SigstoreBundle,
        key: Option<&PolicyKey>,
        trust: &Trust,
        statement: Option<&Statement>,
        at: UtcSeconds,
    ) {
        let Some(key) = key else {
            let known: Vec<String> = trust.policy.keys.iter().map(|key| key.id.to_string()).collect();
            let expected = format!("a key of the policy: {}", known.join(", "));
            self.push(Check::failed(id::TRUST_KEY, expected, shortened(&seal.hint)).with_detail(
                "the key that the seal names is not trusted here; if it should be, the policy must say so",
            ));
            self.push(Check::skipped(id::TRUST_KEY_VALIDITY, "the key is not in the policy"));
            return;
        };
        self.facts.signer = Some(key.id);
        self.push(match statement {
            None => Check::failed(id::TRUST_KEY, "a statement that names a release", "none that can be read"),
            Some(statement) => {
                let name = &statement.predicate.release.name;
                if !key.may_sign_name(name) {
                    let expected = format!("a name among those that key {} may sign: {}", key.id, key.names.join(", "));
                    Check::failed(id::TRUST_KEY, expected, shortened(name))
                } else if !key.may_sign_type(&statement.predicate_type) {
                    let types = key.predicate_types.join(", ");
                    let expected = format!("a predicate type that key {} may sign: {types}", key.id);
                    Check::failed(id::TRUST_KEY, expected, shortened(&statement.predicate_type))
                } else {
                    Check::passed(id::TRUST_KEY, format!("{} may sign {name}", key.id))
                }
            }
        });
        self.push(if key.validity.contains(at) {
            Check::passed(id::TRUST_KEY_VALIDITY, format!("{at} lies in: {}", key.validity))
        } else {
            Check::failed(id::TRUST_KEY_VALIDITY, format!("a time in: {}", key.validity), at.to_string())
                .with_detail(format!("key {}", key.id))
        });
    }

    pub(super) fn envelope(&mut self, seal: &SigstoreBundle, key: Option<&PolicyKey>) {
        let envelope = &seal.envelope;
        self.push(Check::compare(id::DSSE_PAYLOAD_TYPE, IN_TOTO_PAYLOAD_TYPE, shortened_plain(&envelope.payload_type)));
        self.push(if envelope.keyid.is_empty() {
            Check::passed(id::DSSE_KEYID, "none").with_detail("the seal names its key in the public-key hint alone")
        } else {
            Check::compare(id::DSSE_KEYID, shortened_plain(&seal.hint), shortened_plain(&envelope.keyid))
        });
        self.push(match key {
            None => Check::skipped(id::DSSE_SIGNATURE, "the key is not in the policy"),
            Some(key) if key.key.verifies(&envelope.pae(), &envelope.signature) => {
                Check::passed(id::DSSE_SIGNATURE, format!("a signature by {}", key.id))
            }
            Some(key) => Check::failed(
                id::DSSE_SIGNATURE,
                format!("a signature that key {} verifies", key.id),
                "one that it does not: payload, payload type or signature was changed, or another key signed",
            ),
        });
    }

    /// A revoked key's seals count for the digests that the root lists, and before the places in logs that it
    /// names: what stood there when the key was lost cannot have been put there later.
    pub(super) fn revocation(
        &self,
        key: &PolicyKey,
        seal: &SigstoreBundle,
        subjects: &SubjectDigests,
        trust: &Trust,
    ) -> Check {
        let Some(revocation) = trust.policy.revocation(key.id) else {
            return Check::passed(id::TRUST_REVOCATION, "not revoked");
        };
        // Digests that were computed here; what the seal claims, the thief may have written.
        let own = [subjects.bundle, subjects.symbol_index];
        if let Some(digest) = revocation.except_digests.iter().find(|digest| own.contains(&Some(**digest))) {
            let found = format!("revoked, but sha256:{} is excepted", to_hex(digest));
            return Check::passed(id::TRUST_REVOCATION, found).with_detail(shortened_plain(&revocation.reason));
        }
        // A log that contradicts itself, or the policy, proves no place.
        let proved = [id::LOG_ID, id::LOG_ENTRY, id::LOG_ORIGIN, id::LOG_CHECKPOINT, id::LOG_INCLUSION];
        let place = match &self.facts.log_origin {
            Some(origin) if !self.fails(CheckGroup::Rekor) && proved.iter().all(|check| self.passed(check)) => {
                revocation.except_before.iter().find(|(log, _)| log == origin)
            }
            _ => None,
        };
        let index = seal.entry.tree_index();
        if let Some((origin, before)) = place.filter(|(_, before)| index < *before) {
            let found = format!("revoked, but entry {index} of {origin} stands before {before}");
            return Check::passed(id::TRUST_REVOCATION, found).with_detail(shortened_plain(&revocation.reason));
        }
        let found = match place {
            Some((origin, before)) => format!("revoked, and entry {index} of {origin} does not stand before {before}"),
            None => "revoked".to_owned(),
        };
        Check::failed(
            id::TRUST_REVOCATION,
            format!("a key that is not revoked, or an exception for it: {}", key.id),
            found,
        )
        .with_detail(shortened_plain(&revocation.reason))
    }
}
