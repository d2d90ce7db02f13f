//! Numbers of things, in the order of their first use.

use std::collections::HashMap;
use std::hash::Hash;

/// Values, each once, with the numbers that they were given: from 0 on, without a gap.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    numbers: HashMap<T, usize>,
    values: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    /// The number of a value; a new one gets the next.
    pub(crate) fn number(&mut self, value: T) -> usize {
        let next = self.values.len();
        let number = *self.numbers.entry(value).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        number
    }

    /// The values in the order of their numbers.
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }
}
