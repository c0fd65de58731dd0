//! The rows of a table of contests become relays, wires, clients, flows and phases of the network.

use std::time::Duration;

use heddle_netem::{CodelOptions, DirectionOptions, PolicerOptions, QueueOptions, Rate};
use toml::Spanned;

use super::clients::{Client, Flow, Traffic};
use super::contest::{Contest, Contests, Queue};
use super::grid::queue_bytes;
use super::network::{Change, Phase, Relay, Tor, WireGroup, WirePair, pairs_max};
use crate::figures::{Labels, labels};

/// What connections for pages fetch, and how long they pause.
const PAGE: Traffic = Traffic::Fetch {
    size: [30 << 10, 300 << 10],
    pause: [Duration::from_millis(200), Duration::from_millis(1000)],
};
const BULK: Traffic = Traffic::Bulk { limit_kb_s: 0, reads_for: Duration::ZERO };

/// Adds what the network's contests need to it.
pub(super) fn expand(tor: &mut Tor) {
    let Some(contests) = tor.contests.clone() else { return };
    let (at, contests) = (contests.span(), contests.into_inner());
    for contest in &contests.list {
        tor.relays.push(Spanned::new(at.clone(), Relay { name: contest.guard(), ..Relay::default() }));
        tor.wires.push(Spanned::new(at.clone(), contest.wire_group(&contests)));
        tor.clients.push(Spanned::new(at.clone(), contest.client(&contests)));
        let flows = contest.flows(&contests);
        tor.flows.extend(flows.into_iter().map(|flow| Spanned::new(at.clone(), flow)));
        let phases = [false, true].into_iter().filter(|is_beside| !is_beside || contest.has_company());
        let phases = phases.map(|is_beside| contest.phase(&contests, is_beside));
        tor.phases.extend(phases.map(|phase| Spanned::new(at.clone(), phase)));
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
        WireGroup { name: self.name.clone(), between: vec![[sender, self.guard()]], there, back }
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
        let labels = labels([("client", "pair")]);
        Client { name: self.client_name(), path, circuits: self.circuits, program: BULK, labels }
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
            labels: labels([("client", what)]),
            congestion_control: Some(self.against.clone()),
            stands_in: false,
        };
        let stand_ins = Flow {
            labels: labels([("client", "pair")]),
            congestion_control: None,
            stands_in: true,
            ..flow("kernel", self.circuits.min(contests.tcps_max), BULK)
        };
        let beside = [
            ("tcp", self.tcp, BULK),
            ("pages", self.pages, PAGE),
            ("uploads", self.uploads, Traffic::Upload {}),
        ];
        let beside = beside.into_iter().filter(|(_, connections, _)| *connections > 0);
        [stand_ins]
            .into_iter()
            .chain(beside.map(|(what, connections, program)| flow(what, connections, program)))
            .collect()
    }

    fn phase(&self, contests: &Contests, is_beside: bool) -> Phase {
        let mut clients = vec![self.client_name(), self.flow_name("kernel")];
        if is_beside {
            let beside = self.flows(contests).into_iter().filter(|flow| !flow.stands_in);
            clients.extend(beside.map(|flow| flow.name));
        }
        let beside = if is_beside { "beside" } else { "alone" };
        let half = contests.duration / 2;
        let change = self.becomes.map(|becomes| {
            let wire = self.wire(becomes.mbit.unwrap_or(self.mbit), becomes.rtt_ms.unwrap_or(self.rtt_ms));
            Change { after: half, wires: [(self.name.clone(), wire)].into() }
        });
        Phase {
            name: format!("{} {beside}", self.name),
            labels: self.labels(beside),
            changes: change.into_iter().collect(),
            clients,
            steady_max: contests.steady_max,
            warm_up: contests.warm_up,
            figures: contests.figures.clone(),
            bottleneck: Some(self.name.clone()),
            duration: contests.duration,
            pairs_max: pairs_max(),
            ..Phase::default()
        }
    }

    fn labels(&self, beside: &str) -> Labels {
        labels([
            ("contest", &self.name),
            ("circuits", &self.circuits.to_string()),
            ("mbit", &self.mbit.to_string()),
            ("rtt_ms", &self.rtt_ms.to_string()),
            ("queue", &self.queue.name()),
            ("against", &self.against),
            ("phase", beside),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use heddle_netem::Seed;

    use super::*;
    use crate::plan::Plan;

    const FAMILY: [&str; 3] = ["cc-evaluation-queues", "cc-evaluation-aqm", "cc-evaluation-events"];
    const CIRCUITS: [usize; 5] = [1, 4, 20, 100, 300];
    const MBIT: [u64; 2] = [10, 50];
    const RTT_MS: [u64; 3] = [20, 100, 300];
    const AGAINST: [&str; 2] = ["cubic", "bbr"];

    fn plan(name: &str) -> Plan {
        Plan::load(name, &BTreeMap::new()).unwrap().plan
    }

    fn contests(plan: &Plan) -> &[Contest] {
        &plan.tor.as_ref().unwrap().as_ref().contests.as_ref().unwrap().as_ref().list
    }

    /// A Latin hypercube of so many rows: each column has its values in turn, shuffled by Fisher and Yates. Queues and what is
    /// beside are one column.
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
        let plan = plan(FAMILY[0]);
        let tor = plan.tor.as_ref().unwrap().as_ref();
        let contests = contests(&plan);
        assert_eq!(tor.phases.len(), 2 * contests.len());
        for (contest, group) in contests.iter().zip(&tor.wires) {
            let group = group.as_ref();
            assert_eq!(group.between, [["middle".to_owned(), format!("guard{}", contest.name)]]);
            assert_eq!(group.there.rate, Rate::BitsPerS(contest.mbit * 1_000_000));
            let delay_ns = |direction: &DirectionOptions| direction.delay_ns;
            let round_trip_ns = delay_ns(&group.there) + group.back.as_ref().map_or(0, delay_ns);
            assert_eq!(round_trip_ns, contest.rtt_ms * 1_000_000);
            let stand_ins =
                tor.flows.iter().map(Spanned::as_ref).find(|flow| flow.name == contest.flow_name("kernel"));
            assert_eq!(stand_ins.unwrap().connections, contest.circuits.min(8));
        }
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
        let plan = plan(FAMILY[2]);
        let tor = plan.tor.as_ref().unwrap().as_ref();
        let phase = tor.phases.iter().map(Spanned::as_ref).find(|phase| phase.name == "rttup alone").unwrap();
        let change = &phase.changes[0];
        assert_eq!(change.after * 2, phase.duration);
        assert_eq!(change.wires["rttup"].there.delay_ns, 30_000_000);
        assert_eq!(phase.bottleneck.as_deref(), Some("rttup"));
    }
}
