//! What a program with coroutines (`single_step/coroutines.cpp`) notes of who waits for whom, held against the frames behind the stack, whoever runs the program.

pub(crate) mod tasks;

use std::collections::{BTreeMap, HashMap};

use object::{Object, ObjectSymbol};
use symseal_module::{FrameEdge, StopReason};
use symseal_unwind::{Frame, Walk};

/// What the coroutines call.
const WORK: &str = "work";

/// What was compared.
#[derive(Default)]
pub(crate) struct Seen {
    /// Instructions of what coroutines call.
    pub(crate) instructions: usize,
    /// Of these, with other frames than those that wait, and with none although some wait.
    wrong: usize,
    missing: usize,
    parents: usize,
    depths: BTreeMap<usize, usize>,
    /// Instructions below a coroutine that was inlined.
    inlined: usize,
    /// Instructions elsewhere with frames that wait, and of these with one that does not.
    elsewhere: usize,
    wrong_elsewhere: usize,
}

/// Who waits for whom, as the program has it.
pub(crate) struct Noted {
    waits: HashMap<u64, u64>,
    running: u64,
    is_busy: bool,
}

impl Noted {
    /// What is in the variables of the program: `symbol` gives their addresses, and `word` what is there.
    pub(crate) fn of(symbol: impl Fn(&str) -> u64, word: impl Fn(u64) -> u64) -> Self {
        let entries = (0..word(symbol("wait_count"))).map(|at| symbol("waits") + 16 * at);
        let waits = entries.map(|entry| (word(entry), word(entry + 8))).collect();
        Self { waits, running: word(symbol("running")), is_busy: word(symbol("busy")) == 1 }
    }

    /// A coroutine and those that wait for it, the innermost first.
    fn chain_of(&self, frame: u64) -> Vec<u64> {
        let chain = std::iter::successors(Some(frame), |frame| self.waits.get(frame).copied());
        // While it is being written it may lead anywhere.
        chain.take(self.waits.len() + 1).collect()
    }
}

/// The addresses of all symbols of a program, as stated.
pub(crate) fn symbols(program: &[u8]) -> HashMap<String, u64> {
    let file = object::File::parse(program).expect("an ELF file");
    file.symbols().filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address()))).collect()
}

impl Seen {
    /// The walk at one instruction. `noted` gives what the program has noted, `name` the function of a frame, and `word` what is at an address.
    pub(crate) fn look(
        &mut self,
        walk: &Walk,
        frames: &[Frame],
        noted: impl Fn() -> Noted,
        name: impl Fn(&Frame) -> String,
        word: impl Fn(u64) -> u64,
    ) {
        let (stack, parents) = frames[..walk.frames].split_at(walk.physical());
        let innermost = name(&stack[0]);
        let is_work = name_of(&innermost).is_some_and(|(function, _)| function == WORK);
        if !is_work && parents.is_empty() {
            return;
        }
        let noted = noted();
        let found: Vec<u64> = parents.iter().map(|frame| frame.cfa.0).collect();
        let show = || println!("{:#?}", stack.iter().map(&name).collect::<Vec<_>>());
        // Where the function of a frame begins. A coroutine that was inlined into the one that awaits it is a part of that one's function.
        let beginning = |frame: &Frame| frame.lookup_pc().0 - name_of(&name(frame)).expect("a function").1;
        if is_work && noted.is_busy {
            assert_eq!(walk.stop, StopReason::EndOfStack, "{innermost}");
            let function = beginning(&stack[1]);
            let chain = noted.chain_of(noted.running);
            let own = chain.iter().position(|frame| word(*frame) == function);
            let own = own.unwrap_or_else(|| panic!("the frame of {}", name(&stack[1])));
            self.inlined += usize::from(own > 0);
            let expected = &chain[own + 1..];
            self.instructions += 1;
            self.parents += expected.len();
            *self.depths.entry(expected.len()).or_default() += 1;
            if found.is_empty() && !expected.is_empty() {
                if self.missing == 0 {
                    println!("missing:");
                    show();
                }
                self.missing += 1;
            } else if found != expected {
                if self.wrong == 0 {
                    println!("wrong: {found:x?}, not {expected:x?}");
                    show();
                }
                self.wrong += 1;
            }
            // Where each goes on is what its own frame begins with.
            for frame in parents {
                assert_eq!(frame.pc.0, word(frame.cfa.0), "{innermost}");
                assert!(frame.exact && frame.edge(&stack[0]) == FrameEdge::AsyncParent, "{innermost}");
            }
            assert!(walk.continuation.is_none_or(|it| it.awaited == 1) || found != expected, "{innermost}");
        } else if !found.is_empty() {
            self.elsewhere += 1;
            let function = beginning(&stack[walk.continuation.map_or(0, |it| it.awaited)]);
            // One of that function, or at its end, for which these wait, and nobody else.
            let is_noted = noted
                .waits
                .keys()
                .any(|awaited| [function, 0].contains(&word(*awaited)) && noted.chain_of(*awaited)[1..] == found);
            if !is_noted && self.wrong_elsewhere == 0 {
                println!("wrong elsewhere: {found:x?}, {:x?}", noted.waits);
                show();
            }
            self.wrong_elsewhere += usize::from(!is_noted);
        }
    }

    /// Prints what was seen, and holds it to what may be: nothing wrong, and of a hundred instructions at most `may_miss` without what waits.
    pub(crate) fn check(&self, program: &str, may_miss: usize) {
        let Self { instructions, wrong, missing, parents, depths, inlined, elsewhere, wrong_elsewhere } = self;
        println!(
            "{program}: {instructions} instructions, {parents} frames wait, {missing} walks without, {wrong} wrong; \
             {inlined} inlined; {elsewhere} elsewhere, {wrong_elsewhere} wrong; by depth {depths:?}"
        );
        assert_eq!((*wrong, *wrong_elsewhere), (0, 0), "{program}");
        assert!(*instructions > 300 && (0..=4).all(|depth| depths.contains_key(&depth)), "{program}: {depths:?}");
        assert!(missing * 100 <= instructions * may_miss, "{program}: {missing} of {instructions}");
    }
}

/// The function in a name, and how far from its beginning.
fn name_of(name: &str) -> Option<(&str, u64)> {
    let (function, offset) = name.rsplit(' ').next()?.rsplit_once("+0x")?;
    Some((function, u64::from_str_radix(offset, 16).ok()?))
}
