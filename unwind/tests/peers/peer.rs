//! Other unwinders: the program counters that they give for a core file, `None` for a signal frame that has no address.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::Unwinder;
use framehop::aarch64::UnwinderAarch64;
use framehop::x86_64::UnwinderX86_64;
use symseal_module::Avma;
use symseal_unwind::{Arch, Memory};

use crate::Mapped;
use crate::core::Core;
use crate::elf;
use crate::framehop_peer::{self, Framehop, Sections};

/// How long a peer may take: on some of these stacks one of them never ends.
const PATIENCE: Duration = Duration::from_secs(4);
/// More frames than any scene has.
const MOST_FRAMES: usize = 64;

pub(crate) fn gdb(name: &str) -> Command {
    let mut command = Command::new(name);
    command.args(["-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled off"]);
    // Without the C library's debug information, by which it shows inlined calls and frames that a jump has replaced.
    command.args(["-iex", "set debug-file-directory /nowhere"]);
    command
}

/// What a command writes, as far as it came in time.
pub(crate) fn output(mut command: Command) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut pipe = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let began = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    reader.join().ok()
}

/// The program counters of lines that begin with a frame's number.
fn frames(text: &str) -> Vec<Option<u64>> {
    let mut frames = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.strip_prefix('#')?.parse::<usize>().ok());
        // gdb shows the innermost frame twice.
        if number == Some(frames.len()) {
            let address = words.next().and_then(|word| word.strip_prefix("0x"));
            frames.push(address.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
        }
    }
    frames
}

pub(crate) fn by_gdb(name: &str, program: &Path, core: &Path) -> Option<Vec<Option<u64>>> {
    let mut command = gdb(name);
    command.args(["-ex", "set backtrace past-main on", "-ex", "set backtrace past-entry on"]);
    command.args(["-ex", &format!("set backtrace limit {MOST_FRAMES}"), "-ex", "bt"]).arg(program).arg(core);
    output(command).map(|text| frames(&text))
}

pub(crate) fn by_eu_stack(program: &Path, core: &Path) -> Option<Vec<Option<u64>>> {
    let mut command = Command::new("eu-stack");
    command.args(["-n", &MOST_FRAMES.to_string(), "--core"]).arg(core).arg("-e").arg(program);
    let text = output(command);
    if text.is_none() {
        elf::skip("eu-stack", "not found");
    }
    text.map(|text| frames(&text))
}

/// By whatever command is named: `{program}` and `{core}` in it stand for the files. It writes lines as gdb and eu-stack do: `#0 0x401136 ...`, a signal frame
/// without an address.
pub(crate) fn by_command(line: &str, program: &Path, core: &Path) -> Option<Vec<Option<u64>>> {
    let filled =
        |word: &str| word.replace("{program}", &program.to_string_lossy()).replace("{core}", &core.to_string_lossy());
    let mut words = line.split_ascii_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words.map(filled));
    let text = output(command);
    assert!(text.is_some(), "cannot be run: {line}");
    text.map(|text| frames(&text))
}

pub(crate) fn by_framehop(arch: Arch, core: &Core, mapped: &[Mapped]) -> Vec<Option<u64>> {
    let general = |number: usize| core.registers.general.get(number).copied().flatten().unwrap_or(0);
    let pc = core.registers.pc;
    if arch == Arch::Aarch64 {
        walk::<UnwinderAarch64<_>>(pc, framehop_peer::aarch64(!core.signature_mask(), general), core, mapped)
    } else {
        walk::<UnwinderX86_64<_>>(pc, framehop_peer::x86_64(pc, general), core, mapped)
    }
}

fn walk<U>(pc: u64, registers: U::UnwindRegs, core: &Core, mapped: &[Mapped]) -> Vec<Option<u64>>
where
    U: Unwinder<Module = framehop::Module<Arc<[u8]>>> + Default,
    U::Cache: Default,
{
    let mut framehop = Framehop::<U>::default();
    for file in mapped {
        let name = file.binary.path.display().to_string();
        framehop.add(&name, file.start..file.end, &Sections::of(&file.binary.parts()));
    }
    let callers = framehop.callers(pc, registers, |address| core.read_u64(Avma(address)), MOST_FRAMES - 1);
    std::iter::once(pc).chain(callers).map(Some).collect()
}
