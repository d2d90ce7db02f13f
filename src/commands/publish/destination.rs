//! Where a bundle is published to, and what it becomes a referrer of.

use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{Elsewhere, Options, PushPlan, PushReport, Reference, Repository};

use super::part::Place;
use super::{Elsewheres, Sealer, digest_or_null};
use crate::bundle_ref::block_on;
use crate::commands::bundle::transfer::{pushed, sources_reference};
use crate::exit::NotFound;
use crate::output::outln;
use crate::registry_client;

/// A place in a registry that answered.
pub(super) struct Destination {
    pub(super) reference: Reference,
    pub(super) options: Options,
    /// The image that the bundle belongs to.
    pub(super) subject: Option<Descriptor>,
    /// Where its sources go, where that is not beside it.
    pub(super) sources: Option<Place>,
}

/// What was done, or would be.
pub(super) struct Published {
    digest: Digest,
    reference: Reference,
    subject: Option<Digest>,
    seal: Option<Digest>,
    what: What,
    sources: Option<PublishedSources>,
}

/// The sources of a published bundle.
struct PublishedSources {
    digest: Digest,
    reference: Reference,
    what: What,
}

enum What {
    Pushed(PushReport),
    Planned(PushPlan, Option<String>),
}

impl Destination {
    /// Asks the registry once, so that a wrong address, missing credentials or a missing image are told before anything is built.
    pub(super) fn find(
        to: &str,
        subject: Option<&str>,
        sources: Option<&str>,
        jobs: Option<NonZeroUsize>,
    ) -> Result<Self> {
        let reference = Reference::parse(to)?;
        let image = subject.map(Reference::parse).transpose()?;
        if let Some(image) = &image {
            check_subject(&reference, image)?;
        }
        let mut options = registry_client::options(&reference)?;
        if let Some(jobs) = jobs {
            options.concurrency = jobs.get();
        }
        let resolve = |reference: &Reference, options: &Options| -> Result<Option<Descriptor>> {
            let repository = Repository::open(reference, options)?;
            block_on(repository.resolve())?.map_err(registry_client::told)
        };
        let there = resolve(&reference, &options)?;
        let sources = sources.map(|text| sources_place(text, &reference)).transpose()?;
        if let Some(place) = &sources {
            resolve(&place.reference, &place.options)?;
        }
        let subject = match &image {
            None => None,
            Some(image) => match resolve(image, &options)? {
                Some(found) => Some(found),
                None => {
                    let text = format!("--subject {image}: the registry has no such image; push it before its symbols");
                    return Err(NotFound(text).into());
                }
            },
        };
        if let (Some(there), Some(subject), Some(tag)) = (&there, &subject, reference.tag())
            && there.digest == subject.digest
        {
            bail!(
                "--to {reference} names the image of --subject: the bundle would take its tag; push to a tag of its own, such as {tag}-symbols"
            );
        }
        Ok(Self { reference, options, subject, sources })
    }

    /// Pushes the bundle `digest` of a layout with what refers to it; its sources first, so that the registry never has a bundle
    /// whose sources are still to come.
    pub(super) fn push(
        &self,
        layout: &LayoutDir,
        digest: &Digest,
        sources: Option<Digest>,
        seal: Option<Digest>,
        elsewhere: &Elsewheres,
    ) -> Result<Published> {
        let sources = sources.map(|sources| {
            let place = self.place_of(&sources);
            let report = push(layout, &sources, &place, &elsewhere.sources)?;
            Ok(PublishedSources { digest: sources, reference: place.reference, what: What::Pushed(report) })
        });
        let sources = sources.transpose().map_err(|error: anyhow::Error| error.context("the sources"))?;
        let place = Place { reference: self.reference.clone(), options: self.options.clone() };
        let report = push(layout, digest, &place, &elsewhere.files)?;
        Ok(self.published(digest, seal, What::Pushed(report), sources))
    }

    /// What [`Destination::push`] would do.
    pub(super) fn plan(
        &self,
        layout: &LayoutDir,
        digest: &Digest,
        sources: Option<Digest>,
        sealer: Option<&Sealer>,
    ) -> Result<Published> {
        let plan = |digest: &Digest, place: &Place| -> Result<PushPlan> {
            block_on(symseal_registry::plan(layout, digest, &place.reference, &place.options))?
                .map_err(registry_client::told)
        };
        let sources = sources.map(|sources| {
            let place = self.place_of(&sources);
            let planned = What::Planned(plan(&sources, &place)?, None);
            Ok::<_, anyhow::Error>(PublishedSources { digest: sources, reference: place.reference, what: planned })
        });
        let sources = sources.transpose()?;
        let mut planned = plan(digest, &Place { reference: self.reference.clone(), options: self.options.clone() })?;
        if sealer.is_some() {
            // The seal's manifest.
            planned.manifests += 1;
        }
        Ok(self.published(digest, None, What::Planned(planned, sealer.map(Sealer::key_id)), sources))
    }

