//! What concerns the whole process: its user, descriptors, memory and signals.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, geteuid, getrlimit, set_dumpable_behavior, setrlimit,
};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::thread::{self, JoinHandle};

pub use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// Raises the limit of open descriptors as far as the process may, and returns it (`None` for no
/// limit). A relay needs one per channel and one per exit stream.
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum)
}

/// Keeps keys from debuggers of the same user and from core dumps, as stock Tor does: the process is not dumpable any
/// more, so that only root reads its memory (prctl(2), ptrace(2)), and a core has no room. It cannot be taken back.
pub fn refuse_debuggers() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}

/// The number of the user whose rights the process has, as its own user namespace counts them: there, owners of files
/// have numbers of the same kind.
pub fn effective_user() -> u32 {
    geteuid().as_raw()
}

/// The machine's memory in bytes, or `None` when the system does not tell.
pub fn total_memory_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// A thread that hears the signals of the process. Dropping it ends the thread; the signals are then
/// ignored.
pub struct SignalThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalThread {
    /// Calls `on_signal` with each signal of `signals` that arrives, one at a time. Of equal signals
    /// that arrive at once, one may stand for all.
    pub fn start(signals: &[i32], mut on_signal: impl FnMut(i32) + Send + 'static) -> io::Result<Self> {
        let mut signals = Signals::new(signals)?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                on_signal(signal);
            }
        })?;
        Ok(SignalThread { handle, thread: Some(thread) })
    }
}

impl Drop for SignalThread {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the callback was reported by its own thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::dumpable_behavior;
    use std::os::unix::fs::MetadataExt;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn the_descriptor_limit_is_raised_to_what_is_allowed() {
        let limit = raise_descriptor_limit().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, limit);
    }

    #[test]
    fn what_the_process_makes_belongs_to_its_effective_user() {
        let path = std::env::temp_dir().join(format!("heddle-net-user-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let made = std::fs::metadata(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(made.uid(), effective_user());
    }

    #[test]
    fn debuggers_and_core_dumps_are_refused() {
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::Dumpable);
        refuse_debuggers().unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        let Rlimit { current, maximum } = getrlimit(Resource::Core);
        assert_eq!((current, maximum), (Some(0), Some(0)));
    }

    #[test]
    fn signals_are_heard() {
        let (sender, receiver) = mpsc::channel();
        let thread = SignalThread::start(&[SIGUSR2], move |signal| sender.send(signal).unwrap()).unwrap();
        signal_hook::low_level::raise(SIGUSR2).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), SIGUSR2);
        drop(thread);
    }
}
