//! A module's unwind table, from the rules in its binary.

use std::collections::BTreeMap;
use std::ops::Range;

use symseal_artifact::{Arch, Format, ObjectFile, ObjectKind, UnwindInputs};
use symseal_bundle::Digest;
use symseal_module::{DebugId, Svma};
use symseal_unwind::{GoRuntime, MipsFlags, compile};

use crate::report::{UnsupportedRange, UnwindReport};

/// More ranges that could not be compiled would help nobody.
const MAX_UNSUPPORTED_LISTED: usize = 20;

/// Why entries of call frame information, or the rest of a section behind one, gave no rules.
const DAMAGED: &str = "entry: cannot be read";

#[derive(Default)]
pub(super) struct Unwind {
    pub(super) bytes: Option<Vec<u8>>,
    /// Whether the separate debug file's `.debug_frame`, symbols or debug information were given to the compiler.
    pub(super) used_debug: bool,
    pub(super) report: UnwindReport,
}

/// The `.uwt` table. What cannot be compiled is no error: such frames are unwound otherwise, and the report says so.
///
/// `binary` is the file with the code, and `source` its digest; the rules of `.eh_frame` are nowhere else.
pub(super) fn unwind_table(
    id: &DebugId,
    binary: Option<(&ObjectFile<'_>, Digest)>,
    separate: Option<&ObjectFile<'_>>,
) -> Unwind {
    let Some((object, source)) = binary else {
        return no_table("there is only a debug file, and the rules are in the binary".to_owned(), &[]);
    };
    if object.is_il_alone() {
        return no_table("it holds methods for the runtime of .NET, and no native code".to_owned(), &[]);
    }
    if object.is_data_alone() {
        return no_table("it holds data, and no code".to_owned(), &[]);
    }
    let inputs = object.unwind_inputs();
    let Some(arch) = arch_of(object) else {
        return no_table(
            format!("unwind tables of {} are not made by this version", kind_of_program(object)),
            &inputs.text,
        );
    };
    if object.kind() == ObjectKind::Relocatable {
        return no_table("a relocatable file: its rules get their addresses from the loader".to_owned(), &inputs.text);
    }
    let separate_file = separate;
    let separate = separate.map(ObjectFile::unwind_inputs);
    let debug_frame = inputs.debug_frame.as_ref();
    let from_debug_file =
        separate.as_ref().and_then(|inputs| inputs.debug_frame.as_ref()).filter(|_| debug_frame.is_none());
    let mut functions = inputs.functions.clone();
    functions.extend(separate.iter().flat_map(|inputs| &inputs.functions));
    let is_followed = !matches!(object.arch(), Arch::Mips | Arch::MipsLittle)
        || !MipsFlags(object.elf_flags()).has_short_instructions();
    if !is_followed {
        functions.clear();
    }
    let used_debug = from_debug_file.is_some() || functions.len() > inputs.functions.len();
    let plt = plt(object, &inputs);
    let code = inputs.code();
    let section = |slice: Option<&'_ symseal_artifact::SectionSlice<'_>>| slice.map(|slice| slice.svma);
    let input = compile::Input {
        arch,
        debug_id: id,
        image_base: inputs.image_base,
        text: &inputs.text,
        eh_frame: section(inputs.eh_frame.as_ref()).zip(inputs.eh_frame.as_ref().map(|slice| &*slice.bytes)),
        eh_frame_hdr: section(inputs.eh_frame_hdr.as_ref())
            .zip(inputs.eh_frame_hdr.as_ref().map(|slice| &*slice.bytes)),
        debug_frame: debug_frame.or(from_debug_file).map(|slice| (slice.svma, &*slice.bytes)),
        pdr: inputs.pdr.as_ref().filter(|_| is_followed).map(|slice| &*slice.bytes),
        pdata: section(inputs.pdata.as_ref()).zip(inputs.pdata.as_ref().map(|slice| &*slice.bytes)),
        foreign: &inputs.foreign,
        is_system_v: inputs.is_system_v,
        orc: inputs
            .orc
            .as_ref()
            .map(|(places, entries)| compile::Orc { places: (places.svma, &places.bytes), entries: &entries.bytes }),
        unwind_info: section(inputs.unwind_info.as_ref()).zip(inputs.unwind_info.as_ref().map(|slice| &*slice.bytes)),
        exidx: section(inputs.exidx.as_ref()).zip(inputs.exidx.as_ref().map(|slice| &*slice.bytes)),
        pclntab: section(inputs.pclntab.as_ref()).zip(inputs.pclntab.as_ref().map(|slice| &*slice.bytes)),
        go_runtime: None,
        tasks: None,
        coroutines: None,
        has_sframe: inputs.has_sframe,
        loaded: &inputs.loaded,
        functions: &functions,
        plt: &plt,
        code: &code,
        is_jit: false,
        source_sha256: *source.as_bytes(),
        producer: crate::PRODUCER,
        bases: compile::Bases { text: inputs.text_base, got: inputs.got_base },
    };
    let (go_runtime, is_of_debug_file) = go_runtime(&input, object, separate_file);
    let own_tasks = tasks(&input, object);
    let tasks_of_debug_file =
        if own_tasks.is_none() { separate_file.and_then(|file| tasks(&input, file)) } else { None };
    let own_coroutines = coroutines(&input, object);
    let coroutines_of_debug_file =
        if own_coroutines.is_none() { separate_file.and_then(|file| coroutines(&input, file)) } else { None };
    let used_debug =
        used_debug || is_of_debug_file || tasks_of_debug_file.is_some() || coroutines_of_debug_file.is_some();
    let tasks = own_tasks.or(tasks_of_debug_file);
    let coroutines = own_coroutines.or(coroutines_of_debug_file);
    let input = compile::Input {
        go_runtime: go_runtime.as_ref(),
        tasks: tasks.as_deref(),
        coroutines: coroutines.as_deref(),
        ..input
    };
    match compile::compile(&input) {
        Err(error) => no_table(error.to_string(), &inputs.text),
        Ok(compiled) => {
            let made = compiled.report;
            // A function whose instructions could not be followed counts like a row.
            let of_function = |reason: String| format!("function: {reason}");
            let unfollowed = made.unfollowed.into_iter().map(|(reason, count)| (of_function(reason), count));
            let mut unsupported_reasons: BTreeMap<String, u64> = BTreeMap::new();
            for (reason, count) in made.unsupported_reasons.into_iter().chain(unfollowed) {
                unsupported_reasons.insert(reason, count as u64);
            }
            // What could not even be read has no rows to count.
            if made.damaged_entries > 0 {
                unsupported_reasons.insert(DAMAGED.to_owned(), made.damaged_entries as u64);
            }
            let report = UnwindReport {
                table_bytes: compiled.bytes.len() as u64,
                none_because: None,
                fdes: made.fdes as u64,
                rows: made.rows as u64,
                rules: made.rules as u64,
                text_bytes: made.text_bytes,
                covered_bytes: made.covered_bytes,
                gap_bytes: made.gap_bytes,
                unsupported: unsupported_reasons.values().sum(),
                unsupported_reasons,
                lost_registers: made
                    .unknown_register_reasons
                    .into_iter()
                    .map(|(reason, count)| (reason, count as u64))
                    .collect(),
                unsupported_ranges: listed(
                    made.unsupported.into_iter().chain(
                        made.unfollowed_functions
                            .into_iter()
                            .map(|function| compile::Unsupported { reason: of_function(function.reason), ..function }),
                    ),
                ),
            };
            Unwind { bytes: Some(compiled.bytes), used_debug, report }
        }
    }
}

/// Of a module whose code, the ranges of `text`, has no rule at all.
fn no_table(because: String, text: &[Range<u64>]) -> Unwind {
    let text_bytes = text.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add);
    let report = UnwindReport { none_because: Some(because), text_bytes, ..UnwindReport::default() };
    Unwind { report, ..Unwind::default() }
}

