//! Stacks of running programs of which the bundle has a part: what `trace-capture` and `trace-resolve` make of them.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{compile_c, required, run, symseal, tool};

/// Waits in the C library, which called it, for the end of its input.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int compares(const void *a, const void *b) {
    puts("ready");
    fflush(stdout);
    getchar();
    return *(const int *)a - *(const int *)b;
}
__attribute__((noinline)) int sorts(int *numbers) {
    qsort(numbers, 2, sizeof *numbers, compares);
    return numbers[0];
}
int main(void) {
    int numbers[] = {2, 1};
    return sorts(numbers) + 1;
}
"#;

/// Before it does that, it moves its code to memory without a file, as for large pages.
const MOVES: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <string.h>
#include <sys/mman.h>
static int find(struct dl_phdr_info *info, size_t size, void *to) {
    for (int at = 0; at < info->dlpi_phnum; at++)
        if (info->dlpi_phdr[at].p_type == PT_LOAD && info->dlpi_phdr[at].p_flags & PF_X) {
            unsigned long start = info->dlpi_addr + info->dlpi_phdr[at].p_vaddr;
            ((unsigned long *)to)[0] = start & ~4095ul;
            ((unsigned long *)to)[1] = (start + info->dlpi_phdr[at].p_memsz + 4095) & ~4095ul;
        }
    return (int)size | 1;
}
__attribute__((constructor)) static void moves(void) {
    unsigned long code[2];
    dl_iterate_phdr(find, code);
    void *moved = mmap(0, code[1] - code[0], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(moved, (void *)code[0], code[1] - code[0]);
    mprotect(moved, code[1] - code[0], PROT_READ | PROT_EXEC);
    mremap(moved, code[1] - code[0], code[1] - code[0], MREMAP_MAYMOVE | MREMAP_FIXED, (void *)code[0]);
}
"#;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits until it waits: what it wrote is here before it has gone on.
    fn until_asleep(&self) {
        for _ in 0..1000 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            if stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('S')) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("it waits for nothing");
    }
}

/// The frames of one thread, as `trace-resolve --json` gives them.
fn frames(bundle: &str, trace: &str, more: &[&str], thread: u64) -> Vec<Value> {
    let ran = run("trace-resolve", ["--bundle", bundle, trace, "--json"].iter().chain(more)).ok();
    let lines = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["thread"] == thread && line["ip"].is_string()).collect()
}

/// Holds the event of the same trace against what `--json` gave of its only thread: where each frame is, and how the stack ended.
#[track_caller]
fn check_event(bundle: &str, trace: &str, more: &[&str], stack: &[Value]) {
    let ran = run("trace-resolve", ["--bundle", bundle, trace, "--event"].iter().chain(more)).ok();
    let event: Value = serde_json::from_str(&ran.stdout).unwrap();
    let last = stack.last().unwrap();
    let end = serde_json::json!({
        "thread": last["thread"], "sample": 0, "stop": last["stop"], "complete": last["complete"],
    });
    assert_eq!(event["stacks"], Value::from(vec![end]));
    let rows = event["frames"].as_array().unwrap();
    for (depth, frame) in stack.iter().enumerate() {
        let own: Vec<&Value> = rows.iter().filter(|row| row["depth"] == depth).collect();
        assert_eq!(own.len(), frame["frames"].as_array().unwrap().len().max(1), "{frame}");
        for field in ["ip", "exact", "cfa", "frame_pointer", "unwind"] {
            // What is not known is null in the one, and missing in the other.
            assert!(own.iter().all(|row| row[field] == frame[field]), "{field}: {frame} {own:?}");
        }
    }
    assert!(rows.iter().all(|row| row["depth"].as_u64().unwrap() < stack.len() as u64), "{rows:#?}");
}

fn functions(frames: &[Value]) -> Vec<&str> {
    let names = frames.iter().flat_map(|frame| frame["frames"].as_array().unwrap());
    names.filter_map(|frame| frame["function"].as_str()).collect()
}

/// The instruction pointers of a process's only thread, as eu-stack has them.
fn by_eu_stack(pid: &str) -> Option<Vec<String>> {
    let told = Command::new(tool("eu-stack")?).args(["-p", pid, "-r"]).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let address = |line: &str| {
        let word = line.split_whitespace().nth(1)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok().map(|address| format!("{address:#x}"))
    };
    Some(text.lines().filter(|line| line.starts_with('#')).filter_map(address).collect())
}

