//! The data directory: whether it is there, whose it is, and who else may touch it.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::Path;

use super::Finding;
use super::process::{Process, user};
use crate::config::{AccessConfig, Config};

pub(super) fn look(config: &Config, server: Option<&Process>) -> Vec<Finding> {
    const ID: &str = "data.directory";
    let data = config.data.as_path();
    let shown = data.display();
    let metadata = match std::fs::metadata(data) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            return vec![Finding::problem(ID, format!("{shown} is no directory"), "name another directory (data)")];
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return vec![Finding::warning(
                ID,
                format!("{shown} is not there"),
                "a server makes it when it first starts; if there was one, its disk is not mounted or its name is another (data)",
            )];
        }
        Err(error) => {
            return vec![Finding::problem(
                ID,
                format!("{shown}: {error}"),
                "run this as the server's user, or as root",
            )];
        }
    };
    let mut findings =
        vec![Finding::ok(ID, format!("{shown} is there")), owner(data, &metadata, server), access(config, &metadata)];
    #[cfg(unix)]
    findings.extend(super::contents::look(data));
    findings
}

/// Whether the server can write to it.
fn owner(data: &Path, metadata: &Metadata, server: Option<&Process>) -> Finding {
    const ID: &str = "data.owner";
    let shown = data.display();
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let owner = crate::data_owner::data_owner(data).map_or(metadata.uid(), |(user, _)| user);
        match server.and_then(|server| server.user.map(|user| (server, user))) {
            Some((server, user)) if user != 0 && user != owner => {
                return Finding::problem(
                    ID,
                    format!("{shown} belongs to the user {owner}, and {server} runs as {user}"),
                    format!("give it to the server's user: chown -R {user} {shown}"),
                );
            }
            Some((server, user)) => {
                return Finding::ok(ID, format!("{shown} belongs to the user {owner}; {server} runs as {user}"));
            }
            None => {}
        }
        if let Some(user) = user().filter(|user| *user != 0 && *user != owner) {
            return Finding::warning(
                ID,
                format!("{shown} belongs to the user {owner}, and this runs as {user}"),
                format!("start the server as the user {owner}, and this too, or not all can be seen"),
            );
        }
    }
    match rustix::fs::access(data, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::ok(ID, format!("{shown} can be written to")),
        Err(error) if metadata.permissions().readonly() => {
            Finding::problem(ID, format!("{shown}: {error}"), "let its owner write to it: chmod u+rwx")
        }
        Err(error) => Finding::problem(
            ID,
            format!("{shown}: {error}"),
            "let the server's user write to it, on a disk that can be written to",
        ),
    }
}

/// Whether others could change what the server gives away, or read what it gives to some alone.
fn access(config: &Config, metadata: &Metadata) -> Finding {
    const ID: &str = "data.permissions";
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let (mode, shown) = (metadata.permissions().mode() & 0o7777, config.data.display());
        if mode & 0o002 != 0 {
            return Finding::problem(
                ID,
                format!(
                    "{shown} has the mode {mode:o}: everybody on this machine may put files there, which the server then gives away"
                ),
                format!("chmod o-w {shown}"),
            );
        }
        if mode & 0o005 != 0 && config.access != AccessConfig::Open {
            return Finding::warning(
                ID,
                format!(
                    "{shown} has the mode {mode:o}: everybody on this machine may read what the server asks tokens for"
                ),
                format!("chmod o-rwx {shown}"),
            );
        }
        Finding::ok(ID, format!("{shown} has the mode {mode:o}"))
    }
    #[cfg(not(unix))]
    {
        let _ = (config, metadata);
        Finding::skipped(ID, "who may read and write a directory is told on Unix alone")
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::doctor::Standing;

    #[test]
    fn a_server_that_runs_as_another_user_than_the_directorys_is_told() {
        // The system's root directory belongs to root.
        let root = Path::new("/");
        let metadata = std::fs::metadata(root).unwrap();
        let server = |user| Process::new(1, user);
        let found = owner(root, &metadata, Some(&server(4711)));
        assert!(found.standing == Standing::Problem && found.found.contains("4711"), "{found:?}");
        assert_eq!(owner(root, &metadata, Some(&server(0))).standing, Standing::Ok);
    }
}
