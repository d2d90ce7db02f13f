//! What the crate says about live processes, held to what is known of them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Child, Command};
use std::time::Duration;

use symseal_module::Avma;
use symseal_process::{
    ElfImage, IdentifiedBy, JitFileState, JitMaps, JitSnapshot, JitSource, KallsymsError, ProcessError, executable_of,
    identity_of, kernel_build_id, kernel_symbols, modules_in, modules_of, open_in_root, open_module, proc_maps,
    read_memory, tasks, thread_name, vdso_bytes,
};

struct Sleep(Child);

impl Sleep {
    fn start() -> Self {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        // Until it has called exec, it is a copy of this program; then the loader maps the libraries.
        std::thread::sleep(Duration::from_millis(50));
        Self(child)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn this() -> u32 {
    std::process::id()
}

#[test]
fn a_function_of_ours_lies_in_our_own_module_at_its_file_offset() {
    let address = Avma(a_function_of_ours_lies_in_our_own_module_at_its_file_offset as fn() as usize as u64);
    let modules = modules_of(this()).unwrap();
    let module = modules.iter().find(|module| module.module.start <= address && address < module.module.end).unwrap();
    assert_eq!(module.path, std::env::current_exe().unwrap().to_str().unwrap().as_bytes());
    assert_eq!(module.path, executable_of(this()).unwrap());

    // The bias leads from the address in memory to the same bytes in the file.
    let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    let image = ElfImage::read(|offset, out| {
        out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]);
        true
    })
    .unwrap();
    let svma = module.module.svma(address).0;
    let segment = image.loaded().find(|segment| (segment.svma.0..segment.svma.0 + segment.file_bytes).contains(&svma));
    let offset = (svma - segment.unwrap().svma.0 + segment.unwrap().offset) as usize;
    let mut memory = [0; 32];
    assert_eq!(read_memory(this(), address, &mut memory).unwrap(), 32);
    assert_eq!(memory, bytes[offset..offset + 32]);
}

#[test]
fn modules_do_not_overlap_and_every_mapping_of_code_is_in_one() {
    let modules = modules_of(this()).unwrap();
    assert!(modules.windows(2).all(|pair| pair[0].module.end <= pair[1].module.start));
    for mapping in proc_maps(this()).unwrap().iter().filter(|mapping| mapping.executable && mapping.is_file()) {
        let around = |start, end| start <= mapping.start && mapping.end <= end;
        assert!(modules.iter().any(|module| around(module.module.start, module.module.end)), "{mapping:?}");
    }
}

#[test]
fn build_ids_come_from_memory_and_are_those_of_the_files() {
    let sleep = Sleep::start();
    let modules = modules_of(sleep.0.id()).unwrap();
    assert!(modules.len() >= 4, "sleep, libc, loader, vdso");
    for module in modules.iter().filter(|module| module.module.debug_id.is_some()) {
        assert_eq!(module.identified_by, IdentifiedBy::Memory, "{}", module.module.path);
        if !module.is_vdso() {
            assert_eq!(module.file_debug_id, module.module.debug_id, "{}", module.module.path);
        }
    }
}

#[test]
fn readelf_reads_the_same_build_ids_from_the_files() {
    let sleep = Sleep::start();
    for module in modules_of(sleep.0.id()).unwrap().iter().filter(|module| !module.is_vdso()) {
        let path = str::from_utf8(&module.path).unwrap();
        let Ok(notes) = Command::new("readelf").args(["-n", path]).output() else {
            let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "readelf" || name == "all"), "readelf is required");
            println!("SKIP readelf: not found");
            return;
        };
        let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
        let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(str::to_owned));
        assert_eq!(module.module.debug_id.as_ref().map(ToString::to_string), id, "{path}");
    }
}

#[test]
fn a_modules_file_is_opened_whole() {
    let sleep = Sleep::start();
    let modules = modules_of(sleep.0.id()).unwrap();
    let libc = modules.iter().find(|module| module.module.path.contains("libc.so")).unwrap();
    let mut bytes = Vec::new();
    open_module(sleep.0.id(), libc).unwrap().file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, fs::read(str::from_utf8(&libc.path).unwrap()).unwrap());
}

