//! The text of a rule: reading it as stock Tor's torrc has it, and writing it again.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use super::{Action, Net, Pattern, Rule, RuleError};

impl FromStr for Rule {
    type Err = RuleError;

    /// Reads `accept|reject|accept6|reject6 ADDRESS[/MASK][:PORT]` as stock Tor reads an item of
    /// `ExitPolicy`. An address without a port means all ports.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut words = text.split_ascii_whitespace();
        let (Some(keyword), Some(target), None) = (words.next(), words.next(), words.next()) else {
            return Err(RuleError::Shape);
        };
        let (action, ipv6_only) = match keyword {
            "accept" => (Action::Accept, false),
            "reject" => (Action::Reject, false),
            "accept6" => (Action::Accept, true),
            "reject6" => (Action::Reject, true),
            _ => return Err(RuleError::Shape),
        };
        let (address, mask, ports) = split_target(target)?;
        let pattern = parse_pattern(address, mask, ipv6_only)?;
        let (port_min, port_max) = parse_ports(ports)?;
        if pattern == Pattern::Private && ports.is_none() {
            return Err(RuleError::Port);
        }
        match pattern {
            Pattern::Net(net) if ipv6_only && net.addr.is_ipv4() => Err(RuleError::NotIpv6),
            Pattern::Private if ipv6_only => Err(RuleError::NotIpv6),
            _ => Ok(Self::ports(action, pattern, port_min, port_max)),
        }
    }
}

/// Splits `[addr]/mask:ports` into its three parts; an IPv6 address must stand in brackets.
fn split_target(target: &str) -> Result<(&str, Option<&str>, Option<&str>), RuleError> {
    let address_end = match target.strip_prefix('[') {
        Some(rest) => rest.find(']').ok_or(RuleError::Address)? + 2,
        None => target.find(['/', ':']).unwrap_or(target.len()),
    };
    let (address, rest) = target.split_at(address_end);
    let (mask, ports) = match rest.split_once(':') {
        Some((mask, ports)) => (mask, Some(ports)),
        None => (rest, None),
    };
    let mask = match mask.strip_prefix('/') {
        Some(mask) => Some(mask),
        None if mask.is_empty() => None,
        None => return Err(RuleError::Address),
    };
    Ok((address, mask, ports))
}

fn parse_pattern(address: &str, mask: Option<&str>, ipv6_only: bool) -> Result<Pattern, RuleError> {
    let wildcard = match address {
        "*" if ipv6_only => Some(Pattern::Net(Net::ANY_V6)),
        "*" => Some(Pattern::Any),
        "*4" => Some(Pattern::Net(Net::ANY_V4)),
        "*6" => Some(Pattern::Net(Net::ANY_V6)),
        "private" => Some(Pattern::Private),
        _ => None,
    };
    if let Some(pattern) = wildcard {
        return if mask.is_none() { Ok(pattern) } else { Err(RuleError::Mask) };
    }
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let addr: IpAddr = bare.parse().map_err(|_| RuleError::Address)?;
    let prefix_bits = match mask {
        Some(mask) => parse_mask(mask, addr)?,
        None => Net::host(addr).prefix_bits,
    };
    Ok(Pattern::Net(Net { addr, prefix_bits }))
}

/// A number of bits, or an IPv4 mask such as `255.255.0.0` whose ones all come first.
fn parse_mask(mask: &str, addr: IpAddr) -> Result<u8, RuleError> {
    let bits = match mask.parse::<u8>() {
        Ok(bits) => bits,
        Err(_) => {
            let mask = u32::from(mask.parse::<Ipv4Addr>().map_err(|_| RuleError::Mask)?);
            if mask.leading_ones() + mask.trailing_zeros() < 32 {
                return Err(RuleError::Mask);
            }
            mask.leading_ones() as u8
        }
    };
    if bits <= Net::host(addr).prefix_bits { Ok(bits) } else { Err(RuleError::Mask) }
}

/// No port, `*`, one port or `min-max`.
fn parse_ports(ports: Option<&str>) -> Result<(u16, u16), RuleError> {
    let ports = match ports {
        None | Some("" | "*") => return Ok((1, u16::MAX)),
        Some(ports) => ports,
    };
    let (min, max) = ports.split_once('-').unwrap_or((ports, ports));
    let min: u16 = parse_decimal(min).ok_or(RuleError::Port)?;
    let max: u16 = parse_decimal(max).ok_or(RuleError::Port)?;
    if min > max || min == 0 {
        return Err(RuleError::Port);
    }
    Ok((min, max))
}

/// `u16::from_str` takes a leading plus sign, which no policy has.
fn parse_decimal(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// An inclusive range of ports, written as in a rule.
pub(super) struct PortRange(pub(super) u16, pub(super) u16);

impl PortRange {
    pub(super) fn summary_text(&self) -> String {
        if self.0 == self.1 { self.0.to_string() } else { format!("{}-{}", self.0, self.1) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (0 | 1, u16::MAX) => f.write_str("*"),
            _ => f.write_str(&self.summary_text()),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
        })
    }
}

impl fmt::Display for Rule {
    /// Writes the rule as a torrc has it; reading it again gives the same rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = PortRange(self.port_min, self.port_max);
        match self.pattern {
            Pattern::Any => write!(f, "{} *:{ports}", self.action),
            Pattern::Private => write!(f, "{} private:{ports}", self.action),
            Pattern::Net(net) => write!(f, "{} {net}:{ports}", self.action),
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.addr, self.prefix_bits) {
            (IpAddr::V4(addr), 0) if addr.is_unspecified() => f.write_str("*4"),
            (IpAddr::V6(addr), 0) if addr.is_unspecified() => f.write_str("*6"),
            (IpAddr::V4(addr), bits) => write!(f, "{addr}/{bits}"),
            (IpAddr::V6(addr), bits) => write!(f, "[{addr}]/{bits}"),
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "a rule is `accept` or `reject`, then one `ADDRESS:PORT`",
            Self::Address => {
                "the address must be *, *4, *6, private, an IPv4 address or a bracketed IPv6 address"
            }
            Self::Mask => {
                "the mask must be a number of bits that fits the address, and a wildcard takes none"
            }
            Self::Port => "the port must be *, a port from 1 to 65535 or a rising range such as 80-443",
            Self::NotIpv6 => "accept6 and reject6 are about IPv6 addresses only",
        })
    }
}

impl std::error::Error for RuleError {}
