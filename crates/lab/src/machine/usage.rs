//! What a process has cost so far, as Linux' `/proc` tells it.

use std::fs;
use std::io;

use crate::error::{Error, Result};

/// Clock ticks per second in `/proc`: fixed at 100 for user space on every Linux port in use.
const TICKS_PER_S: f64 = 100.0;

/// A reading of one process' counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// User and system time of all its threads since it started, in seconds, in steps of 10 ms.
    pub cpu_s: f64,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
}

/// Reads the counters of a process of this machine.
pub fn of(pid: u32) -> Result<Usage> {
    let read = || -> io::Result<Usage> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        parse(&stat, &status).ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    read().map_err(Error::io(format!("reading the usage of process {pid}")))
}

/// Reads fields 14 and 15 of `stat` (proc_pid_stat(5)) and `VmRSS` of `status`.
fn parse(stat: &str, status: &str) -> Option<Usage> {
    // The second field is the program's name in parentheses and may hold anything but ends last.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let rss_kib: u64 = match rss {
        Some(rss) => rss.trim().strip_suffix(" kB")?.parse().ok()?,
        // A process that has exited and is not waited for has no memory left.
        None => 0,
    };
    Some(Usage { cpu_s: (utime + stime) as f64 / TICKS_PER_S, rss_bytes: rss_kib * 1024 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let stat = "7 (a) b (c) ) S 1 7 7 0 -1 4194560 9 0 0 0 150 25 0 0 20 0 1 0 5 6 7 8";
        let usage = parse(stat, "Name:\tx\nVmRSS:\t    2048 kB\n").unwrap();
        assert_eq!(usage, Usage { cpu_s: 1.75, rss_bytes: 2048 * 1024 });
        assert_eq!(parse("7 (a", ""), None);
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