#[test]
fn an_unlinked_file_is_still_a_module_and_its_successor_is_not_taken_for_it() {
    let path = std::env::temp_dir().join(format!("symseal-process-{}", this()));
    fs::copy("/bin/sleep", &path).unwrap();
    let child = Sleep(Command::new(&path).arg("60").spawn().unwrap());
    std::thread::sleep(Duration::from_millis(50));
    let before = modules_of(child.0.id()).unwrap();
    fs::remove_file(&path).unwrap();
    fs::copy("/bin/cat", &path).unwrap();
    let after = modules_of(child.0.id()).unwrap();
    fs::remove_file(&path).unwrap();
    let find = |modules: &[symseal_process::ProcessModule]| {
        modules.iter().find(|module| module.path == path.to_str().unwrap().as_bytes()).unwrap().clone()
    };
    let (before, after) = (find(&before), find(&after));
    assert!(!before.deleted && after.deleted);
    assert_eq!(before.module, after.module);
    // Through map_files it is the old file; where that is not allowed, no file at all.
    assert!(after.file_debug_id.is_none() || after.file_debug_id == before.file_debug_id);
}

#[test]
fn the_vdso_is_an_elf_image_with_a_build_id() {
    let Some(bytes) = vdso_bytes(this()).unwrap() else { return };
    assert!(bytes.starts_with(b"\x7fELF"));
    let vdso = modules_of(this()).unwrap().into_iter().find(symseal_process::ProcessModule::is_vdso).unwrap();
    assert!(vdso.module.debug_id.is_some());
    assert!(vdso.module.end.0 - vdso.module.start.0 <= bytes.len() as u64);
}

/// A program that maps a file of no ELF in many pieces of code, as compilers at run time do that write through one mapping
/// and run through another one.
const PIECES: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    long pieces = atol(argv[1]);
    int file = memfd_create("doublemapper", 0);
    if (ftruncate(file, pieces * 8192)) return 1;
    char *at = mmap(0, pieces * 8192, PROT_READ, MAP_SHARED, file, 0);
    for (long piece = 0; piece < pieces; piece++)
        if (mprotect(at + piece * 8192, 4096, PROT_READ | PROT_EXEC)) return 2;
    puts("ready");
    fflush(stdout);
    return pause();
}
"#;

#[test]
fn finding_the_modules_takes_as_long_as_the_kernel_takes_to_list_the_mappings() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pieces.c"), PIECES).unwrap();
    let Ok(compiled) = Command::new("gcc").current_dir(dir.path()).args(["-o", "pieces", "pieces.c"]).status() else {
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "gcc" || name == "all"), "gcc is required");
        println!("SKIP gcc: not found");
        return;
    };
    assert!(compiled.success());
    let mut program = Command::new(dir.path().join("pieces"));
    let mut child = program.arg("30000").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let process = Sleep(child);
    let fastest = |what: &mut dyn FnMut()| {
        let took = (0..3).map(|_| {
            let began = std::time::Instant::now();
            what();
            began.elapsed()
        });
        took.min().unwrap()
    };
    let mappings = proc_maps(process.0.id()).unwrap();
    assert!(mappings.len() > 60_000);
    let listing = fastest(&mut || drop(proc_maps(process.0.id()).unwrap()));
    let finding = fastest(&mut || {
        let modules = modules_in(process.0.id(), &mappings).unwrap();
        assert!(modules.iter().any(|module| module.path.ends_with(b"/pieces")));
        assert!(!modules.iter().any(|module| module.path.starts_with(b"/memfd")));
    });
    // A look at all mappings for each takes a hundred times as long.
    println!("{} mappings: listed in {listing:?}, modules in {finding:?}", mappings.len());
    assert!(finding < 3 * listing, "{} mappings: listed in {listing:?}, modules in {finding:?}", mappings.len());
}

#[test]
fn reads_stop_short_at_unreadable_memory() {
    let mappings = proc_maps(this()).unwrap();
    let gap =
        mappings.windows(2).find(|pair| pair[0].readable && pair[0].end < pair[1].start && !pair[0].path.is_empty());
    let end = gap.unwrap()[0].end;
    let mut out = vec![0; 8192];
    assert_eq!(read_memory(this(), Avma(end.0 - 100), &mut out).unwrap(), 100);
    assert_eq!(read_memory(this(), end, &mut out).unwrap(), 0);
    assert_eq!(read_memory(this(), Avma(u64::MAX - 10), &mut out).unwrap(), 0);
    assert_eq!(read_memory(this(), end, &mut []).unwrap(), 0);
}

