//! How many files the process may have open.

/// Raises the limit to what the system allows: each connection is an open file, and the usual limit of 1,024 was made for programs that call
/// `select`. Where that is refused the server runs with what it has.
pub(super) fn allow_many() {
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls read or fill the one struct that they are given.
        #[allow(unsafe_code)]
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            }
        }
    }
}
