//! What the commands that talk to a registry share: credentials, a bar for the bytes that move, and absence as an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::ProgressBar;
use symseal_bundle::Digest;
use symseal_registry::{Options, Progress, Reference, RegistryError, credentials};

use crate::exit::NotFound;
use crate::output::visible;

/// How many referrers that were left out are named.
const PASSED_OVER_NAMED: usize = 5;

/// The options for a reference's registry, with the credentials that the environment or a login left for it.
pub(crate) fn options(reference: &Reference) -> anyhow::Result<Options> {
    let found = credentials::find(reference)?;
    Ok(Options { auth: found.auth, ..Options::default() })
}

/// The same options, and a bar that shows what moves: bytes, rate and time left.
pub(crate) fn shown(options: &Options, message: impl Into<String>) -> (Options, ProgressBar) {
    let bar = crate::progress::bytes_bar(message);
    let told = bar.clone();
    let passed_over = AtomicUsize::new(0);
    let progress = move |progress: Progress| match progress {
        Progress::Found { bytes, .. } => told.inc_length(bytes),
        Progress::Moved { bytes } => told.inc(bytes),
        // What need not move is taken off, so that rate and time left speak of what moves.
        Progress::Done { bytes, existed: true, .. } => {
            told.set_length(told.length().unwrap_or_default().saturating_sub(bytes));
        }
        Progress::PassedOver { referrer, reason } => {
            let before = passed_over.fetch_add(1, Ordering::Relaxed);
            told.suspend(|| tell_passed_over(before, &referrer, &reason));
        }
        Progress::Damaged { digest } => told.suspend(|| {
            eprintln!("blob {digest} was there with other bytes than its digest says, and is fetched again");
        }),
        Progress::Retry { reason } => told.set_message(visible(&format!("trying again: {reason}"))),
        _ => {}
    };
    (Options { progress: Some(Arc::new(progress)), ..options.clone() }, bar)
}

/// Says that a referrer is left out, after `before` others: whoever adds referrers must not fill the terminal with them.
pub(crate) fn tell_passed_over(before: usize, referrer: &Digest, reason: &str) {
    match before {
        0..PASSED_OVER_NAMED => eprintln!("referrer {referrer} was left out: {}", visible(reason)),
        PASSED_OVER_NAMED => eprintln!("and further referrers like these"),
        _ => {}
    }
}

/// An error of the registry client; what is not there is a "no", not a wrong call.
pub(crate) fn told(error: RegistryError) -> anyhow::Error {
    match error {
        RegistryError::NotFound { .. } => NotFound(error.to_string()).into(),
        error => error.into(),
    }
}
