//! What runtimes had told at one moment.

use std::sync::Arc;

use symseal_module::Avma;

use super::{JitFunctions, JitHit};
use crate::{JitFileState, JitSource};

/// What runtimes had told of a process's code at one moment. Reading on does not change it, so that any number of threads may look at
/// it meanwhile.
#[derive(Debug, Clone)]
pub struct JitSnapshot {
    pub(crate) perf_map: Arc<JitFunctions>,
    pub(crate) dump: Arc<JitFunctions>,
    pub(crate) perf_map_state: JitFileState,
    pub(crate) dump_state: JitFileState,
}

impl JitSnapshot {
    /// The function that holds `address`: of the jitdump, which has lines, else of the perf map.
    pub fn find(&self, address: Avma) -> Option<(JitSource, JitHit<'_>)> {
        let of_dump = self.dump.find(address).map(|hit| (JitSource::JitDump, hit));
        of_dump.or_else(|| self.perf_map.find(address).map(|hit| (JitSource::PerfMap, hit)))
    }

    /// How the last reading of the file went.
    pub fn state(&self, source: JitSource) -> &JitFileState {
        match source {
            JitSource::PerfMap => &self.perf_map_state,
            JitSource::JitDump => &self.dump_state,
        }
    }
}
