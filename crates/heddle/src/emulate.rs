//! `heddle emulate`: programs in hosts that are joined by emulated wires.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use heddle_lab::emulator::{Emulation, NetworkOptions, Program, RunOptions, Summary};
use heddle_lab::machine::process::Signal;
use heddle_lab::{Error, Result};
use heddle_net::process::{SIGHUP, SIGINT, SIGTERM, SignalThread};

/// How often programs are looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long programs that were asked to end may take.
const GRACE: Duration = Duration::from_secs(2);
/// A command that ignores Ctrl-C is ended by this many of them.
const INTERRUPTS_MAX: u32 = 3;

/// What `--help` says in the end.
pub(crate) const EXAMPLES: &str = r#"Examples:
  heddle emulate net.toml -- ping -c 3 10.0.0.2       run a command in the first host
  heddle emulate net.toml --host server -- bash       a shell in another one
  heddle emulate net.toml --duration 60 --pcap out    only what the file says, for a minute

A topology:
  [[host]]
  name = "client"                      # address 10.0.0.1, or: addresses = ["192.0.2.1"]

  [[host]]
  name = "server"                      # 10.0.0.2, in all hosts also $HEDDLE_SERVER
  run = ["python3 -m http.server 80"]

  [[wire]]
  from = "client"
  to = "server"
  there = { rate = "10 Mbit/s", delay = "50 ms", loss = { bernoulli = { probability = "0.1 %" } } }

Hosts are network namespaces without names, and everything in them ends with this program. It needs /dev/net/tun,
and root or unprivileged user namespaces. What it prints at the end says whether the wires were on time."#;

/// The command line of `heddle emulate`.
#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    /// The hosts and wires, as TOML.
    topology: PathBuf,
    /// The host in which the command runs; default is the first.
    #[arg(long, value_name = "NAME", requires = "command")]
    host: Option<String>,
    /// The root of all that chance does to packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a capture of each wire there.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Stop after that time, with the exit code 0.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Print the summary as one line of JSON, the last one on the standard output.
    #[arg(long)]
    json: bool,
    /// What opens TUN devices.
    #[arg(long, value_name = "FILE", default_value = "/dev/net/tun")]
    tun_device: PathBuf,
    /// The command; everything ends when it does, with its exit code.
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// The programs that run and what may end them.
struct Session {
    emulation: Emulation,
    /// Programs of the topology, with what to call them.
    background: Vec<(Program, String)>,
    /// Whether there were any in the beginning.
    has_background: bool,
    command: Option<Program>,
    /// Whether the terminal itself sends Ctrl-C to the command.
    in_foreground: bool,
    signals: Receiver<i32>,
    deadline: Option<Instant>,
    interrupts: u32,
}

/// Runs programs in an emulated network, prints how it went, and tells what to exit with.
pub(crate) fn emulate(args: EmulateArgs) -> Result<ExitCode> {
    let options = NetworkOptions::read(&args.topology)?;
    let limit = args.duration.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|error| Error::Options(format!("--duration: {error}")))?;
    let run = RunOptions { seed: args.seed, captures: args.pcap, tun_device: args.tun_device };
    // First of all, as it may only be done while there is one thread.
    let emulation = Emulation::start(&options, &run)?;
    let (send, signals) = channel();
    let forward = move |signal| {
        // Nobody listens any more only when everything is ending.
        let _ = send.send(signal);
    };
    let _signals = SignalThread::start(&[SIGHUP, SIGINT, SIGTERM], forward)
        .map_err(Error::io("taking over the signals"))?;
    let mut session = Session {
        emulation,
        background: Vec::new(),
        has_background: options.hosts.iter().any(|host| !host.run.is_empty()),
        command: None,
        in_foreground: io::stdin().is_terminal(),
        signals,
        deadline: limit.map(|limit| Instant::now() + limit),
        interrupts: 0,
    };
    session.start(&options, args.host.as_deref(), &args.command)?;
    let code = session.wait()?;
    print(&session.emulation.stop()?, args.json)?;
    Ok(code)
}

impl Session {
    fn start(&mut self, options: &NetworkOptions, host: Option<&str>, command: &[OsString]) -> Result<()> {
        for host in &options.hosts {
            for line in &host.run {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(line).stdin(Stdio::null());
                let program = self.emulation.spawn(&host.name, shell)?;
                self.background.push((program, format!("{}: {line}", host.name)));
            }
        }
        if let Some((program, arguments)) = command.split_first() {
            let host = host.unwrap_or(&options.hosts[0].name);
            let mut command = Command::new(program);
            command.args(arguments);
            self.command = Some(match self.in_foreground {
                true => self.emulation.spawn_in_foreground(host, command)?,
                false => self.emulation.spawn(host, command)?,
            });
        }
        Ok(())
    }

    /// Waits until the command ends, or without one until all programs have; or until somebody wants an end.
    fn wait(&mut self) -> Result<ExitCode> {
        while self.emulation.is_running() {
            match self.signals.recv_timeout(POLL) {
                Ok(signal) if self.is_the_end(signal)? => return self.end(),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
            self.look_after_background()?;
            if let Some(command) = self.command {
                if let Some(status) = self.emulation.exited(command)? {
                    return Ok(exit_code(status));
                }
            } else if self.has_background && self.background.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.end()?;
                return Ok(ExitCode::SUCCESS);
            }
        }
        Ok(ExitCode::FAILURE)
    }

    /// Passes a signal on. Whether it also means that everything shall end.
    fn is_the_end(&mut self, signal: i32) -> Result<bool> {
        let Some(command) = self.command else { return Ok(signal != SIGHUP) };
        match signal {
            SIGINT if self.in_foreground => Ok(false),
            SIGINT => {
                self.interrupts += 1;
                self.emulation.signal(command, Signal::Int)?;
                Ok(self.interrupts >= INTERRUPTS_MAX)
            }
            SIGHUP => self.emulation.signal(command, Signal::Hup).map(|()| false),
            _ => Ok(true),
        }
    }

    fn look_after_background(&mut self) -> Result<()> {
        let mut running = Vec::new();
        for (program, name) in std::mem::take(&mut self.background) {
            match self.emulation.exited(program)? {
                None => running.push((program, name)),
                Some(status) if status.success() => {}
                Some(status) => eprintln!("heddle: {name}: ended with {status}"),
            }
        }
        self.background = running;
        Ok(())
    }

    /// Asks all programs to end and gives them a moment for it.
    fn end(&mut self) -> Result<ExitCode> {
        let programs: Vec<Program> =
            self.background.iter().map(|(program, _)| *program).chain(self.command).collect();
        for program in &programs {
            self.emulation.signal(*program, Signal::Term)?;
        }
        let start = Instant::now();
        while start.elapsed() < GRACE {
            let mut all_ended = true;
            for program in &programs {
                all_ended &= self.emulation.exited(*program)?.is_some();
            }
            if all_ended {
                break;
            }
            std::thread::sleep(POLL);
        }
        let Some(command) = self.command else { return Ok(ExitCode::SUCCESS) };
        // What did not end by now is killed, as a shell would report it.
        Ok(self.emulation.exited(command)?.map_or(ExitCode::from(128 + 9), exit_code))
    }
}

/// A command's own code, or as shells do 128 and the number of the signal that ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

fn print(summary: &Summary, json: bool) -> Result<()> {
    if json {
        let line = serde_json::to_string(summary).map_err(io::Error::other);
        println!("{}", line.map_err(Error::io("writing the summary"))?);
    } else {
        eprint!("{summary}");
    }
    Ok(())
}
