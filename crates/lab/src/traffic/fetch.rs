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

use std::time::Duration;

use heddle_netem::{Rng, Seed};
use heddle_seam::time::Instant;

use super::Content;
use super::conversation::{Conversation, Patience};
use super::drive::drive;
use super::lines::{LineId, Lines, WayId};
use super::peer::{HEAD_MAX, content_length, split_head};
use super::program::{Failed, Journal, Program, STREAMS_MAX, ms};
use super::report::{Event, Identity, Report, Reporter};
use super::request::Request;
use super::route::{Route, Stage};
use super::stop::Stop;
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
    /// What a plan says of downloads.
    pub(crate) fn of_plan(size_bytes: [u64; 2], pause: [Duration; 2]) -> Profile {
        Profile { paper: "a plan", size_bytes, pause_ms: pause.map(|pause| pause.as_millis() as u64) }
    }

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
    let FetchOptions { program, route, identity, profile, count, duration } = options;
    let mut reporter = Reporter::new(program, identity, on_event);
    let make = |now: Instant, way| -> Box<dyn Program> {
        let draws = Draws::new(identity, program, profile);
        let ends = duration.map(|duration| now + duration);
        Box::new(Fetches::new(now, way, draws, *count, ends, route.timeout))
    };
    // What has begun ends at once with the program.
    drive(make, route, &Stop::default(), stop, &mut |event| reporter.say(event))?;
    Ok(reporter.finish(stop))
}

/// What a client downloads, and how long it pauses then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Drawn {
    /// What.
    content: Content,
    /// How long it pauses.
    pause: Duration,
    /// How long it pauses where the download failed.
    pause_after_failure: Duration,
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
    fn next_draw(&mut self) -> Drawn {
        let Draws { profile, rng } = self;
        let len = profile.size(rng);
        let pause = profile.pause(rng);
        let content = Content { seed: rng.next_u64(), len };
        let pause_after_failure = pause.max(Duration::from_secs(u64::from(profile.pause_ms[1] == 0)));
        Drawn { content, pause, pause_after_failure }
    }
}

/// A program that downloads and pauses.
pub(crate) struct Fetches {
    way: WayId,
    draws: Draws,
    /// How long a stream may take to open, and then a download.
    timeout: Duration,
    under_way: Option<Download>,
    /// When the next one begins; `None` while one is under way.
    begins: Option<Instant>,
    /// How many may follow; `None` is no bound.
    left: Option<u64>,
    /// None begins later.
    ends: Option<Instant>,
    is_over: bool,
}

struct Download {
    stream: Conversation,
    drawn: Drawn,
    /// The answer until its head was complete.
    head: Vec<u8>,
    first_byte: Option<Instant>,
    left: u64,
}

impl Fetches {
    /// Begins now.
    pub(crate) fn new(
        now: Instant,
        way: WayId,
        draws: Draws,
        count: Option<u64>,
        ends: Option<Instant>,
        timeout: Duration,
    ) -> Fetches {
        Fetches { way, draws, timeout, under_way: None, begins: Some(now), left: count, ends, is_over: false }
    }

    fn begin(&mut self, now: Instant, lines: &mut dyn Lines) {
        let drawn = self.draws.next_draw();
        let request = Request::Get(drawn.content).head();
        let patience = Patience::Transfer(self.timeout);
        let stream = Conversation::begin(now, lines, self.way, &request, patience);
        let left = drawn.content.len;
        self.under_way = Some(Download { stream, drawn, head: Vec::new(), first_byte: None, left });
        self.begins = None;
    }

    /// The download is over; the next one begins after the pause, if it is not too late then.
    fn end(&mut self, now: Instant, lines: &mut dyn Lines, pause: Duration) {
        if let Some(download) = self.under_way.take() {
            lines.close(now, download.stream.line);
        }
        let begins = now + pause;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.is_over = self.left == Some(0) || self.ends.is_some_and(|ends| begins >= ends);
        self.begins = Some(begins).filter(|_| !self.is_over);
    }
}

impl Download {
    /// Reads what has come, and says whether that was all.
    fn go_on(&mut self, now: Instant, lines: &mut dyn Lines) -> std::result::Result<bool, Failed> {
        let mut chunk = Vec::new();
        let len = self.stream.go_on(now, lines, &mut chunk)? as u64;
        if self.first_byte.is_some() {
            self.left = self.left.saturating_sub(len);
            return Ok(self.left == 0);
        }
        self.head.append(&mut chunk);
        let malformed = |sent: &str| {
            let sent = sent.to_owned();
            Err((Stage::Transfer, Error::Malformed { by: "the file server", sent }))
        };
        let Some((head, body)) = split_head(&self.head) else {
            return if self.head.len() < HEAD_MAX { Ok(false) } else { malformed("no head") };
        };
        if content_length(&head) != Some(self.drawn.content.len) {
            return malformed(&head);
        }
        self.first_byte = Some(now);
        self.left = self.left.saturating_sub(body.len() as u64);
        Ok(self.left == 0)
    }

    fn told(&self, now: Instant, journal: &Journal) -> Event {
        let asked = self.stream.asked;
        Event::Fetch {
            t_s: journal.t_s(now),
            bytes: self.drawn.content.len,
            open_ms: ms(asked, self.stream.opened.unwrap_or(now)),
            first_byte_ms: ms(asked, self.first_byte.unwrap_or(now)),
            download_s: now.since(asked).as_secs_f64(),
        }
    }
}

impl Program for Fetches {
    fn step(&mut self, now: Instant, lines: &mut dyn Lines, journal: &mut Journal) {
        if self.is_over {
            return;
        }
        if self.begins.is_some_and(|begins| begins <= now) {
            self.begin(now, lines);
        }
        let Some(download) = &mut self.under_way else { return };
        match download.go_on(now, lines) {
            Ok(false) => {}
            Ok(true) => {
                let pause = download.drawn.pause;
                let told = download.told(now, journal);
                self.end(now, lines, pause);
                journal.say(now, told);
            }
            Err(failed) => {
                let pause = download.drawn.pause_after_failure;
                self.end(now, lines, pause);
                journal.failed(now, &failed);
            }
        }
    }

    fn wakes(&self) -> Option<Instant> {
        self.begins.or(self.under_way.as_ref().map(|download| download.stream.gives_up()))
    }

    fn lines(&self) -> [Option<LineId>; STREAMS_MAX] {
        [self.under_way.as_ref().map(|download| download.stream.line), None]
    }

    /// It ends by itself, when what it was told to last is over.
    fn stop(&mut self, _: Instant) {}

    fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::mean;
    use crate::traffic::tests::nobody;
    use crate::traffic::{Ended, Failures, Server};
    use std::net::TcpListener;
    use std::time::Instant;

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
        assert!(report.figures.iter().all(|figure| figure.n == 5 && figure.ci95.is_none()));
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
