//! The table of stock Tor's options that Heddle follows: how many lines each takes and what its value sets.

use std::net::IpAddr;

use heddle_dir::authority::DirAuthority;
use heddle_proto::policy::{Rule, RuleError};

use super::dos;
use super::options::{BANDWIDTH_MAX, Options, SafeLogging};
use super::setting::{Setting, all, count, flag, flag_or_auto, items, one, push, put};
use super::units::{parse_bytes, parse_milliseconds, parse_seconds};
use super::values::{self, Log, OrPort};

/// What is said of a `FamilyId`.
pub(super) const NO_FAMILY_KEYS: &str =
    "Heddle has no family keys, so clients do not know the family by it; name all its relays in MyFamily";

/// The setting of a stock option, or `None` when Heddle does not support it.
pub(super) fn find(name: &str) -> Option<Setting> {
    SETTINGS.iter().chain(dos::SETTINGS).find(|setting| setting.name == name).copied()
}

const SETTINGS: &[Setting] = &[
    one("Nickname", |o, v, _| put(&mut o.nickname, Ok(v.to_owned()))),
    one("ContactInfo", |o, v, _| put(&mut o.contact_info, contact_info(v).map(Some))),
    all("Address", address),
    // What it leaves of the ORPorts shows when all of them are read.
    one("AddressDisableIPv6", |_, v, _| flag(v).map(drop)),
    // These make something of a program that a relay must not be, so they are not passed over with a warning.
    one("BridgeRelay", |_, v, _| {
        must_be_off(v, "Heddle is no bridge and would be published for everybody to see; run stock tor")
    }),
    one("DisableNetwork", |_, v, _| must_be_off(v, "a relay opens its ports; remove the line to start it")),
    one("ClientOnly", |_, v, _| must_be_off(v, "Heddle is a relay only; remove the line, or run stock tor")),
    one("AuthoritativeDirectory", |_, v, _| {
        must_be_off(v, "Heddle is no directory authority; remove the line, or run stock tor")
    }),
    one("AccountingMax", |_, v, _| no_accounting(v)),
    all("ORPort", |o, v, w| {
        o.or_port.extend(OrPort::parse(v, w)?);
        Ok(())
    }),
    one("DataDirectory", |o, v, _| put(&mut o.data_directory, Ok(v.into()))),
    one("KeyDirectory", |o, v, _| put(&mut o.key_directory, Ok(Some(v.into())))),
    one("CacheDirectory", |o, v, _| put(&mut o.cache_directory, Ok(Some(v.into())))),
    all("DirAuthority", |o, v, w| push(&mut o.dir_authority, authority(v, w))),
    all("AlternateDirAuthority", |o, v, w| push(&mut o.alternate_dir_authority, authority(v, w))),
    one("TestingTorNetwork", |o, v, _| put(&mut o.testing_tor_network, flag(v))),
    one("DirAllowPrivateAddresses", |o, v, _| put(&mut o.dir_allow_private_addresses, flag(v))),
    one("ExtendAllowPrivateAddresses", |o, v, _| put(&mut o.extend_allow_private_addresses, flag(v))),
    one("OfflineMasterKey", |o, v, _| put(&mut o.offline_master_key, flag(v))),
    one("SigningKeyLifetime", |o, v, _| put(&mut o.signing_key_lifetime_s, parse_seconds(v))),
    one("TestingLinkCertLifetime", |o, v, _| put(&mut o.testing_link_cert_lifetime_s, parse_seconds(v))),
    one("TestingAuthKeyLifetime", |o, v, _| put(&mut o.testing_auth_key_lifetime_s, parse_seconds(v))),
    one("TestingSigningKeySlop", |o, v, _| put(&mut o.testing_signing_key_slop_s, parse_seconds(v))),
    one("TestingLinkKeySlop", |o, v, _| put(&mut o.testing_link_key_slop_s, parse_seconds(v))),
    one("TestingAuthKeySlop", |o, v, _| put(&mut o.testing_auth_key_slop_s, parse_seconds(v))),
    one("TestingDirConnectionMaxStall", |o, v, _| {
        put(&mut o.testing_dir_connection_max_stall_s, parse_seconds(v))
    }),
    one("AssumeReachable", |o, v, _| put(&mut o.assume_reachable, flag(v))),
    one("AssumeReachableIPv6", |o, v, _| put(&mut o.assume_reachable_ipv6, flag_or_auto(v))),
    one("PublishServerDescriptor", publish_server_descriptor),
    one("ExitRelay", |o, v, _| put(&mut o.exit_relay, flag_or_auto(v))),
    all("ExitPolicy", exit_policy),
    one("ReducedExitPolicy", |o, v, _| put(&mut o.reduced_exit_policy, flag(v))),
    one("ExitPolicyRejectPrivate", |o, v, _| put(&mut o.exit_policy_reject_private, flag(v))),
    one("ExitPolicyRejectLocalInterfaces", |o, v, _| {
        put(&mut o.exit_policy_reject_local_interfaces, flag(v))
    }),
    one("IPv6Exit", |o, v, _| put(&mut o.ipv6_exit, flag(v))),
    one("RefuseUnknownExits", |o, v, _| put(&mut o.refuse_unknown_exits, flag_or_auto(v))),
    one("BandwidthRate", |o, v, _| put(&mut o.bandwidth_rate, bandwidth(v))),
    one("BandwidthBurst", |o, v, _| put(&mut o.bandwidth_burst, bandwidth(v))),
    one("RelayBandwidthRate", |o, v, _| put(&mut o.relay_bandwidth_rate, bandwidth(v))),
    one("CountPrivateBandwidth", |o, v, _| put(&mut o.count_private_bandwidth, flag(v))),
    one("RelayBandwidthBurst", |o, v, _| put(&mut o.relay_bandwidth_burst, bandwidth(v))),
    one("MaxAdvertisedBandwidth", |o, v, _| put(&mut o.max_advertised_bandwidth, bandwidth(v))),
    one("MaxMemInQueues", |o, v, w| put(&mut o.max_mem_in_queues, memory(v, w))),
    one("MaxOnionQueueDelay", |o, v, _| put(&mut o.max_onion_queue_delay_ms, parse_milliseconds(v))),
    one("NumCPUs", |o, v, _| put(&mut o.num_cpus, count(v))),
    one("DisableDebuggerAttachment", |o, v, _| put(&mut o.disable_debugger_attachment, flag(v))),
    one("MetricsPort", |o, v, _| put(&mut o.metrics_port, values::parse_metrics_port(v))),
    all("MetricsPortPolicy", metrics_port_policy),
    all("Log", |o, v, w| push(&mut o.log, Log::parse(v, w))),
    one("SafeLogging", |o, v, _| put(&mut o.safe_logging, safe_logging(v))),
    one("RunAsDaemon", |o, v, _| put(&mut o.run_as_daemon, flag(v))),
    one("PidFile", |o, v, _| put(&mut o.pid_file, Ok(Some(v.into())))),
    one("User", |o, v, _| put(&mut o.user, Ok(Some(v.to_owned())))),
    one("ServerDNSResolvConfFile", |o, v, _| put(&mut o.server_dns_resolv_conf_file, Ok(Some(v.into())))),
    one("ServerDNSSearchDomains", |o, v, _| put(&mut o.server_dns_search_domains, flag(v))),
    one("ServerDNSDetectHijacking", |o, v, _| put(&mut o.server_dns_detect_hijacking, flag(v))),
    one("ServerDNSTestAddresses", |o, v, _| {
        put(&mut o.server_dns_test_addresses, Ok(items(v).map(str::to_owned).collect()))
    }),
    one("ServerDNSAllowBrokenConfig", |o, v, _| put(&mut o.server_dns_allow_broken_config, flag(v))),
    one("ServerDNSAllowNonRFC953Hostnames", |o, v, _| {
        put(&mut o.server_dns_allow_non_rfc953_hostnames, flag(v))
    }),
    one("ServerDNSRandomizeCase", |o, v, _| put(&mut o.server_dns_randomize_case, flag(v))),
    all("MyFamily", my_family),
    all("FamilyId", |_, _, w| {
        w.push(NO_FAMILY_KEYS.to_owned());
        Ok(())
    }),
    one("ShutdownWaitLength", |o, v, _| put(&mut o.shutdown_wait_length_s, parse_seconds(v))),
    all("OutboundBindAddress", |o, v, _| bind_address(&mut o.outbound_bind_address, v)),
    all("OutboundBindAddressOR", |o, v, _| bind_address(&mut o.outbound_bind_address_or, v)),
    all("OutboundBindAddressExit", |o, v, _| bind_address(&mut o.outbound_bind_address_exit, v)),
    one("CircuitPadding", |o, v, _| put(&mut o.circuit_padding, flag(v))),
    one("ReducedCircuitPadding", |o, v, _| put(&mut o.reduced_circuit_padding, flag(v))),
    one("ConnectionPadding", |o, v, _| put(&mut o.connection_padding, flag_or_auto(v))),
    one("ReducedConnectionPadding", |o, v, _| put(&mut o.reduced_connection_padding, flag(v))),
    all("SocksPort", |_, v, w| {
        port_is_off(v, w, "Heddle is a relay only and opens no SOCKS port; set it to 0")
    }),
    all("ControlPort", |_, v, w| port_is_off(v, w, "the control port is not supported yet and stays closed")),
    all("DirPort", |_, v, w| port_is_off(v, w, "directories are served through the ORPort only; remove it")),
];

