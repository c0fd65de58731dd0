//! Whole experiments on a backend that makes its outcomes up: no hosts, no wires, no time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_net::tcp_diag::TcpConnection;
use heddle_netem::{DirectionStats, Step};

use super::*;
use crate::backend::{
    Backend, BackendReport, Built, Circuit, CircuitOrder, Deployment, Log, Outcome, Source, SourceId, Spent,
    Testbed, WireFlow,
};
use crate::capture::Capture;
use crate::error::{Error, Result};
use crate::figures::labels;
use crate::machine::conditions::LoadReading;
use crate::metrics::Metrics;
use crate::plan::tests::small;
use crate::plan::{Case, Loaded};
use crate::results::{Outcome as Judged, Stored, Summary};

mod resume;

/// A backend whose flows have made-up outcomes.
#[derive(Default)]
struct MadeUp {
    /// The arm, by its hosts, and the seed that it was started with.
    started: Vec<(String, u64)>,
    /// How many arms go well before one fails; `None` fails never.
    fails_after: Option<usize>,
    /// The places in `started` of those that were late.
    late: Vec<usize>,
    /// The share of the processors' time that was taken by a host of the machine.
    stolen_pct: u64,
    null_crypto: bool,
}

struct MadeUpTestbed {
    is_late: bool,
    seed: u64,
}

impl Backend for MadeUp {
    fn name(&self) -> &'static str {
        "made-up"
    }

    fn tor_version(&self) -> String {
        String::new()
    }

    /// What this machine's host takes is nothing to outcomes that are made up.
    fn load(&self) -> LoadReading {
        let arms = self.started.len() as u64;
        LoadReading::made_up(100 * arms, self.stolen_pct * arms)
    }

    fn null_crypto(&self) -> bool {
        self.null_crypto
    }

    fn bring_up(&mut self, wanted: &Deployment, _on_step: &mut dyn FnMut(&str)) -> Result<Box<dyn Testbed>> {
        if self.fails_after == Some(self.started.len()) {
            let lacking = || Error::Lacking("there are no wires".into());
            return Err(if self.started.is_empty() { lacking() } else { Error::Interrupted });
        }
        let is_late = self.late.contains(&self.started.len());
        let arm = wanted.network.hosts[0].name.split('-').next().unwrap_or_default();
        self.started.push((arm.to_owned(), wanted.seed));
        Ok(Box::new(MadeUpTestbed { is_late, seed: wanted.seed }))
    }
}

/// What a case gives: a rate that differs from run to run, and of probes every hundredth lost.
fn outcome(case: &Case, seed: u64) -> Outcome {
    match &case.probe {
        Some(probe) => {
            let fate = |number: usize| (number % 100 != 99).then_some(1.0 + number as f64 / 1e3);
            Outcome::Probe { delays_ms: (0..probe.count).map(fate).collect() }
        }
        None => Outcome::Bulk { mbit_s: 10.0 + seed as f64 },
    }
}

impl Testbed for MadeUpTestbed {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn pass_until(&mut self, _then: Duration, _on_wait: &mut dyn FnMut()) -> Result<()> {
        Ok(())
    }

    fn change_wire(&mut self, _from: &str, _to: &str, _step: &Step) -> Result<()> {
        no_tor()
    }

    fn let_attack(&mut self, _on: bool) -> Result<()> {
        no_tor()
    }

    fn watch(&mut self, _one: &str, _other: &str) -> Result<()> {
        no_tor()
    }

    fn watched(&mut self) -> Result<Capture> {
        no_tor()
    }

