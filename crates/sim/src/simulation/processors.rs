//! Hosts whose computing takes time.
//!
//! Where [`Simulation::set_processors`] says so, the shards of a host work in rounds, as `heddle-net`'s event loop has
//! its nodes work:
//!
//! 1. What there is for a shard waits in its inbox, in order, until a core is free. The shard that has been ready for
//!    longest has it next; jobs of workers stand in the same line.
//! 2. All that waits then goes in at once, up to [`ROUND_BYTES`], at the time at which the round begins, and the node
//!    is asked what it wants. Its time-out, if it has come, follows.
//! 3. Each output is carried out when the time is over that everything before it and it cost. Then the core is free.
//!
//! Rounds that follow each other without a pause are one turn, up to [`ROUNDS`] of them, and after a turn that moved
//! little the node rests. What a socket's node is not told stays in the kernel, whose window closes by it; what a UDP
//! port has no room for is lost. Nodes beside the shards, and those of other hosts, take no time.

use super::{Actor, ActorId, Due, EVENTS_PER_INSTANT_MAX, HostId, KernelId, Simulation};
use crate::costs::{Bill, Processors};
use crate::trace::Kind;
use heddle_seam::language::{Job, Language};
use heddle_seam::node::{Input, JobId, Output, PortId};
use heddle_seam::time::{Duration, Instant};
use heddle_utcp::ConnectionId;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a node takes in before it is asked what it wants, as in production.
const ROUND_BYTES: u64 = 256 * 1024;
/// Rounds of a turn, as in production.
const ROUNDS: u32 = 4;
/// A turn that moved so many bytes is not followed by a rest, as in production.
const MUCH_BYTES: u64 = 32 * 1024;
/// Bytes of datagrams that wait for a busy node at one port: about what fits the 416 KiB that Linux gives by default,
/// in which it counts 2,304 bytes for a datagram of 1,400.
const PORT_BUFFER_BYTES: usize = 256 * 1024;

/// The processors of a host, at work.
pub(crate) struct Cores<L: Language> {
    processors: Processors,
    /// Those that nothing runs on.
    free: usize,
    /// What waits for one.
    ready: VecDeque<Ready<L>>,
    /// Whether an event is scheduled that looks who may run.
    look_due: bool,
    spent_ns: u64,
    datagrams_lost: u64,
}

enum Ready<L: Language> {
    Node(ActorId, u32),
    Job(ActorId, u32, JobId, L::Job),
}

/// Something for a node that may have to wait.
pub(crate) enum Waiting<L: Language> {
    Input { kind: Kind, subject: u64, amount: u64, input: Input<L> },
    Look(KernelId, ConnectionId),
    Accepted(KernelId, ConnectionId),
    Unreachable(KernelId, ConnectionId),
}

/// What a charged node is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Nothing,
    /// It moved little, and does not look for more yet.
    Resting,
    /// There is something for it, and no core yet.
    Ready,
    Running,
}

/// A node that is charged.
pub(crate) struct Charged<L: Language> {
    doing: Doing,
    /// It is told things at this moment, in a round.
    is_told: bool,
    inbox: VecDeque<Waiting<L>>,
    /// Bytes of datagrams in it.
    port_bytes: BTreeMap<PortId, usize>,
    /// What it wants done, with its bytes, and when that is due.
    outbox: VecDeque<(Instant, Output<L>, Vec<u8>)>,
    /// Somebody spoke with it, so it may want something.
    ask: bool,
    /// Rounds of this turn so far, when it began and what it moved.
    rounds: u32,
    began: Instant,
    moved_bytes: u64,
}

impl<L: Language> Default for Charged<L> {
    fn default() -> Self {
        Charged {
            doing: Doing::default(),
            is_told: false,
            inbox: VecDeque::new(),
            port_bytes: BTreeMap::new(),
            outbox: VecDeque::new(),
            ask: false,
            rounds: 0,
            began: Instant::ZERO,
            moved_bytes: 0,
        }
    }
}

/// Runs jobs, for who wants to know how long they take. Nothing that happens depends on it.
pub trait JobWatch {
    /// Runs a job of this kind, once.
    fn run(&mut self, kind: &'static str, job: &mut dyn FnMut());
}

/// A node that is being told things at the moment.
pub(crate) struct Round<L: Language> {
    actor: ActorId,
    bill: Bill,
    /// What it wants done, with its bytes, and how long after the round's beginning.
    outputs: Vec<(u64, Output<L>, Vec<u8>)>,
}

impl<L: Language> Actor<L> {
    /// Whether it cannot be told anything now, because its time is charged and it is not at work.
    pub fn is_put_off(&self) -> bool {
        self.charged.as_ref().is_some_and(|charged| !charged.is_told)
    }

