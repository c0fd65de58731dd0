//! The rows of a table of contests become relays, wires, clients, flows and phases of the network.

use std::time::Duration;

use heddle_netem::{CodelOptions, DirectionOptions, InterfaceOptions, PolicerOptions, QueueOptions, Rate};
use toml::Spanned;

use super::clients::{Client, Flow, Traffic};
use super::contest::{Becomes, Contest, Contests, Queue};
use super::grid::queue_bytes;
use super::model::Plan;
use super::network::{Change, Phase, Relay, WireGroup, WirePair, pairs_max};
use crate::figures::{Labels, labels};

/// What connections for pages fetch, and how long they pause.
const PAGE: Traffic = Traffic::Fetch {
    size: [30 << 10, 300 << 10],
    pause: [Duration::from_millis(200), Duration::from_millis(1000)],
};
const BULK: Traffic = Traffic::Bulk { limit_kb_s: 0, reads_for: Duration::ZERO };

/// The phases of contests: beside TCP or not, and with as many stand-ins as a pair contends as at most or not.
const PHASES: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

/// Adds what a plan's contests need to its network, and leaves out the targets that are about other parts of their
/// list.
pub(super) fn expand(plan: &mut Plan) {
    let Plan { tor: Some(tor), targets, .. } = plan else { return };
    let tor = tor.as_mut();
    let Some(contests) = tor.contests.clone() else { return };
    let (at, contests) = (contests.span(), contests.into_inner());
    for contest in contests.of_part() {
        tor.relays.push(Spanned::new(at.clone(), Relay { name: contest.guard(), ..Relay::default() }));
        tor.wires.push(Spanned::new(at.clone(), contest.wire_group(&contests)));
        tor.clients.push(Spanned::new(at.clone(), contest.client(&contests)));
        let flows = contest.flows(&contests);
        tor.flows.extend(flows.into_iter().map(|flow| Spanned::new(at.clone(), flow)));
    }
    let phases = PHASES.into_iter().filter_map(|(is_beside, is_cap)| contests.phase(is_beside, is_cap));
    tor.phases.extend(phases.map(|phase| Spanned::new(at.clone(), phase)));
    targets.retain(|target| contests.may_give(&target.as_ref().labels));
}

impl Contests {
    fn of_part(&self) -> impl Iterator<Item = &Contest> {
        self.list.iter().filter(|contest| contest.part == self.part)
    }

    /// Whether a figure with these labels can be this part's.
    fn may_give(&self, labels: &Labels) -> bool {
        let is_of = |contest: &Contest| {
            labels.get("contest").is_none_or(|name| *name == contest.name)
                && (contest.has_company() || labels.get("phase").is_none_or(|phase| phase != "beside"))
        };
        self.of_part().any(is_of)
    }

    /// All contests of the part at the same time, those without company only alone; `None` where there are none.
    fn phase(&self, is_beside: bool, is_cap: bool) -> Option<Phase> {
        let contests: Vec<&Contest> =
            self.of_part().filter(|contest| !is_beside || contest.has_company()).collect();
        let (name, duration) = if is_beside { ("beside", self.beside) } else { ("alone", self.alone) };
        let changes = contests.iter().filter_map(|contest| Some((contest.name.clone(), contest.changed()?)));
        let change = Change { after: duration / 2, wires: changes.collect() };
        let of_phase = labels([("phase", name)]);
        let phase = Phase {
            name: if is_cap { format!("{name} cap") } else { name.to_owned() },
            labels: if is_cap {
                of_phase.into_iter().chain(self.cap_labels.clone()).collect()
            } else {
                of_phase
            },
            changes: Some(change).filter(|change| !change.wires.is_empty()).into_iter().collect(),
            clients: contests.iter().flat_map(|contest| contest.actors(self, is_beside, is_cap)).collect(),
            steady_max: self.steady_max,
            warm_up: self.warm_up,
            figures: self.figures.clone(),
            bottlenecks: contests.iter().map(|contest| contest.name.clone()).collect(),
            stand_ins: is_cap,
            duration,
            pairs_max: pairs_max(),
            ..Phase::default()
        };
        (!contests.is_empty()).then_some(phase)
    }
}

