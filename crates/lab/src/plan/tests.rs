//! Plans with bad input, statistics run by run, and whole runs over a loopback that stands in for wires.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use super::bulk::Begun;
use super::parse::parse;
use super::wires::{Backend, Conduct, End, Wires};
use super::*;
use crate::emulator::KernelOptions;
use crate::error::{Error, Result};
use crate::figures::labels;

mod resume;

/// The smallest plan with everything in it; the wires do nothing, because the loopback has none.
const SMALL: &str = r#"
name = "small"
title = "Small & <quick>"
about = "A plan for tests."
budget = "1 min"
runs = 2
seed = 7

[set]
probes = "2000"

[[arm]]
name = "bulk"
labels = { transport = "plain" }

[[arm.case]]
labels = { cc = "reno" }
copies = 2
wire = {}
bulk = { congestion_control = "reno", duration = "0.4 s", warm_up = "0.1 s" }

[[arm]]
name = "probe"
repeat = true

[[arm.case]]
labels = { transport = "plain" }
wire = {}
probe = { count = ${probes}, interval = "100 us" }

[[known]]
figure = "delay_ms"
labels = { transport = "plain" }
value = 0.0
within = 1000.0
source = "a loopback is quick"

[[plot]]
title = "Delay"
figure = "delay_ms"
"#;

