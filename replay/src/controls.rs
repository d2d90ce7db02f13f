//! Negative controls: changes that must be noticed, or else agreement would mean little.

use std::collections::BTreeMap;

use symseal_module::{DebugId, Svma};
use symseal_unwind::format::{DIRECTORY_ENTRY_BYTES, HEADER_BYTES, MAX_SECTIONS, SectionKind};
use symseal_unwind::{Cache, Kind, ReturnAddress, Rule, RuleSource, Saved};

use crate::canonical::Canonical;
use crate::relocate::{Parts, relocate};
use crate::replay::{Bench, Setting};
use crate::report::{ControlResult, Controls};
use crate::walk::{EngineModules, ThreadStack};

/// Survivors that are listed.
const MAX_SURVIVORS_LISTED: usize = 32;

/// The change that takes a rule's saved frame pointer for unchanged.
const SAVE_DROPPED: &str = "frame pointer save dropped";

pub(crate) struct ControlInput<'a> {
    pub(crate) bench: &'a Bench<'a>,
    pub(crate) golden: &'a [Canonical],
    pub(crate) seeds: &'a [u64],
}

pub(crate) fn run(input: &ControlInput<'_>) -> Controls {
    let mut controls = Controls {
        relocation_without_rewriting: without_rewriting(input),
        flipped_frame: flipped_frame(input),
        seed_reuse: seed_reuse(input),
        ..Controls::default()
    };
    mutate_rules(input, &mut controls);
    controls
}

/// The words of the stack stay as they were: from the second frame on, nothing can be right.
fn without_rewriting(input: &ControlInput<'_>) -> ControlResult {
    let mut result = ControlResult::default();
    for seed in input.seeds {
        let moved = relocate(&input.bench.scene, *seed, Parts::WITHOUT_REWRITING);
        let found = input.bench.results(&moved, Setting::default());
        for (golden, found) in input.golden.iter().zip(found) {
            if golden.frames.len() >= 2 {
                result.add(golden.bytes() != found.bytes());
            }
        }
    }
    result
}

/// Each part of each expected frame changed once.
fn flipped_frame(input: &ControlInput<'_>) -> ControlResult {
    let mut result = ControlResult::default();
    let edits: [fn(&mut crate::canonical::CanonicalFrame); 3] =
        [|frame| frame.place.push('1'), |frame| frame.cfa.push('1'), |frame| frame.names.push('1')];
    for golden in input.golden {
        let bytes = golden.bytes();
        for at in 0..golden.frames.len() {
            for edit in edits {
                let mut flipped = golden.clone();
                if let Some(frame) = flipped.frames.get_mut(at) {
                    edit(frame);
                }
                result.add(flipped.bytes() != bytes && golden.difference(&flipped).is_some());
            }
        }
    }
    result
}

/// The same seed again: the same layout and the same result, bit for bit.
fn seed_reuse(input: &ControlInput<'_>) -> ControlResult {
    let mut result = ControlResult::default();
    for seed in input.seeds {
        let run = || {
            let moved = relocate(&input.bench.scene, *seed, Parts::ALL);
            let found: Vec<Vec<u8>> =
                input.bench.results(&moved, Setting::default()).iter().map(Canonical::bytes).collect();
            (moved, found)
        };
        result.add(run() == run());
    }
    result
}

/// A rule that led from one frame to the next, and the stacks that used it.
struct UsedRule {
    module: DebugId,
    rule: Rule,
    /// Where it was used first.
    svma: Svma,
    stacks: Vec<usize>,
    /// Whether any use changed the frame pointer: if none did, a dropped save makes no difference.
    changes_fp: bool,
}

fn mutate_rules(input: &ControlInput<'_>, controls: &mut Controls) {
    let bench = input.bench;
    let modules = EngineModules::of(&bench.scene, bench.tables);
    let walks: Vec<ThreadStack> =
        bench.scene.snapshots.iter().map(|snapshot| modules.walk(snapshot, &mut Cache::new())).collect();
    for used in used_rules(bench, &walks) {
        for (kind, changed) in changes_of(used.rule) {
            if kind == SAVE_DROPPED && !used.changes_fp {
                controls.equivalent_mutations += 1;
                continue;
            }
            let Some(table) = bench.tables.bytes(&used.module).and_then(|table| replaced(table, used.rule, changed))
            else {
                continue;
            };
            let tables = bench.tables.clone().with_table(used.module.clone(), table);
            let modules = EngineModules::of(&bench.scene, &tables);
            let noticed = used.stacks.iter().any(|at| match (bench.scene.snapshots.get(*at), walks.get(*at)) {
                (Some(snapshot), Some(before)) => modules.walk(snapshot, &mut Cache::new()) != *before,
                _ => false,
            });
            controls.mutation.add(noticed);
            controls.mutation_by_kind.entry(kind.to_string()).or_default().add(noticed);
            if !noticed && controls.survivors.len() < MAX_SURVIVORS_LISTED {
                let rule = used.rule.display(modules.plain.arch());
                let survivor = format!("{kind}: {rule} at {}+{}", used.module, used.svma);
                controls.survivors.push(survivor);
            }
        }
    }
}

