//! Stock Tor's options against denial of service, `DoS…`.

use super::setting::{Setting, count, flag_or_auto, one, put};
use super::units::parse_seconds;

pub(super) const SETTINGS: &[Setting] = &[
    one("DoSCircuitCreationEnabled", |o, v, _| put(&mut o.dos.circuit_creation_enabled, flag_or_auto(v))),
    one("DoSCircuitCreationMinConnections", |o, v, _| {
        put(&mut o.dos.circuit_creation_min_connections, number(v))
    }),
    one("DoSCircuitCreationRate", |o, v, _| put(&mut o.dos.circuit_creation_rate, number(v))),
    one("DoSCircuitCreationBurst", |o, v, _| put(&mut o.dos.circuit_creation_burst, number(v))),
    one("DoSCircuitCreationDefenseType", |o, v, w| {
        put(&mut o.dos.circuit_creation_defense_type, defense_type(v, 2, w))
    }),
    one("DoSCircuitCreationDefenseTimePeriod", |o, v, _| {
        put(&mut o.dos.circuit_creation_defense_period_s, period_s(v))
    }),
    one("DoSConnectionEnabled", |o, v, _| put(&mut o.dos.connection_enabled, flag_or_auto(v))),
    one("DoSConnectionMaxConcurrentCount", |o, v, _| put(&mut o.dos.connection_max_concurrent, number(v))),
    one("DoSConnectionDefenseType", |o, v, w| put(&mut o.dos.connection_defense_type, defense_type(v, 2, w))),
    one("DoSConnectionConnectRate", |o, v, _| put(&mut o.dos.connection_rate, number(v))),
    one("DoSConnectionConnectBurst", |o, v, _| put(&mut o.dos.connection_burst, number(v))),
    one("DoSConnectionConnectDefenseTimePeriod", |o, v, _| {
        put(&mut o.dos.connection_defense_period_s, period_s(v))
    }),
    one("DoSRefuseSingleHopClientRendezvous", |o, v, _| {
        put(&mut o.dos_refuse_single_hop_client_rendezvous, flag_or_auto(v))
    }),
    one("DoSStreamCreationEnabled", |o, v, _| put(&mut o.dos.stream_creation_enabled, flag_or_auto(v))),
    one("DoSStreamCreationRate", |o, v, _| put(&mut o.dos.stream_creation_rate, number(v))),
    one("DoSStreamCreationBurst", |o, v, _| put(&mut o.dos.stream_creation_burst, number(v))),
    one("DoSStreamCreationDefenseType", |o, v, w| {
        put(&mut o.dos.stream_creation_defense_type, defense_type(v, 3, w))
    }),
];

/// 0 leaves it to the consensus.
fn number(text: &str) -> Result<Option<u32>, String> {
    count(text).map(|number| (number > 0).then_some(number))
}

/// The same, in seconds.
fn period_s(text: &str) -> Result<Option<u32>, String> {
    let seconds = parse_seconds(text)?;
    Ok(u32::try_from(seconds).ok().filter(|seconds| *seconds > 0))
}

/// The same, of so many types. Stock Tor takes any other number, and then does nothing either.
fn defense_type(text: &str, max: u32, warnings: &mut Vec<String>) -> Result<Option<u32>, String> {
    let number = number(text)?;
    if number.is_some_and(|number| number > max) {
        warnings.push(format!("`{text}` is no type of defence, so there is none; set 1 to {max}"));
    }
    Ok(number)
}