fn small(changes: &[(&str, &str)]) -> Result<Loaded> {
    let text = changes.iter().fold(SMALL.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    parse("small.toml", &text, &BTreeMap::new())
}

fn set(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[test]
fn every_shipped_plan_is_a_plan_and_keeps_its_budget() {
    for shipped in shipped() {
        let loaded = Plan::load(shipped.name, &BTreeMap::new()).unwrap();
        let plan = &loaded.plan.with_arms(&[]).unwrap();
        assert_eq!(plan.name, shipped.name);
        assert!(estimate(plan) * plan.runs as u32 <= plan.budget, "{}", plan.name);
        assert!(plan.budget <= Duration::from_secs(20 * 60), "{}", plan.name);
        // What is stored with the results is a plan again, and the same.
        let again = parse("again.toml", &loaded.text, &BTreeMap::new()).unwrap();
        assert_eq!(again.text, loaded.text);
    }
}

#[test]
fn bad_plans_are_refused_with_one_sentence_and_the_line() {
    for (change, line, what) in [
        (("name = \"small\"", "nam = \"small\""), 2, "nam"),
        (("name = \"small\"", "name = \"a b\""), 1, "letters, digits and hyphens"),
        (("runs = 2", "runs = 0"), 1, "0 runs"),
        (("runs = 2", "runs = \"two\""), 6, "expected usize"),
        (("\"1 min\"", "\"60\""), 5, "no unit"),
        (("cc = \"reno\" }", "cc = \"reno\""), 18, "missing comma"),
        (("wire = {}", "wire = { rate = \"10\" }"), 19, "no unit"),
        (("wire = {}", "wire = { rat = \"10 Mbit/s\" }"), 19, "rat"),
        (("wire = {}", "wire = { loss = { bernoulli = { probability = \"101 %\" } } }"), 16, "1.01"),
        (("\"0.4 s\"", "\"0.1 s\""), 16, "warm-up leaves nothing"),
        (("congestion_control = \"reno\"", "congestion_control = \"../x\""), 16, "no congestion control"),
        (("bulk = {", "probe = { count = 5, interval = \"1 ms\" }\nbulk = {"), 16, "either"),
        (("\"100 us\"", "\"99 us\""), 26, "at least 100 µs"),
        (("${probes}", "0"), 26, "0 probes"),
        (("${probes}", "${prob}"), 29, "no value \"prob\""),
        (("${probes}", "${probes"), 29, "`}`"),
        (("interval = \"100 us\"", "interval = \"100 us\", bytes = 43"), 26, "43 bytes"),
        (("name = \"probe\"", "name = \"bulk\""), 22, "there twice"),
        (("labels = { cc = \"reno\" }", "labels = {}"), 26, "same labels"),
        (("within = 1000.0", "within = -1.0"), 31, "finite"),
        (("[[plot]]", "[[target]]\nfigure = \"x\"\nsource = \"y\"\n[[plot]]"), 38, "at_most"),
        (("[[plot]]", "[[compare]]\nfigure = \"x\"\nname = \"y\"\nkind = \"ratio\"\n[[plot]]"), 38, "either"),
    ] {
        let error = small(&[change]).unwrap_err().to_string();
        let place = format!("small.toml:{line}: ");
        assert!(error.starts_with(&place) && error.contains(what), "{change:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn values_are_set_by_name_only() {
    let loaded = parse("small.toml", SMALL, &set("probes", "3000")).unwrap();
    assert_eq!(loaded.plan.arms[1].as_ref().cases[0].as_ref().probe.as_ref().unwrap().count, 3000);
    let refused = |key, value| parse("small.toml", SMALL, &set(key, value)).unwrap_err().to_string();
    assert!(refused("probe", "1").contains("it lets you set probes"));
    assert!(refused("probes", "1 }\n[[arm]]").contains("--set probes"));
    assert!(refused("probes", "\"").contains("--set probes"));
    assert!(refused("probes", "many").starts_with("small.toml:29: "));
    let missing = Plan::load("nonesuch", &BTreeMap::new()).unwrap_err().to_string();
    assert!(missing.contains("calibrate") && missing.contains(".toml"), "{missing}");
    let missing = Plan::load("nonesuch.toml", &BTreeMap::new()).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }));
}

#[test]
fn a_mean_is_that_of_the_runs_and_quantiles_are_those_of_all_samples() {
    let mut samples = RunSamples::default();
    let arm = labels([("transport", "stock")]);
    samples.add(0, "delay_ms", &arm, "ms", &[1.0; 98]);
    samples.add(1, "delay_ms", &arm, "ms", &[3.0, 5.0, f64::NAN, f64::INFINITY]);
    let figures = samples.figures();
    let figure = &figures[0];
    // Means 1 and 4; for one degree of freedom t is 12.7062, and half of the difference is the standard error.
    assert_eq!((figures.len(), figure.n, figure.mean, figure.p50), (1, 100, 2.5, 1.0));
    let [low, high] = figure.ci95.unwrap();
    assert!((low - (2.5 - 12.7062 * 1.5)).abs() < 1e-9 && (high - (2.5 + 12.7062 * 1.5)).abs() < 1e-9);
    samples.forget_run(1);
    assert_eq!(samples.figures()[0].ci95, None);
    samples.forget_run(0);
    assert!(samples.all().is_empty());
}

#[test]
fn comparisons_are_paired_by_run() {
    let compare = |name: &str, kind: &str| {
        format!(
            "[[compare]]\nfigure = \"rate\"\nlabel = \"transport\"\nbase = \"stock\"\nname = \"{name}\"\nkind = \"{kind}\"\n"
        )
    };
    let all = [compare("ratio", "ratio"), compare("more", "difference"), compare("less_pct", "loss_pct")];
    let loaded = parse("small.toml", &format!("{SMALL}{}", all.concat()), &BTreeMap::new()).unwrap();
    let mut samples = RunSamples::default();
    for (run, (stock, tls)) in [(10.0, 20.0), (20.0, 30.0)].into_iter().enumerate() {
        for (transport, value) in [("stock", stock), ("tls", tls)] {
            let labels = labels([("transport", transport), ("wire", "shared")]);
            samples.add(run, "rate", &labels, "MB/s", &[value]);
        }
        // It has no partner, and one without the label is nobody's.
        samples.add(run, "rate", &labels([("transport", "tls"), ("wire", "none")]), "MB/s", &[1.0]);
        samples.add(run, "rate", &labels([("wire", "shared")]), "MB/s", &[1.0]);
        samples.compare(&loaded.plan, run);
    }
    let tls = labels([("transport", "tls"), ("wire", "shared")]);
    let of = |name: &str| samples.series(name, &tls).unwrap().all();
    assert_eq!(
        (of("ratio"), of("more"), of("less_pct")),
        (vec![2.0, 1.5], vec![10.0; 2], vec![-100.0, -50.0])
    );
    assert_eq!(samples.all().iter().filter(|series| series.name == "ratio").count(), 1);
}

#[test]
fn figures_of_two_names_are_compared_where_their_labels_are_the_same() {
    let compare = "[[compare]]\nfigure = \"delay_ms\"\nto = \"base_delay_ms\"\nname = \"excess_ms\"\nkind = \"difference\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{compare}"), &BTreeMap::new()).unwrap();
    let mut samples = RunSamples::default();
    let (stock, tls) = (labels([("transport", "stock")]), labels([("transport", "tls")]));
    samples.add(0, "base_delay_ms", &stock, "ms", &[300.0]);
    samples.add(0, "delay_ms", &stock, "ms", &[400.0, 420.0]);
    samples.add(0, "delay_ms", &tls, "ms", &[1.0]);
    samples.compare(&loaded.plan, 0);
    assert_eq!(samples.series("excess_ms", &stock).unwrap().all(), [110.0]);
    assert_eq!(samples.series("excess_ms", &tls), None);
}

