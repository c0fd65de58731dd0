//! The traffic programs of clients, and what they tell while they run.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::Traffic;
use crate::emulator::Emulation;
use crate::error::Result;
use crate::traffic::echo::{EchoOptions, run_echoes};
use crate::traffic::fetch::{FetchOptions, Profile, run_fetches};
use crate::traffic::timing::{TimingOptions, run_timing};
use crate::traffic::upload::{UploadOptions, run_upload};
use crate::traffic::{Event, Identity, Route, Server, Stop};

/// Longer than any phase: whoever started a program stops it.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

/// What a client has to do on one of its circuits, or a flow on one of its connections.
#[derive(Clone, Debug)]
pub(super) struct Job<'a> {
    /// Where it runs.
    pub(super) host: &'a str,
    pub(super) traffic: &'a Traffic,
    pub(super) route: Route,
    pub(super) identity: Identity,
    /// The server at the route's end.
    pub(super) server: &'a Server,
    /// Which of the server's uploads it is: they are counted by it.
    pub(super) number: usize,
    /// The longest wait for a steady stream.
    pub(super) steady_max: Duration,
}

/// Everything that a program told, in order, each with the time when it did.
pub(super) type Log = Vec<(Instant, Event)>;

impl Job<'_> {
    /// Does it until stopped; downloads begin for as long as `lasts`. `steady` hears when the client's stream is steady
    /// or the wait for that is over, and is dropped when there will be no such news.
    pub(super) fn run(
        &self,
        emulation: &Emulation,
        lasts: Duration,
        stop: &Stop,
        steady: Option<Sender<()>>,
    ) -> Result<Log> {
        let mut log = Log::new();
        let mut steady = steady;
        let mut on_event = |event: &Event| {
            if matches!(event, Event::Measuring { .. })
                && let Some(steady) = steady.take()
            {
                // Who waited may have given up.
                let _ = steady.send(());
            }
            log.push((Instant::now(), event.clone()));
        };
        let (route, identity) = (self.route.clone(), self.identity.clone());
        let timing = TimingOptions {
            warmup_max: self.steady_max,
            duration: WITHOUT_END,
            ..TimingOptions::new(route.clone(), identity.clone())
        };
        emulation.inside(self.host, || match *self.traffic {
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
                let warmup_max = self.steady_max;
                let options = UploadOptions { route, identity, number: self.number, warmup_max };
                run_upload(&options, self.server, stop, &mut on_event)
            }
            Traffic::Fetch { size, pause } => {
                let options = fetches(route, identity, size, pause, lasts);
                // It ends by itself after `lasts`, and what has begun then goes on to its end.
                run_fetches(&options, &Stop::default(), &mut on_event)
            }
        })??;
        Ok(log)
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
