//! The checks of a log entry: its body, its time, its proof and its checkpoint.

use super::Expectation;
use super::fragments::Fragments;
use super::run::{NO_STATE, Run};
use crate::checkpoint::{Checkpoint, CheckpointError, LogIdentity, SignedCheckpoint};
use crate::checks::{Check, id};
use crate::cosignature::Cosigned;
use crate::dsse::Envelope;
use crate::encoding::{sha256, to_base64, to_hex};
use crate::entry::{DSSE, EntryKind, HASHEDREKORD, hashedrekord_v002, rebuild_dsse_v001, timestamp_message};
use crate::fragment::TileFragment;
use crate::keys::ArtifactPublicKey;
use crate::log_entry::LogEntry;
use crate::sigstore::SigstoreBundle;
use crate::time::{UtcSeconds, Validity};
use crate::tlog::{leaf_hash, verify_inclusion};
use crate::trust::{PolicyKey, PolicyLog, Trust};

impl Run {
    pub(super) fn log(
        &mut self,
        seal: &SigstoreBundle,
        key: Option<&PolicyKey>,
        trust: &Trust,
        expectation: &Expectation<'_>,
        fragments: &Fragments,
        at: UtcSeconds,
    ) {
        let entry = &seal.entry;
        let fragment = fragments.for_entry(entry, trust);
        let checkpoint = SignedCheckpoint::parse(match &fragment {
            Some(Ok(fragment)) => &fragment.checkpoint,
            _ => &entry.checkpoint,
        });
        let origin = checkpoint.as_ref().ok().map(|signed| signed.checkpoint.origin.as_str());
        let named = trust.policy.log(entry.log_id, origin);
        self.push(match named {
            Some(log) => Check::passed(id::LOG_ID, format!("{} ({})", log.id, log.identity.origin)),
            None => {
                let known: Vec<String> = trust.policy.logs.iter().map(|log| log.id.to_string()).collect();
                Check::failed(
                    id::LOG_ID,
                    format!("a log of the policy: {}", known.join(", ")),
                    entry.log_id.to_string(),
                )
            }
        });
        self.push(match key {
            None => Check::skipped(id::LOG_ENTRY, "the key is not in the policy"),
            Some(key) => body(entry, &seal.envelope, &key.key),
        });
        // With one pinned log the later checks make sense even where the id was changed.
        let only = trust.policy.logs.first().filter(|_| trust.policy.logs.len() == 1);
        let Some(log) = named.or(only) else {
            for check in [
                id::LOG_KEY_VALIDITY,
                id::LOG_INDEX,
                id::LOG_KIND,
                id::LOG_TIMESTAMP,
                id::LOG_ORIGIN,
                id::LOG_CHECKPOINT,
                id::LOG_INCLUSION,
                id::LOG_WITNESSES,
                id::LOG_FRESHNESS,
            ] {
                self.push(Check::skipped(check, "the log is not in the policy"));
            }
            return;
        };
        self.log_facts(seal, log);
        self.push(if log.validity.contains(at) {
            Check::passed(id::LOG_KEY_VALIDITY, format!("{at} lies in: {}", log.validity))
        } else {
            Check::failed(id::LOG_KEY_VALIDITY, format!("a time in: {}", log.validity), at.to_string())
                .with_detail(format!("log {}", log.identity.origin))
        });
        self.push(index(entry, log));
        self.push(kind(entry, &log.identity));
        let timestamp = timestamp(entry, &log.identity, &log.validity);
        if let (EntryKind::Dsse(signed), false) = (&entry.kind, timestamp.is_failed()) {
            self.facts.integrated_time = Some(signed.integrated_time);
        }
        self.push(timestamp);
        let (checks, signed) = inclusion(entry, &log.identity, checkpoint, fragment);
        checks.into_iter().for_each(|check| self.push(check));
        let (check, cosigned) = witnesses(log, signed.as_ref(), at);
        self.push(check);
        self.facts.witnesses = cosigned.len() as u64;
        self.facts.witness_names = cosigned.iter().map(|(name, _)| name.clone()).collect();
        self.facts.witnessed_at = cosigned.iter().map(|(_, time)| *time).max();
        self.push(match (expectation.seen, &signed) {
            (None, _) => Check::skipped(id::LOG_FRESHNESS, NO_STATE),
            (Some(_), None) => Check::skipped(id::LOG_FRESHNESS, "there is no verified checkpoint"),
            (Some(seen), Some(signed)) => {
                seen.freshness(trust, &log.identity, &signed.checkpoint, expectation.consistency)
            }
        });
        if let Some(signed) = signed {
            self.facts.tree_size = Some(signed.checkpoint.size);
            self.checkpoints.push((log.identity.clone(), signed.checkpoint));
        }
    }

