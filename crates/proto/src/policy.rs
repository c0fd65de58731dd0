//! Exit policies: which addresses and ports an exit lets its streams reach.
//!
//! 1. A [`Rule`] is parsed from one item of a torrc's `ExitPolicy` (tor(1), "ExitPolicy").
//! 2. [`ExitPolicy::build`] puts the operator's rules between the rules that protect the exit's own
//!    network and the default ones, and drops the rules that can never match.
//! 3. [`ExitPolicy::allows`] answers for one address and port; the first rule that matches decides.
//! 4. [`ExitPolicy::descriptor_lines`] and [`ExitPolicy::ipv6_summary`] say the same to the authorities
//!    (dir-spec, "accept", "reject" and "ipv6-policy").
//!
//! What is published and what is enforced come from the same rules, and the rules of a policy always
//! end in one that matches everything, so no address is left to chance.

mod rule;
mod summary;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rule::PortRange;
use summary::summarize;

/// What a rule does with the streams it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The stream may be opened.
    Accept,
    /// The stream ends with reason EXITPOLICY.
    Reject,
}

/// The addresses a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// `*`: every address of both families.
    Any,
    /// `private`: the networks of [`PRIVATE_NETS`].
    Private,
    /// One network of one family; a prefix of 0 bits is `*4` or `*6`.
    Net(Net),
}

/// A network: an address, as it was written, and the number of leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    addr: IpAddr,
    prefix_bits: u8,
}

/// One line of an exit policy: an action, the addresses and an inclusive range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens to a stream that matches.
    pub action: Action,
    /// The addresses that match.
    pub pattern: Pattern,
    /// The lowest port that matches, at least 1.
    pub port_min: u16,
    /// The highest port that matches, at least `port_min`.
    pub port_max: u16,
}

/// Why a rule could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It does not begin with `accept`, `reject`, `accept6` or `reject6` and one address.
    Shape,
    /// The address is none of `*`, `*4`, `*6`, `private`, an IPv4 address or an IPv6 address.
    Address,
    /// The mask is not a number of bits (or an IPv4 mask) that fits the address.
    Mask,
    /// The port is not `*`, a port or a rising range of ports.
    Port,
    /// `accept6` or `reject6` came with something other than IPv6 addresses. Stock Tor ignores such a
    /// rule and keeps the rest of the policy.
    NotIpv6,
}

/// What the rules of an exit are made of. The `Default` is an exit that only adds the default policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitPolicyOptions {
    /// The operator's own rules, in order.
    pub rules: Vec<Rule>,
    /// Whether any IPv6 address may be reached (`IPv6Exit`, default no).
    pub ipv6_exit: bool,
    /// Whether private networks are rejected before the operator's rules (`ExitPolicyRejectPrivate`,
    /// default yes).
    pub reject_private: bool,
    /// Addresses of the exit itself, rejected before the operator's rules unless they are private.
    pub reject_addresses: Vec<IpAddr>,
    /// Whether the reduced policy follows the operator's rules instead of the default one
    /// (`ReducedExitPolicy`, default no).
    pub reduced: bool,
}

/// The rules of an exit, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitPolicy {
    rules: Vec<NetRule>,
}

/// A rule about one network of one family: what is left when `*` and `private` are spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NetRule {
    action: Action,
    net: Net,
    port_min: u16,
    port_max: u16,
}

/// The networks that `private` stands for, in the order of a stock relay's descriptor.
pub(crate) const PRIVATE_NETS: [Net; 12] = [
    Net::v4([0, 0, 0, 0], 8),
    Net::v4([169, 254, 0, 0], 16),
    Net::v4([127, 0, 0, 0], 8),
    Net::v4([192, 168, 0, 0], 16),
    Net::v4([10, 0, 0, 0], 8),
    Net::v4([172, 16, 0, 0], 12),
    Net::v6(0, 8),
    Net::v6(0xfc00, 7),
    Net::v6(0xfe80, 10),
    Net::v6(0xfec0, 10),
    Net::v6(0xff00, 8),
    Net::v6(0, 127),
];

/// The addresses that providers give to their customers (RFC 6598), which are nobody's on the Internet either.
const SHARED_NET: Net = Net::v4([100, 64, 0, 0], 10);

/// Of IPv4 multicast, what is reserved, and broadcast.
const OF_MANY_NET: Net = Net::v4([224, 0, 0, 0], 3);