/// Sockets on this machine's loopback, without any wire. For tests only: it shows that plans are run, not that wires
/// are right.
#[derive(Default)]
struct Loopback {
    /// The arm, and the seed that it was started with.
    started: Vec<(String, u64)>,
    /// How many arms go well before one fails; `None` fails never.
    fails_after: Option<usize>,
    /// The places in `started` of those that were late.
    late: Vec<usize>,
}

struct LoopbackSockets {
    controls: Vec<Option<String>>,
    is_late: bool,
}

impl Backend for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn start(&mut self, arm: &Arm, _kernel: &KernelOptions, seed: u64) -> Result<Box<dyn Wires>> {
        if self.fails_after == Some(self.started.len()) {
            let lacking = || Error::Lacking("there are no wires".into());
            return Err(if self.started.is_empty() { lacking() } else { Error::Interrupted });
        }
        let is_late = self.late.contains(&self.started.len());
        self.started.push((arm.name.clone(), seed));
        let control = |case: &Case| case.bulk.as_ref().map(|bulk| bulk.congestion_control.clone());
        Ok(Box::new(LoopbackSockets { controls: arm.flows().map(control).collect(), is_late }))
    }

    fn has_hosts(&self) -> bool {
        false
    }
}

impl Wires for LoopbackSockets {
    fn listen(&self, _case: usize) -> Result<TcpListener> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("listening"))
    }

    fn connect(&self, case: usize, to: SocketAddr) -> Result<TcpStream> {
        let stream = TcpStream::connect(to).map_err(Error::io("connecting"))?;
        if let Some(control) = &self.controls[case] {
            rustix::net::sockopt::set_tcp_congestion(&stream, control).unwrap();
        }
        Ok(stream)
    }

    fn attach(
        &self,
        _case: usize,
        _to: SocketAddr,
        _congestion_control: &str,
        _begun: &Begun,
    ) -> Result<IpAddr> {
        Err(Error::Lacking("the loopback has no other network stack than the kernel's".into()))
    }

    fn detach(&self, _address: IpAddr) -> Result<()> {
        Ok(())
    }

    fn datagrams(&self, _case: usize, _end: End) -> Result<UdpSocket> {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("binding"))
    }

    fn finish(self: Box<Self>) -> Result<Conduct> {
        Ok(Conduct {
            is_late: self.is_late,
            reasons: self.is_late.then(|| "late".to_owned()).into_iter().collect(),
            noise: BTreeMap::from([("lateness".to_owned(), 1.5)]),
            settings: ["no wires".to_owned()].into(),
        })
    }
}

fn run_with(options: &RunOptions, backend: &mut dyn Backend) -> Result<Summary> {
    super::run::run_with(options, backend, "0123abcd")
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
    }
}

/// How many probes came or were lost. A loopback loses none, but where the machine is busy the receiver's buffer may be full.
fn sent_probes(summary: &Summary) -> usize {
    let figure = |name: &str| summary.figures.iter().find(|figure| figure.name == name).unwrap();
    let (delay, loss) = (figure("delay_ms"), figure("loss_pct"));
    assert!(loss.mean < 50.0, "{loss:?}");
    // There is a sample of loss, in percent, for every thousand.
    delay.n + (loss.mean * 10.0 * loss.n as f64).round() as usize
}

#[test]
fn the_fates_of_probes_are_counted_and_compared() {
    let fates = |lost: usize| {
        let fate = |number: usize| (number >= lost).then_some(number as f64);
        cases::Outcome::Probe { delays_ms: (0..2000).map(fate).collect() }
    };
    let samples = cases::samples(&fates(7));
    assert_eq!((samples[0].2.len(), &samples[1]), (1993, &("loss_pct", "%", vec![0.7, 0.0])));
    let again = cases::differences(&fates(7), &fates(10));
    assert_eq!(again["repeated_loss_differences"].1, [3.0]);
    assert_eq!(again["repeated_delay_difference_ms"].1, [0.0; 1990]);
}

