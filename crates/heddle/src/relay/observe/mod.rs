//! Looking into the relay while it runs (`HeddleObserve`): what somebody at the [socket] asks is found out from the
//! shards, shown to observers, and told to whoever asked.
//!
//! ```text
//!   heddle observe ─▶ socket ─▶ reader ─┐
//!                        ▲              ▼       Control::Observe, Control::Force
//!                        └──────── this thread ─────────────────────────────────▶ shards
//!                                    ▲    └ observers                               │
//!                                    └──────────────── Event::Observed ◀────────────┘
//! ```
//!
//! Observers run here and not on the shards' threads, so that one that takes its time keeps no circuit waiting. What
//! somebody watches ends with his connection. Nothing is written to a file by the relay.

mod lines;
mod socket;
mod times;

use crate::relay::Failure;
use crate::relay::metrics::Timings;
use heddle_net::{LoopHandle, NotTaken};
use heddle_relay::{Control, Observed, Observees, Place, RelayLanguage, Why};
use heddle_seam::stopwatch::Stopwatch;
use heddle_spe::{
    Collector, Observer, Request, Row, SeriesId, Snapshot, Unclear, Watch, WatchId, Watches, When, Which,
};
use rustix::time::{ClockId, clock_gettime};
use socket::ConnectionId;
pub use socket::fuzz as fuzz_requests;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};
use times::{Keeper, SERIES, Since};

/// The socket's name in the `DataDirectory`.
pub const SOCKET: &str = "observe.sock";
/// What may wait to be told here. Each snapshot has 832 KiB at most, so that 64 of them have 52 MiB; what does not fit
/// is dropped.
const TOLD_MAX: usize = 64;
/// Observers that are loaded at once. Each has its module, and an instance with memory of a mebibyte at most for each
/// watch, of which there are 32.
const OBSERVERS_MAX: usize = 16;
/// Looks that are under way at once, of watches that have ended too. Each shard answers a look with one snapshot.
const LOOKS_MAX: usize = 32;
/// How long a shard may take to answer: what it said may have been dropped here.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Shards are told what to force this much apart at least: one that had too much to hear is told again, and of who
/// changes his mind faster only what he wants then.
const AGAIN: Duration = Duration::from_millis(100);
/// What an observer may use of a processor for a snapshot, and beside that for each of its rows, of which there are
/// 4,096 at most. It is its own time, so that none is stopped because the machine does other things.
const SNAPSHOT_USE_MAX: Duration = Duration::from_millis(10);
const ROW_USE_MAX: Duration = Duration::from_micros(10);
/// How long a snapshot may take with an observer, however little that uses: meanwhile nobody else is heard.
const SNAPSHOT_MAX: Duration = Duration::from_millis(500);
/// What one write may bring. The system waits [`socket::WRITE_MAX`] for room for each of its buffers, of some 36 KiB,
/// and not for a write.
const WRITE_BYTES_MAX: usize = 16 << 10;
/// How long this waits for something to do, where nothing is due.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What this thread hears.
#[derive(Debug)]
pub enum Told {
    Connected(ConnectionId, UnixStream),
    Asked(ConnectionId, Result<(Request, Vec<u8>), Unclear>),
    Gone(ConnectionId),
    /// What a shard saw.
    Observed(u16, Box<Observed>),
}

/// How whoever observes gets to know things: what times are told to, and what shards tell.
#[derive(Clone)]
pub struct Observatory {
    told: SyncSender<Told>,
    collector: Arc<Collector>,
}

/// What times of steps go to: the metrics, and the observatory where there is one.
pub fn stopwatch(shard: u16, timings: Option<Arc<Timings>>, observatory: Option<&Observatory>) -> Stopwatch {
    let collector = observatory.map(|observatory| observatory.collector.clone());
    match timings.is_some() || collector.is_some() {
        true => {
            let clock = Since(Instant::now());
            Stopwatch::new(Arc::new(Keeper { clock, shard: shard.into(), timings, collector }))
        }
        false => Stopwatch::default(),
    }
}

/// An observatory that was made and does not run yet.
pub struct Unstarted {
    observatory: Observatory,
    heard: Receiver<Told>,
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
}

impl Unstarted {
    /// Opens the socket in `data_directory`.
    pub fn new(data_directory: &Path) -> Result<Unstarted, Failure> {
        let path = data_directory.join(SOCKET);
        let listener = socket::listen(&path).map_err(|error| {
            format!(
                "HeddleObserve: {} cannot be opened: {error}; take HeddleObserve out, or mend it",
                path.display()
            )
        })?;
        let (told, heard) = mpsc::sync_channel(TOLD_MAX);
        let collector = Arc::new(Collector::new(SERIES, Box::new(Since(Instant::now()))));
        Ok(Unstarted { observatory: Observatory { told, collector }, heard, listener, path })
    }

