//! The rules of a table in the making, each once.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::rule::{Rule, Slots};

/// The number of a rule among [`Rules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RuleNumber(u32);

/// Places for rules that were seen lately.
const RECENT: usize = 1 << RECENT_BITS;
const RECENT_BITS: u32 = 9;

/// Rules with what goes with them, in the order in which they came. A module has a million rows and a few hundred rules.
pub(super) struct Rules {
    all: Vec<(Rule, Slots)>,
    known: HashMap<(Rule, Slots), RuleNumber>,
    /// By a few bits of a rule, the number of the last one with these: most rows have one of a few dozen rules, and hashing each takes as long
    /// as all else here.
    recent: [RuleNumber; RECENT],
}

impl Default for Rules {
    fn default() -> Self {
        Self { all: Vec::new(), known: HashMap::new(), recent: [RuleNumber(0); RECENT] }
    }
}

impl Rules {
    /// The number of a rule, a new one where it has none.
    pub(super) fn number_of(&mut self, rule: Rule, slots: Slots) -> RuleNumber {
        let rule = (rule, slots);
        let place = place_of(&rule);
        if let Some(recent) = self.recent.get(place).copied()
            && self.all.get(recent.0 as usize) == Some(&rule)
        {
            return recent;
        }
        let next = RuleNumber(self.all.len() as u32);
        let number = *self.known.entry(rule).or_insert(next);
        if number == next {
            self.all.push(rule);
        }
        if let Some(recent) = self.recent.get_mut(place) {
            *recent = number;
        }
        number
    }

    /// The rule of a number.
    pub(super) fn of(&self, number: RuleNumber) -> (Rule, Slots) {
        self.all.get(number.0 as usize).copied().unwrap_or((Rule::GAP, Slots::SAME))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }
}

impl RuleNumber {
    /// Where it stands among all.
    pub(super) fn place(self) -> usize {
        self.0 as usize
    }
}

/// The place of a rule among the recent ones: bits of a product into which all of its words go.
fn place_of((rule, slots): &(Rule, Slots)) -> usize {
    let mixed = slots.0.iter().fold(rule.0, |mixed, word| mixed.rotate_left(23) ^ word);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_one_number() {
        let mut rules = Rules::default();
        let of = |at: u64| (Rule(at), Slots([at, 0, at]));
        let numbers: Vec<RuleNumber> = (0..5000).map(|at| rules.number_of(of(at).0, of(at).1)).collect();
        for (at, number) in (0..5000).zip(&numbers) {
            assert_eq!((rules.number_of(of(at).0, of(at).1), rules.of(*number)), (*number, of(at)));
        }
        assert_eq!(rules.count(), 5000);
    }
}
