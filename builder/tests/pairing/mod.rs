//! Which files belong together, and what is reported of those that do not.

mod companions;
mod contradictions;
mod ids;
mod links;
mod other_systems;

use std::path::Path;

use symseal_builder::{BuildReport, ModuleReport, PairedBy, PairedRole};

#[track_caller]
pub(super) fn module<'r>(report: &'r BuildReport, name: &str) -> &'r ModuleReport {
    let mut found = report.modules.iter().filter(|module| module.name == name);
    let module = found.next().unwrap_or_else(|| panic!("no module {name}: {report:#?}"));
    assert!(found.next().is_none(), "two modules {name}");
    module
}

#[track_caller]
pub(super) fn paired(module: &ModuleReport) -> Vec<(&str, PairedRole, Option<PairedBy>)> {
    let name = |place: &str| place.rsplit('/').next().unwrap().len();
    module
        .paired
        .iter()
        .map(|file| (&file.place[file.place.len() - name(&file.place)..], file.role, file.paired_by))
        .collect()
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
