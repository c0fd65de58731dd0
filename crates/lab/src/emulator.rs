//! Emulated wires between hosts on one machine, with real kernels and real programs.
//!
//! Each host is a network namespace whose only device is a TUN; two threads (`packet_threads`) move packets between
//! those devices over the wires of `heddle-netem`. [`NetworkOptions`] describe a network, [`Emulation`] is one,
//! [`Summary`] tells how it went and whether the emulator kept up.
//!
//! A packet's way: a host's kernel hands it over unsegmented (`hosts`), it is stamped and cut into what a wire would
//! carry (`heddle_net::offload`), may meet an attacker (`attack`), meets its fate (`heddle-netem`), and is given to the
//! other host's kernel when it is due (`engine`), with others that arrived then (`arrivals`).
//!
//! Nothing has a name outside the program and nothing outlives it: namespaces and devices are held by descriptors, and
//! programs are in a process namespace that ends with the emulator (`programs`).
//!
//! Budget: about 40 000 packets per second in all on two cores that also run the programs. Beyond, a run says that it
//! is invalid.

mod arrivals;
mod attack;
mod awake;
mod captures;
mod engine;
mod forge;
mod histogram;
mod hosts;
mod options;
mod packet_threads;
mod programs;
mod stack;
mod summary;
mod wake_probe;

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use heddle_net::namespace::{self, Namespace, Privilege};
use heddle_net::process::raise_descriptor_limit;
use heddle_netem::{DirectionStats, HostId, Seed, Step, Topology};

pub use attack::{Attack, AttackOptions, AttackSummary, FlowFilter, Protocol, REMEMBERED_MAX, Trigger};
pub use histogram::Times;
pub use options::{EmulatedHostOptions, KernelOptions, LatenessOptions, NetworkOptions, RunOptions};
pub use programs::Program;
pub(crate) use stack::Stack;
pub use summary::{BySecondTimes, HostSummary, Summary, WireSummary};

use crate::capture::Capture;
use crate::error::{Error, Result};
use crate::machine::process::Signal;
use attack::Attackers;
use captures::Captures;
use engine::Engine;
use hosts::Host;
use packet_threads::PacketThreads;
use programs::Programs;

/// A network that exists, until this is dropped.
#[derive(Debug)]
pub struct Emulation {
    packet_threads: PacketThreads,
    programs: Programs,
    hosts: Vec<Host>,
    options: NetworkOptions,
    seed: u64,
    notes: Vec<String>,
}

/// A host by itself, with nothing but loopback, on which TCP has this congestion control. It ends when this is dropped.
///
/// # Errors
///
/// Those of [`Emulation::start`], but for a TUN device, which it does not need.
pub fn lone_host(congestion_control: &str) -> Result<Namespace> {
    namespace::gain_privilege().map_err(|error| no_privilege(&error))?;
    hosts::lone(congestion_control)
}

impl Emulation {
    /// Makes the hosts and starts to move packets.
    ///
    /// A program that is not root moves into a user namespace for that, which it can only while it has one thread; see
    /// [`namespace::gain_privilege`].
    ///
    /// # Errors
    ///
    /// [`Error::Lacking`] says what the machine does not allow, [`Error::Options`] what is wrong with the options.
    pub fn start(options: &NetworkOptions, run: &RunOptions) -> Result<Emulation> {
        options.check()?;
        raise_descriptor_limit().map_err(Error::io("raising the limit of open files"))?;
        let privilege = namespace::gain_privilege().map_err(|error| no_privilege(&error))?;
        let (hosts, devices): (Vec<_>, Vec<_>) = hosts::make(options, &run.tun_device)?.into_iter().unzip();
        let topology = Topology::new(&options.topology(), &Seed::from_number(run.seed));
        let topology = topology.map_err(|error| Error::Options(error.to_string()))?;
        let captures = run.captures.as_ref().map(|dir| {
            let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
            let wires: Vec<_> = topology.directions().collect();
            let doing = format!("making captures in {}", dir.display());
            Captures::create(dir, &wires, &names).map_err(Error::io(doing))
        });
        let captures = captures.transpose()?;
        let programs = Programs::new().map_err(|error| no_process_namespace(&error))?;
        let seed = Seed::from_number(run.seed);
        let attackers = Attackers::new(&options.attacks, |name| topology.host(name), &seed);
        let engine = Engine::new(topology, devices, homes(&hosts), captures, attackers);
        let (packet_threads, realtime) =
            PacketThreads::start(engine).map_err(Error::io("starting the emulator"))?;
        let notes = notes(privilege, realtime, packet_threads.stay_awake());
        Ok(Emulation { packet_threads, programs, hosts, options: options.clone(), seed: run.seed, notes })
    }