/// The processor, and what else tells a program's rules from those of other programs of the processor.
fn kind_of_program(object: &ObjectFile<'_>) -> String {
    let arch = object.arch();
    match (arch, object.is_64(), object.format()) {
        // Those addresses are of programs for the processor's 64 bits.
        (Arch::X86_64, false, _) => format!("{arch} with addresses of 32 bits (x32)"),
        (Arch::X86 | Arch::Arm, _, Format::Pe) => format!("{arch} in PE files"),
        (Arch::X86 | Arch::Arm, _, Format::Macho) => format!("{arch} in Mach-O files"),
        _ => arch.to_string(),
    }
}

/// The unwind table of a program that is in no bundle; none where its rules cannot be compiled. `separate` is its debug file, where that is another one.
///
/// It is the one that a bundle of the two would have.
pub fn loose_unwind_table(
    id: &DebugId,
    binary: (&ObjectFile<'_>, Digest),
    separate: Option<&ObjectFile<'_>>,
) -> Option<Vec<u8>> {
    unwind_table(id, Some(binary), separate).bytes
}

/// The ranges that the report lists, by rising address: of each reason the first ones, so that none hides another.
fn listed(ranges: impl Iterator<Item = compile::Unsupported>) -> Vec<UnsupportedRange> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, compile::Unsupported)> = ranges
        .map(|range| {
            let rank = seen.entry(range.reason.clone()).or_default();
            *rank += 1;
            (*rank, range)
        })
        .collect();
    ranked.sort_by_key(|(rank, range)| (*rank, range.range.start));
    ranked.truncate(MAX_UNSUPPORTED_LISTED);
    ranked.sort_by_key(|(_, range)| (range.range.start, range.range.end));
    let listed = ranked.into_iter().map(|(_, compile::Unsupported { range, reason })| UnsupportedRange {
        start: Svma(range.start),
        end: Svma(range.end),
        reason,
    });
    listed.collect()
}

