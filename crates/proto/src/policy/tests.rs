use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn policy(rules: &[&str]) -> ExitPolicy {
    let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().expect(rule)).collect();
    ExitPolicy::from_rules(&rules)
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = policy(&["reject 192.0.2.0/24:80", "accept 192.0.2.0/255.255.255.0:*", "accept *6:443"]);
    assert!(!policy.allows(ip("192.0.2.7"), 80));
    assert!(policy.allows(ip("192.0.2.7"), 81));
    assert!(!policy.allows(ip("192.0.3.7"), 81));
    assert!(policy.allows(ip("2001:db8::1"), 443));
    assert!(!policy.allows(ip("2001:db8::1"), 442));
    assert!(!policy.allows(ip("192.0.2.7"), 0));
}

#[test]
fn a_mapped_address_needs_both_its_forms() {
    let open = policy(&["reject 192.0.2.1:*", "accept *:*"]);
    assert!(!open.allows(ip("::ffff:192.0.2.1"), 80));
    assert!(open.allows(ip("::ffff:192.0.2.2"), 80));
    assert!(!policy(&["accept *4:*"]).allows(ip("::ffff:192.0.2.2"), 80));
}

#[test]
fn an_exit_protects_private_networks_and_itself() {
    let options = ExitPolicyOptions {
        rules: vec!["accept *:25".parse().unwrap()],
        ipv6_exit: true,
        reject_addresses: vec![ip("198.51.100.1"), ip("10.0.0.1")],
        ..ExitPolicyOptions::default()
    };
    let policy = ExitPolicy::build(&options);
    for private in ["127.0.0.1", "10.1.2.3", "172.31.0.1", "::1", "fe80::1", "fd00::1", "198.51.100.1"] {
        assert!(!policy.allows(ip(private), 25), "{private}");
    }
    assert!(policy.allows(ip("198.51.100.2"), 25));
    assert!(!policy.allows(ip("198.51.100.2"), 119));
    assert_eq!(
        policy.ipv6_summary().as_deref(),
        Some("reject 119,135-139,445,563,1214,4661-4666,6346-6429,6699,6881-6999")
    );
}

/// The expectation is a stock 0.4.9.11 relay's `GETINFO exit-policy/ipv4` with `ExitRelay 1`.
#[test]
fn the_default_policy_reads_like_a_stock_one() {
    let policy = ExitPolicy::build(&ExitPolicyOptions::default());
    assert_eq!(
        policy.descriptor_lines(),
        [
            "reject 0.0.0.0/8:*",
            "reject 169.254.0.0/16:*",
            "reject 127.0.0.0/8:*",
            "reject 192.168.0.0/16:*",
            "reject 10.0.0.0/8:*",
            "reject 172.16.0.0/12:*",
            "reject *:25",
            "reject *:119",
            "reject *:135-139",
            "reject *:445",
            "reject *:563",
            "reject *:1214",
            "reject *:4661-4666",
            "reject *:6346-6429",
            "reject *:6699",
            "reject *:6881-6999",
            "accept *:*",
        ]
    );
    assert_eq!(policy.ipv6_summary(), None);
}

#[test]
fn a_relay_that_is_no_exit_says_so_in_one_line() {
    let policy = ExitPolicy::default();
    assert_eq!(policy.descriptor_lines(), ["reject *:*"]);
    assert_eq!(policy.ipv4_summary(), "reject 1-65535");
    assert!(policy.rejects_all());
}

/// The ports a stock 0.4.9.11 relay lists for `ReducedExitPolicy 1` (its `GETINFO exit-policy/full`).
const STOCK_REDUCED_PORTS: &str = "\
    20-23 43 53 79-81 88 110 143 194 220 389 443 464 465 531 543-544 554 563 587 636 706 \
    749 873 902-904 981 989-995 1194 1220 1293 1500 1533 1677 1723 1755 1863 2082-2083 \
    2086-2087 2095-2096 2102-2104 3128 3389 3690 4321 4643 5050 5190 5222-5223 5228 5900 \
    6660-6669 6679 6697 8000 8008 8074 8080 8082 8087-8088 8232-8233 8332-8333 8443 8888 \
    9418 9999 10000 11371 18080-18081 18089 19294 19638 50002 64738";

