//! Arms with a network, without any: what is placed on which host, and a phase on a testbed in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heddle_net::tcp_diag::TcpConnection;
use heddle_netem::{DirectionStats, Step};

use super::*;
use crate::backend::{
    Attacks, Built, Circuit, CircuitOrder, Log, Outcome, Source, SourceId, Spent, Testbed, WireFlow,
};
use crate::capture::Capture;
use crate::error::Error;
use crate::figures::labels;
use crate::metrics::Metrics;
use crate::plan::network_tests::{network_of, small};
use crate::plan::{Phase, Plan};
use crate::traffic::Event;

#[test]
fn relays_are_what_the_arm_says_unless_they_say_it_themselves() {
    let loaded = small(("small", "small")).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let placed = programs(tor, arm);
    let relays = placed.iter().filter_map(|placed| match &placed.role {
        Role::Relay { program, exit, torrc } => Some((&*placed.host, *program, *exit, torrc.join("; "))),
        _ => None,
    });
    let (stock, heddle) = (Program::Stock, Program::Heddle);
    let ours = "HeddleTransports tls; HeddleTCPNoDelay 0; Log debug stdout".to_owned();
    let expected = [
        ("guard", heddle, false, ours.clone()),
        ("middle", stock, false, "Log debug stdout; RelayBandwidthRate 128 KBytes".to_owned()),
        ("exit", heddle, true, ours),
    ];
    assert_eq!(relays.collect::<Vec<_>>(), expected);
    let hosts = |is: &dyn Fn(&Role) -> bool| -> Vec<&str> {
        placed.iter().filter(|placed| is(&placed.role)).map(|placed| &*placed.host).collect()
    };
    assert_eq!(hosts(&|role| matches!(role, Role::OnionProxy { .. })), ["web", "up"]);
    assert_eq!(hosts(&|role| matches!(role, Role::Authorities { .. })), ["authorities"]);
    assert_eq!(hosts(&|role| *role == Role::Server(Reached::FromItsHost.into())), ["exit"]);
}

#[test]
fn a_host_has_a_server_for_each_congestion_control_of_flows() {
    let flows = ["", "congestion_control = \"bbr\"\n", "congestion_control = \"bbr\"\n"];
    let flow = |(number, line): (usize, &&str)| {
        format!(
            "[[tor.flow]]\nname = \"k{number}\"\nfrom = \"guard\"\nto = \"middle\"\n{line}program = {{ bulk = {{}} }}\n\n"
        )
    };
    let flows: String = flows.iter().enumerate().map(flow).collect();
    let loaded = small(("[[tor.phase]]", &format!("{flows}[[tor.phase]]"))).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let server = |placed: Placed| match placed.role {
        Role::Server(kind) if kind.reached == Reached::FromAnywhere => {
            Some((placed.host, kind.congestion_control))
        }
        _ => None,
    };
    let servers: Vec<_> = programs(tor, arm).into_iter().filter_map(server).collect();
    let middle = || "middle".to_owned();
    assert_eq!(servers, [(middle(), None), (middle(), Some("bbr".to_owned()))]);
}

#[test]
fn figures_that_a_phase_names_are_kept_under_the_new_name() {
    let figures = "duration = \"5 s\"\nlabels = { part = \"a\" }\nfigures = { open_ms = \"opening_ms\" }";
    let loaded = small(("duration = \"5 s\"", figures)).unwrap();
    let (tor, _) = network_of(&loaded.plan);
    let web = labels([("client", "web")]);
    let sampled = |name: &str| Sampled::one(name, 1.0).with(web.clone());
    let kept = phase::keep(tor.phases[0].as_ref(), vec![sampled("open_ms"), sampled("echo_ms")]);
    let labels = labels([("client", "web"), ("part", "a")]);
    assert_eq!(kept, [Sampled { name: "opening_ms".into(), ..Sampled::one("open_ms", 1.0).with(labels) }]);
}

/// A network in which an upload brings 100 KB in each second, a page comes within half of one every second, and nothing
/// takes any real time.
#[derive(Debug, Default)]
struct Virtual {
    now: Duration,
    circuits: Vec<bool>,
    /// When their building began.
    built: Vec<Duration>,
    sources: Vec<(Source, Duration)>,
    actions: Vec<String>,
    /// When an attacker began who acts once a second, and how often it had acted when it stopped.
    attacked: Option<Duration>,
    acted: u64,
}

