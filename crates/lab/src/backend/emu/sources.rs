//! Sources of traffic: each runs on a thread of its own, inside its host.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::tor::TorProcesses;
use crate::backend::{Log, Source, SourceId};
use crate::emulator::Emulation;
use crate::error::{Error, Result};
use crate::plan::Traffic;
use crate::socks::Target;
use crate::traffic::drive::drive;
use crate::traffic::lines::WayId;
use crate::traffic::program::Program;
use crate::traffic::{Event, Route, Stop, UPLOADS_MAX};

/// The sources of a testbed. Dropping them stops them.
#[derive(Debug)]
pub(super) struct Sources {
    /// When the testbed's time began.
    origin: Instant,
    /// By their ids; those that were stopped are gone.
    running: Vec<Option<Running>>,
    /// How many uploads there are. Servers tell few of them apart, by number.
    uploads: usize,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<Result<Log>>,
    stop: Stop,
    /// Ends downloads too, which otherwise go on to their end.
    abort: Stop,
    /// Tells once when the stream is steady or the wait for that is over, and ends when there will be no such news.
    steady: Receiver<()>,
}

impl Sources {
    pub(super) fn new(origin: Instant) -> Sources {
        Sources { origin, running: Vec::new(), uploads: 0 }
    }

    pub(super) fn start(
        &mut self,
        source: Source,
        tor: &TorProcesses,
        emulation: &Arc<Emulation>,
    ) -> Result<SourceId> {
        let (host, kind) = &source.server;
        let server = tor.server(host, kind)?;
        let (proxy, isolation) = match source.circuit {
            Some(circuit) => {
                let (proxy, isolation) = tor.circuit(circuit)?.entrance()?;
                (Some(proxy), Some(isolation))
            }
            None => (None, None),
        };
        let route =
            Route { server: Target::Addr(server.addr()), proxy, isolation, timeout: source.timeout() };
        let number = self.uploads;
        if matches!(source.traffic, Traffic::Upload {}) {
            self.uploads += 1;
            if number >= UPLOADS_MAX {
                return Err(Error::Options(format!("the server counts no client {number}")));
            }
        }
        let sunk = server.sunk();
        let (tell, steady) = channel();
        let (stop, abort) = (Stop::default(), Stop::default());
        let (emulation, origin, asked) = (Arc::clone(emulation), self.origin, [stop.clone(), abort.clone()]);
        let run = move || {
            let make = |now, way| source.program(now, way, sunk, number);
            emulation.inside(&source.host, || run(make, &route, origin, &asked, tell))?
        };
        let thread = thread::Builder::new().name("traffic".into()).spawn(run);
        let thread = thread.map_err(Error::io("starting a source of traffic"))?;
        self.running.push(Some(Running { thread, stop, abort, steady }));
        Ok(SourceId(self.running.len() - 1))
    }

    /// Waits until each of these has told that its stream is steady, or has ended.
    pub(super) fn wait_until_steady(&self, sources: &[SourceId]) {
        let running = sources.iter().filter_map(|source| self.running.get(source.0)?.as_ref());
        for running in running {
            // One that ended has told it or never will.
            let _ = running.steady.recv();
        }
    }

    /// Stops these and gives what each told. All of them have ended then, also where one failed.
    pub(super) fn stop(&mut self, sources: &[SourceId]) -> Result<Vec<Log>> {
        let taken = sources.iter().map(|source| self.running.get_mut(source.0).and_then(Option::take));
        let taken: Vec<Option<Running>> = taken.collect();
        taken.iter().flatten().for_each(|running| running.stop.ask());
        let logs: Vec<Result<Log>> =
            taken.into_iter().map(|running| running.map_or(gone(), Running::join)).collect();
        if self.running.iter().all(Option::is_none) {
            self.uploads = 0;
        }
        logs.into_iter().collect()
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        let running: Vec<Running> = self.running.drain(..).flatten().collect();
        for running in &running {
            running.stop.ask();
            running.abort.ask();
        }
        // Nobody asks any more what they told.
        running.into_iter().for_each(|running| drop(running.join()));
    }
}

impl Running {
    fn join(self) -> Result<Log> {
        self.thread.join().unwrap_or_else(|_| Err(Error::Options("a source of traffic panicked".into())))
    }
}

fn gone() -> Result<Log> {
    Err(Error::Options("a source of traffic was stopped twice".into()))
}

/// Runs a program until it is over. `steady` hears when its stream is steady or the wait for that is over, and is
/// dropped when there will be no such news.
fn run(
    make: impl FnOnce(heddle_seam::time::Instant, WayId) -> Box<dyn Program>,
    route: &Route,
    origin: Instant,
    [stop, abort]: &[Stop; 2],
    steady: Sender<()>,
) -> Result<Log> {
    let mut log = Log::new();
    let mut steady = Some(steady);
    let mut on_event = |event: &Event| {
        if matches!(event, Event::Measuring { .. })
            && let Some(steady) = steady.take()
        {
            // Who waited may have given up.
            let _ = steady.send(());
        }
        log.push((origin.elapsed(), event.clone()));
    };
    drive(make, route, stop, abort, &mut on_event)?;
    Ok(log)
}
