//! `.gopclntab`, the table of functions that every Go program carries: of each function, how far the stack pointer has moved before each of
//! its instructions (`pcsp`). It stays when a program is stripped of `.debug_frame`. (Go sources, `runtime/symtab.go`, `internal/abi/symtab.go`,
//! `cmd/link/internal/ld/pcln.go`)
//!
//! With *d* bytes moved:
//!
//! * amd64: CFA = rsp + *d* + 8; return address = [CFA − 8];
//! * 386: CFA = esp + *d* + 4; return address = [CFA − 4];
//! * arm64, arm, riscv64, mips: CFA = sp + *d*; return address = [sp] where *d* > 0, else in the link register.
//!
//! Functions that change stacks and come back have other rules while they are away ([`switched`]): CFA = register + offset, or none.
//!
//! Go's functions keep no registers for their callers but the frame pointer, and that of the goroutine, which is the same in all of one stack. On amd64 the frame pointer is at CFA − 16 if the function began by pushing it;
//! else, while the stack pointer has moved, it is not told; nor is it on the others.
//!
//! The register of the goroutine is not told where it is not the goroutine's: on amd64 before Go 1.17, and in functions that C enters
//! by, whose callers have in it what they like. Assembler code of ABI0 on amd64, as in `crypto`, may use it for other things before
//! it returns; no table tells that code from other assembler code, and its rules say `Same`. (Go, "internal ABI specification")

mod place;
mod runtime;
mod switched;
mod table;

use alloc::vec::Vec;
use core::ops::Range;

use super::pieces::Origin;
use super::{Compiler, Input};
use crate::arch::Arch;
use crate::goroutine::g_register;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};
use crate::source::SourceKind;
pub(super) use place::open;
use runtime::changes_to_thread;
pub use runtime::go_runtime;
use switched::Found;
use table::{Function, Table};

/// How the names of the linker's marks between functions begin.
const MARK: &[u8] = b"go:";
/// `push %rbp`
const PUSH_FRAME_POINTER: u8 = 0x55;
/// The prefix by which the same byte pushes `%r13`.
const EXTENDED: u8 = 0x41;
/// The function is the first of its stack: a goroutine, or a thread.
const TOP_FRAME: u8 = 1;
/// The function sets the stack pointer to what no table tells, as those do that change stacks.
const WRITES_STACK_POINTER: u8 = 2;

/// Runs a signal handler. To Go's own tracebacks it is the first of its stack; the kernel has left a way back to what was interrupted, which
/// `.debug_frame` of amd64 leads to. On arm64 that says too that there is no caller.
const SIGNAL_ENTRY: &[u8] = b"runtime.sigtramp";
/// Functions that are entered by C's convention. (Go, `runtime/cgo/asm_amd64.s`, `runtime/asm_amd64.s`, `runtime/sys_linux_amd64.s`)
const ENTERED_FROM_C: [&[u8]; 3] = [b"crosscall2", b"runtime.cgocallback", SIGNAL_ENTRY];

/// Change to the stack of their thread for good: their one call is made on that one, of which nothing that is said of their own frames is true. Others of
/// their like may be called on the stack that they would change to.
const ONE_WAY: [&[u8]; 2] = [b"runtime.mcall", b"runtime.morestack"];
/// Changes to the goroutine's stack, and sees to it that both stacks have a frame of it that is whole. (Go, `runtime/traceback.go`)
const WHOLE_ON_BOTH_STACKS: &[u8] = b"runtime.cgocallback";
/// Where a goroutine is said to have stopped that is away on another stack. In some releases that is the first instruction, which no call stands before: the frame that
/// returns there is looked for right before it.
const LEFT_AT: &[u8] = b"runtime.systemstack_switch";
/// The first function of Go's on a thread. Where C code starts the threads, that called it.
const FIRST_OF_THREAD: &[u8] = b"runtime.mstart";
/// Part of each program that has C code in it: there all threads but the first are C's. (Go, `runtime/cgo/asm_amd64.s`, `runtime/proc.go`, `newm1`)
const OF_PROGRAMS_WITH_C: &[u8] = b"crosscall2";