    /// Whether it is at work, and told things.
    pub fn is_in_round(&self) -> bool {
        self.charged.as_ref().is_some_and(|charged| charged.is_told)
    }
}

impl<L: Language> Simulation<L> {
    /// From now on what the shards of a host do takes time, and they share these processors. Its other nodes take none.
    ///
    /// # Panics
    ///
    /// When there is no core, or the host has processors already.
    pub fn set_processors(&mut self, host: HostId, processors: Processors) {
        assert!(processors.cores > 0, "who has to work needs a core");
        assert!(!self.cores.contains_key(&host), "a host has one set of processors");
        let (first, shards) = (self.hosts[host.0].first.0, self.hosts[host.0].shards);
        for actor in &mut self.actors[first..first + shards] {
            actor.charged = Some(Box::default());
        }
        let cores = Cores {
            free: processors.cores,
            processors,
            ready: VecDeque::new(),
            look_due: false,
            spent_ns: 0,
            datagrams_lost: 0,
        };
        self.cores.insert(host, cores);
    }

    /// Has somebody run all jobs from now on, in the place of whoever did.
    pub fn watch_jobs(&mut self, watch: Box<dyn JobWatch>) {
        self.job_watch = Some(watch);
    }

    /// What the shards of a host and their jobs have been charged so far, with rounds and jobs under way as a whole.
    /// `None` where computing takes no time.
    pub fn processor_time(&self, host: HostId) -> Option<Duration> {
        self.cores.get(&host).map(|cores| Duration::from_nanos(cores.spent_ns))
    }

    /// Datagrams that were lost because a host's shards were busy and their ports' buffers full.
    pub fn datagrams_overrun(&self, host: HostId) -> u64 {
        self.cores.get(&host).map_or(0, |cores| cores.datagrams_lost)
    }

    /// Keeps something for a node until it runs.
    pub(crate) fn put_off(&mut self, actor: ActorId, waiting: Waiting<L>) {
        let state = &mut self.actors[actor.0];
        let (host, is_alive) = (state.host, state.node.is_some());
        let Some(charged) = state.charged.as_mut().filter(|_| is_alive) else { return };
        if let Waiting::Input { input: Input::Datagrams { port, datagrams }, .. } = &waiting {
            let (bytes, more) = (charged.port_bytes.entry(*port).or_default(), datagrams.data.len());
            if *bytes + more > PORT_BUFFER_BYTES {
                let lost = more.div_ceil(datagrams.stride.max(1)) as u64;
                if let Some(cores) = self.cores.get_mut(&host) {
                    cores.datagrams_lost += lost;
                }
                return;
            }
            *bytes += more;
        }
        charged.inbox.push_back(waiting);
        self.wake(actor);
    }

    /// Has a charged node asked what it wants; says whether it is one.
    pub(crate) fn ask_later(&mut self, actor: ActorId) -> bool {
        match &mut self.actors[actor.0].charged {
            Some(charged) => charged.ask = true,
            None => return false,
        }
        self.wake(actor);
        true
    }

    /// There is something for a charged node; says whether it is one.
    pub(crate) fn wake(&mut self, actor: ActorId) -> bool {
        let state = &mut self.actors[actor.0];
        let (host, life) = (state.host, state.life);
        let Some(charged) = state.charged.as_mut() else { return false };
        if charged.doing == Doing::Nothing {
            charged.doing = Doing::Ready;
            self.queue_for_core(host, Ready::Node(actor, life));
        }
        true
    }

    /// A node has a job; gives it back where jobs take no core.
    pub(crate) fn work(&mut self, actor: ActorId, id: JobId, job: L::Job) -> Option<L::Job> {
        let state = &self.actors[actor.0];
        if state.charged.is_none() {
            return Some(job);
        }
        let (host, life) = (state.host, state.life);
        self.queue_for_core(host, Ready::Job(actor, life, id, job));
        None
    }

    fn queue_for_core(&mut self, host: HostId, ready: Ready<L>) {
        let cores = self.cores.get_mut(&host).expect("a charged node's host has processors");
        cores.ready.push_back(ready);
        if !cores.look_due {
            cores.look_due = true;
            // What happens at this very instant goes in together.
            self.queue.push(self.now, Due::Cores { host, freed: false });
        }
    }