/// The expectation is the same stock relay's answer for these options with `Address 192.0.2.5`.
#[test]
fn a_reduced_policy_reads_like_a_stock_one() {
    let rules = ["accept 198.51.100.0/24:80-90", "reject 198.51.100.7:*", "accept6 [2001:db8::]/32:22"];
    let policy = ExitPolicy::build(&ExitPolicyOptions {
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        ipv6_exit: true,
        reject_addresses: vec![ip("192.0.2.5")],
        reduced: true,
        ..ExitPolicyOptions::default()
    });
    let mut expected: Vec<String> = [
        "reject 0.0.0.0/8:*",
        "reject 169.254.0.0/16:*",
        "reject 127.0.0.0/8:*",
        "reject 192.168.0.0/16:*",
        "reject 10.0.0.0/8:*",
        "reject 172.16.0.0/12:*",
        "reject 192.0.2.5:*",
        "accept 198.51.100.0/24:80-90",
        "reject 198.51.100.7:*",
    ]
    .map(str::to_owned)
    .to_vec();
    expected.extend(STOCK_REDUCED_PORTS.split(' ').map(|ports| format!("accept *:{ports}")));
    expected.push("reject *:*".to_owned());
    assert_eq!(policy.descriptor_lines(), expected);
    assert!(policy.ipv6_summary().unwrap().starts_with("accept 20-23,43,53,79-81,"));
}

#[test]
fn superfluous_rules_are_dropped() {
    let redundant = policy(&[
        "reject 192.0.2.1:80",
        "reject 192.0.2.0/24:*",
        "accept 192.0.2.9:80",
        "accept *4:80",
        "reject *4:*",
        "accept *4:90",
    ]);
    assert_eq!(redundant.descriptor_lines(), ["reject 192.0.2.0/24:*", "accept *:80", "reject *:*"]);
}

#[test]
fn a_summary_forgives_small_rejections_only() {
    let small = policy(&["reject 1.0.0.0/8:*", "reject 2.0.0.0/8:*", "accept *:80"]);
    assert_eq!(small.ipv4_summary(), "accept 80");
    let large = policy(&["reject 1.0.0.0/8:*", "reject 4.0.0.0/7:*", "accept *:80"]);
    assert_eq!(large.ipv4_summary(), "reject 1-65535");
    let ipv6 = policy(&["reject [2001::]/16:*", "accept *6:80-90", "accept *6:91"]);
    assert_eq!(ipv6.ipv6_summary().as_deref(), Some("accept 80-91"));
}

#[test]
fn a_long_summary_is_cut_between_ports() {
    let rules: Vec<Rule> =
        (0..1000).map(|index| format!("accept *:{}", 20_000 + 2 * index).parse().unwrap()).collect();
    let summary = ExitPolicy::from_rules(&rules).ipv4_summary();
    assert!(summary.len() <= 1000, "{}", summary.len());
    assert!(summary.starts_with("accept 20000,20002,"));
    assert!(summary.rsplit(',').next().unwrap().parse::<u16>().is_ok());
}

#[test]
fn bad_rules_name_what_is_wrong() {
    let cases = [
        ("", RuleError::Shape),
        ("accept", RuleError::Shape),
        ("Accept *:80", RuleError::Shape),
        ("permit *:80", RuleError::Shape),
        ("accept *:80 90", RuleError::Shape),
        ("accept example.com:80", RuleError::Address),
        ("accept ::1:80", RuleError::Address),
        ("accept [::1:80", RuleError::Address),
        ("accept [::1]x:80", RuleError::Address),
        ("accept 01.2.3.4:80", RuleError::Address),
        ("accept 192.0.2.1/33:80", RuleError::Mask),
        ("accept 192.0.2.1/255.0.255.0:80", RuleError::Mask),
        ("accept */8:80", RuleError::Mask),
        ("accept private/8:80", RuleError::Mask),
        ("accept private", RuleError::Port),
        ("accept *:0", RuleError::Port),
        ("accept *:90-80", RuleError::Port),
        ("accept *:80-", RuleError::Port),
        ("accept *:65536", RuleError::Port),
        ("accept6 192.0.2.1:80", RuleError::NotIpv6),
        ("reject6 private:*", RuleError::NotIpv6),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<Rule>(), Err(error), "{text}");
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let pattern = prop_oneof![
        Just(Pattern::Any),
        Just(Pattern::Private),
        (any::<[u8; 4]>(), 0u8..=32).prop_map(|(octets, bits)| Pattern::Net(Net::v4(octets, bits))),
        (any::<u16>(), 0u8..=128).prop_map(|(segment, bits)| Pattern::Net(Net::v6(segment, bits))),
    ];
    let action = prop_oneof![Just(Action::Accept), Just(Action::Reject)];
    (action, pattern, 1u16.., 1u16..)
        .prop_map(|(action, pattern, a, b)| Rule::ports(action, pattern, a.min(b), a.max(b)))
}

