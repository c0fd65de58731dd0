//! What somebody on a wire between two relays sees while a phase is measured, and circuits that begin and end
//! meanwhile.
//!
//! Only what was captured is read, by `view`; when circuits began and ended is known here alone, and it is only asked
//! whether it shows.

use std::time::Duration;

use toml::Spanned;

use crate::arm::Transport;
use crate::backend::{Circuit, CircuitOrder, Testbed};
use crate::capture::Capture;
use crate::error::Result;
use crate::figures::labels;
use crate::plan::{Phase, Tor, TorArm, View, Way};
use crate::run::sampled::Sampled;
use crate::view::{self, BUCKET_NAMES, Format, Lengths, Shown, lengths, told_apart, view};

/// The most samples of times from packet to packet.
const GAPS_MAX: usize = 5000;
/// The labels of the two directions.
const WAYS: [Way; 2] = [Way::There, Way::Back];

/// Somebody who looks at a wire, until [`end`](Self::end).
#[derive(Debug)]
pub(super) struct Viewing<'a> {
    view: &'a View,
    path: &'a [String],
    format: Format,
    idle: Vec<Circuit>,
    /// The circuit that began last, until it ends.
    open: Option<Circuit>,
    /// When it begins, and when it is over.
    window: [Duration; 2],
    /// The quarters that began so far.
    quarters: u32,
    /// When circuits began, when they ended, and when neither was.
    begun: Vec<Duration>,
    ended: Vec<Duration>,
    others: Vec<Duration>,
}

/// What was captured, and what happened meanwhile.
#[derive(Debug)]
pub(super) struct Viewed {
    capture: Capture,
    format: Format,
    length: Duration,
    begun: Vec<Duration>,
    ended: Vec<Duration>,
    others: Vec<Duration>,
}

impl<'a> Viewing<'a> {
    /// Builds the idle circuits of a phase that has a view; `None` where it has none.
    pub(super) fn new(
        tor: &'a Tor,
        arm: &TorArm,
        phase: &'a Phase,
        testbed: &mut dyn Testbed,
    ) -> Result<Option<Viewing<'a>>> {
        let Some(view) = &phase.view else { return Ok(None) };
        let mut clients = tor.clients.iter().map(Spanned::as_ref);
        let Some(client) = clients.find(|client| client.name == view.visitor) else { return Ok(None) };
        let mut viewing = Viewing {
            view,
            path: phase.path_of(client),
            format: Format::of(transport(tor, arm, view)),
            idle: Vec::new(),
            open: None,
            window: [Duration::MAX; 2],
            quarters: 0,
            begun: Vec::new(),
            ended: Vec::new(),
            others: Vec::new(),
        };
        viewing.idle = viewing.build(view.idle, testbed)?;
        Ok(Some(viewing))
    }

    fn build(&self, count: usize, testbed: &mut dyn Testbed) -> Result<Vec<Circuit>> {
        let order = CircuitOrder { proxy: &self.view.visitor, path: self.path };
        let built = testbed.build_circuits(&vec![order; count])?;
        Ok(built.into_iter().map(|built| built.circuit).collect())
    }

    /// Looks from now on, until the second of these moments. The first is now.
    pub(super) fn begin(&mut self, window: [Duration; 2], testbed: &mut dyn Testbed) -> Result<()> {
        self.window = window;
        let [one, other] = &self.view.wire;
        testbed.watch(one, other)
    }

    /// When the next circuit begins or ends, if that is before `then`. A quarter that is not over before the end does
    /// not begin.
    pub(super) fn due_before(&self, then: Duration) -> Option<Duration> {
        let [opens, closes] = self.window;
        let due = opens.saturating_add(self.view.quarter() * self.quarters);
        (due < then && due.saturating_add(self.view.quarter()) <= closes).then_some(due)
    }

    /// Has a circuit begin or end, or a quarter pass without that.
    pub(super) fn act(&mut self, testbed: &mut dyn Testbed) -> Result<()> {
        let (now, quarter) = (testbed.now(), self.quarters % 4);
        self.quarters += 1;
        match quarter {
            0 => {
                self.begun.push(now);
                self.open = self.build(1, testbed)?.pop();
            }
            2 => {
                self.ended.push(now);
                testbed.close_circuits(self.open.take().as_slice())?;
            }
            _ => self.others.push(now),
        }
        Ok(())
    }

    /// Ends what is left of circuits, and hands over what was seen.
    pub(super) fn end(self, testbed: &mut dyn Testbed) -> Result<Viewed> {
        let Viewing { view, format, idle, open, begun, ended, others, .. } = self;
        let capture = testbed.watched()?;
        testbed.close_circuits(&idle)?;
        testbed.close_circuits(open.as_slice())?;
        Ok(Viewed { capture, format, length: view.quarter(), begun, ended, others })
    }
}

