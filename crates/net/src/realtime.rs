//! Threads that must be on time.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::io;
use std::num::NonZeroU64;

/// Above the threads of ordinary programs, below what the kernel itself runs at.
const PRIORITY: i32 = 10;

/// Makes the kernel's timers of the calling thread as exact as they can be; by default it may be 50 µs late.
pub fn sharpen_timers() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

/// The processors that the calling thread may run on, by their numbers; at most the first 1024 of the machine.
pub fn processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect())
}

/// Has the calling thread run on these processors only.
///
/// # Errors
///
/// EINVAL when none of them is there or allowed.
pub fn keep_to(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for number in processors.iter().filter(|number| **number < CpuSet::MAX_CPU) {
        set.set(*number);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Has the calling thread run before all ordinary ones (SCHED_FIFO), but not its children.
///
/// # Errors
///
/// EPERM without CAP_SYS_NICE outside any user namespace, and where RLIMIT_RTPRIO is below 10.
pub fn run_first() -> io::Result<()> {
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, PRIORITY)
}

/// Has the calling thread run when no ordinary one wants its processor (SCHED_IDLE), and next to nothing beside one of
/// the same control group; among groups, which sessions may be, only the groups' weights count.
///
/// # Errors
///
/// What the kernel says; it allows this to everybody.
pub fn run_last() -> io::Result<()> {
    schedule(libc::SCHED_IDLE, 0)
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one sched_param, which lives until the call returns; 0 is the calling thread.
    #[allow(unsafe_code)]
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_to_its_processors_and_others_do_not() {
        let all = processors().unwrap();
        let one = all[..1].to_vec();
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| keep_to(&one).and_then(|()| processors()));
            assert_eq!(kept.join().unwrap().unwrap(), one);
        });
        assert_eq!(processors().unwrap(), all);
        assert!(keep_to(&[]).is_err());
    }
}
