//! The threads that give the engine its turns.
//!
//! The first one wakes up when something is due and when a host sends. That can come milliseconds late although it goes
//! before all ordinary programs: a kernel that is not preempted lets another program finish a long system call first,
//! and a hypervisor may stop a processor without anybody knowing. Both concern one processor. So a second thread, which
//! runs on other processors, wakes up [`GRACE_NS`] after something was due, and takes the turn if nobody has.
//!
//! A thread that leaves ordinary programs less than a twentieth of its processor is stopped for 50 ms once a second:
//! the kernel's fair server, or its limit for real-time threads, sees to that. So a thread that is busy all the time
//! rests in between, too briefly to matter, and the other one takes its turns meanwhile ([`Rest`]).
//!
//! In a virtual machine the first one has a single processor, which is [kept awake](super::awake).

use std::io;
use std::mem;
use std::net::IpAddr;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heddle_net::realtime;
use heddle_netem::{DirectionStats, HostId, Instant as Time, Step};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::attack::AttackSummary;
use super::awake::{Awake, is_virtual};
use super::engine::{Clock, Engine};
use super::stack::Stack;
use super::wake_probe::WakeProbe;
use crate::capture::Capture;

/// How late something may be before the second thread takes care of it: longer than it usually takes to wake up.
const GRACE_NS: u64 = 250_000;
/// How often the second thread looks at the devices, which nothing that is due may be waiting for.
const HEARTBEAT_NS: u64 = 1_000_000;
/// A busy thread rests for one part in so many of its time: more than the twentieth that the kernel asks for.
const REST_SHARE: u64 = 12;
/// How much rest comes at once. Rests of 0.8 ms, after 10 ms of work, did not keep the kernel from stopping a thread.
const REST_NS: u64 = 200_000;
const EVENTS_MAX: usize = 64;
/// How long a thread that moves packets may take to answer an ordinary one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The token of the descriptor that says stop; hosts have their numbers.
const STOP: u64 = u64::MAX;
/// The token of the descriptor that says that something is wanted, or may be due sooner than it was.
const SOONER: u64 = u64::MAX - 1;
/// The token of the timer that tells how long something waits.
const PROBE: u64 = u64::MAX - 2;
/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// An engine that runs, until this is dropped.
#[derive(Debug)]
pub(super) struct PacketThreads {
    shared: Arc<Shared>,
    /// Each ends with the CPU time that it used, in nanoseconds.
    threads: Vec<JoinHandle<io::Result<u64>>>,
    /// In a virtual machine.
    awake: Option<Awake>,
}

/// What a thread owes to ordinary programs on its processor.
struct Rest {
    owed_ns: u64,
    last_ns: u64,
}

/// What an ordinary thread wants to be done. It does not do it by itself: where many of them run, one that was stopped
/// while it held the engine would hold up the wires for a tenth of a second.
type Wish = Box<dyn FnOnce(&mut Engine) + Send>;

struct Shared {
    engine: Mutex<Engine>,
    /// The threads that move packets never wait for this lock. Whoever holds it writes to `sooner` afterwards.
    wishes: Mutex<Vec<Wish>>,
    clock: Clock,
    /// When something is due next, by the engine's clock.
    due_ns: AtomicU64,
    /// Watches the devices, `stop`, `sooner` and `timer`.
    devices: OwnedFd,
    stop: OwnedFd,
    sooner: OwnedFd,
    /// Only who has the engine takes it.
    probe: Mutex<WakeProbe>,
    timer: OwnedFd,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("due_ns", &self.due_ns).finish_non_exhaustive()
    }
}

impl PacketThreads {
    /// Starts the threads. Returns also whether they run before all ordinary ones.
    pub(super) fn start(engine: Engine) -> io::Result<(PacketThreads, io::Result<()>)> {
        let shared = Arc::new(Shared::new(engine)?);
        let mut threads = PacketThreads { shared, threads: Vec::new(), awake: None };
        let [mut first, second] = halves(&realtime::processors()?);
        if is_virtual() {
            // Two emulators at once take different ones where they can.
            let processor = first[process::id() as usize % first.len()];
            threads.awake = Awake::start(processor).ok();
            if threads.stay_awake() {
                first = vec![processor];
            }
        }
        let mut realtime = threads.add("wires", first, Shared::run_first)?;
        if !second.is_empty() {
            realtime = realtime.and(threads.add("wires, second", second, Shared::run_second)?);
        }
        Ok((threads, realtime))
    }

