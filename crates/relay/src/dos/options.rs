//! What the operator and the consensus say of the defences.

use heddle_proto::pace::Rate;
use heddle_proto::params::NetworkParams;
use heddle_seam::time::Duration;

/// The `DoS…` options of torrc. Where one is `None` the parameter of the same name in the consensus holds, else what
/// is given here as the default, which is stock Tor's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DosOptions {
    /// `DoSCircuitCreationEnabled`: whether CREATE cells of client addresses are counted. No.
    pub circuit_creation_enabled: Option<bool>,
    /// `DoSCircuitCreationMinConnections`: from how many open connections on an address is held to the rate. 3.
    pub circuit_creation_min_connections: Option<u32>,
    /// `DoSCircuitCreationRate`: circuits of an address per second. 3.
    pub circuit_creation_rate: Option<u32>,
    /// `DoSCircuitCreationBurst`: circuits of an address at once. 90.
    pub circuit_creation_burst: Option<u32>,
    /// `DoSCircuitCreationDefenseType`: 2 refuses all circuits of an address for a time, anything else does nothing. 2.
    pub circuit_creation_defense_type: Option<u32>,
    /// `DoSCircuitCreationDefenseTimePeriod`: for how long in seconds, and a random part of half as long again. 3600.
    pub circuit_creation_defense_period_s: Option<u32>,
    /// `DoSConnectionEnabled`: whether connections of client addresses are limited. No.
    pub connection_enabled: Option<bool>,
    /// `DoSConnectionMaxConcurrentCount`: an address that has more open connections gets no other. 100.
    pub connection_max_concurrent: Option<u32>,
    /// `DoSConnectionDefenseType`: 2 closes connections as they come, anything else does nothing. 2.
    pub connection_defense_type: Option<u32>,
    /// `DoSConnectionConnectRate`: connections of an address per second. 20.
    pub connection_rate: Option<u32>,
    /// `DoSConnectionConnectBurst`: connections of an address at once. 40.
    pub connection_burst: Option<u32>,
    /// `DoSConnectionConnectDefenseTimePeriod`: how long in seconds an address that has used them up gets no other, and
    /// a random part of half as long again. 86,400.
    pub connection_defense_period_s: Option<u32>,
    /// `DoSStreamCreationEnabled`: whether streams and questions of each circuit are limited. No.
    pub stream_creation_enabled: Option<bool>,
    /// `DoSStreamCreationDefenseType`: 2 refuses what is too much, 3 closes the circuit, anything else does nothing. 2.
    pub stream_creation_defense_type: Option<u32>,
    /// `DoSStreamCreationRate`: streams and questions of a circuit per second. 100.
    pub stream_creation_rate: Option<u32>,
    /// `DoSStreamCreationBurst`: streams and questions of a circuit at once. 300.
    pub stream_creation_burst: Option<u32>,
}

/// What is in force; `None` is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defences {
    pub circuits: Option<CircuitDefence>,
    pub connections: Option<ConnectionDefence>,
    pub streams: Option<StreamDefence>,
}

/// Who creates circuits too fast over several connections may create none for a while. So may who fills queues of
/// circuits again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitDefence {
    pub connections_min: u32,
    pub rate: Rate,
    pub period: Duration,
    /// How many circuits of an address may end since their queues towards the next relay are full; 0 for any number.
    pub full_queues_max: u32,
}

/// Who has too many connections gets no other; who connects too fast gets none for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionDefence {
    pub concurrent_max: u32,
    pub rate: Rate,
    pub period: Duration,
}

/// A circuit begins streams and asks for names no faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamDefence {
    pub rate: Rate,
    pub action: StreamAction,
}

/// What becomes of a stream or question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAction {
    Admit,
    Refuse,
    CloseCircuit,
}

/// What the consensus says where the operator says nothing. The ranges are those of `dos.c`; it clamps what the
/// consensus says, and takes what the operator says.
struct Chosen<'a>(&'a NetworkParams);

impl Chosen<'_> {
    fn number(&self, own: Option<u32>, name: &str, default: i32, min: i32) -> u32 {
        own.unwrap_or_else(|| self.0.get(name, default, min, i32::MAX).unsigned_abs())
    }

    fn is_on(&self, own: Option<bool>, name: &str) -> bool {
        own.unwrap_or_else(|| self.0.get(name, 0, 0, 1) == 1)
    }

    /// The type of a defence, of which there are so many.
    fn defense_type(&self, own: Option<u32>, name: &str, max: i32) -> u32 {
        own.unwrap_or_else(|| self.0.get(name, 2, 1, max).unsigned_abs())
    }
}

impl DosOptions {
    /// What is in force under these parameters.
    pub(crate) fn defences(&self, params: &NetworkParams) -> Defences {
        let chosen = Chosen(params);
        Defences {
            circuits: self.circuits(&chosen),
            connections: self.connections(&chosen),
            streams: self.streams(&chosen),
        }
    }

