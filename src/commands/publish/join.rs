//! `symseal publish --join`: the parts of several platform jobs become one bundle, and no file moves that is there.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::json;
use symseal_bundle::join::{Part, join};
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::subject::with_subject;
use symseal_bundle::{LayoutDir, SymbolIndex, compose};
use symseal_registry::{BundleIndexes, Elsewhere, Options, Reference, Repository};

use super::{Args, Destination, Sealer, add, finish};
use crate::bundle_ref::block_on;
use crate::exit::Answer;
use crate::output::{out, outln};
use crate::registry_client;
use crate::table::Table;

/// A part, fetched as far as joining needs it.
struct Fetched {
    reference: Reference,
    name: String,
    options: Options,
    indexes: BundleIndexes,
    index: SymbolIndex,
}

pub(super) fn parse(references: &[String]) -> Result<Vec<Reference>> {
    references.iter().map(|text| Reference::parse(text).context("--join")).collect()
}

pub(super) fn run(
    args: &Args,
    references: Vec<Reference>,
    destination: &Destination,
    sealer: Option<&Sealer>,
) -> Result<Answer> {
    let bar = crate::progress::bar(references.len() as u64, "reading the parts' indexes");
    let mut fetched = Vec::new();
    for reference in references {
        fetched.push(fetch(reference)?);
        bar.inc(1);
    }
    bar.finish_and_clear();

    let parts: Vec<Part<'_>> = fetched.iter().map(Fetched::part).collect();
    let joining = join(&parts, args.name.as_deref(), args.version.as_deref())?;
    let mut page_hashes = BTreeMap::new();
    for needed in joining.needed() {
        let part = fetched.get(needed.part).context("a part that was not named")?;
        let repository = Repository::open(&part.reference, &part.options)?;
        let bytes = block_on(repository.blob(&needed.file.sha256, needed.file.size))?;
        page_hashes.insert(needed.file.sha256, bytes.map_err(registry_client::told)?);
    }
    let joined = joining.finish(&page_hashes)?;

    let mut composed = compose::compose(&joined.index)?;
    if let Some(subject) = &destination.subject {
        composed = with_subject(composed, subject)?;
    }
    let folder = tempfile::tempdir().context("no temporary directory for the joined bundle")?;
    let layout = LayoutDir::create(folder.path().join("bundle"))?;
    let small = [oci::EMPTY_JSON, &composed.symbol_index, &composed.image_index];
    let manifests = composed.manifests.iter().chain(&joined.page_hashes).map(Vec::as_slice);
    for bytes in small.into_iter().chain(manifests) {
        layout.write_blob(bytes)?;
    }
    layout.add_to_index(Descriptor::of(oci::IMAGE_INDEX, &composed.image_index), None)?;

    let mut elsewhere = Elsewhere::default();
    for part in &fetched {
        elsewhere.add(&part.reference, &part.options, part.index.files().map(|file| file.sha256));
    }
    let published = finish(args, &layout, &composed.digest, destination, sealer, &elsewhere)?;
    if args.json {
        let mut told = published.to_json();
        add(&mut told, "parts", fetched.iter().map(Fetched::to_json).collect());
        add(&mut told, "name", json!(joined.index.name));
        add(&mut told, "version", json!(joined.index.version));
        add(&mut told, "modules", json!(joined.index.statistics.modules));
        add(&mut told, "shards", json!(joined.index.shards.len()));
        add(&mut told, "shards_kept", json!(joined.shards_kept));
        outln!("{}", serde_json::to_string_pretty(&told)?);
    } else {
        print(&fetched, &joined.index);
        outln!("\nbundle {}", composed.digest);
        published.print();
    }
    Ok(Answer::Yes)
}

/// Reads a part's image index, root manifest and symbol index.
fn fetch(reference: Reference) -> Result<Fetched> {
    let name = reference.to_string();
    let of_part = || format!("--join {name}");
    let options = registry_client::options(&reference)?;
    let repository = Repository::open(&reference, &options)?;
    let indexes = block_on(repository.bundle_indexes())?.map_err(registry_client::told).with_context(of_part)?;
    let index = SymbolIndex::parse(&indexes.symbol_index).with_context(of_part)?;
    Ok(Fetched { reference, name, options, indexes, index })
}

impl Fetched {
    fn part(&self) -> Part<'_> {
        Part {
            name: &self.name,
            digest: self.indexes.digest,
            image_index: &self.indexes.image_index,
            index: &self.index,
        }
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "reference": self.name, "digest": self.indexes.digest, "name": self.index.name,
            "version": self.index.version, "modules": self.index.statistics.modules, "bytes": self.index.statistics.bytes,
        })
    }
}

fn print(parts: &[Fetched], joined: &SymbolIndex) {
    let mut table = Table::new(&["part", "release", "platforms", "modules", "bytes"]);
    for part in parts {
        let platforms = part.index.platforms();
        let platforms: Vec<&str> =
            platforms.iter().filter(|(_, modules)| !modules.is_empty()).map(|(platform, _)| *platform).collect();
        table.row([
            part.name.clone(),
            format!("{} {}", part.index.name, part.index.version),
            platforms.join(", "),
            part.index.statistics.modules.to_string(),
            part.index.statistics.bytes.to_string(),
        ]);
    }
    out!("{table}");
    for part in parts {
        if (&part.index.name, &part.index.version) != (&joined.name, &joined.version) {
            let (name, version) = (&part.index.name, &part.index.version);
            outln!(
                "note: {} was built as {name} {version}, and is joined as {} {}",
                part.name,
                joined.name,
                joined.version
            );
        }
    }
}