    /// A core of a host has become free, or somebody wants one.
    pub(crate) fn on_cores(&mut self, host: HostId, freed: bool) {
        let cores = self.cores.get_mut(&host).expect("the host has processors");
        match freed {
            true => cores.free += 1,
            false => cores.look_due = false,
        }
        while let Some(cores) = self.cores.get_mut(&host).filter(|cores| cores.free > 0)
            && let Some(ready) = cores.ready.pop_front()
        {
            let (Ready::Node(actor, life) | Ready::Job(actor, life, ..)) = &ready;
            // Nobody is at home any more.
            let state = &self.actors[actor.0];
            if state.life != *life || state.node.is_none() {
                continue;
            }
            cores.free -= 1;
            match ready {
                Ready::Node(actor, _) => self.run_round(host, actor),
                Ready::Job(actor, life, id, job) => self.run_job(host, (actor, life), id, job),
            }
        }
    }

    fn run_job(&mut self, host: HostId, (actor, life): (ActorId, u32), id: JobId, job: L::Job) {
        let cores = self.cores.get_mut(&host).expect("the host has processors");
        let cost_ns = cores.processors.costs.jobs_ns.get(job.kind()).copied().unwrap_or(0);
        cores.spent_ns += cost_ns;
        let over = self.now.plus_ns(cost_ns);
        let result = self.run(job);
        self.queue.push(over, Due::Computed(actor, life, id, Box::new(result)));
        self.queue.push(over, Due::Cores { host, freed: true });
    }

    /// Runs a job now.
    pub(crate) fn run(&mut self, job: L::Job) -> <L::Job as Job>::Result {
        let Some(watch) = &mut self.job_watch else { return job.run() };
        let (kind, mut job, mut result) = (job.kind(), Some(job), None);
        watch.run(kind, &mut || result = job.take().map(Job::run));
        result.expect("who watches runs the job")
    }

    /// Tells a node what waits for it, and schedules what it wants done.
    fn run_round(&mut self, host: HostId, actor: ActorId) {
        let now = self.now;
        let Some(charged) = self.actors[actor.0].charged.as_mut() else { return };
        (charged.doing, charged.is_told, charged.ask) = (Doing::Running, true, false);
        let (waiting, begins) = (charged.inbox.len(), charged.rounds == 0);
        if begins {
            (charged.began, charged.moved_bytes) = (now, 0);
        }
        self.round = Some(Round { actor, bill: Bill::default(), outputs: Vec::new() });
        if begins {
            self.charge(|bill, processors| bill.turn(&processors.costs));
        }
        for _ in 0..waiting {
            let took = self.round.as_ref().map_or(0, |round| round.bill.bytes_in);
            let charged = self.actors[actor.0].charged.as_mut();
            let next = charged.filter(|_| took < ROUND_BYTES).and_then(|charged| charged.take());
            let Some(next) = next else { break };
            self.hand_in(actor, next);
        }
        self.collect_outputs(actor);
        if self.actors[actor.0].timer.is_some_and(|at| at <= now) {
            self.actors[actor.0].timer = None;
            self.input(actor, Kind::Timeout, 0, 0, Input::Timeout);
            self.collect_outputs(actor);
        }
        let Some(Round { bill, outputs, .. }) = self.round.take() else { return };
        let life = self.actors[actor.0].life;
        let cores = self.cores.get_mut(&host).expect("the host has processors");
        cores.spent_ns += bill.spent_ns();
        let Some(charged) = self.actors[actor.0].charged.as_mut() else { return };
        charged.is_told = false;
        charged.moved_bytes += bill.moved_bytes;
        let mut last = None;
        for (after_ns, output, bytes) in outputs {
            let at = now.plus_ns(after_ns);
            charged.outbox.push_back((at, output, bytes));
            if last != Some(at) {
                self.queue.push(at, Due::Outputs(actor, life));
            }
            last = Some(at);
        }
        self.queue.push(now.plus_ns(bill.spent_ns()), Due::RoundOver(actor, life));
    }

    fn hand_in(&mut self, actor: ActorId, waiting: Waiting<L>) {
        match waiting {
            Waiting::Input { kind, subject, amount, input } => {
                self.input(actor, kind, subject, amount, input)
            }
            Waiting::Look(kernel, id) => self.on_look(kernel, id),
            Waiting::Accepted(kernel, id) => self.on_accepted(kernel, id),
            Waiting::Unreachable(kernel, id) => self.fail_unreachable(kernel, id),
        }
    }

