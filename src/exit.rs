//! Exit statuses: 0 done and true, 1 the answer is no, 2 the call or its input is wrong.

use std::process::ExitCode;

use crate::output::visible_lines;

/// What a command that worked found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done, and true.
    Yes,
    /// Done, and the answer is no: verification failed, a gate was missed.
    No,
}

impl From<bool> for Answer {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// What was asked for is not there: exit status 1, not 2, because the call was right.
#[derive(Debug)]
pub struct NotFound(pub String);

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFound {}

/// Runs a command and turns its answer, or its error, into an exit status.
pub fn run(command: impl FnOnce() -> anyhow::Result<Answer>) -> ExitCode {
    crate::cut_files::explain();
    match command() {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Names of files are another's words: they must not steer the terminal.
            eprintln!("error: {}", visible_lines(&told_once(&error)));
            ExitCode::from(if error.is::<NotFound>() { 1 } else { 2 })
        }
    }
}

/// The error with its causes, leaving out those that the text so far says already.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

/// The reader of our output went away (`symseal … | head`): nothing is wrong.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = match (cause.downcast_ref::<std::io::Error>(), cause.downcast_ref::<serde_json::Error>()) {
            (Some(error), _) => Some(error.kind()),
            // Its `source` passes over the I/O error itself.
            (None, Some(error)) => error.io_error_kind(),
            (None, None) => None,
        };
        kind == Some(std::io::ErrorKind::BrokenPipe)
    })
}