#[test]
fn threads_are_listed_with_their_names() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("a \u{fc} name".into()).spawn(move || receiver.recv()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let names: BTreeMap<u32, Vec<u8>> =
        tasks(this()).unwrap().into_iter().map(|task| (task, thread_name(this(), task))).collect();
    assert!(names.contains_key(&this()));
    assert!(names.values().any(|name| name == "a \u{fc} name".as_bytes()), "{names:?}");
    drop(sender);
    let _ = thread.join().unwrap();
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    for pid in [child.id(), u32::MAX] {
        for error in [modules_of(pid).unwrap_err(), tasks(pid).unwrap_err()] {
            assert!(matches!(error, ProcessError::NoSuchProcess { .. }), "{error}");
        }
        let error = read_memory(pid, Avma(0x1000), &mut [0; 8]).unwrap_err();
        assert!(matches!(error, ProcessError::NoSuchProcess { .. }), "{error}");
    }
}

#[test]
fn a_kernel_thread_has_no_memory() {
    // 2 is kthreadd, where the machine shows it.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        let error = modules_of(2).unwrap_err();
        assert!(matches!(error, ProcessError::NoMemory { .. } | ProcessError::NotPermitted { .. }), "{error}");
    }
}

/// Runs node on a program that keeps a function hot, until `ready` says so; `None` where there is no node.
fn node(dir: &std::path::Path, argument: &str) -> Option<Sleep> {
    fs::write(
        dir.join("hot.js"),
        "function hotLoop(n) { let sum = 0; for (let i = 0; i < n; i++) sum += Math.sqrt(i) ^ i; return sum; }\n\
         const end = Date.now() + 30000;\nwhile (Date.now() < end) hotLoop(100000);\n",
    )
    .unwrap();
    let Ok(child) = Command::new("node").current_dir(dir).args([argument, "hot.js"]).spawn() else {
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "node" || name == "all"), "node is required");
        println!("SKIP node: not found");
        return None;
    };
    Some(Sleep(child))
}

/// Reads the JIT files of a process until they hold its hot function; gives its address, and how it was found.
fn hot_function(process: &Sleep, source: JitSource) -> (JitSnapshot, Avma) {
    let pid = process.0.id();
    let mut maps = JitMaps::new(pid);
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        maps.refresh(&proc_maps(pid).unwrap());
        let told = maps.snapshot();
        // What the runtime wrote itself, read without our parser: a range of the optimised function.
        let code = proc_maps(pid).unwrap();
        for mapping in code.iter().filter(|mapping| mapping.executable && !mapping.is_file()) {
            for at in (mapping.start.0..mapping.end.0).step_by(32) {
                if let Some((found, hit)) = told.find(Avma(at))
                    && found == source
                    && hit.function.name.contains("*hotLoop")
                {
                    return (told, Avma(at));
                }
            }
        }
    }
    panic!("no hotLoop: {:?}", maps.snapshot().state(source));
}

#[test]
fn node_names_its_code_in_a_perf_map() {
    let dir = tempfile::tempdir().unwrap();
    let Some(process) = node(dir.path(), "--perf-basic-prof") else { return };
    let path = format!("/tmp/perf-{}.map", process.0.id());
    let (told, address) = hot_function(&process, JitSource::PerfMap);
    let (_, hit) = told.find(address).unwrap();
    // grep reads the same line.
    let line = format!("{:x} {:x} {}", hit.function.start.0, hit.function.size, hit.function.name);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().any(|found| found == line), "{line}");
    assert!(matches!(told.state(JitSource::PerfMap), JitFileState::Read { functions: 100.., passed_over: 0, .. }));
    drop(process);
    let _ = fs::remove_file(path);
}

