//! Unwind codes of `.xdata` records.

use alloc::vec::Vec;

use super::Steps;

pub(super) const CUT: &str = "exception directory: unwind information that is not in the file";
const END: u8 = 0xe4;
const END_OF_PART: u8 = 0xe5;
const FP: u8 = 29;
const LINK: u8 = 30;

/// What one instruction of a prolog does. Registers by DWARF number; `None` for vector registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to the frame.
    None,
    /// The stack pointer goes down by so many bytes.
    Allocate(i64),
    /// Registers are stored at so many bytes above the stack pointer.
    Save { first: Option<u8>, second: Option<u8>, at: i64 },
    /// The stack pointer goes down by so many bytes, and registers are stored there.
    SaveBelow { first: Option<u8>, second: Option<u8>, bytes: i64 },
    /// The pair after the last one is stored above it.
    SaveNext,
    /// The frame pointer becomes the stack pointer plus so many bytes.
    SetFrame(i64),
    /// The return address is signed.
    Sign,
    /// The stack begins with stack pointer and program counter of what was interrupted.
    MachineFrame,
    /// The stack begins with a `CONTEXT`, of which the general registers lie as Linux has them in `struct sigcontext`.
    Context,
    /// What the frame leads to is no return address.
    ClearCall,
}

impl Step {
    /// Whether it says what the stack is like when the code is entered, and stands for no instruction.
    pub(super) fn is_of_entry(self) -> bool {
        matches!(self, Self::MachineFrame | Self::Context | Self::ClearCall)
    }
}

/// The steps of the sequence that begins at `index`, in the order of a prolog's instructions. Each takes one from `budget`.
pub(super) fn steps(codes: &[u8], index: usize, budget: &mut usize) -> Result<Steps, &'static str> {
    let mut rest = codes.get(index..).ok_or(CUT)?;
    let mut steps = Vec::new();
    let mut own = None;
    let is_ended = loop {
        *budget = budget.checked_sub(1).ok_or("exception directory: more unwind codes than a sane one has")?;
        match rest {
            // A record may end with its last code.
            [] => break false,
            [END, ..] => break true,
            [END_OF_PART, more @ ..] => {
                own.get_or_insert(instructions(&steps));
                rest = more;
            }
            _ => {
                let (step, bytes) = step(rest).ok_or("exception directory: an unknown unwind code")?;
                steps.push(step);
                rest = rest.get(bytes..).ok_or(CUT)?;
            }
        }
    };
    let (is_part, own) = (own.is_some(), own.unwrap_or_else(|| instructions(&steps)));
    // The last instruction stands first.
    steps.reverse();
    Ok(Steps { steps, own, is_part, is_ended })
}

fn instructions(steps: &[Step]) -> usize {
    steps.iter().filter(|step| !step.is_of_entry()).count()
}

/// The code that `codes` begins with, and its bytes.
fn step(codes: &[u8]) -> Option<(Step, usize)> {
    let first = *codes.first()?;
    let pair = |register: u8| (Some(register), Some(register + 1));
    let save = |(first, second), at: i64| Step::Save { first, second, at };
    let below = |(first, second), bytes: i64| Step::SaveBelow { first, second, bytes };
    let one = match first {
        0x00..=0x1f => Some(Step::Allocate(i64::from(first) * 16)),
        0x20..=0x3f => Some(below(pair(19), i64::from(first & 0x1f) * 8)),
        0x40..=0x7f => Some(save(pair(FP), i64::from(first & 0x3f) * 8)),
        0x80..=0xbf => Some(below(pair(FP), i64::from(first & 0x3f) * 8 + 8)),
        0xe1 => Some(Step::SetFrame(0)),
        0xe3 => Some(Step::None),
        0xe6 => Some(Step::SaveNext),
        0xe9 => Some(Step::MachineFrame),
        0xea => Some(Step::Context),
        0xec => Some(Step::ClearCall),
        0xfc => Some(Step::Sign),
        _ => None,
    };
    if let Some(step) = one {
        return Some((step, 1));
    }
    let second = *codes.get(1)?;
    // Most codes of two bytes: four bits of a register, six of an offset.
    let number = (first & 3) << 2 | second >> 6;
    let wide = i64::from(second & 0x3f) * 8;
    let short = i64::from(second & 0x1f) * 8 + 8;
    let general = |number: u8| Some(19 + number).filter(|register| *register <= LINK);
    Some(match first {
        0xc0..=0xc7 => (Step::Allocate((i64::from(first & 7) << 8 | i64::from(second)) * 16), 2),
        0xc8..=0xcb => (save((Some(general(number)?), Some(general(number + 1)?)), wide), 2),
        0xcc..=0xcf => (below((Some(general(number)?), Some(general(number + 1)?)), wide + 8), 2),
        0xd0..=0xd3 => (save((Some(general(number)?), None), wide), 2),
        0xd4 | 0xd5 => (below((Some(general((first & 1) << 3 | second >> 5)?), None), short), 2),
        0xd6 | 0xd7 => {
            let number = 2 * ((first & 1) << 2 | second >> 6);
            (save((Some(general(number)?), Some(LINK)), wide), 2)
        }
        0xd8 | 0xd9 | 0xdc | 0xdd => (save((None, None), wide), 2),
        0xda | 0xdb => (below((None, None), wide + 8), 2),
        0xde => (below((None, None), short), 2),
        0xe0 => {
            let [_, a, b, c] = *codes.first_chunk::<4>()?;
            (Step::Allocate(i64::from(u32::from_be_bytes([0, a, b, c])) * 16), 4)
        }
        0xe2 => (Step::SetFrame(i64::from(second) * 8), 2),
        0xe7 => (any_register(second, *codes.get(2)?)?, 3),
        _ => return None,
    })
}

/// `save_any_reg`: any register of any kind, alone or with the next.
fn any_register(second: u8, third: u8) -> Option<Step> {
    let (is_pair, is_below, number) = (second & 0x40 != 0, second & 0x20 != 0, second & 0x1f);
    let kind = third >> 6;
    if second & 0x80 != 0 || kind == 3 || number > LINK {
        return None;
    }
    let unit = if is_pair || is_below || kind == 2 { 16 } else { 8 };
    let first = (kind == 0).then_some(number);
    let next = (kind == 0 && is_pair && number < LINK).then_some(number + 1);
    let offset = i64::from(third & 0x3f);
    Some(match is_below {
        true => Step::SaveBelow { first, second: next, bytes: (offset + 1) * unit },
        false => Step::Save { first, second: next, at: offset * unit },
    })
}
