//! Whether a server could start as it is configured, found out without starting anything and without making anything.

use symseal_sealer::load_trust_files;

use crate::ServerError;
use crate::collector::{NO_GRACE, Schedule, UNSHARED};
use crate::config::{Config, QuotaConfig, RetentionConfig};
use crate::origins::Origins;
use crate::seals::SealRules;
use crate::store::DatabaseUrl;
use crate::tls::Tls;

/// Reads what a start reads and does not make itself: certificate and key, the CA of the object store, the trust directory, the directories that are served, the URLs of
/// other servers. The data directory, the database, the object store and the address are left alone: another server may be using them. Blocks.
///
/// # Errors
/// The [`ServerError`] with which the start would end.
pub fn check(config: &Config, origins: &Origins, seals: Option<&SealRules>) -> Result<(), ServerError> {
    if let Some(tls) = &config.tls {
        Tls::load(tls)?;
    }
    if let Some(blobs) = &config.blobs
        && let Some(ca) = &blobs.ca
    {
        let failed = |problem| ServerError::Objects { place: blobs.url.to_string(), problem };
        crate::objects::certificates(ca).map_err(failed)?;
    }
    if let Some(rules) = seals {
        rules.required()?;
        load_trust_files(&rules.trust)?;
    }
    origins.open_source_roots(&origins.withheld(&config.data))?;
    origins.check_trees()?;
    origins.check_upstreams()
}

/// What a start would warn of, where blobs that nothing names are collected by this schedule.
pub fn warnings(config: &Config, origins: &Origins, schedule: Option<Schedule>) -> Vec<String> {
    let mut warnings = idle_rules(&config.retention);
    warnings.extend(doubled_quotas(&config.quotas));
    warnings.extend(origins.warnings());
    warnings.extend(config.database.as_ref().and_then(DatabaseUrl::warning));
    warnings.extend(config.tls.as_ref().and_then(crate::doctor::why_not_valid));
    if let (Some(burst), None) = (config.limits.burst, config.limits.requests_per_second) {
        let meant = "set that too for a limit, or leave both out for none";
        warnings.push(format!("limits.burst = {burst} means nothing without limits.requests_per_second: {meant}"));
    }
    let Some(schedule) = schedule else { return warnings };
    let is_collected = config.blobs.is_none() || config.database.is_some();
    if !is_collected {
        warnings.push(format!("what nothing names is NOT collected: {UNSHARED}"));
    }
    if is_collected && schedule.grace.is_zero() {
        warnings.push(NO_GRACE.to_owned());
    }
    warnings
}

/// The rules of retention that no bundle comes to, as one before them is about everything that they are about.
pub(crate) fn idle_rules(rules: &[RetentionConfig]) -> Vec<String> {
    let about = |at: usize, rule: &RetentionConfig| {
        let channel = match rule.channel.as_deref() {
            None => String::new(),
            Some("") => ", no channel".to_owned(),
            Some(channel) => format!(", channel {channel}"),
        };
        format!("[[retention]] {} (prefix {}{channel})", at.saturating_add(1), rule.prefix)
    };
    let covers = |earlier: &RetentionConfig, later: &RetentionConfig| {
        earlier.prefix.covers(&later.prefix) && (earlier.channel.is_none() || earlier.channel == later.channel)
    };
    let mut idle = Vec::new();
    for (at, later) in rules.iter().enumerate() {
        let before = rules.iter().enumerate().take(at);
        if let Some((first, earlier)) = before.into_iter().find(|(_, earlier)| covers(earlier, later)) {
            let (later, earlier) = (about(at, later), about(first, earlier));
            idle.push(format!("{later} never applies, as {earlier} does first: put the narrower rule first"));
        }
    }
    idle
}

