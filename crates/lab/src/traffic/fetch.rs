//! The web and bulk clients of the papers: a download, a pause, and again.
//!
//! - DefenestraTor (AlSabah and others, PETS 2011). Section 5.1: the web client fetches 300 KiB, the
//!   bulk client 5 MiB, and both pause between one and three seconds; the experiment ends after 200
//!   web downloads. Section 5.2: web clients fetch 100 to 500 KiB and pause up to 30 seconds, bulk
//!   clients fetch 1 to 5 MiB and pause up to two.
//! - PCTCP (AlSabah and Goldberg, CCS 2013). Section 5.1, on the live network: the web client fetches
//!   300 KB and pauses 3 to 30 seconds, the bulk client fetches 5 MB without a pause. Section 5.2:
//!   web clients fetch 320 KiB and pause 1 to 30 seconds, bulk clients 5 MiB without a pause.
//!
//! The papers say "random" of pauses and ranges of sizes; uniform is meant here. Where they write KB
//! and MB rather than KiB and MiB, powers of ten are taken.
//!
//! Both papers measure the time to the first byte and the download time from the request on, so
//! times count from the request for a stream: two round trips to the first byte.

use std::time::{Duration, Instant};

use heddle_netem::{Rng, Seed};

use super::peer::{Peer, closed, content_length};
use super::report::{Event, Identity, Journal, Report};
use super::request::Request;
use super::route::{Route, Stage};
use super::stop::Stop;
use super::{CHUNK, Content};
use crate::error::{Error, Result};

/// What a client of a paper fetches and how long it pauses. Both are uniform between their bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name of the paper's experiment.
    pub paper: &'static str,
    /// Least and greatest size of a download, in bytes.
    pub size_bytes: [u64; 2],
    /// Least and greatest pause after a download, in milliseconds.
    pub pause_ms: [u64; 2],
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The papers' web clients.
pub const WEB_PROFILES: [Profile; 4] = [
    Profile { paper: "n23-small", size_bytes: [300 * KIB, 300 * KIB], pause_ms: [1000, 3000] },
    Profile { paper: "n23-large", size_bytes: [100 * KIB, 500 * KIB], pause_ms: [0, 30_000] },
    Profile { paper: "pctcp-live", size_bytes: [300_000, 300_000], pause_ms: [3000, 30_000] },
    Profile { paper: "pctcp-large", size_bytes: [320 * KIB, 320 * KIB], pause_ms: [1000, 30_000] },
];

/// The papers' bulk clients.
pub const BULK_PROFILES: [Profile; 4] = [
    Profile { paper: "n23-small", size_bytes: [5 * MIB, 5 * MIB], pause_ms: [1000, 3000] },
    Profile { paper: "n23-large", size_bytes: [MIB, 5 * MIB], pause_ms: [0, 2000] },
    Profile { paper: "pctcp-live", size_bytes: [5_000_000, 5_000_000], pause_ms: [0, 0] },
    Profile { paper: "pctcp-large", size_bytes: [5 * MIB, 5 * MIB], pause_ms: [0, 0] },
];

/// The profile of a paper's experiment among these, or a sentence that names them all.
pub fn profile(profiles: &[Profile], paper: &str) -> Result<Profile> {
    let found = profiles.iter().find(|profile| profile.paper == paper);
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = profiles.iter().map(|profile| profile.paper).collect();
        Error::Options(format!("{paper:?} is none of the experiments {}", names.join(", ")))
    })
}

impl Profile {
    fn size(&self, rng: &mut Rng) -> u64 {
        let [least, most] = self.size_bytes;
        least + rng.below(most - least + 1)
    }

    fn pause(&self, rng: &mut Rng) -> Duration {
        let [least, most] = self.pause_ms;
        let ms = least as f64 + rng.unit() * (most - least) as f64;
        Duration::from_secs_f64(ms / 1e3)
    }
}

/// What a web or bulk client does. It ends at the first of its bounds.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// `web` or `bulk`: the report's program.
    pub program: String,
    /// Where to and how.
    pub route: Route,
    /// Whose random numbers and labels.
    pub identity: Identity,
    /// What and how often.
    pub profile: Profile,
    /// How many downloads, failed ones included.
    pub count: Option<u64>,
    /// How long: no download begins later.
    pub duration: Option<Duration>,
}