    /// The addresses of a host, or `None` when there is none of this name.
    pub fn addresses(&self, host: &str) -> Option<&[IpAddr]> {
        self.find(host).ok().map(|host| host.addresses.as_slice())
    }

    /// What the machine did not allow, which may make the emulator late but not wrong, and what it was made to do.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Has `command` run in a host when it is spawned, by whatever means. It finds the address of every host in its
    /// environment, as `HEDDLE_` and the host's name in capitals.
    pub fn enter(&self, host: &str, command: &mut Command) -> Result<()> {
        let host = self.find(host)?;
        for other in &self.hosts {
            if let Some(address) = other.addresses.first() {
                command.env(variable(&other.name), address.to_string());
            }
        }
        host.namespace
            .enter_on_exec(command)
            .map_err(Error::io(format!("entering the namespace of {}", host.name)))
    }

    /// Calls `work` on a thread inside a host. A socket that it makes stays in the host wherever it is used afterwards.
    pub fn inside<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
        let host = self.find(host)?;
        host.namespace.run(work).map_err(Error::io(format!("entering the namespace of {}", host.name)))
    }

    /// Starts a program in a host. It and all that it starts end with the emulation at the latest.
    pub fn spawn(&mut self, host: &str, command: Command) -> Result<Program> {
        self.start_program(host, command, false)
    }

    /// The same for the one program that shall have the terminal: it stays in our process group, and Ctrl-C reaches it.
    pub fn spawn_in_foreground(&mut self, host: &str, command: Command) -> Result<Program> {
        self.start_program(host, command, true)
    }

    fn start_program(&mut self, host: &str, mut command: Command, in_foreground: bool) -> Result<Program> {
        self.enter(host, &mut command)?;
        let doing = format!("starting {} in {host}", command.get_program().display());
        self.programs.spawn(command, in_foreground).map_err(Error::io(doing))
    }

    /// Sends a signal to a program and its process group. One that has ended gets none.
    pub fn signal(&mut self, program: Program, signal: Signal) -> Result<()> {
        self.programs.signal(program, signal).map_err(Error::io("signalling a program"))
    }

    /// How a program ended, or `None` while it runs.
    pub fn exited(&mut self, program: Program) -> Result<Option<ExitStatus>> {
        self.programs.exited(program).map_err(Error::io("looking after a program"))
    }

    /// The process id of a program.
    pub fn pid(&self, program: Program) -> u32 {
        self.programs.pid(program)
    }

    /// Changes the wire from one host to another now, in this direction only. What the change says about its time does
    /// not matter.
    pub fn change(&self, from: &str, to: &str, step: &Step) -> Result<()> {
        step.validate().map_err(|error| Error::Options(format!("wire from {from} to {to}: {error}")))?;
        let changed = self.packet_threads.change(self.id(from)?, self.id(to)?, step);
        changed.map_err(Error::io(format!("changing the wire from {from} to {to}")))
    }

    /// Gives what a host receives at one of its addresses to a program instead of the host's kernel, and sends what the
    /// program sends. Attached until [`detach`](Self::detach).
    pub(crate) fn attach(&self, host: &str, address: IpAddr, stack: Box<dyn Stack>) -> Result<()> {
        if !self.find(host)?.addresses.contains(&address) {
            return Err(Error::Options(format!("{address} is no address of {host}")));
        }
        self.packet_threads
            .attach(self.id(host)?, address, stack)
            .map_err(Error::io("attaching a network stack"))
    }

    /// Gives the kernel its packets back. Returns the program, or `None` where none was attached.
    pub(crate) fn detach(&self, address: IpAddr) -> Result<Option<Box<dyn Stack>>> {
        self.packet_threads.detach(address).map_err(Error::io("detaching a network stack"))
    }

    /// What has happened on the wire from one host to another so far, in this direction only.
    pub fn direction_stats(&self, from: &str, to: &str) -> Result<DirectionStats> {
        let stats = self.packet_threads.direction_stats(self.id(from)?, self.id(to)?);
        stats.map_err(Error::io(format!("reading the counts of the wire from {from} to {to}")))
    }

    /// Whether packets move. When they do not, [`stop`](Self::stop) says why.
    pub fn is_running(&self) -> bool {
        self.packet_threads.are_working()
    }

    /// Lets attackers act, or has them wait; then what they hold goes on its way. From the beginning they act.
    ///
    /// # Errors
    ///
    /// When packets ceased to move.
    pub(crate) fn let_attack(&self, on: bool) -> Result<()> {
        self.packet_threads.let_attack(on).map_err(Error::io("emulating"))
    }

    /// What attackers have done so far.
    pub(crate) fn attacks(&self) -> Result<Vec<AttackSummary>> {
        self.packet_threads.attacks().map_err(Error::io("asking what attackers did"))
    }

    /// Somebody measures from now on, or no more: what is late then is told apart.
    pub(crate) fn measuring(&self, on: bool) -> Result<()> {
        self.packet_threads.measuring(on).map_err(Error::io("emulating"))
    }

    /// Keeps what is sent on the wire between two hosts from now on, until [`watched`](Self::watched) takes it. Of one
    /// wire at a time.
    pub(crate) fn watch(&self, one: &str, other: &str) -> Result<()> {
        let ends = [self.id(one)?, self.id(other)?];
        self.packet_threads.watch(ends).map_err(Error::io("emulating"))
    }

    /// What was kept, with times as [`elapsed`](Self::elapsed) tells them.
    pub(crate) fn watched(&self) -> Result<Capture> {
        self.packet_threads.watched().map_err(Error::io("emulating"))
    }

    /// The time since packets began to move.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.packet_threads.elapsed_s())
    }

    /// Ends the programs and the network, and tells how it went.
    ///
    /// # Errors
    ///
    /// When packets ceased to move before, and when captures could not be written.
    pub fn stop(mut self) -> Result<Summary> {
        // While the programs still send, and before nobody reads the devices any more.
        let (device_drops, duration_s) = (self.device_drops()?, self.packet_threads.elapsed_s());
        let mut engine = self.packet_threads.stop().map_err(Error::io("emulating"))?;
        let drops_missed = engine.topology.drops_missed();
        let captures_missed = match &mut engine.captures {
            Some(captures) => {
                captures.finish().map_err(Error::io("writing captures"))?;
                captures.missed + drops_missed
            }
            None => 0,
        };
        let mut hosts = Vec::new();
        for ((number, host), device_drops) in (0..).zip(&self.hosts).zip(device_drops) {
            let id = HostId(number);
            hosts.push(HostSummary {
                name: host.name.clone(),
                addresses: host.addresses.clone(),
                congestion_control: host.congestion_control.clone(),
                device_drops,
                up_drops: summary::interface_drops(engine.topology.up_stats(id)),
                down_drops: summary::interface_drops(engine.topology.down_stats(id)),
            });
        }
        let (tally, totals) = (&engine.tally, engine.topology.totals());
        let wires = summary::wires(&engine.topology);
        let late = summary::late(tally, &self.options.lateness);
        let reasons = [late.clone(), summary::faults(&hosts, &wires)].concat();
        Ok(Summary {
            valid: reasons.is_empty(),
            is_late: !late.is_empty(),
            reasons,
            seed: self.seed,
            duration_s,
            notes: mem::take(&mut self.notes),
            lateness: tally.lateness.all().times(),
            unattended: tally.unattended.all().times(),
            waking: tally.waking.all().times(),
            by_second: [&tally.lateness, &tally.unattended, &tally.waking]
                .map(|times| times.p99s().times())
                .into(),
            measured: [&tally.lateness, &tally.unattended, &tally.waking]
                .map(|times| times.measured_p99s().times())
                .into(),
            oversleeping: tally.oversleeping.times(),
            giving: tally.giving.times(),
            cpu_s: tally.cpu_ns as f64 / 1e9,
            packets_sent: totals.sent,
            packets_delivered: totals.delivered,
            packets_unrouted: tally.unrouted,
            packets_refused: tally.malformed + tally.refused,
            captures_missed,
            kernel: self.options.kernel.clone(),
            hosts,
            wires,
            attacks: engine.attackers.summaries(),
        })
    }

    /// What the devices of all hosts dropped so far.
    fn device_drops(&self) -> Result<Vec<u64>> {
        let of = |host: &Host| {
            hosts::device_drops(host).map_err(Error::io(format!("reading the counts of {}", host.name)))
        };
        self.hosts.iter().map(of).collect()
    }

    fn id(&self, name: &str) -> Result<HostId> {
        let place = self.hosts.iter().position(|host| host.name == name);
        place.map(|place| HostId(place as u32)).ok_or_else(|| no_host(name))
    }

    fn find(&self, name: &str) -> Result<&Host> {
        let host = self.hosts.iter().find(|host| host.name == name);
        host.ok_or_else(|| no_host(name))
    }
}

