//! The operations that give a frame back, as the frame that they describe. (IHI 0038, section 10.3)
//!
//! They move a virtual stack pointer and pop registers from it. Each rule of the frame is a distance between two of its values:
//!
//! * CFA = where it ends;
//! * a register's slot = where it was when the register was popped;
//! * return address = the slot of pc, else the slot of lr, else lr itself.

use crate::arch::Machine;
use crate::compile::layout::{Layout, Place};

const SP: u8 = 13;
const LR: u8 = 14;
const PC: u8 = 15;
const REFUSED: &str = "exception index: it refuses to be unwound";
const UNKNOWN: &str = "exception index: an operation without a meaning";
const CUT: &str = "exception index: an operation that is cut";

/// The virtual stack pointer, and where registers were popped.
struct Virtual {
    base: u8,
    /// Bytes from `base`.
    at: i64,
    popped: [Option<i64>; 16],
}

impl Virtual {
    /// Pops the registers of `list` from bit 0 on, of which the lowest is `first`.
    fn pop(&mut self, list: u32, first: u8) {
        for bit in 0..16u8 {
            if list >> bit & 1 == 0 {
                continue;
            }
            if let Some(slot) = self.popped.get_mut(usize::from(first.saturating_add(bit))) {
                *slot = Some(self.at);
            }
            self.at += 4;
        }
    }
}

/// The frame that `operations` give back; else why they do not tell.
pub(super) fn layout(operations: &[u8], machine: &'static Machine) -> Result<Layout, &'static str> {
    let mut stack = Virtual { base: SP, at: 0, popped: [None; 16] };
    let mut bytes = operations.iter().copied();
    while let Some(operation) = bytes.next() {
        let mut operand = || bytes.next().map(u32::from).ok_or(CUT);
        // Registers of vectors, eight bytes each, from a first one on.
        let vectors = |operand: u32| 8 * i64::from((operand & 15) + 1);
        match operation {
            0x00..0x40 => stack.at += i64::from(operation & 0x3f) * 4 + 4,
            0x40..0x80 => stack.at -= i64::from(operation & 0x3f) * 4 + 4,
            0x80..0x90 => match u32::from(operation & 15) << 8 | operand()? {
                0 => return Err(REFUSED),
                list => stack.pop(list, 4),
            },
            0x9d | 0x9f => return Err(UNKNOWN),
            0x90..0xa0 => {
                if stack.popped.iter().any(Option::is_some) {
                    // Slots that lie relative to one register and a CFA that lies relative to another.
                    return Err("exception index: registers that are popped from two places");
                }
                (stack.base, stack.at) = (operation & 15, 0);
            }
            0xa0..0xb0 => {
                stack.pop((2 << (operation & 7)) - 1, 4);
                if operation & 8 != 0 {
                    stack.pop(1, LR);
                }
            }
            0xb0 => break,
            0xb1 => match operand()? {
                list @ 1..16 => stack.pop(list, 0),
                _ => return Err(UNKNOWN),
            },
            0xb2 => {
                let (mut value, mut shift) = (0i64, 0);
                loop {
                    let byte = operand()?;
                    value |= i64::from(byte & 0x7f) << shift;
                    shift += 7;
                    if byte & 0x80 == 0 || shift > 28 {
                        break;
                    }
                }
                stack.at += 0x204 + value * 4;
            }
            // As FSTMFDX stores them, with a word more.
            0xb3 => stack.at += vectors(operand()?) + 4,
            0xb8..0xc0 => stack.at += vectors(u32::from(operation & 7)) + 4,
            // Of wireless MMX.
            0xc0..0xc6 => stack.at += vectors(u32::from(operation & 7)),
            0xc6 | 0xc8 | 0xc9 => stack.at += vectors(operand()?),
            0xc7 => match operand()? {
                list @ 1..16 => stack.at += 4 * i64::from(list.count_ones()),
                _ => return Err(UNKNOWN),
            },
            0xd0..0xd8 => stack.at += vectors(u32::from(operation & 7)),
            0xb4..0xb8 | 0xca..0xd0 | 0xd8..=0xff => return Err(UNKNOWN),
        }
    }
    let slot = |register: u8| stack.popped.get(usize::from(register)).copied().flatten().map(|at| at - stack.at);
    if slot(SP).is_some() {
        return Err("exception index: the stack pointer itself is popped");
    }
    let mut layout = Layout::entry(machine);
    (layout.base, layout.cfa) = (stack.base, stack.at);
    if let Some(at) = slot(PC).or(slot(LR)) {
        layout.return_address = Place::AtCfa(at);
    }
    for register in machine.slot_registers.iter().chain([&machine.fp]) {
        if let Some(at) = slot(*register) {
            layout.save(*register, at);
        }
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use crate::rule::RuleSource;
    use alloc::string::ToString;

    fn check(operations: &[u8], expected: Result<&str, &str>) {
        let machine = Arch::Arm.machine();
        let found = layout(operations, machine).map(|layout| {
            let (rule, _) = layout.rule(machine, RuleSource::Exidx).expect("fits");
            rule.display(Arch::Arm).to_string()
        });
        assert_eq!(found.as_deref().map_err(|reason| *reason), expected, "{operations:x?}");
    }

    #[test]
    fn operations_describe_the_frame_that_they_give_back() {
        check(&[0xb0, 0xb0, 0xb0], Ok("CFA = sp+0; RA = lr"));
        check(&[0xb1, 0x08, 0xa9, 0xb0], Ok("CFA = sp+16; RA = [CFA-4]")); // pop {r3}; pop {r4, r5, lr}
        check(&[0x84, 0x08, 0xb0], Ok("CFA = sp+8; RA = [CFA-4]")); // pop {r7, lr}
        check(&[0x02, 0x84, 0x88], Ok("CFA = sp+24; RA = [CFA-4]; r11 = [CFA-8]")); // sp += 12; pop {r7, r11, lr}
        check(&[0x9b, 0x40, 0x84, 0x80, 0xb0], Ok("CFA = r11+4; RA = [CFA-4]; r11 = [CFA-8]")); // sp = r11; sp -= 4; pop {r11, lr}
        check(&[0x97, 0xa8, 0xb0], Ok("CFA = r7+8; RA = [CFA-4]")); // sp = r7; pop {r4, lr}
        check(&[0xb2, 0x04, 0x84, 0x00], Ok("CFA = sp+536; RA = [CFA-4]")); // sp += 0x204 + 16; pop {lr}
        check(&[0xc9, 0x81, 0xa8], Ok("CFA = sp+24; RA = [CFA-4]")); // pop {d8, d9}; pop {r4, lr}
        check(&[0xd1, 0xa8], Ok("CFA = sp+24; RA = [CFA-4]"));
        check(&[0xb3, 0x81, 0xa8], Ok("CFA = sp+28; RA = [CFA-4]"));
        check(&[0x88, 0x00], Ok("CFA = sp+4; RA = [CFA-4]")); // pop {pc}
        check(&[0x80, 0x00], Err(REFUSED));
        check(&[0x80], Err(CUT));
        check(&[0x9d], Err(UNKNOWN));
        check(&[0xb1, 0x10], Err(UNKNOWN));
        check(&[0x82, 0x00], Err("exception index: the stack pointer itself is popped"));
        check(&[0xa8, 0x97], Err("exception index: registers that are popped from two places"));
    }
}
