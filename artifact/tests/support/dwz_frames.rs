//! Frames in dwz files of any processor, put together of what several tools each read rightly there: the inlined calls and
//! where they stand (llvm-dwarfdump), the innermost line (eu-addr2line), the function (the symbol table by addr2line), and
//! the names of inlined functions, which may lie in the supplementary file (gdb).

use super::addr2line::{addr2line, eu_addr2line};
use super::dwarfdump::{Entry, entries};
use super::{Expected, NOT_ASKED};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Frames of each address, innermost first. `is_whole` says that the supplementary file lies where the link says.
pub(crate) fn dwz_frames(program: &Path, is_whole: bool, addresses: &[u64]) -> Vec<Vec<Expected>> {
    let calls = entries(program, &[], "DW_TAG_inlined_subroutine");
    let inner = eu_addr2line(program, addresses);
    let outer = addr2line(program, addresses);
    let names = if is_whole { gdb_names(program, addresses) } else { HashMap::new() };
    let frames = |((address, inner), outer): ((&u64, &Vec<Expected>), &Vec<Expected>)| {
        let function = outer.last().map(|frame| frame.function.clone()).unwrap_or_default();
        let position = inner.first().filter(|frame| frame.line > 0);
        let mut position = position.map_or((String::new(), 0), |frame| {
            // A compilation directory in the supplementary file, which is not there.
            (frame.file.strip_prefix("(null)").unwrap_or(&frame.file).to_owned(), frame.line)
        });
        let mut chain: Vec<&Entry> =
            calls.iter().filter(|call| call.ranges.iter().any(|range| range.contains(address))).collect();
        chain.sort_by_key(|call| std::cmp::Reverse(call.depth));
        let mut frames = Vec::new();
        let mut names = names.get(address).into_iter().flatten();
        for call in chain {
            let function = names.next().cloned().unwrap_or_default();
            frames.push(Expected { function, file: position.0, line: position.1, column: NOT_ASKED });
            position = (call.call_file.clone(), call.call_line);
        }
        frames.push(Expected { function, file: position.0, line: position.1, column: NOT_ASKED });
        if frames.iter().all(|frame| frame.function.is_empty() && frame.line == 0) { Vec::new() } else { frames }
    };
    addresses.iter().zip(&inner).zip(&outer).map(frames).collect()
}

/// Asks for the names of the functions around each address, innermost first.
const SCRIPT: &str = r#"
import gdb
for line in open("addresses"):
    block, names = None, []
    try:
        block = gdb.block_for_pc(int(line, 16))
    except RuntimeError:
        pass
    while block and not block.is_global and not block.is_static:
        if block.function:
            names.append(block.function.linkage_name or block.function.name)
        block = block.superblock
    print("names", line.strip(), *names)
"#;

fn gdb_names(program: &Path, addresses: &[u64]) -> HashMap<u64, Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let lines: String = addresses.iter().map(|address| format!("{address:x}\n")).collect();
    std::fs::write(folder.path().join("addresses"), lines).expect("a file");
    std::fs::write(folder.path().join("names.py"), SCRIPT).expect("a script");
    let output = Command::new("gdb")
        .args(["-q", "-batch", "-nx", "-x", "names.py"])
        .arg(program)
        .env_remove("DEBUGINFOD_URLS")
        .current_dir(folder.path())
        .output()
        .expect("gdb starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("names ")?.split(' ').map(str::to_owned);
        let address = u64::from_str_radix(&words.next()?, 16).ok()?;
        Some((address, words.collect()))
    });
    names.collect()
}