/// What leads from the stack of a thread to its goroutine in a Go program, and whether the separate debug file told it.
fn go_runtime(
    input: &compile::Input<'_>,
    object: &ObjectFile<'_>,
    separate: Option<&ObjectFile<'_>>,
) -> (Option<GoRuntime<Svma>>, bool) {
    let of = |file: &ObjectFile<'_>| {
        let sections = compile::DEBUG_INFO_SECTIONS.map(|name| {
            let bytes = name.strip_prefix(".debug_").and_then(|suffix| file.debug_section(suffix));
            (name, bytes.unwrap_or_default())
        });
        let of_name = |name: &str| sections.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, bytes)| bytes);
        compile::go_runtime(input, of_name)
    };
    if input.pclntab.is_none() {
        return (None, false);
    }
    let own = of(object);
    let from_debug_file = if own.is_none() { separate.and_then(of) } else { None };
    let is_of_debug_file = from_debug_file.is_some();
    (own.or(from_debug_file), is_of_debug_file)
}

/// What leads from a task of tokio to the one that waits for it, by the debug information in `file`.
fn tasks(input: &compile::Input<'_>, file: &ObjectFile<'_>) -> Option<Vec<u8>> {
    let section = |name: &str| name.strip_prefix(".debug_").and_then(|suffix| file.debug_section(suffix));
    let strings = section(compile::TASK_NAMES);
    // Nearly all files are done with here, and what is compressed stays so.
    if !compile::names_tasks(strings.as_deref().unwrap_or_default()) {
        return None;
    }
    let sections = compile::DEBUG_INFO_SECTIONS.map(|name| (name, section(name).unwrap_or_default()));
    compile::tasks(input, |name| sections.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, bytes)| bytes))
}

/// What leads from a coroutine of C++ to the one that waits for it, by the symbols and the debug information in `file`.
fn coroutines(input: &compile::Input<'_>, file: &ObjectFile<'_>) -> Option<Vec<u8>> {
    let section = |name: &str| name.strip_prefix(".debug_").and_then(|suffix| file.debug_section(suffix));
    let names = section(compile::COROUTINE_NAMES);
    if !compile::names_coroutines(names.as_deref().unwrap_or_default()) {
        return None;
    }
    let names = compile::DEBUG_INFO_SECTIONS.into_iter().chain(compile::LOCATION_SECTIONS);
    let sections: Vec<_> = names.map(|name| (name, section(name).unwrap_or_default())).collect();
    let symbols = file.function_symbols();
    let symbols = symbols.iter().map(|symbol| (&*symbol.name, symbol.svma, symbol.size));
    let of_name = |name: &str| sections.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, bytes)| bytes);
    compile::coroutines(input, symbols, of_name)
}

/// The processor as the compiler knows it; none for one that it does not.
fn arch_of(object: &ObjectFile<'_>) -> Option<symseal_unwind::Arch> {
    use symseal_unwind::Arch as Target;
    match (object.arch(), object.is_64(), object.is_little_endian()) {
        (Arch::X86_64, true, _) => Some(Target::X86_64),
        // arm64e signs its return addresses, which its instructions and records say.
        (Arch::Aarch64 | Arch::Arm64e, true, true) => Some(Target::Aarch64),
        // Mach-O numbers two registers the other way round.
        (Arch::X86, false, true) if object.format() == Format::Elf => Some(Target::I686),
        (Arch::Riscv64, true, true) => Some(Target::Riscv64),
        (Arch::Arm, false, true) if object.format() == Format::Elf => Some(Target::Arm),
        (Arch::Mips, false, _) if MipsFlags(object.elf_flags()).is_o32() => Some(Target::Mips32),
        (Arch::MipsLittle, false, _) if MipsFlags(object.elf_flags()).is_o32() => Some(Target::Mips32Little),
        _ => None,
    }
}

fn plt<'d>(object: &ObjectFile<'d>, inputs: &UnwindInputs<'_>) -> Vec<compile::Plt<'d>> {
    inputs
        .plt
        .iter()
        .map(|plt| {
            // Several sections may have one name; bytes of another range would give wrong rules.
            let bytes = object.section(&plt.name).filter(|(svma, bytes)| {
                svma.0 == plt.range.start && Some(bytes.len() as u64) == plt.range.end.checked_sub(plt.range.start)
            });
            compile::Plt {
                range: plt.range.clone(),
                entry_size: plt.entry_size,
                bytes: bytes.map(|(_, bytes)| bytes).unwrap_or_default(),
            }
        })
        .collect()
}