/// Adds the rules of the functions of which other information, `.debug_frame` at best, says what it cannot know, or too little. Nothing is looked for in place of what those that
/// change stacks had: on the other stack there is no word of theirs. Of the functions with which stacks begin `.debug_frame` of amd64 does not say that they have
/// no caller: behind `runtime.goexit`, which is not called at all, and behind `runtime.clone`, which calls `runtime.mstart` on the stack of a new thread, it leads beyond the end of the stack.
pub(super) fn rules_before_others(input: &Input<'_>, table: Option<&Table<'_>>, compiler: &mut Compiler<'_>) {
    let Some(table) = table else { return };
    let has_c = has_c(table);
    let mut budget = budget(input);
    before_left_at(input, table, compiler);
    for function in table.functions().filter(|function| function.flags & (WRITES_STACK_POINTER | TOP_FRAME) != 0) {
        let range = function.start..function.end;
        if range.start >= range.end || !compiler.claims.is_code(&range) {
            continue;
        }
        let name = table.name(&function).unwrap_or_default();
        let switched = if ONE_WAY.contains(&name) {
            None
        } else if begins_stack(input.arch, &function, name, has_c) {
            Some(Switched::all(range.clone(), Kind::End))
        } else if !writes_stack_pointer(&function, name) || changes_to_thread(name) {
            continue;
        } else {
            switched_frames(input, table, &function, &mut budget)
        };
        let switched = switched.unwrap_or_else(|| Switched::all(range, Kind::Unsupported));
        // Where it is true `.debug_frame` says more.
        for part in &switched.parts {
            let claimed = compiler.claims.claim(part.clone());
            compiler.add(&claimed, &switched.rules, Origin::new(SourceKind::GoPclntab, function.offset));
        }
    }
}

/// Adds the rule of the padding before [`LEFT_AT`], which is that of its first instruction.
fn before_left_at(input: &Input<'_>, table: &Table<'_>, compiler: &mut Compiler<'_>) {
    // With a link register the frame is of no caller there.
    if input.arch.machine().link.is_some() {
        return;
    }
    let mut previous: Option<Function> = None;
    for function in table.functions() {
        if let Some(previous) = previous.filter(|_| table.name(&function) == Some(LEFT_AT)) {
            let range = function.start.saturating_sub(1)..function.start;
            let told = table.distances(&previous).last().flatten();
            let is_padding = told.is_some_and(|(told, _)| told.end <= range.start) && compiler.claims.is_code(&range);
            if let Some(rule) = rule(input.arch, 0, false, true).filter(|_| is_padding) {
                let claimed = compiler.claims.claim(range.clone());
                compiler.add(&claimed, &[(range.start, rule)], Origin::new(SourceKind::GoPclntab, function.offset));
            }
            return;
        }
        previous = Some(function);
    }
}

/// The frames of a function that changes stacks and comes back.
struct Switched {
    /// By rising address.
    rules: Vec<(u64, (Rule, Slots))>,
    /// Where the table, and `.debug_frame` with it, do not tell them.
    parts: Vec<Range<u64>>,
    /// Where its code ends.
    end: u64,
}

impl Switched {
    fn all(range: Range<u64>, kind: Kind) -> Self {
        let rule = (Rule::bare(kind, RuleSource::GoPclntab), Slots::SAME);
        Self { rules: Vec::from([(range.start, rule)]), end: range.end, parts: Vec::from([range]) }
    }
}

/// Whether a function sets the stack pointer to what no table tells.
fn writes_stack_pointer(function: &Function, name: &[u8]) -> bool {
    function.flags & WRITES_STACK_POINTER != 0 && name != WHOLE_ON_BOTH_STACKS
}

/// How many distances, and bytes of functions that change stacks, are read: more than any table has that Go wrote.
fn budget(input: &Input<'_>) -> usize {
    input.pclntab.map_or(0, |(_, bytes)| bytes.len().saturating_mul(4))
}

