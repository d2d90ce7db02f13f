//! Packed unwind data: one word that stands for a prolog and an epilog of the usual form.

use alloc::vec::Vec;

use super::codes::Step;
use super::{Epilogs, FP, Function, INSTRUCTION, LINK, Steps};

/// The return address is saved by itself; with a frame record and signed; with a frame record.
const LINK_ALONE: u32 = 1;
const SIGNED_RECORD: u32 = 2;
const RECORD: u32 = 3;
/// The most bytes that one `sub` takes here, and the most that a store of a pair moves the stack pointer by.
const LARGEST_SUB: i64 = 4080;
const LARGEST_STORE: i64 = 512;

/// The function that `data` describes. A fragment has the frame of its function and neither prolog nor epilog.
pub(super) fn function(data: u32, is_fragment: bool) -> Result<Function<'static>, &'static str> {
    let length = INSTRUCTION * u64::from(data >> 2 & 0x7ff);
    let (vector, general) = (i64::from(data >> 13 & 7), data >> 16 & 15);
    let (homes, kind) = (data >> 20 & 1 != 0, data >> 21 & 3);
    let frame = i64::from(data >> 23) * 16;
    if general > 10 {
        return Err("exception directory: packed data with more registers than there are");
    }
    let vectors = if vector == 0 { 0 } else { vector + 1 };
    let general_bytes = i64::from(general) * 8 + if kind == LINK_ALONE { 8 } else { 0 };
    let saved = (general_bytes + vectors * 8 + if homes { 64 } else { 0 } + 15) & !15;
    let locals = frame - saved;
    if locals < 0 {
        return Err("exception directory: packed data with a frame smaller than what is saved in it");
    }
    let mut steps = Steps { steps: Vec::new(), own: 0, is_part: is_fragment, is_ended: true };
    let has_record = kind == RECORD || kind == SIGNED_RECORD;
    let mut add = |step: Step| steps.steps.push(step);
    if kind == SIGNED_RECORD {
        add(Step::Sign);
    }
    for first in (0..general).step_by(2) {
        let register = Some(19 + first as u8);
        let at = i64::from(first) * 8;
        let is_alone = first + 1 == general;
        let second = match (is_alone, kind) {
            (false, _) => register.map(|register| register + 1),
            (true, LINK_ALONE) => Some(LINK),
            (true, _) => None,
        };
        if at > 0 {
            add(Step::Save { first: register, second, at });
        } else if is_alone && kind == LINK_ALONE {
            // This pair has no form that moves the stack pointer.
            add(Step::Allocate(saved));
            add(Step::Save { first: register, second, at });
        } else {
            add(Step::SaveBelow { first: register, second, bytes: saved });
        }
    }
    if kind == LINK_ALONE && general % 2 == 0 {
        add(match general {
            0 => Step::SaveBelow { first: Some(LINK), second: None, bytes: saved },
            _ => Step::Save { first: Some(LINK), second: None, at: general_bytes - 8 },
        });
    }
    let mut is_moved = general > 0 || kind == LINK_ALONE;
    for _ in (0..vectors).step_by(2) {
        add(if is_moved { Step::None } else { Step::Allocate(saved) });
        is_moved = true;
    }
    // The stores of arguments have nothing that answers to them in the epilog, unless the first one moves the stack pointer.
    let mut skipped = Vec::new();
    if homes {
        for _ in 0..4 {
            if is_moved {
                skipped.push(steps.steps.len());
            }
            steps.steps.push(if is_moved { Step::None } else { Step::Allocate(saved) });
            is_moved = true;
        }
    }
    let mut add = |step: Step| steps.steps.push(step);
    if locals > LARGEST_SUB {
        add(Step::Allocate(LARGEST_SUB));
        add(Step::Allocate(locals - LARGEST_SUB));
    } else if (!has_record && locals > 0) || locals > LARGEST_STORE {
        add(Step::Allocate(locals));
    }
    if has_record {
        let (first, second) = (Some(FP), Some(LINK));
        add(match locals <= LARGEST_STORE {
            true => Step::SaveBelow { first, second, bytes: locals },
            false => Step::Save { first, second, at: 0 },
        });
        skipped.push(steps.steps.len());
        steps.steps.push(Step::SetFrame(0));
    }
    if is_fragment {
        return Ok(Function { length, prolog: steps, epilogs: Epilogs::One(None) });
    }
    steps.own = steps.steps.len();
    let undone = steps.steps.iter().enumerate().filter(|(at, _)| !skipped.contains(at)).map(|(_, step)| *step);
    let undone: Vec<Step> = undone.collect();
    let epilog = Steps { own: undone.len(), steps: undone, is_part: false, is_ended: true };
    let bytes = INSTRUCTION * (epilog.own as u64 + 1);
    let start = length.checked_sub(bytes).ok_or("exception directory: an epilog longer than its function")?;
    Ok(Function { length, prolog: steps, epilogs: Epilogs::One(Some((start, epilog))) })
}