    /// Starts one thread. Returns whether it runs before all ordinary ones.
    fn add(
        &mut self,
        name: &str,
        processors: Vec<usize>,
        work: fn(&Shared) -> io::Result<()>,
    ) -> io::Result<io::Result<()>> {
        let (send, ready): (SyncSender<io::Result<()>>, _) = sync_channel(1);
        let shared = Arc::clone(&self.shared);
        let run = move || {
            let set = realtime::keep_to(&processors).and_then(|()| realtime::sharpen_timers());
            // Whoever started the thread waits for this.
            let _ = send.send(set.and_then(|()| realtime::run_first()));
            work(&shared)?;
            Ok(thread_cpu_ns())
        };
        self.threads.push(thread::Builder::new().name(name.into()).spawn(run)?);
        ready.recv().map_err(io::Error::other)
    }

    /// Whether the processor of the first thread is kept from sleeping.
    pub(super) fn stay_awake(&self) -> bool {
        self.awake.is_some()
    }

    /// Whether packets move. When they do not, [`stop`](Self::stop) says why.
    pub(super) fn are_working(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Seconds since the engine began.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.shared.clock.now().as_nanos() as f64 / 1e9
    }

    /// Changes one direction of a wire now.
    pub(super) fn change(&self, from: HostId, to: HostId, step: &Step) -> io::Result<()> {
        let step = step.clone();
        self.ask(move |engine| engine.change(from, to, &step))?
    }

    /// Gives packets to an address to a program.
    pub(super) fn attach(&self, host: HostId, address: IpAddr, stack: Box<dyn Stack>) -> io::Result<()> {
        self.shared.wish(Box::new(move |engine| engine.attach(host, address, stack)))
    }

    /// Gives them to the kernel again.
    pub(super) fn detach(&self, address: IpAddr) -> io::Result<Option<Box<dyn Stack>>> {
        self.ask(move |engine| engine.detach(address))
    }

    /// Lets attackers act, or has them wait.
    pub(super) fn let_attack(&self, on: bool) -> io::Result<()> {
        self.ask(move |engine| engine.let_attack(on))
    }

    /// What attackers have done so far.
    pub(super) fn attacks(&self) -> io::Result<Vec<AttackSummary>> {
        self.ask(|engine| engine.attackers.summaries())
    }

    /// Somebody measures from now on, or no more.
    pub(super) fn measuring(&self, on: bool) -> io::Result<()> {
        self.ask(move |engine| engine.tally.measuring(on))
    }

    /// Keeps what is sent on the wire between two hosts from now on.
    pub(super) fn watch(&self, ends: [HostId; 2]) -> io::Result<()> {
        self.ask(move |engine| engine.watch(ends))
    }

    /// What was kept, by the engine's clock.
    pub(super) fn watched(&self) -> io::Result<Capture> {
        self.ask(Engine::watched)
    }

    /// What has happened on one direction of a wire so far.
    pub(super) fn direction_stats(&self, from: HostId, to: HostId) -> io::Result<DirectionStats> {
        // A wire that has not carried anything yet may not be there yet.
        self.ask(move |engine| engine.topology.direction_stats(from, to).unwrap_or_default())
    }

    /// Has a thread that moves packets do something, and waits for what it gives.
    fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Engine) -> T + Send + 'static) -> io::Result<T> {
        let (give, given) = sync_channel(1);
        // Nobody waits any more if this fails.
        self.shared.wish(Box::new(move |engine| drop(give.try_send(work(engine)))))?;
        given.recv_timeout(PATIENCE).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
    }

    /// Ends the threads and shows what they leave behind.
    pub(super) fn stop(&mut self) -> io::Result<MutexGuard<'_, Engine>> {
        self.shared.request_stop();
        self.awake = None;
        let mut cpu_ns = 0;
        for thread in self.threads.drain(..) {
            cpu_ns += thread.join().map_err(|_| panicked())??;
        }
        let mut engine = self.shared.lock()?;
        engine.tally.cpu_ns = cpu_ns;
        Ok(engine)
    }
}

