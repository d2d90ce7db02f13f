//! Which bundles go after a time, by repository and channel.
//!
//! A rule keeps the newest releases of a name and a channel in a repository, and the younger ones; whatever no rule is about stays, and what is pinned,
//! or named by something that stays. A deletion by retention is the API's own: everything forgets the bundle at once, and its
//! bytes go with the collector.

mod channel;
mod round;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::{Duration, SystemTime};

use crate::blobs::{BlobDigest, BlobDirectory};
use crate::config::RetentionConfig;
use crate::ids::BundleEntry;
use crate::notes::Note;
use crate::repositories::{Repositories, Repository, RepositoryName};
use crate::seals::Seals;

pub(crate) use round::retain_again;
pub use round::{Retained, Retention, plan_retention, retain_stopped};

/// What becomes of a bundle in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The repository.
    pub repository: String,
    /// The bundle's digest.
    pub digest: String,
    /// The release's name.
    pub name: String,
    /// The release's version.
    pub version: String,
    /// The channels that its seals name; an empty text for none.
    pub channels: Vec<String>,
    /// How long ago it came to the repository.
    pub age: Duration,
    /// Whether it goes.
    pub goes: bool,
    /// Why it goes, or stays.
    pub reason: String,
}

/// What the rules are applied to.
pub(crate) struct Ground<'g> {
    pub(crate) repositories: &'g Repositories,
    pub(crate) blobs: &'g BlobDirectory,
    pub(crate) seals: &'g Seals,
    pub(crate) pins: &'g BTreeMap<BlobDigest, Note>,
    /// What a bundle is; `None` for one that cannot be read, which stays.
    pub(crate) entry: &'g dyn Fn(&BlobDigest) -> Option<BundleEntry>,
}

struct Item {
    digest: BlobDigest,
    entry: BundleEntry,
    channels: Vec<Option<String>>,
    arrived: SystemTime,
}

/// What becomes of every bundle of the repositories that a rule is about. Blocks.
///
/// # Errors
/// A time or a manifest cannot be read: then nothing is decided.
pub(crate) fn plan(rules: &[RetentionConfig], ground: &Ground<'_>, now: SystemTime) -> io::Result<Vec<Decision>> {
    let mut decisions = Vec::new();
    for (name, repository) in ground.repositories.list() {
        if rules.iter().any(|rule| rule.prefix.holds(&name)) {
            let rules: Vec<&RetentionConfig> = rules.iter().filter(|rule| rule.prefix.holds(&name)).collect();
            decisions.extend(plan_repository(&rules, ground, (&name, &repository), now)?);
        }
    }
    Ok(decisions)
}

fn plan_repository(
    rules: &[&RetentionConfig],
    ground: &Ground<'_>,
    (name, repository): (&RepositoryName, &Repository),
    now: SystemTime,
) -> io::Result<Vec<Decision>> {
    let mut items = Vec::new();
    for (digest, manifest) in repository.manifests() {
        if !manifest.is_bundle() {
            continue;
        }
        let Some(entry) = (ground.entry)(&digest) else {
            tracing::warn!(repository = %name, %digest, "retention leaves a bundle alone that cannot be read");
            continue;
        };
        let arrived = repository.arrived(&digest)?;
        let channels = channel::channels_of(ground, &digest, &entry)?;
        items.push(Item { digest, entry, channels, arrived });
    }
    items.sort_by(|a, b| b.arrived.cmp(&a.arrived).then_with(|| a.digest.cmp(&b.digest)));
    let mut places = HashMap::new();
    let mut verdicts: Vec<(Item, Result<String, String>)> = Vec::new();
    for item in items {
        let judged = by_rules(rules, &item, &mut places, now);
        let verdict = match ground.pins.get(&item.digest) {
            Some(pin) => Err(format!("pinned: {}", pin.reason)),
            None if repository.is_named(&item.digest) => Err("another manifest of the repository names it".to_owned()),
            None => judged,
        };
        verdicts.push((item, verdict));
    }
    let going: HashSet<BlobDigest> =
        verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).map(|(item, _)| item.digest.clone()).collect();
    // A bundle that stays and refers to one as its subject keeps it.
    let mut subjects = HashMap::new();
    for (digest, manifest) in repository.manifests() {
        if manifest.is_bundle() && !going.contains(&digest) {
            subjects.extend(manifest.subject.clone().map(|subject| (subject, digest)));
        }
    }
    Ok(verdicts
        .into_iter()
        .map(|(item, verdict)| {
            let verdict = match subjects.get(&item.digest) {
                Some(referrer) if verdict.is_ok() => Err(format!("{referrer}, which stays, refers to it")),
                _ => verdict,
            };
            decision(name, item, verdict, now)
        })
        .collect())
}

