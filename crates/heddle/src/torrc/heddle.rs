//! Heddle's own options, which stock Tor does not know. Their names begin with `Heddle`.

use heddle_relay::Scheduler;
use heddle_seam::time::Duration;
use heddle_transport::dtls;
use heddle_transport::quic::CongestionControl;

use super::settings::{Setting, count, flag, flag_or_auto, items, one, put};

/// More shards than this would only hand cells to and fro.
pub const SHARDS_MAX: u32 = 64;
/// What `HeddleTransports` may name.
const ALL_TRANSPORTS: &str = "quic, tcp-dtls, quic-per-circuit and tls";
/// How soon a cell counts half for the scheduler `ewma`; stock Tor's default.
const EWMA_HALF_LIFE: Duration = Duration::from_secs(30);

/// Heddle's own options. A new one is a field and a line in [`SETTINGS`].
#[derive(Clone, Debug, PartialEq)]
pub struct HeddleOptions {
    /// `HeddleShards`: in how many shards, each with a thread of its own, the relay carries cells; `None` lets it choose
    /// by the machine's cores.
    pub shards: Option<u16>,
    /// `HeddleTCPNoDelay`: whether small writes to TCP connections leave at once. Stock Tor leaves Nagle's algorithm
    /// on, so experiments turn this off to tell its part of a gain apart.
    pub tcp_no_delay: bool,
    /// `HeddleTransports`: what carries circuits between two Heddle relays, the preferred first. TLS is always there, as
    /// what everything falls back to.
    pub transports: Vec<Transport>,
    /// `HeddleUDPPort`: where datagrams of other Heddle relays come.
    pub udp_port: UdpPort,
    /// `HeddleUDPOffload`: whether UDP ports use what the kernel has to carry many datagrams at once, to tell
    /// congestion marks and addresses, and never to fragment. Without, datagrams go one by one and are at most 1350
    /// bytes long.
    pub udp_offload: bool,
    /// `HeddleQUICCongestionControl`: what governs a QUIC connection's rate; `None` is the transport's default.
    pub quic_congestion_control: Option<CongestionControl>,
    /// `HeddleTimings`: whether metrics tell how long the steps of datagrams' ways take, for experiments.
    pub timings: bool,
    /// `HeddleTCPCongestionControl`: what governs the flows of `tcp-dtls`; `None` is the transport's default.
    pub tcp_congestion_control: Option<dtls::CongestionControl>,
    /// `HeddleScheduler`: which circuit of a channel or connection sends next.
    pub scheduler: Scheduler,
    /// `HeddleHopByHopFlowControl`: whether a flow is not read while its cells wait; `None` is as the consensus says.
    pub hop_by_hop_flow_control: Option<bool>,
}

/// What may carry circuits between two Heddle relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One QUIC connection with a stream for each circuit.
    Quic,
    /// One DTLS session with a TCP connection for each circuit.
    TcpDtls,
    /// A QUIC connection for each circuit, which shows how many there are: for experiments in test networks.
    QuicPerCircuit,
    /// Stock Tor's channel.
    Tls,
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

pub(super) const SETTINGS: &[Setting] = &[
    one("HeddleShards", |o, v, _| put(&mut o.heddle.shards, shards(v))),
    one("HeddleTCPNoDelay", |o, v, _| put(&mut o.heddle.tcp_no_delay, flag(v))),
    one("HeddleTransports", |o, v, _| put(&mut o.heddle.transports, transports(v))),
    one("HeddleUDPPort", |o, v, _| put(&mut o.heddle.udp_port, udp_port(v))),
    one("HeddleUDPOffload", |o, v, _| put(&mut o.heddle.udp_offload, flag(v))),
    one("HeddleQUICCongestionControl", |o, v, _| {
        put(&mut o.heddle.quic_congestion_control, congestion_control(v))
    }),
    one("HeddleTimings", |o, v, _| put(&mut o.heddle.timings, flag(v))),
    one("HeddleTCPCongestionControl", |o, v, _| {
        put(&mut o.heddle.tcp_congestion_control, tcp_congestion_control(v))
    }),
    one("HeddleHopByHopFlowControl", |o, v, _| put(&mut o.heddle.hop_by_hop_flow_control, flag_or_auto(v))),
    one("HeddleScheduler", |o, v, _| put(&mut o.heddle.scheduler, scheduler(v))),
];

