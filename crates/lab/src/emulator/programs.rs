//! The programs in the hosts, none of which outlives the emulator.
//!
//! They share a process namespace. Its process 1 is a shell that waits for the end of its input, which only the
//! emulator holds open: when the emulator ends, however it ends, so does that shell, and then the kernel kills every
//! process of the namespace, also those that programs started and left to themselves. Those are the shell's children
//! then, and it waits for them too, so that none stays a zombie.

use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use heddle_net::namespace;
use rustix::process::{self, Pid};

use crate::machine::process::Signal;

/// Waits until the end of the input and takes no notice of signals. A shell waits for other children only while it
/// waits for one, so another program reads; should somebody kill it, there is a next one.
const FIRST: &str = "trap '' HUP INT QUIT TERM; until cat >/dev/null; do :; done";

/// A program of an emulation, by the order in which they were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program(usize);

/// The programs, and the thread that starts them.
#[derive(Debug)]
pub(super) struct Programs {
    requests: Option<SyncSender<Request>>,
    spawner: Option<JoinHandle<()>>,
    first: Child,
    /// Held open for as long as they shall last.
    input: Option<PipeWriter>,
    programs: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Whether it and what it starts form a process group, and not one with the emulator.
    has_own_group: bool,
}

struct Request {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

impl Programs {
    pub(super) fn new() -> io::Result<Programs> {
        let (send, requests) = sync_channel::<Request>(0);
        let (ready, started) = sync_channel(1);
        let (output, input) = io::pipe()?;
        // A thread's children go into the namespace that it made, so one thread starts them all.
        let spawner = thread::Builder::new().name("programs".into()).spawn(move || {
            let first = namespace::contain_children().and_then(|()| start_first(output.into()));
            if ready.send(first).is_err() {
                return;
            }
            while let Ok(Request { mut command, reply }) = requests.recv() {
                // Whoever asks waits for the answer.
                let _ = reply.send(command.spawn());
            }
        })?;
        let first = started.recv().map_err(io::Error::other)??;
        Ok(Programs {
            requests: Some(send),
            spawner: Some(spawner),
            first,
            input: Some(input),
            programs: Vec::new(),
        })
    }

    /// Starts a program, in the emulator's process group if it shall have the terminal.
    pub(super) fn spawn(&mut self, mut command: Command, in_foreground: bool) -> io::Result<Program> {
        if !in_foreground {
            command.process_group(0);
        }
        let (reply, answer) = sync_channel(1);
        let requests = self.requests.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        requests.send(Request { command, reply }).map_err(io::Error::other)?;
        let child = answer.recv().map_err(io::Error::other)??;
        self.programs.push(Running { child, has_own_group: !in_foreground });
        Ok(Program(self.programs.len() - 1))
    }

    /// How a program ended, or `None` while it runs.
    pub(super) fn exited(&mut self, program: Program) -> io::Result<Option<ExitStatus>> {
        self.programs[program.0].child.try_wait()
    }

    /// A program's process id outside the process namespace.
    pub(super) fn pid(&self, program: Program) -> u32 {
        self.programs[program.0].child.id()
    }

    /// Sends a signal to a program, and to its process group if that is its own. One that has ended gets none.
    pub(super) fn signal(&mut self, program: Program, signal: Signal) -> io::Result<()> {
        let Running { child, has_own_group } = &mut self.programs[program.0];
        let signal = match signal {
            Signal::Hup => process::Signal::HUP,
            Signal::Int => process::Signal::INT,
            Signal::Term => process::Signal::TERM,
            Signal::Stop => process::Signal::STOP,
            Signal::Cont => process::Signal::CONT,
        };
        // While the child is not waited for, its id cannot belong to another process.
        if child.try_wait()?.is_none() {
            let pid = Pid::from_child(child);
            let send = if *has_own_group { process::kill_process_group } else { process::kill_process };
            send(pid, signal)?;
        }
        Ok(())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.input = None;
        self.requests = None;
        // These fail only for what has ended already. The first process goes last: the kernel lets it end only after
        // all others of its namespace were waited for.
        let _ = self.first.kill();
        for Running { child, .. } in &mut self.programs {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.first.wait();
        if let Some(spawner) = self.spawner.take() {
            let _ = spawner.join();
        }
    }
}

fn start_first(input: Stdio) -> io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", FIRST]).stdin(input).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_first_process_waits_for_children_that_it_did_not_start() {
        // As with one that it adopted, the shell knows nothing of this child: it became its own before it began.
        let start = "sleep 0.1 >/dev/null & echo $!; exec sh -c \"$0\"";
        let mut first = Command::new("sh");
        first.args(["-c", start, FIRST]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut first = first.spawn().unwrap();
        let mut child = String::new();
        BufReader::new(first.stdout.take().unwrap()).read_line(&mut child).unwrap();
        let child = PathBuf::from("/proc").join(child.trim());
        let begun = Instant::now();
        while child.exists() && begun.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(10));
        }
        let is_gone = !child.exists();
        drop(first.stdin.take());
        assert!(first.wait().unwrap().success() && is_gone, "{} stays", child.display());
    }
}
