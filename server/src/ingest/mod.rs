//! From a pushed manifest to something that debuggers find: bundles and their seals.

mod breakpad_id;
mod bundle;
mod loose;
mod seal;
mod trace;

pub(crate) use breakpad_id::{breakpad_ids, parse_breakpad_id};
pub(crate) use bundle::{
    CheckedBundle, RefusedBundle, candidates, check_bundle, is_bundle, open_published, read_index,
};
pub(crate) use loose::{Answer, RefusedLoose, answers, check_loose, check_name, is_loose, loose_manifest};
pub(crate) use seal::{is_seal, read_seal};
pub(crate) use trace::{RefusedTrace, read_trace, restore_traces};
