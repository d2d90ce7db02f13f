//! Step 1: a bundle from real binaries, twice.

use std::fs;

use anyhow::{Context, Result};
use symseal_builder::{Built, Options};
use symseal_bundle::{Digest, LayoutDir};

use super::narrator::Narrator;
use super::scene::{self, Input, Scene};
use crate::commands::bundle::build_report::debug_info;

/// What the first step made.
pub(super) struct BuiltBundle {
    pub(super) layout: LayoutDir,
    pub(super) built: Built,
    /// Whether building from copies elsewhere gave the same digest.
    pub(super) reproducible: bool,
}

pub(super) fn run(scene: &Scene, story: &mut Narrator) -> Result<BuiltBundle> {
    story.step("Build", "a bundle from real binaries");
    let inputs = scene::inputs()?;
    let layout = LayoutDir::create(scene.bundle())?;
    let built = build(&inputs, &layout)?;
    for input in &inputs {
        story.say(format!("{} ({})", input.path.display(), input.label));
    }
    for (_, id, module) in built.index.modules() {
        story.say(format!(
            "{id} {}: debug info {}, {} functions, {} line rows, {} unwind rows",
            module.name,
            debug_info(module.debug_info, module.lines_of, module.stripped),
            module.statistics.functions,
            module.statistics.rows,
            module.statistics.unwind_rows,
        ));
    }
    story.proved(format!("bundle {}: every file is named in symbol_index.json by its sha256", built.digest));

    let again = build_from_copies(scene, &inputs)?;
    let reproducible = again == built.digest;
    let claim = "building again from a copy of the inputs in another directory gives the same digest";
    if reproducible {
        story.proved(claim)
    } else {
        story.refuted(format!("{claim}: found {again}"))
    }
    Ok(BuiltBundle { layout, built, reproducible })
}

fn build(inputs: &[Input], layout: &LayoutDir) -> Result<Built> {
    let options = Options { name: scene::NAME.to_owned(), version: scene::VERSION.to_owned(), ..Options::default() };
    let mut builder = symseal_builder::SymbolBundleBuilder::new(options);
    for input in inputs {
        builder = builder.add_path(&input.path);
    }
    Ok(builder.build(layout)?)
}

fn build_from_copies(scene: &Scene, inputs: &[Input]) -> Result<Digest> {
    let elsewhere = scene.scratch()?;
    let copies = elsewhere.path().join("copies");
    fs::create_dir(&copies)?;
    // The other way round, so that the order of the inputs is seen not to matter either.
    let copied: Vec<Input> = inputs
        .iter()
        .rev()
        .map(|input| {
            let path = copies.join(input.path.file_name().context("an input without a file name")?);
            fs::copy(&input.path, &path).with_context(|| format!("copying {}", input.path.display()))?;
            Ok(Input { path, label: input.label })
        })
        .collect::<Result<_>>()?;
    let layout = LayoutDir::create(elsewhere.path().join("bundle"))?;
    Ok(build(&copied, &layout)?.digest)
}