impl Virtual {
    fn told(&self, id: SourceId) -> Log {
        let (source, begun) = &self.sources[id.0];
        let seconds = (self.now - *begun).as_secs();
        let event = |second: u64| {
            let then = *begun + Duration::from_secs(second);
            let event = match source.traffic.streams() {
                true => Event::Second {
                    t_s: second as f64,
                    length_s: 1.0,
                    measured: true,
                    throughput_kb_s: 100.0,
                    delay_ms: None,
                    latency_ms: None,
                },
                false => Event::Fetch {
                    t_s: second as f64,
                    bytes: 50_000,
                    open_ms: 210.0,
                    first_byte_ms: 420.0,
                    download_s: 0.5,
                },
            };
            (then, event)
        };
        (1..=seconds).map(event).collect()
    }
}

impl Testbed for Virtual {
    fn now(&self) -> Duration {
        self.now
    }

    fn pass_until(&mut self, then: Duration, on_wait: &mut dyn FnMut()) -> Result<()> {
        on_wait();
        self.now = self.now.max(then);
        Ok(())
    }

    fn change_wire(&mut self, from: &str, to: &str, step: &Step) -> Result<()> {
        self.actions.push(format!("{} s: {from} to {to} is down: {:?}", self.now.as_secs(), step.down));
        Ok(())
    }

    fn let_attack(&mut self, on: bool) -> Result<()> {
        let begun = self.attacked.take();
        self.acted += begun.map_or(0, |begun| (self.now - begun).as_secs());
        self.attacked = on.then_some(self.now);
        Ok(())
    }

    fn attacks(&mut self) -> Result<Attacks> {
        Ok(Attacks::from([("tamper", self.acted)]))
    }

    fn watch(&mut self, one: &str, other: &str) -> Result<()> {
        self.actions.push(format!("{} ms: {one} to {other} is watched", self.now.as_millis()));
        Ok(())
    }

    /// Each circuit was a packet in its first 10 ms.
    fn watched(&mut self) -> Result<Capture> {
        let mut capture = Capture::default();
        let built = self.built.iter();
        built.for_each(|at| capture.add(*at + Duration::from_millis(9), true, &[0x45; 600]));
        Ok(capture)
    }

    fn build_circuits(&mut self, wanted: &[CircuitOrder<'_>]) -> Result<Vec<Built>> {
        self.built.extend(wanted.iter().map(|_| self.now));
        self.now += Duration::from_millis(300);
        let build = |order: &CircuitOrder<'_>| {
            self.actions.push(format!("{} over {}", order.proxy, order.path.join(", ")));
            self.circuits.push(true);
            Built { circuit: Circuit(self.circuits.len() - 1), took: Duration::from_millis(300) }
        };
        Ok(wanted.iter().map(build).collect())
    }

    fn is_open(&mut self, circuit: Circuit) -> Result<bool> {
        Ok(self.circuits[circuit.0])
    }

    fn close_circuits(&mut self, circuits: &[Circuit]) -> Result<()> {
        circuits.iter().for_each(|circuit| self.circuits[circuit.0] = false);
        Ok(())
    }

    fn start(&mut self, sources: Vec<Source>) -> Result<Vec<SourceId>> {
        let start = |source: Source| {
            self.actions.push(format!("{} starts {}", source.host, source.label));
            self.sources.push((source, self.now));
            SourceId(self.sources.len() - 1)
        };
        Ok(sources.into_iter().map(start).collect())
    }

    fn wait_until_steady(&mut self, sources: &[SourceId]) -> Result<()> {
        self.now += Duration::from_secs(2 * sources.len() as u64);
        Ok(())
    }

    fn stop(&mut self, sources: &[SourceId]) -> Result<Vec<Log>> {
        self.actions.push(format!("{} s: {} stop", self.now.as_secs(), sources.len()));
        Ok(sources.iter().map(|source| self.told(*source)).collect())
    }

