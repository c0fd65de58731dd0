//! What a process has cost so far, as Linux tells it.

use std::fs;
use std::io;
use std::time::Duration;

use crate::error::{Error, Result};

/// A reading of one process' counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// User and system time of all its threads since it started, those that have ended among them, in seconds.
    pub cpu_s: f64,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
}

/// Reads the counters of a process of this machine.
pub fn of(pid: u32) -> Result<Usage> {
    let read = || -> io::Result<Usage> {
        let cpu_s = cpu_time(pid)?.as_secs_f64();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rss_bytes = rss_bytes(&status).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Usage { cpu_s, rss_bytes })
    };
    read().map_err(Error::io(format!("reading the usage of process {pid}")))
}

/// Reads a process' own clock (clock_getcpuclockid(3)), because `/proc` tells the time in steps of 10 ms: too coarse
/// for what a relay takes of a second.
#[allow(unsafe_code)] // Nobody wraps the clock of another process.
fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the pointer is to a local variable of the type that is written.
    match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) } {
        0 => {}
        number => return Err(io::Error::from_raw_os_error(number)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local variable of the type that is written.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads `VmRSS` of `status` (proc_pid_status(5)).
fn rss_bytes(status: &str) -> Option<u64> {
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let rss_kib: u64 = match rss {
        Some(rss) => rss.trim().strip_suffix(" kB")?.parse().ok()?,
        // A process that has exited and is not waited for has no memory left.
        None => 0,
    };
    Some(rss_kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_units_of_1024_bytes() {
        assert_eq!(rss_bytes("Name:\tVmRSS: 7 kB\nVmRSS:\t    2048 kB\n"), Some(2048 * 1024));
        assert_eq!(rss_bytes("Name:\tx\nState:\tZ (zombie)\n"), Some(0));
        assert_eq!(rss_bytes("VmRSS:\t2048 MB\n"), None);
    }

    #[test]
    fn one_that_has_exited_and_is_not_waited_for_keeps_its_time() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let is_over = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ");
        while !is_over() {
            std::thread::yield_now();
        }
        let usage = of(pid).unwrap();
        assert!(usage.cpu_s > 0.0 && usage.rss_bytes == 0, "{usage:?}");
        child.wait().unwrap();
    }

    #[test]
    fn our_own_usage_grows() {
        let before = of(std::process::id()).unwrap();
        assert!(before.rss_bytes > 100_000);
        let mut spin = 0u64;
        let after = loop {
            spin = std::hint::black_box(spin + 1);
            if spin.is_multiple_of(100_000) {
                let now = of(std::process::id()).unwrap();
                if now.cpu_s > before.cpu_s {
                    break now;
                }
            }
        };
        assert!(after.cpu_s < before.cpu_s + 60.0);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(of(u32::MAX - 1).is_err());
    }
}
