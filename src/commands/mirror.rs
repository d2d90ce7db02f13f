//! `symseal mirror`: bundles with their seals from one place to another, again and again.

mod place;
mod report;
mod sealed;
mod whole;

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use globset::{Glob, GlobSet};
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir, LayoutError, Scratch};
use symseal_registry::{Elsewhere, PushReport};

use self::place::{Listed, Place, is_silence};
use self::report::{Mirrored, Outcome, Report};
use self::sealed::Sealed;
use self::whole::{Checks, Lack};
use crate::bundle_ref::block_on;
use crate::exit::{Answer, NotFound};
use crate::memory::StateArgs;
use crate::output::outln;
use crate::registry_client;

/// Copy bundles with their seals from a registry or a layout to another, and only what is not there yet.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal mirror registry.example/team/app mirror.site/team/app --trust ./trust
  symseal mirror registry.example/team/app ./app-layout --tag '1.*'
  symseal mirror ./app-layout mirror.site/team/app

SRC and DST are repositories (all tags, or those that --tag names), references with a tag or digest, or one of them a directory with an OCI layout (a
new one is made). Seals and other referrers come along, and what is tagged as sources of a bundle. Blobs that DST has are not
sent; where both are in one registry they are mounted. Every byte that moves is compared with its digest. With --trust a tag is set
at DST only where the bundle's seal holds, or a bundle whose seal holds names it as its sources. What is refused and what cannot be
brought is named, the others go on, and the exit status is 1. Referrers that are not whole are left out. A second run goes on where one was interrupted, and sends nothing where nothing has changed:
of each tag it reads the manifests at DST, looks whether every blob is there that they name (in a layout by its size, in a registry by HEAD), and sends what is missing. --check
reads every blob at DST, too: one with other bytes is replaced in a layout, and named where DST is a registry. Tags that are gone at SRC stay at DST.")]
pub struct Args {
    /// From where: host[:port]/repository[:tag|@digest], or a directory.
    source: String,
    /// To where.
    destination: String,
    /// Only tags like this: `*`, `?`, `[…]`, `{a,b}`. Repeat for more.
    #[arg(long, value_name = "PATTERN")]
    tag: Vec<String>,
    /// Set a tag at DST only where the seal holds by this trust directory.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
    /// Compare the bytes of everything that is at DST with their digests.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    state: StateArgs,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let tags = patterns(&args.tag)?;
    let source = Place::open(&args.source, false).with_context(|| format!("SRC {}", args.source))?;
    // A new layout is made when there is something to bring.
    let registry = match Place::is_path(&args.destination) {
        true => None,
        false => Some(Place::open(&args.destination, true).with_context(|| format!("DST {}", args.destination))?),
    };
    if matches!(source, Place::Layout(_)) && registry.is_none() {
        bail!("SRC and DST are directories: copy the directory, and verify it with symseal bundle verify");
    }
    let mut sealed = args.trust.as_deref().map(|trust| Sealed::open(trust, &args.state)).transpose()?;
    let (mut checks, mut report) = (Checks::new(args.check), Report::default());
    let ended = block_on(mirror(args, &tags, (&source, registry), (&mut sealed, &mut checks), &mut report))?;
    // What was done is told also where the rest could not be.
    if ended.is_ok() || !report.is_empty() {
        match args.json {
            true => outln!("{}", serde_json::to_string_pretty(&report)?),
            false => outln!("{report}"),
        }
    }
    ended?;
    Ok(report.is_whole().into())
}

/// The patterns of tags.
fn patterns(tags: &[String]) -> Result<GlobSet> {
    let mut set = GlobSet::builder();
    for tag in tags {
        set.add(Glob::new(tag).with_context(|| format!("--tag {tag}"))?);
    }
    Ok(set.build()?)
}