/// The first rule that matches, with nothing dropped or expanded: the definition, as an oracle.
fn decide_plainly(rules: &[Rule], addr: IpAddr, port: u16) -> bool {
    rules
        .iter()
        .find(|rule| {
            let matches_addr = match rule.pattern {
                Pattern::Any => true,
                Pattern::Private => PRIVATE_NETS.iter().any(|net| net.contains(addr)),
                Pattern::Net(net) => net.contains(addr),
            };
            matches_addr && rule.port_min <= port && port <= rule.port_max
        })
        .is_some_and(|rule| rule.action == Action::Accept)
}

proptest! {
    #[test]
    fn dropping_rules_changes_no_answer(
        rules in prop::collection::vec(any_rule(), 0..12),
        addresses in prop::collection::vec(any::<[u8; 4]>(), 8),
        segment in any::<u16>(),
        port in 1u16..,
    ) {
        let policy = ExitPolicy::from_rules(&rules);
        let mut probes: Vec<IpAddr> = addresses.into_iter().map(IpAddr::from).collect();
        probes.push(Net::v6(segment, 0).addr);
        for rule in &rules {
            if let Pattern::Net(net) = rule.pattern {
                probes.push(net.addr);
            }
        }
        let ports: Vec<u16> = rules.iter().flat_map(|rule| [rule.port_min, rule.port_max]).chain([port]).collect();
        for addr in probes {
            for &port in &ports {
                prop_assert_eq!(policy.decide(addr, port), decide_plainly(&rules, addr, port));
            }
        }
    }

    #[test]
    fn a_rule_survives_being_written(rule in any_rule()) {
        let text = rule.to_string();
        prop_assert_eq!(text.parse::<Rule>(), Ok(rule), "{}", text);
    }

    #[test]
    fn any_text_is_read_without_panic(text in "(accept|reject6?|.{0,8}) ?[\\[\\]*0-9a-f:./-]{0,40}.{0,4}") {
        let _ = text.parse::<Rule>();
    }
}

#[test]
fn internal_addresses_are_those_of_stock_tor_and_global_ones_lead_to_one_host() {
    let both = |text: &str| {
        let ip = text.parse().expect("an address");
        (is_internal(ip), is_global(ip))
    };
    for text in ["10.1.2.3", "127.0.0.1", "169.254.1.1", "172.31.0.1", "192.168.1.1", "0.1.2.3", "100.64.0.1"]
    {
        assert_eq!(both(text), (true, false), "{text}");
        assert_eq!(both(&format!("::ffff:{text}")), (true, false), "{text}");
    }
    for text in ["100.127.255.255", "fc00::1", "fdff::1", "fe80::1", "fec0::1", "::", "::1"] {
        assert_eq!(both(text), (true, false), "{text}");
    }
    for text in
        ["100.63.255.255", "100.128.0.1", "172.32.0.1", "198.51.100.1", "::ffff:198.51.100.1", "2001:db8::1"]
    {
        assert_eq!(both(text), (false, true), "{text}");
    }
    // Neither of somebody's own network nor one host's.
    for text in ["224.0.0.1", "239.255.255.250", "255.255.255.255", "ff02::1", "64:ff9b::a00:1"] {
        assert_eq!(both(text), (false, false), "{text}");
    }
}