/// Where releases are counted: a rule, a name and a channel.
type Place = (usize, String, Option<String>);

/// Why a bundle goes, or (`Err`) why it stays.
fn by_rules(
    rules: &[&RetentionConfig],
    item: &Item,
    places: &mut HashMap<Place, u32>,
    now: SystemTime,
) -> Result<String, String> {
    // A clock that went back makes nothing old.
    let age = now.duration_since(item.arrived).unwrap_or_default();
    let (mut stays, mut goes) = (None, Vec::new());
    for channel in &item.channels {
        let is_about = |rule: &&RetentionConfig| {
            rule.channel.as_ref().is_none_or(|wanted| channel.as_deref().unwrap_or_default() == wanted)
        };
        let Some(number) = rules.iter().position(is_about) else {
            stays = Some(format!("no rule is about {}", said_of_channel(channel.as_deref())));
            continue;
        };
        let Some(rule) = rules.get(number) else { continue };
        // Counted in each channel, also where another one keeps it.
        let place = places.entry((number, item.entry.name.clone(), channel.clone())).or_default();
        let before = *place;
        *place = place.saturating_add(1);
        match kept_by(rule, before, age) {
            Some(why) => stays = Some(format!("{why} of {}", said_of_channel(channel.as_deref()))),
            None => goes.push(why_it_goes(rule, channel.as_deref(), age)),
        }
    }
    stays.map_or_else(|| Ok(goes.join("; ")), Err)
}

/// Why a rule keeps a bundle that so many newer ones of its name and channel stand before.
fn kept_by(rule: &RetentionConfig, before: u32, age: Duration) -> Option<String> {
    if let Some(last) = rule.keep_last.filter(|last| before < *last) {
        return Some(format!("among the last {last} releases"));
    }
    if let Some(younger) = rule.keep_younger.filter(|younger| age < *younger) {
        return Some(format!("younger than {}, a release", said(younger)));
    }
    rule.keep_at_least
        .filter(|least| before < *least)
        .map(|least| format!("among the {least} releases that always stay"))
}

fn why_it_goes(rule: &RetentionConfig, channel: Option<&str>, age: Duration) -> String {
    let last = rule.keep_last.map(|last| format!("not among the last {last} releases of {}", said_of_channel(channel)));
    let old = rule.keep_younger.map(|younger| format!("{} old, kept for {}", said(age), said(younger)));
    [last, old].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

fn said_of_channel(channel: Option<&str>) -> String {
    channel.map_or_else(|| "no channel".to_owned(), |channel| format!("channel {channel}"))
}

/// A time in the largest unit that leaves little out.
fn said(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn decision(name: &RepositoryName, item: Item, verdict: Result<String, String>, now: SystemTime) -> Decision {
    let goes = verdict.is_ok();
    let (Ok(reason) | Err(reason)) = verdict;
    Decision {
        repository: name.to_string(),
        digest: item.digest.to_string(),
        name: item.entry.name,
        version: item.entry.version,
        channels: item.channels.into_iter().map(Option::unwrap_or_default).collect(),
        age: now.duration_since(item.arrived).unwrap_or_default(),
        goes,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(last: Option<u32>, days: Option<u64>, least: Option<u32>) -> RetentionConfig {
        RetentionConfig {
            prefix: "*".parse().unwrap(),
            channel: None,
            keep_last: last,
            keep_younger: days.map(|days| Duration::from_secs(days * 86_400)),
            keep_at_least: least,
        }
    }

    #[test]
    fn a_rule_keeps_the_last_the_young_and_always_some() {
        let kept = |rule: &RetentionConfig, before, days: u64| {
            kept_by(rule, before, Duration::from_secs(days * 86_400)).is_some()
        };
        let last = rule(Some(2), None, None);
        assert_eq!([kept(&last, 0, 999), kept(&last, 1, 999), kept(&last, 2, 0)], [true, true, false]);
        let young = rule(None, Some(30), Some(1));
        assert_eq!([kept(&young, 5, 29), kept(&young, 5, 30), kept(&young, 0, 999)], [true, false, true]);
        let both = rule(Some(2), Some(30), None);
        assert_eq!([kept(&both, 5, 1), kept(&both, 1, 99), kept(&both, 2, 99)], [true, true, false]);
    }

    #[test]
    fn times_are_said_in_whole_units() {
        let of = |seconds| said(Duration::from_secs(seconds));
        assert_eq!([of(90), of(7_199), of(86_400), of(30 * 86_400)], ["90s", "119m", "24h", "30d"]);
    }
}