async fn mirror(
    args: &Args,
    tags: &GlobSet,
    (source, registry): (&Place, Option<Place>),
    (sealed, checks): (&mut Option<Sealed>, &mut Checks),
    report: &mut Report,
) -> Result<()> {
    let mut wanted = source.listed().await?;
    if !tags.is_empty() {
        wanted.retain(|listed| listed.tag.as_ref().is_some_and(|tag| tags.is_match(tag)));
        if wanted.is_empty() {
            return Err(NotFound(format!("SRC {}: no tag is like {}", args.source, args.tag.join(", "))).into());
        }
    }
    let destination = match registry {
        Some(registry) => registry,
        None => Place::open(&args.destination, true).with_context(|| format!("DST {}", args.destination))?,
    };
    let destination = &destination;
    if wanted.len() > 1 && destination.names_a_tag() {
        bail!("DST {}: one tag for {} at SRC: name the repository", args.destination, wanted.len());
    }
    if let Some(asked) = destination.names_a_digest() {
        let other = wanted.iter().filter_map(|listed| listed.found.as_ref().ok()).find(|found| found.digest != asked);
        if let Some(other) = other {
            let (place, brought) = (&args.destination, other.digest);
            bail!("DST {place}: it asks for another digest than {brought}, which SRC names: give it a tag, or none");
        }
    }
    // Bundles first: their seals speak for the sources that they name.
    let mut later = Vec::new();
    for Listed { tag, found } in wanted {
        let descriptor = match found {
            Ok(descriptor) => descriptor,
            Err(why) => {
                report.add(Mirrored { tag, digest: None, outcome: Outcome::Failed(why), sent: PushReport::default() });
                continue;
            }
        };
        match source.is_bundle(&descriptor).await {
            Ok(false) => later.push((tag, descriptor)),
            // What is wrong with it is found again.
            Ok(true) | Err(_) => {
                report.add(attempt(args, (source, destination), (tag, &descriptor), (sealed, checks)).await?);
            }
        }
    }
    for (tag, descriptor) in later {
        report.add(attempt(args, (source, destination), (tag, &descriptor), (sealed, checks)).await?);
    }
    Ok(())
}

/// Mirrors what one tag names. What fails for this one alone ends nothing else.
async fn attempt(
    args: &Args,
    (source, destination): (&Place, &Place),
    (tag, descriptor): (Option<String>, &Descriptor),
    (sealed, checks): (&mut Option<Sealed>, &mut Checks),
) -> Result<Mirrored> {
    let digest = descriptor.digest;
    let failed = |outcome| Mirrored { tag: tag.clone(), digest: Some(digest), outcome, sent: PushReport::default() };
    let error = match one(args, (source, destination), (tag.as_deref(), descriptor), (sealed, checks)).await {
        Ok((outcome, sent)) => {
            let tag = match outcome {
                Outcome::Mirrored | Outcome::Repaired(_) | Outcome::Unchanged => {
                    destination.tag_for(tag.as_deref()).map(str::to_owned)
                }
                Outcome::Refused(_) | Outcome::Failed(_) => tag.clone(),
            };
            return Ok(Mirrored { sent, tag, ..failed(outcome) });
        }
        Err(error) => error,
    };
    if error.downcast_ref().is_some_and(is_silence) {
        source.answers(&digest).await?;
        destination.answers(&digest).await?;
    }
    Ok(failed(Outcome::Failed(format!("{error:#}"))))
}

async fn one(
    args: &Args,
    (source, destination): (&Place, &Place),
    (tag, descriptor): (Option<&str>, &Descriptor),
    (sealed, checks): (&mut Option<Sealed>, &mut Checks),
) -> Result<(Outcome, PushReport)> {
    let digest = descriptor.digest;
    if let Some(sealed) = sealed
        && let Err(why) = sealed.check(source, &digest).await?
    {
        return Ok((Outcome::Refused(why), PushReport::default()));
    }
    let referrers = source.referrers(&digest).await?;
    let mut lack = None;
    let before = match destination.has(tag, &digest).await? {
        true => match referrers_at(destination, &digest).await {
            Ok(there) => {
                lack = checks.lack(destination, &digest, &those_at(&referrers, &there)).await?;
                Some(there)
            }
            // Some manifest of the layout has other bytes.
            Err(error) if matches!(error.downcast_ref(), Some(LayoutError::Digest { .. })) => {
                lack = Some(Lack { what: error.to_string(), only_referrers: true });
                Some(HashSet::new())
            }
            Err(error) => return Err(error),
        },
        false => None,
    };
    let is_there = |there: &HashSet<Digest>| referrers.iter().all(|referrer| there.contains(&referrer.digest));
    if lack.is_none() && before.as_ref().is_some_and(is_there) {
        // What was judged at SRC may be damaged at DST.
        return Ok(match judged_there(destination, &digest, sealed).await? {
            Some(why) => (Outcome::Failed(why), PushReport::default()),
            None => (Outcome::Unchanged, PushReport::default()),
        });
    }
    let sent = bring((source, destination), (tag, descriptor), &referrers).await?;
    let after = match before.is_some() || checks.has_bytes() {
        true => referrers_at(destination, &digest).await?,
        false => HashSet::new(),
    };
    let is_same = before.as_ref() == Some(&after);
    let still = match lack.is_some() || checks.has_bytes() {
        true => checks.lack(destination, &digest, &those_at(&referrers, &after)).await?,
        false => None,
    };
    if let Some(still) = still.as_ref().filter(|still| !still.only_referrers) {
        return Ok((Outcome::Failed(format!("it is not whole at DST after it was sent: {}", still.what)), sent));
    }
    // What was left out is left out the next time, too.
    let is_left_out = lack.as_ref().is_none_or(|lack| lack.only_referrers && still.is_some());
    if is_same && is_left_out {
        return Ok((Outcome::Unchanged, PushReport::default()));
    }
    // The seal that was judged may have gone from SRC before it was brought.
    if let Some(why) = judged_there(destination, &digest, sealed).await? {
        return Ok((Outcome::Failed(why), sent));
    }
    tell_done(args, destination.tag_for(tag), &digest);
    Ok((lack.map_or(Outcome::Mirrored, |lack| Outcome::Repaired(lack.what)), sent))
}

