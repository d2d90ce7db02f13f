//! One capture, from the first look to the finished trace.

use std::collections::HashMap;
use std::panic;
use std::thread;
use std::time::{Duration, SystemTime};

use symseal_module::Avma;
use symseal_module::escape::escape;
use symseal_process::{
    IdentifiedBy, JitMaps, Mapping, ProcessModule, executable_of, living, modules_in, open_module, proc_maps,
    read_memory, tasks, thread_name, vdso_bytes,
};
use symseal_trace::{Trace, TraceBegin, TraceEnd, TraceModule, TraceSample, Uuid, rfc3339_utc};

use crate::jit::{led_to, told_alike};
use crate::made::made_code;
use crate::ptrace::{self, REGISTER_BYTES, Registers};
use crate::registers::by_name;
use crate::stacks::{Pointers, StackCopier};
use crate::stopped::StoppedThreads;
use crate::{CaptureError, MAX_STACK_COPY_BYTES, Options};

/// Captures on a thread of its own: the tracer is a thread, and whatever happens to it, even a thread of
/// the process that never stops, the kernel lets everything go when it ends.
pub(crate) fn capture(pid: u32, options: &Options) -> Result<Trace, CaptureError> {
    if pid == std::process::id() {
        return Err(CaptureError::Itself { pid });
    }
    if !(1..=MAX_STACK_COPY_BYTES).contains(&options.stack_copy_bytes) {
        return Err(CaptureError::StackCopy { bytes: options.stack_copy_bytes, most: MAX_STACK_COPY_BYTES });
    }
    thread::scope(|scope| {
        let tracer = thread::Builder::new().name("symseal-capture".to_owned());
        let tracer = tracer.spawn_scoped(scope, || run(pid, options)).map_err(|error| CaptureError::Call {
            pid,
            action: "start a thread to trace",
            error,
        })?;
        tracer.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

fn run(pid: u32, options: &Options) -> Result<Trace, CaptureError> {
    // Before the stop: whatever is slow and hardly ever changes.
    let mappings_before = proc_maps(pid)?;
    let mut modules = modules_in(pid, &mappings_before)?;
    identify(pid, &mut modules, options);
    let vdso = vdso_bytes(pid)?;
    let executable = executable_of(pid).ok();
    let mut jit = JitMaps::new(pid);
    jit.refresh(&mappings_before);
    let mut names: HashMap<u32, Vec<u8>> = tasks(pid)?.into_iter().map(|task| (task, thread_name(pid, task))).collect();

    let captured_at = SystemTime::now();
    let stopped = StoppedThreads::stop_all(pid, options)?;
    let mappings = proc_maps(pid)?;
    let (mut samples, unread) = sample_all(pid, &stopped, &mappings, options.stack_copy_bytes)?;
    let has_other_code = code_of(&mappings).ne(code_of(&mappings_before));
    if has_other_code {
        modules = modules_in(pid, &mappings)?;
    }
    let lost = stopped.lost().saturating_add(unread);
    let held: HashMap<u32, Duration> = stopped.release().into_iter().collect();

    if has_other_code {
        identify(pid, &mut modules, options);
    }
    if samples.is_empty() {
        return Err(CaptureError::NothingSampled { pid, threads: lost });
    }
    for sample in &mut samples {
        let name = names.remove(&sample.thread).unwrap_or_else(|| thread_name(pid, sample.thread));
        sample.thread_name = escape(&name);
        let held = held.get(&sample.thread).map_or(0, Duration::as_nanos);
        sample.stopped_ns = u64::try_from(held).unwrap_or(u64::MAX);
    }
    samples.sort_by_key(|sample| sample.thread);
    let code = made_code(&samples, &mappings);
    // Reading these files takes its time, and may have to wait for the process itself.
    let before = led_to(&samples, &jit.snapshot(), &mappings);
    jit.refresh(&mappings);
    let jit = told_alike(before, led_to(&samples, &jit.snapshot(), &mappings));

    let main = executable.and_then(|path| modules.iter().find(|module| module.path == path));
    let begin = TraceBegin {
        trace_id: Uuid::new_v4(),
        platform: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        pid,
        captured_at: rfc3339_utc(captured_at),
        method: "ptrace".to_owned(),
        stack_copy_bytes: options.stack_copy_bytes,
        executable: main.map(|main| main.module.path.clone()),
        build_id: main.and_then(|main| main.module.debug_id.clone()),
        producer: options.producer.clone(),
    };
    let modules = modules.into_iter().map(|module| trace_module(module, vdso.as_deref())).collect();
    let end = TraceEnd { lost, ..TraceEnd::default() };
    Ok(sealed(Trace { begin, modules, code, jit, samples, end, ..Trace::default() }))
}

/// Gives modules without a build-id an id by their code. Files are read whole for it: not while threads stand still.
fn identify(pid: u32, modules: &mut [ProcessModule], options: &Options) {
    let Some(identify) = options.identify else { return };
    for module in modules.iter_mut().filter(|module| module.module.debug_id.is_none() && !module.is_vdso()) {
        module.module.debug_id = open_module(pid, module).ok().and_then(|opened| identify(opened.file));
    }
}

/// The samples of all threads that can still be read, and the number of the others.
fn sample_all(
    pid: u32,
    stopped: &StoppedThreads,
    mappings: &[Mapping],
    copy_bytes: u64,
) -> Result<(Vec<TraceSample>, u64), CaptureError> {
    // A process that is killed meanwhile has no memory: the samples so far are still true.
    let living = living(pid);
    let read = |address: Avma, out: &mut [u8]| read_memory(living, address, out).unwrap_or(0);
    let mut copier = StackCopier::new(mappings, copy_bytes, read);
    let mut samples = Vec::with_capacity(stopped.threads().len());
    let mut lost = 0u64;
    for thread in stopped.threads() {
        match ptrace::registers(thread.id) {
            Ok(Registers::Native(registers)) => samples.push(TraceSample {
                thread: thread.id,
                thread_name: String::new(),
                registers: by_name(&registers),
                stacks: copier.copy(Pointers {
                    sp: Avma(registers.rsp),
                    fs_base: registers.fs_base,
                    r14: registers.r14,
                    general: general(&registers),
                }),
                stopped_ns: 0,
            }),
            Ok(Registers::Other { bytes }) => {
                let expected = REGISTER_BYTES;
                return Err(CaptureError::OtherArchitecture { pid, thread: thread.id, bytes, expected });
            }
            // Killed while it stood still.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => lost = lost.saturating_add(1),
            Err(error) => return Err(CaptureError::Call { pid, action: "read the registers of", error }),
        }
    }
    Ok((samples, lost))
}

/// All general registers but the stack pointer.
fn general(registers: &libc::user_regs_struct) -> [u64; 15] {
    let libc::user_regs_struct { rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, .. } =
        *registers;
    [rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15]
}

/// What tells modules: the mappings of code.
fn code_of(mappings: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    mappings.iter().filter(|mapping| mapping.executable)
}

fn trace_module(module: ProcessModule, vdso: Option<&[u8]>) -> TraceModule {
    let bytes = if module.is_vdso() { vdso.map(<[u8]>::to_vec) } else { None };
    let has_id = module.module.debug_id.is_some();
    let file_debug_id = module.file_debug_id.filter(|id| module.module.debug_id.as_ref() != Some(id));
    TraceModule {
        path: module.module.path,
        debug_id: module.module.debug_id,
        start: module.module.start,
        end: module.module.end,
        bias: module.module.bias,
        image_base: module.module.image_base,
        identified_by: match module.identified_by {
            IdentifiedBy::Memory => symseal_trace::IdentifiedBy::MemoryNote,
            IdentifiedBy::File => symseal_trace::IdentifiedBy::FileNote,
            IdentifiedBy::None if has_id => symseal_trace::IdentifiedBy::FileCode,
            IdentifiedBy::None => symseal_trace::IdentifiedBy::None,
        },
        file_debug_id,
        deleted: module.deleted,
        bytes,
    }
}

/// The trace with the count and digest that it has once written, so that what is in memory is what will be read back.
fn sealed(mut trace: Trace) -> Trace {
    if let Ok(end) = trace.write(std::io::sink()) {
        trace.end = end;
    }
    trace
}