#[test]
fn arms_alternate_and_are_paired_by_seed() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Loopback::default();
    let summary = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap();
    let started: Vec<(&str, u64)> = backend.started.iter().map(|(arm, seed)| (&**arm, *seed)).collect();
    let again = ("probe", 8);
    assert_eq!(started, [("bulk", 7), ("probe", 7), ("probe", 7), again, again, ("bulk", 8)]);
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!((&*summary.backend, &*summary.seeds, summary.runs_wanted), ("loopback", &[7, 8][..], 2));
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
    let stored = crate::report::Stored::read(dir.path()).unwrap();
    assert_eq!((&stored.summary, stored.samples.figures()), (&summary, summary.figures.clone()));
    assert!(dir.path().join("report.html").is_file());
    let refused = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap_err();
    assert!(refused.to_string().contains("another directory"));
}

#[test]
fn there_are_no_more_runs_than_a_plan_may_have() {
    let dir = tempfile::tempdir().unwrap();
    for runs in [0, 10_001, usize::MAX] {
        let options = RunOptions { runs: Some(runs), ..options(small(&[]).unwrap(), dir.path()) };
        let mut nowhere = Loopback { fails_after: Some(0), ..Loopback::default() };
        let refused = run_with(&options, &mut nowhere).unwrap_err().to_string();
        assert!(refused.contains("1 to 10000"), "{refused}");
    }
}

#[test]
fn arms_are_chosen_by_name() {
    let loaded = small(&[]).unwrap();
    let chosen = loaded.plan.with_arms(&["bulk".to_owned()]).unwrap();
    assert_eq!((chosen.arms.len(), chosen.known.len(), loaded.plan.known.len()), (1, 0, 1));
    assert_eq!(loaded.plan.with_arms(&["probe".to_owned()]).unwrap().known.len(), 1);
    assert_eq!(loaded.plan.with_arms(&[]).unwrap().arms.len(), 2);
    let by_choice = small(&[("name = \"probe\"", "name = \"probe\"\nby_choice = true")]).unwrap();
    let usual = by_choice.plan.with_arms(&[]).unwrap();
    assert_eq!((usual.arms.len(), &*usual.arms[0].as_ref().name), (1, "bulk"));
    assert_eq!(by_choice.plan.with_arms(&["probe".to_owned()]).unwrap().arms.len(), 1);
    let unknown = loaded.plan.with_arms(&["bulky".to_owned()]).unwrap_err().to_string();
    assert!(unknown.contains("no arm \"bulky\"; the plan has bulk, probe"), "{unknown}");
}

#[test]
fn targets_stay_with_the_arms_that_they_are_about() {
    let figures = |plan: &Plan| -> Vec<String> {
        plan.targets.iter().map(|target| target.as_ref().figure.clone()).collect()
    };
    for shipped in shipped() {
        let plan = Plan::load(shipped.name, &BTreeMap::new()).unwrap().plan;
        let all: Vec<String> = plan.arms.iter().map(|arm| arm.as_ref().name.clone()).collect();
        assert_eq!(figures(&plan.with_arms(&all).unwrap()), figures(&plan), "{}", plan.name);
    }
    let fidelity = Plan::load("utcp-fidelity", &BTreeMap::new()).unwrap().plan;
    let both = ["goodput_over_linux", "share_beside_linux"];
    assert_eq!(figures(&fidelity.with_arms(&[]).unwrap()), both);
    assert_eq!(figures(&fidelity.with_arms(&["share".to_owned()]).unwrap()), both);
    assert_eq!(figures(&fidelity.with_arms(&["linux-cubic-slow".to_owned()]).unwrap()), both[..1]);
}

#[test]
fn what_no_arm_gives_is_kept_to_be_told() {
    let strange = "[[known]]\nfigure = \"x\"\nlabels = { a = \"1\" }\nvalue = 1.0\nsource = \"us\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{strange}"), &BTreeMap::new()).unwrap();
    assert_eq!(loaded.plan.with_arms(&["bulk".to_owned()]).unwrap().known.len(), 1);
}

#[test]
fn what_must_never_happen_is_judged_by_every_sample() {
    for shipped in shipped() {
        let plan = Plan::load(shipped.name, &BTreeMap::new()).unwrap().plan;
        for target in plan.targets.iter().map(|target| target.as_ref()) {
            let never = match &*target.figure {
                "failures" => target.at_most == Some(0.0),
                "circuits_left_pct" => target.at_least == Some(100.0),
                _ => false,
            };
            assert!(target.always || !never, "{}: {}", plan.name, target.figure);
        }
    }
}

