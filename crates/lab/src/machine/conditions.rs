//! On what machine a run was made, and how quiet that was.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// The most of the processors' time that a host of this machine may take from a result that counts, in percent. It was
/// chosen before anything was measured by it.
const STOLEN_MAX_PCT: f64 = 5.0;
/// The most of the processors' time that is used when a machine is called quiet.
const QUIET_MAX: f64 = 0.1;
/// How long is looked for that.
const QUIET_LOOK: Duration = Duration::from_secs(5);

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The processor's own name.
    pub processor: String,
    /// How many of them the program may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The version of this program.
    pub heddle: String,
}

/// What else was going on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The system's load, averaged over a minute, before the first run. Zero where the system does not tell.
    pub load_before: f64,
    /// The same after the last run.
    pub load_after: f64,
    /// The share of the processors' time that was taken by a host of this machine, in percent.
    pub stolen_pct: f64,
}

impl Conditions {
    /// This machine.
    pub fn now() -> Conditions {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Conditions {
            processor: processor.map_or("unknown", |(_, name)| name).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            heddle: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// A reading from which [`Noise`] is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadReading {
    load: f64,
    ticks: Option<Ticks>,
}

/// Ticks of all processors since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Noise {
    /// Why what was measured meanwhile must not be trusted, where that is so.
    pub(crate) fn complaint(&self) -> Option<String> {
        let stolen = self.stolen_pct;
        (stolen > STOLEN_MAX_PCT).then(|| {
            format!(
                "{stolen:.1} % of the processors' time was taken by this machine's host, {STOLEN_MAX_PCT} % is valid"
            )
        })
    }
}

/// Waits until nobody uses the processors, but no longer than that; `look` hears of it each time before it waits.
/// Returns whether the machine is quiet now.
///
/// # Errors
///
/// What `look` says.
pub(crate) fn wait_until_quiet(most: Duration, look: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
    let begun = Instant::now();
    while begun.elapsed() < most {
        look()?;
        let before = ticks();
        std::thread::sleep(QUIET_LOOK);
        let used = before.zip(ticks()).map(|(before, after)| {
            let all = after.all.saturating_sub(before.all).max(1);
            1.0 - after.idle.saturating_sub(before.idle) as f64 / all as f64
        });
        // A system that does not tell is not waited for.
        if used.is_none_or(|used| used <= QUIET_MAX) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ticks() -> Option<Ticks> {
    fs::read_to_string("/proc/stat").ok().and_then(|stat| parse_ticks(&stat))
}

impl LoadReading {
    pub(crate) fn now() -> LoadReading {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0);
        LoadReading { load, ticks: ticks() }
    }

    /// A reading of a machine of which nothing but so many ticks is known.
    #[cfg(test)]
    pub(crate) fn made_up(all: u64, stolen: u64) -> LoadReading {
        LoadReading { load: 0.0, ticks: Some(Ticks { all, idle: 0, stolen }) }
    }

    /// What happened since.
    pub(crate) fn until_now(self) -> Noise {
        self.until(LoadReading::now())
    }

    /// What happened between this reading and a later one.
    pub(crate) fn until(self, now: LoadReading) -> Noise {
        let stolen = self.ticks.zip(now.ticks).map_or(0.0, |(before, after)| {
            let all = after.all.saturating_sub(before.all).max(1);
            100.0 * after.stolen.saturating_sub(before.stolen) as f64 / all as f64
        });
        Noise { load_before: self.load, load_after: now.load, stolen_pct: stolen }
    }
}

/// Reads the first line of `/proc/stat` (proc_stat(5)): the fourth and fifth numbers are time without work, the eighth
/// is stolen time, the two after it are in earlier ones already.
fn parse_ticks(stat: &str) -> Option<Ticks> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let numbers: Vec<u64> = numbers.map_while(|number| number.parse().ok()).take(8).collect();
    let [_, _, _, idle, waiting, _, _, stolen] = numbers[..] else { return None };
    Some(Ticks { all: numbers.iter().sum(), idle: idle + waiting, stolen })
}

/// The commit of the repository around the working directory: the one that was checked out, with `-dirty` after it when
/// files differed from it, or `unknown` outside a repository.
pub(crate) fn commit() -> String {
    let described =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=40", "--match="]).output();
    match described {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let stat = "cpu  10 20 30 40 50 60 70 80 5 6\ncpu0 1 2\n";
        assert_eq!(parse_ticks(stat), Some(Ticks { all: 360, idle: 90, stolen: 80 }));
        assert_eq!(parse_ticks("cpu  1 2"), None);
        assert_eq!(parse_ticks(""), None);
    }

    #[test]
    fn what_a_host_takes_makes_results_invalid() {
        let noise = |stolen_pct| Noise { stolen_pct, ..Noise::default() };
        assert_eq!(noise(5.0).complaint(), None);
        assert!(noise(5.1).complaint().is_some_and(|told| told.contains("5.1 %")));
    }

    #[test]
    fn this_machine_has_a_kernel() {
        let conditions = Conditions::now();
        assert!(conditions.cores >= 1 && !conditions.kernel.is_empty());
        let noise = LoadReading::now().until_now();
        assert!((0.0..=100.0).contains(&noise.stolen_pct));
    }
}
