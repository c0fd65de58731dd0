//! The table of what relays' operations cost, from the bench's own relays.
//!
//! In each round each kind carries three loads ([`LOADS`]). Of each of its relays it is read, before a load and after
//! it, how much processor time its process has had and what its event loop has counted. Costs of operations are then
//! fitted to all of these ([`fit`]). What jobs of workers cost is measured by themselves, in this process: relays in
//! virtual time do them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use heddle_network::{Net, Plan};
use heddle_sim::JobWatch;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::fit::fit;
use super::{Bench, Content, POSITIONS, SEED, close};
use crate::arm::Transport;
use crate::control::CircuitId;
use crate::costs::{CostTable, JobCosts, Made, TableCosts};
use crate::error::{Error, Result};
use crate::machine::files::write_json;
use crate::metrics::{COUNTS_AGE_MAX, Metrics};
use crate::results::Summary;
use crate::testnet::Relay;

/// What is carried: downloads over all circuits, one over the first alone, and small ones over all, again and again.
const LOADS: [&str; 3] = ["all", "one", "small"];
/// Bytes of a small download.
const SMALL_BYTES: u64 = 20_000;
/// For how long small downloads begin.
const SMALL_LASTS: Duration = Duration::from_secs(4);
/// Networks in virtual time whose jobs are measured, and the circuits of each.
const JOB_NETWORKS: u64 = 4;
const JOB_CIRCUITS: usize = 20;

/// What a relay did under a load, and the processor time that its process had for it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Observation {
    transport: String,
    position: &'static str,
    load: &'static str,
    cpu_s: f64,
    /// What the table charges for it.
    charged_s: f64,
    counts: Counts,
}

/// How often each operation was done.
#[derive(Clone, Copy, Debug, Serialize)]
struct Counts {
    turns: f64,
    stream_calls: f64,
    stream_bytes: f64,
    datagram_calls: f64,
    datagrams: f64,
    datagram_bytes: f64,
}

/// What stands in the file.
#[derive(Serialize)]
struct File<'a> {
    #[serde(flatten)]
    table: &'a CostTable,
    /// What it was fitted to.
    observations: &'a [Observation],
}

/// A relay at one moment.
struct Reading {
    cpu_s: f64,
    metrics: Metrics,
}

impl Counts {
    fn between(before: &Metrics, after: &Metrics) -> Counts {
        let since = |name: &str| after.sum(name, &[]) - before.sum(name, &[]);
        let datagram_bytes = since("heddle_datagram_bytes_total");
        Counts {
            turns: since("heddle_turns_total"),
            stream_calls: since("heddle_stream_calls_total"),
            stream_bytes: since("tor_relay_traffic_bytes") - datagram_bytes,
            datagram_calls: since("heddle_datagram_calls_total"),
            datagrams: since("heddle_datagrams_total"),
            datagram_bytes,
        }
    }

    fn values(&self) -> [f64; 6] {
        let Counts { turns, stream_calls, stream_bytes, datagram_calls, datagrams, datagram_bytes } = *self;
        [turns, stream_calls, stream_bytes, datagram_calls, datagrams, datagram_bytes]
    }
}

impl Bench<'_> {
    /// Has a kind carry each load once.
    pub(super) fn observe(&self, kind: Transport, into: &mut Vec<Observation>) -> Result<()> {
        let relays = self.relays(kind)?;
        let (mut controls, circuits) = self.circuits(&relays)?;
        for load in LOADS {
            let before = self.read(&relays)?;
            self.carry(load, &circuits)?;
            let after = self.read(&relays)?;
            for (position, (before, after)) in POSITIONS.into_iter().zip(before.iter().zip(&after)) {
                let packets = ["in", "out"].map(|direction| {
                    after.metrics.sum("heddle_stack_packets_total", &[("direction", direction)])
                });
                // Stacks are kernels of their own, whose work nothing counts.
                if packets != [0.0; 2] {
                    continue;
                }
                into.push(Observation {
                    transport: kind.name().to_owned(),
                    position,
                    load,
                    cpu_s: after.cpu_s - before.cpu_s,
                    charged_s: 0.0,
                    counts: Counts::between(&before.metrics, &after.metrics),
                });
            }
        }
        for (client, circuit) in circuits {
            close(&mut controls[client], circuit)?;
        }
        Ok(())
    }

    fn carry(&self, load: &str, circuits: &[(usize, CircuitId)]) -> Result<()> {
        match load {
            "all" => self.carry_whole(circuits, self.content, self.sha256),
            "one" => self.carry_whole(circuits.get(..1).unwrap_or_default(), self.content, self.sha256),
            _ => {
                let small = Content { seed: SEED, len: SMALL_BYTES };
                let (sha256, begun) = (small.sha256(), Instant::now());
                while begun.elapsed() < SMALL_LASTS {
                    self.carry_whole(circuits, small, sha256)?;
                }
                Ok(())
            }
        }
    }

    /// Downloads over all circuits, none of which may be cut short: what is fitted is the cost of whole ones.
    fn carry_whole(&self, circuits: &[(usize, CircuitId)], content: Content, sha256: [u8; 32]) -> Result<()> {
        let transfers = self.downloads(circuits, content, sha256)?;
        match transfers.iter().all(|transfer| transfer.sha256_ok) {
            true => Ok(()),
            false => Err(Error::Malformed { by: "a relay", sent: "bytes with the wrong SHA-256".into() }),
        }
    }

    /// What relays have counted and cost so far, once their counters say so.
    fn read(&self, relays: &[&Relay]) -> Result<Vec<Reading>> {
        thread::sleep(COUNTS_AGE_MAX);
        let read =
            |relay: &&Relay| Ok(Reading { cpu_s: relay.usage()?.cpu_s, metrics: self.metrics(relay)? });
        relays.iter().map(read).collect()
    }
}