    fn place_of(&self, sources: &Digest) -> Place {
        self.sources.clone().unwrap_or_else(|| Place {
            reference: sources_reference(&self.reference, sources),
            options: self.options.clone(),
        })
    }

    fn published(
        &self,
        digest: &Digest,
        seal: Option<Digest>,
        what: What,
        sources: Option<PublishedSources>,
    ) -> Published {
        let subject = self.subject.as_ref().map(|subject| subject.digest);
        Published { digest: *digest, reference: self.reference.clone(), subject, seal, what, sources }
    }
}

fn push(layout: &LayoutDir, digest: &Digest, place: &Place, elsewhere: &Elsewhere) -> Result<PushReport> {
    let (options, bar) = registry_client::shown(&place.options, format!("pushing to {}", place.reference));
    let report = block_on(symseal_registry::push_with(layout, digest, &place.reference, elsewhere, &options))?;
    bar.finish_and_clear();
    report.map_err(registry_client::told)
}

/// Where sources go that do not go beside the bundle: the bundle must keep its tag.
fn sources_place(text: &str, bundle: &Reference) -> Result<Place> {
    let reference = Reference::parse(text).context("--sources-to")?;
    if reference.to_string() == bundle.to_string() {
        bail!("--sources-to {reference} is where the bundle goes: name another tag, or another repository");
    }
    if reference.tag().is_none() {
        bail!("--sources-to {reference}: expected a tag, found a digest, which follows from the sources");
    }
    Place::of(reference)
}

/// A registry lists referrers by repository, so both must be in one; and the bundle must not take the image's tag.
fn check_subject(to: &Reference, image: &Reference) -> Result<()> {
    if (to.registry(), to.repository()) != (image.registry(), image.repository()) {
        bail!(
            "--subject {image}: expected an image in the repository of --to, {}/{}; registries list referrers by repository: push the bundle beside its image, or copy the image",
            to.registry(),
            to.repository()
        );
    }
    if to.target() == image.target() {
        bail!(
            "--to {to} is the image of --subject: the bundle would take its tag; push to a tag of its own, such as {}-symbols",
            to.tag().unwrap_or("latest")
        );
    }
    Ok(())
}

impl What {
    /// The fields `push` and `plan`.
    fn to_json(&self) -> (Value, Value) {
        match self {
            Self::Pushed(report) => (pushed(report), Value::Null),
            Self::Planned(plan, key) => (
                Value::Null,
                json!({
                    "blobs_existing": plan.blobs_existing, "blobs_missing": plan.blobs_missing,
                    "bytes_missing": plan.bytes_missing, "manifests": plan.manifests, "sealed_by": key,
                }),
            ),
        }
    }

    /// One line about where it went, or would go.
    fn print(&self, what: &str, reference: &Reference) {
        match self {
            Self::Pushed(report) => outln!(
                "pushed {what}to {reference}: {} blobs ({} bytes) sent, {} mounted, {} there already",
                report.blobs_sent,
                report.bytes_sent,
                report.blobs_mounted,
                report.blobs_existing
            ),
            Self::Planned(plan, _) => outln!(
                "would push {what}to {reference}: {} blobs ({} bytes) that are not there, {} manifests; {} blobs are there already",
                plan.blobs_missing,
                plan.bytes_missing,
                plan.manifests,
                plan.blobs_existing
            ),
        }
    }
}

impl Published {
    pub(super) fn to_json(&self) -> Value {
        let (push, plan) = self.what.to_json();
        let sources = self.sources.as_ref().map(|sources| {
            let (push, plan) = sources.what.to_json();
            json!({
                "digest": sources.digest, "reference": sources.reference.to_string(), "push": push, "plan": plan,
            })
        });
        json!({
            "digest": self.digest, "reference": self.reference.to_string(),
            "subject": digest_or_null(self.subject.as_ref()), "seal": digest_or_null(self.seal.as_ref()),
            "push": push, "plan": plan, "sources": sources,
        })
    }

    pub(super) fn print(&self) {
        if let Some(subject) = &self.subject {
            outln!("subject {subject}");
        }
        if let Some(seal) = &self.seal {
            outln!("seal {seal}");
        }
        if let Some(sources) = &self.sources {
            sources.what.print(&format!("the sources {} ", sources.digest), &sources.reference);
        }
        self.what.print("", &self.reference);
        match &self.what {
            What::Pushed(report) => {
                if !report.referrers_api {
                    outln!("note: the registry keeps no referrers; they are listed under a tag of their subject");
                }
                if self.seal.is_none() {
                    outln!(
                        "note: it was not sealed, for there is no --key; a part need not be: seal what it is joined into"
                    );
                }
            }
            What::Planned(_, key) => {
                match key {
                    Some(key) => outln!("would seal with the key {key}"),
                    None => outln!("would not seal: there is no --key"),
                }
                outln!("dry run: nothing was sealed or pushed");
            }
        }
    }
}