    fn build_circuits(&mut self, _wanted: &[CircuitOrder<'_>]) -> Result<Vec<Built>> {
        no_tor()
    }

    fn is_open(&mut self, _circuit: Circuit) -> Result<bool> {
        no_tor()
    }

    fn close_circuits(&mut self, _circuits: &[Circuit]) -> Result<()> {
        no_tor()
    }

    fn start(&mut self, _sources: Vec<Source>) -> Result<Vec<SourceId>> {
        no_tor()
    }

    fn wait_until_steady(&mut self, _sources: &[SourceId]) -> Result<()> {
        no_tor()
    }

    fn stop(&mut self, _sources: &[SourceId]) -> Result<Vec<Log>> {
        no_tor()
    }

    fn run_flows(&mut self, flows: &[WireFlow<'_>], on_wait: &mut dyn FnMut()) -> Result<Vec<Outcome>> {
        on_wait();
        Ok(flows.iter().map(|flow| outcome(flow.case, self.seed)).collect())
    }

    fn wire(&mut self, _from: &str, _to: &str) -> Result<DirectionStats> {
        no_tor()
    }

    fn usage(&mut self, _relay: &str) -> Result<Option<Spent>> {
        no_tor()
    }

    fn connections(&mut self, _relay: &str) -> Result<Option<Vec<(String, TcpConnection)>>> {
        Ok(None)
    }

    fn metrics(&mut self, _relay: &str) -> Result<Option<Metrics>> {
        no_tor()
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_down(self: Box<Self>) -> Result<BackendReport> {
        Ok(BackendReport {
            is_late: self.is_late,
            reasons: self.is_late.then(|| "late".to_owned()).into_iter().collect(),
            noise: BTreeMap::from([("lateness".to_owned(), 1.5)]),
            settings: BTreeSet::from(["no wires".to_owned()]),
            trace: None,
        })
    }
}

fn no_tor<T>() -> Result<T> {
    Err(Error::Options("there is no Tor here".into()))
}

#[test]
fn there_are_no_more_runs_than_a_plan_may_have() {
    let dir = tempfile::tempdir().unwrap();
    for runs in [0, 10_001, usize::MAX] {
        let options = RunOptions { runs: Some(runs), ..options(small(&[]).unwrap(), dir.path()) };
        let mut nowhere = MadeUp { fails_after: Some(0), ..MadeUp::default() };
        let refused = run_with(&options, &mut nowhere).unwrap_err().to_string();
        assert!(refused.contains("1 to 10000"), "{refused}");
    }
}

#[test]
fn arms_alternate_and_are_paired_by_seed() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = MadeUp::default();
    let summary = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap();
    let started: Vec<(&str, u64)> = backend.started.iter().map(|(arm, seed)| (&**arm, *seed)).collect();
    let again = ("probe", 8);
    assert_eq!(started, [("bulk", 7), ("probe", 7), ("probe", 7), again, again, ("bulk", 8)]);
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!((&*summary.backend, &*summary.seeds, summary.runs_wanted), ("made-up", &[7, 8][..], 2));
    assert_eq!(summary.backend_noise["probe"]["lateness"], 1.5);
    assert!(summary.settings["probe"].contains("no wires"));
    let figure = |name: &str| summary.figures.iter().find(|figure| figure.name == name).unwrap();
    assert_eq!((sent_probes(&summary), figure("loss_pct").n), (4000, 4));
    assert_eq!(figure("repeated_loss_differences").n, 2);
    let goodput = figure("goodput_mbit_s");
    assert!(
        goodput.n == 4
            && goodput.mean > 1.0
            && goodput.labels == labels([("cc", "reno"), ("transport", "plain")])
    );
    // What was written reads back as what it was.
    let stored = Stored::read(dir.path()).unwrap();
    assert_eq!((&stored.summary, stored.samples.figures()), (&summary, summary.figures.clone()));
    let refused = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap_err();
    assert!(refused.to_string().contains("another directory"));
}

#[test]
fn an_arm_is_measured_once_more_when_the_emulator_was_late() {
    let dir = tempfile::tempdir().unwrap();
    // Of run 1, `bulk` is late once; of run 2, `probe` is late each time, and the second time stands.
    let mut backend = MadeUp { late: vec![0, 4, 5], ..MadeUp::default() };
    let summary = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap();
    let started: Vec<(&str, u64)> = backend.started.iter().map(|(arm, seed)| (&**arm, *seed)).collect();
    let (first, second) = (("probe", 7), ("probe", 8));
    assert_eq!(started, [("bulk", 7), ("bulk", 7), first, first, second, second, second, ("bulk", 8)]);
    assert_eq!(summary.repeated, ["run 1 of 2: bulk: late", "run 2 of 2: probe: late"]);
    // What the first times gave is told apart from the figures.
    let tries: Vec<(&str, usize, usize)> =
        summary.tries.iter().map(|one| (&*one.arm, one.run, one.figures[0].n)).collect();
    assert_eq!(tries, [("bulk", 0, 2), ("probe", 1, 1980)]);
    let n = |name: &str| summary.figures.iter().find(|figure| figure.name == name).unwrap().n;
    assert_eq!((n("goodput_mbit_s"), n("delay_ms")), (4, 3960));
    assert_eq!((summary.valid, summary.reasons), (false, vec!["run 2 of 2: probe: late".to_owned()]));
}

#[test]
fn an_interrupted_run_leaves_what_was_complete() {
    let dir = tempfile::tempdir().unwrap();
    // The second run has its probes and not its bulk connection.
    let mut backend = MadeUp { fails_after: Some(5), ..MadeUp::default() };
    let error = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
    let summary = Summary::read(dir.path()).unwrap();
    assert!(!summary.valid && summary.reasons[0].contains("run 2 of 2"), "{:?}", summary.reasons);
    assert_eq!(summary.seeds, [7]);
    assert!(summary.figures.iter().all(|figure| figure.ci95.is_none()));
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 3);
}

#[test]
fn fewer_runs_than_wanted_are_no_valid_result_and_meet_no_target() {
    let hardly_any = "budget = \"1 us\"";
    let met = "[[target]]\nfigure = \"delay_ms\"\nat_most = 1000\nsource = \"us\"\n\n[[plot]]";
    let made = |budget: (&str, &str)| {
        let dir = tempfile::tempdir().unwrap();
        let loaded = small(&[budget, ("[[plot]]", met)]).unwrap();
        run_with(&options(loaded, dir.path()), &mut MadeUp::default()).unwrap()
    };
    let (whole, short) = (made(("1 min", "1 min")), made(("budget = \"1 min\"", hardly_any)));
    assert_eq!((whole.seeds.len(), whole.valid, whole.targets[0].outcome), (2, true, Judged::Met));
    assert_eq!((short.seeds.len(), short.valid, short.targets[0].outcome), (1, false, Judged::Open));
    assert!(short.reasons[0].contains("1 of 2 runs fit into the time"), "{:?}", short.reasons);
    assert_eq!((short.targets[0].runs, short.targets[0].runs_due), (1, 2));
}

#[test]
fn where_nothing_can_be_run_nothing_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = MadeUp { fails_after: Some(0), ..MadeUp::default() };
    let error = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap_err();
    assert!(matches!(error, Error::Lacking(_)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_value_outside_its_bounds_makes_a_run_invalid() {
    let dir = tempfile::tempdir().unwrap();
    let never = small(&[("value = 0.0", "value = 5000.0"), ("runs = 2", "runs = 1")]).unwrap();
    let mut backend = MadeUp::default();
    let summary = run_with(&options(never, dir.path()), &mut backend).unwrap();
    assert!(!summary.valid && summary.reasons[0].contains("delay_ms"), "{:?}", summary.reasons);
    assert_eq!(summary.checks[0].holds, Some(false));
}

fn options(loaded: Loaded, out: &std::path::Path) -> RunOptions {
    RunOptions {
        loaded,
        arms: Vec::new(),
        phases: Vec::new(),
        runs: None,
        seed: None,
        out: out.to_owned(),
        resume: false,
        command: "heddle lab".to_owned(),
        heddle: Default::default(),
        backend: BackendKind::Emu,
        cpu: None,
        null_crypto: false,
        trace: None,
    }
}

/// How many probes came or were lost.
fn sent_probes(summary: &Summary) -> usize {
    let figure = |name: &str| summary.figures.iter().find(|figure| figure.name == name).unwrap();
    let (delay, loss) = (figure("delay_ms"), figure("loss_pct"));
    // There is a sample of loss, in percent, for every thousand.
    delay.n + (loss.mean * 10.0 * loss.n as f64).round() as usize
}

fn run_with(options: &RunOptions, backend: &mut dyn Backend) -> Result<Summary> {
    experiment::run_with(options, backend, "0123abcd", &mut |_| Ok(()))
}

#[test]
fn results_of_a_machine_whose_time_was_taken_are_not_valid() {
    for (stolen_pct, valid) in [(0, true), (5, true), (6, false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut backend = MadeUp { stolen_pct, ..MadeUp::default() };
        let summary = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap();
        assert_eq!((summary.valid, summary.noise.stolen_pct), (valid, stolen_pct as f64));
        assert!(valid || summary.reasons[0].starts_with("6.0 %"), "{:?}", summary.reasons);
    }
}
