//! A store, a server, and what a run of the command told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::program::{Ran, RunningServer, run, tool};

/// Runs a tool in a folder; whether it is there. One that fails fails the test.
#[track_caller]
pub(crate) fn made(tool_name: &str, folder: &Path, arguments: &[&str]) -> bool {
    let Some(tool) = tool(tool_name) else { return false };
    let ran = Command::new(tool).args(arguments).current_dir(folder).output().unwrap();
    assert!(ran.status.success(), "{tool_name} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    true
}

/// What was told of each file, by its path, and the counts.
pub(crate) struct Report {
    pub(crate) status: i32,
    pub(crate) files: BTreeMap<String, Value>,
    pub(crate) summary: Value,
}

impl Report {
    #[track_caller]
    pub(crate) fn outcome(&self, path: &str) -> (&str, &str) {
        let file = self.files.get(path).unwrap_or_else(|| panic!("{path} is not told of: {:?}", self.files.keys()));
        (file["outcome"].as_str().unwrap(), file["reason"].as_str().unwrap_or_default())
    }
}

/// Imports with `--json`; the journal lies beside the server's data.
#[track_caller]
pub(crate) fn import(store: &Path, journal: &Path, more: &[&str]) -> Report {
    let mut arguments = vec!["import", store.to_str().unwrap(), "--json", "--journal", journal.to_str().unwrap()];
    arguments.extend(more);
    let Ran { status, stdout, stderr } = run("symseal", &arguments);
    assert!(status < 2, "{stdout}{stderr}");
    let (mut files, mut summary) = (BTreeMap::new(), Value::Null);
    for line in stdout.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        match value.get("summary") {
            Some(counts) => summary = counts.clone(),
            None => drop(files.insert(value["path"].as_str().unwrap().to_owned(), value)),
        }
    }
    Report { status, files, summary }
}

/// Status and bytes of an answer.
#[track_caller]
pub(crate) fn get(server: &RunningServer, path: &str) -> (u16, Vec<u8>) {
    fetch(reqwest::Method::GET, server, path, String::new())
}

/// Status and JSON of an answer to a JSON body.
#[track_caller]
pub(crate) fn post(server: &RunningServer, path: &str, body: &Value) -> Value {
    let (status, bytes) = fetch(reqwest::Method::POST, server, path, body.to_string());
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&bytes));
    serde_json::from_slice(&bytes).unwrap()
}

fn fetch(method: reqwest::Method, server: &RunningServer, path: &str, body: String) -> (u16, Vec<u8>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("http://{}{path}", server.address);
        let answer = reqwest::Client::new().request(method, url).body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
    })
}

/// Writes a file and the folders above it.
pub(crate) fn put(folder: &Path, path: &str, bytes: &[u8]) -> PathBuf {
    let file = folder.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, bytes).unwrap();
    file
}

/// A CodeView record in a PE file: GUID as symbol servers write it, and the age in hex. (Microsoft, PE format; `RSDS`.)
pub(crate) fn codeview(image: &[u8]) -> String {
    let at = image.windows(4).position(|window| window == b"RSDS").expect("a CodeView record") + 4;
    let [a, b, c, d, e, f, g, h, rest @ ..]: [u8; 16] = image[at..at + 16].try_into().unwrap();
    let guid: String = [d, c, b, a, f, e, h, g].iter().chain(&rest).map(|byte| format!("{byte:02X}")).collect();
    let age = u32::from_le_bytes(image[at + 16..at + 20].try_into().unwrap());
    format!("{guid}{age:x}")
}

/// Time stamp and size of a PE file, as symbol servers write them.
pub(crate) fn code_id(image: &[u8]) -> String {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let header = word(0x3c) as usize;
    format!("{:08X}{:x}", word(header + 8), word(header + 24 + 56))
}

/// A program and its PDB, made with LLVM's linker for Windows; of the same bytes for the same text.
pub(crate) fn windows_program(folder: &Path, name: &str, text: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let source = format!("{name}.c");
    std::fs::write(folder.join(&source), text).unwrap();
    let object = format!("{name}.obj");
    let target = ["-target", "x86_64-pc-windows-msvc", "-g", "-gcodeview", "-c", &source, "-o", &object];
    let (out, pdb) = (format!("-out:{name}.exe"), format!("-pdb:{name}.pdb"));
    let link = ["-debug", "-entry:main", "-subsystem:console", "-nodefaultlib", &out, &pdb, &object];
    if !made("clang", folder, &target) || !made("lld-link", folder, &link) {
        return None;
    }
    let read = |extension: &str| std::fs::read(folder.join(format!("{name}.{extension}"))).unwrap();
    Some((read("exe"), read("pdb")))
}