/// Others are told one address of each family.
fn address(options: &mut Options, text: &str, warnings: &mut Vec<String>) -> Result<(), String> {
    let Some(address) = values::address(text) else {
        warnings.push(format!(
            "`{text}` is not an IP address; names are not looked up, so write the address itself"
        ));
        return push(&mut options.address, Ok(text.to_owned()));
    };
    let mut others = options.address.iter().filter_map(|text| values::address(text));
    if others.any(|other| other.is_ipv4() == address.is_ipv4()) {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(format!("`{text}` is a second {family} address; remove one of the lines"));
    }
    push(&mut options.address, Ok(text.to_owned()))
}

fn must_be_off(text: &str, why: &str) -> Result<(), String> {
    if flag(text)? { Err(why.to_owned()) } else { Ok(()) }
}

/// Whoever pays for traffic must not learn from the bill that nobody counted it.
fn no_accounting(text: &str) -> Result<(), String> {
    const WHY: &str = "Heddle does no accounting and would not stop there; remove the line and set \
                       RelayBandwidthRate to what you can pay for, or run stock tor";
    if parse_bytes(text)? == 0 { Ok(()) } else { Err(WHY.to_owned()) }
}

/// A descriptor is made of lines, so its contact line must be one.
fn contact_info(text: &str) -> Result<String, String> {
    if text.contains(char::REPLACEMENT_CHARACTER) || text.contains(['\n', '\r', '\0']) {
        return Err("it must be one line of UTF-8".to_owned());
    }
    Ok(text.replace(char::is_control, " "))
}

