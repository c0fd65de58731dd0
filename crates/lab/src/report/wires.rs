//! Wires in words.

use heddle_netem::{DirectionOptions, InterfaceOptions, Jitter, Loss, QueueOptions, Rate};
use toml::Spanned;

use super::words::round_number;
use crate::plan::{Grid, GridWire, Plan};

/// How many wires of a plan are drawn that has only single ones.
const PARALLEL: usize = 12;

/// What a direction does to packets, piece by piece; nothing of what a plain wire does.
pub(super) fn direction(options: &DirectionOptions) -> Vec<String> {
    let DirectionOptions { queue: waiting, policer, mtu_bytes, delay_ns, jitter, loss, reorder, .. } =
        options;
    let limit = match options.rate {
        Rate::BitsPerS(bits) => Some(rate(bits)),
        Rate::Unlimited => None,
    };
    let waits = limit.is_some().then(|| queue(waiting));
    let policed = policer.as_ref().map(|policer| format!("policed to {}", rate(policer.rate_bits_per_s)));
    let delay = (*delay_ns > 0).then(|| milliseconds(*delay_ns));
    let jitter = match jitter {
        Jitter::None => None,
        Jitter::Exponential { mean_ns } => Some(format!("jitter {}", milliseconds(*mean_ns))),
        Jitter::Normal { std_dev_ns } => Some(format!("jitter {}", milliseconds(*std_dev_ns))),
        Jitter::Uniform { spread_ns } => Some(format!("jitter ±{}", milliseconds(*spread_ns))),
        Jitter::Table { .. } => Some("measured jitter".to_owned()),
    };
    let lost = match loss {
        Loss::None => None,
        Loss::Bernoulli { probability } => Some(format!("{} lost", percent(*probability))),
        Loss::GilbertElliott { .. } => Some("losses in bursts".to_owned()),
        Loss::EveryNth { n } => Some(format!("every {n}th lost")),
        Loss::Listed { packets } => Some(format!("{} packets lost", packets.len())),
    };
    let reorder = reorder.as_ref().map(|reorder| format!("{} late", percent(reorder.probability)));
    let mtu = (*mtu_bytes != DirectionOptions::default().mtu_bytes).then(|| format!("MTU {mtu_bytes}"));
    let down = options.down.then(|| "nothing passes".to_owned());
    let flap = options.flap.is_some().then(|| "down at times".to_owned());
    let changes = (!options.schedule.is_empty()).then(|| "changes with time".to_owned());
    let all = [down, limit, policed, delay, jitter, lost, reorder, waits, mtu, flap, changes];
    all.into_iter().flatten().collect()
}

/// The rate that a direction keeps, by its queue or its policer.
pub(super) fn rate_of(options: &DirectionOptions) -> Option<u64> {
    let own = match options.rate {
        Rate::BitsPerS(bits) => Some(bits),
        Rate::Unlimited => None,
    };
    own.into_iter().chain(options.policer.as_ref().map(|policer| policer.rate_bits_per_s)).min()
}

/// What a host's attachment does, piece by piece.
pub(super) fn interface(options: &InterfaceOptions) -> Vec<String> {
    match options.rate {
        Rate::BitsPerS(bits) => vec![rate(bits), queue(&options.queue)],
        Rate::Unlimited => Vec::new(),
    }
}

fn queue(options: &QueueOptions) -> String {
    match &options.codel {
        Some(codel) if codel.ecn => "CoDel that marks".to_owned(),
        Some(_) => "CoDel".to_owned(),
        // By whole packets of the usual length the one bound or the other is reached first.
        None if options.packets_max.saturating_mul(1500) < options.bytes_max => {
            format!("queue {} packets", options.packets_max)
        }
        None => format!("queue {}", bytes(options.bytes_max)),
    }
}

/// A rate with its unit.
pub(super) fn rate(bits_per_s: u64) -> String {
    scaled(bits_per_s, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

/// Bytes with their unit.
pub(super) fn bytes(bytes: u64) -> String {
    scaled(bytes, ["B", "kB", "MB", "GB"])
}

fn scaled(value: u64, units: [&str; 4]) -> String {
    let power = [1_000_000_000, 1_000_000, 1000].iter().position(|least| value >= *least);
    let power = power.map_or(0, |place| 3 - place);
    format!("{} {}", round_number(value as f64 / 1000_f64.powi(power as i32)), units[power])
}

fn milliseconds(ns: u64) -> String {
    format!("{} ms", round_number(ns as f64 / 1e6))
}

fn percent(share: f64) -> String {
    format!("{} %", round_number(100.0 * share))
}

/// The single wires of a plan without a Tor network: what each does, and in which arms; the last line tells how many
/// more there are.
pub(super) fn parallel(plan: &Plan) -> Vec<String> {
    let mut wires: Vec<(String, Vec<&str>)> = Vec::new();
    for arm in plan.arms.iter().map(Spanned::as_ref) {
        for case in arm.cases.iter().map(Spanned::as_ref) {
            let back = case.back.as_ref().map(|back| format!(", and back: {}", said(back)));
            let text = said(&case.wire) + &back.unwrap_or_default();
            match wires.iter_mut().find(|(other, _)| *other == text) {
                Some((_, arms)) if arms.contains(&&*arm.name) => {}
                Some((_, arms)) => arms.push(&arm.name),
                None => wires.push((text, vec![&arm.name])),
            }
        }
    }
    let more = wires.len().saturating_sub(PARALLEL);
    let lines = wires.iter().take(PARALLEL).map(|(text, arms)| format!("{text} ({})", arms.join(", ")));
    let more = (more > 0).then(|| format!("and {more} more wires"));
    let grid = plan.grid.as_ref().and_then(|grid| grid_in_words(grid.as_ref()));
    lines.chain(more).chain(grid).collect()
}

fn said(options: &DirectionOptions) -> String {
    let parts = direction(options);
    if parts.is_empty() { "no delay".to_owned() } else { parts.join(", ") }
}

/// What the wires of a grid have.
fn grid_in_words(grid: &Grid) -> Option<String> {
    let wires: Vec<&GridWire> = grid.list.iter().flat_map(|batch| &batch.wires).collect();
    let span = |of: fn(&GridWire) -> f64| -> Option<String> {
        let values = || wires.iter().map(|wire| of(wire));
        let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        let (low, high) = (round_number(low), round_number(high));
        Some(if low == high { low } else { format!("{low} to {high}") })
    };
    Some(format!(
        "{} wires: {} Mbit/s, round trips of {} ms, {} % lost, queues of {} round trips",
        wires.len(),
        span(|wire| wire.mbit as f64)?,
        span(|wire| wire.rtt_ms as f64)?,
        span(|wire| wire.loss_pct)?,
        span(|wire| wire.queue_bdp)?,
    ))
}
