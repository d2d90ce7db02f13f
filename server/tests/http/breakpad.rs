//! Breakpad's symbol files: rust-minidump's stackwalker walks and names a stack by them alone.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::support::programs::{Fixture, has, output, publish, run};
use crate::support::{Running, http};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, RANGE};
use serde_json::Value;
use symseal_server::Origins;

/// Six functions deep, two of them inlined, one with a frame pointer; then it writes its registers, its stack and where it is loaded.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static ucontext_t registers;

__attribute__((noinline)) static void capture(const char *path) {
    getcontext(&registers);
    FILE *out = fopen(path, "wb"), *maps = fopen("/proc/self/maps", "r");
    uint64_t start, end, base = 0, sp = registers.uc_mcontext.gregs[REG_RSP], top = 0;
    char line[4096];
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx", &start, &end) != 2) continue;
        if (!base) base = start;
        if (start <= sp && sp < end) top = end;
    }
    fwrite(&base, 8, 1, out);
    fwrite(registers.uc_mcontext.gregs, 8, 17, out);
    fwrite((void *)sp, 1, top - sp, out);
    fclose(out);
}

static inline __attribute__((always_inline)) int inner(const char *path, int x) {
    capture(path);
    return x + 1;
}

static inline __attribute__((always_inline)) int outer(const char *path, int x) {
    int y = inner(path, x);
    return y * 2;
}

__attribute__((noinline)) int deep(const char *path, int x) {
    volatile char room[x * 100 + 7];
    room[x] = 1;
    int y = outer(path, x);
    return y + room[x];
}

__attribute__((noinline)) int chain(const char *path, int n) {
    if (n == 0) return deep(path, 3);
    int y = chain(path, n - 1);
    return y + n;
}

int main(int argc, char **argv) {
    int y = chain(argv[1], argc + 2);
    printf("%d\n", y);
    return 0;
}
"#;

const ID: &str = "0102030405060708090a0b0c0d0e0f1011121314";
const BREAKPAD_ID: &str = "0403020106050807090A0B0C0D0E0F100";

fn compile(folder: &Path) -> PathBuf {
    let (source, binary) = (folder.join("walked.c"), folder.join("walked"));
    std::fs::write(&source, PROGRAM).unwrap();
    let id = format!("-Wl,--build-id=0x{ID}");
    let (source, path) = (source.to_str().unwrap(), binary.to_str().unwrap());
    run("cc", &["-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", source, "-o", path, &id]);
    binary
}

