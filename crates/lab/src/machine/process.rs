//! Child processes that cannot outlive the program that started them.
//!
//! Each child asks the kernel for SIGKILL when its parent dies. The kernel means the parent
//! *thread*, so children are started by one thread that lives as long as the program. They have
//! process groups of their own: Ctrl-C reaches the lab, and the lab ends them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::machine::interrupt;

/// How much of a log's end an error carries.
const LOG_TAIL_BYTES: u64 = 3000;
/// How often a process that is expected to end is looked at.
const EXIT_POLL: Duration = Duration::from_millis(20);

/// A signal that means something to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Reload the configuration.
    Hup,
    /// Stop gracefully.
    Int,
    /// Stop at once.
    Term,
    /// Stop the process' clock, as a machine that hangs would.
    Stop,
    /// Let it run on.
    Cont,
}

/// A running child, killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with no input and with its output in the file `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Process> {
        let doing = || format!("starting {name} ({})", command.get_program().display());
        let output = File::options().create(true).append(true).open(log);
        let output = output.map_err(Error::io(format!("creating {}", log.display())))?;
        let errors = output.try_clone().map_err(Error::io(doing()))?;
        let doing = doing();
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = spawn_bound(command).map_err(Error::io(doing))?;
        Ok(Process { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that holds what the process printed.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How the process ended, or `None` while it runs.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Error::io(format!("looking after {}", self.name)))
    }

    /// Waits for the process to end by itself.
    pub fn wait_exit(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            interrupt::check()?;
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            if start.elapsed() > timeout {
                let waiting_for = format!("the end of {}", self.name);
                return Err(Error::Deadline { waiting_for, after: timeout });
            }
            thread::sleep(EXIT_POLL);
        }
    }

    /// Kills the process and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only for a process that is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal. A process that has ended by itself is an error.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let doing = format!("signalling {}", self.name);
        // While the child is not waited for, its id cannot belong to another process.
        match self.exited()? {
            Some(_) => Err(Error::io(doing)(io::ErrorKind::NotFound.into())),
            None => send_signal(self.pid(), signal).map_err(Error::io(doing)),
        }
    }

    /// The end of what the process printed.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_else(|error| format!("({}: {error})", self.log.display()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of a file, from the beginning of a line.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match text.split_once('\n') {
        Some((_, whole_lines)) if len > LOG_TAIL_BYTES => Ok(whole_lines.to_owned()),
        _ => Ok(text),
    }
}

struct Request {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

/// Starts a command whose process dies with this program and does not see its Ctrl-C.
fn spawn_bound(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<SyncSender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (send, requests) = sync_channel::<Request>(0);
        thread::spawn(move || serve(&requests));
        send
    });
    command.process_group(0);
    die_with_parent(&mut command);
    let (reply, answer) = sync_channel(1);
    let gone = |_| io::Error::other("the spawning thread is gone");
    spawner.send(Request { command, reply }).map_err(|_| gone(()))?;
    answer.recv().map_err(|_| gone(()))?
}

fn serve(requests: &Receiver<Request>) {
    while let Ok(Request { mut command, reply }) = requests.recv() {
        // Nobody waits only when the requester's thread died; its child is then not wanted.
        if let Err(unwanted) = reply.send(command.spawn())
            && let Ok(mut child) = unwanted.0
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Has the kernel kill the child when the thread that starts it ends.
#[allow(unsafe_code)] // Only a pre-exec hook can do this; see the safety comment.
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let hook = move || {
        // SAFETY: prctl and getppid are async-signal-safe system calls without pointers, and the
        // hook allocates nothing (`io::Error::from` of a kind does not).
        let orphaned = unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died between fork and prctl: nobody would send the signal.
            libc::getppid() != parent as libc::pid_t
        };
        if orphaned { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    };
    // SAFETY: the hook only makes async-signal-safe calls, as `pre_exec` demands.
    unsafe { command.pre_exec(hook) };
}

#[allow(unsafe_code)] // The standard library has no call for signals other than SIGKILL.
fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Hup => libc::SIGHUP,
        Signal::Int => libc::SIGINT,
        Signal::Term => libc::SIGTERM,
        Signal::Stop => libc::SIGSTOP,
        Signal::Cont => libc::SIGCONT,
    };
    // SAFETY: kill takes two integers and touches no memory of ours.
    match unsafe { libc::kill(pid as libc::pid_t, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; exec sleep 600"]);
        Process::spawn("sleeper", command, &dir.join("log")).unwrap()
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it_but_not_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let mut process = thread::spawn(move || sleeper(&path)).join().unwrap();
        assert_eq!(process.exited().unwrap(), None);
        let proc_entry = PathBuf::from(format!("/proc/{}", process.pid()));
        assert!(proc_entry.exists());
        drop(process);
        assert!(!proc_entry.exists());
    }

    #[test]
    fn signals_reach_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = sleeper(dir.path());
        process.signal(Signal::Term).unwrap();
        let status = process.wait_exit(Duration::from_secs(10)).unwrap();
        assert!(!status.success());
        assert!(process.signal(Signal::Term).is_err());
    }

    #[test]
    fn a_long_log_is_cut_at_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let lines: Vec<String> = (0..1000).map(|n| format!("line {n}")).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let tail = tail(&path).unwrap();
        assert!(tail.starts_with("line ") && tail.ends_with("line 999"));
        assert!(tail.len() as u64 <= LOG_TAIL_BYTES);
    }
}
