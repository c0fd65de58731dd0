//! Heddle's own options, which stock Tor does not know. Their names begin with `Heddle`.

use heddle_proto::transport::Transport;
use heddle_relay::Scheduler;
use heddle_seam::time::Duration;
use heddle_transport::registry::{self, Chosen};
use heddle_transport::tls::TRANSPORT as TLS;

use super::settings::{Setting, count, find_of_transport, flag, flag_or_auto, items, one, put};

/// More shards than this would only hand cells to and fro.
pub const SHARDS_MAX: u32 = 64;
/// How soon a cell counts half for the scheduler `ewma`; stock Tor's default.
const EWMA_HALF_LIFE: Duration = Duration::from_secs(30);

/// Heddle's own options. A new one is a field and a line in [`SETTINGS`]; one of a single transport stands in the
/// registry.
#[derive(Clone, Debug, PartialEq)]
pub struct HeddleOptions {
    /// `HeddleShards`: in how many shards, each with a thread of its own, the relay carries cells; `None` lets it
    /// choose by the machine's cores.
    pub shards: Option<u16>,
    /// `HeddleTCPNoDelay`: whether small writes to TCP connections leave at once. Stock Tor leaves Nagle's algorithm
    /// on, so experiments turn this off to tell its part of a gain apart.
    pub tcp_no_delay: bool,
    /// `HeddleTransports`: what carries circuits between two Heddle relays beside TLS, the preferred first. TLS is
    /// always there, as what everything falls back to.
    pub transports: Vec<&'static Transport>,
    /// The options of single transports, by their names in torrc.
    pub chosen: Chosen,
    /// `HeddleUDPPort`: where datagrams of other Heddle relays come.
    pub udp_port: UdpPort,
    /// `HeddleUDPOffload`: whether UDP ports use what the kernel has to carry many datagrams at once, to tell
    /// congestion marks and addresses, and never to fragment. Without, datagrams go one by one and are at most 1350
    /// bytes long.
    pub udp_offload: bool,
    /// `HeddleTimings`: whether metrics tell how long the steps of datagrams' ways take, for experiments.
    pub timings: bool,
    /// `HeddleScheduler`: which circuit of a channel or connection sends next.
    pub scheduler: Scheduler,
    /// `HeddleHopByHopFlowControl`: whether a flow is not read while its cells wait; `None` is as the consensus says.
    pub hop_by_hop_flow_control: Option<bool>,
}

/// The UDP ports of the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpPort {
    /// Nothing was said: the number of the ORPort, or any where that is taken.
    AsOrPort,
    /// Any that the system picks.
    Auto,
    /// This one for the first shard, and the following ones for the others; then as many for the next transport.
    Fixed(u16),
    /// None: every circuit goes over TLS.
    Off,
}

/// The setting of an option of ours, in any case.
pub(super) fn find(name: &str) -> Option<Setting> {
    let ours = SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name)).copied();
    ours.or_else(|| find_of_transport(name))
}

const SETTINGS: &[Setting] = &[
    one("HeddleShards", |o, v, _| put(&mut o.heddle.shards, shards(v))),
    one("HeddleTCPNoDelay", |o, v, _| put(&mut o.heddle.tcp_no_delay, flag(v))),
    one("HeddleTransports", |o, v, _| put(&mut o.heddle.transports, transports(v))),
    one("HeddleUDPPort", |o, v, _| put(&mut o.heddle.udp_port, udp_port(v))),
    one("HeddleUDPOffload", |o, v, _| put(&mut o.heddle.udp_offload, flag(v))),
    one("HeddleTimings", |o, v, _| put(&mut o.heddle.timings, flag(v))),
    one("HeddleHopByHopFlowControl", |o, v, _| put(&mut o.heddle.hop_by_hop_flow_control, flag_or_auto(v))),
    one("HeddleScheduler", |o, v, _| put(&mut o.heddle.scheduler, scheduler(v))),
];

impl HeddleOptions {
    /// What circuits may go over beside TLS, the preferred first: nothing without UDP ports.
    pub fn over_datagrams(&self) -> &[&'static Transport] {
        match self.udp_port {
            UdpPort::Off => &[],
            _ => &self.transports,
        }
    }

    /// Checks what no option shows alone. `in_test_network` says whether the relay is part of one.
    pub(super) fn validate(&self, in_test_network: bool) -> Result<(), (&'static str, String)> {
        for name in self.transports.iter().map(|transport| transport.name) {
            let why = registry::named(name).and_then(|line| line.testing_only);
            if let Some(why) = why.filter(|_| !in_test_network) {
                let reason = format!(
                    "{name} is not for people's traffic: {why}; leave it out, or set TestingTorNetwork"
                );
                return Err(("HeddleTransports", reason));
            }
        }
        let transports = u16::try_from(self.transports.len()).unwrap_or(u16::MAX);
        let more = self.shards.unwrap_or(1).saturating_mul(transports);
        let more = more.saturating_sub(1);
        if let UdpPort::Fixed(first) = self.udp_port
            && first.checked_add(more).is_none()
        {
            let reason =
                format!("there are not {more} ports above {first} for all shards and transports; lower it");
            return Err(("HeddleUDPPort", reason));
        }
        Ok(())
    }
}

impl Default for HeddleOptions {
    fn default() -> Self {
        HeddleOptions {
            shards: None,
            tcp_no_delay: true,
            transports: registry::named("quic").map(|line| line.transport).into_iter().collect(),
            chosen: Chosen::new(),
            udp_port: UdpPort::AsOrPort,
            udp_offload: true,
            timings: false,
            scheduler: Scheduler::default(),
            hop_by_hop_flow_control: None,
        }
    }
}

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

fn transports(text: &str) -> Result<Vec<&'static Transport>, String> {
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
        if transports.contains(&line.transport) {
            return Err(format!("`{item}` is named twice; name it once"));
        }
        transports.push(line.transport);
    }
    if transports.is_empty() && !ends {
        return Err(format!("`{text}` names no transport: there are {}", known()));
    }
    Ok(transports)
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
    match text.to_ascii_lowercase().as_str() {
        "round-robin" => Ok(Scheduler::RoundRobin),
        "ewma" => Ok(Scheduler::Ewma { half_life: EWMA_HALF_LIFE }),
        _ => Err(format!("`{text}` is neither round-robin nor ewma")),
    }
}
