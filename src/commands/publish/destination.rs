//! Where a bundle is published to, and what it becomes a referrer of.

use std::num::NonZeroUsize;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use symseal_bundle::oci::Descriptor;
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{Elsewhere, Options, PushPlan, PushReport, Reference, Repository};

use super::{Sealer, digest_or_null};
use crate::bundle_ref::block_on;
use crate::commands::bundle::transfer::pushed;
use crate::exit::NotFound;
use crate::output::outln;
use crate::registry_client;

/// A place in a registry that answered.
pub(super) struct Destination {
    pub(super) reference: Reference,
    pub(super) options: Options,
    /// The image that the bundle belongs to.
    pub(super) subject: Option<Descriptor>,
}

/// What was done, or would be.
pub(super) struct Published {
    digest: Digest,
    reference: Reference,
    subject: Option<Digest>,
    seal: Option<Digest>,
    what: What,
}

enum What {
    Pushed(PushReport),
    Planned(PushPlan, Option<String>),
}

impl Destination {
    /// Asks the registry once, so that a wrong address, missing credentials or a missing image are told before anything is built.
    pub(super) fn find(to: &str, subject: Option<&str>, jobs: Option<NonZeroUsize>) -> Result<Self> {
        let reference = Reference::parse(to)?;
        let image = subject.map(Reference::parse).transpose()?;
        if let Some(image) = &image {
            check_subject(&reference, image)?;
        }
        let mut options = registry_client::options(&reference)?;
        if let Some(jobs) = jobs {
            options.concurrency = jobs.get();
        }
        let resolve = |reference: &Reference| -> Result<Option<Descriptor>> {
            let repository = Repository::open(reference, &options)?;
            block_on(repository.resolve())?.map_err(registry_client::told)
        };
        let there = resolve(&reference)?;
        let subject = match &image {
            None => None,
            Some(image) => match resolve(image)? {
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
        Ok(Self { reference, options, subject })
    }

    /// Pushes the bundle `digest` of a layout with what refers to it.
    pub(super) fn push(
        &self,
        layout: &LayoutDir,
        digest: &Digest,
        seal: Option<Digest>,
        elsewhere: &Elsewhere,
    ) -> Result<Published> {
        let (options, bar) = registry_client::shown(&self.options, format!("pushing to {}", self.reference));
        let report = block_on(symseal_registry::push_with(layout, digest, &self.reference, elsewhere, &options))?;
        bar.finish_and_clear();
        Ok(self.published(digest, seal, What::Pushed(report.map_err(registry_client::told)?)))
    }

    /// What [`Destination::push`] would do.
    pub(super) fn plan(&self, layout: &LayoutDir, digest: &Digest, sealer: Option<&Sealer>) -> Result<Published> {
        let mut plan = block_on(symseal_registry::plan(layout, digest, &self.reference, &self.options))?
            .map_err(registry_client::told)?;
        if sealer.is_some() {
            // The seal's manifest.
            plan.manifests += 1;
        }
        Ok(self.published(digest, None, What::Planned(plan, sealer.map(Sealer::key_id))))
    }

    fn published(&self, digest: &Digest, seal: Option<Digest>, what: What) -> Published {
        let subject = self.subject.as_ref().map(|subject| subject.digest);
        Published { digest: *digest, reference: self.reference.clone(), subject, seal, what }
    }
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

impl Published {
    pub(super) fn to_json(&self) -> Value {
        let (push, plan) = match &self.what {
            What::Pushed(report) => (pushed(report), Value::Null),
            What::Planned(plan, key) => (
                Value::Null,
                json!({
                    "blobs_existing": plan.blobs_existing, "blobs_missing": plan.blobs_missing,
                    "bytes_missing": plan.bytes_missing, "manifests": plan.manifests, "sealed_by": key,
                }),
            ),
        };
        json!({
            "digest": self.digest, "reference": self.reference.to_string(),
            "subject": digest_or_null(self.subject.as_ref()), "seal": digest_or_null(self.seal.as_ref()),
            "push": push, "plan": plan,
        })
    }

    pub(super) fn print(&self) {
        if let Some(subject) = &self.subject {
            outln!("subject {subject}");
        }
        if let Some(seal) = &self.seal {
            outln!("seal {seal}");
        }
        match &self.what {
            What::Pushed(report) => {
                outln!(
                    "pushed to {}: {} blobs ({} bytes) sent, {} mounted, {} there already",
                    self.reference,
                    report.blobs_sent,
                    report.bytes_sent,
                    report.blobs_mounted,
                    report.blobs_existing
                );
                if !report.referrers_api {
                    outln!("note: the registry keeps no referrers; they are listed under a tag of their subject");
                }
                if self.seal.is_none() {
                    outln!(
                        "note: it was not sealed, for there is no --key; a part need not be: seal what it is joined into"
                    );
                }
            }
            What::Planned(plan, key) => {
                outln!(
                    "would push to {}: {} blobs ({} bytes) that are not there, {} manifests; {} blobs are there already",
                    self.reference,
                    plan.blobs_missing,
                    plan.bytes_missing,
                    plan.manifests,
                    plan.blobs_existing
                );
                match key {
                    Some(key) => outln!("would seal with the key {key}"),
                    None => outln!("would not seal: there is no --key"),
                }
                outln!("dry run: nothing was sealed or pushed");
            }
        }
    }
}
