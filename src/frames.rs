//! Source frames as people read them: the same words and marks in every command, and nothing in a name that a terminal would obey.

use std::io::{self, Write};

use symseal_resolver::{Answer, SourceFrame};

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
    match (frame.inlined, answer.folded, answer.approximate) {
        (true, ..) => "",
        (false, true, _) => " (one of several functions with this code)",
        (false, false, true) => " (size unknown)",
        (false, false, false) => "",
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
