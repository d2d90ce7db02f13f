//! `symseal trust rotate`: the next root, or the same policy for longer.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args as ClapArgs;
use symseal_seal::{ArtifactPublicKey, fingerprint};
use symseal_sealer::trust::End;
use symseal_sealer::{ArtifactKey, RootChange, load_trust};

use super::{Signing, public_key};
use crate::exit::Answer;
use crate::output::outln;
use crate::places;

/// Replace root keys, change how many must sign, or sign the policy anew for a longer time.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal trust rotate --trust ./trust --root-key old.pem --root-key new.pem --add new.pub.pem --remove K7k…
  symseal trust rotate … --root-key a.pem --root-key b.pem --add b.pub.pem --add c.pub.pem --root-threshold 2
  symseal trust rotate … --root-key root.pem --expires 2028-01-01T00:00:00Z
  symseal trust rotate … --root-key root.pem --require-consistency=false

The next root must be signed by as many keys as the present root asks for, and by as many of its own as it asks for; give
each with --root-key. Whoever knows the present root follows the chain without being asked.")]
pub struct Args {
    #[command(flatten)]
    signing: Signing,
    /// The public half of a root key to add (PEM). Repeat for more.
    #[arg(long = "add", value_name = "FILE")]
    add: Vec<PathBuf>,
    /// The id of a root key to remove. Repeat for more.
    #[arg(long = "remove", value_name = "KEY-ID")]
    remove: Vec<String>,
    /// How many root keys must sign from now on; default: as before.
    #[arg(long)]
    root_threshold: Option<u64>,
    /// Last moment at which the next root counts (UTC), or never for no end; default: as before.
    #[arg(long, value_name = "TIME|never")]
    root_expires: Option<End>,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let changes_root =
        !args.add.is_empty() || !args.remove.is_empty() || args.root_threshold.is_some() || args.root_expires.is_some();
    if !changes_root && args.signing.expires.is_none() && args.signing.require_consistency.is_none() {
        bail!(
            "nothing to rotate: expected --add, --remove, --root-threshold, --root-expires, --expires or --require-consistency"
        );
    }
    args.signing.apply(|change| {
        if !changes_root {
            return Ok(());
        }
        let root = &change.trust().root;
        let mut keys: Vec<ArtifactPublicKey> = root.keys.clone();
        for id in &args.remove {
            let Some(place) = keys.iter().position(|key| key.key_id().to_string() == *id) else {
                let known: Vec<String> = keys.iter().map(|key| key.key_id().to_string()).collect();
                bail!("--remove {id}: expected one of the root keys {}", known.join(", "));
            };
            keys.remove(place);
        }
        for path in &args.add {
            let key = added(path)?;
            if keys.contains(&key) {
                bail!("--add {}: this is a root key already", path.display());
            }
            keys.push(key);
        }
        let threshold = args.root_threshold.unwrap_or(root.threshold);
        let expires = args.root_expires.map_or(root.expires, Option::from);
        change.rotate(&RootChange { keys, threshold, expires });
        Ok(())
    })?;
    if changes_root {
        let trust = load_trust(&places::trust_dir(args.signing.trust.as_ref())?)?;
        outln!("root fingerprint {}", fingerprint(&trust.root.sha256()));
    }
    Ok(Answer::Yes)
}

/// A public key in PEM; the private file is taken too, as `symseal key generate` writes no public one for roots.
fn added(path: &std::path::Path) -> Result<ArtifactPublicKey> {
    let public = public_key(path);
    match (public, ArtifactKey::load_pem(path)) {
        (Ok(key), _) => Ok(key),
        (Err(_), Ok(key)) => Ok(key.public().clone()),
        (Err(error), Err(_)) => Err(error),
    }
}