impl HeddleOptions {
    /// Whether circuits may go over this transport.
    pub fn uses(&self, transport: Transport) -> bool {
        let has_port = transport == Transport::Tls || self.udp_port != UdpPort::Off;
        has_port && self.transports.contains(&transport)
    }

    /// Checks what no option shows alone. `in_test_network` says whether the relay is part of one.
    pub(super) fn validate(&self, in_test_network: bool) -> Result<(), (&'static str, String)> {
        if self.transports.contains(&Transport::QuicPerCircuit) && !in_test_network {
            let reason = "quic-per-circuit shows every circuit on the wire, so it is for experiments; leave it \
                          out, or set TestingTorNetwork";
            return Err(("HeddleTransports", reason.to_owned()));
        }
        let transports = self.transports.iter().filter(|transport| **transport != Transport::Tls).count();
        let more = self.shards.unwrap_or(1).saturating_mul(u16::try_from(transports).unwrap_or(u16::MAX));
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
            transports: vec![Transport::Quic, Transport::Tls],
            udp_port: UdpPort::AsOrPort,
            udp_offload: true,
            quic_congestion_control: None,
            timings: false,
            tcp_congestion_control: None,
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

fn transports(text: &str) -> Result<Vec<Transport>, String> {
    let mut transports = Vec::new();
    for item in items(text) {
        let transport = match item.to_ascii_lowercase().as_str() {
            "quic" => Transport::Quic,
            "tcp-dtls" => Transport::TcpDtls,
            "quic-per-circuit" => Transport::QuicPerCircuit,
            "tls" => Transport::Tls,
            _ => return Err(format!("`{item}` is not a transport: there are {ALL_TRANSPORTS}")),
        };
        if transports.contains(&transport) {
            return Err(format!("`{item}` is named twice; name it once"));
        }
        transports.push(transport);
    }
    if transports.is_empty() {
        return Err(format!("`{text}` names no transport: there are {ALL_TRANSPORTS}"));
    }
    if !transports.contains(&Transport::Tls) {
        transports.push(Transport::Tls);
    }
    if transports.last() != Some(&Transport::Tls) {
        return Err("what follows `tls` would never be used; name it before, or leave it out".to_owned());
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

fn congestion_control(text: &str) -> Result<Option<CongestionControl>, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(None),
        "shared" => Ok(Some(CongestionControl::Shared)),
        "cubic" => Ok(Some(CongestionControl::Cubic)),
        "bbr" => Ok(Some(CongestionControl::Bbr)),
        _ => Err(format!("`{text}` is none of auto, shared, cubic and bbr")),
    }
}

fn tcp_congestion_control(text: &str) -> Result<Option<dtls::CongestionControl>, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(None),
        "shared" => Ok(Some(dtls::CongestionControl::Shared)),
        "cubic" => Ok(Some(dtls::CongestionControl::Cubic)),
        "reno" => Ok(Some(dtls::CongestionControl::Reno)),
        _ => Err(format!("`{text}` is none of auto, shared, cubic and reno")),
    }
}

fn scheduler(text: &str) -> Result<Scheduler, String> {
    match text.to_ascii_lowercase().as_str() {
        "round-robin" => Ok(Scheduler::RoundRobin),
        "ewma" => Ok(Scheduler::Ewma { half_life: EWMA_HALF_LIFE }),
        _ => Err(format!("`{text}` is neither round-robin nor ewma")),
    }
}
