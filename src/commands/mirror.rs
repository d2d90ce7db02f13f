//! `symseal mirror`: bundles with their seals from one place to another, again and again.

mod place;
mod report;
mod sealed;

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{Elsewhere, Options, PushReport, Repository};

use self::place::{Place, read_tree};
use self::report::{Mirrored, Outcome, Report};
use self::sealed::Sealed;
use crate::bundle_ref::block_on;
use crate::exit::Answer;
use crate::memory::StateArgs;
use crate::output::outln;
use crate::registry_client;

/// Copy bundles with their seals from a registry or a layout to another, and only what is not there yet.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal mirror registry.example/team/app mirror.site/team/app --trust ./trust
  symseal mirror registry.example/team/app ./app-layout --tag '1.*'
  symseal mirror ./app-layout mirror.site/team/app

SRC and DST are repositories (all tags, or those that --tag names), references with a tag or digest, or directories with OCI layouts (a new one is
made). Seals and other referrers come along, and what is tagged as sources of a bundle. Blobs that DST has are not
sent; where both are in one registry they are mounted. Every byte that moves is compared with its digest. With --trust a tag is set
at DST only where the bundle's seal holds, or a bundle whose seal holds names it as its sources; what is refused is named, and
the exit status is 1. A second run goes on where one was interrupted, and sends nothing where nothing has changed.
Tags that are gone at SRC stay at DST.")]
pub struct Args {
    /// From where: host[:port]/repository[:tag|@digest], or a directory.
    source: String,
    /// To where.
    destination: String,
    /// Only tags of this pattern (`*` and `?`). Repeat for more.
    #[arg(long, value_name = "PATTERN")]
    tag: Vec<String>,
    /// Set a tag at DST only where the seal holds by this trust directory.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
    #[command(flatten)]
    state: StateArgs,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let source = Place::open(&args.source, false).with_context(|| format!("SRC {}", args.source))?;
    let destination = Place::open(&args.destination, true).with_context(|| format!("DST {}", args.destination))?;
    if matches!((&source, &destination), (Place::Layout(_), Place::Layout(_))) {
        bail!("SRC and DST are directories: copy the directory, and verify it with symseal bundle verify");
    }
    let mut sealed = args.trust.as_deref().map(|trust| Sealed::open(trust, &args.state)).transpose()?;
    let report = block_on(mirror(args, &source, &destination, &mut sealed))??;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        outln!("{report}");
    }
    Ok((report.refused == 0).into())
}

async fn mirror(args: &Args, source: &Place, destination: &Place, sealed: &mut Option<Sealed>) -> Result<Report> {
    let mut wanted = source.listed().await?;
    if wanted.len() > 1 && destination.names_a_tag() {
        bail!("DST {}: one tag for {} at SRC: name the repository", args.destination, wanted.len());
    }
    if !args.tag.is_empty() {
        wanted.retain(|(tag, _)| tag.as_ref().is_some_and(|tag| args.tag.iter().any(|pattern| matches(pattern, tag))));
    }
    let mut report = Report::default();
    // Bundles first: their seals speak for the sources that they name.
    let mut later = Vec::new();
    for (tag, descriptor) in wanted {
        match source.is_bundle(&descriptor).await? {
            true => report.add(one(args, (source, destination), (tag, &descriptor), sealed).await?),
            false => later.push((tag, descriptor)),
        }
    }
    for (tag, descriptor) in later {
        report.add(one(args, (source, destination), (tag, &descriptor), sealed).await?);
    }
    Ok(report)
}