#[tokio::test]
async fn a_stack_is_walked_and_named_by_the_symbol_file_alone() {
    if !has("cc") || !has("llvm-symbolizer") || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    let binary = compile(folder);
    publish(&fixture.server, folder, "1", &[&binary]).await;
    let path = format!("/symbols/walked/{BREAKPAD_ID}/walked.sym");
    let answer = fixture.get(&path).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.headers()[CONTENT_TYPE].to_str().unwrap().starts_with("text/plain"));
    let etag = answer.headers()[ETAG].clone();
    let text = answer.text().await.unwrap();
    assert!(
        text.starts_with(&format!("MODULE Linux x86_64 {BREAKPAD_ID} walked\nINFO CODE_ID {}\n", ID.to_uppercase()))
    );
    for record in
        ["FILE ", "INLINE_ORIGIN ", "FUNC ", "INLINE 0 ", "INLINE 1 ", "PUBLIC ", "STACK CFI INIT ", "STACK CFI "]
    {
        assert!(text.lines().any(|line| line.starts_with(record)), "{record}: {text}");
    }
    let unchanged = fixture.http.get(fixture.server.url(&path)).header(IF_NONE_MATCH, etag).send().await.unwrap();
    assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
    let part = fixture.http.get(fixture.server.url(&path)).header(RANGE, "bytes=0-5").send().await.unwrap();
    assert_eq!(part.text().await.unwrap(), "MODULE");
    let head = fixture.http.head(fixture.server.url(&path.to_lowercase())).send().await.unwrap();
    assert_eq!(head.status(), StatusCode::OK, "case does not count");
    assert_eq!(head.content_length().unwrap_or(0), 0);

    if !has("minidump-stackwalk") {
        return;
    }
    let captured = folder.join("captured");
    run(binary.to_str().unwrap(), &[captured.to_str().unwrap()]);
    let captured = std::fs::read(captured).unwrap();
    let (dump, symbols) = (folder.join("crash.dmp"), folder.join("symbols"));
    let (bytes, base) = minidump(&captured, &binary);
    std::fs::write(&dump, bytes).unwrap();
    let place = symbols.join("walked").join(BREAKPAD_ID);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("walked.sym"), &text).unwrap();
    let arguments = ["--json", "--symbols-path", symbols.to_str().unwrap(), dump.to_str().unwrap()];
    let walked: Value = serde_json::from_str(&output("minidump-stackwalk", &arguments)).unwrap();
    let frames = walked["threads"][0]["frames"].as_array().unwrap();
    let main = frames.iter().position(|frame| frame["function"] == "main").expect("the walk reaches main");
    assert!(main >= 5, "{main}");
    for (at, frame) in frames.iter().take(main + 1).enumerate() {
        assert_eq!(frame["trust"], if at == 0 { "context" } else { "cfi" }, "{frame}");
        let address = u64::from_str_radix(frame["offset"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        // A frame's own function last, what was inlined into it before.
        let found: Vec<(String, u64)> = frame["inlines"]
            .as_array()
            .into_iter()
            .flatten()
            .chain([frame])
            .map(|frame| (frame["function"].as_str().unwrap().to_owned(), frame["line"].as_u64().unwrap()))
            .collect();
        assert_eq!(found, symbolized(&binary, address - base), "frame {at} of {frames:#?}");
    }
}

/// llvm-symbolizer's names and lines, the innermost first.
fn symbolized(binary: &Path, address: u64) -> Vec<(String, u64)> {
    let arguments = ["--output-style=JSON", "-e", binary.to_str().unwrap(), &format!("{address:#x}")];
    let answer: Value = serde_json::from_str(&output("llvm-symbolizer", &arguments)).unwrap();
    let answer = if answer.is_array() { answer[0].clone() } else { answer };
    let frames = answer["Symbol"].as_array().unwrap().iter();
    frames.map(|frame| (frame["FunctionName"].as_str().unwrap().to_owned(), frame["Line"].as_u64().unwrap())).collect()
}

/// A minidump of one thread and one module, and where that is loaded. (MINIDUMP_HEADER and what follows in Microsoft's minidumpapiset.h.)
fn minidump(captured: &[u8], binary: &Path) -> (Vec<u8>, u64) {
    let word = |at: usize| u64::from_le_bytes(captured[at * 8..at * 8 + 8].try_into().unwrap());
    let base = word(0);
    // gregs of x86_64: r8–r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
    let order = [
        "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp",
        "rip",
    ];
    let registers: BTreeMap<&str, u64> = order.iter().enumerate().map(|(at, name)| (*name, word(at + 1))).collect();
    let stack = &captured[18 * 8..];
    let mut context = vec![0; 1232];
    context[0x30..0x34].copy_from_slice(&0x0010_000b_u32.to_le_bytes());
    let places = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
        "rip",
    ];
    for (at, name) in places.iter().enumerate() {
        context[0x78 + at * 8..][..8].copy_from_slice(&registers[name].to_le_bytes());
    }
    let mut dump = vec![0; 32 + 3 * 12];
    let mut put = |bytes: &[u8]| {
        let at = dump.len() as u32;
        dump.extend_from_slice(bytes);
        dump.resize(dump.len().next_multiple_of(16), 0);
        at
    };
    let text = |text: &str| {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        [&(units.len() as u32).to_le_bytes(), &units[..], &[0, 0]].concat()
    };
    let (context_size, context) = (context.len() as u32, put(&context));
    let stack_at = put(stack);
    let name = put(&text(binary.to_str().unwrap()));
    let version = put(&text("Linux"));
    let id: Vec<u8> = (0..ID.len()).step_by(2).map(|at| u8::from_str_radix(&ID[at..at + 2], 16).unwrap()).collect();
    let identity = [&0x4270_454c_u32.to_le_bytes(), &id[..]].concat();
    let (identity_size, identity) = (identity.len() as u32, put(&identity));
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    // Processor 9: AMD64; platform 0x8201: Linux.
    let system = [&[9, 0, 0, 0, 0, 0, 1, 0][..], &numbers(&[0, 0, 0, 0x8201, version, 0]), &[0; 24]].concat();
    let (system_size, system) = (system.len() as u32, put(&system));
    let thread = [
        numbers(&[1, 1, 0, 0, 0]),
        vec![0; 8],
        registers["rsp"].to_le_bytes().to_vec(),
        numbers(&[stack.len() as u32, stack_at, context_size, context]),
    ]
    .concat();
    let (thread_size, thread) = (thread.len() as u32, put(&thread));
    let module = [
        numbers(&[1]),
        base.to_le_bytes().to_vec(),
        numbers(&[0x10000, 0, 0, name]),
        vec![0; 52],
        numbers(&[identity_size, identity, 0, 0]),
        vec![0; 16],
    ]
    .concat();
    let (module_size, module) = (module.len() as u32, put(&module));
    let head = numbers(&[
        0x504d_444d,
        0xa793,
        3,
        32,
        0,
        0,
        0,
        0,
        7,
        system_size,
        system,
        3,
        thread_size,
        thread,
        4,
        module_size,
        module,
    ]);
    dump[..head.len()].copy_from_slice(&head);
    (dump, base)
}

