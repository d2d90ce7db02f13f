//! Source frames as people read them: the same words and marks in every command, and nothing in a name that a terminal would obey.

use std::collections::BTreeSet;
use std::io::{self, Write};

use symseal_module::{MissReason, ResolverStep};
use symseal_resolver::{Answer, Outcome, SourceFrame, Tried};

use crate::output::visible;

/// Writes `function at file:line:column`, as far as these are known, and what limits the name.
pub(crate) fn write_frame(out: &mut impl Write, answer: &Answer, frame: &SourceFrame) -> io::Result<()> {
    write_name(out, frame)?;
    write!(out, "{}", limit(answer, frame))
}

/// The same of a name of which no more is known than itself.
fn write_name(out: &mut impl Write, frame: &SourceFrame) -> io::Result<()> {
    let function = frame.function.as_deref().or(frame.symbol.as_deref()).unwrap_or("??");
    write!(out, "{}", visible(function))?;
    if let Some(file) = &frame.file {
        write!(out, " at {}", visible(file))?;
        for number in [frame.line, frame.line.and(frame.column)].into_iter().flatten() {
            write!(out, ":{number}")?;
        }
    }
    write!(out, "{}", if frame.inlined { " (inlined)" } else { "" })
}

/// What limits a name. Of an inlined function nobody says it: the function around it bears it.
fn limit(answer: &Answer, frame: &SourceFrame) -> &'static str {
    // Of a place without a function nobody expects a size.
    let is_nameless = frame.function.is_none() && frame.symbol.is_none();
    match (frame.inlined || is_nameless, answer.folded, answer.approximate) {
        (true, ..) => "",
        (false, true, _) => " (one of several functions with this code)",
        (false, false, true) => " (size unknown)",
        (false, false, false) => "",
    }
}

/// Writes why there is no name, with what the step that says so said besides, and ends the line.
pub(crate) fn write_lack(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    write!(out, "{}", answer.reason.map_or("no name", MissReason::meaning))?;
    match lack(answer) {
        "" => writeln!(out),
        detail => writeln!(out, " ({})", visible(detail)),
    }
}

/// What the step whose reason is given said besides.
pub(crate) fn lack(answer: &Answer) -> &str {
    let is_it = |tried: &&Tried| answer.reason.is_some() && tried.outcome.reason() == answer.reason;
    // What a runtime did not write says least of a module.
    let telling = |tried: &&Tried| is_it(tried) && tried.step != ResolverStep::JitMap;
    let steps = || answer.tried.iter().rev();
    steps().find(telling).or_else(|| steps().find(is_it)).map_or("", |tried| &tried.detail)
}

/// Writes every step of the chain, a line each.
pub(crate) fn write_steps(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    for tried in answer.tried.iter() {
        let Tried { step, outcome, .. } = tried;
        let word = match outcome {
            Outcome::Hit => "answered".to_owned(),
            Outcome::Miss(reason) => format!("missed: {reason}"),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
        };
        writeln!(out, "         {step}: {word} {}", visible(&said(tried)).trim_end())?;
    }
    Ok(())
}

/// What a step said besides how it ended: where it looked, and what that lacks.
pub(crate) fn said(tried: &Tried) -> String {
    [tried.detail.as_str(), tried.lacks.as_str()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(": ")
}

/// Warnings of files that lack something, each told once: whoever reads names alone does not see that some are missing.
#[derive(Debug, Default)]
pub(crate) struct Lacks(BTreeSet<String>);

impl Lacks {
    /// Warns of what the files behind an answer lack, on standard error.
    pub(crate) fn warn(&mut self, answer: &Answer) {
        for tried in answer.tried.iter().filter(|tried| !tried.lacks.is_empty()) {
            let said = said(tried);
            if !self.0.contains(&said) {
                eprintln!("warning: {}", visible(&said));
                self.0.insert(said);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_or_a_path_leads_a_terminal_astray() {
        let frame = SourceFrame {
            function: Some("a\u{1b}[2Jb\u{202e}c\r\nd".into()),
            file: Some("/x/\u{7}y\u{9b}31m.c".into()),
            line: Some(3),
            ..SourceFrame::default()
        };
        let mut out = Vec::new();
        write_name(&mut out, &frame).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.starts_with("a") && shown.ends_with(".c:3"), "{shown}");
        assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown:?}");
    }
}
