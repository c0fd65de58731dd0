//! The wires of a grid become the cases of the arms that go through it.

use toml::Spanned;

use super::case::{Bulk, Case};
use super::grid::{Batch, Grid, GridArm, GridWire};
use super::model::Plan;

/// Gives arms with `grid` their cases. What is wrong comes with its place.
pub(super) fn expand(plan: &mut Plan) -> Result<(), (usize, String)> {
    let Some(grid) = &plan.grid else {
        let without = plan.arms.iter().find(|arm| arm.as_ref().grid.is_some());
        return without.map_or(Ok(()), |arm| Err((arm.span().start, "the plan has no [grid]".into())));
    };
    let grid = grid.as_ref();
    for arm in &mut plan.arms {
        let span = arm.span();
        let Some(options) = arm.as_ref().grid.clone() else { continue };
        let fault = |what: String| (span.start, what);
        let batch = grid.find(&options.batch);
        let batch = batch.ok_or_else(|| fault(format!("there is no batch {:?}", options.batch)))?;
        let cases =
            batch.wires.iter().map(|wire| Spanned::new(span.clone(), case(wire, batch, &options, grid)));
        let cases = cases.collect();
        let arm = arm.as_mut();
        if !arm.cases.is_empty() {
            return Err(fault("an arm with `grid` has no cases of its own".into()));
        }
        arm.cases = cases;
        // Arms of one batch meet the same fates.
        arm.wires_as.get_or_insert_with(|| format!("grid-{}", batch.name));
    }
    Ok(())
}

fn case(grid_wire: &GridWire, batch: &Batch, arm: &GridArm, grid: &Grid) -> Case {
    let [wire, back] = grid_wire.directions(&grid.reorder);
    let mut labels = grid_wire.labels();
    labels.insert("sender".to_owned(), arm.sender.name().to_owned());
    labels.insert("congestion_control".to_owned(), arm.congestion_control.clone());
    let bulk = Bulk {
        congestion_control: arm.congestion_control.clone(),
        sender: arm.sender,
        duration: batch.duration,
        warm_up: batch.warm_up,
    };
    Case {
        labels,
        copies: grid_wire.copies,
        wire,
        back: Some(back),
        bulk: Some(bulk),
        probe: None,
        ping: None,
        share: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use heddle_netem::{Loss, Reorder, Seed};

    use super::*;
    use crate::plan::{Arm, parse, shipped};

    const RTTS_MS: [u64; 4] = [10, 50, 100, 300];
    const RATES_MBIT: [u64; 4] = [1, 10, 50, 200];
    const LOSSES_PCT: [f64; 4] = [0.0, 0.1, 1.0, 2.0];
    const QUEUES_BDP: [f64; 3] = [0.5, 1.0, 4.0];

    /// The wires that seed 1 draws, by their numbers in the grid.
    fn drawn() -> Vec<usize> {
        let mut all: Vec<usize> = (0..384).collect();
        let mut rng = Seed::from_number(1).rng();
        for place in 0..60 {
            let other = place + rng.below((all.len() - place) as u64) as usize;
            all.swap(place, other);
        }
        let mut numbers = all[..60].to_vec();
        numbers.sort_unstable();
        numbers
    }

    fn number(wire: &GridWire) -> Option<usize> {
        let rtt = RTTS_MS.iter().position(|rtt_ms| *rtt_ms == wire.rtt_ms)?;
        let rate = RATES_MBIT.iter().position(|mbit| *mbit == wire.mbit)?;
        let loss = LOSSES_PCT.iter().position(|loss_pct| *loss_pct == wire.loss_pct)?;
        let queue = QUEUES_BDP.iter().position(|queue_bdp| *queue_bdp == wire.queue_bdp)?;
        Some((((rtt * 4 + rate) * 4 + loss) * 2 + usize::from(wire.reorder)) * 3 + queue)
    }

    fn fidelity() -> Plan {
        Plan::load("utcp-fidelity", &BTreeMap::new()).unwrap().plan
    }

    #[test]
    fn the_plan_has_the_wires_that_were_drawn() {
        let plan = fidelity();
        let batches = &plan.grid.as_ref().unwrap().as_ref().list;
        let mut numbers: Vec<usize> =
            batches.iter().flat_map(|batch| &batch.wires).map(|wire| number(wire).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, drawn());
    }

    #[test]
    fn arms_of_a_batch_differ_in_the_sender_alone() {
        let plan = fidelity();
        let is_slow = |arm: &&Arm| arm.grid.as_ref().is_some_and(|options| options.batch == "slow");
        let arms: Vec<&Arm> = plan.arms.iter().map(Spanned::as_ref).filter(is_slow).collect();
        assert_eq!(arms.len(), 4);
        for arm in &arms {
            assert_eq!(arm.wires_as.as_deref(), Some("grid-slow"));
            for (case, first) in arm.cases.iter().zip(&arms[0].cases) {
                let (case, first) = (case.as_ref(), first.as_ref());
                assert_eq!((&case.wire, &case.back, case.copies), (&first.wire, &first.back, first.copies));
            }
        }
    }

    #[test]
    fn a_batch_that_is_not_there_is_named() {
        let text = shipped().iter().find(|shipped| shipped.name == "utcp-fidelity").unwrap().text;
        let text = text.replacen("grid = { batch = \"slow\"", "grid = { batch = \"medium\"", 1);
        let error = parse("plan.toml", &text, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("there is no batch \"medium\""), "{error}");
    }

    #[test]
    fn a_queue_holds_at_least_three_packets() {
        let wire = GridWire { rtt_ms: 10, mbit: 1, loss_pct: 2.0, reorder: true, queue_bdp: 0.5, copies: 1 };
        let reorder = Reorder { probability: 0.01, hold_ns: 5_000_000 };
        let [there, back] = wire.directions(&reorder);
        assert_eq!((there.queue.bytes_max, there.delay_ns), (4500, 5_000_000));
        assert_eq!(
            (there.loss, &there.reorder),
            (Loss::Bernoulli { probability: 0.02 }, &Some(reorder.clone()))
        );
        assert_eq!((back.loss, back.reorder), (Loss::None, None));
        let [there, _] = GridWire { rtt_ms: 300, mbit: 200, queue_bdp: 4.0, ..wire }.directions(&reorder);
        assert_eq!(there.queue.bytes_max, 30_000_000);
    }
}