/// The addresses of IPv6 that are of somebody's own network, or nobody's.
const INTERNAL_V6: [Net; 4] = [Net::v6(0xfc00, 7), Net::v6(0xfe80, 10), Net::v6(0xfec0, 10), Net::v6(0, 127)];

/// Whether an address is of somebody's own network, as stock Tor sees it where it limits rates
/// (`tor_addr_is_internal`).
pub fn is_internal(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        ip @ IpAddr::V4(_) => is_private_or_shared(ip),
        ip @ IpAddr::V6(_) => INTERNAL_V6.iter().any(|net| net.contains(ip)),
    }
}

/// Whether an address leads to one host of the Internet. Beside what is internal neither what translates to IPv4 does
/// nor multicast, where strangers say what is dialled or asked for.
pub fn is_global(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !is_private_or_shared(ip) && !OF_MANY_NET.contains(ip)
}

fn is_private_or_shared(ip: IpAddr) -> bool {
    PRIVATE_NETS.iter().chain([&SHARED_NET]).any(|net| net.contains(ip))
}

/// The ports that the default policy rejects; it accepts all others (tor(1), "ExitPolicy").
const DEFAULT_REJECTS: [(u16, u16); 10] = [
    (25, 25),
    (119, 119),
    (135, 139),
    (445, 445),
    (563, 563),
    (1214, 1214),
    (4661, 4666),
    (6346, 6429),
    (6699, 6699),
    (6881, 6999),
];

/// The ports that the reduced policy accepts; it rejects all others (tor(1), "ReducedExitPolicy").
const REDUCED_ACCEPTS: [(u16, u16); 71] = [
    (20, 23),
    (43, 43),
    (53, 53),
    (79, 81),
    (88, 88),
    (110, 110),
    (143, 143),
    (194, 194),
    (220, 220),
    (389, 389),
    (443, 443),
    (464, 464),
    (465, 465),
    (531, 531),
    (543, 544),
    (554, 554),
    (563, 563),
    (587, 587),
    (636, 636),
    (706, 706),
    (749, 749),
    (873, 873),
    (902, 904),
    (981, 981),
    (989, 995),
    (1194, 1194),
    (1220, 1220),
    (1293, 1293),
    (1500, 1500),
    (1533, 1533),
    (1677, 1677),
    (1723, 1723),
    (1755, 1755),
    (1863, 1863),
    (2082, 2083),
    (2086, 2087),
    (2095, 2096),
    (2102, 2104),
    (3128, 3128),
    (3389, 3389),
    (3690, 3690),
    (4321, 4321),
    (4643, 4643),
    (5050, 5050),
    (5190, 5190),
    (5222, 5223),
    (5228, 5228),
    (5900, 5900),
    (6660, 6669),
    (6679, 6679),
    (6697, 6697),
    (8000, 8000),
    (8008, 8008),
    (8074, 8074),
    (8080, 8080),
    (8082, 8082),
    (8087, 8088),
    (8232, 8233),
    (8332, 8333),
    (8443, 8443),
    (8888, 8888),
    (9418, 9418),
    (9999, 9999),
    (10000, 10000),
    (11371, 11371),
    (18080, 18081),
    (18089, 18089),
    (19294, 19294),
    (19638, 19638),
    (50002, 50002),
    (64738, 64738),
];

impl ExitPolicy {
    /// A policy that rejects everything: the policy of a relay that is not an exit.
    pub fn reject_all() -> Self {
        Self::from_rules(&[])
    }

    /// The rules of an exit relay, in stock Tor's order: no IPv6 unless asked for, no private network,
    /// no address of our own, the operator's rules, and the default or the reduced policy.
    pub fn build(options: &ExitPolicyOptions) -> Self {
        let mut rules = Vec::new();
        if !options.ipv6_exit {
            rules.push(Rule::all_ports(Action::Reject, Pattern::Net(Net::ANY_V6)));
        }
        if options.reject_private {
            rules.push(Rule::all_ports(Action::Reject, Pattern::Private));
        }
        for addr in &options.reject_addresses {
            let net = Net::host(*addr);
            if is_public(*addr) {
                rules.push(Rule::all_ports(Action::Reject, Pattern::Net(net)));
            }
        }
        rules.extend_from_slice(&options.rules);
        rules.extend(if options.reduced { reduced_rules() } else { default_rules() });
        Self::from_rules(&rules)
    }