/// Why what is at the destination would not pass there, by its seal.
async fn judged_there(destination: &Place, digest: &Digest, sealed: &mut Option<Sealed>) -> Result<Option<String>> {
    let Some(sealed) = sealed else { return Ok(None) };
    let judged = sealed.check(destination, digest).await?;
    Ok(judged
        .err()
        .map(|why| format!("it is at DST, and {why} there: mirror it again, with --check where that says the same")))
}

/// Those of the referrers that are at the destination.
fn those_at(referrers: &[Descriptor], there: &HashSet<Digest>) -> Vec<Descriptor> {
    referrers.iter().filter(|referrer| there.contains(&referrer.digest)).cloned().collect()
}

/// Moves what is not there. What is asked for at SRC is the digest that was judged, and no tag, which may name something else by now.
async fn bring(
    (source, destination): (&Place, &Place),
    (tag, descriptor): (Option<&str>, &Descriptor),
    referrers: &[Descriptor],
) -> Result<PushReport> {
    let digest = descriptor.digest;
    let message = format!("mirroring {}", tag.unwrap_or("a bundle"));
    match (source, destination) {
        (Place::Registry { reference, options, .. }, Place::Layout(layout)) => {
            let from = reference.with_digest(digest);
            let (options, bar) = registry_client::shown(options, message);
            let pulled = symseal_registry::pull(&from, layout, &options).await.map_err(registry_client::told);
            bar.finish_and_clear();
            let pulled = pulled?;
            if tag.is_some() {
                layout.add_to_index(descriptor.clone(), tag)?;
            }
            let referrers = layout.referrers(&digest)?.len() as u64;
            Ok(PushReport {
                referrers,
                blobs_sent: pulled.blobs_received,
                blobs_existing: pulled.blobs_existing,
                bytes_sent: pulled.bytes_received,
                ..PushReport::default()
            })
        }
        (Place::Layout(layout), Place::Registry { .. }) => {
            let to = destination.at(tag, &digest)?;
            let (options, bar) = registry_client::shown(&registry_client::options(&to)?, message);
            let pushed = symseal_registry::push(layout, &digest, &to, &options).await.map_err(registry_client::told);
            bar.finish_and_clear();
            pushed
        }
        (Place::Registry { reference: from, repository, options, .. }, Place::Registry { .. }) => {
            let to = destination.at(tag, &digest)?;
            let staging = Scratch::temporary().context("a directory for manifests")?;
            let layout = LayoutDir::create(staging.path().join("layout"))?;
            let staged = symseal_registry::stage(repository, &digest, referrers, &layout).await;
            let staged = staged.map_err(registry_client::told)?;
            for (before, (referrer, reason)) in staged.passed_over.iter().enumerate() {
                registry_client::tell_passed_over(before, referrer, reason);
            }
            let mut elsewhere = Elsewhere::default();
            elsewhere.add(from, options, staged.blobs);
            elsewhere.leave_out_broken_referrers();
            let (to_options, bar) = registry_client::shown(&registry_client::options(&to)?, message);
            let pushed = symseal_registry::push_with(&layout, &digest, &to, &elsewhere, &to_options).await;
            bar.finish_and_clear();
            let mut pushed = pushed.map_err(registry_client::told)?;
            pushed.referrers_passed_over += staged.passed_over.len() as u64;
            Ok(pushed)
        }
        (Place::Layout(_), Place::Layout(_)) => bail!("SRC and DST are directories"),
    }
}

async fn referrers_at(place: &Place, digest: &Digest) -> Result<HashSet<Digest>> {
    Ok(place.referrers(digest).await?.iter().map(|found| found.digest).collect())
}

/// Names what was done on a terminal; where it is none, the report at the end says it.
fn tell_done(args: &Args, tag: Option<&str>, digest: &Digest) {
    use std::io::IsTerminal as _;
    if !args.json && std::io::stderr().is_terminal() {
        eprintln!("{} {digest}", tag.unwrap_or("-"));
    }
}