#[test]
fn node_names_its_code_and_lines_in_a_jitdump() {
    let dir = tempfile::tempdir().unwrap();
    let Some(process) = node(dir.path(), "--perf-prof") else { return };
    let (told, _) = hot_function(&process, JitSource::JitDump);
    // Node names functions by their place, `JS:^name file:line:column`, which its lines have to agree with. `^` is the
    // compiler that inlines nothing.
    let mut compared = 0;
    let mut seen = std::collections::BTreeSet::new();
    for mapping in proc_maps(process.0.id()).unwrap().iter().filter(|mapping| mapping.executable) {
        for at in (mapping.start.0..mapping.end.0).step_by(32).map(Avma) {
            let Some((_, hit)) = told.find(at).filter(|(_, hit)| hit.function.name.starts_with("JS:^")) else {
                continue;
            };
            let (Some(line), true) = (hit.line(at), seen.insert(hit.function.start)) else { continue };
            let place = hit.function.name.rsplit(' ').next().unwrap();
            let [_, first_line, file] = place.rsplitn(3, ':').collect::<Vec<_>>()[..] else { panic!("{place}") };
            assert!(line.file.ends_with(file) && line.line >= first_line.parse().unwrap(), "{place}: {line:?}");
            compared += 1;
        }
    }
    assert!(compared >= 5, "{compared} functions with lines: {:?}", told.state(JitSource::JitDump));
    assert!(matches!(told.state(JitSource::JitDump), JitFileState::Read { functions: 100.., .. }));
}

#[test]
fn a_perf_map_is_followed_while_it_grows_and_when_it_is_another_file() {
    let sleep = Sleep::start();
    let mappings = proc_maps(sleep.0.id()).unwrap();
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", sleep.0.id()));
    let mut maps = JitMaps::new(sleep.0.id());
    let name = |maps: &JitMaps, at: u64| maps.snapshot().find(Avma(at)).map(|(_, hit)| hit.function.name.clone());
    maps.refresh(&mappings);
    assert_eq!(maps.snapshot().state(JitSource::PerfMap), &JitFileState::Absent);
    fs::write(&path, "").unwrap();
    maps.refresh(&mappings);
    assert!(matches!(maps.snapshot().state(JitSource::PerfMap), JitFileState::Read { functions: 0, .. }));

    fs::write(&path, "1000 20 first\n2000 20 sec").unwrap();
    maps.refresh(&mappings);
    assert_eq!((name(&maps, 0x1000).as_deref(), name(&maps, 0x2000)), (Some("first"), None));
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b"ond\n1000 10 reused\n").unwrap();
    maps.refresh(&mappings);
    assert_eq!((name(&maps, 0x1000).as_deref(), name(&maps, 0x2000).as_deref()), (Some("reused"), Some("second")));
    assert!(maps.snapshot().find(Avma(0x1010)).unwrap().1.overlapped);

    let other = path.with_extension("new");
    fs::write(&other, "3000 20 of another file\n").unwrap();
    fs::rename(&other, &path).unwrap();
    maps.refresh(&mappings);
    assert_eq!((name(&maps, 0x1000), name(&maps, 0x3000).as_deref()), (None, Some("of another file")));
    fs::remove_file(&path).unwrap();
    maps.refresh(&mappings);
    assert_eq!(name(&maps, 0x3000), None);
}