#[tokio::test]
async fn a_code_id_leads_to_the_symbol_file_of_its_module() {
    if !has("cc") || !has("clang") || !has("lld-link") {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    let binary = compile(folder);
    let (source, object, image) = (folder.join("app.c"), folder.join("app.o"), folder.join("app.exe"));
    std::fs::write(&source, "int main(void) { return 0; }\nvoid __main(void) {}\n").unwrap();
    run(
        "clang",
        &[
            "-target",
            "x86_64-pc-windows-msvc",
            "-g",
            "-gcodeview",
            "-c",
            source.to_str().unwrap(),
            "-o",
            object.to_str().unwrap(),
        ],
    );
    let out = format!("-out:{}", image.display());
    run("lld-link", &["-debug", "-entry:main", "-subsystem:console", "-nodefaultlib", &out, object.to_str().unwrap()]);
    publish(&fixture.server, folder, "1", &[&binary, &image, &folder.join("app.pdb")]).await;
    let no_redirect = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let get = async |path: &str| no_redirect.get(fixture.server.url(path)).send().await.unwrap();
    let to = format!("../../walked/{BREAKPAD_ID}/walked.sym");
    for path in [
        format!("/symbols/walked/{ID}/walked.sym"),
        format!(
            "/symbols/x.pdb/000000000000000000000000000000000/x.sym?code_file=walked&code_id={}",
            ID.to_uppercase()
        ),
    ] {
        let found = get(&path).await;
        assert_eq!(
            (found.status(), found.headers()[LOCATION].to_str().unwrap()),
            (StatusCode::FOUND, to.as_str()),
            "{path}"
        );
        let followed = fixture.get(&path).await;
        assert!(followed.text().await.unwrap().starts_with("MODULE Linux x86_64 "));
    }
    let bytes = std::fs::read(&image).unwrap();
    let parsed = symseal_artifact::ObjectFile::parse(&bytes).unwrap();
    let code_id = parsed.code_id().unwrap();
    let followed = fixture.get(&format!("/symbols/APP.exe/{code_id}/app.sym")).await.text().await.unwrap();
    let mut lines = followed.lines();
    let symseal_module::DebugId::Pdb { guid, age } = parsed.debug_id().unwrap() else { panic!("no PDB") };
    let hex: String = guid.iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(lines.next().unwrap(), format!("MODULE windows x86_64 {hex}{age:x} app.pdb"));
    assert_eq!(lines.next().unwrap(), format!("INFO CODE_ID {} app.exe", code_id.to_uppercase()));
    assert!(followed.contains(" main\n"), "{followed}");
    for path in ["/symbols/none.exe/5F3A1B2C1f000/none.sym", "/symbols/none/ab/none.sym", "/symbols/none/zz/none.sym"] {
        assert_eq!(get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

/// GNU ld writes the record of a PDB for `--build-id`, with no name in it.
#[tokio::test]
async fn a_program_whose_pdb_has_no_name_is_asked_for_by_its_own() {
    if !has("x86_64-w64-mingw32-gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("mbid.c"), folder.path().join("tree/mbid.exe"));
    std::fs::create_dir(folder.path().join("tree")).unwrap();
    std::fs::write(
        &source,
        "int called(int x) { return x * 3; }\nint main(int argc, char **argv) { return called(argc); }\n",
    )
    .unwrap();
    let [from, to] = [&source, &program].map(|path| path.to_str().unwrap());
    run("x86_64-w64-mingw32-gcc", &["-g", "-Wl,--build-id", from, "-o", to]);
    let bytes = std::fs::read(&program).unwrap();
    let parsed = symseal_artifact::ObjectFile::parse(&bytes).unwrap();
    assert_eq!(parsed.pdb_reference().unwrap().path, b"");
    let (code_id, symseal_module::DebugId::Pdb { guid, age }) = (parsed.code_id().unwrap(), parsed.debug_id().unwrap())
    else {
        panic!("no record of a PDB")
    };
    let hex: String = guid.iter().map(|byte| format!("{byte:02X}")).collect();
    let to = format!("../../mbid.exe/{hex}{age:x}/mbid.exe.sym");
    let bundled = Fixture::new().await;
    publish(&bundled.server, folder.path(), "1", &[&program]).await;
    let uploaded = Fixture::new().await;
    upload(&uploaded, &program).await;
    let no_redirect = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for fixture in [&bundled, &uploaded] {
        let path = format!("/symbols/mbid.exe/{code_id}/mbid.sym");
        let found = no_redirect.get(fixture.server.url(&path)).send().await.unwrap();
        assert_eq!(found.status(), StatusCode::FOUND);
        assert_eq!(found.headers()[LOCATION].to_str().unwrap(), to);
        let followed = fixture.get(&path).await;
        assert_eq!(followed.status(), StatusCode::OK);
        let followed = followed.text().await.unwrap();
        assert_eq!(followed.lines().next().unwrap(), format!("MODULE windows x86_64 {hex}{age:x} mbid.exe"));
        assert!(followed.contains(" called\n"), "{}", followed.lines().count());
    }
}

/// What other people's `dump_syms` wrote of the same PDB.
#[tokio::test]
async fn the_frame_data_of_a_32_bit_pdb_becomes_stack_win_records() {
    let folder = std::env::var_os("SYMSEAL_FIXTURES").map(PathBuf::from);
    let Some(folder) = folder.map(|folder| folder.join("symbolic/symbolic-testutils/fixtures/windows")) else {
        println!("SKIP fixtures: SYMSEAL_FIXTURES is not set");
        return;
    };
    let fixture = Fixture::new().await;
    publish(&fixture.server, fixture.root.path(), "1", &[&folder.join("crash.exe"), &folder.join("crash.pdb")]).await;
    let expected = std::fs::read_to_string(folder.join("crash.sym")).unwrap();
    let id = expected.lines().next().unwrap().split(' ').nth(3).unwrap();
    let found = fixture.get(&format!("/symbols/crash.pdb/{id}/crash.sym")).await.text().await.unwrap();
    // Which prolog a record counts in, and spaces at the ends of programs, differ from one program to another.
    let records = |text: &str| -> Vec<String> {
        let of = |line: &str| {
            let fields: Vec<&str> = line.strip_prefix("STACK WIN ")?.split_whitespace().collect();
            let (sizes, program) = (fields.get(..4)?, fields.get(5..)?);
            Some(format!("{} {}", sizes.join(" "), program.join(" ")))
        };
        let mut records: Vec<String> = text.lines().filter_map(of).collect();
        records.sort();
        records
    };
    assert!(found.starts_with("MODULE windows x86 "), "{}", found.lines().next().unwrap_or_default());
    let (found, expected) = (records(&found), records(&expected));
    assert_eq!(expected.len(), 154);
    let missing: Vec<&String> = expected.iter().filter(|record| !found.contains(record)).collect();
    // Two of three bytes each are left out there.
    assert!(missing.is_empty() && found.len() <= expected.len() + 2, "{missing:?}, {} records", found.len());
}

/// Calls, many saved registers, a frame whose size is known at run time.
const OTHER_PROCESSOR: &str = "
int other(int *);
int work(int a, int b, int c) {
    int z[40]; z[0] = a;
    int first = other(z), second = other(z + b), third = other(z + c);
    return first * a + second * b + third * c;
}
int other(int *p) { return *p ? work(*p - 1, p[1], p[2]) + 1 : 7; }
int sized(int n) { int z[n]; z[0] = n; return other(z) + z[n - 1]; }
";

#[tokio::test]
async fn the_rules_of_other_processors_are_those_that_readelf_reads() {
    // Breakpad's names of what readelf calls a register by its number, or by its own name.
    let mips = |name: &str| match name.strip_prefix('r').and_then(|number| number.parse::<u32>().ok()) {
        Some(number @ 16..=23) => format!("$s{}", number - 16),
        Some(28) => "$gp".to_owned(),
        Some(29) => "$sp".to_owned(),
        Some(30) => "$fp".to_owned(),
        _ => panic!("{name}"),
    };
    let same = |name: &str| name.to_owned();
    type Name<'n> = &'n dyn Fn(&str) -> String;
    let processors: [(&str, &str, Name<'_>); 2] =
        [("aarch64-linux-gnu", "x30", &same), ("mipsel-linux-gnu", "$ra", &mips)];
    for (triple, link, register) in processors {
        let (compiler, readelf) = (format!("{triple}-gcc"), format!("{triple}-readelf"));
        if !has(&compiler) || !has(&readelf) {
            continue;
        }
        let fixture = Fixture::new().await;
        let (source, library) = (fixture.root.path().join("walked.c"), fixture.root.path().join("walked"));
        std::fs::write(&source, OTHER_PROCESSOR).unwrap();
        let (source, path, id) =
            (source.to_str().unwrap(), library.to_str().unwrap(), format!("-Wl,--build-id=0x{ID}"));
        let options = ["-g", "-O1", "-fno-inline", "-fasynchronous-unwind-tables", "-shared", "-fPIC", "-nostdlib"];
        run(&compiler, &[&options[..], &[source, "-o", path, &id]].concat());
        publish(&fixture.server, fixture.root.path(), "1", &[&library]).await;
        let text = fixture.get(&format!("/symbols/walked/{BREAKPAD_ID}/walked.sym")).await.text().await.unwrap();
        let mut compared = 0;
        let (mut columns, mut in_record) = (Vec::new(), false);
        for line in output(&readelf, &["-W", "-wF", path]).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [_, _, _, kind @ ("FDE" | "CIE"), ..] => in_record = *kind == "FDE",
                ["LOC", names @ ..] => columns = names.iter().map(|name| (*name).to_owned()).collect(),
                [address, texts @ ..] if in_record && texts.len() == columns.len() => {
                    let Some(rules) = rules_at(&text, u64::from_str_radix(address, 16).unwrap()) else {
                        // The end of a function, which no rule is for.
                        continue;
                    };
                    compared += 1;
                    for (column, found) in columns.iter().zip(texts) {
                        let at = |prefix| {
                            found
                                .strip_prefix(prefix)
                                .map(|at: &str| format!(".cfa {} + ^", at.trim_start_matches('+')))
                        };
                        let (name, expected) = match column.as_str() {
                            "CFA" => {
                                let (base, offset) = found.split_at(found.find(['+', '-']).unwrap());
                                (".cfa".to_owned(), format!("{} {} +", register(base), offset.trim_start_matches('+')))
                            }
                            "ra" => (".ra".to_owned(), at('c').unwrap_or_else(|| link.to_owned())),
                            other => (register(other), at('c').unwrap_or_else(|| register(other))),
                        };
                        let ours = rules.get(&name).cloned().unwrap_or_else(|| name.clone());
                        assert_eq!(ours, expected, "{triple} {address} {column}: {rules:?}");
                    }
                }
                _ => {}
            }
        }
        assert!(compared > 8, "{triple}: {compared} rows");
    }
}

/// What `STACK CFI` says at an address: register → expression.
fn rules_at(symbols: &str, address: u64) -> Option<HashMap<String, String>> {
    let (mut rules, mut is_inside) = (HashMap::new(), false);
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    for line in symbols.lines().filter_map(|line| line.strip_prefix("STACK CFI ")) {
        let (start, rest) = match line.strip_prefix("INIT ") {
            Some(line) => {
                if is_inside {
                    break;
                }
                let (start, rest) = line.split_once(' ').unwrap();
                let (size, rest) = rest.split_once(' ').unwrap();
                is_inside = (number(start)..number(start) + number(size)).contains(&address);
                (start, rest)
            }
            None => line.split_once(' ').unwrap(),
        };
        if !is_inside || number(start) > address {
            continue;
        }
        let mut name = String::new();
        for word in rest.split(' ') {
            if let Some(register) = word.strip_suffix(':') {
                name = register.to_owned();
                rules.insert(name.clone(), String::new());
            } else {
                let rule = rules.get_mut(&name).unwrap();
                rule.push_str(if rule.is_empty() { "" } else { " " });
                rule.push_str(word);
            }
        }
    }
    is_inside.then_some(rules)
}

pub(crate) async fn upload(fixture: &Fixture, path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let url = fixture.server.url(&format!("/api/v1/symbols?name={name}"));
    let answer = fixture.http.put(url).body(std::fs::read(path).unwrap()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED, "{}", answer.text().await.unwrap());
}

/// A server that serves a directory where it lies.
pub(crate) async fn serving(tree: &Path) -> Fixture {
    let root = tempfile::tempdir().unwrap();
    let origins = Origins { trees: vec![tree.to_owned()], ..Origins::default() };
    let server = Running::start_with(&root.path().join("data"), &origins).await;
    Fixture { root, server, http: http() }
}

/// What a path has, once a tree was looked at.
pub(crate) async fn found(fixture: &Fixture, path: &str) -> String {
    for _ in 0..100 {
        let answer = fixture.get(path).await;
        if answer.status() == StatusCode::OK {
            return answer.text().await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{path}: {}", fixture.get(path).await.text().await.unwrap());
}

#[tokio::test]
async fn files_without_a_bundle_have_the_symbol_file_that_their_bundle_would_have() {
    if !has("cc") || !has("objcopy") || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    let binary = compile(folder);
    let parts = folder.join("parts");
    std::fs::create_dir(&parts).unwrap();
    let (debug, stripped) = (parts.join("walked.debug"), parts.join("walked"));
    let (from, debug_path, stripped_path) =
        (binary.to_str().unwrap(), debug.to_str().unwrap(), stripped.to_str().unwrap());
    run("objcopy", &["--only-keep-debug", from, debug_path]);
    run("objcopy", &["--strip-all", from, stripped_path]);
    publish(&fixture.server, folder, "1", &[&stripped, &debug]).await;
    let path = format!("/symbols/walked/{BREAKPAD_ID}/walked.sym");
    let expected = fixture.get(&path).await.text().await.unwrap();
    assert!(expected.contains("STACK CFI INIT ") && expected.contains("\nINLINE 1 "), "{expected}");

    let loose = Fixture::new().await;
    upload(&loose, &debug).await;
    let without_program = loose.get(&path).await;
    assert_eq!(without_program.status(), StatusCode::OK);
    let etag = without_program.headers()[ETAG].clone();
    let without_program = without_program.text().await.unwrap();
    let rest: Vec<&str> = expected.lines().filter(|line| !line.starts_with("STACK ")).collect();
    assert_eq!(without_program.lines().collect::<Vec<_>>(), rest, "of a debug file alone");
    upload(&loose, &stripped).await;
    let whole = loose.http.get(loose.server.url(&path)).header(IF_NONE_MATCH, etag).send().await.unwrap();
    assert_eq!(whole.text().await.unwrap(), expected, "with the program the rules of its stack come");
    // One file that is both.
    let unstripped = Fixture::new().await;
    upload(&unstripped, &binary).await;
    assert_eq!(unstripped.get(&path).await.text().await.unwrap(), expected);
    assert_eq!(found(&serving(&parts).await, &path).await, expected, "below a directory that is served where it lies");

    let by_code_id = format!("/symbols/walked/{ID}/walked.sym");
    assert_eq!(loose.get(&by_code_id).await.text().await.unwrap(), expected);
    let other = "0403020106050807090A0B0C0D0E0FFF0";
    assert_eq!(loose.get(&format!("/symbols/walked/{other}/walked.sym")).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_imported_pdb_has_the_symbol_file_that_its_bundle_would_have() {
    let folder = std::env::var_os("SYMSEAL_FIXTURES").map(PathBuf::from);
    let Some(folder) = folder.map(|folder| folder.join("symbolic/symbolic-testutils/fixtures/windows")) else {
        println!("SKIP fixtures: SYMSEAL_FIXTURES is not set");
        return;
    };
    let (program, pdb) = (folder.join("crash.exe"), folder.join("crash.pdb"));
    let fixture = Fixture::new().await;
    publish(&fixture.server, fixture.root.path(), "1", &[&program, &pdb]).await;
    let id = std::fs::read_to_string(folder.join("crash.sym")).unwrap();
    let id = id.lines().next().unwrap().split(' ').nth(3).unwrap().to_owned();
    let path = format!("/symbols/crash.pdb/{id}/crash.sym");
    let expected = fixture.get(&path).await.text().await.unwrap();
    assert!(expected.contains("\nSTACK WIN ") && expected.contains("\nINFO CODE_ID "));
    let loose = Fixture::new().await;
    upload(&loose, &pdb).await;
    let alone = loose.get(&path).await.text().await.unwrap();
    assert!(alone.starts_with(&format!("MODULE windows x86 {id} crash.pdb\n")), "{}", &alone[..100]);
    assert!(alone.contains("\nSTACK WIN ") && !alone.contains("INFO CODE_ID"));
    upload(&loose, &program).await;
    assert_eq!(loose.get(&path).await.text().await.unwrap(), expected);
    let code_id = symseal_artifact::ObjectFile::parse(&std::fs::read(&program).unwrap()).unwrap().code_id().unwrap();
    assert_eq!(loose.get(&format!("/symbols/crash.exe/{code_id}/crash.sym")).await.text().await.unwrap(), expected);
}
