//! `symseal trust add-key` and `add-log`: whom to trust beside those who are trusted already.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use symseal_seal::trust::policy::{PolicyKeyDocument, PolicyLogDocument, WitnessDocument};
use symseal_seal::{LogIdentity, LogPublicKey, Origin, PREDICATE_TYPE, UtcSeconds, Witness, fingerprint};

use super::{Signing, public_key};
use crate::commands::bundle::verify::now;
use crate::exit::Answer;
use crate::output::outln;

/// Let a key sign releases, or change what it may sign.
#[derive(Args)]
#[command(after_help = "Example:
  symseal trust add-key --trust ./trust --root-key ./root.key.pem --key ./artifact2.pub.pem --name 'app*'

To replace an artifact key, add the new one, sign with it from then on, and let the old one run out with --not-after, or
revoke it with an exception for what it has signed.")]
pub struct KeyArgs {
    #[command(flatten)]
    signing: Signing,
    /// The artifact key's public half (PEM).
    #[arg(long)]
    key: PathBuf,
    /// Release names that the key may sign: exact, or ending in * for a prefix. Repeat for more.
    #[arg(long = "name", required = true)]
    names: Vec<String>,
    /// Predicate types that it may sign. Repeat for more; default: that of a bundle's seal.
    #[arg(long = "predicate-type", value_name = "URI")]
    predicate_types: Vec<String>,
    /// First moment at which its seals count (UTC); default: now.
    #[arg(long)]
    not_before: Option<UtcSeconds>,
    /// Last moment at which they count.
    #[arg(long)]
    not_after: Option<UtcSeconds>,
    /// How many distinct keys must have sealed a bundle; default: as before.
    #[arg(long)]
    threshold: Option<u64>,
}

/// Let a log count, with its witnesses; or change what is said of one.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal trust add-log --trust ./trust --root-key ./root.key.pem --log-key ./log2.pub.pem --origin log2.example.org
  symseal trust add-log … --log-key rekor.pub --origin 'rekor.example.org - 1193050959916656506'      a Rekor v1
  symseal trust add-log … --witness 'w1.example+3f2a91cd+BE…' --witness 'w2.example+…' --witness-quorum 1

To replace a log, add the new one, and close the old one with `symseal trust revoke --log ORIGIN --before SIZE`.")]
pub struct LogArgs {
    #[command(flatten)]
    signing: Signing,
    /// The log's public key (PEM): Ed25519, or ECDSA P-256.
    #[arg(long)]
    log_key: PathBuf,
    /// The log's origin: a host name, or of a Rekor v1 \"<host> - <tree id>\".
    #[arg(long)]
    origin: Origin,
    /// Who runs the log, for people to read.
    #[arg(long, default_value = "")]
    operator: String,
    /// A witness as it publishes its key: NAME+HASH+KEY. Repeat for more.
    #[arg(long = "witness", value_name = "KEY")]
    witnesses: Vec<Witness>,
    /// How many of the witnesses must have cosigned a checkpoint.
    #[arg(long, default_value_t = 0)]
    witness_quorum: u64,
    /// First moment at which the log counts (UTC); default: now.
    #[arg(long)]
    not_before: Option<UtcSeconds>,
    /// Last moment at which it counts.
    #[arg(long)]
    not_after: Option<UtcSeconds>,
    /// Let no larger checkpoint count without a consistency proof, wherever one was seen before.
    #[arg(long)]
    require_consistency: bool,
}

pub(super) fn key(args: &KeyArgs) -> Result<Answer> {
    let key = public_key(&args.key)?;
    let mut document = PolicyKeyDocument::new(&key, &args.names, Some(args.not_before.unwrap_or_else(now)));
    document.not_after = args.not_after;
    if !args.predicate_types.is_empty() {
        document.predicate_types = args.predicate_types.clone();
    } else {
        document.predicate_types = vec![PREDICATE_TYPE.to_owned()];
    }
    outln!("artifact key {} with fingerprint {}", key.key_id(), fingerprint(&key.key_id().0));
    args.signing.apply(|change| {
        if change.trust().root.keys.contains(&key) {
            bail!("key {}: this is a root key, which signs trust directories alone", args.key.display());
        }
        change.add_key(document);
        if let Some(threshold) = args.threshold {
            change.policy().threshold = threshold;
        }
        Ok(())
    })
}

pub(super) fn log(args: &LogArgs) -> Result<Answer> {
    let named = || format!("log key {}", args.log_key.display());
    let pem = std::fs::read_to_string(&args.log_key).with_context(named)?;
    let key = LogPublicKey::from_pem(&pem).with_context(named)?;
    let log = LogIdentity { origin: args.origin.clone(), key };
    let start = args.not_before.unwrap_or_else(now);
    let mut document = PolicyLogDocument::new(&log, &args.operator, Some(start));
    document.not_after = args.not_after;
    document.witness_quorum = args.witness_quorum;
    document.witnesses = args
        .witnesses
        .iter()
        .map(|witness| WitnessDocument { key: witness.to_string(), operator: String::new() })
        .collect();
    outln!("log {} with id {} and fingerprint {}", log.origin, log.id(), fingerprint(&log.id().0));
    args.signing.apply(|change| {
        change.add_log(&log, document, start)?;
        if args.require_consistency {
            change.policy().require_consistency = true;
        }
        Ok(())
    })
}