    pub(crate) fn observatory(&self) -> Observatory {
        self.observatory.clone()
    }

    /// Runs it on threads of its own.
    pub fn spawn(self, shards: Vec<LoopHandle<RelayLanguage>>) -> io::Result<()> {
        log::warn!("HeddleObserve lets who may open {} see single circuits", self.path.display());
        let told = self.observatory.told.clone();
        let listener = self.listener;
        let accept = move || socket::accept_all(&listener, &told);
        std::thread::Builder::new().name("observers' socket".into()).spawn(accept)?;
        let mut running = Running {
            shards,
            collector: self.observatory.collector,
            began: Instant::now(),
            watches: Watches::default(),
            watchers: BTreeMap::new(),
            connections: BTreeMap::new(),
            modules: BTreeMap::new(),
            instances: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            untold: BTreeSet::new(),
            told_at: None,
        };
        let heard = self.heard;
        std::thread::Builder::new().name("observatory".into()).spawn(move || running.run(&heard))?;
        Ok(())
    }
}

impl Observatory {
    /// Takes what a shard saw. What finds no room is dropped.
    pub fn tell(&self, shard: u16, observed: Box<Observed>) {
        drop(self.told.try_send(Told::Observed(shard, observed)));
    }
}

struct Running {
    shards: Vec<LoopHandle<RelayLanguage>>,
    collector: Arc<Collector>,
    began: Instant,
    watches: Watches,
    /// Whose each watch is.
    watchers: BTreeMap<WatchId, ConnectionId>,
    connections: BTreeMap<ConnectionId, UnixStream>,
    /// Modules of observers, by name.
    modules: BTreeMap<String, Vec<u8>>,
    /// The observer of each watch that has one.
    instances: BTreeMap<WatchId, Observer>,
    /// Shards that were asked for a watch and have not answered: until all have, or [`ANSWER_MAX`] is over, it does not
    /// ask again, and it counts even when its watch has ended.
    unanswered: BTreeMap<WatchId, Unanswered>,
    /// Shards that are to be told what to force where.
    untold: BTreeSet<(usize, Place)>,
    /// When shards were last told that.
    told_at: Option<Duration>,
}

/// A look that is under way.
struct Unanswered {
    shards: usize,
    /// Since the observatory began.
    asked_at: Duration,
}

/// An answer, or why there is none.
type Answer = Result<String, String>;

impl Running {
    fn run(&mut self, heard: &Receiver<Told>) {
        loop {
            let now = self.began.elapsed();
            let mut patience = self.watches.next().map_or(PATIENCE, |next| next.saturating_sub(now));
            if !self.untold.is_empty() {
                patience = patience.min(self.untold_wait(now));
            }
            match heard.recv_timeout(patience) {
                Ok(told) => self.hear(told),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
            self.tell_forces();
        }
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Connected(connection, stream) => drop(self.connections.insert(connection, stream)),
            Told::Gone(connection) => self.forget(connection),
            Told::Observed(shard, observed) => self.show(shard, &observed),
            Told::Asked(connection, asked) => {
                let answer = match asked {
                    Ok((request, module)) => self.answer(connection, request, module),
                    Err(unclear) => Err(unclear.to_string()),
                };
                let text = match answer {
                    Ok(lines) => format!("{lines}ok\n"),
                    Err(why) => format!("error: {why}\n"),
                };
                self.tell(connection, &text);
            }
        }
    }

    /// Asks the shards for what is due. A shard that has too much to hear is asked another time.
    fn look(&mut self) {
        let now = self.began.elapsed();
        self.unanswered.retain(|_, look| look.shards > 0 && now < look.asked_at + ANSWER_MAX);
        for id in self.watches.due(now) {
            if self.unanswered.contains_key(&id) || self.unanswered.len() >= LOOKS_MAX {
                continue;
            }
            let Some(watch) = self.watches.get(id) else { continue };
            let Some(observees) = Observees::named(&watch.family) else { continue };
            let ask = |shard: &&LoopHandle<RelayLanguage>| {
                shard.control(Control::Observe { request: id.0, observees, index: watch.index }).is_ok()
            };
            let shards = self.shards.iter().filter(ask).count();
            self.unanswered.insert(id, Unanswered { shards, asked_at: now });
        }
    }

