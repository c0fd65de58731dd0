//! Threads that must be on time.

use rustix::thread::set_current_timer_slack;
use std::io;
use std::num::NonZeroU64;

/// Above the threads of ordinary programs, below what the kernel itself runs at.
const PRIORITY: i32 = 10;

/// Makes the kernel's timers of the calling thread as exact as they can be; by default it may be 50 µs late.
pub fn sharpen_timers() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

/// Has the calling thread run before all ordinary ones (SCHED_FIFO), but not its children.
///
/// # Errors
///
/// EPERM without CAP_SYS_NICE outside any user namespace, and where RLIMIT_RTPRIO is below 10.
pub fn run_first() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one sched_param, which lives until the call returns; 0 is the calling thread.
    #[allow(unsafe_code)]
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