/// `None` where the instructions do not show them. (Once, as the archive for C programs is to be small.)
#[inline(never)]
fn switched_frames(input: &Input<'_>, table: &Table<'_>, function: &Function, budget: &mut usize) -> Option<Switched> {
    let distances = told_distances(table, function, budget)?;
    // Behind the last of them lies padding.
    let (Range { end, .. }, _) = distances.last()?;
    let range = function.start..*end;
    let code = switched::code_of(input.code, &range)?;
    *budget = budget.checked_sub(code.len())?;
    let moved = |address: u64| {
        let behind = distances.partition_point(|(range, _)| range.start <= address);
        let (range, moved) = distances.get(behind.checked_sub(1)?)?;
        range.contains(&address).then_some(*moved)
    };
    let found = switched::frames(input.arch, (range.start, code), &moved)?;
    let pushed = distances.iter().find(|(_, moved)| *moved != 0);
    let pushes_frame_pointer =
        pushed.is_some_and(|(range, moved)| is_push_of_frame_pointer(input, range.start, *moved));
    let lost = (Rule::bare(Kind::Unsupported, RuleSource::GoPclntab), Slots::SAME);
    let mut switched = Switched { rules: Vec::new(), parts: Vec::new(), end: range.end };
    let mut is_in_part = false;
    for (address, found) in found {
        let rule = match found {
            Found::Told => rule(input.arch, moved(address)?, pushes_frame_pointer, true)?,
            Found::Kept(register, moved) => {
                kept_rule(input.arch, register, moved, pushes_frame_pointer).unwrap_or(lost)
            }
            Found::Lost => lost,
        };
        match (is_in_part, found == Found::Told) {
            (false, false) => switched.parts.push(address..range.end),
            (true, true) => switched.parts.last_mut()?.end = address,
            _ => {}
        }
        is_in_part = found != Found::Told;
        if switched.rules.last().is_none_or(|(_, last)| *last != rule) {
            switched.rules.push((address, rule));
        }
    }
    Some(switched)
}

fn told_distances(table: &Table<'_>, function: &Function, budget: &mut usize) -> Option<Vec<(Range<u64>, i64)>> {
    let mut told = Vec::new();
    for distance in table.distances(function) {
        *budget = budget.checked_sub(1)?;
        told.push(distance?);
    }
    Some(told)
}

/// The rule where a register has the stack pointer of where it had moved by so many bytes.
fn kept_rule(arch: Arch, register: u8, moved: i64, pushes_frame_pointer: bool) -> Option<(Rule, Slots)> {
    let machine = arch.machine();
    // Nothing but the call that led here has put the return address where it is.
    let (told, slots) = rule(arch, moved, pushes_frame_pointer, true)?;
    let return_address = told.return_address().filter(|at| matches!(at, ReturnAddress::AtCfa(_)))?;
    let frame_pointer = if pushes_frame_pointer { Saved::At(-2) } else { Saved::Unknown };
    let kind = if register == machine.fp { Kind::Fp } else { Kind::Register };
    Some((Rule::new(kind, RuleSource::GoPclntab, register, told.offset(), return_address, frame_pointer)?, slots))
}

/// Whether the program has C code in it.
fn has_c(table: &Table<'_>) -> bool {
    table.functions().any(|function| table.name(&function) == Some(OF_PROGRAMS_WITH_C))
}

/// Whether nothing leads on from a function of this name.
fn begins_stack(arch: Arch, function: &Function, name: &[u8], has_c: bool) -> bool {
    let leads_on = match name {
        SIGNAL_ENTRY => arch == Arch::X86_64,
        // With a link register `.debug_frame` says that there is no caller, whoever starts the threads.
        FIRST_OF_THREAD => has_c && arch.machine().link.is_none(),
        _ => false,
    };
    function.flags & TOP_FRAME != 0 && !leads_on
}

/// Adds the rules of the functions that the table describes and nothing else has spoken for.
pub(super) fn rules(input: &Input<'_>, table: Option<&Table<'_>>, compiler: &mut Compiler<'_>) {
    if input.pclntab.is_none() {
        return;
    }
    let Some(table) = table else {
        const UNREADABLE: &str = "Go's table of functions: of an unknown version, damaged, or of other code";
        return compiler.report.count_unfollowed(None, UNREADABLE);
    };
    let mut budget = budget(input);
    let has_c = has_c(table);
    let has_goroutine_register = input.arch != Arch::X86_64 || table.has_goroutine_register();
    for function in table.functions() {
        let range = function.start..function.end;
        if range.start >= range.end || !compiler.claims.is_code(&range) {
            compiler.report.entries_outside_text += 1;
            continue;
        }
        compiler.report.unwind_entries += 1;
        let origin = Origin::new(SourceKind::GoPclntab, function.offset);
        let name = table.name(&function).unwrap_or_default();
        if writes_stack_pointer(&function, name) {
            let is_read = !changes_to_thread(name);
            let switched = is_read.then(|| switched_frames(input, table, &function, &mut budget)).flatten();
            let Some(switched) = switched else {
                const CHANGES: &str = "Go's table of functions: a function that changes stacks";
                compiler.report.count_unfollowed(Some(range), CHANGES);
                continue;
            };
            let claimed = compiler.claims.claim(range.start..switched.end);
            compiler.add(&claimed, &switched.rules, origin);
            continue;
        }
        let is_entered_from_c = ENTERED_FROM_C.contains(&name);
        let keeps_goroutine = has_goroutine_register && !is_entered_from_c;
        let Some((mut rules, end)) = frames(input, table, &function, keeps_goroutine, &mut budget) else {
            // What other information covers has its rules, and a mark of the linker has no instructions.
            let is_mark = !function.has_distances() && name.starts_with(MARK);
            if compiler.claims.is_free(range.start) && !is_mark {
                const UNTOLD: &str = "Go's table of functions: distances that are not told, or too large for a rule";
                // An exception directory has the frame of a function's body for all of it.
                if input.has_exception_directory() {
                    let claimed = compiler.claims.claim(range.clone());
                    let rule = (Rule::bare(Kind::Unsupported, RuleSource::GoPclntab), Slots::SAME);
                    compiler.add(&claimed, &[(range.start, rule)], origin);
                }
                compiler.report.count_unfollowed(Some(range), UNTOLD);
            }
            continue;
        };
        if begins_stack(input.arch, &function, name, has_c) {
            rules = Vec::from([(function.start, (Rule::bare(Kind::End, RuleSource::GoPclntab), Slots::SAME))]);
        }
        let claimed = compiler.claims.claim(function.start..end);
        compiler.add(&claimed, &rules, origin);
    }
}