#[test]
fn rules_that_the_bundle_lacks_are_those_of_the_local_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let Some(path) = compile_c(dir.path(), "sorts", SOURCE, &["-g", "-O1", "-Wl,--build-id"]) else { return };
    symseal([
        "bundle",
        "build",
        &path.display().to_string(),
        "--name",
        "s",
        "--version",
        "1",
        "--output",
        &at("bundle"),
    ])
    .ok();
    let mut child = Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let program = Running(child);
    program.until_asleep();
    run("trace-capture", ["--pid", &program.pid(), "--output", &at("trace")]).ok();
    let thread = u64::from(program.0.id());
    let alone = frames(&at("bundle"), &at("trace"), &["--no-scan"], thread);
    let with_files = frames(&at("bundle"), &at("trace"), &["--no-scan", "--local-files"], thread);
    // The bundle has no rules of the C library, in which the program waits, which is told.
    assert!(!functions(&alone).contains(&"compares"), "{alone:#?}");
    let ran = run("trace-resolve", ["--bundle", &at("bundle"), &at("trace"), "--no-scan"]).ok();
    assert!(
        ran.stderr.contains("no unwind table: libc.so.6 (1); ") && ran.stderr.contains("--local-files"),
        "{}",
        ran.stderr
    );
    // The outermost frame says why the stack ends, and whether that is its end; every other CFA is where its caller's stack pointer was.
    for (stack, stop, complete) in [(&alone, "no-table", false), (&with_files, "end-of-stack", true)] {
        let (last, others) = stack.split_last().unwrap();
        assert_eq!((&last["stop"], &last["complete"]), (&Value::from(stop), &Value::from(complete)), "{last}");
        assert!(others.iter().all(|frame| frame.get("stop").is_none()));
        let exact: Vec<bool> = stack.iter().map(|frame| frame["exact"].as_bool().unwrap()).collect();
        assert!(exact[0] && !exact[1..].contains(&true), "{exact:?}");
        let cfa = |frame: &Value| u64::from_str_radix(&frame["cfa"].as_str().unwrap()[2..], 16).unwrap();
        assert!(others.iter().map(cfa).is_sorted_by(|one, next| one < next), "{stack:#?}");
    }
    check_event(&at("bundle"), &at("trace"), &["--no-scan"], &alone);
    check_event(&at("bundle"), &at("trace"), &["--no-scan", "--local-files"], &with_files);
    let named = functions(&with_files);
    let own: Vec<&str> = named.into_iter().filter(|name| ["compares", "sorts", "main"].contains(name)).collect();
    assert_eq!(own, ["compares", "sorts", "main"]);
    if let Some(expected) = by_eu_stack(&program.pid()) {
        let found: Vec<&str> = with_files.iter().map(|frame| frame["ip"].as_str().unwrap()).collect();
        assert_eq!(found, expected);
    }
    // It is said whose rules these are, of each frame as well: those of the C library lead to its own frames and to `compares`, and those of the bundle back into it.
    let rules = |name: &str| {
        let frame = with_files.iter().find(|frame| functions(std::slice::from_ref(frame)).contains(&name));
        frame.unwrap()["rules"].as_str()
    };
    assert_eq!((rules("compares"), rules("sorts"), rules("main")), (Some("local-file"), Some("local-file"), None));
    let ran = run("trace-resolve", ["--bundle", &at("bundle"), &at("trace"), "--local-files"]).ok();
    let told = ran.stderr.lines().find(|line| line.contains("made of the files on this machine")).unwrap();
    assert!(told.contains("libc.so.6") && !told.contains("sorts"), "{told}");
    // Another file at the path is no source.
    let other = SOURCE.replace("numbers[0]", "numbers[1]");
    let Some(other) = compile_c(dir.path(), "other", &other, &["-g", "-O1", "-Wl,--build-id"]) else { return };
    symseal([
        "bundle",
        "build",
        &other.display().to_string(),
        "--name",
        "o",
        "--version",
        "1",
        "--output",
        &at("others"),
    ])
    .ok();
    std::fs::rename(&other, &path).unwrap();
    let ran =
        run("trace-resolve", ["--bundle", &at("others"), &at("trace"), "--local-files", "--explain", "--no-scan"]).ok();
    assert!(ran.stderr.contains("/sorts: expected the file of "), "{}", ran.stderr);
    let replaced = frames(&at("others"), &at("trace"), &["--no-scan", "--local-files"], thread);
    assert!(!functions(&replaced).contains(&"main"), "{replaced:#?}");
}