    /// Exactly these rules, followed by a rejection of everything they leave open. Rules that cannot
    /// change an answer are dropped.
    pub fn from_rules(rules: &[Rule]) -> Self {
        let mut expanded: Vec<NetRule> = rules.iter().flat_map(Rule::expand).collect();
        expanded.extend(Rule::all_ports(Action::Reject, Pattern::Any).expand());
        Self::simplified(expanded)
    }

    fn simplified(mut rules: Vec<NetRule>) -> Self {
        drop_unreachable(&mut rules);
        drop_covered_by_earlier(&mut rules);
        drop_covered_by_later(&mut rules);
        Self { rules }
    }

    /// The same policy, but that nothing at one more address may be reached.
    pub fn without(&self, addr: IpAddr) -> Self {
        let mut rules = Rule::all_ports(Action::Reject, Pattern::Net(Net::host(addr))).expand();
        rules.extend_from_slice(&self.rules);
        Self::simplified(rules)
    }

    /// Whether a stream to `ip` and `port` may be opened. Port 0 never may.
    ///
    /// An IPv4-mapped IPv6 address is reached over IPv4, so both its forms have to be allowed.
    pub fn allows(&self, ip: IpAddr, port: u16) -> bool {
        let canonical = ip.to_canonical();
        port != 0 && self.decide(ip, port) && (canonical == ip || self.decide(canonical, port))
    }

    fn decide(&self, ip: IpAddr, port: u16) -> bool {
        self.rules
            .iter()
            .find(|rule| rule.matches(ip, port))
            .is_some_and(|rule| rule.action == Action::Accept)
    }

    /// Whether every stream is rejected: the relay is not an exit.
    pub fn rejects_all(&self) -> bool {
        self.rules.iter().all(|rule| rule.action == Action::Reject)
    }

    /// The `accept` and `reject` lines of a router descriptor, without line ends. They are about IPv4
    /// only (dir-spec, "accept"); [`Self::ipv6_summary`] has the rest.
    pub fn descriptor_lines(&self) -> Vec<String> {
        self.rules.iter().filter(|rule| rule.net.addr.is_ipv4()).map(NetRule::descriptor_line).collect()
    }

    /// The argument of the descriptor's `ipv6-policy` line, such as `accept 80,443`, or `None` when no
    /// port is open to IPv6 and the line is left out.
    pub fn ipv6_summary(&self) -> Option<String> {
        let summary = summarize(self.rules.iter().filter(|rule| rule.net.addr.is_ipv6()));
        (summary != "reject 1-65535").then_some(summary)
    }

    /// The summary of the IPv4 rules as the authorities compute it for the consensus (dir-spec, "p").
    #[cfg(test)]
    fn ipv4_summary(&self) -> String {
        summarize(self.rules.iter().filter(|rule| rule.net.addr.is_ipv4()))
    }
}

impl Default for ExitPolicyOptions {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            ipv6_exit: false,
            reject_private: true,
            reject_addresses: Vec::new(),
            reduced: false,
        }
    }
}

impl Default for ExitPolicy {
    /// The policy of a relay that is not an exit.
    fn default() -> Self {
        Self::reject_all()
    }
}

impl Rule {
    fn all_ports(action: Action, pattern: Pattern) -> Self {
        Self::ports(action, pattern, 1, u16::MAX)
    }

    fn ports(action: Action, pattern: Pattern, port_min: u16, port_max: u16) -> Self {
        Self { action, pattern, port_min, port_max }
    }

    fn expand(&self) -> Vec<NetRule> {
        let nets: &[Net] = match &self.pattern {
            Pattern::Any => &[Net::ANY_V4, Net::ANY_V6],
            Pattern::Private => &PRIVATE_NETS,
            Pattern::Net(net) => std::slice::from_ref(net),
        };
        nets.iter()
            .map(|net| NetRule {
                action: self.action,
                net: *net,
                port_min: self.port_min,
                port_max: self.port_max,
            })
            .collect()
    }
}

impl Net {
    /// Every IPv4 address.
    pub(crate) const ANY_V4: Self = Self::v4([0, 0, 0, 0], 0);
    /// Every IPv6 address.
    pub(crate) const ANY_V6: Self = Self::v6(0, 0);

    const fn v4(octets: [u8; 4], prefix_bits: u8) -> Self {
        let [a, b, c, d] = octets;
        Self { addr: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix_bits }
    }

    const fn v6(first_segment: u16, prefix_bits: u8) -> Self {
        Self { addr: IpAddr::V6(Ipv6Addr::new(first_segment, 0, 0, 0, 0, 0, 0, 0)), prefix_bits }
    }

