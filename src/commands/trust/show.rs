//! `symseal trust show`: whom a trust directory trusts, for what, until when.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args as ClapArgs;
use serde_json::{Value, json};
use symseal_seal::encoding::to_hex;
use symseal_seal::trust::{PolicyKey, PolicyLog, Revocation};
use symseal_seal::{Trust, UtcSeconds, fingerprint};
use symseal_sealer::load_trust;

use crate::commands::bundle::verify::now;
use crate::exit::Answer;
use crate::output::{out, outln, visible};
use crate::places;
use crate::table::Table;

/// Show whom a trust directory trusts, for what, until when, and what ends within 30 days.
#[derive(ClapArgs)]
#[command(after_help = "Example:
  symseal trust show --trust ./trust --json

A fingerprint is ten groups of five digits, to be compared over a telephone. The root's stands for everything: whoever has
compared it can believe the policy, which the root keys signed.")]
pub struct Args {
    /// The trust directory.
    #[arg(long)]
    trust: Option<PathBuf>,
    /// Warn of what ends within 30 days of this time (UTC) instead of now.
    #[arg(long, value_name = "TIME")]
    at: Option<UtcSeconds>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let dir = places::trust_dir(args.trust.as_ref())?;
    let trust = load_trust(&dir)?;
    let at = args.at.unwrap_or_else(now);
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&as_json(&trust, at))?);
        return Ok(Answer::Yes);
    }
    outln!("trust directory {}", dir.display());
    let until =
        |end: Option<UtcSeconds>| end.map_or_else(|| "never expires".to_owned(), |end| format!("expires {end}"));
    let (root, policy) = (&trust.root, &trust.policy);
    outln!("root version {}, {} of {} keys, {}", root.version, root.threshold, root.keys.len(), until(root.expires));
    outln!("root fingerprint {}", fingerprint(&root.sha256()));
    outln!(
        "policy version {}, {} artifact keys must sign, {}",
        policy.version,
        policy.threshold,
        until(policy.expires)
    );
    let mut keys = Table::new(&["artifact key", "fingerprint", "may sign", "predicate types", "counts", "revoked"]);
    for key in &policy.keys {
        keys.row([
            key.id.to_string(),
            fingerprint(&key.id.0),
            key.names.join(", "),
            key.predicate_types.join(", "),
            key.validity.to_string(),
            visible(&revocation(&trust, key).unwrap_or_else(|| "no".to_owned())),
        ]);
    }
    let mut logs = Table::new(&["log", "id", "operator", "counts", "closed at", "witnesses asked for"]);
    for log in &policy.logs {
        logs.row([
            log.identity.origin.to_string(),
            log.id.to_string(),
            visible(&log.operator),
            log.validity.to_string(),
            log.entries_before.map_or_else(|| "open".to_owned(), |index| index.to_string()),
            format!("{} of {}", log.witness_quorum, log.witnesses.len()),
        ]);
    }
    let mut roots = Table::new(&["root key", "fingerprint"]);
    for key in &root.keys {
        roots.row([key.key_id().to_string(), fingerprint(&key.key_id().0)]);
    }
    out!("\n{roots}\n{keys}\n{logs}");
    if let Some(excepted) = still_counts(&policy.revocations) {
        out!("\n{excepted}");
    }
    if policy.require_consistency {
        outln!("a larger checkpoint than one seen before counts only with a consistency proof");
    }
    for warning in trust.warnings(at) {
        outln!("warning: {warning}");
    }
    Ok(Answer::Yes)
}

fn revocation(trust: &Trust, key: &PolicyKey) -> Option<String> {
    let revocation = trust.policy.revocation(key.id)?;
    Some(format!("{} ({} exceptions)", revocation.reason, exceptions(revocation).count()))
}

/// What still counts of revoked keys, a row each; `None` where nothing does.
pub(super) fn still_counts<'a>(revocations: impl IntoIterator<Item = &'a Revocation>) -> Option<Table> {
    let mut table = None;
    for revocation in revocations {
        for what in exceptions(revocation) {
            let table = table.get_or_insert_with(|| Table::new(&["revoked key", "still counts"]));
            table.row([revocation.key_id.to_string(), visible(&what)]);
        }
    }
    table
}

/// What still counts of a revoked key.
fn exceptions(revocation: &Revocation) -> impl Iterator<Item = String> + '_ {
    let digests = revocation.except_digests.iter().map(|digest| format!("sha256:{}", to_hex(digest)));
    digests.chain(revocation.except_before.iter().map(|(origin, index)| format!("entries of {origin} before {index}")))
}

fn exceptions_json(revocation: &Revocation) -> Value {
    let before = |(origin, index): &(String, u64)| json!({ "origin": origin, "index": index });
    json!({
        "digests": revocation.except_digests.iter().map(|digest| format!("sha256:{}", to_hex(digest))).collect::<Vec<_>>(),
        "before": revocation.except_before.iter().map(before).collect::<Vec<_>>(),
    })
}

fn as_json(trust: &Trust, at: UtcSeconds) -> Value {
    let (root, policy) = (&trust.root, &trust.policy);
    json!({
        "root": {
            "version": root.version,
            "threshold": root.threshold,
            "expires": root.expires,
            "fingerprint": fingerprint(&root.sha256()),
        },
        "policy_version": policy.version,
        "threshold": policy.threshold,
        "expires": policy.expires,
        "require_consistency": policy.require_consistency,
        "root_keys": root.keys.iter().map(|key| key.key_id().to_string()).collect::<Vec<_>>(),
        "keys": policy.keys.iter().map(|key| key_json(trust, key)).collect::<Vec<_>>(),
        "logs": policy.logs.iter().map(log_json).collect::<Vec<_>>(),
        "warnings": trust.warnings(at),
    })
}

fn key_json(trust: &Trust, key: &PolicyKey) -> Value {
    json!({
        "key_id": key.id.to_string(),
        "fingerprint": fingerprint(&key.id.0),
        "names": key.names,
        "predicate_types": key.predicate_types,
        "not_before": key.validity.not_before,
        "not_after": key.validity.not_after,
        "revoked": trust.policy.revocation(key.id).map(|revocation| &revocation.reason),
        "exceptions": trust.policy.revocation(key.id).map(exceptions_json),
    })
}

fn log_json(log: &PolicyLog) -> Value {
    json!({
        "origin": log.identity.origin.to_string(),
        "log_id": log.id.to_string(),
        "operator": log.operator,
        "not_before": log.validity.not_before,
        "not_after": log.validity.not_after,
        "entries_before": log.entries_before,
        "witness_quorum": log.witness_quorum,
        "witnesses": log.witnesses.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
