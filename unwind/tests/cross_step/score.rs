//! What one run gave, counted.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use symseal_module::StopReason;
use symseal_unwind::Frame;

use crate::shadow::Expected;

/// What is wrong with a stack that lacks frames or has false ones, and of which the unwinder says that it is whole.
pub(crate) const TOLD_AS_COMPLETE: &str = "return address, told as complete,";

/// What the run of one program gave.
#[derive(Default)]
pub(crate) struct Score {
    pub(crate) instructions: usize,
    pub(crate) return_addresses: usize,
    with_cfas: usize,
    with_fps: usize,
    deepest: usize,
    pub(crate) signals: usize,
    /// Instructions of the kernel's own code for processes.
    pub(crate) in_vdso: usize,
    /// Instructions with which functions of MIPS set up $gp, before they make their frames.
    pub(crate) before_frames: usize,
    /// What differs, the name of the innermost function, and where the first difference is.
    pub(crate) wrong: BTreeMap<(&'static str, String, String), usize>,
    pub(crate) methods: BTreeMap<String, usize>,
    pub(crate) stops: BTreeMap<String, usize>,
    pub(crate) finished: bool,
    /// Instructions at which framehop finds all return addresses; `None` where it does not know the processor.
    pub(crate) by_framehop: Option<usize>,
}

impl Score {
    /// One more instruction, in `innermost`. The walk ended with `stop`. `describe` says where the first difference is, if there is
    /// one. Gives whether all return addresses are right.
    pub(crate) fn count(
        &mut self,
        expected: &[Expected],
        found: &[Frame],
        (innermost, stop): (String, StopReason),
        describe: impl FnOnce() -> String,
    ) -> bool {
        self.instructions += 1;
        self.deepest = self.deepest.max(expected.len());
        for frame in found {
            *self.methods.entry(frame.method.to_string()).or_default() += 1;
        }
        let callers = found.get(1..).unwrap_or_default();
        let pcs = callers.iter().map(|frame| (frame.pc.0, frame.exact));
        let same_pcs = pcs.eq(expected.iter().map(|expected| (expected.pc, expected.exact)));
        let cfas = found.iter().map(|frame| frame.cfa.0).take(expected.len());
        let same_cfas = same_pcs && cfas.eq(expected.iter().map(|expected| expected.cfa_below));
        let same_fps = same_pcs && callers.iter().map(|frame| frame.fp).eq(expected.iter().map(|expected| expected.fp));
        self.return_addresses += usize::from(same_pcs);
        self.with_cfas += usize::from(same_cfas);
        self.with_fps += usize::from(same_fps);
        let what = match (same_pcs, same_cfas, same_fps) {
            (true, true, true) => return true,
            (false, ..) if stop == StopReason::EndOfStack => TOLD_AS_COMPLETE,
            (false, ..) => "return address",
            (_, false, _) => "CFA",
            _ => "frame pointer",
        };
        *self.wrong.entry((what, innermost, describe())).or_default() += 1;
        same_pcs
    }

    /// Why a walk with all return addresses ended.
    pub(crate) fn stopped(&mut self, reason: StopReason) {
        *self.stops.entry(reason.to_string()).or_default() += 1;
    }
}

impl Display for Score {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let share = |count: usize| 100.0 * count as f64 / self.instructions as f64;
        write!(
            f,
            "{} instructions, {} signals, {} frames deep: return addresses {:.3} %, with CFAs {:.3} %, with frame pointers {:.3} %{}{}",
            self.instructions,
            self.signals,
            self.deepest,
            share(self.return_addresses),
            share(self.with_cfas),
            share(self.with_fps),
            self.by_framehop
                .map_or_else(String::new, |right| format!("; return addresses by framehop {:.3} %", share(right))),
            if self.finished { "; to the program's end" } else { "" },
        )
    }
}