    /// The network of one address.
    pub fn host(addr: IpAddr) -> Self {
        Self { addr, prefix_bits: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether the address is in the network. IPv4-mapped addresses are IPv6 addresses here.
    pub fn contains(&self, ip: IpAddr) -> bool {
        same_prefix(self.addr, ip, self.prefix_bits)
    }
}

/// Whether two addresses are of one family and agree in their first bits.
fn same_prefix(a: IpAddr, b: IpAddr, prefix_bits: u8) -> bool {
    let (differing, width_bits) = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(u32::from(a) ^ u32::from(b)), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b), 128),
        _ => return false,
    };
    let ignored_bits = width_bits - u32::from(prefix_bits);
    differing.checked_shr(ignored_bits).unwrap_or(0) == 0
}

/// Whether a policy has to name the address to protect it: private and multicast addresses are out of
/// reach without that.
fn is_public(addr: IpAddr) -> bool {
    !addr.is_multicast() && !PRIVATE_NETS.iter().any(|net| net.contains(addr))
}

impl NetRule {
    fn matches(&self, ip: IpAddr, port: u16) -> bool {
        (self.port_min..=self.port_max).contains(&port) && self.net.contains(ip)
    }

    fn covers(&self, other: &Self) -> bool {
        self.net.prefix_bits <= other.net.prefix_bits
            && self.net.contains(other.net.addr)
            && self.port_min <= other.port_min
            && self.port_max >= other.port_max
    }

    fn intersects(&self, other: &Self) -> bool {
        let shared_bits = self.net.prefix_bits.min(other.net.prefix_bits);
        same_prefix(self.net.addr, other.net.addr, shared_bits)
            && self.port_min <= other.port_max
            && other.port_min <= self.port_max
    }

    fn matches_whole_family(&self) -> bool {
        self.net.prefix_bits == 0 && self.port_min <= 1 && self.port_max == u16::MAX
    }

    fn descriptor_line(&self) -> String {
        let address = match self.net.prefix_bits {
            0 => "*".to_owned(),
            32 => self.net.addr.to_string(),
            bits => format!("{}/{bits}", self.net.addr),
        };
        let ports = PortRange(self.port_min, self.port_max);
        format!("{} {address}:{ports}", self.action)
    }
}

/// A rule after one that matches its whole family is never reached.
fn drop_unreachable(rules: &mut Vec<NetRule>) {
    let (mut v4_closed, mut v6_closed) = (false, false);
    rules.retain(|rule| {
        let closed = if rule.net.addr.is_ipv4() { &mut v4_closed } else { &mut v6_closed };
        let reachable = !*closed;
        *closed |= rule.matches_whole_family();
        reachable
    });
}

/// A rule whose every address and port an earlier rule matches is never reached.
fn drop_covered_by_earlier(rules: &mut Vec<NetRule>) {
    let mut kept: Vec<NetRule> = Vec::with_capacity(rules.len());
    for rule in rules.iter() {
        if !kept.iter().any(|earlier| earlier.covers(rule)) {
            kept.push(*rule);
        }
    }
    *rules = kept;
}

/// A rule is superfluous when a later one of the same action covers it and nothing between the two says
/// otherwise about any of its addresses and ports.
fn drop_covered_by_later(rules: &mut Vec<NetRule>) {
    let mut index = 0;
    while index < rules.len() {
        let rule = rules[index];
        let decisive = rules[index + 1..].iter().find(|later| {
            if later.action == rule.action { later.covers(&rule) } else { later.intersects(&rule) }
        });
        if decisive.is_some_and(|later| later.action == rule.action) {
            rules.remove(index);
        } else {
            index += 1;
        }
    }
}

/// The rules that close an exit's policy by default.
fn default_rules() -> Vec<Rule> {
    closing_rules(Action::Reject, &DEFAULT_REJECTS, Action::Accept)
}

/// The rules that close an exit's policy with `ReducedExitPolicy 1`.
fn reduced_rules() -> Vec<Rule> {
    closing_rules(Action::Accept, &REDUCED_ACCEPTS, Action::Reject)
}

fn closing_rules(action: Action, ports: &[(u16, u16)], otherwise: Action) -> Vec<Rule> {
    ports
        .iter()
        .map(|&(min, max)| Rule::ports(action, Pattern::Any, min, max))
        .chain([Rule::all_ports(otherwise, Pattern::Any)])
        .collect()
}
