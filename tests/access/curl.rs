//! One request with curl.

use std::process::Command;

use crate::program;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The values of a header, in order.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// `None`, with a word about it, where there is no curl.
#[track_caller]
pub(crate) fn curl<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Option<Answer> {
    let curl = program::tool("curl")?;
    let folder = tempfile::tempdir().unwrap();
    let (head, body) = (folder.path().join("head"), folder.path().join("body"));
    let mut command = Command::new(curl);
    command.args(["--silent", "--path-as-is", "--max-time", "60", "--noproxy", "*", "--write-out", "%{http_code}"]);
    command.arg("--dump-header").arg(&head).arg("--output").arg(&body);
    let output = command.args(arguments).output().unwrap();
    let status = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let headers = std::fs::read(&head).unwrap_or_default();
    let headers = String::from_utf8_lossy(&headers).into_owned();
    Some(Answer { status, headers, body: std::fs::read(&body).unwrap_or_default() })
}