/// What datagrams between the two relays are: where they differ, they have TLS.
fn transport(tor: &Tor, arm: &TorArm, view: &View) -> Transport {
    let relays = tor.relays.iter().map(Spanned::as_ref);
    let mut both =
        relays.filter(|relay| view.wire.contains(&relay.name)).map(|relay| arm.transport_of(relay));
    match (both.next(), both.next()) {
        (Some(one), Some(other)) if one == other => one,
        _ => Transport::Tls,
    }
}

impl Viewed {
    /// The figures, and what is wrong with them.
    pub(super) fn figures(&self) -> (Vec<Sampled>, Option<String>) {
        let shown = view(&self.capture, self.format);
        let mut samples = general(&shown);
        for (way, name) in shown.ways.iter().zip(WAYS.map(Way::name)) {
            samples.extend(of_way(way).into_iter().map(|sampled| {
                let labels = labels([("direction", name)]).into_iter().chain(sampled.labels.clone());
                sampled.with(labels.collect())
            }));
        }
        let of = |moments: &[Duration]| lengths(&self.capture, moments, self.length);
        let (begun, ended, others) = (of(&self.begun), of(&self.ended), of(&self.others));
        for (name, packets, happened) in
            [("beginnings_shown", "beginning_packets", begun), ("ends_shown", "end_packets", ended)]
        {
            samples.extend(told_apart(&happened, &others).map(|right| Sampled::one(name, right)));
            samples.extend(WAYS.map(|way| packets_in(packets, &happened, way)));
        }
        samples.retain(|sampled| !sampled.values.is_empty());
        let missed = self.capture.missed();
        let fault = (missed > 0).then(|| format!("{missed} packets of the wire were not looked at"));
        (samples, fault)
    }
}

fn packets_in(name: &str, happened: &[Lengths], way: Way) -> Sampled {
    let all = |lengths: &Lengths| lengths.get(&(way == Way::There, 0)).copied().unwrap_or_default();
    let values = happened.iter().map(|lengths| all(lengths) as f64).collect();
    Sampled::new(name, values).with(labels([("direction", way.name())]))
}

/// What is told of both directions together.
fn general(shown: &Shown) -> Vec<Sampled> {
    let mut samples: Vec<Sampled> = ["tcp", "udp"]
        .into_iter()
        .zip(shown.flows)
        .map(|(protocol, flows)| {
            Sampled::one("wire_flows", flows as f64).with(labels([("protocol", protocol)]))
        })
        .collect();
    samples.extend(shown.circuits.map(|circuits| Sampled::one("circuits_told_apart", circuits as f64)));
    samples
}

/// What is told of one direction, without its label.
fn of_way(way: &view::Way) -> Vec<Sampled> {
    let mut samples = Vec::new();
    let names = way.names.iter();
    samples.extend(
        names.map(|(field, values)| {
            Sampled::one("wire_names", *values as f64).with(labels([("field", field)]))
        }),
    );
    let by_length = BUCKET_NAMES.into_iter().zip(way.by_length);
    samples.extend(by_length.map(|(bytes, packets)| {
        Sampled::one("wire_packets", packets as f64).with(labels([("bytes", bytes)]))
    }));
    samples.push(Sampled::one("wire_lengths", way.lengths as f64));
    samples.extend(way.unexplained.map(|places| Sampled::one("unexplained_bytes", places as f64)));
    samples.extend(way.clear.map(|share| Sampled::one("clear_pct", 100.0 * share)));
    if way.packets > 0 {
        let unread = 100.0 * way.unread as f64 / way.packets as f64;
        samples.push(Sampled::one("unread_pct", unread));
    }
    let step = way.gaps.len().div_ceil(GAPS_MAX).max(1);
    let gaps_ms = way.gaps.iter().step_by(step).map(|gap| gap.as_secs_f64() * 1e3);
    samples.push(Sampled::new("wire_gap_ms", gaps_ms.collect()));
    samples
}
