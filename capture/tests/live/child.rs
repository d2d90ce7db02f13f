//! What the child does, by mode. It speaks on standard output, a line at a time.

use std::arch::asm;
use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{mem, ptr, thread};

use crate::spawn::PREFIX;

/// Words that a thread leaves on its stack.
pub(crate) const PATTERN_WORDS: u64 = 64;
pub(crate) const BUSY_THREADS: u64 = 4;

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static STOP: AtomicU32 = AtomicU32::new(0);

pub(crate) fn run(mode: &str) {
    match mode {
        "registers" => registers(),
        "waiting" => waiting(),
        "busy" => busy(),
        "signals" => signals(),
        "alternate-stack" => alternate_stack(),
        "overflow" => thread::spawn(overflow).join().unwrap(),
        "first-thread-ended" => first_thread_ended(),
        "spawning" => spawning(),
        "traced" => traced(),
        "sleeping-in-the-kernel" => sleeping_in_the_kernel(),
        other => panic!("no mode {other}"),
    }
}

pub(crate) fn say(line: &str) {
    let mut output = stdout().lock();
    writeln!(output, "{PREFIX}{line}").unwrap();
    output.flush().unwrap();
}

fn until_told() {
    say("ready");
    stdin().read_line(&mut String::new()).unwrap();
}

/// Threads that hold known values in registers and on their stacks.
fn registers() {
    for number in 1..=3u64 {
        thread::Builder::new().name(format!("number {number}")).spawn(move || hold(number)).unwrap();
    }
    while SIGNALS.load(Ordering::Acquire) < 3 {
        thread::sleep(Duration::from_millis(1));
    }
    until_told();
    say("end");
}

#[allow(unsafe_code)]
fn hold(number: u64) {
    let pattern: [u64; PATTERN_WORDS as usize] = std::array::from_fn(|at| number << 32 | at as u64);
    let address = std::hint::black_box(&pattern).as_ptr();
    // SAFETY: no memory is touched.
    let thread = unsafe { libc::gettid() };
    say(&format!("{thread} {number} {address:p}"));
    SIGNALS.fetch_add(1, Ordering::Release);
    // SAFETY: reads one static that lives for ever; changes flags only.
    unsafe {
        asm!(
            "2:", "pause", "cmp dword ptr [{stop}], 0", "je 2b",
            stop = in(reg) STOP.as_ptr(),
            in("r12") number << 8 | 12, in("r13") number << 8 | 13, in("r14") number << 8 | 14, in("r15") u64::MAX - number,
            options(nostack, readonly),
        );
    }
    std::hint::black_box(&pattern);
}

/// Threads that wait in the kernel, so that other tools see the same as we.
fn waiting() {
    for _ in 0..3 {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1000))
            }
        });
    }
    thread::sleep(Duration::from_millis(50));
    until_told();
    say("end");
}

/// Threads that compute, sleep and start others; each tells whether all was as it should be.
#[allow(unsafe_code)]
fn busy() {
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..BUSY_THREADS)
        .map(|seed| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let (mut turns, mut wrong) = (0u64, 0u64);
                while !stop.load(Ordering::Relaxed) {
                    wrong += u64::from(chain(seed) != chain(seed));
                    let time = libc::timespec { tv_sec: 0, tv_nsec: 300_000 };
                    // SAFETY: `time` is valid; the time left is not asked for.
                    wrong += u64::from(unsafe { libc::nanosleep(&time, ptr::null_mut()) } != 0);
                    wrong += u64::from(thread::spawn(move || chain(seed) % 7).join().ok() != Some(chain(seed) % 7));
                    turns += 1;
                }
                (turns, wrong)
            })
        })
        .collect();
    until_told();
    stop.store(true, Ordering::Relaxed);
    let results: Vec<(u64, u64)> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    let idle = results.iter().filter(|(turns, _)| *turns == 0).count();
    let wrong: u64 = results.iter().map(|(_, wrong)| wrong).sum();
    say(&format!("idle {idle} wrong {wrong}"));
}

fn chain(seed: u64) -> u64 {
    (0..20_000)
        .fold(seed, |state, _| std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
}

/// Counts a signal that the kernel queues rather than merges.
fn signals() {
    handle(libc::SIGRTMIN(), 0);
    for seed in 0..2 {
        thread::spawn(move || {
            loop {
                chain(seed);
            }
        });
    }
    until_told();
    // Whatever was sent is pending by now at the latest.
    thread::sleep(Duration::from_millis(200));
    say(&SIGNALS.load(Ordering::SeqCst).to_string());
}

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn spin(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
    while STOP.load(Ordering::Relaxed) == 0 {
        std::hint::spin_loop();
    }
}

#[allow(unsafe_code)]
fn handle(signal: libc::c_int, flags: libc::c_int) {
    // SAFETY: all zeroes is a value of `sigaction`; what is passed is valid, and the handlers are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let handler = if flags & libc::SA_ONSTACK == 0 { count } else { spin };
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = flags | libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
    }
}