impl Contest {
    fn guard(&self) -> String {
        format!("guard{}", self.name)
    }

    fn has_company(&self) -> bool {
        self.tcp + self.pages + self.uploads > 0
    }

    fn client_name(&self) -> String {
        format!("busy-{}", self.name)
    }

    fn flow_name(&self, what: &str) -> String {
        format!("{what}-{}", self.name)
    }

    fn wire_group(&self, contests: &Contests) -> WireGroup {
        let sender = contests.path.first().cloned().unwrap_or_default();
        let WirePair { there, back } = self.wire(self.mbit, self.rtt_ms);
        let between = vec![[sender, self.guard()]];
        WireGroup { name: self.name.clone(), between, there, back, labels: self.labels() }
    }

    /// The wire with this rate and round trip. Its queues are those of the contest's own.
    fn wire(&self, mbit: u64, rtt_ms: u64) -> WirePair {
        let one_bdp = queue_bytes(self.mbit, self.rtt_ms as f64);
        let tail = |bytes_max| QueueOptions { packets_max: 1_000_000, bytes_max, codel: None };
        let codel = |ecn| QueueOptions {
            codel: Some(CodelOptions { ecn, ..CodelOptions::default() }),
            ..QueueOptions::default()
        };
        let plain = DirectionOptions {
            rate: Rate::BitsPerS(mbit * 1_000_000),
            delay_ns: rtt_ms * 500_000,
            queue: tail(one_bdp),
            ..DirectionOptions::default()
        };
        let lossy =
            DirectionOptions { loss: self.loss.clone(), reorder: self.reorder.clone(), ..plain.clone() };
        let there = match self.queue {
            Queue::Ms(ms) => DirectionOptions { queue: tail(queue_bytes(self.mbit, ms)), ..lossy },
            Queue::Bdp(round_trips) => {
                let bytes = queue_bytes(self.mbit, self.rtt_ms as f64 * round_trips);
                DirectionOptions { queue: tail(bytes), ..lossy }
            }
            Queue::Codel => DirectionOptions { queue: codel(false), ..lossy },
            Queue::CodelEcn => DirectionOptions { queue: codel(true), ..lossy },
            Queue::Policer => DirectionOptions {
                rate: Rate::Unlimited,
                policer: Some(PolicerOptions { rate_bits_per_s: mbit * 1_000_000, burst_bytes: one_bdp }),
                ..lossy
            },
        };
        WirePair { there, back: Some(plain) }
    }

    fn client(&self, contests: &Contests) -> Client {
        let path = [&[self.guard()], &contests.path[..]].concat();
        let labels = self.labels_of("pair");
        Client {
            name: self.client_name(),
            count: None,
            share: None,
            place: None,
            path,
            up: InterfaceOptions::default(),
            down: InterfaceOptions::default(),
            circuits: self.circuits,
            program: BULK,
            labels,
        }
    }

    /// Kernel TCP over the wire: what stands in for the circuits, and what is beside.
    fn flows(&self, contests: &Contests) -> Vec<Flow> {
        let sender = contests.path.first().cloned().unwrap_or_default();
        let flow = |what: &str, connections: usize, program: Traffic| Flow {
            name: self.flow_name(what),
            from: self.guard(),
            to: sender.clone(),
            connections,
            program,
            labels: self.labels_of(what),
            congestion_control: Some(self.against.clone()),
            stands_in: false,
        };
        let stand_ins = [("kernel", self.circuits.min(contests.tcps_max)), ("cap", contests.tcps_max)];
        let stand_ins = stand_ins.map(|(what, connections)| Flow {
            labels: self.labels_of("pair"),
            congestion_control: None,
            stands_in: true,
            ..flow(what, connections, BULK)
        });
        let beside = [
            ("tcp", self.tcp, BULK),
            ("pages", self.pages, PAGE),
            ("uploads", self.uploads, Traffic::Upload {}),
        ];
        let beside = beside.into_iter().filter(|(_, connections, _)| *connections > 0);
        stand_ins
            .into_iter()
            .chain(beside.map(|(what, connections, program)| flow(what, connections, program)))
            .collect()
    }