/// As `jcmd PID Compiler.perfmap` writes it: truncated, then all that is true now, which may be more than before.
#[test]
fn a_perf_map_that_is_written_anew_in_its_place_is_read_anew() {
    let sleep = Sleep::start();
    let mappings = proc_maps(sleep.0.id()).unwrap();
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", sleep.0.id()));
    let mut maps = JitMaps::new(sleep.0.id());
    for (text, expected) in [
        ("1000 20 old\n2000 20 stable\n", [Some("old"), Some("stable"), None]),
        ("1000 10 new\n2000 20 stable\n3000 20 third\n", [Some("new"), Some("stable"), Some("third")]),
        ("1000 10 two\n2000 20 stable\n3000 20 third\n", [Some("two"), Some("stable"), Some("third")]),
        (
            "2000 20 stable\n1000 20 of another length in the middle\n3000 2",
            [Some("of another length in the middle"), Some("stable"), None],
        ),
        ("", [None; 3]),
        ("3000 20 again\n", [None, None, Some("again")]),
    ] {
        // The same inode, and often the same moment for the file system's clock.
        let inode = fs::metadata(&path).ok().map(|metadata| std::os::unix::fs::MetadataExt::ino(&metadata));
        fs::write(&path, text).unwrap();
        let written = fs::metadata(&path).unwrap();
        assert!(inode.is_none_or(|inode| inode == std::os::unix::fs::MetadataExt::ino(&written)));
        maps.refresh(&mappings);
        let name = |at: u64| maps.snapshot().find(Avma(at)).map(|(_, hit)| hit.function.name.clone());
        let found = [name(0x1000), name(0x2000), name(0x3000)];
        assert_eq!(found.each_ref().map(Option::as_deref), expected, "{text:?}");
    }
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_jvm_that_is_asked_again_for_its_code_has_the_names_of_the_last_time() {
    let dir = tempfile::tempdir().unwrap();
    // Each second another method becomes hot, so that there is something to compile however busy the machine is.
    let method = |n| {
        format!(
            "static double work{n}(int n) {{ double sum = {n}; for (int i = 0; i < n; i++) sum += Math.sqrt(i + sum); return sum; }}\n"
        )
    };
    let case = |n| format!("case {n}: sum += work{n}(1000); break;\n");
    let (methods, cases): (String, String) = ((0..60).map(method).collect(), (0..60).map(case).collect());
    let source = format!(
        "public class Hot {{ {methods} public static void main(String[] a) {{ double sum = 0; long start = System.nanoTime(); for (;;) \
         switch ((int) ((System.nanoTime() - start) / 1_000_000_000L)) {{ {cases} default: System.out.println(sum); return; }} }} }}"
    );
    fs::write(dir.path().join("Hot.java"), source).unwrap();
    let child = Command::new("java").current_dir(dir.path()).args(["-Xmx128m", "Hot.java"]).spawn();
    let (Ok(child), Ok(_)) = (child, Command::new("jcmd").arg("-h").output()) else {
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "java" || name == "all"), "java and jcmd are required");
        println!("SKIP java: not found, or no jcmd");
        return;
    };
    let process = Sleep(child);
    let path = format!("/tmp/perf-{}.map", process.0.id());
    let mut maps = JitMaps::new(process.0.id());
    let (mut texts, mut compared) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(700));
        let told = Command::new("jcmd").args([&process.0.id().to_string(), "Compiler.perfmap"]).output().unwrap();
        if !told.status.success() {
            // It has not begun to listen.
            continue;
        }
        maps.refresh(&proc_maps(process.0.id()).unwrap());
        let (told, text) = (maps.snapshot(), fs::read_to_string(&path).unwrap());
        for line in text.lines() {
            let [start, size, name] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
            let found = told.find(Avma(number(start) + number(size) / 2)).map(|(_, hit)| hit.function.name.as_str());
            assert_eq!(found, Some(name.trim()), "{line}");
            compared += 1;
        }
        texts.insert(text);
        if texts.len() == 2 {
            break;
        }
    }
    // A machine that has compiled all that it will writes the same again.
    assert!(texts.len() == 2 && compared > 500, "{} maps, {compared} functions", texts.len());
    drop(process);
    let _ = fs::remove_file(path);
}

#[test]
fn a_perf_map_without_an_end_of_line_is_read_once() {
    let sleep = Sleep::start();
    let mappings = proc_maps(sleep.0.id()).unwrap();
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", sleep.0.id()));
    fs::File::create(&path).unwrap().set_len(3 << 30).unwrap();
    let mut maps = JitMaps::new(sleep.0.id());
    maps.refresh(&mappings);
    assert!(matches!(maps.snapshot().state(JitSource::PerfMap), JitFileState::Damaged { .. }));
    let first_read = bytes_read_by_us();
    for _ in 0..100 {
        maps.refresh(&mappings);
    }
    assert!(bytes_read_by_us() - first_read < 4 << 20, "it is looked at, and not read, a hundred times");
    fs::write(&path, "1000 20 mended\n").unwrap();
    maps.refresh(&mappings);
    assert_eq!(maps.snapshot().find(Avma(0x1000)).unwrap().1.function.name, "mended");
    fs::remove_file(&path).unwrap();
}