    fn log_facts(&mut self, seal: &SigstoreBundle, log: &PolicyLog) {
        self.facts.rekor_tile_ref = Some(seal.entry.reference(&log.identity.origin));
        self.facts.log_origin = Some(log.identity.origin.to_string());
        self.facts.log_id = Some(log.id);
        self.facts.log_operator = Some(log.operator.clone());
        self.facts.log_index = Some(seal.entry.log_index);
    }
}

/// Checks what a log answered: that the entry is of this envelope and key, stands in this log, and is
/// proved under a checkpoint that the log signed. No policy is asked.
///
/// # Errors
/// The first check that failed.
pub fn verify_entry(
    entry: &LogEntry,
    envelope: &Envelope,
    key: &ArtifactPublicKey,
    log: &LogIdentity,
) -> Result<Checkpoint, Check> {
    let always = Validity { not_before: None, not_after: None };
    let named = Check::compare(id::LOG_ID, log.id().to_string(), entry.log_id.to_string());
    let (proof, checkpoint) = inclusion(entry, log, SignedCheckpoint::parse(&entry.checkpoint), None);
    let first = [named, body(entry, envelope, key), kind(entry, log), timestamp(entry, log, &always)];
    let failed = first.into_iter().chain(proof).find(Check::is_failed);
    match (failed, checkpoint) {
        (None, Some(signed)) => Ok(signed.checkpoint),
        (Some(check), _) => Err(check),
        (None, None) => Err(Check::failed(id::LOG_CHECKPOINT, "a checkpoint", "none")),
    }
}

/// The logged body is that of this envelope, signature and key.
fn body(entry: &LogEntry, envelope: &Envelope, key: &ArtifactPublicKey) -> Check {
    let logged = &entry.canonicalized_body;
    let rebuilt = match entry.kind {
        EntryKind::HashedRekord => Some(hashedrekord_v002(&sha256(&envelope.pae()), &envelope.signature, key.spki())),
        EntryKind::Dsse(_) => rebuild_dsse_v001(logged, envelope, key),
    };
    let text = |body: &[u8]| format!("a body with sha256 {}", to_hex(&sha256(body)));
    let Some(rebuilt) = rebuilt else {
        return Check::failed(id::LOG_ENTRY, "a dsse 0.0.1 body with an envelopeHash", text(logged))
            .with_detail("the logged entry is not this envelope's");
    };
    let check = Check::compare(id::LOG_ENTRY, text(&rebuilt), text(logged));
    if check.is_failed() { check.with_detail(difference(entry, &rebuilt)) } else { check }
}

/// Where two bodies differ, for a person to read.
fn difference(entry: &LogEntry, rebuilt: &[u8]) -> String {
    let parse = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let said = "the logged entry is not this envelope's";
    let (Some(logged), Some(rebuilt)) = (parse(&entry.canonicalized_body), parse(rebuilt)) else {
        return said.to_owned();
    };
    let fields: &[&str] = match entry.kind {
        EntryKind::HashedRekord => &[
            "/apiVersion",
            "/kind",
            "/spec/hashedRekordV002/data",
            "/spec/hashedRekordV002/signature/content",
            "/spec/hashedRekordV002/signature/verifier",
        ],
        EntryKind::Dsse(_) => &["/apiVersion", "/kind", "/spec/payloadHash", "/spec/signatures"],
    };
    let differing: Vec<&str> =
        fields.iter().copied().filter(|field| logged.pointer(field) != rebuilt.pointer(field)).collect();
    if differing.is_empty() {
        return format!("{said}: same values, but other bytes or further fields");
    }
    format!("{said}: {}", differing.join(", "))
}