#[test]
fn phases_are_chosen_by_name() {
    let loaded = Plan::load("isolation", &BTreeMap::new()).unwrap();
    let choose = |names: &[&str]| {
        loaded.plan.with_phases(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    };
    let phases = |plan: &Plan| -> Vec<String> {
        plan.tor.as_ref().unwrap().as_ref().phases.iter().map(|phase| phase.as_ref().name.clone()).collect()
    };
    let cases = |plan: &Plan| -> BTreeSet<Option<String>> {
        plan.targets.iter().map(|target| target.as_ref().labels.get("case").cloned()).collect()
    };
    let chosen = choose(&["stall", "beside"]).unwrap();
    assert_eq!(phases(&chosen), ["beside", "stall"]);
    assert_eq!(cases(&chosen), BTreeSet::from([Some("stall".to_owned())]));
    assert!(estimate(&chosen) < estimate(&loaded.plan) / 2);
    assert_eq!((phases(&choose(&[]).unwrap()).len(), cases(&choose(&[]).unwrap()).len()), (6, 3));
    let unknown = choose(&["stalls"]).unwrap_err().to_string();
    assert!(unknown.contains("no phase \"stalls\"; the plan has alone; beside"), "{unknown}");
    let none = Plan::load("calibrate", &BTreeMap::new()).unwrap().plan;
    assert!(none.with_phases(&["x".to_owned()]).unwrap_err().to_string().contains("has no phases"));
}

#[test]
fn an_arm_is_measured_once_more_when_the_emulator_was_late() {
    let dir = tempfile::tempdir().unwrap();
    // Of run 1, `bulk` is late once; of run 2, `probe` is late each time, and the second time stands.
    let mut backend = Loopback { late: vec![0, 4, 5], ..Loopback::default() };
    let summary = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap();
    let started: Vec<(&str, u64)> = backend.started.iter().map(|(arm, seed)| (&**arm, *seed)).collect();
    let (first, second) = (("probe", 7), ("probe", 8));
    assert_eq!(started, [("bulk", 7), ("bulk", 7), first, first, second, second, second, ("bulk", 8)]);
    assert_eq!(summary.repeated, ["run 1 of 2: bulk: late", "run 2 of 2: probe: late"]);
    assert_eq!((summary.valid, summary.reasons), (false, vec!["run 2 of 2: probe: late".to_owned()]));
}

#[test]
fn an_interrupted_run_leaves_what_was_complete() {
    let dir = tempfile::tempdir().unwrap();
    // The second run has its probes and not its bulk connection.
    let mut backend = Loopback { fails_after: Some(5), ..Loopback::default() };
    let error = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
    let summary = Summary::read(dir.path()).unwrap();
    assert!(!summary.valid && summary.reasons[0].contains("run 2 of 2"), "{:?}", summary.reasons);
    assert_eq!(summary.seeds, [7]);
    assert!(summary.figures.iter().all(|figure| figure.ci95.is_none()));
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 4);
}

#[test]
fn where_nothing_can_be_run_nothing_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Loopback { fails_after: Some(0), ..Loopback::default() };
    let error = run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap_err();
    assert!(matches!(error, Error::Lacking(_)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_value_outside_its_bounds_makes_a_run_invalid() {
    let dir = tempfile::tempdir().unwrap();
    let never = small(&[("value = 0.0", "value = 5000.0"), ("runs = 2", "runs = 1")]).unwrap();
    let mut backend = Loopback::default();
    let summary = run_with(&options(never, dir.path()), &mut backend).unwrap();
    assert!(!summary.valid && summary.reasons[0].contains("delay_ms"), "{:?}", summary.reasons);
    assert_eq!(summary.checks[0].holds, Some(false));
}

#[test]
fn an_interval_is_demanded_of_all_samples() {
    let known = "[[known]]\nfigure = \"x\"\nvalue = 1.0\nwithin_interval = true\nsource = \"chance\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{known}"), &BTreeMap::new()).unwrap();
    let holds = |offset: f64| {
        let mut samples = RunSamples::default();
        // Mean 1 + offset, standard deviation 1.0005 and 1000 samples: the interval is 0.1041 to each side.
        let values: Vec<f64> = (0..1000).map(|n| f64::from(n % 2 * 2) + offset).collect();
        samples.add(0, "x", &Labels::new(), "1", &values);
        summary::checks(&loaded.plan, &samples)[1].holds
    };
    assert_eq!(
        [holds(0.10), holds(-0.10), holds(0.11), holds(-0.11)].map(Option::unwrap),
        [true, true, false, false]
    );
    assert_eq!(summary::checks(&loaded.plan, &RunSamples::default())[1].holds, Some(false));
}

