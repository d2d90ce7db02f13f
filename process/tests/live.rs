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
    ElfImage, IdentifiedBy, ProcessError, executable_of, modules_of, open_module, proc_maps, read_memory, tasks,
    thread_name, vdso_bytes,
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