/// A function's rules by rising address, and where its code ends.
type Frames = (Vec<(u64, (Rule, Slots))>, u64);

/// The rules of one function; `None` where the table does not tell them.
fn frames(
    input: &Input<'_>,
    table: &Table<'_>,
    function: &Function,
    keeps_goroutine: bool,
    budget: &mut usize,
) -> Option<Frames> {
    let mut rules = Vec::new();
    let mut end = function.start;
    let mut pushes_frame_pointer = None;
    for step in table.distances(function) {
        let (Range { start, end: next }, moved) = step?;
        end = next;
        *budget = budget.checked_sub(1)?;
        // The first distance that is not zero, and what made it.
        if moved != 0 {
            pushes_frame_pointer.get_or_insert_with(|| is_push_of_frame_pointer(input, start, moved));
        }
        let rule = rule(input.arch, moved, pushes_frame_pointer == Some(true), keeps_goroutine)?;
        if rules.last().is_none_or(|(_, last)| *last != rule) {
            rules.push((start, rule));
        }
    }
    (!rules.is_empty()).then_some((rules, end))
}

/// The rule where the stack pointer has moved by so many bytes.
#[inline(never)]
fn rule(arch: Arch, moved: i64, pushes_frame_pointer: bool, keeps_goroutine: bool) -> Option<(Rule, Slots)> {
    let machine = arch.machine();
    let words = (moved >= 0 && moved % machine.word == 0).then_some(moved / machine.word)?;
    let source = RuleSource::GoPclntab;
    let (offset, return_address, frame_pointer) = match machine.link {
        None if words == 0 => (1, ReturnAddress::AtCfa(-1), Saved::Same),
        None => {
            let saved = if pushes_frame_pointer { Saved::At(-2) } else { Saved::Unknown };
            (words.checked_add(1)?, ReturnAddress::AtCfa(-1), saved)
        }
        Some(link) if words == 0 => (0, ReturnAddress::InRegister(link), Saved::Same),
        Some(_) => (words, ReturnAddress::AtCfa(i16::try_from(-words).ok()?), Saved::Unknown),
    };
    let mut slots = Slots::SAME;
    for (at, register) in machine.slot_registers.iter().enumerate() {
        if !keeps_goroutine || Some(*register) != g_register(arch) {
            slots = slots.with(at, Saved::Unknown);
        }
    }
    Some((Rule::new(Kind::Sp, source, machine.sp, offset, return_address, frame_pointer)?, slots))
}

/// Whether what moved the stack pointer by so many bytes for the first time, right before `address`, pushed the frame pointer.
fn is_push_of_frame_pointer(input: &Input<'_>, address: u64, moved: i64) -> bool {
    // With the prefix it is another register.
    let is_plain = || byte_before(input, address.saturating_sub(1)) != Some(EXTENDED);
    let is_push = || byte_before(input, address) == Some(PUSH_FRAME_POINTER);
    input.arch == Arch::X86_64 && moved == 8 && is_push() && is_plain()
}

