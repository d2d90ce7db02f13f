//! One entry into the kernel, followed until it leaves it.

use std::collections::HashMap;
use std::fmt;
use std::io::Error;

use symseal_module::{Avma, FrameEdge, StopReason};
use symseal_unwind::{Cache, Frame, Memory, Registers, unwind};

use crate::machine::{Machine, Seen, registers};
use crate::shadow::{Kind, Shadow};
use crate::stopped::Stopped;

/// What a scene begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// `syscall` of a process: rcx has its program counter, the stack is still its own.
    Call,
    /// The processor pushed a frame, and an error code below it.
    Fault,
    /// The processor pushed a frame.
    Interrupt,
}

/// Name, where it begins, how often.
pub(crate) const SCENES: [(&str, (&str, Begin), usize); 3] = [
    ("system calls", ("entry_SYSCALL_64", Begin::Call), 24),
    ("page faults", ("asm_exc_page_fault", Begin::Fault), 6),
    ("timer interrupts", ("asm_sysvec_apic_timer_interrupt", Begin::Interrupt), 8),
];
/// Where exceptions within the kernel lead.
const ENTRIES: [&str; 2] = ["asm_exc_", "asm_sysvec_"];
const SWITCH: &str = "__switch_to_asm";
/// What entries from exceptions and interrupts call before all else, and the symbol behind it.
const HELPER: &str = "error_entry";
const HELPER_END: &str = "error_return";
/// A stack pointer that moves further within one instruction is another stack's.
const STACK: u64 = 1 << 14;
/// Switches to other tasks until the one that was left must come back.
const MOST_SWITCHES: usize = 500;
const MOST_FRAMES: usize = 256;
/// `struct pt_regs`: its size, and where each of the general registers is in it, by DWARF numbers.
const SAVED_BYTES: u64 = 168;
const SAVED: [u64; 16] = [80, 96, 88, 40, 104, 112, 32, 152, 72, 64, 56, 48, 24, 16, 8, 0];
const SAVED_IP: u64 = 128;

#[derive(Debug, Default)]
pub(crate) struct Score {
    pub(crate) instructions: usize,
    pub(crate) right: usize,
    /// Instructions whose stack leads to a process.
    pub(crate) boundaries: usize,
    /// Frames beyond the running function that were held against the truth.
    pub(crate) frames: usize,
    /// Where the stack changed hands.
    pub(crate) switches: usize,
    /// Instructions at which the entry that called its helper is left out.
    pub(crate) helpers: usize,
    /// Instructions at which the process's own stack is in no memory.
    pub(crate) unmapped: usize,
    pub(crate) desynchronised: usize,
    /// Places where the walk ends for want of a rule, before the end and with nothing false.
    pub(crate) short: Vec<String>,
    /// Place, and what was found and expected there.
    pub(crate) wrong: Vec<(String, String)>,
}

impl Score {
    pub(crate) fn add(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.right += other.right;
        self.boundaries += other.boundaries;
        self.frames += other.frames;
        self.switches += other.switches;
        self.helpers += other.helpers;
        self.unmapped += other.unmapped;
        self.desynchronised += other.desynchronised;
        self.short.extend(other.short);
        self.wrong.extend(other.wrong);
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instructions, right, boundaries, frames, switches, helpers, unmapped, desynchronised, short, wrong } =
            self;
        let (short, wrong) = (short.len(), wrong.len());
        write!(
            f,
            "{right} of {instructions} instructions right, {short} short, {wrong} wrong, {frames} frames, {boundaries} stacks that lead to a process, \
             {switches} switches of tasks, {helpers} without the entry that called its helper, {unmapped} whose process's stack is not mapped, {desynchronised} returns elsewhere"
        )
    }
}

pub(crate) struct Scene<'m> {
    machine: &'m mut Machine,
    shadow: Shadow,
    /// The frames of the process, if it was one that was interrupted.
    process: Vec<Frame>,
    /// Why there are no more of them: while a handler's registers are taken back, they may be those of nothing.
    process_stop: StopReason,
    /// Where the registers are that the process gets back (`struct pt_regs`): a signal changes them.
    saved: u64,
    now: Registers,
    code: HashMap<u64, Vec<u8>>,
    cache: Cache,
}

