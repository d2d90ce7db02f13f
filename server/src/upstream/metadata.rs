//! What other servers say of the files that they have, by name or by build-id.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use symseal_module::DebugId;
use tokio::time::Instant;

use super::{Hops, Upstreams};

/// Bytes of an answer: more than ten thousand results of the longest usual names.
const ANSWER_LIMIT: usize = 8 << 20;
/// Questions under way at once: their answers are gathered in memory.
pub(super) const AT_ONCE: usize = 8;
/// The longest name or path, in bytes: that of an operating system.
const NAME_LIMIT: usize = 4096;

/// A file that a server says it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ToldFile {
    /// Hex.
    pub(crate) buildid: String,
    /// `executable` or `debuginfo`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Name or path.
    pub(crate) file: String,
    /// The archive that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) archive: Option<String>,
}

impl ToldFile {
    /// Whether it is one that the protocol allows.
    fn is_sound(&self) -> bool {
        let id = self.buildid.parse::<DebugId>();
        id.is_ok_and(|id| id.build_id().is_some())
            && matches!(self.kind.as_str(), "executable" | "debuginfo")
            && self.file.len() <= NAME_LIMIT
            && self.archive.as_ref().is_none_or(|archive| archive.len() <= NAME_LIMIT)
    }
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<ToldFile>,
    #[serde(default)]
    complete: bool,
}

impl Upstreams {
    /// What all servers say to a question, an escaped query, within `time`; and whether each said that this is all.
    pub(crate) async fn metadata(&self, query: &str, hops: &Hops, time: Duration) -> (Vec<ToldFile>, bool) {
        if hops.are_too_many() {
            return (Vec::new(), false);
        }
        let path = format!("metadata?{query}");
        let until = Instant::now() + time;
        let Ok(Ok(_place)) = tokio::time::timeout_at(until, self.asking.acquire()).await else {
            tracing::debug!("the upstreams are asked as much as they may be: this question is not");
            return (Vec::new(), false);
        };
        let asked = self.servers.iter().map(|server| {
            let path = &path;
            async move {
                let told = async {
                    let response = server.respond(&self.http, path, hops).await?;
                    match response.status() {
                        StatusCode::OK => {
                            let whole = server.whole(response, ANSWER_LIMIT).await?;
                            serde_json::from_slice::<Answer>(&whole).map_err(|error| error.to_string())
                        }
                        // Older servers have no such question.
                        status => Err(format!("answered {status}")),
                    }
                };
                match tokio::time::timeout_at(until, told).await {
                    Ok(told) => told,
                    Err(_) => Err(format!("no answer within {} s", time.as_secs())),
                }
                .inspect_err(|why| {
                    tracing::debug!(upstream = server.name(), why, "an upstream does not say which files it has")
                })
            }
        });
        let (mut files, mut complete) = (Vec::new(), true);
        for answer in join_all(asked).await {
            let Ok(answer) = answer else {
                complete = false;
                continue;
            };
            complete &= answer.complete;
            files.extend(answer.results.into_iter().filter(ToldFile::is_sound));
        }
        (files, complete)
    }
}
