//! Whether a server could start as it is configured.

use super::{Examined, Finding};
use crate::{Config, check, check_warnings};

pub(super) fn look(examined: &Examined) -> Finding {
    const ID: &str = "configuration";
    let Examined { config, origins, seals, schedule, .. } = examined;
    // Certificate and trust directory have findings of their own.
    let rest = Config { tls: None, ..config.clone() };
    let required = seals.as_ref().map_or(Ok(()), |rules| rules.required().map(drop));
    if let Err(error) = required.map_err(Into::into).and_then(|()| check(&rest, origins, None)) {
        return Finding::problem(ID, error.to_string(), "mend this setting: the server does not start with it");
    }
    match check_warnings(config, origins, *schedule) {
        warnings if warnings.is_empty() => {
            Finding::ok(ID, "the settings fit together, and the directories that they name can be read")
        }
        warnings => Finding::warning(ID, warnings.join("; "), "see docs/operating.md, Configuration"),
    }
}