impl<'m> Scene<'m> {
    /// Runs on to the next such entry, of a process if there is a choice.
    pub(crate) fn begin(machine: &'m mut Machine, (entry, begin): (&str, Begin)) -> Result<Self, Error> {
        let address = machine.address(entry);
        machine.emulated.step(None)?;
        assert!(machine.emulated.run_until(address, 1, |_| true)?);
        let now = machine.registers()?;
        let mut interrupted = now;
        let word =
            |machine: &mut Machine, at: u64| Seen::new(&mut machine.emulated).read_u64(Avma(at)).expect("a word");
        match begin {
            Begin::Call => interrupted.pc = now.general[2].expect("rcx"),
            Begin::Fault | Begin::Interrupt => {
                let frame = now.sp + if begin == Begin::Fault { 8 } else { 0 };
                interrupted.pc = word(machine, frame);
                interrupted.sp = word(machine, frame + 24);
            }
        }
        interrupted.general[7] = Some(interrupted.sp);
        let is_process = interrupted.pc >> 63 == 0;
        let (process, process_stop) = match is_process {
            true => process_frames(machine, &interrupted),
            false => (Vec::new(), StopReason::NoModule),
        };
        assert!(!is_process || process_stop.is_complete(), "{interrupted:x?}");
        let per_cpu = word(machine, machine.address("__per_cpu_offset"));
        let top = word(machine, per_cpu.wrapping_add(machine.address("cpu_current_top_of_stack")));
        let mut shadow = Shadow::default();
        shadow.interrupted(&interrupted);
        let saved = top - SAVED_BYTES;
        Ok(Self { machine, shadow, process, process_stop, saved, now, code: HashMap::new(), cache: Cache::new() })
    }

    /// Follows it to its end, or for so many instructions.
    pub(crate) fn run(mut self, steps: usize, score: &mut Score) -> Result<(), Error> {
        let switch = self.machine.address(SWITCH);
        for _ in 0..steps {
            self.compare(score);
            let before = self.now;
            let kind = Kind::of(&self.code_at(before.pc)?);
            self.machine.emulated.step(None)?;
            let after = self.machine.registers()?;
            let has_moved = after.sp.abs_diff(before.sp) >= STACK;
            self.now = after;
            // Nobody calls the entries of interrupts.
            let is_entry = kind != Kind::Call && self.machine.begins(after.pc, &ENTRIES) || self.is_interrupt();
            if is_entry && after.pc != before.pc {
                let interrupted = self.interrupted(kind, &before);
                self.shadow.interrupted(&interrupted);
            } else if has_moved && before.pc.wrapping_sub(switch) < 64 {
                score.switches += 1;
                let is_back = |packet: &[u8]| registers(packet).sp == before.sp;
                if !self.machine.emulated.run_until(after.pc, MOST_SWITCHES, is_back)? {
                    break;
                }
                self.now = self.machine.registers()?;
            } else {
                let top = Seen::new(&mut self.machine.emulated).read_u64(Avma(after.sp));
                self.shadow.executed(kind, &before, &after, top);
            }
            if self.shadow.entries.is_empty() {
                break;
            }
        }
        score.desynchronised += self.shadow.desynchronised;
        Ok(())
    }

    fn is_interrupt(&self) -> bool {
        self.machine.begins(self.now.pc, &["asm_sysvec_"])
    }

    /// Where an exception began that led from `before` to the first instruction of an entry. An interrupt may have waited until the instruction there was executed.
    fn interrupted(&mut self, kind: Kind, before: &Registers) -> Registers {
        if !self.is_interrupt() {
            return *before;
        }
        let memory = Seen::new(&mut self.machine.emulated);
        // As the processor pushed them: rip, cs, rflags, rsp, ss.
        let pushed = |at: u64| memory.read_u64(Avma(self.now.sp + at)).expect("what the processor pushed");
        let behind = Registers { pc: pushed(0), sp: pushed(24), ..*before };
        if behind.pc != before.pc {
            self.shadow.executed(kind, before, &behind, memory.read_u64(Avma(behind.sp)));
        }
        behind
    }

    fn code_at(&mut self, pc: u64) -> Result<Vec<u8>, Error> {
        if let Some(code) = self.code.get(&pc) {
            return Ok(code.clone());
        }
        let code = self.machine.emulated.read(pc, 16)?;
        self.code.insert(pc, code.clone());
        Ok(code)
    }

    /// The process goes on where a signal was delivered, or where a handler came back to: what it gets back is in memory.
    fn follow_process(&mut self) {
        // They are there once an entry calls with the stack pointer at them. Before, and when they are given back, what was known last holds.
        let is_in_use = self.shadow.entries.get(1).is_some_and(|entry| entry.sp == self.saved);
        if self.process.is_empty() || !is_in_use {
            return;
        }
        let memory = Seen::new(&mut self.machine.emulated);
        let word = |offset: u64| memory.read_u64(Avma(self.saved + offset));
        let (Some(pc), Some(sp), Some(fp)) = (word(SAVED_IP), word(SAVED[7]), word(SAVED[6])) else { return };
        let Some(entry) = self.shadow.entries.first_mut() else { return };
        if (entry.pc, entry.sp) == (pc, sp) {
            return;
        }
        let mut general = [None; 32];
        for (register, offset) in general.iter_mut().zip(SAVED) {
            *register = word(offset);
        }
        (entry.pc, entry.sp, entry.fp) = (pc, sp, fp);
        (self.process, self.process_stop) = process_frames(self.machine, &Registers { pc, sp, fp, general });
    }

