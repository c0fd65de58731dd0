//! Sources of traffic: each runs on a thread of its own, inside its host.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::tor::TorProcesses;
use crate::backend::{Log, OPEN_MAX, Source, SourceId};
use crate::emulator::Emulation;
use crate::error::{Error, Result};
use crate::figures::Labels;
use crate::plan::Traffic;
use crate::socks::Target;
use crate::traffic::echo::{EchoOptions, run_echoes};
use crate::traffic::fetch::{FetchOptions, Profile, run_fetches};
use crate::traffic::timing::{TimingOptions, run_timing};
use crate::traffic::upload::{UploadOptions, run_upload};
use crate::traffic::{Event, Identity, Route, Server, Stop};

/// Longer than any phase: whoever started a source stops it.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

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

/// What a source needs to run.
struct Job {
    traffic: Traffic,
    route: Route,
    identity: Identity,
    server: Arc<Server>,
    /// Which of the server's uploads it is.
    number: usize,
    steady_max: Duration,
    lasts: Duration,
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
        let route = Route {
            server: Target::Addr(server.addr()),
            proxy,
            isolation,
            timeout: timeout(&source.traffic),
        };
        let job = Job {
            route,
            identity: Identity { label: source.label, seed: source.seed, labels: Labels::new() },
            server,
            number: self.uploads,
            steady_max: source.steady_max,
            lasts: source.lasts,
            traffic: source.traffic,
        };
        self.uploads += usize::from(matches!(job.traffic, Traffic::Upload {}));
        let (tell, steady) = channel();
        let (stop, abort) = (Stop::default(), Stop::default());
        let (emulation, origin, asked) = (Arc::clone(emulation), self.origin, [stop.clone(), abort.clone()]);
        let run = move || emulation.inside(&source.host, || job.run(origin, &asked, tell))?;
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

impl Job {
    /// Does it until stopped; downloads begin for as long as the job lasts. `steady` hears when the stream is steady
    /// or the wait for that is over, and is dropped when there will be no such news.
    fn run(self, origin: Instant, [stop, abort]: &[Stop; 2], steady: Sender<()>) -> Result<Log> {
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
        let Job { traffic, route, identity, server, number, steady_max, lasts } = self;
        let timing = TimingOptions {
            warmup_max: steady_max,
            duration: WITHOUT_END,
            ..TimingOptions::new(route.clone(), identity.clone())
        };
        match traffic {
            Traffic::Probe { pause } => {
                let options = TimingOptions { bulk: false, probe_pause: Some(pause), ..timing };
                run_timing(&options, stop, &mut on_event)
            }
            Traffic::Echo { every } => {
                run_echoes(&EchoOptions { route, identity, every }, stop, &mut on_event)
            }
            Traffic::Bulk { limit_kb_s, reads_for } => {
                let options = TimingOptions {
                    bulk: true,
                    bulk_limit_b_s: limit_kb_s.saturating_mul(1000),
                    bulk_reads_for: Some(reads_for).filter(|reads_for| !reads_for.is_zero()),
                    probe_pause: None,
                    ..timing
                };
                run_timing(&options, stop, &mut on_event)
            }
            Traffic::Upload {} => {
                let options = UploadOptions { route, identity, number, warmup_max: steady_max };
                run_upload(&options, &server, stop, &mut on_event)
            }
            Traffic::Fetch { size, pause } => {
                let options = fetches(route, identity, size, pause, lasts);
                // It ends by itself after `lasts`, and what has begun then goes on to its end.
                run_fetches(&options, abort, &mut on_event)
            }
        }?;
        Ok(log)
    }
}

/// How long a program's streams may take to open, and then to go on.
fn timeout(traffic: &Traffic) -> Duration {
    match traffic {
        Traffic::Fetch { .. } => 10 * OPEN_MAX,
        _ => OPEN_MAX,
    }
}

fn fetches(
    route: Route,
    identity: Identity,
    size_bytes: [u64; 2],
    pause: [Duration; 2],
    lasts: Duration,
) -> FetchOptions {
    let pause_ms = pause.map(|pause| pause.as_millis() as u64);
    FetchOptions {
        program: "fetch".into(),
        route,
        identity,
        profile: Profile { paper: "a plan", size_bytes, pause_ms },
        count: None,
        duration: Some(lasts),
    }
}