/// Mirrors what one tag names.
async fn one(
    args: &Args,
    (source, destination): (&Place, &Place),
    (tag, descriptor): (Option<String>, &Descriptor),
    sealed: &mut Option<Sealed>,
) -> Result<Mirrored> {
    let digest = descriptor.digest;
    let mirrored = |outcome, sent: PushReport| Mirrored { tag: tag.clone(), digest, outcome, sent };
    if let Some(sealed) = sealed
        && let Err(why) = sealed.check(source, &digest).await?
    {
        return Ok(mirrored(Outcome::Refused(why), PushReport::default()));
    }
    let referrers = source.referrers(&digest).await?;
    if destination.has(tag.as_deref(), &digest).await? {
        let there: HashSet<Digest> = destination.referrers(&digest).await?.iter().map(|found| found.digest).collect();
        if referrers.iter().all(|referrer| there.contains(&referrer.digest)) {
            return Ok(mirrored(Outcome::Unchanged, PushReport::default()));
        }
    }
    let message = format!("mirroring {}", tag.as_deref().unwrap_or("a bundle"));
    let sent = match (source, destination) {
        (Place::Registry { .. }, Place::Layout(layout)) => {
            let from = source.at(tag.as_deref(), &digest)?;
            let (options, bar) = registry_client::shown(&registry_client::options(&from)?, message);
            let pulled = symseal_registry::pull(&from, layout, &options).await.map_err(registry_client::told);
            bar.finish_and_clear();
            let found = pulled?;
            if found != digest {
                bail!("{from}: expected {digest}, found {found}: the tag moved meanwhile; run it again");
            }
            PushReport { referrers: referrers.len() as u64, ..PushReport::default() }
        }
        (Place::Layout(layout), Place::Registry { .. }) => {
            let to = destination.at(tag.as_deref(), &digest)?;
            let (options, bar) = registry_client::shown(&registry_client::options(&to)?, message);
            let pushed = symseal_registry::push(layout, &digest, &to, &options).await.map_err(registry_client::told);
            bar.finish_and_clear();
            pushed?
        }
        (Place::Registry { reference: from, repository, options, .. }, Place::Registry { .. }) => {
            let to = destination.at(tag.as_deref(), &digest)?;
            let staging = tempfile::tempdir().context("a directory for manifests")?;
            let layout = LayoutDir::create(staging.path().join("layout"))?;
            let (to_options, bar) = registry_client::shown(&registry_client::options(&to)?, message);
            let elsewhere = stage(&layout, (from, repository, options), &digest, &referrers).await?;
            let pushed = symseal_registry::push_with(&layout, &digest, &to, &elsewhere, &to_options).await;
            bar.finish_and_clear();
            pushed.map_err(registry_client::told)?
        }
        (Place::Layout(_), Place::Layout(_)) => bail!("SRC and DST are directories"),
    };
    tell_done(args, &tag, &digest);
    Ok(mirrored(Outcome::Mirrored, sent))
}

/// Names what was done on a terminal; where it is none, the report at the end says it.
fn tell_done(args: &Args, tag: &Option<String>, digest: &Digest) {
    use std::io::IsTerminal as _;
    if !args.json && std::io::stderr().is_terminal() {
        eprintln!("{} {digest}", tag.as_deref().unwrap_or("-"));
    }
}

/// A layout with the manifests of a bundle and its referrers, and where their blobs are.
async fn stage(
    layout: &LayoutDir,
    (from, repository, options): (&symseal_registry::Reference, &Repository, &Options),
    digest: &Digest,
    referrers: &[Descriptor],
) -> Result<Elsewhere> {
    let mut blobs = Vec::new();
    for root in std::iter::once(*digest).chain(referrers.iter().map(|referrer| referrer.digest)) {
        let (descriptor, found) = read_tree(repository, layout, root).await?;
        blobs.extend(found);
        layout.add_to_index(descriptor, None)?;
    }
    // Every manifest's empty configuration; a registry may not have been sent it as a blob of its own.
    layout.write_blob(oci::EMPTY_JSON)?;
    let mut elsewhere = Elsewhere::default();
    elsewhere.add(from, options, blobs);
    Ok(elsewhere)
}

/// Whether a pattern with `*` and `?` is that of a tag.
fn matches(pattern: &str, tag: &str) -> bool {
    let (pattern, tag): (Vec<char>, Vec<char>) = (pattern.chars().collect(), tag.chars().collect());
    // The usual two pointers: back to the last star where a character differs.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < tag.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some('?') => (at, from) = (at + 1, from + 1),
            Some(character) if Some(character) == tag.get(from) => (at, from) = (at + 1, from + 1),
            _ => match star {
                Some((before, began)) => {
                    star = Some((before, began + 1));
                    (at, from) = (before + 1, began + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|character| *character == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_have_stars_and_question_marks() {
        for (pattern, tag, expected) in [
            ("1.*", "1.0", true),
            ("1.*", "2.0", false),
            ("*", "", true),
            ("*.sources", "1.0.sources", true),
            ("1.?", "1.10", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xaxbx", false),
            ("", "a", false),
            ("a", "a", true),
        ] {
            assert_eq!(matches(pattern, tag), expected, "{pattern} {tag}");
        }
    }
}