fn homes(hosts: &[Host]) -> BTreeMap<IpAddr, HostId> {
    let of = |(number, host): (u32, &Host)| {
        let addresses = host.addresses.clone();
        addresses.into_iter().map(move |address| (address, HostId(number)))
    };
    (0..).zip(hosts).flat_map(of).collect()
}

fn notes(privilege: Privilege, realtime: io::Result<()>, stays_awake: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if stays_awake {
        notes.push("keeps one processor awake, because this is a virtual machine".to_owned());
    }
    if privilege == Privilege::UserNamespace {
        notes.push("runs without root, in a user namespace".to_owned());
    }
    if let Err(error) = realtime {
        notes.push(format!(
            "packets may be late: the emulator does not run before other programs ({error}); it needs CAP_SYS_NICE, or \
             an rtprio limit of 10 in /etc/security/limits.conf"
        ));
    }
    notes
}

fn no_host(name: &str) -> Error {
    Error::Options(format!("there is no host {name:?}"))
}

fn variable(host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("HEDDLE_{}", host.chars().map(plain).collect::<String>())
}

fn no_privilege(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::InvalidInput {
        return Error::Lacking(
            "without root, the emulator can only be started while the program has one thread".to_owned(),
        );
    }
    Error::Lacking(format!(
        "the system gives this user no user namespace ({error}); run it as root, or allow them (sysctls \
         user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    ))
}

fn no_process_namespace(error: &io::Error) -> Error {
    Error::Lacking(format!("the system makes no process namespace ({error}); it needs CAP_SYS_ADMIN"))
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn hosts_may_use_all_descriptors_that_there_are() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let current = maximum.map_or(Some(1024), |maximum| Some(maximum - 1));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
        let options = NetworkOptions::parse("[[host]]\nname = 'a'").unwrap();
        let run = RunOptions { tun_device: "/nowhere".into(), ..RunOptions::default() };
        assert!(Emulation::start(&options, &run).is_err());
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
