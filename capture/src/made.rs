//! Executable memory without a file that samples lead to.

use std::collections::BTreeSet;

use symseal_module::Avma;
use symseal_process::{Mapping, maps};
use symseal_trace::{TraceCode, TraceSample};

/// The mappings of one trace: as many as Linux lets a process have by default.
const MOST: usize = 1 << 16;

/// The executable mappings without a file that a register or a word of a copied stack points into, by rising address: a frame pointer may lead through
/// what lies there, whether or not the runtime told of it. `mappings` rise. Code that was moved out of a file is that module's. The vDSO and its like are modules or the kernel's own.
pub(crate) fn made_code(samples: &[TraceSample], mappings: &[Mapping]) -> Vec<TraceCode> {
    let of_no_file = |(index, mapping): (usize, &Mapping)| {
        (is_made(mapping) && !maps::is_moved_code(mappings, index)).then(|| mapping.clone())
    };
    let made: Vec<Mapping> = mappings.iter().enumerate().filter_map(of_no_file).collect();
    let mut found = BTreeSet::new();
    let mut look = |address: Avma| {
        // A call may be the last instruction of its function.
        let home = maps::find(&made, address).or_else(|| maps::find(&made, address.checked_sub(1)?));
        found.extend(home.map(|mapping| (mapping.start, mapping.end)));
    };
    for sample in samples {
        sample.registers.values().copied().for_each(&mut look);
        for segment in &sample.stacks {
            segment.words().map(Avma).for_each(&mut look);
        }
    }
    found.into_iter().take(MOST).map(|(start, end)| TraceCode { start, end }).collect()
}

fn is_made(mapping: &Mapping) -> bool {
    mapping.executable && !mapping.is_file() && !mapping.path.starts_with(b"[v")
}