/// Code that a virtual machine made is walked by its frame pointers, where its runtime says that it is code, and has the names that the runtime gave it.
#[test]
fn compiled_methods_of_a_jvm_are_walked_and_named() {
    const METHODS: [&str; 3] = ["long Hot.inner(long)", "long Hot.middle(long)", "long Hot.outer(long)"];
    let source = "public class Hot {
        static long inner(long x) { long s = 0; for (int i = 0; i < 100000; i++) s += (x ^ i) * 31; return s; }
        static long middle(long x) { return inner(x) + 1; }
        static long outer(long x) { return middle(x) + 2; }
        public static void main(String[] a) {
            long s = 0, end = System.nanoTime() + 120_000_000_000L;
            while (System.nanoTime() < end) s += outer(s);
            System.out.println(s);
        }
    }";
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(dir.path().join("Hot.java"), source).unwrap();
    let options = ["-Xmx128m", "-XX:+PreserveFramePointer", "-XX:-Inline", "-XX:-UseOnStackReplacement", "Hot.java"];
    let started = Command::new("java").current_dir(dir.path()).args(options).stdout(Stdio::null()).spawn();
    let (Ok(child), Ok(_)) = (started, Command::new("jcmd").arg("-h").output()) else {
        assert!(!required("java"), "java and jcmd are required");
        println!("SKIP java: not found, or no jcmd");
        return;
    };
    let jvm = Running(child);
    let any = tool("true").unwrap();
    symseal(["bundle", "build", any.to_str().unwrap(), "--name", "any", "--version", "1", "--output", &at("bundle")])
        .ok();
    let map = format!("/tmp/perf-{}.map", jvm.pid());
    let begin = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        // It may not have begun to listen, or not have compiled all three.
        let told = Command::new("jcmd").args([&jvm.pid(), "Compiler.perfmap"]).output().unwrap();
        let text = std::fs::read_to_string(&map).unwrap_or_default();
        if told.status.success() && METHODS.iter().all(|method| text.contains(method)) {
            run("trace-capture", ["--pid", &jvm.pid(), "--output", &at("trace")]).ok();
            if is_walked(&at("bundle"), &at("trace"), &METHODS) {
                break;
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no stack of the three methods, one calling the next");
    }
    drop(jvm);
    let _ = std::fs::remove_file(Path::new(&map));
}

/// Whether a thread has the methods, one calling the next, each found by frame pointers and named by the runtime, and goes on from them through the interpreter and the
/// virtual machine's own code, whose rules are those of its files, to where the thread began.
fn is_walked(bundle: &str, trace: &str, methods: &[&str]) -> bool {
    let ran = run("trace-resolve", ["--bundle", bundle, trace, "--json", "--local-files"]).ok();
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_next = |frame: &Value, method: &str| {
        frame["resolver"] == "jit-map" && frame["proof"] == "none" && frame["frames"][0]["function"] == method
    };
    let at = lines
        .windows(methods.len())
        .position(|frames| frames.iter().zip(methods).all(|(frame, method)| is_next(frame, method)));
    let Some(stack) = at.and_then(|at| lines.get(at..)) else { return false };
    let by_frame_pointers = stack.iter().take(methods.len()).skip(1).all(|frame| frame["unwind"] == "frame-pointer");
    let thread = &stack[0]["thread"];
    let on: Vec<Value> = stack.iter().take_while(|frame| frame["thread"] == *thread).cloned().collect();
    let on = functions(&on);
    by_frame_pointers && on.contains(&"Interpreter") && on.contains(&"JavaMain") && on.contains(&"start_thread")
}

#[test]
fn code_that_was_moved_to_memory_without_a_file_has_the_names_and_rules_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let source = format!("{MOVES}{SOURCE}");
    let Some(path) = compile_c(dir.path(), "moves", &source, &["-g", "-O1", "-Wl,--build-id"]) else { return };
    let program = path.display().to_string();
    symseal(["bundle", "build", &program, "--name", "m", "--version", "1", "--output", &at("bundle")]).ok();
    let mut child = Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let program = Running(child);
    program.until_asleep();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
    assert!(!maps.lines().any(|line| line.contains("r-x") && line.ends_with("/moves")), "{maps}");
    run("trace-capture", ["--pid", &program.pid(), "--output", &at("trace")]).ok();
    let frames = frames(&at("bundle"), &at("trace"), &["--no-scan", "--local-files"], u64::from(program.0.id()));
    let named = functions(&frames);
    let own: Vec<&str> = named.into_iter().filter(|name| ["compares", "sorts", "main"].contains(name)).collect();
    assert_eq!(own, ["compares", "sorts", "main"], "{frames:#?}");
    assert!(!frames.iter().any(|frame| frame["unwind"] == "frame-pointer"), "{frames:#?}");
    assert_eq!(frames.last().unwrap()["complete"], true);
}