impl Drop for PacketThreads {
    fn drop(&mut self) {
        self.shared.request_stop();
        for thread in self.threads.drain(..) {
            // Its panic was reported by its own thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(engine: Engine) -> io::Result<Shared> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let devices = watch(&stop)?;
        let sooner = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Told once for each write, and never read.
        epoll::add(&devices, &sooner, EventData::new_u64(SOONER), EventFlags::IN | EventFlags::ET)?;
        for (number, device) in engine.devices().enumerate() {
            epoll::add(&devices, device, EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        let clock = engine.clock();
        let (probe, timer) = WakeProbe::start(clock)?;
        epoll::add(&devices, &timer, EventData::new_u64(PROBE), EventFlags::IN)?;
        let probe = Mutex::new(probe);
        let due_ns = AtomicU64::new(NEVER);
        let (engine, wishes) = (Mutex::new(engine), Mutex::new(Vec::new()));
        Ok(Shared { engine, wishes, clock, due_ns, devices, stop, sooner, probe, timer })
    }

    fn request_stop(&self) {
        // It only fails when it was requested 2⁶⁴ times already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> io::Result<MutexGuard<'_, Engine>> {
        self.engine.lock().map_err(|_| panicked())
    }

    fn run_first(&self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut rest = Rest::new(self.clock);
        loop {
            let due_ns = self.due_ns.load(Ordering::Acquire);
            self.wait(&self.devices, due_ns, &mut events)?;
            rest.slept(self.clock);
            if says(&events, STOP) {
                return Ok(());
            }
            self.turn(&mut *self.lock()?, &events)?;
            rest.worked(self.clock);
        }
    }

    fn run_second(&self) -> io::Result<()> {
        let stop = watch(&self.stop)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut look_ns = 0;
        let mut rest = Rest::new(self.clock);
        loop {
            rest.worked(self.clock);
            let deadline_ns = self.due_ns.load(Ordering::Acquire).saturating_add(GRACE_NS);
            self.wait(&stop, deadline_ns.min(look_ns), &mut events)?;
            rest.slept(self.clock);
            if says(&events, STOP) {
                return Ok(());
            }
            let now_ns = self.clock.now().as_nanos();
            let is_late = self.due_ns.load(Ordering::Acquire).saturating_add(GRACE_NS) <= now_ns;
            if !is_late && now_ns < look_ns {
                continue;
            }
            look_ns = now_ns + HEARTBEAT_NS;
            self.wait(&self.devices, 0, &mut events)?;
            if !is_late && events.is_empty() || says(&events, STOP) {
                continue;
            }
            self.stand_in(&events)?;
        }
    }

    /// Takes a turn of the first thread's unless that one is at it.
    fn stand_in(&self, events: &[epoll::Event]) -> io::Result<()> {
        match self.engine.try_lock() {
            Ok(mut engine) => {
                let before_ns = self.due_ns.load(Ordering::Acquire);
                self.turn(&mut engine, events)?;
                // The first thread may be asleep until what was due next before.
                if self.due_ns.load(Ordering::Acquire) < before_ns { self.call() } else { Ok(()) }
            }
            // Wishes may have come too late for the turn of the first thread, and nobody else hears of them again.
            Err(TryLockError::WouldBlock) if says(events, SOONER) => self.call(),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Poisoned(_)) => Err(panicked()),
        }
    }

    fn wish(&self, wish: Wish) -> io::Result<()> {
        self.wishes.lock().map_err(|_| panicked())?.push(wish);
        self.call()
    }

    /// Wakes up the thread that waits for the devices.
    fn call(&self) -> io::Result<()> {
        rustix::io::write(&self.sooner, &1u64.to_ne_bytes())?;
        Ok(())
    }

    fn grant_wishes(&self, engine: &mut Engine) {
        let wishes = self.wishes.try_lock().map_or_else(|_| Vec::new(), |mut wishes| mem::take(&mut *wishes));
        for wish in wishes {
            wish(engine);
        }
    }

    fn turn(&self, engine: &mut Engine, events: &[epoll::Event]) -> io::Result<()> {
        if says(events, PROBE) {
            let now = self.clock.now();
            let mut probe = self.probe.lock().map_err(|_| panicked())?;
            probe.seen(&self.timer, now)?.for_each(|late_ns| engine.tally.waking.add(now, late_ns, 1));
            let is_due = self.due_ns.load(Ordering::Acquire) <= now.as_nanos();
            if !is_due && events.iter().all(|event| event.data.u64() == PROBE) {
                return Ok(());
            }
        }
        self.grant_wishes(engine);
        let tokens = events.iter().map(|event| event.data.u64());
        let senders =
            tokens.filter(|token| ![SOONER, PROBE].contains(token)).map(|token| HostId(token as u32));
        let due = engine.turn(senders)?;
        self.due_ns.store(due.map_or(NEVER, Time::as_nanos), Ordering::Release);
        Ok(())
    }

    /// Sleeps until something happens at what `epoll` watches, or until a time.
    fn wait(&self, epoll: &OwnedFd, until_ns: u64, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let timeout = (until_ns != NEVER).then(|| {
            let ns = until_ns.saturating_sub(self.clock.now().as_nanos());
            Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
        });
        events.clear();
        match epoll::wait(epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Rest {
    fn new(clock: Clock) -> Rest {
        Rest { owed_ns: 0, last_ns: clock.now().as_nanos() }
    }

    /// The thread has waited until now.
    fn slept(&mut self, clock: Clock) {
        self.owed_ns = self.owed_ns.saturating_sub(self.pass(clock));
    }

    /// The thread has worked until now. Sleeps if it must.
    fn worked(&mut self, clock: Clock) {
        self.owed_ns += self.pass(clock) / REST_SHARE;
        if self.owed_ns >= REST_NS {
            thread::sleep(Duration::from_nanos(self.owed_ns));
            self.slept(clock);
        }
    }

    fn pass(&mut self, clock: Clock) -> u64 {
        let now_ns = clock.now().as_nanos();
        now_ns - std::mem::replace(&mut self.last_ns, now_ns)
    }
}

/// Something to wait with until `stop` is written to.
fn watch(stop: &OwnedFd) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
    Ok(epoll)
}

fn says(events: &[epoll::Event], token: u64) -> bool {
    events.iter().any(|event| event.data.u64() == token)
}

/// Every other processor, and the rest.
fn halves(processors: &[usize]) -> [Vec<usize>; 2] {
    [0, 1].map(|skipped| processors.iter().copied().skip(skipped).step_by(2).collect())
}

fn panicked() -> io::Error {
    io::Error::other("a thread that moves packets panicked")
}

/// What the calling thread has used of a processor.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // It begins at zero and counts up.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use heddle_netem::{DirectionOptions, HostOptions, Seed, Topology, TopologyOptions};

    use super::*;
    use crate::emulator::attack::Attackers;

    #[test]
    fn the_two_threads_share_no_processor() {
        assert_eq!(halves(&[0, 2, 5]), [vec![0, 5], vec![2]]);
        assert_eq!(halves(&[3]), [vec![3], vec![]]);
    }

    /// An engine of two hosts without devices, on which nothing moves by itself.
    fn engine() -> Engine {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let options = TopologyOptions {
            hosts: vec![host("a"), host("b")],
            default_wire: Some(DirectionOptions::default()),
            ..TopologyOptions::default()
        };
        let topology = Topology::new(&options, &Seed::from_number(1)).unwrap();
        Engine::new(topology, Vec::new(), BTreeMap::new(), None, Attackers::default())
    }

    #[test]
    fn ordinary_threads_never_hold_the_engine() {
        let shared = Shared::new(engine()).unwrap();
        let threads = PacketThreads { shared: Arc::new(shared), threads: Vec::new(), awake: None };
        let held = threads.shared.lock().unwrap();
        let (from, to) = (HostId(0), HostId(1));
        let down = Step { down: Some(true), ..Step::default() };
        let all = thread::scope(|scope| {
            let asking = [
                scope.spawn(|| threads.change(from, to, &down)),
                scope.spawn(|| threads.let_attack(false)),
                scope.spawn(|| threads.direction_stats(from, to).map(drop)),
            ];
            // They wait for an answer, not for whoever has the engine.
            let mut held = held;
            let begun = Instant::now();
            while threads.shared.wishes.lock().unwrap().len() < asking.len() {
                assert!(begun.elapsed() < PATIENCE, "they do not ask");
                thread::yield_now();
            }
            threads.shared.grant_wishes(&mut held);
            asking.map(|asking| asking.join().unwrap().is_ok())
        });
        assert_eq!(all, [true; 3]);
    }

    /// What a thread hears of that looks at the devices.
    fn heard(shared: &Shared) -> Vec<epoll::Event> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        shared.wait(&shared.devices, 0, &mut events).unwrap();
        events
    }

    #[test]
    fn a_wish_that_comes_during_a_turn_is_not_forgotten() {
        let shared = Shared::new(engine()).unwrap();
        let turn = shared.lock().unwrap();
        shared.wish(Box::new(|engine| engine.let_attack(false))).unwrap();
        let events = heard(&shared);
        assert!(says(&events, SOONER) && heard(&shared).is_empty());
        shared.stand_in(&events).unwrap();
        drop(turn);
        assert!(says(&heard(&shared), SOONER));
        assert!(shared.stand_in(&[]).is_ok() && shared.wishes.lock().unwrap().is_empty());
        assert!(heard(&shared).is_empty());
    }

    /// Wants to be woken up at a time, and sends nothing.
    struct Timer(Time);

    impl Stack for Timer {
        fn handle_packet(&mut self, _now: Time, _packet: &[u8]) {}

        fn handle_timeout(&mut self, _now: Time) {}

        fn poll_packet(&mut self, _now: Time, _packet: &mut Vec<u8>) -> bool {
            false
        }

        fn poll_timeout(&self) -> Option<Time> {
            Some(self.0)
        }
    }

    #[test]
    fn the_first_thread_hears_when_something_is_due_sooner() {
        let shared = Shared::new(engine()).unwrap();
        for (seconds, is_sooner) in [(1000, true), (2000, false), (500, true)] {
            let timer = Timer(Time::from_nanos(seconds * 1_000_000_000));
            let address = IpAddr::from([10, 0, 0, seconds.to_be_bytes()[7]]);
            shared.wish(Box::new(move |engine| engine.attach(HostId(0), address, Box::new(timer)))).unwrap();
            shared.stand_in(&heard(&shared)).unwrap();
            assert_eq!(says(&heard(&shared), SOONER), is_sooner, "{seconds}");
        }
    }
}