/// Makes the table of what was observed, and writes it.
pub(super) fn write(path: &Path, mut observations: Vec<Observation>, summary: &Summary) -> Result<()> {
    let rows: Vec<_> = observations.iter().map(|of| (of.counts.values(), of.cpu_s)).collect();
    let never = (0..6).any(|column| rows.iter().all(|(counts, _)| counts[column] == 0.0));
    if never {
        return Err(Error::Options(
            "no relay did all that a table of costs has; measure tls and a transport over datagrams, as \
             --kinds tls,quic does, with a Heddle program of this commit"
                .into(),
        ));
    }
    let [turn, stream_call, stream_byte, datagram_call, datagram, datagram_byte] = fit(&rows);
    let in_units = |seconds: f64, per_s: f64| (seconds * per_s).round() as u64;
    let [turn_ns, stream_call_ns, datagram_call_ns, datagram_ns] =
        [turn, stream_call, datagram_call, datagram].map(|cost| in_units(cost, 1e9));
    let [stream_byte_ps, datagram_byte_ps] = [stream_byte, datagram_byte].map(|cost| in_units(cost, 1e12));
    let costs = TableCosts {
        turn_ns,
        stream_call_ns,
        stream_byte_ps,
        datagram_call_ns,
        datagram_ns,
        datagram_byte_ps,
        jobs_ns: jobs()?,
    };
    let [median, most] = errors_pct(&costs, &mut observations);
    let made = Made {
        command: summary.command.clone(),
        commit: summary.commit.clone(),
        conditions: summary.conditions.clone(),
        noise: summary.noise.clone(),
        reasons: summary.reasons.clone(),
        observations: observations.len(),
        error_pct_median: median,
        error_pct_max: most,
    };
    let table = CostTable { costs, made: Some(made) };
    write_json(path, &File { table: &table, observations: &observations }, true)
}

/// Writes down what a table charges for each observation; returns by how many percent half of them differ at most, and
/// the worst.
fn errors_pct(costs: &TableCosts, observations: &mut [Observation]) -> [f64; 2] {
    let TableCosts { turn_ns, stream_call_ns, stream_byte_ps, .. } = *costs;
    let TableCosts { datagram_call_ns, datagram_ns, datagram_byte_ps, .. } = *costs;
    let (ns, ps) = (|cost: u64| cost as f64 / 1e9, |cost: u64| cost as f64 / 1e12);
    let of_one = [ns(turn_ns), ns(stream_call_ns), ps(stream_byte_ps)];
    let of_one = of_one.into_iter().chain([ns(datagram_call_ns), ns(datagram_ns), ps(datagram_byte_ps)]);
    let of_one: Vec<f64> = of_one.collect();
    let mut errors = Vec::new();
    for of in observations.iter_mut().filter(|of| of.cpu_s > 0.0) {
        of.charged_s = of.counts.values().iter().zip(&of_one).map(|(count, cost)| count * cost).sum();
        errors.push(100.0 * (of.charged_s / of.cpu_s - 1.0).abs());
    }
    errors.sort_by(f64::total_cmp);
    let at = |place: usize| errors.get(place).copied().unwrap_or(0.0);
    [at(errors.len() / 2), at(errors.len().saturating_sub(1))]
}

/// Takes the times of jobs.
#[derive(Clone, Default)]
struct Times {
    ns: Rc<RefCell<BTreeMap<&'static str, Vec<u64>>>>,
}

impl JobWatch for Times {
    fn run(&mut self, kind: &'static str, job: &mut dyn FnMut()) {
        let begun = thread_ns();
        job();
        let took = thread_ns().saturating_sub(begun);
        self.ns.borrow_mut().entry(kind).or_default().push(took);
    }
}

/// The processor time of this thread.
fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What jobs cost: the median of each kind, over circuits of whole networks.
fn jobs() -> Result<JobCosts> {
    let times = Times::default();
    for seed in 0..JOB_NETWORKS {
        let mut net = Net::new(&Plan { seed, ..Plan::default() });
        net.sim.watch_jobs(Box::new(times.clone()));
        for _ in 0..JOB_CIRCUITS {
            net.build(&[0, 1, 2], true);
        }
    }
    let mut taken = times.ns.borrow_mut();
    let mut median = |kind: &'static str| {
        let times = taken.get_mut(kind).filter(|times| !times.is_empty());
        let times = times.ok_or_else(|| Error::Options(format!("no {kind} was seen among relays' jobs")))?;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    };
    Ok(JobCosts { onionskin: median("onionskin")?, channel: median("channel")? })
}
