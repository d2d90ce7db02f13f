//! A bound on work, so that tables that refer to each other in many ways end early.

use crate::cursor::{Damaged, Result};

/// Steps that may still be taken. What real compilers write stays below a few steps for each byte of debug information.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
    exhausted: bool,
}

impl Budget {
    const STEPS_PER_BYTE: u64 = 64;
    const LEAST: u64 = 1 << 22;

    pub(crate) fn for_bytes(bytes: u64) -> Self {
        Self { left: bytes.saturating_mul(Self::STEPS_PER_BYTE).saturating_add(Self::LEAST), exhausted: false }
    }

    /// As many steps as are left of this one, for a part of the work whose steps are charged later.
    pub(crate) fn of_part(&self) -> Self {
        Self { left: self.left, exhausted: false }
    }

    /// How many steps were taken since the budget was `before`.
    pub(crate) fn taken_since(&self, before: &Self) -> u64 {
        before.left.saturating_sub(self.left)
    }

    /// Takes `steps`; fails from the moment at which they run out.
    #[inline]
    pub(crate) fn charge(&mut self, steps: u64) -> Result<()> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                self.exhausted = true;
                Err(Damaged)
            }
        }
    }

    /// Takes the steps of a path that is given out: a small table can name one long directory for a million files. Eight times as many bytes of paths as
    /// there are of debug information can be given; real ones take less than one.
    pub(crate) fn charge_path(&mut self, path: &[u8]) -> Result<()> {
        self.charge((path.len() as u64).saturating_mul(Self::STEPS_PER_BYTE / 8))
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}
