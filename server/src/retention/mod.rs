//! Which bundles go after a time, by repository and channel.
//!
//! A rule keeps the newest releases of a name and a channel in a repository, and the younger ones; whatever no rule is about stays, and what is pinned,
//! or named by something that stays. A deletion by retention is the API's own: everything forgets the bundle at once, and its
//! bytes go with the collector.

mod channel;
mod order;
mod round;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::blobs::{BlobDigest, BlobDirectory};
use crate::config::RetentionConfig;
use crate::ids::BundleEntry;
use crate::notes::Note;
use crate::repositories::{Manifest, Repositories, Repository, RepositoryName};
use crate::seals::Seals;
use channel::Channel;
use order::Places;

pub(crate) use round::{AUDIT_ID, retain_again};
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
    channels: Vec<Channel>,
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
        let channels = channel::channels_of(ground, repository, &digest, &entry)?;
        items.push(Item { digest, entry, channels, arrived });
    }
    items.sort_by(|a, b| b.arrived.cmp(&a.arrived).then_with(|| a.digest.cmp(&b.digest)));
    let places = Places::of(rules, &items);
    let mut verdicts: Vec<(Item, Result<String, String>)> = Vec::new();
    for item in items {
        let judged = by_rules(rules, &item, &places, now);
        let verdict = match ground.pins.get(&item.digest) {
            Some(pin) => Err(format!("pinned: {}", pin.reason)),
            None if repository.is_named(&item.digest) => Err("another manifest of the repository names it".to_owned()),
            None => judged,
        };
        verdicts.push((item, verdict));
    }
    let going: HashSet<&BlobDigest> =
        verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).map(|(item, _)| &item.digest).collect();
    let subjects = subjects_that_stay(repository, &going);
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

/// What bundles that stay refer to as their subject, and what that refers to, with the referrer of each.
fn subjects_that_stay(repository: &Repository, going: &HashSet<&BlobDigest>) -> HashMap<BlobDigest, BlobDigest> {
    let manifests: BTreeMap<BlobDigest, _> = repository.manifests().into_iter().collect();
    let stays = |(digest, manifest): &(&BlobDigest, &Arc<Manifest>)| manifest.is_bundle() && !going.contains(digest);
    let mut open: Vec<&BlobDigest> = manifests.iter().filter(stays).map(|(digest, _)| digest).collect();
    let mut subjects = HashMap::new();
    while let Some(referrer) = open.pop() {
        let Some(subject) = manifests.get(referrer).and_then(|manifest| manifest.subject.as_ref()) else { continue };
        if !subjects.contains_key(subject) {
            subjects.insert(subject.clone(), referrer.clone());
            open.push(subject);
        }
    }
    subjects
}

/// Why a bundle goes, or (`Err`) why it stays.
fn by_rules(rules: &[&RetentionConfig], item: &Item, places: &Places, now: SystemTime) -> Result<String, String> {
    // A clock that went back makes nothing old.
    let age = now.duration_since(item.arrived).unwrap_or_default();
    let (mut stays, mut goes) = (None, Vec::new());
    for channel in &item.channels {
        let name = channel.name.as_deref();
        let Some((number, rule)) = rule_about(rules, channel) else {
            stays = Some(format!("no rule is about {}", said_of_channel(name)));
            continue;
        };
        match kept_by(rule, places.before(number, item, channel), age) {
            Some(why) => stays = Some(format!("{why} of {}", said_of_channel(name))),
            None => goes.push(why_it_goes(rule, name, age)),
        }
    }
    stays.map_or_else(|| Ok(goes.join("; ")), Err)
}

/// The first rule about a channel, with its number.
fn rule_about<'r>(rules: &[&'r RetentionConfig], channel: &Channel) -> Option<(usize, &'r RetentionConfig)> {
    let wanted = channel.name.as_deref().unwrap_or_default();
    let is_about = |rule: &RetentionConfig| rule.channel.as_ref().is_none_or(|about| about == wanted);
    rules.iter().copied().enumerate().find(|(_, rule)| is_about(rule))
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
        channels: item.channels.into_iter().map(|channel| channel.name.unwrap_or_default()).collect(),
        age: now.duration_since(item.arrived).unwrap_or_default(),
        goes,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Manifests that refer to each other in a row; their digests.
    fn chain(repository: &Repository, blobs: &BlobDirectory, length: usize) -> Vec<BlobDigest> {
        let mut digests: Vec<BlobDigest> = Vec::new();
        for number in 0..length {
            let subject = digests.last().map(|digest| serde_json::json!({ "digest": digest.to_string(), "size": 1 }));
            // Every second one is a bundle.
            let kind = if number % 2 == 0 { symseal_bundle::oci::BUNDLE } else { "a/note" };
            let text = serde_json::json!({
                "schemaVersion": 2, "mediaType": symseal_bundle::oci::IMAGE_INDEX, "artifactType": kind, "manifests": [], "subject": subject,
            })
            .to_string();
            let digest = BlobDigest::of(text.as_bytes());
            blobs.write(text.as_bytes(), &digest).unwrap();
            let manifest = Manifest::parse(text.as_bytes(), None).unwrap();
            let put = crate::repositories::PutManifest { digest: digest.clone(), manifest, tags: Vec::new() };
            repository.publish(put).unwrap();
            digests.push(digest);
        }
        digests
    }

    #[test]
    fn what_stays_keeps_what_it_refers_to_through_any_number_of_others() {
        let data = tempfile::tempdir().unwrap();
        let blobs = BlobDirectory::open(data.path()).unwrap();
        let repository = Repositories::load(data.path(), &blobs, None).unwrap().get_or_create(&"r".parse().unwrap());
        let chain = chain(&repository, &blobs, 5);
        // The last one stays, and with it the others, bundles or not.
        let kept = subjects_that_stay(&repository, &[&chain[0], &chain[2]].into());
        assert_eq!(kept.len(), 4);
        assert!(chain.windows(2).all(|pair| kept[&pair[0]] == pair[1]));
        let kept = subjects_that_stay(&repository, &[&chain[2], &chain[4]].into());
        assert!(kept.is_empty());
    }

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
