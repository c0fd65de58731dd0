//! Keeps the processor that moves packets from sleeping, where a hypervisor is beneath it.
//!
//! A processor of a virtual machine that has nothing to do is given back to the machine's host, and gets it again only
//! when the host's scheduler comes to it: on a busy host that is milliseconds after a timer was due, where one that
//! never slept is on time. A physical processor wakes up within a tenth of a millisecond by itself, and is let sleep.

use std::fs;
use std::hint;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use heddle_net::realtime;

/// How often it offers the processor to whoever waits for it: once in so many turns. A hypervisor may take a processor
/// that turns a thousand times like this for one that waits for another, and give its time to that one.
const TURNS: u32 = 200;

/// A thread that uses what nobody wants of a processor, until shortly after this is dropped.
///
/// Nobody waits for its end: where programs keep the processor busy it may take a second until it runs once more.
#[derive(Debug)]
pub(super) struct Awake {
    stop: Arc<AtomicBool>,
}

impl Awake {
    /// Keeps a processor awake, by its number.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread, its policy or its processor. As an ordinary thread, or elsewhere, it would
    /// take time from programs and help nobody.
    pub(super) fn start(processor: usize) -> io::Result<Awake> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (send, ready) = sync_channel(1);
        let run = move || {
            let set = realtime::run_last().and_then(|()| realtime::keep_to(&[processor]));
            let is_set = set.is_ok();
            // Whoever started the thread waits for this.
            let _ = send.send(set);
            while is_set && !told.load(Ordering::Relaxed) {
                (0..TURNS).for_each(|_| hint::spin_loop());
                thread::yield_now();
            }
        };
        thread::Builder::new().name("awake".into()).spawn(run)?;
        ready.recv().map_err(io::Error::other)??;
        Ok(Awake { stop })
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Whether a hypervisor is beneath this machine, as far as Linux tells: on x86 processors have a flag for it.
pub(super) fn is_virtual() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpuinfo| says_virtual(&cpuinfo))
}

fn says_virtual(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    flags.is_some_and(|(_, flags)| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// How long a thread that runs last may take to begin or to end on a machine that is busy.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_virtual_machine_is_told_by_its_flags() {
        assert!(says_virtual("processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\nbugs\t\t: none\n"));
        assert!(!says_virtual("model name\t: hypervisor\nflags\t\t: fpu hypervisors\n"));
        assert!(!says_virtual("Features\t: fp asimd\n"));
    }

    /// The state of each thread of this program that keeps a processor awake (`/proc/…/stat`, proc_stat(5)).
    fn awake() -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        stats.filter(|stat| stat.contains("(awake)")).collect()
    }

    fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", awake());
            thread::yield_now();
        }
    }

    #[test]
    fn it_runs_last_and_on_its_processor_until_it_is_dropped() {
        let processor = *realtime::processors().unwrap().last().unwrap();
        let kept = Awake::start(processor).unwrap();
        // The 39th field is the processor and the 41st the policy, of which 5 is SCHED_IDLE.
        let field = |stat: &str, number: usize| {
            let after = stat.rsplit_once(") ").unwrap().1;
            after.split(' ').nth(number - 3).unwrap().to_owned()
        };
        let is_set = |stat: &String| field(stat, 41) == "5" && field(stat, 39) == processor.to_string();
        wait_until("it is not where it should be", || awake().iter().any(is_set));
        drop(kept);
        wait_until("it does not end", || awake().is_empty());
    }

    #[test]
    fn a_processor_that_is_not_there_is_not_kept_awake() {
        assert!(Awake::start(1023).is_err());
        wait_until("it does not end", || awake().len() <= 1);
    }
}
