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
use std::thread::{self, JoinHandle};

use heddle_net::realtime;

/// How often it looks whether it shall end: once in so many turns, each of which takes a processor some 40 ns.
const TURNS: u32 = 10_000;

/// A thread that uses what nobody wants of a processor, until this is dropped.
#[derive(Debug)]
pub(super) struct Awake {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Awake {
    /// Keeps a processor awake, by its number.
    pub(super) fn start(processor: usize) -> io::Result<Awake> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let run = move || {
            // As an ordinary thread, or on another processor, it would take time from programs and help nobody.
            if realtime::run_last().and_then(|()| realtime::keep_to(&[processor])).is_ok() {
                while !told.load(Ordering::Relaxed) {
                    (0..TURNS).for_each(|_| hint::spin_loop());
                }
            }
        };
        let thread = thread::Builder::new().name("awake".into()).spawn(run)?;
        Ok(Awake { stop, thread: Some(thread) })
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported by its own thread.
            let _ = thread.join();
        }
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
    use super::*;

    #[test]
    fn a_virtual_machine_is_told_by_its_flags() {
        assert!(says_virtual("processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\nbugs\t\t: none\n"));
        assert!(!says_virtual("model name\t: hypervisor\nflags\t\t: fpu hypervisors\n"));
        assert!(!says_virtual("Features\t: fp asimd\n"));
    }

    #[test]
    fn it_runs_last_and_on_its_processor_until_it_is_dropped() {
        let processor = *realtime::processors().unwrap().last().unwrap();
        let awake = Awake::start(processor).unwrap();
        let ours = || {
            let tasks = fs::read_dir("/proc/self/task").unwrap();
            let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
            stats.filter(|stat| stat.contains("(awake)")).collect::<Vec<_>>()
        };
        // The 39th field is the processor and the 41st the policy, of which 5 is SCHED_IDLE (proc_stat(5)).
        let field = |stat: &str, number: usize| {
            let after = stat.rsplit_once(") ").unwrap().1;
            after.split(' ').nth(number - 3).unwrap().to_owned()
        };
        let is_set = |stat: &String| field(stat, 41) == "5" && field(stat, 39) == processor.to_string();
        while !ours().iter().any(is_set) {
            assert!(!awake.thread.as_ref().unwrap().is_finished());
            thread::yield_now();
        }
        drop(awake);
        assert_eq!(ours(), Vec::<String>::new());
    }
}
