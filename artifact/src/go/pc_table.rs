//! Tables from places in a function to a number: differences of value and place, turn by turn.
//! (`runtime.pcvalue`, `runtime.step`)

use super::header::Table;
use crate::budget::Budget;
use crate::cursor::{Cursor, Damaged, Result};

/// A stretch of a function with one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Bytes from the function's entry to behind the stretch; it starts where the one before ends.
    pub(crate) end: u64,
    pub(crate) value: i32,
}

/// The stretches of a table, in order. A damaged table gives those before the damage, and the error.
pub(crate) fn read(table: &Table<'_>, offset: u32, runs: &mut Vec<Run>, budget: &mut Budget) -> Result<()> {
    runs.clear();
    let Some(mut cursor) = table.pc_table(offset) else { return Ok(()) };
    let (mut end, mut value) = (0_u64, -1_i32);
    loop {
        let difference = varint(&mut cursor)?;
        // 0 ends the table, except at its start, where the value may well stay -1.
        if difference == 0 && !runs.is_empty() {
            return Ok(());
        }
        budget.charge(STEPS)?;
        value = value.wrapping_add(unfolded(difference));
        end = end.saturating_add(u64::from(varint(&mut cursor)?) * table.quantum);
        runs.push(Run { end, value });
    }
}

/// What an entry costs.
const STEPS: u64 = 4;

/// The value at a place.
pub(crate) fn value_at(runs: &[Run], place: u64) -> Option<i32> {
    runs.get(runs.partition_point(|run| run.end <= place)).map(|run| run.value)
}

fn varint(cursor: &mut Cursor<'_>) -> Result<u32> {
    u32::try_from(cursor.uleb()?).map_err(|_| Damaged)
}

/// Numbers with a sign alternate: 0, -1, 1, -2, …
const fn unfolded(number: u32) -> i32 {
    (number >> 1) as i32 ^ -((number & 1) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_alternate() {
        assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(unfolded), [0, -1, 1, -2, 2, i32::MIN]);
    }

    #[test]
    fn a_place_has_the_value_of_its_stretch() {
        let runs = [Run { end: 4, value: 7 }, Run { end: 9, value: -1 }];
        assert_eq!([0, 3, 4, 8, 9].map(|place| value_at(&runs, place)), [Some(7), Some(7), Some(-1), Some(-1), None]);
    }
}