fn used_rules(bench: &Bench<'_>, walks: &[ThreadStack]) -> Vec<UsedRule> {
    let modules = EngineModules::of(&bench.scene, bench.tables);
    let mut used: BTreeMap<(DebugId, u64), UsedRule> = BTreeMap::new();
    for (stack, walked) in walks.iter().enumerate() {
        // The last frame's rule led nowhere.
        for (frame, caller) in walked.frames.iter().zip(walked.frames.iter().skip(1)) {
            // No rule of the frame's code led there.
            if caller.method.logical_edge().is_some() {
                continue;
            }
            let module = frame.module.and_then(|index| bench.scene.modules.get(index as usize));
            let (Some(module), Some((rule, _))) = (module, modules.plain.rule(frame)) else { continue };
            let Some(id) = &module.debug_id else { continue };
            let entry = used.entry((id.clone(), rule.0)).or_insert_with(|| UsedRule {
                module: id.clone(),
                rule,
                svma: Svma(frame.lookup_pc().0.wrapping_sub(module.bias)),
                stacks: Vec::new(),
                changes_fp: false,
            });
            entry.changes_fp |= frame.fp != caller.fp;
            if entry.stacks.last() != Some(&stack) {
                entry.stacks.push(stack);
            }
        }
    }
    used.into_values().collect()
}

/// Each way to get this rule wrong.
fn changes_of(rule: Rule) -> Vec<(&'static str, Rule)> {
    let (Some(kind), Some(source), Some(ra)) = (rule.kind(), rule.source(), rule.return_address()) else {
        return Vec::new();
    };
    let (offset, fp) = (rule.offset(), rule.frame_pointer());
    let with = |kind: Kind, offset: i64, ra: ReturnAddress, fp: Saved| {
        Rule::new(kind, source, rule.register(), offset, ra, fp)
            .map(|changed| if rule.slots_on_fp() { changed.with_slots_on_fp() } else { changed })
            .map(|changed| if rule.has_places_from_base() { changed.with_places_from_base() } else { changed })
    };
    let mut changes = vec![("rule removed", Some(Rule::bare(Kind::Gap, RuleSource::None)))];
    if matches!(kind, Kind::Sp | Kind::Fp | Kind::Register | Kind::Deref) {
        changes.push(("cfa + 8", with(kind, offset + 1, ra, fp)));
        changes.push(("cfa - 8", with(kind, offset - 1, ra, fp)));
        if let ReturnAddress::AtCfa(words) = ra {
            changes.push(("return address slot + 8", with(kind, offset, ReturnAddress::AtCfa(words + 1), fp)));
        }
        if let Saved::At(words) = fp {
            changes.push((SAVE_DROPPED, with(kind, offset, ra, Saved::Same)));
            changes.push(("frame pointer slot + 8", with(kind, offset, ra, Saved::At(words + 1))));
        }
    }
    match kind {
        Kind::Sp => changes.push(("base swapped", with(Kind::Fp, offset, ra, fp))),
        Kind::Fp => changes.push(("base swapped", with(Kind::Sp, offset, ra, fp))),
        // Bytes here.
        Kind::Signal => changes.push(("context + 8", with(kind, offset + 8, ra, fp))),
        _ => {}
    }
    changes.into_iter().filter_map(|(name, changed)| Some((name, changed?))).collect()
}

/// The table with every copy of one rule replaced. `None` where its rules are not found.
fn replaced(table: &[u8], rule: Rule, changed: Rule) -> Option<Vec<u8>> {
    let (offset, size) = rules_section(table)?;
    let mut bytes = table.to_vec();
    let section = bytes.get_mut(offset..offset.checked_add(size)?)?;
    let mut found = false;
    for word in section.as_chunks_mut::<8>().0 {
        if u64::from_le_bytes(*word) == rule.0 {
            *word = changed.0.to_le_bytes();
            found = true;
        }
    }
    found.then_some(bytes)
}

/// Offset and size of the rules, from the section directory (`docs/formats/uwt.md`).
fn rules_section(table: &[u8]) -> Option<(usize, usize)> {
    let directory = table.get(HEADER_BYTES..)?;
    directory.chunks_exact(DIRECTORY_ENTRY_BYTES).take(MAX_SECTIONS).find_map(|entry| {
        let kind = u32::from_le_bytes(*entry.first_chunk()?);
        let word = |at: usize| Some(u64::from_le_bytes(*entry.get(at..)?.first_chunk()?));
        if kind != SectionKind::Rules as u32 {
            return None;
        }
        Some((usize::try_from(word(8)?).ok()?, usize::try_from(word(16)?).ok()?))
    })
}
