//! `--state DIR`: what was seen is remembered, and what contradicts it is refused. One code for all commands that verify.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use symseal_bundle::verify::Verdict;
use symseal_seal::{Checkpoint, ConsistencyProof, LogIdentity, Seen, Trust};
use symseal_sealer::StateDir;

/// The option of every command that verifies.
#[derive(Args, Default, Clone)]
pub struct StateArgs {
    /// Remember here the newest policy and each log's checkpoints, and refuse what is older or of another history.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// What was seen before, and where it is kept.
#[derive(Debug)]
pub struct Memory {
    state: Option<(StateDir, Seen)>,
}

impl Memory {
    /// Reads the state, if a directory was given.
    pub fn open(args: &StateArgs) -> Result<Self> {
        let load = |dir: &PathBuf| {
            let state = StateDir::new(dir);
            let seen = state.load()?;
            Ok::<_, anyhow::Error>((state, seen))
        };
        Ok(Self { state: args.state.as_ref().map(load).transpose()? })
    }

    /// What was seen before; `None` where no state directory was given.
    pub fn seen(&self) -> Option<&Seen> {
        self.state.as_ref().map(|(_, seen)| seen)
    }

    /// What is said where nothing is recorded because of this verdict.
    pub fn unchanged(&self, verdict: Verdict) -> String {
        match &self.state {
            None => NO_STATE.to_owned(),
            Some(_) => format!("not recorded: the verdict is {}", verdict.code()),
        }
    }

    /// Records what a verification has shown, if it was whole and held, and the root and the policy in any case, as the root keys have signed them whatever
    /// became of the bundle: who puts back an older policy is refused also where nothing held by the newer one. Says what was done. A medium that cannot be
    /// written to is no reason to refuse. `proofs` are those that the verification had.
    pub fn record(
        &self,
        verdict: Verdict,
        trust: &Trust,
        checkpoints: &[(LogIdentity, Checkpoint)],
        proofs: &[ConsistencyProof],
    ) -> String {
        let Some((state, _)) = &self.state else { return NO_STATE.to_owned() };
        if verdict != Verdict::Verified {
            return match self.record_policy(trust) {
                Ok(()) => format!("not recorded, but for the policy: the verdict is {}", verdict.code()),
                Err(why) => why,
            };
        }
        match state.record(|seen| seen.record(trust, checkpoints, proofs)) {
            Ok(left_out) if left_out.is_empty() => RECORDED.to_owned(),
            Ok(left_out) => format!("{RECORDED}, but for {}", left_out.join("; ")),
            Err(error) => format!("not recorded: {error}"),
        }
    }

    /// Records the root and the policy alone, for commands that judge many bundles or none to its end. An error says why it
    /// was not done; where there is no state directory nothing is.
    pub fn record_policy(&self, trust: &Trust) -> Result<(), String> {
        let Some((state, _)) = &self.state else { return Ok(()) };
        match state.record(|seen| seen.record(trust, &[], &[])) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("not recorded: {error}")),
        }
    }
}

/// What [`Memory::record`] says where it was done.
pub const RECORDED: &str = "recorded";
const NO_STATE: &str = "not recorded: no state directory was given (--state), so whether this is older than what was seen before was not checked";
