//! What relays count of circuits while a phase is measured, and tell the client of each: *MeasureMe* of AlSabah and
//! Goldberg (PCTCP, section 5.1). Relays are asked when the window opens, which has them begin, and when it closes.

use heddle_proto::cell::measure::{LaneMeasured, Measured};

use super::transport_use::relay_labels;
use crate::backend::{Circuit, Testbed};
use crate::error::Result;
use crate::figures::{Labels, labels};
use crate::plan::{Client, Phase, Tor};
use crate::run::sampled::Sampled;

/// What one relay counted of a circuit between the two questions; `None` if it did not answer both.
pub(super) type Counted = Option<Measured>;

/// Asks all relays of these circuits, if the phase wants it.
pub(super) fn ask(phase: &Phase, circuits: &[Circuit], testbed: &mut dyn Testbed) -> Result<()> {
    if phase.hops { testbed.ask_relays(circuits) } else { Ok(()) }
}

/// What they counted, by circuit and hop.
pub(super) fn counted(
    phase: &Phase,
    circuits: &[Circuit],
    testbed: &mut dyn Testbed,
) -> Result<Vec<Vec<Counted>>> {
    if !phase.hops {
        return Ok(Vec::new());
    }
    let told = testbed.told_by_relays(circuits)?;
    // The first answer is about the time before the first question.
    let between = |answers: &Vec<Measured>| answers.get(1).copied();
    Ok(told.iter().map(|hops| hops.iter().map(between).collect()).collect())
}

/// A sample for each circuit, hop and direction. The circuits are those of `clients`, in their order.
pub(super) fn figures(
    tor: &Tor,
    phase: &Phase,
    clients: &[&Client],
    counted: &[Vec<Counted>],
) -> Vec<Sampled> {
    let mut samples = Vec::new();
    for (client, hops) in clients.iter().zip(counted) {
        for (relay, measured) in phase.path_of(client).iter().zip(hops) {
            let Some(Measured { towards_client, away, .. }) = measured else { continue };
            for (direction, lane) in [("to the client", towards_client), ("away", away)] {
                let here = relay_labels(tor, relay).into_iter().chain(labels([("direction", direction)]));
                let all: Labels = client.labels.clone().into_iter().chain(here).collect();
                samples.extend(of_lane(lane).into_iter().map(|sampled| sampled.with(all.clone())));
            }
        }
    }
    samples
}

/// What is told of one direction; nothing of the last relay's away from the client, where there are no cells, nor where
/// they go on to another of the relay's threads, because those that wait there are not among them.
fn of_lane(lane: &LaneMeasured) -> Vec<Sampled> {
    if ["", "shard"].contains(&lane.transport()) {
        return Vec::new();
    }
    let mut samples = vec![Sampled::one("hop_cells", f64::from(lane.cells))];
    if lane.cells > 0 {
        let mean_us = lane.waited_us as f64 / f64::from(lane.cells);
        samples.extend([
            Sampled::one("hop_wait_ms", mean_us / 1e3),
            Sampled::one("hop_wait_max_ms", f64::from(lane.waited_max_us) / 1e3),
            Sampled::one("hop_queue_max_cells", f64::from(lane.queue_max_cells)),
        ]);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_without_cells_has_no_waits_and_the_last_relay_one_direction() {
        let names =
            |lane: &LaneMeasured| of_lane(lane).iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert!(names(&LaneMeasured::default()).is_empty());
        assert!(names(&LaneMeasured::default().over("shard")).is_empty());
        let idle = LaneMeasured::default().over("quic");
        assert_eq!(names(&idle), ["hop_cells"]);
        let mut lane = idle;
        (lane.cells, lane.waited_us, lane.waited_max_us, lane.queue_max_cells) = (4, 10_000, 7_000, 3);
        let values: Vec<f64> = of_lane(&lane).into_iter().flat_map(|one| one.values).collect();
        assert_eq!(values, [4.0, 2.5, 7.0, 3.0]);
    }
}