/// The entry is of the kind that this log takes.
fn kind(entry: &LogEntry, log: &LogIdentity) -> Check {
    let name = |(kind, version): (&str, &str)| format!("{kind} {version}");
    let expected = if log.origin.is_rekor_v1() { DSSE } else { HASHEDREKORD };
    Check::compare(id::LOG_KIND, name(expected), name(entry.kind.name())).with_detail(format!("log {}", log.origin))
}

/// The log signed the time at which it says that it took the entry, and its key was valid then.
fn timestamp(entry: &LogEntry, log: &LogIdentity, validity: &Validity) -> Check {
    let signed = match &entry.kind {
        EntryKind::HashedRekord => {
            return Check::passed(id::LOG_TIMESTAMP, "none").with_detail("a log of this kind signs no times");
        }
        EntryKind::Dsse(signed) => signed,
    };
    let time = signed.integrated_time;
    let message = timestamp_message(&entry.canonicalized_body, time, log.id(), entry.log_index);
    if !log.key.verifies(&message, &signed.signature) {
        let expected = format!("a signed entry timestamp that log {} with key {} signed", log.origin, log.id());
        return Check::failed(id::LOG_TIMESTAMP, expected, "one that it did not")
            .with_detail("body, time, log id or index was changed, or another key signed");
    }
    if !validity.contains(time) {
        return Check::failed(id::LOG_TIMESTAMP, format!("a time in: {validity}"), time.to_string())
            .with_detail(format!("the key of log {} was not valid then", log.origin));
    }
    Check::passed(id::LOG_TIMESTAMP, format!("{time}, as the log says"))
}

/// The log was still open at the entry's place.
fn index(entry: &LogEntry, log: &PolicyLog) -> Check {
    let index = entry.tree_index();
    match log.entries_before {
        None => Check::passed(id::LOG_INDEX, format!("{index}; the log is open")),
        Some(end) if index < end => Check::passed(id::LOG_INDEX, format!("{index}, below {end}")),
        Some(end) => Check::failed(id::LOG_INDEX, format!("an index below {end}"), index.to_string())
            .with_detail(format!("the policy closed log {} there", log.identity.origin)),
    }
}

/// So far may a witness's clock be ahead.
const CLOCKS_DIFFER_BY_DAYS: u32 = 1;

/// The check `log.witnesses`, and the name and time of each witness that cosigned. One that says it saw the checkpoint at no time, or long after the
/// time at which is judged, is not counted: nobody has seen anything then.
fn witnesses(log: &PolicyLog, signed: Option<&SignedCheckpoint>, at: UtcSeconds) -> (Check, Vec<(String, UtcSeconds)>) {
    let asked = log.witness_quorum;
    let latest = at.plus_days(CLOCKS_DIFFER_BY_DAYS);
    let mut cosigned = Vec::new();
    let mut untimely = Vec::new();
    let Some(signed) = signed else {
        let check = if asked == 0 {
            Check::passed(id::LOG_WITNESSES, "0 asked for, 0 found")
        } else {
            Check::skipped(id::LOG_WITNESSES, "there is no verified checkpoint")
        };
        return (check, cosigned);
    };
    for witness in &log.witnesses {
        match witness.cosigned(&signed.note) {
            Cosigned::At(time) if time.0 <= 0 || time > latest => {
                untimely.push(format!("{} at {time}", witness.name()))
            }
            Cosigned::At(time) => cosigned.push((witness.name().to_owned(), time)),
            Cosigned::Absent => {}
            Cosigned::Bad => {
                let expected = format!("a cosignature that witness {} made", witness.name());
                return (Check::failed(id::LOG_WITNESSES, expected, "one that it did not"), Vec::new());
            }
        }
    }
    let names: Vec<String> = cosigned.iter().map(|(name, time)| format!("{name} at {time}")).collect();
    let by = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let count = names.len();
    let check = if count as u64 >= asked {
        Check::passed(id::LOG_WITNESSES, format!("{asked} asked for, {count} found{by}"))
    } else {
        Check::failed(id::LOG_WITNESSES, format!("{asked} cosignatures"), format!("{count}{by}"))
    };
    let check = match untimely.as_slice() {
        [] => check,
        them => check.with_detail(format!("not counted, as it is judged at {at}: {}", them.join(", "))),
    };
    (check, cosigned)
}