    /// Holds the walk against the shadow stack.
    fn compare(&mut self, score: &mut Score) {
        self.follow_process();
        let mut frames = vec![Frame::EMPTY; MOST_FRAMES];
        let memory = Seen::new(&mut self.machine.emulated);
        let walk = unwind(&self.machine.modules, &self.now, &memory, &mut self.cache, &mut frames);
        frames.truncate(walk.frames);
        let expected = self.shadow.entries.iter().rev().filter(|entry| !entry.is_gone);
        // The kernel's own tables lead from the helper with which an entry pushes the registers to what was interrupted, without the entry that called it.
        let helped = expected.clone().position(|entry| self.machine.is_helped(entry.pc));
        let helper = self.machine.address(HELPER)..self.machine.address(HELPER_END);
        let in_helper = |at: usize| match at.checked_sub(1) {
            Some(before) => expected.clone().nth(before).is_some_and(|entry| helper.contains(&entry.pc)),
            None => helper.contains(&self.now.pc),
        };
        let left_out = helped
            .filter(|at| in_helper(*at) && frames.get(at + 1).is_none_or(|frame| !self.machine.is_helped(frame.pc.0)));
        let expected = expected.enumerate().filter(|(at, _)| Some(*at) != left_out).map(|(_, entry)| entry);
        let expected: Vec<(u64, u64, bool)> = expected.map(|entry| (entry.pc, entry.sp, entry.exact)).collect();
        score.helpers += usize::from(left_out.is_some());
        let found: Vec<(u64, u64, bool)> = frames
            .iter()
            .zip(frames.iter().skip(1))
            .map(|(callee, caller)| (caller.pc.0, callee.cfa.0, caller.exact))
            .collect();
        let own = expected.len();
        let mut is_right = found.get(..own) == Some(expected.as_slice());
        let leads_to_process = !self.process.is_empty();
        if leads_to_process {
            let rest = frames.get(own..).unwrap_or_default();
            let place = |frame: &Frame| (frame.pc, frame.exact, frame.cfa);
            is_right &= rest.iter().map(place).eq(self.process.iter().map(place));
            is_right &= walk.stop == self.process_stop;
            let edge = frames.get(own).zip(frames.get(own - 1)).map(|(caller, callee)| caller.edge(callee));
            is_right &= edge == Some(FrameEdge::KernelEntry);
            score.boundaries += usize::from(is_right);
        }
        score.instructions += 1;
        score.frames += own + self.process.len().saturating_sub(1);
        if is_right {
            score.right += 1;
            return;
        }
        // Nothing that is false, and no end where there is none.
        let all = expected.iter().copied().chain(
            self.process
                .iter()
                .zip(self.process.iter().skip(1))
                .map(|(callee, caller)| (caller.pc.0, callee.cfa.0, caller.exact)),
        );
        let is_short = found.iter().copied().eq(all.take(found.len())) && !walk.stop.is_complete();
        if is_short
            && walk.stop == StopReason::TruncatedStack
            && frames.get(own).is_some_and(|frame| frame.pc.0 >> 63 == 0)
        {
            // While the kernel copies the page of the process's stack for it, nobody can read it.
            score.unmapped += 1;
            return;
        }
        if is_short {
            score.short.push(self.machine.name(self.now.pc));
            return;
        }
        let named = |list: &[(u64, u64, bool)]| {
            let names = list.iter().map(|(pc, sp, _)| format!("{}@{sp:x}", self.machine.name(*pc)));
            names.collect::<Vec<_>>().join(" ")
        };
        let story = format!("{}: found {} expected {}", walk.stop, named(&found), named(&expected));
        score.wrong.push((self.machine.name(self.now.pc), story));
    }
}

/// The frames of the process that has these registers, and why there are no more.
fn process_frames(machine: &mut Machine, registers: &Registers) -> (Vec<Frame>, StopReason) {
    let mut frames = vec![Frame::EMPTY; MOST_FRAMES];
    let memory = Seen::new(&mut machine.emulated);
    let walk = unwind(&machine.program, registers, &memory, &mut Cache::new(), &mut frames);
    frames.truncate(walk.frames);
    (frames, walk.stop)
}