/// Stock Tor takes one byte more than a descriptor can name, because people write `2 GB`.
fn bandwidth(text: &str) -> Result<u64, String> {
    let rate = parse_bytes(text)?;
    if rate > BANDWIDTH_MAX + 1 {
        return Err(format!("`{text}` is more than a descriptor can name; set at most 2 GBytes"));
    }
    Ok(rate.min(BANDWIDTH_MAX))
}

/// Stock Tor's relays take no less than 64 MB, in test networks too.
fn memory(text: &str, warnings: &mut Vec<String>) -> Result<u64, String> {
    const MIN: u64 = 64 << 20;
    const LOW: u64 = 256 << 20;
    match parse_bytes(text)? {
        0 => Ok(0),
        bytes if bytes < MIN => {
            warnings
                .push("a relay needs at least 64 MB and takes them; set as much as you can spare".to_owned());
            Ok(MIN)
        }
        bytes => {
            if bytes < LOW {
                warnings.push(
                    "that is little, and circuits may be closed for want of it; set 256 MB or more"
                        .to_owned(),
                );
            }
            Ok(bytes)
        }
    }
}

fn safe_logging(text: &str) -> Result<SafeLogging, String> {
    match text.to_ascii_lowercase().as_str() {
        "0" => Ok(SafeLogging::Off),
        "1" => Ok(SafeLogging::On),
        "relay" => Ok(SafeLogging::Relay),
        _ => Err(format!("`{text}` is none of 0, 1 and relay")),
    }
}

fn authority(text: &str, warnings: &mut Vec<String>) -> Result<DirAuthority, String> {
    DirAuthority::parse(text, warnings).map_err(|error| error.to_string())
}

fn publish_server_descriptor(
    options: &mut Options,
    text: &str,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    options.publish_server_descriptor = false;
    for item in items(text) {
        match item.to_ascii_lowercase().as_str() {
            "1" | "v3" => options.publish_server_descriptor = true,
            "0" => {}
            "bridge" => {
                warnings.push("Heddle is not a bridge and sends nothing to bridge authorities".to_owned())
            }
            "v1" | "v2" | "hidserv" => warnings.push(format!("`{item}` has no effect any more")),
            _ => return Err(format!("`{item}` is none of 0, 1 and v3")),
        }
    }
    Ok(())
}

fn exit_policy(options: &mut Options, text: &str, warnings: &mut Vec<String>) -> Result<(), String> {
    for item in items(text) {
        match item.parse::<Rule>() {
            Ok(rule) => options.exit_policy.push(rule),
            Err(error @ RuleError::NotIpv6) => warnings.push(format!("`{item}` is ignored: {error}")),
            Err(error) => return Err(format!("`{item}` is not a rule: {error}")),
        }
    }
    Ok(())
}

/// The same form as `ExitPolicy`, but about addresses alone (tor(1), "MetricsPortPolicy").
fn metrics_port_policy(options: &mut Options, text: &str, warnings: &mut Vec<String>) -> Result<(), String> {
    for item in items(text) {
        let rule: Rule = item.parse().map_err(|error| format!("`{item}` is not a rule: {error}"))?;
        if (rule.port_min, rule.port_max) != (1, u16::MAX) {
            warnings.push(format!("the port in `{item}` is ignored"));
        }
        options.metrics_port_policy.push(Rule { port_min: 1, port_max: u16::MAX, ..rule });
    }
    Ok(())
}

fn my_family(options: &mut Options, text: &str, _: &mut Vec<String>) -> Result<(), String> {
    for item in items(text) {
        options.my_family.push(values::parse_family_member(item)?);
    }
    Ok(())
}

fn bind_address(addresses: &mut Vec<IpAddr>, text: &str) -> Result<(), String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address: IpAddr = bare.parse().map_err(|_| format!("`{text}` is not an address"))?;
    if addresses.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
        return Err(format!("`{text}` is the second address of its family; keep one"));
    }
    addresses.push(address);
    Ok(())
}

fn port_is_off(text: &str, warnings: &mut Vec<String>, reason: &str) -> Result<(), String> {
    if !values::is_port_off(text) {
        warnings.push(reason.to_owned());
    }
    Ok(())
}