/// A thread whose signal handler runs on another stack than what it interrupted.
#[allow(unsafe_code)]
fn alternate_stack() {
    handle(libc::SIGUSR1, libc::SA_ONSTACK);
    thread::spawn(|| {
        let memory = Box::leak(vec![0u8; 64 << 10].into_boxed_slice());
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        let pattern: [u64; PATTERN_WORDS as usize] = std::array::from_fn(|at| 0x51 << 32 | at as u64);
        let address = std::hint::black_box(&pattern).as_ptr();
        // SAFETY: `stack` names memory that is never freed; raising touches none.
        unsafe {
            assert_eq!(libc::sigaltstack(&stack, ptr::null_mut()), 0);
            say(&format!("{} 81 {address:p}", libc::gettid()));
            libc::raise(libc::SIGUSR1);
        }
        std::hint::black_box(&pattern);
    });
    while SIGNALS.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    until_told();
    say("end");
}

/// A thread whose stack has overflowed: the handler runs on another one, below which the stack pointer is left where there is no stack.
#[allow(unsafe_code)]
fn overflow() {
    // SAFETY: all zeroes is a value of `sigaction`; what is passed is valid, and the memory is never freed.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = wait_for_ever as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()), 0);
        let memory = Box::leak(vec![0u8; 64 << 10].into_boxed_slice());
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        assert_eq!(libc::sigaltstack(&stack, ptr::null_mut()), 0);
        say(&libc::gettid().to_string());
    }
    say(&descend().to_string());
}

/// What the stack is full of, in every frame.
pub(crate) const FULL_OF: u64 = 0x5ac0_ffee_5ac0_ffee;

/// Needs more stack than there is.
#[inline(never)]
#[allow(unconditional_recursion)]
fn descend() -> u64 {
    let room = std::hint::black_box([FULL_OF; 512]);
    descend() + std::hint::black_box(&room).iter().sum::<u64>()
}

#[allow(unsafe_code)]
extern "C" fn wait_for_ever(_signal: libc::c_int) {
    say("ready");
    loop {
        // SAFETY: no memory is touched.
        unsafe { libc::pause() };
    }
}

/// A process whose first thread has ended, while another one runs on. It is a child of this one, in which the thread that forked is the first.
#[allow(unsafe_code)]
fn first_thread_ended() {
    // SAFETY: in the child, as far as it comes, threads and files are used that are whole there: no other thread of this process does anything.
    unsafe {
        match libc::fork() {
            0 => assert_eq!(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), 0),
            child => {
                assert!(child > 0);
                assert_eq!(libc::waitpid(child, ptr::null_mut(), 0), child);
                return;
            }
        }
    }
    thread::spawn(|| {
        let pattern: [u64; PATTERN_WORDS as usize] = std::array::from_fn(|at| 0x52 << 32 | at as u64);
        let address = std::hint::black_box(&pattern).as_ptr();
        // SAFETY: no memory is touched.
        let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
        say(&process.to_string());
        say(&format!("{thread} 82 {address:p}"));
        let stat = || std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        while !stat().contains(") Z ") {
            thread::sleep(Duration::from_millis(1));
        }
        until_told();
        std::hint::black_box(&pattern);
    });
    // SAFETY: no memory is touched, and the thread owns nothing that is to be freed.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Threads that come and go as fast as they can.
fn spawning() {
    for _ in 0..2 {
        thread::spawn(|| {
            loop {
                thread::spawn(|| thread::spawn(|| chain(1))).join().map(drop).unwrap();
            }
        });
    }
    until_told();
    say("end");
}

/// A child whose parent traces it already.
#[allow(unsafe_code)]
fn traced() {
    // SAFETY: PTRACE_TRACEME takes no arguments.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) }, 0);
    // SAFETY: no memory is touched.
    say(&unsafe { libc::gettid() }.to_string());
    until_told();
    say("end");
}

/// A thread that waits in the kernel for a child to end (`vfork`), and one that tells for how long it stood still.
#[allow(unsafe_code)]
fn sleeping_in_the_kernel() {
    thread::spawn(|| {
        // SAFETY: without CLONE_VM the child has memory of its own; it calls nothing but the kernel.
        unsafe {
            if libc::syscall(libc::SYS_clone, libc::CLONE_VFORK | libc::SIGCHLD, 0, 0, 0, 0) == 0 {
                let time = libc::timespec { tv_sec: 20, tv_nsec: 0 };
                libc::nanosleep(&time, ptr::null_mut());
                libc::_exit(0);
            }
        }
    });
    let stop = Arc::new(AtomicBool::new(false));
    let beat = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let (mut longest, mut last) = (Duration::ZERO, Instant::now());
            while !stop.load(Ordering::Relaxed) {
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
            }
            longest
        })
    };
    thread::sleep(Duration::from_millis(200));
    until_told();
    stop.store(true, Ordering::Relaxed);
    say(&beat.join().unwrap().as_millis().to_string());
}
