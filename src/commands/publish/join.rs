//! `symseal publish --join`: the parts of several platform jobs become one bundle, and no file moves that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use symseal_bundle::join::join;
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::subject::with_subject;
use symseal_bundle::{Digest, LayoutDir, ModuleEntry, Scratch, SymbolIndex, compose};
use symseal_registry::{Elsewhere, Reference};
use symseal_sealer::load_trust;

use super::part::Part;
use super::{Args, Destination, Elsewheres, Sealer, add, finish};
use crate::exit::Answer;
use crate::output::{counted, out, outln};
use crate::table::Table;

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
    let mut parts = Vec::new();
    for reference in references {
        parts.push(Part::fetch(reference, destination.sources.as_ref())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(trust) = &args.trust
        && !check_seals(&mut parts, trust)?
    {
        return Ok(Answer::No);
    }
    let carried = check_sources(&parts)?;

    let to_join: Vec<_> = parts.iter().map(Part::to_join).collect();
    let joining = join(&to_join, args.name.as_deref(), args.version.as_deref())?;
    let mut page_hashes = BTreeMap::new();
    for needed in joining.needed() {
        let part = parts.get(needed.part).context("a part that was not named")?;
        page_hashes.insert(needed.file.sha256, part.blob(&needed.file.sha256, needed.file.size)?);
    }
    let joined = joining.finish(&page_hashes)?;

    let mut composed = compose::compose(&joined.index)?;
    if let Some(subject) = &destination.subject {
        composed = with_subject(composed, subject)?;
    }
    let folder = Scratch::temporary().context("no temporary directory for the joined bundle")?;
    let layout = LayoutDir::create(folder.path().join("bundle"))?;
    let small = [oci::EMPTY_JSON, &composed.symbol_index, &composed.image_index];
    let manifests = composed.manifests.iter().chain(&joined.page_hashes).chain(&joined.sources).map(Vec::as_slice);
    for bytes in small.into_iter().chain(manifests) {
        layout.write_blob(bytes)?;
    }
    layout.add_to_index(Descriptor::of(oci::IMAGE_INDEX, &composed.image_index), None)?;

    let mut elsewhere = Elsewheres { files: Elsewhere::default(), sources: Elsewhere::default() };
    for part in &parts {
        let files = part.index.files().map(|file| file.sha256);
        elsewhere.files.add(&part.place.reference, &part.place.options, files);
        if let Some(sources) = &part.sources {
            sources.tell(&mut elsewhere.sources);
            for manifest in sources.manifests() {
                layout.write_blob(manifest)?;
            }
        }
    }
    let sources = joined.index.sources.filter(|_| carried);
    let published = finish(args, &layout, (&composed.digest, sources), destination, sealer, &elsewhere)?;
    if args.json {
        let mut told = published.to_json();
        add(&mut told, "parts", parts.iter().map(Part::to_json).collect());
        add(&mut told, "name", json!(joined.index.name));
        add(&mut told, "version", json!(joined.index.version));
        add(&mut told, "modules", json!(joined.index.statistics.modules));
        add(&mut told, "without_lines", json!(without_lines(&joined.index)));
        add(&mut told, "shards", json!(joined.index.shards.len()));
        add(&mut told, "shards_kept", json!(joined.shards_kept));
        outln!("{}", serde_json::to_string_pretty(&told)?);
    } else {
        print(&parts, &joined.index);
        if let (Some(digest), false) = (&joined.index.sources, carried) {
            outln!(
                "note: the sources {digest}, which the index names, are not where the parts are, and stay where they are"
            );
        }
        outln!("\nbundle {}", composed.digest);
        published.print();
    }
    Ok(Answer::Yes)
}

/// Whether every part that has seals has one that holds; says which does not.
fn check_seals(parts: &mut [Part], trust: &Path) -> Result<bool> {
    let trust = load_trust(trust)?;
    let mut all_hold = true;
    for part in parts {
        if let Some(problem) = part.check_seal(&trust)? {
            eprintln!("error: {}", crate::output::visible(&problem));
            all_hold = false;
        }
    }
    Ok(all_hold)
}

/// Whether the parts' sources are taken along. Where all name the same ones, the name alone can be: they may lie where this job
/// has no permission. Different ones must be seen to be put together.
fn check_sources(parts: &[Part]) -> Result<bool> {
    let named: BTreeSet<Digest> = parts.iter().filter_map(|part| part.index.sources).collect();
    let missing = parts.iter().find(|part| part.sources.is_none() && part.index.sources.is_some());
    match missing.and_then(|part| Some((part, part.index.sources?))) {
        Some((part, digest)) if named.len() > 1 => bail!(
            "--join {}: its sources {digest} are not in its repository, and are needed beside those of another part; name the repository that has them by --sources-to",
            part.name
        ),
        Some((_, digest)) => Ok(parts.iter().any(|part| part.index.sources == Some(digest) && part.sources.is_some())),
        None => Ok(!named.is_empty()),
    }
}

/// How many modules have code, and no lines of it, or those of what was linked in alone. What is missing beside them is known where the parts are built.
fn without_lines(index: &SymbolIndex) -> usize {
    let lacks = |module: &ModuleEntry| module.statistics.rows == 0 || module.lines_of.is_some();
    index.modules().filter(|(.., module)| module.statistics.text_bytes > 0 && lacks(module)).count()
}

fn print(parts: &[Part], joined: &SymbolIndex) {
    let mut table = Table::new(&["part", "release", "platforms", "modules", "bytes", "seal"]);
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
            part.seal.map_or("not looked at", super::part::SealOfPart::code).to_owned(),
        ]);
    }
    out!("{table}");
    let without = without_lines(joined);
    if without > 0 {
        outln!(
            "{without} of {} have code and no lines of their own: `symseal bundle build --strict` of each part says what is missing",
            counted(joined.statistics.modules, "module", "modules")
        );
    }
    // Two jobs may well build the same; more often one is named twice, and another one not at all.
    for (at, part) in parts.iter().enumerate() {
        let before = parts.iter().take(at).find(|before| before.indexes.digest == part.indexes.digest);
        if let Some(before) = before {
            outln!("note: {} is the same bundle as {}: is another part missing?", part.name, before.name);
        }
    }
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
