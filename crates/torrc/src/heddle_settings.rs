//! The table of Heddle's own options.

use heddle_relay::Scheduler;
use heddle_seam::time::Duration;
use heddle_transport::registry::{self, Registered};
use heddle_transport::tls::TRANSPORT as TLS;

use super::heddle::UdpPort;
use super::setting::{Setting, count, find_of_transport, flag, flag_or_auto, items, one, put};

/// More shards than this would only hand cells to and fro.
pub const SHARDS_MAX: u32 = 64;
/// The longest interval between two runs of KIST (stock's `KISTSchedRunInterval`).
const KIST_INTERVAL_MAX_MS: u64 = 100;
/// How soon a cell counts half for the scheduler `ewma`; stock Tor's default.
const EWMA_HALF_LIFE: Duration = Duration::from_secs(30);

/// The setting of an option of ours, in any case.
pub(super) fn find(name: &str) -> Option<Setting> {
    let ours = SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name)).copied();
    ours.or_else(|| find_of_transport(name))
}

const SETTINGS: &[Setting] = &[
    one("HeddleShards", |o, v, _| put(&mut o.heddle.shards, shards(v))),
    one("HeddleTCPNoDelay", |o, v, _| put(&mut o.heddle.tcp_no_delay, flag(v))),
    one("HeddleTransports", |o, v, _| put(&mut o.heddle.transports, transports(v))),
    one("HeddleESPCongestionControl", |o, v, _| {
        put(&mut o.heddle.esp_congestion_control, congestion_control(v))
    }),
    one("HeddleESPSocketsMax", |o, v, _| put(&mut o.heddle.esp_sockets_max, sockets_max(v))),
    one("HeddleUDPPort", |o, v, _| put(&mut o.heddle.udp_port, udp_port(v))),
    one("HeddleUDPOffload", |o, v, _| put(&mut o.heddle.udp_offload, flag(v))),
    one("HeddleTimings", |o, v, _| put(&mut o.heddle.timings, flag(v))),
    one("HeddleObserve", |o, v, _| put(&mut o.heddle.observe, flag(v))),
    one("HeddleHopByHopFlowControl", |o, v, _| put(&mut o.heddle.hop_by_hop_flow_control, flag_or_auto(v))),
    one("HeddleHopCredit", |o, v, _| put(&mut o.heddle.hop_credit, v.parse())),
    one("HeddleMeasure", |o, v, _| put(&mut o.heddle.measure, flag(v))),
    one("HeddleForwardDatagrams", |o, v, _| put(&mut o.heddle.forward_datagrams, flag(v))),
    one("HeddleFlowControl", |o, v, _| put(&mut o.heddle.flow_control, v.parse())),
    one("HeddleScheduler", |o, v, _| put(&mut o.heddle.scheduler, scheduler(v))),
];

fn shards(text: &str) -> Result<Option<u16>, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    let number = count(text).ok().filter(|number| (1..=SHARDS_MAX).contains(number));
    match number.and_then(|number| u16::try_from(number).ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(format!("`{text}` is neither `auto` nor a number from 1 to {SHARDS_MAX}")),
    }
}

fn transports(text: &str) -> Result<Vec<&'static Registered>, String> {
    let known = || {
        let mut names: Vec<_> = registry::TRANSPORTS.iter().map(|line| line.transport.name).collect();
        names.push(TLS.name);
        names.join(", ")
    };
    let mut transports = Vec::new();
    let mut ends = false;
    for item in items(text) {
        if ends {
            return Err("what follows `tls` would never be used; name it before, or leave it out".to_owned());
        }
        ends = item.eq_ignore_ascii_case(TLS.name);
        if ends {
            continue;
        }
        let Some(line) = registry::named(item) else {
            return Err(format!("`{item}` is not a transport: there are {}", known()));
        };
        if transports.contains(&line) {
            return Err(format!("`{item}` is named twice; name it once"));
        }
        transports.push(line);
    }
    if transports.is_empty() && !ends {
        return Err(format!("`{text}` names no transport: there are {}", known()));
    }
    Ok(transports)
}

/// Whether the kernel has it shows when the relay starts: other machines' kernels have others.
fn congestion_control(text: &str) -> Result<Option<String>, String> {
    /// Bytes of a name (TCP_CA_NAME_MAX, with its end).
    const LEN_MAX: usize = 15;
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    let is_name =
        text.len() <= LEN_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match is_name {
        true => Ok(Some(text.to_ascii_lowercase())),
        false => Err(format!("`{text}` is neither `auto` nor the name of a congestion control")),
    }
}

fn sockets_max(text: &str) -> Result<Option<u32>, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    match count(text) {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => Err(format!("`{text}` is neither `auto` nor a number of sockets")),
    }
}

fn udp_port(text: &str) -> Result<UdpPort, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(UdpPort::Auto);
    }
    match count(text).ok().and_then(|number| u16::try_from(number).ok()) {
        Some(0) => Ok(UdpPort::Off),
        Some(port) => Ok(UdpPort::Fixed(port)),
        None => Err(format!("`{text}` is neither `auto` nor a port")),
    }
}

fn scheduler(text: &str) -> Result<Scheduler, String> {
    let kist = |interval| Scheduler::Kist { half_life: EWMA_HALF_LIFE, interval };
    let lower = text.to_ascii_lowercase();
    match lower.split_whitespace().collect::<Vec<_>>()[..] {
        ["round-robin"] => Ok(Scheduler::RoundRobin),
        ["ewma"] => Ok(Scheduler::Ewma { half_life: EWMA_HALF_LIFE }),
        ["kist"] => Ok(kist(Duration::ZERO)),
        ["kist", interval] => match interval.parse() {
            Ok(ms) if (1..=KIST_INTERVAL_MAX_MS).contains(&ms) => Ok(kist(Duration::from_millis(ms))),
            _ => Err(format!("`{interval}` is no interval of 1 to {KIST_INTERVAL_MAX_MS} milliseconds")),
        },
        _ => Err(format!("`{text}` is none of round-robin, ewma and kist")),
    }
}
