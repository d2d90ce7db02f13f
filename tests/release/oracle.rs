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

/// Which of its two halves of a module a file is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Half {
    /// It holds code.
    Binary,
    /// It tells of the code in another file.
    DebugFile,
}

/// What the tools see of a file: for each of its ids the half that it is and what it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    pub half: Half,
    /// As llvm names it.
    pub arch: BTreeSet<String>,
    /// `.debug_info` with content.
    pub has_debug_info: bool,
    /// Most of its abbreviation tables describe types, apart from sixteen that do not, as `llvm-dwarfdump --debug-abbrev` prints them: the
    /// rule by which full debug information and line tables are told apart.
    pub has_types: bool,
    /// `.symtab` with content.
    pub has_symtab: bool,
    /// `.gnu_debugdata`.
    pub has_mini_debug_info: bool,
    /// Go's function table.
    pub is_go: bool,
    /// Frame description entries in `.eh_frame`; `None` for what is no ELF file.
    pub fdes: Option<u64>,
    /// `.debug_frame` with content.
    pub has_debug_frame: bool,
}

pub fn facts(path: &Path) -> Facts {
    match kind(path) {
        Kind::Elf => elf(path),
        Kind::Pdb => {
            let text = stdout("llvm-pdbutil", &["pdb2yaml", "--dbi-stream"], path);
            let machine = text.lines().find_map(|line| line.trim().strip_prefix("MachineType:")).map(str::trim);
            let arch = match machine {
                Some("Amd64") => "x86_64",
                Some("Arm64") => "aarch64",
                Some("x86") => "i386",
                other => panic!("{}: {other:?}", path.display()),
            };
            Facts { half: Half::DebugFile, arch: BTreeSet::from([arch.to_owned()]), ..none() }
        }
        Kind::Pe => Facts { arch: arch(path), ..none() },
        Kind::Macho => {
            let text = stdout("llvm-readobj", &["--file-headers"], path);
            let is_dsym = text.contains("FileType: DWARFSymbol");
            let half = if is_dsym { Half::DebugFile } else { Half::Binary };
            Facts { half, arch: arch(path), has_debug_info: is_dsym, has_types: is_dsym, ..none() }
        }
        Kind::Other => none(),
    }
}

fn none() -> Facts {
    Facts {
        half: Half::Binary,
        arch: BTreeSet::new(),
        has_debug_info: false,
        has_types: false,
        has_symtab: false,
        has_mini_debug_info: false,
        is_go: false,
        fdes: None,
        has_debug_frame: false,
    }
}

/// `Arch: x86_64`, for each slice.
fn arch(path: &Path) -> BTreeSet<String> {
    let text = stdout("llvm-readobj", &["--file-headers"], path);
    text.lines().filter_map(|line| line.strip_prefix("Arch: ")).map(|arch| arch.trim().to_owned()).collect()
}

/// `[ 1] NAME TYPE ADDRESS OFFSET SIZE ES FLAGS LK INF AL`
fn elf(path: &Path) -> Facts {
    let text = stdout("eu-readelf", &["-h", "-S"], path);
    let machine = text.lines().find_map(|line| line.trim().strip_prefix("Machine:")).map(str::trim);
    let arch = match machine {
        Some("AMD x86-64" | "AMD X86-64") => "x86_64",
        Some("AARCH64") => "aarch64",
        Some("Intel 80386") => "i386",
        other => panic!("{}: {other:?}", path.display()),
    };
    let mut facts = Facts { half: Half::DebugFile, arch: BTreeSet::from([arch.to_owned()]), ..none() };
    for line in text.lines() {
        let Some((_, section)) = line.trim_start().strip_prefix('[').and_then(|line| line.split_once("] ")) else {
            continue;
        };
        let fields: Vec<&str> = section.split_whitespace().collect();
        let [name, kind, _, _, size, _, flags, ..] = fields.as_slice() else { continue };
        let has_bytes = *kind != "NOBITS" && !size.trim_start_matches('0').is_empty();
        match *name {
            ".debug_info" => facts.has_debug_info |= has_bytes,
            ".symtab" => facts.has_symtab |= has_bytes,
            ".gnu_debugdata" => facts.has_mini_debug_info |= has_bytes,
            ".gopclntab" => facts.is_go |= has_bytes,
            ".debug_frame" => facts.has_debug_frame |= has_bytes,
            _ => {}
        }
        if has_bytes && flags.contains('X') && flags.contains('A') {
            facts.half = Half::Binary;
        }
    }
    if facts.has_debug_info {
        let told = stdout("llvm-dwarfdump", &["--debug-abbrev"], path);
        let tables = told.split("Abbrev table for offset").filter(|table| table.contains("DW_TAG_"));
        let types = ["DW_AT_type\t", "DW_TAG_base_type\t", "DW_TAG_structure_type\t"];
        let (with, without): (Vec<&str>, Vec<&str>) =
            tables.partition(|table| types.iter().any(|name| table.contains(name)));
        facts.has_types = !with.is_empty() && with.len() + 16 >= without.len();
        let told = stdout("llvm-dwarfdump", &["--statistics"], path);
        let told: serde_json::Value = serde_json::from_str(&told).expect("statistics");
        let variables = told["#source variables"].as_u64().expect("a count");
        assert!(!facts.has_types || variables > 0, "{}: types, and no variable", path.display());
    }
    if facts.half == Half::Binary {
        let told = stdout("llvm-dwarfdump", &["--eh-frame"], path);
        facts.fdes = Some(told.lines().filter(|line| line.contains(" FDE ")).count() as u64);
    }
    facts
}

fn stdout(program: &str, arguments: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(path).output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
