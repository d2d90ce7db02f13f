//! Ways to wait, and the two threads that wait in the C library and do nothing else.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{hint, thread};

use super::parking::{Slot, park};

/// Never becomes true; the compiler must not know.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// Starts a thread that waits in `poll`, and one that waits in `pthread_join` for the first.
pub(super) fn start() -> io::Result<Vec<&'static Slot>> {
    let (reader, writer) = io::pipe()?;
    let (poller, thread) = Slot::spawn("poller", true, move || {
        park(|| poll_until_readable(&reader, None));
        drop(writer);
    })?;
    let (joiner, _) = Slot::spawn("joiner", true, move || {
        park(|| {
            let _ = thread.join();
        });
    })?;
    Ok(vec![poller, joiner])
}

/// Waits on a condition variable of the C library.
#[allow(unsafe_code)]
pub(super) fn on_condition() {
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let mut condition = libc::PTHREAD_COND_INITIALIZER;
    // SAFETY: both are initialised, of this thread alone, and outlive the calls; the mutex is locked when it is waited with.
    unsafe {
        libc::pthread_mutex_lock(&mut mutex);
        while !RELEASED.load(Ordering::Relaxed) {
            libc::pthread_cond_wait(&mut condition, &mut mutex);
        }
        libc::pthread_mutex_unlock(&mut mutex);
    }
}

/// Waits in `nanosleep`.
pub(super) fn asleep() {
    while !RELEASED.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Waits without leaving the processor, other threads' needs apart.
pub(super) fn awake() {
    while !RELEASED.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            hint::spin_loop();
        }
        thread::yield_now();
    }
}

/// Waits until standard input is closed, at most `longest`.
pub(super) fn until_input_closes(longest: Duration) {
    let deadline = Instant::now() + longest;
    let mut input = io::stdin().lock();
    let mut ignored = [0; 256];
    while Instant::now() < deadline {
        poll_until_readable(&io::stdin(), Some(deadline));
        if Instant::now() >= deadline {
            return;
        }
        match input.read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[allow(unsafe_code)]
fn poll_until_readable(file: &impl AsRawFd, deadline: Option<Instant>) {
    let mut request = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_millis());
        let timeout = left.map_or(-1, |left| libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX));
        // SAFETY: one valid pollfd, ours to write for the whole call.
        let ready = unsafe { libc::poll(&mut request, 1, timeout) };
        let interrupted = ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if !interrupted {
            return;
        }
    }
}
