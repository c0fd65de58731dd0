//! What lines of plans for torrc mean to simulated relays. The program's own reader of torrc makes options of a
//! process, with files and ports; here few lines mean anything, and what means nothing is refused.

use heddle_proto::bucket::Limit;
use heddle_proto::credit::HopCredit;
use heddle_proto::flow::FlowChoice;
use heddle_proto::params::NetworkParams;
use heddle_transport::registry::{self, Registered};

use crate::error::{Error, Result};

/// What a relay's lines say.
#[derive(Clone, Default)]
pub(super) struct RelayLines {
    /// `HeddleTransports`, without TLS, which is always there.
    pub(super) transports: Vec<&'static Registered>,
    /// Whether small writes wait, as `HeddleTCPNoDelay 0` has it.
    pub(super) nagle: bool,
    /// `RelayBandwidthRate` and `RelayBandwidthBurst`: without one it is as large as the other.
    rate_bytes_per_s: Option<u64>,
    burst_bytes: Option<u64>,
    /// `CountPrivateBandwidth`.
    pub(super) count_private_bandwidth: bool,
    /// `HeddleFlowControl`.
    pub(super) flow_control: FlowChoice,
    /// `HeddleHopCredit`.
    pub(super) hop_credit: HopCredit,
}

impl RelayLines {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// One sentence about the first line that means nothing here.
    pub(super) fn parse(lines: &[String]) -> Result<RelayLines> {
        let mut relay = RelayLines::default();
        for line in lines {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let known = match name {
                "HeddleTransports" => transports(value).map(|transports| relay.transports = transports),
                "HeddleTCPNoDelay" => flag(value).map(|no_delay| relay.nagle = !no_delay),
                "CountPrivateBandwidth" => flag(value).map(|count| relay.count_private_bandwidth = count),
                "RelayBandwidthRate" => bytes(value).map(|rate| relay.rate_bytes_per_s = Some(rate)),
                "RelayBandwidthBurst" => bytes(value).map(|burst| relay.burst_bytes = Some(burst)),
                "HeddleHopCredit" => value.parse().ok().map(|credit| relay.hop_credit = credit),
                "HeddleFlowControl" => value.parse().ok().map(|choice| relay.flow_control = choice),
                _ => None,
            };
            if known.is_none() {
                return Err(unknown("relays", line));
            }
        }
        Ok(relay)
    }

    /// What both lines of a limit say, if there is one of them.
    pub(super) fn relay_bandwidth(&self) -> Option<Limit> {
        let rate_bytes_per_s = self.rate_bytes_per_s.or(self.burst_bytes)?;
        let burst_bytes = self.burst_bytes.unwrap_or(rate_bytes_per_s).max(rate_bytes_per_s);
        Some(Limit { rate_bytes_per_s, burst_bytes })
    }
}

/// Reads the lines of authorities, which say what the consensus asks for.
///
/// # Errors
///
/// One sentence about the first line that means nothing here.
pub(super) fn params(lines: &[String]) -> Result<NetworkParams> {
    let mut params = NetworkParams::default();
    for line in lines {
        let listed = line.strip_prefix("ConsensusParams ").ok_or_else(|| unknown("authorities", line))?;
        for param in listed.split_whitespace() {
            let (name, value) = param.split_once('=').ok_or_else(|| unknown("authorities", line))?;
            let value = value.parse().map_err(|_| unknown("authorities", line))?;
            params.0.insert(name.to_owned(), value);
        }
    }
    Ok(params)
}

/// What is said of a line that means nothing.
pub(super) fn unknown(whose: &str, line: &str) -> Error {
    Error::Lacking(format!("the backend sim does not know the line {line:?} of {whose}; run it on emu"))
}

/// The transports by their names; `tls` and `none` are none of the registry.
fn transports(value: &str) -> Option<Vec<&'static Registered>> {
    let names = value.split([',', ' ']).filter(|name| !name.is_empty() && *name != "tls" && *name != "none");
    names.map(registry::named).collect()
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// A number of bytes with a unit, as torrc has them: powers of 1024.
fn bytes(value: &str) -> Option<u64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, "bytes"));
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "byte" | "bytes" => 1,
        "kb" | "kbyte" | "kbytes" => 1 << 10,
        "mb" | "mbyte" | "mbytes" => 1 << 20,
        "gb" | "gbyte" | "gbytes" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> Result<RelayLines> {
        RelayLines::parse(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn lines_of_plans_are_read() {
        let lines = [
            "HeddleTransports quic",
            "HeddleTCPNoDelay 0",
            "CountPrivateBandwidth 1",
            "RelayBandwidthRate 128 KBytes",
            "RelayBandwidthBurst 3 MBytes",
        ];
        let relay = parse(&lines).unwrap();
        assert_eq!(relay.transports.iter().map(|one| one.transport.name).collect::<Vec<_>>(), ["quic"]);
        assert!(relay.nagle && relay.count_private_bandwidth);
        let limit = relay.relay_bandwidth().unwrap();
        assert_eq!((limit.rate_bytes_per_s, limit.burst_bytes), (128 << 10, 3 << 20));
        let relay = parse(&["HeddleTransports tls"]).unwrap();
        assert!(relay.transports.is_empty() && !relay.nagle && relay.relay_bandwidth().is_none());
        let one =
            parse(&["RelayBandwidthRate 128 KBytes", "HeddleFlowControl dynamic", "HeddleHopCredit n23 20"])
                .unwrap();
        assert_eq!(one.relay_bandwidth().unwrap().burst_bytes, 128 << 10, "a rate alone is a limit, too");
        assert_eq!(one.flow_control, FlowChoice::Dynamic);
        assert_eq!(one.hop_credit.to_string(), "n23 20 70");
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for line in ["HeddleTimings 1", "HeddleTransports carrier-pigeon", "RelayBandwidthRate 3 furlongs"] {
            let said = parse(&[line]).err().unwrap().to_string();
            assert!(said.contains(line) && said.contains("sim"), "{said}");
        }
        let params = |line: &str| params(&[line.to_owned()]);
        assert_eq!(params("ConsensusParams cc_alg=0 x=-3").unwrap().get("x", 0, -9, 9), -3);
        assert!(params("AuthDirFastGuarantee 1").is_err() && params("ConsensusParams cc_alg").is_err());
    }
}