#[test]
fn a_target_is_met_by_the_whole_interval_and_missed_by_none_of_it() {
    let target = "[[target]]\nfigure = \"x\"\nlabels = { a = \"1\" }\nat_most = 1.0\nsource = \"us\"\n";
    let text = format!("{SMALL}{target}{}", target.replace("\"x\"", "\"y\""));
    let loaded = parse("small.toml", &text, &BTreeMap::new()).unwrap();
    let judged = |runs: &[f64]| {
        let mut samples = RunSamples::default();
        let labels = crate::figures::labels([("a", "1"), ("b", "2")]);
        for (run, value) in runs.iter().enumerate() {
            samples.add(run, "x", &labels, "1", &[*value]);
        }
        let judgements = summary::judgements(&loaded.plan, &samples, runs.len());
        assert_eq!((judgements.len(), &judgements[0].labels), (2, &labels));
        assert_eq!(judgements[1].outcome, Outcome::NotMeasured);
        judgements[0].outcome
    };
    assert_eq!(judged(&[0.8, 0.81, 0.8]), Outcome::Met);
    assert_eq!(judged(&[0.8, 1.1, 0.9]), Outcome::Open);
    assert_eq!(judged(&[1.1, 1.11, 1.1]), Outcome::Missed);
    // One run has no interval.
    assert_eq!(judged(&[0.1]), Outcome::Open);
    // A ratio over nothing is no number, and the other runs do not speak for that one.
    assert_eq!(judged(&[0.8, 0.81, 0.8, f64::INFINITY]), Outcome::Open);
    assert_eq!(judged(&[1.1, 1.11, 1.1, f64::INFINITY]), Outcome::Open);
}

#[test]
fn a_limit_is_kept_by_every_sample_or_missed() {
    let target = "[[target]]\nfigure = \"x\"\nalways = true\nat_most = 160\nat_least = 10\nsource = \"us\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{target}"), &BTreeMap::new()).unwrap();
    let judged = |runs: &[&[f64]]| {
        let mut samples = RunSamples::default();
        for (run, values) in runs.iter().enumerate() {
            samples.add(run, "x", &crate::figures::Labels::new(), "cells", values);
        }
        let judgement = summary::judgements(&loaded.plan, &samples, runs.len()).remove(0);
        (judgement.ours, judgement.outcome)
    };
    // The interval of the mean of these reaches beyond the limit; no sample does.
    assert_eq!(judged(&[&[154.0, 120.0], &[157.0], &[160.0]]), (Some(160.0), Outcome::Met));
    assert_eq!(judged(&[&[15.0, 120.0]]), (Some(15.0), Outcome::Met));
    assert_eq!(judged(&[&[1.0, 161.0], &[100.0]]), (Some(1.0), Outcome::Missed));
    assert_eq!(judged(&[]), (None, Outcome::NotMeasured));
    // In the second run nothing was measured: that leaves open what no other run decides.
    assert_eq!(judged(&[&[100.0], &[]]), (Some(100.0), Outcome::Open));
    assert_eq!(judged(&[&[161.0], &[]]), (Some(161.0), Outcome::Missed));
}

#[test]
fn the_area_under_the_curve_counts_pairs() {
    let mut samples = RunSamples::default();
    let of = |on: &str| crate::figures::labels([("a", on)]);
    samples.add(0, "delay_ms", &of("off"), "ms", &[1.0, 2.0, 3.0]);
    samples.add(0, "delay_ms", &of("on"), "ms", &[2.0, 4.0]);
    let compare =
        "[[compare]]\nfigure = \"delay_ms\"\nlabel = \"a\"\nbase = \"off\"\nname = \"auc\"\nkind = \"auc\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{compare}"), &BTreeMap::new()).unwrap();
    samples.compare(&loaded.plan, 0);
    // Of six pairs four are greater and one is equal.
    assert_eq!(samples.series("auc", &of("on")).unwrap().all(), [4.5 / 6.0]);
}
