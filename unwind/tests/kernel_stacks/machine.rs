//! The emulated machine, its kernel and the program that is its only process.

use std::collections::BTreeMap;
use std::io::{Error, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use object::{Object, ObjectSymbol};
use symseal_module::Avma;
use symseal_unwind::{Memory, Module, Modules, Registers, Table};

use crate::elf::{self, Binary};
use crate::gdb::Emulated;
use crate::stopped::Stopped;

const EMULATOR: &str = "qemu-system-x86_64";
/// How long the kernel may take to start its first process.
const PATIENCE: Duration = Duration::from_secs(300);
/// GDB's numbers of the general registers by their DWARF numbers: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp.
const IN_PACKET: [usize; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const PC_IN_PACKET: usize = 16;

pub(crate) struct Machine {
    pub(crate) emulated: Emulated,
    pub(crate) modules: Modules<'static>,
    /// The process's program alone.
    pub(crate) program: Modules<'static>,
    symbols: BTreeMap<u64, String>,
    by_name: BTreeMap<String, u64>,
}

/// The program's table as the walk takes it.
fn module(path: &Path) -> (Module<'static>, BTreeMap<u64, String>) {
    let binary: &'static Binary = Box::leak(Box::new(Binary::read(path).expect("a file")));
    let parts = binary.parts();
    let compiled = binary.compile();
    println!(
        "{}: {} rows, {} of {} bytes",
        path.display(),
        compiled.report.rows,
        compiled.report.covered_bytes,
        compiled.report.text_bytes
    );
    let table = Table::open(compiled.bytes.leak()).expect("our own table");
    table.verify().expect("our own table");
    let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
    let symbols = file.symbols().filter(|symbol| symbol.is_definition() && symbol.address() != 0);
    let symbols = symbols.filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned()))).collect();
    let module = Module {
        start: Avma(parts.image_base.0),
        end: Avma(parts.text.iter().map(|text| text.end).max().expect("code")),
        bias: 0,
        image_base: parts.image_base,
        table: Some(table),
        code: None,
    };
    (module, symbols)
}

/// Files one after the other as `cpio -H newc` has them: name, mode, bytes. (Linux, `driver-api/early-userspace/buffer-format`)
fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, mode, bytes) in files.iter().chain(&[("TRAILER!!!", 0, &b""[..])]) {
        let fields = [0, *mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        out.extend(b"070701");
        fields.iter().for_each(|field| out.extend(format!("{field:08x}").bytes()));
        out.extend(name.bytes().chain([0]));
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(*bytes);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

impl Machine {
    /// The kernel of `folder` with the program as its first process, stopped; `None`, with a word, where something is missing.
    pub(crate) fn start(folder: &Path, directory: &Path) -> Option<Self> {
        let program = directory.join("init");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel_stacks/init.c");
        let compiled = Command::new("gcc").args(["-O2", "-static", "-g", "-o"]).arg(&program).arg(source).status();
        assert!(compiled.expect("gcc").success());
        let bytes = std::fs::read(&program).expect("the program");
        let initrd = directory.join("initrd");
        let files = [("dev", 0o040_755, &b""[..]), ("proc", 0o040_755, b""), ("init", 0o100_755, &bytes)];
        std::fs::File::create(&initrd).and_then(|mut file| file.write_all(&archive(&files))).expect("written");
        let (socket, serial) = (directory.join("gdb"), directory.join("serial"));
        let child = Command::new(EMULATOR)
            .args(["-M", "pc", "-m", "512", "-display", "none", "-no-reboot", "-monitor", "none", "-net", "none"])
            .arg("-kernel")
            .arg(folder.join("vmlinuz"))
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", "console=ttyS0 nokaslr quiet"])
            .arg("-chardev")
            .arg(format!("socket,path={},server=on,wait=off,id=gdb", socket.display()))
            .args(["-gdb", "chardev:gdb", "-serial"])
            .arg(format!("file:{}", serial.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                elf::skip(EMULATOR, &error.to_string());
                return None;
            }
        };
        let began = Instant::now();
        while !std::fs::read(&serial).is_ok_and(|text| text.windows(5).any(|word| word == b"READY")) {
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the kernel does not start: {:?}", std::fs::read_to_string(&serial));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut emulated = Emulated::connect(child, &socket).expect("a connection");
        emulated.settle().expect("it stops");
        let (kernel, symbols) = module(&folder.join("vmlinux"));
        let (program, _) = module(&program);
        let arch = symseal_unwind::Arch::X86_64;
        let by_name = symbols.iter().map(|(address, name)| (name.clone(), *address)).collect();
        emulated.registers().expect("registers");
        Some(Self {
            emulated,
            modules: Modules::new(arch, vec![program.clone(), kernel]),
            program: Modules::new(arch, vec![program]),
            symbols,
            by_name,
        })
    }

    pub(crate) fn address(&self, name: &str) -> u64 {
        self.by_name[name]
    }

    /// The symbol at or before an address, and the distance.
    pub(crate) fn name(&self, address: u64) -> String {
        let found = self.symbols.range(..=address).next_back();
        found.map_or_else(|| format!("{address:#x}"), |(start, name)| format!("{name}+{:#x}", address - start))
    }

    pub(crate) fn begins(&self, address: u64, prefixes: &[&str]) -> bool {
        self.symbols.get(&address).is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// Whether an address is in an entry that calls a helper.
    pub(crate) fn is_helped(&self, address: u64) -> bool {
        let name = self.symbols.range(..=address).next_back().map_or("", |(_, name)| name);
        name.starts_with("asm_exc_") || name.starts_with("asm_sysvec_")
    }

    pub(crate) fn registers(&mut self) -> Result<Registers, Error> {
        self.emulated.registers().map(|packet| registers(&packet))
    }
}

pub(crate) fn registers(packet: &[u8]) -> Registers {
    let word =
        |at: usize| packet.get(8 * at..).and_then(|rest| rest.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
    let mut general = [None; 32];
    for (register, at) in general.iter_mut().zip(IN_PACKET) {
        *register = word(at);
    }
    let of = |number: usize| general[number].expect("a register");
    Registers { pc: word(PC_IN_PACKET).expect("a register"), sp: of(7), fp: of(6), general }
}

/// All memory that the machine shows with its present page tables, read piece by piece.
pub(crate) struct Seen<'m> {
    emulated: std::cell::RefCell<&'m mut Emulated>,
    pieces: std::cell::RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl<'m> Seen<'m> {
    pub(crate) fn new(emulated: &'m mut Emulated) -> Self {
        Self { emulated: std::cell::RefCell::new(emulated), pieces: Default::default() }
    }
}

impl Memory for Seen<'_> {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        const PIECE: u64 = 512;
        let mut pieces = self.pieces.borrow_mut();
        let start = address.0 / PIECE * PIECE;
        let bytes = pieces.entry(start).or_insert_with(|| {
            self.emulated.borrow_mut().read(start, PIECE as usize).expect("an answer of the emulator")
        });
        let at = (address.0 - start) as usize;
        bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn read_u32(&self, address: Avma) -> Option<u32> {
        let word = self.read_u64(Avma(address.0 & !7))?;
        Some((word >> (8 * (address.0 & 4))) as u32)
    }
}