/// The quotas of repositories that have one already: both hold, so that the larger one means nothing.
fn doubled_quotas(quotas: &[QuotaConfig]) -> Vec<String> {
    let first = |later: &QuotaConfig| quotas.iter().position(|quota| quota.prefix == later.prefix);
    let doubled = quotas.iter().enumerate().filter_map(|(at, later)| Some((at, first(later)?, later)));
    doubled
        .filter(|(at, first, _)| first < at)
        .map(|(at, first, later)| {
            let (at, first) = (at.saturating_add(1), first.saturating_add(1));
            format!(
                "[[quotas]] {at} has the prefix {} of [[quotas]] {first}: both hold, so leave one of them out",
                later.prefix
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::config::TlsConfig;

    #[test]
    fn a_rule_of_retention_that_never_applies_is_told_with_the_one_before_it() {
        let rule = |prefix: &str, channel: Option<&str>| RetentionConfig {
            prefix: prefix.parse().unwrap(),
            channel: channel.map(str::to_owned),
            keep_last: Some(1),
            keep_younger: None,
            keep_at_least: None,
        };
        let told = |rules: &[RetentionConfig]| idle_rules(rules);
        let narrow_first =
            [rule("team/app", Some("nightly")), rule("team/app", None), rule("team", None), rule("*", None)];
        assert!(told(&narrow_first).is_empty());
        let others = [
            rule("team", Some("nightly")),
            rule("team", Some("")),
            rule("team/app", Some("beta")),
            rule("teams", None),
        ];
        assert!(told(&others).is_empty());
        let wide_first =
            [rule("team", Some("")), rule("*", None), rule("team/app", Some("nightly")), rule("team", Some(""))];
        assert_eq!(
            told(&wide_first),
            [
                "[[retention]] 3 (prefix team/app, channel nightly) never applies, as [[retention]] 2 (prefix *) does first: put the narrower rule first",
                "[[retention]] 4 (prefix team, no channel) never applies, as [[retention]] 1 (prefix team, no channel) does first: put the narrower rule first",
            ]
        );
    }

    #[test]
    fn a_second_quota_of_the_same_repositories_is_told() {
        let quota = |prefix: &str| QuotaConfig { prefix: prefix.parse().unwrap(), bytes: Some(1), bundles: None };
        assert!(doubled_quotas(&[quota("*"), quota("team"), quota("team/app")]).is_empty());
        let told = doubled_quotas(&[quota("*"), quota("team"), quota("team/")]);
        assert_eq!(told, ["[[quotas]] 3 has the prefix team of [[quotas]] 2: both hold, so leave one of them out"]);
    }

    #[test]
    fn a_burst_without_a_rate_is_told() {
        let mut config = Config::new("data", ([127, 0, 0, 1], 0).into());
        config.limits.burst = Some(7);
        let none = Origins::default();
        let told = warnings(&config, &none, None);
        assert!(told.len() == 1 && told[0].starts_with("limits.burst = 7 means nothing without"), "{told:?}");
        config.limits.requests_per_second = Some(1.0);
        assert!(warnings(&config, &none, None).is_empty());
    }

    #[test]
    fn a_directory_of_sources_that_is_the_whole_machine_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("src");
        std::os::unix::fs::symlink("/", &link).unwrap();
        let config = Config::new("data", ([127, 0, 0, 1], 0).into());
        let told = |root: &Path| {
            let origins = Origins { source_roots: vec![root.to_owned()], ..Origins::default() };
            warnings(&config, &origins, None)
        };
        for root in [Path::new("/"), Path::new("/usr/.."), Path::new("/etc"), &link] {
            let told = told(root);
            assert!(
                told.len() == 1 && told[0].contains("/etc") && told[0].contains(root.to_str().unwrap()),
                "{told:?}"
            );
        }
        // A release of sources may have a folder of any of these names.
        std::fs::create_dir_all(folder.path().join("etc")).unwrap();
        for root in [folder.path(), Path::new("/usr/include"), Path::new("/nonexistent")] {
            assert!(told(root).is_empty(), "{}", root.display());
        }
    }

    #[test]
    fn what_a_start_would_end_with_is_found_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere");
        let config = Config::new(folder.path().join("data"), ([127, 0, 0, 1], 0).into());
        let there = vec![folder.path().to_owned()];
        let sound = Origins {
            upstreams: vec!["https://debuginfod.example.org/".into()],
            symbol_upstreams: vec!["http://symbols.example.org:8080/a".into()],
            source_roots: there.clone(),
            trees: there,
            ..Origins::default()
        };
        check(&config, &sound, None).unwrap();
        let tls = TlsConfig { certificate: nowhere.clone(), key: nowhere.clone() };
        let named = |error: ServerError, part: &Path| {
            let error = error.to_string();
            assert!(error.contains(part.to_str().unwrap()), "{error}");
        };
        named(check(&Config { tls: Some(tls), ..config.clone() }, &sound, None).unwrap_err(), &nowhere);
        let rules = |trust: &PathBuf, require: &str| SealRules { trust: trust.clone(), require: vec![require.into()] };
        named(check(&config, &sound, Some(&rules(&nowhere, "all"))).unwrap_err(), &nowhere);
        named(check(&config, &sound, Some(&rules(&nowhere, "A b"))).unwrap_err(), Path::new("A b"));
        for origins in [
            Origins { trees: vec![nowhere.clone()], ..sound.clone() },
            Origins { source_roots: vec![nowhere.clone()], ..sound.clone() },
        ] {
            named(check(&config, &origins, None).unwrap_err(), &nowhere);
        }
        let ftp = vec!["ftp://x".to_owned()];
        for origins in
            [Origins { upstreams: ftp.clone(), ..sound.clone() }, Origins { symbol_upstreams: ftp, ..sound.clone() }]
        {
            named(check(&config, &origins, None).unwrap_err(), Path::new("ftp://x"));
        }
        assert!(!config.data.exists(), "something was made");
    }
}