impl FetchOptions {
    /// Fails with what is wrong with the options.
    pub fn validate(&self) -> Result<()> {
        let Profile { size_bytes: [least, most], pause_ms: [shortest, longest], .. } = self.profile;
        if least > most || shortest > longest {
            return Err(Error::Options("sizes and pauses go from the least to the greatest".into()));
        }
        if most == u64::MAX || self.count == Some(0) {
            return Err(Error::Options("there is nothing to download".into()));
        }
        Ok(())
    }
}

/// Fetches and pauses until the bounds, or until stopped. Failed downloads are counted by kind and
/// followed by a pause like others; a pause of the profile that is zero is then a second.
///
/// Figures: `open_ms`, `first_byte_ms` and `download_s` of complete downloads, `download_kb_s`.
pub fn run_fetches(options: &FetchOptions, stop: &Stop, on_event: &mut dyn FnMut(&Event)) -> Result<Report> {
    options.validate()?;
    let mut draws = Draws::new(&options.identity, &options.program, &options.profile);
    let mut journal = Journal::new(&options.program, &options.identity, on_event);
    let end = options.duration.map(|duration| journal.begun() + duration);
    let mut done = 0;
    loop {
        let Drawn { content, mut pause, pause_after_failure } = draws.next_draw();
        match fetch(&options.route, content, stop) {
            Ok(fetched) => record(&mut journal, content.len, &fetched),
            Err((stage, error)) => {
                journal.failed(stage, &error);
                pause = pause_after_failure;
            }
        }
        done += 1;
        let resume = Instant::now() + pause;
        let last = options.count.is_some_and(|count| done >= count) || end.is_some_and(|end| resume >= end);
        if last || !stop.sleep_until(resume) {
            return Ok(journal.finish(stop));
        }
    }
}

/// What a client downloads, and how long it pauses then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// What.
    pub(crate) content: Content,
    /// How long it pauses.
    pub(crate) pause: Duration,
    /// How long it pauses where the download failed.
    pub(crate) pause_after_failure: Duration,
}

/// What a client draws, in order.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    profile: Profile,
    rng: Rng,
}

impl Draws {
    /// Those of a client.
    pub(crate) fn new(identity: &Identity, program: &str, profile: &Profile) -> Draws {
        let Identity { label, seed, .. } = identity;
        let rng = Seed::from_number(*seed).child(&["traffic", program, label]).rng();
        Draws { profile: profile.clone(), rng }
    }

    /// The next download. All is drawn whatever happens, so that the sequence does not depend on the network.
    pub(crate) fn next_draw(&mut self) -> Drawn {
        let Draws { profile, rng } = self;
        let len = profile.size(rng);
        let pause = profile.pause(rng);
        let content = Content { seed: rng.next_u64(), len };
        let pause_after_failure = pause.max(Duration::from_secs(u64::from(profile.pause_ms[1] == 0)));
        Drawn { content, pause, pause_after_failure }
    }
}

struct Fetched {
    open_ms: f64,
    first_byte_ms: f64,
    download_s: f64,
}

fn record(journal: &mut Journal<'_>, bytes: u64, fetched: &Fetched) {
    let Fetched { open_ms, first_byte_ms, download_s } = *fetched;
    journal.sample("open_ms", "ms", open_ms);
    journal.sample("first_byte_ms", "ms", first_byte_ms);
    journal.sample("download_s", "s", download_s);
    journal.sample("download_kb_s", "kB/s", bytes as f64 / 1e3 / download_s);
    let t_s = journal.t_s();
    journal.say(&Event::Fetch { t_s, bytes, open_ms, first_byte_ms, download_s });
}

fn fetch(route: &Route, content: Content, stop: &Stop) -> std::result::Result<Fetched, (Stage, Error)> {
    let start = Instant::now();
    let peer = route.open_peer(stop).map_err(|error| (Stage::Open, error))?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    receive_file(peer, content, start, open_ms).map_err(|error| (Stage::Transfer, error))
}