    /// Asks a node what it wants until it names its time-out, and keeps that for later.
    fn collect_outputs(&mut self, actor: ActorId) {
        let now = self.now;
        for outputs in 0.. {
            assert!(outputs < EVENTS_PER_INSTANT_MAX, "a node never names its time-out at {now:?}");
            let mut bytes = Vec::new();
            let Some(node) = self.node(actor) else { return };
            let output = node.poll_output(now, &mut bytes);
            if let Output::Timeout(timeout) = output {
                return self.set_timer(actor, timeout);
            }
            self.charge(|bill, processors| bill.output(&processors.costs, &output, bytes.len()));
            if let Some(round) = &mut self.round {
                round.outputs.push((round.bill.spent_ns(), output, bytes));
            }
        }
    }

    /// Writes something on the bill of the round.
    fn charge(&mut self, what: impl FnOnce(&mut Bill, &Processors)) {
        let Some(round) = &mut self.round else { return };
        let host = self.actors[round.actor.0].host;
        if let Some(cores) = self.cores.get(&host) {
            what(&mut round.bill, &cores.processors);
        }
    }

    /// A node is about to be told something; says whether that is in a round of its own, and charged.
    pub(crate) fn charge_input(&mut self, actor: ActorId, input: &Input<L>) -> bool {
        let is_in_round = self.actors[actor.0].is_in_round();
        if is_in_round {
            self.charge(|bill, processors| bill.input(&processors.costs, input));
        }
        is_in_round
    }

    /// Does what a node wanted done by now.
    pub(crate) fn on_outputs(&mut self, actor: ActorId, life: u32) {
        let now = self.now;
        while self.actors[actor.0].life == life && self.actors[actor.0].node.is_some() {
            let Some(charged) = self.actors[actor.0].charged.as_mut() else { return };
            if charged.outbox.front().is_none_or(|(at, ..)| *at > now) {
                return;
            }
            let Some((_, output, bytes)) = charged.outbox.pop_front() else { return };
            let spare = std::mem::replace(&mut self.buf, bytes);
            self.carry_out(actor, output);
            self.buf = spare;
        }
    }

    /// A round is over, and its core free. The node goes on if there is more.
    pub(crate) fn on_round_over(&mut self, actor: ActorId, life: u32) {
        let (now, host) = (self.now, self.actors[actor.0].host);
        let state = &mut self.actors[actor.0];
        let is_there = state.life == life && state.node.is_some();
        if let Some(charged) = state.charged.as_mut().filter(|_| is_there) {
            charged.rounds += 1;
            charged.doing = Doing::Nothing;
            let has_work = !charged.inbox.is_empty();
            let is_due = has_work || charged.ask || state.timer.is_some_and(|at| at <= now);
            let turns_apart = self.cores[&host].processors.turns_apart;
            let rested = charged.began + turns_apart;
            if charged.rounds == ROUNDS || !is_due {
                charged.rounds = 0;
                let moved_little = (1..MUCH_BYTES).contains(&charged.moved_bytes);
                if moved_little && !has_work && rested > now {
                    charged.doing = Doing::Resting;
                    self.queue.push(rested, Due::Rested(actor, life));
                }
            }
            if is_due {
                self.wake(actor);
            }
        }
        self.on_cores(host, true);
    }

    pub(crate) fn on_rested(&mut self, actor: ActorId, life: u32) {
        let now = self.now;
        let state = &mut self.actors[actor.0];
        let is_there = state.life == life && state.node.is_some();
        let Some(charged) = state.charged.as_mut().filter(|_| is_there) else { return };
        charged.doing = Doing::Nothing;
        if !charged.inbox.is_empty() || charged.ask || state.timer.is_some_and(|at| at <= now) {
            self.wake(actor);
        }
    }

    /// A node's process was killed, with all that it was about to do.
    pub(crate) fn forget_charged(&mut self, actor: ActorId) {
        if let Some(charged) = self.actors[actor.0].charged.as_mut() {
            **charged = Charged::default();
        }
    }
}

impl<L: Language> Charged<L> {
    /// The next thing in the inbox.
    fn take(&mut self) -> Option<Waiting<L>> {
        let next = self.inbox.pop_front()?;
        if let Waiting::Input { input: Input::Datagrams { port, datagrams }, .. } = &next
            && let Some(bytes) = self.port_bytes.get_mut(port)
        {
            *bytes -= datagrams.data.len();
        }
        Some(next)
    }
}
