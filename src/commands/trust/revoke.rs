//! `symseal trust revoke`: a key or a log that is trusted no more.

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_bundle::Digest;
use symseal_seal::statement::JSON_INTEGER_LIMIT;
use symseal_seal::trust::Revocation;
use symseal_sealer::trust::RevocationChange;

use super::Signing;
use crate::exit::Answer;
use crate::output::out;

/// Distrust a key, but for what it is known to have signed; or a log, from a place on or wholly.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal trust revoke --trust ./trust --root-key ./root.key.pem --key-id K7k… --reason 'lost laptop' \\
      --except-before log.example.org#1204
  symseal trust revoke … --key-id K7k… --reason 'stolen' --except sha256:…
  symseal trust revoke … --log log.example.org --before 1204        the log is closed, what stands in it counts
  symseal trust revoke … --log log.example.org                      nothing in the log counts any more

A second revocation of a key adds its exceptions to those of the first; a place takes the place of an earlier one in the same
log. With --replace only those that are given remain.

The place in the log: the size that it had when the key was last known to be safe. A thief can sign with an older date,
but cannot put an entry before that place.")]
pub struct Args {
    #[command(flatten)]
    signing: Signing,
    /// The id of the key, as `symseal trust show` prints it.
    #[arg(long, required_unless_present = "log", conflicts_with = "log", requires = "reason")]
    key_id: Option<String>,
    /// Why, for people to read.
    #[arg(long)]
    reason: Option<String>,
    /// A bundle, or the symbol index of one, that still counts. Repeat for more.
    #[arg(long = "except", value_name = "DIGEST", requires = "key_id")]
    except: Vec<Digest>,
    /// Entries of this log before this place still count. Repeat for more logs.
    #[arg(long = "except-before", value_name = "ORIGIN#INDEX", requires = "key_id")]
    except_before: Vec<String>,
    /// Let exceptions of an earlier revocation of this key go.
    #[arg(long, requires = "key_id")]
    replace: bool,
    /// The origin of the log.
    #[arg(long)]
    log: Option<String>,
    /// Entries before this place still count.
    #[arg(long, value_name = "INDEX", requires = "log")]
    before: Option<u64>,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let places = args.except_before.iter().map(|text| place(text)).collect::<Result<Vec<_>>>()?;
    let trust = args.signing.apply(|change| {
        match (&args.key_id, &args.log) {
            (Some(key_id), _) => {
                let said = RevocationChange {
                    reason: args.reason.clone().unwrap_or_default(),
                    except_digests: args.except.iter().map(ToString::to_string).collect(),
                    except_before: places,
                    replace: args.replace,
                };
                change.revoke_key(key_id, said)?;
            }
            (None, Some(log)) => match args.before {
                Some(index) => change.close_log(log, index)?,
                None => change.remove_log(log)?,
            },
            (None, None) => bail!("expected --key-id or --log"),
        }
        Ok(())
    })?;
    // With what an earlier revocation left: whoever signs the policy answers for all of it.
    let of_key = |revocation: &&Revocation| args.key_id.as_ref().is_some_and(|id| *id == revocation.key_id.to_string());
    if let Some(table) = super::show::still_counts(trust.policy.revocations.iter().filter(of_key)) {
        out!("{table}");
    }
    Ok(Answer::Yes)
}

/// `ORIGIN#INDEX`.
fn place(text: &str) -> Result<(String, u64)> {
    let expected = || format!("--except-before {text}: expected ORIGIN#INDEX, as log.example.org#1204");
    let (origin, index) = text.rsplit_once('#').with_context(expected)?;
    let index: u64 = index.parse().with_context(expected)?;
    if index >= JSON_INTEGER_LIMIT {
        bail!("{}: expected a place below {JSON_INTEGER_LIMIT}, which no log has", expected());
    }
    Ok((origin.to_owned(), index))
}
