//! Measures one arm of one run on a backend, from nothing to nothing.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::flows;
use super::progress::Screen;
use super::remarks::Remarks;
use super::sampled::Sampled;
use super::tor::ArmRun;
use crate::backend::{Backend, BackendReport, Outcome};
use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::plan::{Arm, Plan, Tor, TorArm};
use crate::results::{RunSamples, Try};

/// How often an arm of a run is measured in all when the emulator was late.
const ATTEMPTS: usize = 2;

/// An arm of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArmOfRun<'a> {
    pub(super) arm: &'a Arm,
    /// The number of the run, from 0.
    pub(super) run: usize,
    /// How many there are to be.
    pub(super) runs: usize,
    /// The run's seed.
    pub(super) seed: u64,
}

/// What an arm of a run gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) samples: Vec<Sampled>,
    pub(super) remarks: Remarks,
}

/// Measures arms on a backend.
pub(super) struct Measuring<'a> {
    plan: &'a Plan,
    backend: &'a mut dyn Backend,
    /// When it is too late to measure anything once more.
    end: Instant,
    screen: Screen,
}

/// Something that is measured on a backend, and how well that did.
type Measure<'a, T> = &'a mut dyn FnMut(&mut dyn Backend, &mut Screen) -> Result<(T, BackendReport)>;

impl Measured {
    fn add(&mut self, sampled: Vec<Sampled>) {
        self.samples.extend(sampled.into_iter().map(Sampled::finite));
    }
}

impl<'a> Measuring<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        backend: &'a mut dyn Backend,
        end: Instant,
        screen: Screen,
    ) -> Measuring<'a> {
        Measuring { plan, backend, end, screen }
    }

    /// Measures an arm of a run. Of one that fails `into` has what it gave before.
    pub(super) fn measure(&mut self, wanted: ArmOfRun<'_>, into: &mut Measured) -> Result<()> {
        let step = format!("run {} of {}: {}", wanted.run + 1, wanted.runs, wanted.arm.name);
        match &wanted.arm.tor {
            Some(options) => self.tor(wanted, options, &step, into),
            None => self.flows(wanted, &step, into),
        }
    }

    /// Takes the line of progress away.
    pub(super) fn end(mut self) {
        self.screen.end();
    }

    /// An arm whose flows go over single wires, twice where the plan says so.
    fn flows(&mut self, wanted: ArmOfRun<'_>, step: &str, into: &mut Measured) -> Result<()> {
        let outcomes = self.outcomes(wanted, step, &mut into.remarks)?;
        into.add(flows::samples(wanted.arm, &outcomes));
        if wanted.arm.repeat {
            let again = self.outcomes(wanted, &format!("{step}, again"), &mut into.remarks)?;
            into.add(flows::differences(wanted.arm, &outcomes, &again));
        }
        Ok(())
    }

    fn outcomes(&mut self, wanted: ArmOfRun<'_>, step: &str, remarks: &mut Remarks) -> Result<Vec<Outcome>> {
        let deployment = flows::deployment(wanted.arm, &self.plan.kernel, wanted.seed);
        let flows = flows::flows(wanted.arm, &deployment);
        let samples = |outcomes: &Vec<Outcome>| flows::samples(wanted.arm, outcomes);
        self.on_time(wanted, step, remarks, &samples, &mut |backend, screen| {
            let mut testbed = backend.bring_up(&deployment, &mut |_| screen.show(step))?;
            let outcomes = testbed.run_flows(&flows, &mut || screen.show(step));
            // How the backend did is told even where a flow failed.
            let report = testbed.take_down()?;
            Ok((outcomes?, report))
        })
    }

    /// An arm with a Tor network.
    fn tor(&mut self, wanted: ArmOfRun<'_>, options: &TorArm, step: &str, into: &mut Measured) -> Result<()> {
        let ArmOfRun { run, seed, .. } = wanted;
        let network =
            self.plan.tor.as_ref().ok_or_else(|| Error::Options("the plan has no network".into()))?;
        let drawn = drawn(network.as_ref(), seed)?;
        let arm_run = ArmRun { tor: &drawn, arm: options, run, seed };
        let sampled =
            self.on_time(wanted, step, &mut into.remarks, &Vec::clone, &mut |backend, screen| {
                arm_run.measure(backend, &mut |what| screen.show(&format!("{step}: {what}")))
            })?;
        into.add(sampled);
        Ok(())
    }

    /// Measures an arm of a run, from nothing to nothing: once more under its seed where the backend was late, which
    /// has nothing to do with what was measured, and there is time. What was measured then is kept apart, and that is
    /// reported.
    fn on_time<T>(
        &mut self,
        ArmOfRun { arm, run, .. }: ArmOfRun<'_>,
        step: &str,
        remarks: &mut Remarks,
        samples: &dyn Fn(&T) -> Vec<Sampled>,
        measure: Measure<'_, T>,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            interrupt::check()?;
            let begun = Instant::now();
            self.screen.show(step);
            let (measured, report) = measure(self.backend, &mut self.screen)?;
            let is_again =
                report.is_late && attempt < ATTEMPTS && Instant::now() + begun.elapsed() <= self.end;
            if !is_again {
                remarks.note(&arm.name, report, step);
                return Ok(measured);
            }
            let mut apart = RunSamples::default();
            samples(&measured).into_iter().for_each(|sampled| sampled.add_to(&mut apart, arm, run));
            let figures = apart.figures();
            remarks.note_try(step, Try { arm: arm.name.clone(), run, reasons: report.reasons, figures });
        }
    }
}

/// The plan's network as this seed draws it.
pub(super) fn drawn(tor: &Tor, seed: u64) -> Result<Tor> {
    tor.drawn(seed).map_err(|(_, what)| Error::Options(format!("the network of seed {seed}: {what}")))
}