    fn run_flows(&mut self, _flows: &[WireFlow<'_>], _on_wait: &mut dyn FnMut()) -> Result<Vec<Outcome>> {
        Err(Error::Options("there are no single wires here".into()))
    }

    fn wire(&mut self, _from: &str, _to: &str) -> Result<DirectionStats> {
        Ok(DirectionStats { bytes_out: 1_000_000 * self.now.as_secs(), ..DirectionStats::default() })
    }

    fn usage(&mut self, _relay: &str) -> Result<Option<Spent>> {
        Ok(Some(Spent { cpu_s: self.now.as_secs_f64() / 10.0, memory_bytes: Some(30_000_000) }))
    }

    fn connections(&mut self, _relay: &str) -> Result<Option<Vec<(String, TcpConnection)>>> {
        Ok(None)
    }

    fn metrics(&mut self, _relay: &str) -> Result<Option<Metrics>> {
        Ok(None)
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_down(self: Box<Self>) -> Result<BackendReport> {
        Ok(BackendReport::default())
    }
}

#[test]
fn flows_stand_in_for_all_clients_where_the_arm_says_so() {
    let flow = "[[tor.flow]]\nname = \"kernel\"\nfrom = \"guard\"\nto = \"middle\"\nstands_in = true\nprogram = { bulk = {} }\n\n[[tor.phase]]";
    let starts = |stand_ins: bool| {
        let loaded = small(("[[tor.phase]]", flow)).unwrap();
        let (tor, arm) = network_of(&loaded.plan);
        let arm = &TorArm { stand_ins, ..arm.clone() };
        let mut testbed = Virtual::default();
        let run = phase::PhaseRun { tor, arm, phase: tor.phases[0].as_ref(), seed: 7 };
        run.measure(&mut testbed, &mut |_| ()).unwrap();
        let starts = testbed.actions.into_iter().filter(|line| line.contains(" starts "));
        (starts.collect::<Vec<_>>(), testbed.circuits.len())
    };
    assert_eq!(starts(true), (vec!["guard starts all kernel".to_owned()], 0));
    assert_eq!(starts(false), (vec!["up starts all up".to_owned(), "web starts all web".to_owned()], 2));
}

#[test]
fn contests_side_by_side_are_told_apart_by_their_wires() {
    let part = BTreeMap::from([("part".to_owned(), "2".to_owned())]);
    let plan = Plan::load("cc-evaluation-events", &part).unwrap().plan;
    let tor = plan.tor.as_ref().unwrap().as_ref();
    let kernel = plan.arms.iter().map(|arm| arm.as_ref()).find(|arm| arm.name == "kernel").unwrap();
    let arm = kernel.tor.as_ref().unwrap();
    let run = phase::PhaseRun { tor, arm, phase: tor.phases[0].as_ref(), seed: 7 };
    let measured = run.measure(&mut Virtual::default(), &mut |_| ()).unwrap();
    let values = |name: &str| -> BTreeMap<String, f64> {
        let found = measured.samples.iter().filter(|sampled| sampled.name == name);
        found.map(|sampled| (sampled.labels["contest"].clone(), sampled.values[0])).collect()
    };
    // Everybody has the same before and after. That is enough but where the wire became five times as fast.
    let back = [("ratedown", 0.0), ("rateup", 10.0), ("rttdown", 0.0), ("rttup", 0.0)];
    assert_eq!(values("back_s"), back.map(|(contest, back_s)| (contest.to_owned(), back_s)).into());
    assert_eq!(values("loss_inflicted_pct").len(), 4);
    assert_eq!(values("received_kb_s").values().copied().collect::<Vec<_>>(), [400.0; 4]);
}

#[test]
fn a_phase_is_played_in_any_kind_of_time() {
    let change =
        "duration = \"4 s\"\nchanges = [{ after = \"1 s\", wires = { path = { there = { down = true } } } }]";
    let loaded = small(("duration = \"5 s\"", change)).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let mut testbed = Virtual::default();
    let phase = tor.phases[0].as_ref();
    let run = phase::PhaseRun { tor, arm, phase, seed: 7 };
    let measured = run.measure(&mut testbed, &mut |_| ()).unwrap();
    assert_eq!(measured.faults, [""; 0]);
    // The stream is steady after two seconds; then the window opens, and a second later the wires go down.
    let mut lines = testbed.actions.iter().map(String::as_str).filter(|line| !line.contains(" is down: "));
    let path = "guard, middle, exit";
    assert_eq!(lines.next(), Some(&*format!("web over {path}")));
    assert_eq!(lines.next(), Some(&*format!("up over {path}")));
    let rest: Vec<&str> = lines.collect();
    assert_eq!(rest, ["up starts all up", "web starts all web", "6 s: 1 stop", "6 s: 1 stop"]);
    let down: BTreeSet<&str> =
        testbed.actions.iter().filter(|line| line.contains("Some(true)")).map(|line| &line[..4]).collect();
    assert_eq!(down, BTreeSet::from(["3 s:"]));
    assert!(testbed.circuits.iter().all(|open| !open));
    let values = |name: &str| -> Vec<f64> {
        let found = measured.samples.iter().filter(|sampled| sampled.name == name);
        found.flat_map(|sampled| sampled.values.clone()).collect()
    };
    assert_eq!(values("throughput_kb_s"), [100.0; 4]);
    assert_eq!(values("first_byte_ms"), [420.0; 4]);
    assert_eq!(values("circuit_ms"), [300.0; 2]);
    assert_eq!(values("circuits_left_pct"), [100.0]);
    assert!(values("relay_cpu_s").iter().all(|cpu_s| (cpu_s - 0.4).abs() < 1e-9));
    // Both clients are on each relay's circuits, and got 600 KB in the four seconds.
    assert!(values("relay_cpu_s_per_gb").iter().all(|cost| (cost - 0.4 / 0.000_6).abs() < 1e-6));
    assert_eq!(values("relay_cpu_s_per_gb").len(), 3);
    // Four wires of the group's two directions carried 1 MB a second.
    assert_eq!(values("wire_mb"), [8.0; 2]);
}

#[test]
fn how_often_attackers_acted_is_told_of_phases_that_have_some() {
    let loaded = small(("small", "small")).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let mut testbed = Virtual { acted: 70, ..Virtual::default() };
    let mut attacks = |attack: bool| -> Vec<(String, f64)> {
        let phase = &Phase { attack, ..tor.phases[0].as_ref().clone() };
        let run = phase::PhaseRun { tor, arm, phase, seed: 7 };
        let measured = run.measure(&mut testbed, &mut |_| ()).unwrap();
        let found = measured.samples.into_iter().filter(|sampled| sampled.name == "attacks");
        found.map(|sampled| (sampled.labels["kind"].clone(), sampled.values[0])).collect()
    };
    // The phase counts for five seconds; what happened before it is not its own.
    assert_eq!(attacks(true), [("tamper".to_owned(), 5.0)]);
    assert_eq!(attacks(false), []);
    assert_eq!(attacks(true), [("tamper".to_owned(), 5.0)]);
}

#[test]
fn circuits_begin_and_end_while_somebody_looks_at_the_wire() {
    let view = "duration = \"6 s\"\nclients = [\"up\"]\n\
                view = { wire = [\"middle\", \"guard\"], visitor = \"web\", every = \"1 s\", idle = 2 }";
    let loaded = small(("duration = \"5 s\"", view)).unwrap();
    let (tor, arm) = network_of(&loaded.plan);
    let mut testbed = Virtual::default();
    let run = phase::PhaseRun { tor, arm, phase: tor.phases[0].as_ref(), seed: 7 };
    let measured = run.measure(&mut testbed, &mut |_| ()).unwrap();
    assert_eq!(measured.faults, [""; 0]);
    // The upload's circuit takes 0.3 s, the idle two as long, and a steady stream two seconds.
    assert!(testbed.actions.contains(&"2600 ms: middle to guard is watched".to_owned()), "{testbed:?}");
    let begun = (0..6).map(|n| Duration::from_millis(2600 + 1000 * n));
    assert_eq!(testbed.built[3..], begun.collect::<Vec<_>>());
    assert!(testbed.circuits.iter().all(|open| !open));
    let values = |name: &str| -> Vec<f64> {
        let found = measured.samples.iter().filter(|sampled| sampled.name == name);
        found.flat_map(|sampled| sampled.values.clone()).collect()
    };
    // There, and back.
    assert_eq!(values("beginning_packets"), [[1.0; 6], [0.0; 6]].concat());
    assert_eq!(values("end_packets"), [0.0; 12]);
    assert_eq!((values("beginnings_shown"), values("ends_shown")), (vec![1.0], vec![0.5]));
    assert_eq!(values("wire_lengths"), [1.0, 0.0]);
    // What is no packet is told as not understood.
    assert_eq!(values("unread_pct"), [100.0]);
}