/// The checks `log.origin`, `log.checkpoint` and `log.inclusion`, and the checkpoint if its signature holds.
fn inclusion(
    entry: &LogEntry,
    log: &LogIdentity,
    checkpoint: Result<SignedCheckpoint, CheckpointError>,
    fragment: Option<Result<&TileFragment, &str>>,
) -> (Vec<Check>, Option<SignedCheckpoint>) {
    let origin = log.origin.as_str();
    let signed = match checkpoint {
        Ok(signed) => signed,
        Err(error) => {
            let checks = vec![
                Check::skipped(id::LOG_ORIGIN, "the checkpoint could not be read"),
                Check::refused_by(id::LOG_CHECKPOINT, format!("a checkpoint of {origin}"), &error),
                Check::skipped(id::LOG_INCLUSION, "the checkpoint could not be read"),
            ];
            return (checks, None);
        }
    };
    let mut checks = vec![match signed.verify_origin(&log.origin) {
        Ok(()) => Check::passed(id::LOG_ORIGIN, origin),
        Err(error) => Check::refused_by(id::LOG_ORIGIN, origin, &error),
    }];
    if let Err(error) = signed.verify_signature(log) {
        let expected = format!("a checkpoint that {origin} with key {} signed", log.id());
        checks.push(Check::refused_by(id::LOG_CHECKPOINT, expected, &error));
        checks.push(Check::skipped(id::LOG_INCLUSION, "there is no checkpoint to lead to"));
        return (checks, None);
    }
    let checkpoint = &signed.checkpoint;
    let (size, root) = (checkpoint.size, to_base64(&checkpoint.root));
    checks.push(Check::passed(id::LOG_CHECKPOINT, format!("{size} entries, root {root}")));
    checks.push(match fragment {
        None => audit_path(entry, checkpoint),
        Some(fragment) => tiles(entry, checkpoint, fragment),
    });
    (checks, Some(signed))
}

fn tiles(entry: &LogEntry, checkpoint: &Checkpoint, fragment: Result<&TileFragment, &str>) -> Check {
    let expected = format!("tiles that prove entry {} of {}", entry.log_index, checkpoint.size);
    let fragment = match fragment {
        Ok(fragment) => fragment,
        Err(found) => {
            return Check::refused_by(id::LOG_INCLUSION, "only tile fragments for entries of the seals", &found);
        }
    };
    if entry.kind.is_rekor_v1() {
        return Check::failed(id::LOG_INCLUSION, "no tile fragment, as a Rekor v1 has no tiles", "one");
    }
    let leaf = leaf_hash(&entry.canonicalized_body);
    match fragment.verify(&leaf, checkpoint.size, &checkpoint.root) {
        Ok(()) => {
            let found = format!("entry {} of {}, by {} tiles", entry.log_index, checkpoint.size, fragment.tiles.len());
            Check::passed(id::LOG_INCLUSION, found).with_detail("the tile fragment stands for the seal's own proof")
        }
        Err(error) => Check::refused_by(id::LOG_INCLUSION, expected, &error),
    }
}

fn audit_path(entry: &LogEntry, checkpoint: &Checkpoint) -> Check {
    let Checkpoint { size, root, .. } = checkpoint;
    // The proof states index, size and root once more. Clients may ignore these copies; here they agree.
    // In a Rekor v1 the proof counts within one tree and the entry's index over all of them.
    let index = entry.tree_index();
    let copies = (entry.proof_index, entry.proof_size, entry.proof_root);
    if copies != (index, *size, *root) {
        return Check::failed(
            id::LOG_INCLUSION,
            format!("a proof for index {index} in {size} entries with root {}", to_base64(root)),
            format!("one for index {} in {} entries with root {}", copies.0, copies.1, to_base64(&copies.2)),
        );
    }
    let leaf = leaf_hash(&entry.canonicalized_body);
    match verify_inclusion(&leaf, index, *size, &entry.hashes, root) {
        Ok(()) => Check::passed(id::LOG_INCLUSION, format!("entry {index} of {size}")),
        Err(error) => Check::refused_by(id::LOG_INCLUSION, format!("a proof of entry {index} of {size}"), &error),
    }
}
