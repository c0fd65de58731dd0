//! Heddle's own options, which stock Tor does not know. Their names begin with `Heddle`.

use heddle_proto::credit::HopCredit;
use heddle_proto::flow_control::FlowChoice;
use heddle_relay::Scheduler;
use heddle_transport::registry::{self, Chosen, Registered};

/// Heddle's own options. A new one is a field and a line in `heddle_settings`; one of a single transport stands in the
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
    pub transports: Vec<&'static Registered>,
    /// The options of single transports, by their names in torrc.
    pub chosen: Chosen,
    /// `HeddleESPCongestionControl`: what governs the rate of each circuit over tcp-esp; `None` is
    /// CUBIC, or the system's choice where there is none.
    pub esp_congestion_control: Option<String>,
    /// `HeddleESPSocketsMax`: sockets that circuits over tcp-esp may have in all; `None` goes by the descriptors.
    pub esp_sockets_max: Option<u32>,
    /// `HeddleUDPPort`: where datagrams of other Heddle relays come.
    pub udp_port: UdpPort,
    /// `HeddleUDPOffload`: whether UDP ports use what the kernel has to carry many datagrams at once, to tell
    /// congestion marks and addresses, and never to fragment. Without, datagrams go one by one and are at most 1350
    /// bytes long, and packets of stacks go one by one, too.
    pub udp_offload: bool,
    /// `HeddleTimings`: whether metrics tell how long the steps of datagrams' ways, cells and the event loop take, for
    /// experiments.
    pub timings: bool,
    /// `HeddleObserve`: whether who may open a socket in the `DataDirectory` may look into the relay while it runs.
    pub observe: bool,
    /// `HeddleScheduler`: which circuit of a channel or connection sends next.
    pub scheduler: Scheduler,
    /// `HeddleHopByHopFlowControl`: whether a flow is not read while its cells wait; `None` is as the consensus says.
    pub hop_by_hop_flow_control: Option<bool>,
    /// `HeddleHopCredit`: credit from hop to hop on TLS channels to relays that agree to it.
    pub hop_credit: HopCredit,
    /// `HeddleMeasure`: whether clients may ask what was counted of their own circuits. For test networks alone.
    pub measure: bool,
    /// `HeddleForwardDatagrams`: whether clients may have circuits whose cells are datagrams, which relays on the way
    /// neither repeat nor put in order. For test networks alone.
    pub forward_datagrams: bool,
    /// `HeddleFlowControl`: flow control with the clients of circuits that end here.
    pub flow_control: FlowChoice,
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

impl HeddleOptions {
    /// What circuits may go over beside TLS, the preferred first: nothing without UDP ports.
    pub fn over_datagrams(&self) -> &[&'static Registered] {
        match self.udp_port {
            UdpPort::Off => &[],
            _ => &self.transports,
        }
    }

    /// Checks what no option shows alone. `in_test_network` says whether the relay is part of one.
    pub(super) fn validate(&self, in_test_network: bool) -> Result<(), (&'static str, String)> {
        for line in &self.transports {
            if let Some(why) = line.testing_only.filter(|_| !in_test_network) {
                let name = line.transport.name;
                let reason = format!(
                    "{name} is not for people's traffic: {why}; leave it out, or set TestingTorNetwork"
                );
                return Err(("HeddleTransports", reason));
            }
        }
        for (name, is_on, why) in [
            ("HeddleMeasure", self.measure, "who may ask how long cells wait here learns of others' traffic"),
            (
                "HeddleForwardDatagrams",
                self.forward_datagrams,
                "circuits of datagrams are not for people's traffic: a guard may tell the exit by the time that it \
                 takes to answer",
            ),
        ] {
            if is_on && !in_test_network {
                return Err((name, format!("{why}; leave it out, or set TestingTorNetwork")));
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
            transports: registry::named("quic").into_iter().collect(),
            chosen: Chosen::new(),
            esp_congestion_control: None,
            esp_sockets_max: None,
            udp_port: UdpPort::AsOrPort,
            udp_offload: true,
            timings: false,
            observe: false,
            scheduler: Scheduler::default(),
            hop_by_hop_flow_control: None,
            hop_credit: HopCredit::None,
            measure: false,
            forward_datagrams: false,
            flow_control: FlowChoice::default(),
        }
    }
}