fn receive_file(mut peer: Peer, content: Content, start: Instant, open_ms: f64) -> Result<Fetched> {
    peer.send(Request::Get(content).head().as_bytes())?;
    let (head, body) = peer.receive_head()?;
    let first_byte_ms = start.elapsed().as_secs_f64() * 1e3;
    if content_length(&head) != Some(content.len) {
        return Err(Error::Malformed { by: "the file server", sent: head });
    }
    let mut left = content.len.saturating_sub(body.len() as u64);
    let mut chunk = vec![0; CHUNK];
    while left > 0 {
        match peer.receive(&mut chunk)? {
            0 => return Err(closed("the file server")),
            len => left = left.saturating_sub(len as u64),
        }
    }
    Ok(Fetched { open_ms, first_byte_ms, download_s: start.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::mean;
    use crate::traffic::tests::nobody;
    use crate::traffic::{Ended, Failures, Server};
    use std::net::TcpListener;

    fn options(server: &Server, count: u64) -> FetchOptions {
        FetchOptions {
            program: "web".into(),
            route: Route::direct(server.addr().into()),
            identity: Identity { label: "a".into(), seed: 7, ..Identity::default() },
            profile: Profile { paper: "none", size_bytes: [1, 200_000], pause_ms: [0, 4] },
            count: Some(count),
            duration: None,
        }
    }

    fn sizes(options: &FetchOptions) -> Vec<u64> {
        let mut sizes = Vec::new();
        run_fetches(options, &Stop::default(), &mut |event| {
            if let Event::Fetch { bytes, first_byte_ms, download_s, open_ms, .. } = event {
                assert!(open_ms <= first_byte_ms && *first_byte_ms <= download_s * 1e3);
                sizes.push(*bytes);
            }
        })
        .unwrap();
        sizes
    }

    #[test]
    fn downloads_repeat_by_seed_and_label() {
        let server = Server::start().unwrap();
        let first = options(&server, 20);
        let mut other = first.clone();
        other.identity.label = "b".into();
        assert_eq!(sizes(&first).len(), 20);
        assert_eq!(sizes(&first), sizes(&first));
        assert_ne!(sizes(&first), sizes(&other));
    }

    #[test]
    fn the_report_has_the_figures() {
        let server = Server::start().unwrap();
        let report = run_fetches(&options(&server, 5), &Stop::default(), &mut |_| ()).unwrap();
        let names: Vec<&str> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["download_kb_s", "download_s", "first_byte_ms", "open_ms"]);
        assert!(report.figures.iter().all(|figure| figure.n == 5 && figure.ci95.is_some()));
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!((json["event"].as_str(), json["ended"].as_str()), (Some("summary"), Some("complete")));
        assert_eq!(json["failures"], serde_json::json!({}));
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let server = Server::start().unwrap();
        let mut options = options(&server, 3);
        options.route.server = nobody();
        let report = run_fetches(&options, &Stop::default(), &mut |_| ()).unwrap();
        assert_eq!(report.failures, Failures::from([("open: connection refused".into(), 3)]));
        assert!(report.figures.is_empty());
        // A listener that nobody accepts from: opened by the kernel, and then silent.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        options.route.server = silent.local_addr().unwrap().into();
        options.route.timeout = Duration::from_millis(300);
        options.count = Some(1);
        let report = run_fetches(&options, &Stop::default(), &mut |_| ()).unwrap();
        assert_eq!(report.failures, Failures::from([("transfer: timed out".into(), 1)]));
    }

    #[test]
    fn a_stop_leaves_a_partial_report() {
        let server = Server::start().unwrap();
        let mut options = options(&server, u64::MAX);
        options.profile.pause_ms = [60_000, 60_000];
        let stop = Stop::default();
        let begun = Instant::now();
        let report = run_fetches(&options, &stop, &mut |_| stop.ask()).unwrap();
        assert_eq!((report.ended, report.figures[0].n), (Ended::Interrupted, 1));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn profiles_are_the_papers() {
        let mut rng = Seed::from_number(1).rng();
        for wanted in WEB_PROFILES.iter().chain(&BULK_PROFILES) {
            let n = 20_000;
            let sizes: Vec<f64> = (0..n).map(|_| wanted.size(&mut rng) as f64).collect();
            let pauses: Vec<f64> = (0..n).map(|_| wanted.pause(&mut rng).as_secs_f64() * 1e3).collect();
            for (drawn, [least, most]) in [(sizes, wanted.size_bytes), (pauses, wanted.pause_ms)] {
                let (least, most) = (least as f64, most as f64);
                assert!(drawn.iter().all(|x| *x >= least - 1e-6 && *x <= most + 1e-6), "{wanted:?}");
                // Five standard errors of a uniform distribution's mean.
                let tolerance = 5.0 * (most - least) / 12_f64.sqrt() / f64::from(n).sqrt();
                let middle = f64::midpoint(least, most);
                assert!((mean(&drawn).unwrap() - middle).abs() <= tolerance + 1e-6, "{wanted:?}");
            }
        }
        assert_eq!(profile(&WEB_PROFILES, "n23-small").unwrap().size_bytes, [307_200, 307_200]);
        let unknown = profile(&BULK_PROFILES, "x").unwrap_err().to_string();
        assert!(unknown.contains("n23-small, n23-large, pctcp-live, pctcp-large"), "{unknown}");
    }
}