fn byte_before(input: &Input<'_>, address: u64) -> Option<u8> {
    let before = address.checked_sub(1)?;
    input.code.iter().find_map(|(start, bytes)| bytes.get(usize::try_from(before.checked_sub(*start)?).ok()?).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Table as Compiled;
    use crate::compile::compile;
    use symseal_module::{DebugId, Rva};

    /// What the rules of a function say of the register of the goroutine, before and behind where it moves the stack pointer.
    fn told(magic: u32, name: &str, flags: u8, arch: Arch) -> [Option<Saved>; 2] {
        rules_of(magic, name, flags, arch).map(|(_, slots)| slots.of(arch, g_register(arch)?))
    }

    fn rules_of(magic: u32, name: &str, flags: u8, arch: Arch) -> [(Rule, Slots); 2] {
        let id = DebugId::from_build_id(&[7; 20]).expect("an identity");
        let bytes = table::tests::named(magic, name, flags, arch);
        let text = 0x1000..0x1020;
        let input =
            Input { pclntab: Some((0x8000, &bytes)), text: core::slice::from_ref(&text), ..Input::of(arch, &id) };
        let compiled = compile(&input).expect("a table");
        let table = Compiled::open(&compiled.bytes).expect("our own table");
        [0x1000, 0x1004].map(|at| {
            let rule = table.rule(Rva(at)).expect("a rule");
            assert_eq!(rule.source(), Some(RuleSource::GoPclntab));
            (rule, table.slots(Rva(at)).expect("slots"))
        })
    }

    #[test]
    fn the_first_function_of_a_stack_ends_it_but_for_the_one_that_the_kernel_enters() {
        for (arch, of_signals) in [(Arch::X86_64, Kind::Sp), (Arch::Aarch64, Kind::End)] {
            let kinds = |name: &str| rules_of(table::MAGIC_120, name, TOP_FRAME, arch).map(|(rule, _)| rule.kind());
            assert_eq!(kinds("runtime.goexit"), [Some(Kind::End); 2]);
            assert_eq!(kinds("runtime.sigtramp"), [Some(of_signals); 2]);
        }
    }

    #[test]
    fn where_both_stacks_have_a_whole_frame_the_table_tells_it() {
        let writes = |name: &str, arch| rules_of(table::MAGIC_120, name, WRITES_STACK_POINTER, arch);
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let kinds = |name: &str| writes(name, arch).map(|(rule, _)| rule.kind());
            assert_eq!(kinds("runtime.cgocallback"), [Some(Kind::Sp); 2]);
            assert_eq!(kinds("runtime.sigfwd"), [Some(Kind::Unsupported); 2]);
        }
    }

    #[test]
    fn what_is_read_of_functions_that_change_stacks_is_bounded() {
        let id = DebugId::from_build_id(&[7; 20]).expect("an identity");
        let bytes = table::tests::named(table::MAGIC_120, "time.now", WRITES_STACK_POINTER, Arch::X86_64);
        let table = Table::open(&bytes, Arch::X86_64, None, |svma| svma != 0).expect("a table");
        let code = (0x1000, &[0x90; 0x20][..]);
        let input = Input { code: core::slice::from_ref(&code), ..Input::of(Arch::X86_64, &id) };
        let function = table.functions().next().expect("a function");
        // Three distances and sixteen bytes.
        let read = |mut budget: usize| switched_frames(&input, &table, &function, &mut budget).map(|_| budget);
        assert_eq!([read(20), read(19), read(18), read(2)], [Some(1), Some(0), None, None]);
    }

    #[test]
    fn the_register_of_the_goroutine_is_told_where_it_is_the_goroutines() {
        let (same, unknown) = ([Some(Saved::Same); 2], [Some(Saved::Unknown); 2]);
        let (new, old) = (table::MAGIC_120, table::MAGIC_116);
        assert_eq!(told(new, "main.main", 0, Arch::X86_64), same);
        // Go 1.16, and 1.17 by a flag.
        assert_eq!(told(old, "main.main", 0, Arch::X86_64), unknown);
        assert_eq!(told(old, "main.main", 4, Arch::X86_64), same);
        // Other code of that processor has never used it.
        assert_eq!([new, old].map(|magic| told(magic, "main.main", 0, Arch::Aarch64)), [same; 2]);
        for name in ["crosscall2", "runtime.cgocallback", "runtime.sigtramp"] {
            assert_eq!([Arch::X86_64, Arch::Aarch64].map(|arch| told(new, name, 0, arch)), [unknown; 2], "{name}");
        }
        assert_eq!(told(new, "runtime.cgocallbackg", 0, Arch::X86_64), same);
    }
}
