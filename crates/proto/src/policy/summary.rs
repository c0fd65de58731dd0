//! Summaries of an exit policy: the ports that "most" addresses can be reached on.

use std::net::IpAddr;

use super::{Action, Net, NetRule, PRIVATE_NETS, PortRange};

/// The longest text of a summary's port list with its keyword, in bytes (dir-spec, "p").
const SUMMARY_BYTES_MAX: usize = 1000;

/// The ports that "most" addresses can be reached on (dir-spec, "Exit policy summaries"): a port is
/// accepted by a rule for all addresses unless the rejections before it, private networks apart, sum up to
/// more than two /8 of IPv4 or one /16 of IPv6.
pub(super) fn summarize<'a>(rules: impl Iterator<Item = &'a NetRule>) -> String {
    let rules: Vec<&NetRule> = rules.collect();
    let mut stretches = stretches_of(&rules);
    for rule in &rules {
        let inside = stretches
            .iter_mut()
            .filter(|stretch| rule.port_min <= stretch.min && stretch.max <= rule.port_max);
        match rule.action {
            Action::Accept if rule.net.prefix_bits == 0 => {
                let cutoff = if rule.net.addr.is_ipv4() { 1 << 25 } else { 1 << 112 };
                inside.for_each(|stretch| stretch.accepted |= stretch.rejected <= cutoff);
            }
            Action::Reject if !PRIVATE_NETS.contains(&rule.net) => {
                let count = addresses_counted(&rule.net);
                inside.for_each(|stretch| stretch.rejected = stretch.rejected.saturating_add(count));
            }
            _ => {}
        }
    }
    write_summary(&stretches)
}

/// One stretch of ports while a summary is computed.
struct Stretch {
    min: u16,
    max: u16,
    accepted: bool,
    /// How much of the address space was rejected before the ports were accepted.
    rejected: u128,
}

/// All ports, cut wherever a rule begins or ends.
fn stretches_of(rules: &[&NetRule]) -> Vec<Stretch> {
    let mut starts: Vec<u32> = rules
        .iter()
        .flat_map(|rule| [u32::from(rule.port_min), u32::from(rule.port_max) + 1])
        .chain([1, 1 << 16])
        .collect();
    starts.sort_unstable();
    starts.dedup();
    starts
        .windows(2)
        .map(|pair| Stretch { min: pair[0] as u16, max: (pair[1] - 1) as u16, accepted: false, rejected: 0 })
        .collect()
}

/// How many addresses a rejection counts for. Stock Tor counts IPv6 in units of a /64 and lets smaller
/// networks pass.
fn addresses_counted(net: &Net) -> u128 {
    match net.addr {
        IpAddr::V4(_) => 1 << (32 - net.prefix_bits),
        IpAddr::V6(_) if net.prefix_bits > 64 => 0,
        IpAddr::V6(_) => 1u128.checked_shl(128 - u32::from(net.prefix_bits)).unwrap_or(u128::MAX),
    }
}

/// The shorter of the accepted and the rejected ports, cut at [`SUMMARY_BYTES_MAX`].
fn write_summary(stretches: &[Stretch]) -> String {
    let accepts = port_list(stretches, true);
    let rejects = port_list(stretches, false);
    if accepts.is_empty() {
        return "reject 1-65535".to_owned();
    }
    if rejects.is_empty() {
        return "accept 1-65535".to_owned();
    }
    let room = SUMMARY_BYTES_MAX - "accept ".len();
    if accepts.len() > room && rejects.len() > room {
        // A comma stands in the first 12 bytes of any list that long, because a range has at most 11.
        let end = accepts[..=room].rfind(',').expect("a long list has commas");
        return format!("accept {}", &accepts[..end]);
    }
    if rejects.len() < accepts.len() { format!("reject {rejects}") } else { format!("accept {accepts}") }
}

/// The stretches with the given answer, neighbours joined, separated by commas.
fn port_list(stretches: &[Stretch], accepted: bool) -> String {
    let mut ranges: Vec<PortRange> = Vec::new();
    for stretch in stretches.iter().filter(|stretch| stretch.accepted == accepted) {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == stretch.min => last.1 = stretch.max,
            _ => ranges.push(PortRange(stretch.min, stretch.max)),
        }
    }
    let texts: Vec<String> = ranges.iter().map(PortRange::summary_text).collect();
    texts.join(",")
}
