//! Step 7, second half: one flipped byte in a copy of each part, and the check that refuses it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use symseal_bundle::{Bundle, FileRole, LayoutDir};
use symseal_seal::encoding::{from_base64, to_base64};

use super::narrator::Narrator;
use super::scene::Scene;
use super::verify::open_and_verify;

/// Whether every flipped byte was refused.
pub(super) fn run(scene: &Scene, story: &mut Narrator) -> Result<bool> {
    let copy = Copy::of(scene)?;
    let bundle = Bundle::open(LayoutDir::open(&copy.layout)?, None)?;
    let debug_file = bundle
        .index()
        .modules()
        .flat_map(|(_, _, module)| &module.files)
        .find(|file| file.role == FileRole::Debuginfo)
        .context("the bundle has no debug file")?;
    let blob = bundle.file_path(debug_file);
    let index = LayoutDir::open(&copy.layout)?.blob_path(&bundle.index_digest());
    let seal = bundle.read_seals()?.into_iter().next().context("the bundle has no seal")?;
    drop(bundle);

    let mut all_refused = true;
    let mut refused = |part: &str, signature: Option<&Path>| -> Result<()> {
        match open_and_verify(&copy.layout, &copy.trust, signature)?.first_failure() {
            Some(check) => {
                story.proved(format!("{part} with one byte flipped is refused: {}", shortened(&check.to_string())))
            }
            None => {
                story.refuted(format!("{part} with one byte flipped was accepted"));
                all_refused = false;
            }
        }
        Ok(())
    };
    let flipped = Flipped::middle_of(&blob)?;
    refused("a blob", None)?;
    flipped.restore()?;
    let flipped = Flipped::middle_of(&index)?;
    refused("symbol_index.json", None)?;
    flipped.restore()?;
    let signature = copy.layout.with_file_name("flipped.sigstore.json");
    for (part, pointer, form) in [
        ("the envelope", "/dsseEnvelope/payload", Form::Base64),
        ("the log entry", "/verificationMaterial/tlogEntries/0/canonicalizedBody", Form::Base64),
        ("the checkpoint", "/verificationMaterial/tlogEntries/0/inclusionProof/checkpoint/envelope", Form::Note),
    ] {
        fs::write(&signature, flip_in_json(&seal, pointer, form)?)?;
        refused(part, Some(&signature))?;
    }
    let policy = copy.trust.join("policy.dsse.json");
    let original = fs::read(&policy)?;
    fs::write(&policy, flip_in_json(&original, "/payload", Form::Base64)?)?;
    refused("the policy", None)?;
    Ok(all_refused)
}

/// A copy of bundle and trust directory, gone with the value.
struct Copy {
    layout: PathBuf,
    trust: PathBuf,
    _scratch: tempfile::TempDir,
}

impl Copy {
    fn of(scene: &Scene) -> Result<Self> {
        let scratch = scene.scratch()?;
        let (layout, trust) = (scratch.path().join("bundle"), scratch.path().join("trust"));
        copy_tree(&scene.bundle(), &layout)?;
        copy_tree(&scene.trust(), &trust)?;
        Ok(Self { layout, trust, _scratch: scratch })
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            // Bytes alone: a blob may be read-only, and its copy is about to change.
            fs::write(&target, fs::read(&source)?).with_context(|| format!("copying {}", source.display()))?;
        }
    }
    Ok(())
}

/// A file with one byte flipped, and what it was.
struct Flipped {
    path: PathBuf,
    original: Vec<u8>,
}

impl Flipped {
    fn middle_of(path: &Path) -> Result<Self> {
        let original = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        fs::write(path, flip_middle(original.clone())).with_context(|| format!("writing {}", path.display()))?;
        Ok(Self { path: path.to_owned(), original })
    }

    fn restore(self) -> Result<()> {
        fs::write(&self.path, self.original).with_context(|| format!("writing {}", self.path.display()))
    }
}

/// How a JSON string holds bytes.
#[derive(Clone, Copy)]
enum Form {
    Base64,
    /// A note: origin, size, root hash, a line each.
    Note,
}

/// The document with one byte flipped inside the value at `pointer`, so that its JSON stays whole.
fn flip_in_json(json: &[u8], pointer: &str, form: Form) -> Result<Vec<u8>> {
    let mut document: serde_json::Value = serde_json::from_slice(json)?;
    let value = document.pointer_mut(pointer).with_context(|| format!("no {pointer}"))?;
    let text = value.as_str().with_context(|| format!("{pointer} is no string"))?;
    let flipped = match form {
        Form::Base64 => to_base64(&flip_middle(from_base64(text).with_context(|| format!("{pointer} is no base64"))?)),
        // A letter of the root hash: with another one the text is still a note.
        Form::Note => text
            .lines()
            .enumerate()
            .map(|(number, line)| {
                if number == 2 {
                    flip_letter(line)
                } else {
                    format!(
                        "{line}
"
                    )
                }
            })
            .collect(),
    };
    *value = flipped.into();
    Ok(serde_json::to_vec(&document)?)
}

fn flip_middle(mut bytes: Vec<u8>) -> Vec<u8> {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    bytes
}

/// The line with its first letter changed.
fn flip_letter(line: &str) -> String {
    let mut letters = line.chars();
    let first = if letters.next() == Some('A') { 'B' } else { 'A' };
    format!("{first}{}\n", letters.as_str())
}

/// One line of bearable length.
fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= MOST { line.to_owned() } else { line.chars().take(MOST).chain("…".chars()).collect() }
}
