//! The database: whether it answers, whether its tables are of this version, and whether its file is whole.

use std::time::Duration;

use super::{Finding, clocks};
use crate::config::Config;
use crate::store::{Looked, NotLooked, Schema, look_at};

pub(super) async fn look(config: &Config) -> Vec<Finding> {
    const REACHED: &str = "database.reached";
    let place = config.database.as_ref().map_or_else(|| config.data.display().to_string(), ToString::to_string);
    let looked = look_at(&config.data, config.database.as_ref()).await;
    let Looked { version, schema, clock, is_read_only, no_tables_in, sound } = match looked {
        Ok(looked) => looked,
        Err(NotLooked::NotThere(file)) => {
            return vec![Finding::skipped(
                REACHED,
                format!("{} is not there: it is made when a server first starts", file.display()),
            )];
        }
        Err(NotLooked::NotAllowed(file)) => {
            return vec![Finding::problem(
                REACHED,
                format!("{}: this user may not look at it, or not into its folder", file.display()),
                "run this as the server's user, or as root; if this is the server's user, give it the data directory (docs/operating.md)",
            )];
        }
        Err(NotLooked::NotClosed(file)) => {
            return vec![Finding::skipped(
                REACHED,
                format!(
                    "{} was not closed: it can be looked at once a server has started and read its write-ahead log",
                    file.display()
                ),
            )];
        }
        Err(NotLooked::Failed(problem)) => {
            let advice = match config.database {
                Some(_) => "let the database run, and name it with a user and a password that it knows (database)",
                None => {
                    "let the server's user read the file; where it is damaged, stop the server and move it away: a start makes a new one from the blobs (docs/operating.md, Recovery)"
                }
            };
            return vec![Finding::problem(REACHED, format!("{place}: {problem}"), advice)];
        }
    };
    let reached = match is_read_only {
        true => Finding::problem(
            REACHED,
            format!("{place}: {version} takes no changes"),
            "name the primary server, not its standby (database)",
        ),
        false => Finding::ok(REACHED, format!("{place}: {version}")),
    };
    let mut findings = vec![reached, schema_finding(&schema)];
    findings.extend(no_tables_in.filter(|_| !is_read_only).map(|place| rights(&place)));
    if let Some((theirs, ours)) = clock {
        findings.push(clocks::look("database.clock", "the database", theirs, ours, Duration::ZERO));
    }
    findings.extend(sound.map(integrity));
    findings
}

fn schema_finding(schema: &Schema) -> Finding {
    const ID: &str = "database.schema";
    const NEWER: &str = "run the version of symseal that made it, or a newer one; there is no way back but a backup";
    match schema {
        Schema::Empty => Finding::ok(ID, "there are no tables yet: a server makes them when it first starts"),
        Schema::Same(version) => Finding::ok(ID, format!("the tables are of version {version}, as this program's")),
        Schema::Older { found, own } => Finding::warning(
            ID,
            format!(
                "the tables are of version {found}, this program's are of {own}: a server of this version brings them up to date when it starts"
            ),
            "take a backup before: servers of the older version do not start on it any more",
        ),
        Schema::Newer { found, own } => Finding::problem(
            ID,
            format!("the tables are of version {found}, and this program knows those up to {own}"),
            NEWER,
        ),
        Schema::Other(version) => {
            Finding::problem(ID, format!("step {version} of the tables is another than this program's"), NEWER)
        }
        Schema::Unfinished(version) => Finding::problem(
            ID,
            format!("step {version} of the tables was begun and not finished"),
            "put the backup from before it back, and start again with room on the disk",
        ),
    }
}

/// Where a role may make no tables. Each start asks PostgreSQL for the table of steps, and that is refused even where the table is there.
fn rights(place: &str) -> Finding {
    const ID: &str = "database.rights";
    if place.is_empty() {
        return Finding::problem(
            ID,
            "none of the schemas in this role's search_path is there: a server makes its tables in the first of them",
            "CREATE SCHEMA …, or ALTER ROLE … SET search_path, as an administrator of the database",
        );
    }
    Finding::problem(
        ID,
        format!("this role may make no tables in the schema {place}: a server does not start without"),
        format!(
            "GRANT CREATE ON SCHEMA {place} TO the role, as the schema's owner (PostgreSQL 15 and later give it to nobody by themselves)"
        ),
    )
}

/// What SQLite says of its file.
fn integrity(said: Result<String, String>) -> Finding {
    const ID: &str = "database.integrity";
    match said {
        Ok(said) if said == "ok" => Finding::ok(ID, "SQLite finds its file whole"),
        Ok(said) => Finding::problem(
            ID,
            format!("SQLite finds its file damaged: {said}"),
            "stop the server, move the file aside or put a backup back, and start again: bundles and traces are recorded again from the blobs, tokens and the audit log are not (docs/operating.md, Recovery)",
        ),
        Err(why) => Finding::skipped(ID, why),
    }
}
