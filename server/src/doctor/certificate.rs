//! The server's certificate: whether its key fits, and until when it holds.

use symseal_seal::UtcSeconds;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::{Finding, Standing, key_file};
use crate::clock::now;
use crate::config::TlsConfig;
use crate::tls::{Tls, read_chain};

/// A certificate that ends within so many days is warned of: the services that give them renew a month before.
const SOON_DAYS: u32 = 14;

pub(super) fn look(tls: Option<&TlsConfig>) -> Vec<Finding> {
    let Some(files) = tls else {
        return vec![Finding::skipped("tls.certificate", "no certificate is configured: connections are plain")];
    };
    let key = match Tls::load(files) {
        Ok(_) => Finding::ok("tls.certificate", format!("{} and its key fit", files.certificate.display())),
        Err(error) => Finding::problem(
            "tls.certificate",
            error.to_string(),
            "put the chain and the private key of its first certificate there",
        ),
    };
    let mut findings = vec![key, expiry(files)];
    findings.extend(key_file::look("tls.key-permissions", &files.key));
    findings
}

/// Why clients do not believe the certificate, or will not soon.
pub(crate) fn why_not_valid(files: &TlsConfig) -> Option<String> {
    let finding = expiry(files);
    let is_worth_it = matches!(finding.standing, Standing::Problem | Standing::Warning);
    is_worth_it.then(|| [Some(finding.found), finding.advice].into_iter().flatten().collect::<Vec<_>>().join(": "))
}

/// The first end of a certificate in the chain: without any of them clients do not come up to one that they believe.
fn expiry(files: &TlsConfig) -> Finding {
    const ID: &str = "tls.expiry";
    let shown = files.certificate.display();
    let chain = read_chain(&files.certificate);
    let times: Option<Vec<(UtcSeconds, UtcSeconds)>> =
        chain.ok().and_then(|chain| chain.iter().map(|it| validity(it)).collect());
    let Some((begin, end)) = times.and_then(|times| {
        let begin = times.iter().map(|time| time.0).max()?;
        Some((begin, times.iter().map(|time| time.1).min()?))
    }) else {
        return Finding::skipped(ID, format!("{shown} cannot be read as certificates"));
    };
    let (at, renew) = (now(), "renew it: a running server takes the new files over by itself");
    if end < at {
        Finding::problem(ID, format!("{shown} expired at {end}"), renew)
    } else if begin > at {
        Finding::problem(
            ID,
            format!("{shown} holds from {begin} on, and it is {at} by this machine's clock"),
            "set the clock, or take another certificate",
        )
    } else if end <= at.plus_days(SOON_DAYS) {
        Finding::warning(ID, format!("{shown} expires at {end}"), renew)
    } else {
        Finding::ok(ID, format!("{shown} holds until {end}"))
    }
}

/// From when and until when a certificate holds; `None` where it is none.
fn validity(der: &[u8]) -> Option<(UtcSeconds, UtcSeconds)> {
    let validity = Certificate::from_der(der).ok()?.tbs_certificate.validity;
    let seconds = |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).ok().map(UtcSeconds);
    Some((seconds(validity.not_before)?, seconds(validity.not_after)?))
}