/// Of this thread, by the kernel's count (proc_pid_io(5)).
fn bytes_read_by_us() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_perf_map_of_another_user_is_not_believed() {
    let sleep = Sleep::start();
    let mappings = proc_maps(sleep.0.id()).unwrap();
    let path = std::path::PathBuf::from(format!("/tmp/perf-{}.map", sleep.0.id()));
    fs::write(&path, "1000 20 forged\n").unwrap();
    if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
        println!("SKIP chown: not permitted");
    } else {
        let mut maps = JitMaps::new(sleep.0.id());
        maps.refresh(&mappings);
        assert!(maps.snapshot().find(Avma(0x1000)).is_none());
        assert_eq!(
            maps.snapshot().state(JitSource::PerfMap),
            &JitFileState::ForeignOwner { path: path.clone(), owner: 65534 }
        );
    }
    fs::remove_file(&path).unwrap();
}

/// Agents of the JVM give their map to root, as perf believes that of root and its own user alone.
#[test]
fn a_perf_map_of_root_is_believed_of_any_process() {
    use std::os::unix::process::CommandExt;
    let Ok(child) = Command::new("sleep").arg("60").uid(65534).spawn() else {
        println!("SKIP setuid: not permitted");
        return;
    };
    std::thread::sleep(Duration::from_millis(50));
    let sleep = Sleep(child);
    let path = format!("/tmp/perf-{}.map", sleep.0.id());
    fs::write(&path, "1000 20 of root\n").unwrap();
    let mut maps = JitMaps::new(sleep.0.id());
    maps.refresh(&proc_maps(sleep.0.id()).unwrap());
    fs::remove_file(&path).unwrap();
    assert_eq!(maps.snapshot().find(Avma(0x1000)).unwrap().1.function.name, "of root");
}

#[test]
fn a_pipe_in_the_place_of_a_perf_map_holds_up_nobody() {
    let sleep = Sleep::start();
    let path = format!("/tmp/perf-{}.map", sleep.0.id());
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut maps = JitMaps::new(sleep.0.id());
    maps.refresh(&proc_maps(sleep.0.id()).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(matches!(maps.snapshot().state(JitSource::PerfMap), JitFileState::Unreadable { .. }));
}

#[test]
fn the_kernels_functions_are_named_as_it_names_them_or_not_at_all() {
    let text = fs::read_to_string("/proc/kallsyms").unwrap();
    let schedule = text.lines().find(|line| line.ends_with(" T schedule")).unwrap();
    let address = u64::from_str_radix(schedule.split(' ').next().unwrap(), 16).unwrap();
    match kernel_symbols() {
        Ok(kernel) => {
            let hit = kernel.find(Avma(address + 1)).unwrap();
            assert_eq!((hit.name, hit.start, hit.module), ("schedule", Avma(address), None));
            assert!(kernel.text_start().is_some() && kernel_build_id(None).is_some());
        }
        Err(ProcessError::KernelSymbols { error }) => assert_eq!((error, address), (KallsymsError::Hidden, 0)),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(kernel_build_id(Some("../../kernel")), None);
}

#[test]
fn a_process_is_told_from_its_successor_and_from_its_next_program() {
    let mut shell =
        Command::new("sh").args(["-c", "read go; exec sleep 60"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = identity_of(shell.id()).unwrap();
    assert_eq!(before, identity_of(shell.id()).unwrap());
    std::io::Write::write_all(shell.stdin.as_mut().unwrap(), b"go\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut sleep = Sleep(shell);
    let after = identity_of(sleep.0.id()).unwrap();
    assert!(after.is_same_process(&before) && after != before);
    sleep.0.kill().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let error = identity_of(sleep.0.id()).unwrap_err();
    assert!(matches!(error, ProcessError::NoMemory { .. }), "not waited for: {error}");
    sleep.0.wait().unwrap();
    let error = identity_of(sleep.0.id()).unwrap_err();
    assert!(matches!(error, ProcessError::NoSuchProcess { .. }), "{error}");
    assert!(!identity_of(this()).unwrap().is_same_process(&before));
}

#[test]
fn links_below_the_root_of_a_process_do_not_lead_out_of_it() {
    let sleep = Sleep::start();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("target"), "found").unwrap();
    std::os::unix::fs::symlink(dir.path().join("target"), dir.path().join("link")).unwrap();
    let mut text = String::new();
    open_in_root(sleep.0.id(), &dir.path().join("link")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "found");
    assert!(open_in_root(sleep.0.id(), dir.path()).is_err(), "a directory");
    let magic = open_in_root(sleep.0.id(), std::path::Path::new("/proc/self/exe"));
    assert!(magic.is_err(), "links of /proc lead out of any root");
}
