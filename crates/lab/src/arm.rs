//! What the relays of a network are, and how they talk to each other: stock Tor, or Heddle over one of its transports.

use std::fmt;
use std::fs::OpenOptions;
use std::str::FromStr;

use crate::emulator::RunOptions;
use heddle_transport::registry;
use serde::{Deserialize, Deserializer, de};

/// One of what is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Stock `tor`.
    Stock,
    /// Heddle relays with stock Tor's own link protocol alone.
    Tls,
    /// Heddle relays with this transport of the [registry] between each other.
    Flows(&'static str),
}

impl Transport {
    /// All that people may use, the baseline first.
    pub fn all() -> Vec<Transport> {
        let flows = registry::TRANSPORTS.iter().filter(|line| line.testing_only.is_none());
        let flows = flows.map(|line| Transport::Flows(line.transport.name));
        [Transport::Stock, Transport::Tls].into_iter().chain(flows).collect()
    }

    /// All that this machine can have: without TUN devices no relay has a network stack of its own.
    pub fn here() -> Vec<Transport> {
        let has_device =
            OpenOptions::new().read(true).write(true).open(RunOptions::default().tun_device).is_ok();
        Transport::all().into_iter().filter(|transport| has_device || !transport.wants_stack()).collect()
    }

    fn wants_stack(self) -> bool {
        let Transport::Flows(name) = self else { return false };
        registry::named(name).is_some_and(|line| line.stack.is_some())
    }

    /// Its name in options, plans and labels.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Stock => "stock",
            Transport::Tls => "tls",
            Transport::Flows(name) => name,
        }
    }

    /// Its name in Heddle relays' torrc and metrics; stock relays have neither.
    pub(crate) fn heddle_name(self) -> Option<&'static str> {
        (self != Transport::Stock).then(|| self.name())
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(name: &str) -> Result<Transport, String> {
        let flows = registry::TRANSPORTS.iter().map(|line| line.transport.name);
        match name {
            "stock" => Ok(Transport::Stock),
            "tls" => Ok(Transport::Tls),
            _ => flows.clone().find(|known| *known == name).map(Transport::Flows).ok_or_else(|| {
                format!("{name:?} is none of stock, tls, {}", flows.collect::<Vec<_>>().join(", "))
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Transport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_wanted_by_kernels_tcp_alone() {
        let wanting: Vec<Transport> = Transport::all().into_iter().filter(|all| all.wants_stack()).collect();
        assert_eq!(wanting, [Transport::Flows("tcp-esp")]);
        assert!(Transport::here().contains(&Transport::Flows("quic")));
    }

    #[test]
    fn names_lead_to_what_has_them() {
        for transport in Transport::all() {
            assert_eq!(transport.name().parse(), Ok(transport));
        }
        assert_eq!("quic-per-circuit".parse(), Ok(Transport::Flows("quic-per-circuit")));
        let said = "udp".parse::<Transport>().unwrap_err();
        assert!(said.starts_with("\"udp\" is none of stock, tls, quic, "), "{said}");
    }
}
