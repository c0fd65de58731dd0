//! Rounds, in which each arm has a turn, and what has come of them.

use std::time::{Duration, Instant};

use super::screen::Screen;
use super::{Arm, DemoOptions, Position, Wires};
use crate::backend::BackendReport;
use crate::error::{Error, Result};
use crate::figures::{Labels, labels};
use crate::machine::conditions::{self, LoadReading};
use crate::machine::usage::Usage;
use crate::results::RunSamples;
use crate::socks::{self, Isolation, Target};
use crate::testnet::Network;
use crate::traffic::{self, Content, Transfer};
use crate::turns::order;

/// Time kept for the orderly end.
const RESERVE: Duration = Duration::from_secs(4);
/// How long a circuit may take to be built.
pub(super) const BUILD_MAX: Duration = Duration::from_secs(20);
/// How long the start of a stream may take.
pub(super) const OPEN_MAX: Duration = Duration::from_secs(20);
/// Chooses the downloaded bytes; any would do.
const CONTENT_SEED: u64 = 0x6865_6464_6c65;

/// A run of the demo.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    pub(super) options: &'a DemoOptions,
    /// What joins the processes in fact.
    pub(super) wires: Wires,
    /// Why that is not what was asked for.
    pub(super) lacking: Option<String>,
    pub(super) begun: Instant,
    /// What was checked out then.
    pub(super) commit: String,
    pub(super) quiet: LoadReading,
    pub(super) screen: Screen,
    pub(super) samples: RunSamples,
    /// How many rounds are complete.
    pub(super) done: usize,
    /// What the emulator says about itself.
    pub(super) report: BackendReport,
}

/// One arm's part of a round.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) arm: Arm,
    pub(super) round: usize,
    /// What the screen shows.
    pub(super) step: String,
    labels: Labels,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(options: &'a DemoOptions) -> Rounds<'a> {
        let begun = Instant::now();
        Rounds {
            options,
            wires: options.wires,
            lacking: None,
            begun,
            commit: conditions::commit(),
            quiet: LoadReading::now(),
            screen: Screen::new(begun, options.budget),
            samples: RunSamples::default(),
            done: 0,
            report: BackendReport::default(),
        }
    }

    /// Goes on with loopback, because emulated wires lack something.
    pub(super) fn fall_back(&mut self, what: String) {
        self.screen.say(&format!("There are no emulated wires: {what}.\nThe demo uses loopback instead."));
        self.wires = Wires::Loopback;
        self.lacking = Some(what);
    }

    /// When everything must have been measured.
    pub(super) fn deadline(&self) -> Instant {
        self.begun + self.options.budget.saturating_sub(RESERVE)
    }

    /// The bulk download.
    pub(super) fn download(&self) -> File {
        File::new(self.options.download_bytes.unwrap_or_else(|| self.wires.download_bytes()))
    }

    /// Has `turn` called for each arm in each round, until all rounds are made or time is short.
    pub(super) fn make(&mut self, turn: &mut dyn FnMut(&mut Rounds<'a>, &Turn) -> Result<()>) -> Result<()> {
        let mut longest = Duration::ZERO;
        for round in 0..self.options.rounds_max {
            let start = Instant::now();
            // A round that would not be finished in time is not begun; one is needed in any case.
            if round > 0 && start + longest.mul_f64(1.2) > self.deadline() {
                break;
            }
            let arms = &self.options.arms;
            for arm in order(arms.len(), round).map(|place| arms[place]) {
                let name = self.options.arm_name(arm);
                let step = format!("round {}: {name}", round + 1);
                self.screen.show(&step);
                let labels = labels([("relays", &name)]);
                if let Err(error) = turn(self, &Turn { arm, round, step, labels }) {
                    // Half a round has no pairs.
                    self.samples.forget_run(round);
                    return Err(error);
                }
            }
            self.done = round + 1;
            longest = longest.max(start.elapsed());
        }
        Ok(())
    }

    /// Adds samples of a turn, with labels beyond the arm's.
    pub(super) fn add(
        &mut self,
        turn: &Turn,
        name: &str,
        extra: &[(&str, &str)],
        unit: &str,
        values: &[f64],
    ) {
        if values.is_empty() {
            return;
        }
        let mut labels = turn.labels.clone();
        labels.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self.samples.add(turn.round, name, &labels, unit, values);
    }

    /// Adds something about each transfer that brought what it should: one that was cut short would pass for a quick
    /// one.
    pub(super) fn add_transfers(
        &mut self,
        turn: &Turn,
        name: &str,
        extra: &[(&str, &str)],
        unit: &str,
        transfers: &[Transfer],
        value: impl Fn(&Transfer) -> f64,
    ) {
        let values: Vec<f64> = transfers.iter().filter(|transfer| transfer.sha256_ok).map(value).collect();
        self.add(turn, name, extra, unit, &values);
    }

    /// Adds whether transfers brought what they should.
    pub(super) fn add_hashes(&mut self, turn: &Turn, transfers: &[Transfer]) {
        let ok: Vec<f64> = transfers.iter().map(|transfer| f64::from(u8::from(transfer.sha256_ok))).collect();
        self.add(turn, "sha256_ok", &[], "1", &ok);
    }

    /// Adds what the relays of a turn cost from one reading to another, in which `bytes` were transferred.
    pub(super) fn add_costs(&mut self, turn: &Turn, before: &[Usage], after: &[Usage], bytes: u64) {
        for ((position, before), after) in Position::ALL.iter().zip(before).zip(after) {
            let per_gb = (after.cpu_s - before.cpu_s) / (bytes as f64 / 1e9);
            self.add(turn, "relay_cpu_s_per_gb", &[("position", position.name())], "CPU-s/GB", &[per_gb]);
        }
    }
}

/// What the relays of a path have cost so far, from guard to exit.
pub(super) fn usage(network: &Network, path: &[String; 3]) -> Result<Vec<Usage>> {
    path.iter().map(|nickname| network.relay(nickname)?.usage()).collect()
}

/// Something to download.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    content: Content,
    sha256: [u8; 32],
}