    /// Tells watches what a shard saw.
    fn show(&mut self, shard: u16, observed: &Observed) {
        let ids: Vec<WatchId> = match observed.why {
            Why::Asked(request) => {
                if let Some(look) = self.unanswered.get_mut(&WatchId(request)) {
                    look.shards = look.shards.saturating_sub(1);
                }
                vec![WatchId(request)]
            }
            Why::Forced(place) => self.watches.at(place.name()).collect(),
        };
        for id in ids {
            let Some(watch) = self.watches.get(id).cloned() else { continue };
            match self.lines(id, &watch, shard, &observed.snapshot) {
                Ok(lines) => self.tell_watcher(id, &lines),
                Err(why) => {
                    self.tell_watcher(id, &format!("ended\t{}\t{why}\n", id.0));
                    log::warn!("{why}");
                    self.end_watch(id);
                }
            }
        }
    }

    /// A snapshot as a watch has it, by its observer if it has one.
    fn lines(&mut self, id: WatchId, watch: &Watch, shard: u16, snapshot: &Snapshot) -> Answer {
        let mut lines = String::new();
        let (begun, mut used, mut permitted) = (Instant::now(), Duration::ZERO, SNAPSHOT_USE_MAX);
        let wanted =
            snapshot.rows().filter(|row: &Row<'_>| watch.index.is_none_or(|index| index == row.index));
        for row in wanted {
            match self.instances.get_mut(&id) {
                None => lines::row(&mut lines, id, shard, &row),
                Some(observer) => {
                    let before = thread_time();
                    let record = observer.observe(&row).map_err(|why| why.to_string())?;
                    used += thread_time().saturating_sub(before);
                    permitted += ROW_USE_MAX;
                    if let Some(most) = exceeded((used, permitted), begun.elapsed()) {
                        return Err(format!(
                            "the observer {:?} was stopped: one snapshot took it more than {most}",
                            watch.observer.as_deref().unwrap_or_default()
                        ));
                    }
                    lines::record(&mut lines, id, (shard, row.time_ns), record);
                }
            }
        }
        if snapshot.left_out() > 0 {
            let _ = writeln!(lines, "left-out\t{}\t{}", id.0, snapshot.left_out());
        }
        Ok(lines)
    }

    fn answer(&mut self, connection: ConnectionId, request: Request, module: Vec<u8>) -> Answer {
        match request {
            Request::List => Ok(lines::list(&self.collector, &self.watches, self.modules.keys())),
            Request::Collect { on, which } => {
                self.which(&which)?.into_iter().for_each(|series| self.collector.turn(series, on));
                Ok(String::new())
            }
            Request::Clear(which) => {
                self.which(&which)?.into_iter().for_each(|series| self.collector.clear(series));
                Ok(String::new())
            }
            Request::Show(which) => {
                let series = self.which(&which)?;
                Ok(series.into_iter().map(|series| lines::collected(&self.collector, series)).collect())
            }
            Request::Watch(watch) => self.begin_watch(connection, watch),
            Request::Unwatch(id) if self.watchers.get(&id) == Some(&connection) => {
                self.end_watch(id);
                Ok(String::new())
            }
            Request::Unwatch(id) => Err(format!("this connection has no watch {}", id.0)),
            Request::Load { name, .. } => self.load(name, module),
            Request::Unload { name } => {
                if self.watches.all().any(|(_, watch)| watch.observer.as_ref() == Some(&name)) {
                    return Err(format!(
                        "the observer {name:?} is in use: end the watches that have it first"
                    ));
                }
                let removed = self.modules.remove(&name);
                removed.map(|_| String::new()).ok_or_else(|| format!("there is no observer {name:?}"))
            }
        }
    }

    fn which(&self, which: &Which) -> Result<Vec<SeriesId>, String> {
        match which {
            Which::All => {
                Ok((0..SERIES.len()).filter_map(|place| u8::try_from(place).ok().map(SeriesId)).collect())
            }
            Which::Named(name) => {
                let series = self.collector.named(name);
                series.map(|series| vec![series]).ok_or_else(|| format!("there is no series {name:?}"))
            }
        }
    }

    fn begin_watch(&mut self, connection: ConnectionId, watch: Watch) -> Answer {
        let observees = Observees::named(&watch.family);
        let observees = observees.ok_or_else(|| format!("there is no family {:?}", watch.family))?;
        let place = match &watch.when {
            When::Every(_) => None,
            When::At(name) => {
                let place = Place::named(name).ok_or_else(|| format!("there is no place {name:?}"))?;
                if place.observees() != observees {
                    let other = place.observees().family().name;
                    return Err(format!("at {name} one looks at {other}, and not at {}", watch.family));
                }
                Some(place)
            }
        };
        let observer = match &watch.observer {
            None => None,
            Some(name) => {
                let module =
                    self.modules.get(name).ok_or_else(|| format!("there is no observer {name:?}"))?;
                Some(Observer::load(name, module).map_err(|why| why.to_string())?)
            }
        };
        let id = self.watches.begin(self.began.elapsed(), watch);
        let id = id.ok_or("there are too many watches; end one first")?;
        self.watchers.insert(id, connection);
        self.instances.extend(observer.map(|observer| (id, observer)));
        if let Some(place) = place {
            self.force(place);
        }
        Ok(lines::watch(id, observees))
    }

    /// Loads an observer, or has it take the place of the one of that name in all watches that have it.
    fn load(&mut self, name: String, module: Vec<u8>) -> Answer {
        if !self.modules.contains_key(&name) && self.modules.len() >= OBSERVERS_MAX {
            return Err(format!("there are {OBSERVERS_MAX} observers already; unload one first"));
        }
        let load = || Observer::load(&name, &module).map_err(|why| why.to_string());
        load()?;
        let watches = self.watches.all().filter(|(_, watch)| watch.observer.as_ref() == Some(&name));
        let ids: Vec<WatchId> = watches.map(|(id, _)| id).collect();
        for id in ids {
            self.instances.insert(id, load()?);
        }
        self.modules.insert(name, module);
        Ok(String::new())
    }

    fn forget(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        let its = self.watchers.iter().filter(|(_, watcher)| **watcher == connection);
        let its: Vec<WatchId> = its.map(|(id, _)| *id).collect();
        its.into_iter().for_each(|id| self.end_watch(id));
    }

    fn end_watch(&mut self, id: WatchId) {
        let watch = self.watches.get(id).cloned();
        self.watches.end(id);
        self.watchers.remove(&id);
        self.instances.remove(&id);
        if let Some(Watch { when: When::At(name), .. }) = watch
            && let Some(place) = Place::named(&name)
        {
            self.force(place);
        }
    }

    /// Has shards force observations at a place as long as somebody watches it.
    fn force(&mut self, place: Place) {
        self.untold.extend((0..self.shards.len()).map(|shard| (shard, place)));
    }

    /// How long until shards may be told again what to force.
    fn untold_wait(&self, now: Duration) -> Duration {
        self.told_at.map_or(Duration::ZERO, |at| (at + AGAIN).saturating_sub(now))
    }

    fn tell_forces(&mut self) {
        let now = self.began.elapsed();
        if self.untold.is_empty() || !self.untold_wait(now).is_zero() {
            return;
        }
        self.told_at = Some(now);
        for (shard, place) in std::mem::take(&mut self.untold) {
            self.tell_force(shard, place);
        }
    }

    fn tell_force(&mut self, shard: usize, place: Place) {
        let on = self.watches.at(place.name()).next().is_some();
        let told = self.shards.get(shard).map(|shard| shard.control(Control::Force { place, on }));
        if let Some(Err(NotTaken::Full)) = told {
            self.untold.insert((shard, place));
        }
    }

    fn tell_watcher(&mut self, id: WatchId, lines: &str) {
        if let Some(connection) = self.watchers.get(&id).copied().filter(|_| !lines.is_empty()) {
            self.tell(connection, lines);
        }
    }

    /// Who does not take what he is told is cut off.
    fn tell(&mut self, connection: ConnectionId, text: &str) {
        let Some(stream) = self.connections.get(&connection) else { return };
        if let Err(error) = say(stream, text) {
            log::info!("An observer does not take what it asked for, and is cut off: {error}");
            let _ = stream.shutdown(std::net::Shutdown::Both);
            self.forget(connection);
        }
    }
}

/// What a snapshot took more than, if it took too much.
fn exceeded((used, permitted): (Duration, Duration), took: Duration) -> Option<String> {
    if used > permitted {
        return Some(format!("{} ms of a processor", permitted.as_millis()));
    }
    (took > SNAPSHOT_MAX).then(|| format!("{} ms", SNAPSHOT_MAX.as_millis()))
}

/// What the calling thread has used of a processor.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Writes all of a text within a time, but for what one write more may take.
fn say(mut stream: &UnixStream, text: &str) -> io::Result<()> {
    let (begun, mut left) = (Instant::now(), text.as_bytes());
    while !left.is_empty() {
        if begun.elapsed() > socket::WRITE_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.write(&left[..left.len().min(WRITE_BYTES_MAX)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_answers_for_its_own_time_and_less_for_the_machines() {
        let ms = Duration::from_millis;
        assert_eq!(exceeded((ms(10), ms(10)), ms(500)), None, "the machine did other things");
        assert_eq!(exceeded((ms(13), ms(12)), ms(13)).as_deref(), Some("12 ms of a processor"));
        assert_eq!(exceeded((ms(1), ms(10)), ms(501)).as_deref(), Some("500 ms"));
    }

    #[test]
    fn a_thread_that_waits_uses_no_time() {
        let before = thread_time();
        std::thread::sleep(Duration::from_millis(100));
        assert!(thread_time().saturating_sub(before) < Duration::from_millis(50));
    }
}