    /// Who does something in a phase.
    fn actors(&self, contests: &Contests, is_beside: bool, is_cap: bool) -> Vec<String> {
        let mut actors = match is_cap {
            true => vec![self.flow_name("cap")],
            false => vec![self.client_name(), self.flow_name("kernel")],
        };
        if is_beside {
            let beside = self.flows(contests).into_iter().filter(|flow| !flow.stands_in);
            actors.extend(beside.map(|flow| flow.name));
        }
        actors
    }

    /// What the wire becomes.
    fn changed(&self) -> Option<WirePair> {
        let Becomes { mbit, rtt_ms } = self.becomes?;
        Some(self.wire(mbit.unwrap_or(self.mbit), rtt_ms.unwrap_or(self.rtt_ms)))
    }

    fn labels_of(&self, client: &str) -> Labels {
        self.labels().into_iter().chain(labels([("client", client)])).collect()
    }

    fn labels(&self) -> Labels {
        labels([
            ("contest", &self.name),
            ("circuits", &self.circuits.to_string()),
            ("mbit", &self.mbit.to_string()),
            ("rtt_ms", &self.rtt_ms.to_string()),
            ("queue", &self.queue.name()),
            ("against", &self.against),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use heddle_netem::Seed;

    use super::*;
    use crate::plan::{Tor, TorArm, estimate};

    const FAMILY: [&str; 3] = ["cc-evaluation-queues", "cc-evaluation-aqm", "cc-evaluation-events"];
    const CIRCUITS: [usize; 5] = [1, 4, 20, 100, 300];
    const MBIT: [u64; 2] = [10, 50];
    const RTT_MS: [u64; 3] = [20, 100, 300];
    const AGAINST: [&str; 2] = ["cubic", "bbr"];

    fn plan(name: &str) -> Plan {
        part(name, 1)
    }

    fn part(name: &str, part: usize) -> Plan {
        Plan::load(name, &BTreeMap::from([("part".to_owned(), part.to_string())])).unwrap().plan
    }

    fn network(plan: &Plan) -> &Tor {
        plan.tor.as_ref().unwrap().as_ref()
    }

    fn arm<'a>(plan: &'a Plan, name: &str) -> &'a TorArm {
        let arm = plan.arms.iter().map(Spanned::as_ref).find(|arm| arm.name == name);
        arm.unwrap().tor.as_ref().unwrap()
    }

    /// The parts of a plan's table.
    fn parts(name: &str) -> impl Iterator<Item = Plan> {
        let last = contests(&plan(name)).iter().map(|contest| contest.part).max().unwrap();
        (1..=last).map(move |number| part(name, number))
    }

    fn contests(plan: &Plan) -> &[Contest] {
        &plan.tor.as_ref().unwrap().as_ref().contests.as_ref().unwrap().as_ref().list
    }

    /// A Latin hypercube of so many rows: each column has its values in turn, shuffled by Fisher and Yates. Queues and
    /// what is beside are one column.
    fn drawn(plan: &str, rows: usize, queues: &[Queue]) -> Vec<(usize, u64, u64, Queue, String)> {
        let mut rng = Seed::from_number(1).child(&[plan]).rng();
        let mut column = |values: usize| -> Vec<usize> {
            let mut column: Vec<usize> = (0..rows).map(|row| row % values).collect();
            for place in 0..rows {
                column.swap(place, place + rng.below((rows - place) as u64) as usize);
            }
            column
        };
        let columns =
            [CIRCUITS.len(), MBIT.len(), RTT_MS.len(), queues.len() * AGAINST.len()].map(&mut column);
        let row = |row: usize| {
            let [circuits, mbit, rtt_ms, both] = [0, 1, 2, 3].map(|column| columns[column][row]);
            let (queue, against) = (queues[both / AGAINST.len()], AGAINST[both % AGAINST.len()]);
            (CIRCUITS[circuits], MBIT[mbit], RTT_MS[rtt_ms], queue, against.to_owned())
        };
        (0..rows).map(row).collect()
    }

    #[test]
    fn the_tables_have_the_rows_that_were_drawn() {
        let drop_tail = [Queue::Ms(5.0), Queue::Bdp(0.5), Queue::Bdp(1.0), Queue::Bdp(4.0)];
        let others = [Queue::Codel, Queue::CodelEcn, Queue::Policer];
        for (name, rows, queues) in [(FAMILY[0], 8, &drop_tail[..]), (FAMILY[1], 9, &others)] {
            let plan = plan(name);
            let row = |contest: &Contest| {
                let Contest { circuits, mbit, rtt_ms, queue, against, .. } = contest.clone();
                (circuits, mbit, rtt_ms, queue, against)
            };
            let rows_of_plan: Vec<_> = contests(&plan).iter().map(row).collect();
            assert_eq!(rows_of_plan, drawn(name, rows, queues), "{name}");
        }
    }

    #[test]
    fn a_contest_is_a_wire_of_its_own_with_as_many_stand_ins_as_a_pair_stands_for() {
        for plan in FAMILY.into_iter().flat_map(parts) {
            let tor = network(&plan);
            let part: Vec<&Contest> = tor.contests.as_ref().unwrap().as_ref().of_part().collect();
            assert_eq!((tor.wires.len(), tor.clients.len()), (part.len(), part.len()));
            for (contest, group) in part.iter().zip(&tor.wires) {
                let group = group.as_ref();
                assert_eq!(group.between, [["middle".to_owned(), format!("guard{}", contest.name)]]);
                assert_eq!(
                    group.there.delay_ns + group.back.as_ref().unwrap().delay_ns,
                    contest.rtt_ms * 1_000_000
                );
                let connections = |what: &str| {
                    let name = contest.flow_name(what);
                    tor.flows.iter().map(Spanned::as_ref).find(|flow| flow.name == name).unwrap().connections
                };
                // Harm is measured against as many TCPs as a pair stands for, and loss against as many as it does at
                // most.
                assert_eq!((connections("kernel"), connections("cap")), (contest.circuits.min(8), 8));
            }
        }
    }

    #[test]
    fn contests_of_a_part_go_on_at_the_same_time() {
        let plan = part(FAMILY[2], 1);
        let (tor, quic, kernel) = (network(&plan), arm(&plan, "quic"), arm(&plan, "kernel"));
        let names = |arm| tor.phases_of(arm, 0).map(|phase| &*phase.name).collect::<Vec<_>>();
        assert_eq!(names(quic), ["alone", "beside"]);
        assert_eq!(names(kernel), ["alone", "beside", "alone cap", "beside cap"]);
        let phases: Vec<&Phase> = tor.phases_of(kernel, 0).collect();
        assert_eq!(phases[0].bottlenecks, ["burst", "reorder", "pages", "reverse", "many100", "many300"]);
        assert_eq!(phases[0].clients[..2], ["busy-burst", "kernel-burst"]);
        assert_eq!(phases[3].clients[..2], ["cap-burst", "tcp-burst"]);
        assert_eq!(
            [phases[1], phases[3]].map(|phase| phase.labels.get("contender").map(String::as_str)),
            [None, Some("cap")]
        );
    }

    #[test]
    fn all_parts_keep_the_budgets_of_time_and_of_packets() {
        for plan in FAMILY.into_iter().flat_map(parts) {
            for arms in [["quic", "kernel"], ["tcp-dtls", "kernel"]] {
                let chosen = plan.with_arms(&arms.map(str::to_owned)).unwrap();
                assert!(
                    plan.runs >= 3 && estimate(&chosen) * plan.runs as u32 <= plan.budget,
                    "{}",
                    plan.name
                );
            }
            let part = network(&plan).contests.as_ref().unwrap().as_ref().of_part();
            let mbit = part.map(|contest| {
                [contest.mbit, contest.becomes.and_then(|to| to.mbit).unwrap_or(contest.mbit)]
            });
            let [before, after] = mbit.fold([0, 0], |sum, mbit| [sum[0] + mbit[0], sum[1] + mbit[1]]);
            // Packets of 1,500 bytes over three wires, and an acknowledgement for two of them.
            let packets_per_s = before.max(after) * 1_000_000 / (8 * 1500) * 9 / 2;
            assert!(packets_per_s <= 40_000, "{}: {packets_per_s}", plan.name);
        }
    }

    #[test]
    fn targets_are_about_the_part_that_is_measured() {
        let about = |part_number| -> Vec<String> {
            let plan = part(FAMILY[2], part_number);
            let contest =
                |target: &Spanned<crate::plan::Target>| target.as_ref().labels.get("contest").cloned();
            plan.targets.iter().filter_map(contest).collect()
        };
        let is_in = |part_number, contest: &str| about(part_number).iter().any(|about| about == contest);
        assert!(is_in(1, "many300") && is_in(2, "rttup") && !is_in(1, "rttup") && !is_in(2, "many300"));
        let kept = |part_number| {
            part(FAMILY[2], part_number).targets.iter().any(|target| target.as_ref().figure == "tcp_kept")
        };
        assert_eq!([kept(1), kept(2)], [true, false]);
    }

    #[test]
    fn relays_are_told_as_how_many_tcps_they_contend() {
        for (name, tcps_max) in FAMILY.into_iter().flat_map(|name| [(name, 8), (name, 1)]) {
            let set = BTreeMap::from([("tcps_max".to_owned(), tcps_max.to_string())]);
            let plan = Plan::load(name, &set).unwrap().plan;
            let tor = plan.tor.as_ref().unwrap().as_ref();
            let line = format!("ConsensusParams heddle_cc_tcps_max={tcps_max}");
            assert_eq!(tor.authority_torrc, [line], "{name}");
            let most = tor.flows.iter().map(Spanned::as_ref).filter(|flow| flow.stands_in);
            assert_eq!(most.map(|flow| flow.connections).max(), Some(tcps_max), "{name}");
        }
    }

    #[test]
    fn queues_are_what_they_are_called() {
        let plan = plan(FAMILY[0]);
        let there = |queue| {
            let contest = Contest { queue, mbit: 10, rtt_ms: 100, ..contests(&plan)[0].clone() };
            contest.wire(10, 100).there
        };
        assert_eq!(there(Queue::Ms(5.0)).queue.bytes_max, 6250);
        assert_eq!(there(Queue::Bdp(0.5)).queue.bytes_max, 62_500);
        let marks = |queue| there(queue).queue.codel.map(|codel| codel.ecn);
        assert_eq!(
            [Queue::Bdp(1.0), Queue::Codel, Queue::CodelEcn].map(marks),
            [None, Some(false), Some(true)]
        );
        let policed = there(Queue::Policer);
        assert_eq!(policed.policer.unwrap().rate_bits_per_s, 10_000_000);
        assert_eq!(policed.rate, Rate::Unlimited);
    }

    #[test]
    fn wires_change_after_half_of_the_time() {
        let plan = part(FAMILY[2], 2);
        let phase = network(&plan).phases[0].as_ref();
        let change = &phase.changes[0];
        assert_eq!(change.after * 2, phase.duration);
        assert_eq!(change.wires["rttup"].there.delay_ns, 30_000_000);
        assert_eq!(change.wires["rateup"].there.rate, Rate::BitsPerS(50_000_000));
    }
}