impl File {
    pub(super) fn new(bytes: u64) -> File {
        let content = Content { seed: CONTENT_SEED, len: bytes };
        File { content, sha256: content.sha256() }
    }
}

/// Over which circuit downloads go to the server.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) proxy: std::net::SocketAddr,
    pub(super) target: Target,
    pub(super) isolation: Isolation,
    /// When a download must be over.
    pub(super) deadline: Instant,
}

impl Way {
    /// Downloads a file over a stream of its own. Times count from the request for the stream.
    pub(super) fn fetch(&self, file: &File, on_bytes: &mut dyn FnMut(u64)) -> Result<Transfer> {
        let start = Instant::now();
        let stream = socks::connect(self.proxy, &self.target, Some(&self.isolation), OPEN_MAX)?;
        let left = self.deadline.saturating_duration_since(start);
        if left.is_zero() {
            let after = OPEN_MAX;
            return Err(Error::Deadline { waiting_for: "a download".to_owned(), after });
        }
        traffic::download(stream, file.content, file.sha256, start, left, on_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_short_is_in_no_time_and_no_rate() {
        let options = DemoOptions::default();
        let mut rounds = Rounds::new(&options);
        let labels = labels([("relays", "heddle")]);
        let turn = Turn { arm: Arm::Heddle, round: 0, step: String::new(), labels: labels.clone() };
        let whole = Transfer { bytes: 300_000, first_byte_ms: 100.0, seconds: 1.0, sha256_ok: true };
        let cut = Transfer { bytes: 30_000, seconds: 0.1, sha256_ok: false, ..whole };
        rounds.add_transfers(&turn, "page_s", &[], "s", &[cut, whole], |transfer| transfer.seconds);
        rounds.add_transfers(&turn, "download_mb_s", &[], "MB/s", &[cut], Transfer::mb_s);
        rounds.add_hashes(&turn, &[cut, whole]);
        let of = |name: &str| rounds.samples.series(name, &labels).map(|series| series.all());
        assert_eq!((of("page_s"), of("download_mb_s")), (Some(vec![1.0]), None));
        assert_eq!(of("sha256_ok"), Some(vec![0.0, 1.0]));
    }
}