    fn circuits(&self, chosen: &Chosen<'_>) -> Option<CircuitDefence> {
        let of = |own, name, default, min| chosen.number(own, name, default, min);
        let defence = CircuitDefence {
            connections_min: of(
                self.circuit_creation_min_connections,
                "DoSCircuitCreationMinConnections",
                3,
                1,
            ),
            rate: Rate {
                per_s: of(self.circuit_creation_rate, "DoSCircuitCreationRate", 3, 1),
                burst: of(self.circuit_creation_burst, "DoSCircuitCreationBurst", 90, 1),
            },
            period: secs(of(
                self.circuit_creation_defense_period_s,
                "DoSCircuitCreationDefenseTimePeriod",
                3600,
                0,
            )),
            full_queues_max: of(None, "dos_num_circ_max_outq", 3, 0),
        };
        let name = "DoSCircuitCreationDefenseType";
        let refuses = chosen.defense_type(self.circuit_creation_defense_type, name, 2) == 2;
        let is_on = chosen.is_on(self.circuit_creation_enabled, "DoSCircuitCreationEnabled");
        (is_on && refuses).then_some(defence)
    }

    fn connections(&self, chosen: &Chosen<'_>) -> Option<ConnectionDefence> {
        let of = |own, name, default, min| chosen.number(own, name, default, min);
        let defence = ConnectionDefence {
            concurrent_max: of(self.connection_max_concurrent, "DoSConnectionMaxConcurrentCount", 100, 1),
            rate: Rate {
                per_s: of(self.connection_rate, "DoSConnectionConnectRate", 20, 1),
                burst: of(self.connection_burst, "DoSConnectionConnectBurst", 40, 1),
            },
            period: secs(of(
                self.connection_defense_period_s,
                "DoSConnectionConnectDefenseTimePeriod",
                86_400,
                10,
            )),
        };
        let closes = chosen.defense_type(self.connection_defense_type, "DoSConnectionDefenseType", 2) == 2;
        let is_on = chosen.is_on(self.connection_enabled, "DoSConnectionEnabled");
        (is_on && closes).then_some(defence)
    }

    fn streams(&self, chosen: &Chosen<'_>) -> Option<StreamDefence> {
        let of = |own, name, default| chosen.number(own, name, default, 1);
        let name = "DoSStreamCreationDefenseType";
        let action = match chosen.defense_type(self.stream_creation_defense_type, name, 3) {
            2 => StreamAction::Refuse,
            3 => StreamAction::CloseCircuit,
            _ => return None,
        };
        let rate = Rate {
            per_s: of(self.stream_creation_rate, "DoSStreamCreationRate", 100),
            burst: of(self.stream_creation_burst, "DoSStreamCreationBurst", 300),
        };
        let is_on = chosen.is_on(self.stream_creation_enabled, "DoSStreamCreationEnabled");
        is_on.then_some(StreamDefence { rate, action })
    }
}

fn secs(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(all: &[(&str, i32)]) -> NetworkParams {
        NetworkParams(all.iter().map(|(name, value)| (String::from(*name), *value)).collect())
    }

    const ON: [(&str, i32); 3] =
        [("DoSCircuitCreationEnabled", 1), ("DoSConnectionEnabled", 1), ("DoSStreamCreationEnabled", 1)];

    #[test]
    fn all_is_off_unless_somebody_turns_it_on_and_then_as_in_stock() {
        assert_eq!(DosOptions::default().defences(&params(&[])), Defences::default());
        let on = DosOptions::default().defences(&params(&ON));
        let rate = |per_s, burst| Rate { per_s, burst };
        let circuits =
            CircuitDefence { connections_min: 3, rate: rate(3, 90), period: secs(3600), full_queues_max: 3 };
        let connections = ConnectionDefence { concurrent_max: 100, rate: rate(20, 40), period: secs(86_400) };
        let streams = StreamDefence { rate: rate(100, 300), action: StreamAction::Refuse };
        let wanted =
            Defences { circuits: Some(circuits), connections: Some(connections), streams: Some(streams) };
        assert_eq!(on, wanted);
        let operator = DosOptions {
            circuit_creation_enabled: Some(false),
            connection_enabled: Some(false),
            stream_creation_enabled: Some(true),
            stream_creation_defense_type: Some(3),
            stream_creation_burst: Some(7),
            ..DosOptions::default()
        };
        let streams = StreamDefence { rate: rate(100, 7), action: StreamAction::CloseCircuit };
        assert_eq!(
            operator.defences(&params(&ON)),
            Defences { streams: Some(streams), ..Defences::default() }
        );
    }

    #[test]
    fn the_consensus_is_held_to_its_ranges() {
        let all = [
            ("DoSConnectionConnectDefenseTimePeriod", 1),
            ("DoSConnectionConnectRate", 0),
            ("DoSCircuitCreationBurst", -4),
            ("DoSCircuitCreationDefenseType", 9),
            ("DoSStreamCreationDefenseType", 0),
        ];
        let defences = DosOptions::default().defences(&params(&[&ON[..], &all[..]].concat()));
        let connections = defences.connections.expect("it is on");
        assert_eq!((connections.period, connections.rate.per_s), (secs(10), 1));
        assert_eq!(defences.circuits.map(|circuits| circuits.rate.burst), Some(1));
        assert_eq!(defences.streams, None, "type 1 does nothing");
        let none = DosOptions { connection_defense_type: Some(1), ..DosOptions::default() };
        assert_eq!(none.defences(&params(&ON)).connections, None);
    }
}
