//! How many files the server may have open: each connection is one.

use super::Finding;
use super::process::{Process, open_file_count, open_file_limits};

/// With fewer than this, a few hundred debuggers at once and the files that they are sent leave none.
const FEW: u64 = 4096;

pub(super) fn look(server: Option<&Process>) -> Finding {
    const ID: &str = "process.open-files";
    let Some((now, most)) = open_file_limits(server.map(|server| server.id)) else {
        return Finding::skipped(ID, "the system does not say how many files a process may have open");
    };
    judge(ID, server.map(|server| (server, open_file_count(server.id))), now, most)
}

fn judge(id: &'static str, server: Option<(&Process, Option<u64>)>, now: u64, most: u64) -> Finding {
    const RAISE: &str = "raise the limit (LimitNOFILE in its unit, ulimit -Hn in a shell)";
    let limit = |limit: u64| if limit == u64::MAX { "any number of".to_owned() } else { limit.to_string() };
    match server {
        Some((server, Some(open))) if open >= now / 10 * 9 => {
            Finding::problem(id, format!("{server} has {open} of {} files open", limit(now)), RAISE)
        }
        Some((server, _)) if now < FEW => Finding::warning(
            id,
            format!("{server} may have {} files open, of which each connection is one", limit(now)),
            RAISE,
        ),
        Some((server, open)) => {
            let open = open.map_or_else(String::new, |open| format!("; it has {open}"));
            Finding::ok(id, format!("{server} may have {} files open{open}", limit(now)))
        }
        // A server takes what the system allows when it starts.
        None if most < FEW => Finding::warning(
            id,
            format!(
                "a server that is started here may have {} files open, of which each connection is one",
                limit(most)
            ),
            RAISE,
        ),
        None => Finding::ok(id, format!("a server that is started here may have {} files open", limit(most))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Standing;
    use crate::doctor::process::of_port;

    #[test]
    fn few_files_are_warned_of_and_none_left_is_a_problem() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = of_port(listener.local_addr().unwrap()).unwrap();
        let standing = |server, now, most| judge("process.open-files", server, now, most).standing;
        assert_eq!(standing(None, 1024, 1 << 20), Standing::Ok);
        assert_eq!(standing(None, 1024, 1024), Standing::Warning);
        assert_eq!(standing(Some((&server, None)), 1024, 1 << 20), Standing::Warning);
        assert_eq!(standing(Some((&server, Some(100))), 65_536, 65_536), Standing::Ok);
        assert_eq!(standing(Some((&server, Some(65_000))), 65_536, 65_536), Standing::Problem);
    }
}
