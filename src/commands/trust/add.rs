//! `symseal trust add-key` and `add-log`: whom to trust beside those who are trusted already.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use symseal_seal::{LogIdentity, LogPublicKey, Origin, UtcSeconds, Witness, fingerprint};
use symseal_sealer::trust::{End, KeyChange, LogChange};

use super::{Signing, public_key};
use crate::commands::bundle::verify::now;
use crate::exit::Answer;
use crate::output::outln;

/// Let a key sign releases, or change what it may sign.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal trust add-key --trust ./trust --root-key ./root.key.pem --key ./artifact2.pub.pem --name 'app*'
  symseal trust add-key … --key ./artifact1.pub.pem --not-after 2027-06-30T00:00:00Z

Of a key that the policy knows only what is given changes; the output has it before and after.
To replace an artifact key, add the new one, sign with it from then on, and let the old one run out with --not-after, or
revoke it with an exception for what it has signed.")]
pub struct KeyArgs {
    #[command(flatten)]
    signing: Signing,
    /// The artifact key's public half (PEM).
    #[arg(long)]
    key: PathBuf,
    /// Release names that the key may sign: exact, or ending in * for a prefix. Repeat for more. A new key needs one; of a
    /// known one they stand instead of those before.
    #[arg(long = "name", value_name = "PATTERN")]
    names: Vec<String>,
    /// Predicate types that it may sign, likewise. Repeat for more; default: that of a bundle's seal, or as before.
    #[arg(long = "predicate-type", value_name = "URI")]
    predicate_types: Vec<String>,
    /// First moment at which its seals count (UTC); default: now, or as before.
    #[arg(long, value_name = "TIME")]
    not_before: Option<UtcSeconds>,
    /// Last moment at which they count, or never for no end; default: never, or as before.
    #[arg(long, value_name = "TIME|never")]
    not_after: Option<End>,
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

Of a log that the policy knows only what is given changes; the output has it before and after. A log that was closed stays
closed without --reopen, and its quorum falls only with --lower-quorum.
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
    /// Who runs the log, for people to read; default: as before.
    #[arg(long)]
    operator: Option<String>,
    /// A witness as it publishes its key: NAME+HASH+KEY. Repeat for more. It counts beside those before, or for one of its name.
    #[arg(long = "witness", value_name = "KEY")]
    witnesses: Vec<Witness>,
    /// The name of a witness that counts no more. Repeat for more.
    #[arg(long = "remove-witness", value_name = "NAME")]
    remove_witnesses: Vec<String>,
    /// How many of the witnesses must have cosigned a checkpoint; default: none, or as before.
    #[arg(long, value_name = "N")]
    witness_quorum: Option<u64>,
    /// Let the quorum be lower than before.
    #[arg(long, requires = "witness_quorum")]
    lower_quorum: bool,
    /// Let a log that was closed take entries again.
    #[arg(long)]
    reopen: bool,
    /// First moment at which the log counts (UTC); default: now, or as before.
    #[arg(long, value_name = "TIME")]
    not_before: Option<UtcSeconds>,
    /// Last moment at which it counts, or never for no end; default: never, or as before.
    #[arg(long, value_name = "TIME|never")]
    not_after: Option<End>,
}

pub(super) fn key(args: &KeyArgs) -> Result<Answer> {
    let key = public_key(&args.key)?;
    outln!("artifact key {} with fingerprint {}", key.key_id(), fingerprint(&key.key_id().0));
    args.signing.apply(|change| {
        if change.trust().root.keys.contains(&key) {
            bail!("key {}: this is a root key, which signs trust directories alone", args.key.display());
        }
        let said = KeyChange {
            names: args.names.clone(),
            predicate_types: args.predicate_types.clone(),
            not_before: args.not_before,
            not_after: args.not_after,
        };
        change.add_key(&key, said, now())?;
        if let Some(threshold) = args.threshold {
            change.policy().threshold = threshold;
        }
        Ok(())
    })?;
    Ok(Answer::Yes)
}

pub(super) fn log(args: &LogArgs) -> Result<Answer> {
    let named = || format!("log key {}", args.log_key.display());
    let pem = std::fs::read_to_string(&args.log_key).with_context(named)?;
    let key = LogPublicKey::from_pem(&pem).with_context(named)?;
    let log = LogIdentity { origin: args.origin.clone(), key };
    outln!("log {} with id {} and fingerprint {}", log.origin, log.id(), fingerprint(&log.id().0));
    args.signing.apply(|change| {
        let said = LogChange {
            operator: args.operator.clone(),
            not_before: args.not_before,
            not_after: args.not_after,
            witnesses: args.witnesses.clone(),
            without_witnesses: args.remove_witnesses.clone(),
            witness_quorum: args.witness_quorum,
            may_lower_quorum: args.lower_quorum,
            reopen: args.reopen,
        };
        Ok(change.add_log(&log, said, now())?)
    })?;
    Ok(Answer::Yes)
}
