//! What an instruction does to the stack frame and to control flow. (MIPS32 Architecture, volume II, releases 1 to 5)

/// `$at`.
pub(super) const AT: u8 = 1;
pub(super) const SP: u8 = 29;
pub(super) const FP: u8 = 30;
pub(super) const RA: u8 = 31;

/// What an instruction does to registers and their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that matters for frames.
    None,
    /// `to` = `from` + constant.
    Add { to: u8, from: u8, value: i32 },
    /// `to` = constant.
    Set { to: u8, value: i32 },
    /// `to` = `to` | constant, the second half of loading a large one.
    Or { to: u8, value: i32 },
    /// `to` = `a` + `b`, or `a` − `b`.
    Sum { to: u8, a: u8, b: u8, minus: bool },
    /// A word is stored.
    Store { register: u8, base: u8, offset: i32 },
    /// A word is loaded.
    Load { register: u8, base: u8, offset: i32 },
    /// The register gets a value that is not known here.
    Write(u8),
}

/// Where an instruction leads, its delay slot apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next one; there is no delay slot.
    Next,
    /// To this many bytes from the delay slot.
    Branch { distance: i64, is_conditional: bool, is_likely: bool, links: bool },
    /// To this place in the 256 MiB that the delay slot lies in.
    Jump { place: u64, links: bool },
    /// To where a register points. `links` is the register that gets the return address.
    Register { register: u8, links: Option<u8> },
    /// It traps.
    Trap,
}

pub(super) fn decode(word: u32) -> (Effect, Flow) {
    let field = |at: u32| (word >> at & 31) as u8;
    let (rs, rt, rd) = (field(21), field(16), field(11));
    let immediate = i32::from(word as u16 as i16);
    let branch = |is_conditional, is_likely, links| Flow::Branch {
        distance: i64::from(immediate) * 4,
        is_conditional,
        is_likely,
        links,
    };
    let next = |effect| (effect, Flow::Next);
    match word >> 26 {
        0 => special(word, (rs, rt, rd)),
        1 => match rt {
            // bltz, bgez and their likely forms; with 16 added they link. `bal` compares $zero.
            0..=3 => (Effect::None, branch(true, rt >= 2, false)),
            16..=19 => (Effect::None, branch(!(rt == 17 && rs == 0), rt >= 18, true)),
            _ => next(Effect::None),
        },
        op @ (2 | 3) => (Effect::None, Flow::Jump { place: u64::from(word & 0x03ff_ffff) << 2, links: op == 3 }),
        // beq of a register with itself always branches.
        4 => (Effect::None, branch(rs != rt, false, false)),
        5..=7 => (Effect::None, branch(true, false, false)),
        20..=23 => (Effect::None, branch(true, true, false)),
        // addi, addiu
        8 | 9 if rs == 0 => next(Effect::Set { to: rt, value: immediate }),
        8 | 9 => next(Effect::Add { to: rt, from: rs, value: immediate }),
        // ori
        13 if rs == 0 => next(Effect::Set { to: rt, value: i32::from(word as u16) }),
        13 if rs == rt => next(Effect::Or { to: rt, value: i32::from(word as u16) }),
        // lui
        15 if rs == 0 => next(Effect::Set { to: rt, value: (word << 16) as i32 }),
        10..=15 => next(Effect::Write(rt)),
        // Coprocessors: branches on their conditions; mfc and cfc write a general register.
        16..=18 if rs == 8 => (Effect::None, branch(true, rt & 2 != 0, false)),
        16..=18 if rs < 4 => next(Effect::Write(rt)),
        // SPECIAL2: mul writes rd, and so do the counting instructions.
        28 => next(Effect::Write(rd)),
        // SPECIAL3: ext and ins write rt, rdhwr too, the others rd.
        31 if matches!(word & 63, 0 | 4 | 59) => next(Effect::Write(rt)),
        31 => next(Effect::Write(rd)),
        // lw
        35 => next(Effect::Load { register: rt, base: rs, offset: immediate }),
        // Other loads, also ll.
        32..=38 | 48 => next(Effect::Write(rt)),
        // sw
        43 => next(Effect::Store { register: rt, base: rs, offset: immediate }),
        // sc
        56 => next(Effect::Write(rt)),
        _ => next(Effect::None),
    }
}

fn special(word: u32, (rs, rt, rd): (u8, u8, u8)) -> (Effect, Flow) {
    let next = |effect| (effect, Flow::Next);
    match word & 63 {
        8 => (Effect::None, Flow::Register { register: rs, links: None }),
        9 => (Effect::None, Flow::Register { register: rs, links: (rd != 0).then_some(rd) }),
        // syscall gives its results in temporaries.
        12 => next(Effect::None),
        13 => (Effect::None, Flow::Trap),
        // mthi, mtlo, multiplications and divisions, traps
        17 | 19 | 24..=27 | 48..=54 => next(Effect::None),
        // A move, as addu or or with $zero.
        33 | 37 if rt == 0 => next(Effect::Add { to: rd, from: rs, value: 0 }),
        33 | 37 if rs == 0 => next(Effect::Add { to: rd, from: rt, value: 0 }),
        32 | 33 => next(Effect::Sum { to: rd, a: rs, b: rt, minus: false }),
        34 | 35 => next(Effect::Sum { to: rd, a: rs, b: rt, minus: true }),
        _ if rd != 0 => next(Effect::Write(rd)),
        _ => next(Effect::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_words() {
        let check = |word, effect, flow| assert_eq!(decode(word), (effect, flow), "{word:08x}");
        check(0x27bd_ffe0, Effect::Add { to: 29, from: 29, value: -32 }, Flow::Next);
        check(0xafbf_001c, Effect::Store { register: 31, base: 29, offset: 28 }, Flow::Next);
        check(0x8fbf_001c, Effect::Load { register: 31, base: 29, offset: 28 }, Flow::Next);
        check(0x03a0_f025, Effect::Add { to: 30, from: 29, value: 0 }, Flow::Next); // move $s8, $sp
        check(0x03a0_f021, Effect::Add { to: 30, from: 29, value: 0 }, Flow::Next);
        check(0x3c01_0001, Effect::Set { to: 1, value: 0x10000 }, Flow::Next); // lui
        check(0x03a1_e823, Effect::Sum { to: 29, a: 29, b: 1, minus: true }, Flow::Next);
        check(0x03e0_0008, Effect::None, Flow::Register { register: 31, links: None });
        check(0x0320_f809, Effect::None, Flow::Register { register: 25, links: Some(31) });
        let bal = Flow::Branch { distance: 4, is_conditional: false, is_likely: false, links: true };
        check(0x0411_0001, Effect::None, bal);
        let b = Flow::Branch { distance: -8, is_conditional: false, is_likely: false, links: false };
        check(0x1000_fffe, Effect::None, b);
        let beql = Flow::Branch { distance: 8, is_conditional: true, is_likely: true, links: false };
        check(0x5040_0002, Effect::None, beql);
        check(0x0c10_0400, Effect::None, Flow::Jump { place: 0x40_1000, links: true });
        check(0x0000_000d, Effect::None, Flow::Trap);
        check(0, Effect::None, Flow::Next);
        check(0x0045_1021, Effect::Sum { to: 2, a: 2, b: 5, minus: false }, Flow::Next);
        check(0x7062_8002, Effect::Write(16), Flow::Next); // mul $s0, $v1, $v0
    }
}
