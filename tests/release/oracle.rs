//! What llvm's and elfutils' tools say a file is.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What a file is by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Elf,
    Pe,
    Pdb,
    Macho,
    Other,
}

pub fn kind(path: &Path) -> Kind {
    let bytes = std::fs::read(path).expect("a file");
    match bytes.as_slice() {
        [0x7f, b'E', b'L', b'F', ..] => Kind::Elf,
        [b'M', b'Z', ..] => Kind::Pe,
        bytes if bytes.starts_with(b"Microsoft C/C++ MSF 7.00") => Kind::Pdb,
        [0xcf | 0xce, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => Kind::Macho,
        _ => Kind::Other,
    }
}

/// The ids that other tools read from the file, in our texts.
pub fn debug_ids(path: &Path) -> BTreeSet<String> {
    match kind(path) {
        Kind::Elf => build_id(path).into_iter().collect(),
        Kind::Pe => codeview(path).into_iter().collect(),
        Kind::Pdb => pdb(path).into_iter().collect(),
        Kind::Macho => uuids(path),
        Kind::Other => BTreeSet::new(),
    }
}

/// `    Build ID: ID`
fn build_id(path: &Path) -> Option<String> {
    let text = stdout("eu-readelf", &["-n"], path);
    text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).map(str::to_owned)
}

/// `PDBGUID: {…}` and `PDBAge: N`
fn codeview(path: &Path) -> Option<String> {
    let text = stdout("llvm-readobj", &["--coff-debug-directory"], path);
    let field = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    // Newer versions print a text, older ones bytes in the order of the file.
    let guid = match field("PDBGUID:")? {
        bytes if bytes.starts_with('(') => guid_of_bytes(bytes),
        guid => guid.trim_matches(['{', '}']).replace('-', "").to_uppercase(),
    };
    let age: u32 = field("PDBAge:")?.parse().ok()?;
    Some(format!("{guid}-{age:x}"))
}

fn guid_of_bytes(text: &str) -> String {
    let hex: Vec<&str> = text.trim_matches(['(', ')']).split_whitespace().collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    order.iter().filter_map(|at| hex.get(*at).copied()).collect::<String>().to_uppercase()
}

/// GUID of the information stream, age of the DBI stream, which is the one that PE files carry.
fn pdb(path: &Path) -> Option<String> {
    let text = stdout("llvm-pdbutil", &["pdb2yaml", "--pdb-stream", "--dbi-stream"], path);
    let field = |name: &str, from: &str| {
        let rest = &text[text.find(from)?..];
        rest.lines().find_map(|line| line.trim().strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let guid = field("Guid:", "PdbStream:")?;
    let age: u32 = field("Age:", "DbiStream:")?.parse().ok()?;
    let guid = guid.trim_matches(['\'', '"']).trim_matches(['{', '}']).replace('-', "").to_uppercase();
    Some(format!("{guid}-{age:x}"))
}

/// `UUID: …-… (arm64) FILE`
fn uuids(path: &Path) -> BTreeSet<String> {
    let text = stdout("llvm-dwarfdump", &["--uuid"], path);
    let uuids = text.lines().filter_map(|line| line.strip_prefix("UUID: ")?.split_whitespace().next());
    uuids.map(|uuid| format!("uuid:{}", uuid.replace('-', ""))).collect()
}

fn stdout(program: &str, arguments: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(path).output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
