//! The trust directory, by which seals are judged.

use symseal_sealer::load_trust;

use super::Finding;
use crate::clock::now;
use crate::seals::SealRules;

pub(super) fn look(seals: Option<&SealRules>) -> Vec<Finding> {
    let Some(rules) = seals else {
        return vec![Finding::skipped(
            "trust.directory",
            "no trust directory is configured: seals are kept and not judged",
        )];
    };
    let shown = rules.trust.display();
    let trust = match load_trust(&rules.trust) {
        Ok(trust) => trust,
        Err(error) => {
            let advice = "take the three files over anew from whoever keeps the root keys (symseal trust import)";
            return vec![Finding::problem("trust.directory", error.to_string(), advice)];
        }
    };
    let read = format!("{shown}: root version {}, policy version {}", trust.root.version, trust.policy.version);
    let at = now();
    let is_over = |end: Option<symseal_seal::UtcSeconds>| end.is_some_and(|end| end < at);
    let warnings = trust.warnings(at);
    let expiry = if is_over(trust.root.expires) || is_over(trust.policy.expires) {
        Finding::problem("trust.expiry", warnings.join("; "), "no seal counts before that is done")
    } else if warnings.is_empty() {
        let end = trust.root.expires.into_iter().chain(trust.policy.expires).min();
        Finding::ok(
            "trust.expiry",
            end.map_or_else(
                || "root and policy do not expire".to_owned(),
                |end| format!("root and policy hold until {end}"),
            ),
        )
    } else {
        Finding::warning("trust.expiry", warnings.join("; "), "prepare what comes after it (docs/trust.md)")
    };
    vec![Finding::ok("trust.directory", read), expiry]
}
