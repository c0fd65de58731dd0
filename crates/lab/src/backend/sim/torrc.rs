//! What lines of plans for torrc mean to simulated relays: what they mean to the program, by its own reader. What only
//! a process heeds is refused, and so is what nobody heeds.

use std::path::Path;

use heddle_proto::params::NetworkParams;
use heddle_torrc::{Options, Torrc};

use crate::error::{Error, Result};

/// What a process alone heeds, and a simulated relay not: where it is reached, its files, threads and logs, the system
/// below it, and its control plane, because here all relays are known from the start.
const OF_A_PROCESS: [&str; 38] = [
    "Address",
    "AlternateDirAuthority",
    "AssumeReachable",
    "CacheDirectory",
    "ContactInfo",
    "DataDirectory",
    "DirAuthority",
    "DisableDebuggerAttachment",
    "ExitPolicyRejectLocalInterfaces",
    "HeddleESPCongestionControl",
    "HeddleESPSocketsMax",
    "HeddleObserve",
    "HeddleTimings",
    "KeyDirectory",
    "Log",
    "MaxAdvertisedBandwidth",
    "MetricsPort",
    "MetricsPortPolicy",
    "MyFamily",
    "Nickname",
    "NumCPUs",
    "OfflineMasterKey",
    "ORPort",
    "OutboundBindAddress",
    "OutboundBindAddressOR",
    "PidFile",
    "PublishServerDescriptor",
    "SafeLogging",
    "ServerDNSAllowBrokenConfig",
    "ServerDNSDetectHijacking",
    "ServerDNSRandomizeCase",
    "ServerDNSResolvConfFile",
    "ServerDNSSearchDomains",
    "ServerDNSTestAddresses",
    "ShutdownWaitLength",
    "SigningKeyLifetime",
    "TestingTorNetwork",
    "User",
];
/// What the torrc of every relay says beside: it is one of a network for tests, at a port and with an authority,
/// neither of which means anything here.
const OF_EVERY: [&str; 4] = [
    "TestingTorNetwork 1",
    "DirAuthority nobody 192.0.2.1:9 0000000000000000000000000000000000000000",
    "ORPort 9001",
    "ContactInfo nobody",
];
/// The same of a relay that exits, and of one that does not, as in networks of processes.
const OF_EXITS: &[&str] = &["ExitRelay 1", "ExitPolicyRejectPrivate 0", "ExitPolicy accept *:*"];
const OF_OTHERS: &[&str] = &["ExitRelay 0"];

/// The options of a relay of which the plan says these lines.
///
/// # Errors
///
/// One sentence about the first line that means nothing here.
pub(super) fn options(lines: &[String], exits: bool) -> Result<Options> {
    let is_of_a_process = |line: &&String| {
        let name = line.split_whitespace().next().unwrap_or_default().trim_start_matches(['+', '/']);
        OF_A_PROCESS.iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    if let Some(line) = lines.iter().find(is_of_a_process) {
        return Err(unknown("relays", line));
    }
    let of_kind = if exits { OF_EXITS } else { OF_OTHERS };
    let ours = OF_EVERY.iter().chain(of_kind).copied();
    let text = lines.iter().map(String::as_str).chain(ours).collect::<Vec<_>>().join("\n");
    let refused = |what: String| Error::Lacking(format!("the backend sim cannot take a relay's {what}"));
    let (options, warnings) =
        Torrc::parse(&text, Path::new("torrc")).map_err(|error| refused(error.to_string()))?;
    match warnings.iter().find(|warning| warning.is_of_no_effect()) {
        Some(warning) => Err(refused(warning.to_string())),
        None => Ok(options),
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

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_proto::flow_control::FlowChoice;
    use heddle_relay::Scheduler;
    use heddle_torrc::HeddleOptions;

    fn read(lines: &[&str]) -> Result<Options> {
        options(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), false)
    }

    fn names(options: &Options) -> Vec<&'static str> {
        options.heddle.transports.iter().map(|line| line.transport.name).collect()
    }

    #[test]
    fn lines_of_plans_are_read_as_the_program_reads_them() {
        let lines = [
            "HeddleTransports quic-per-circuit, quic",
            "HeddleTCPNoDelay 0",
            "CountPrivateBandwidth 1",
            "RelayBandwidthRate 128 KBytes",
            "relaybandwidthburst 24 mbits",
            "HeddleScheduler ewma",
            "HeddleQUICCongestionControl cubic",
            "HeddleShards 2",
            "MaxMemInQueues 512 MB",
        ];
        let options = read(&lines).unwrap();
        assert_eq!(names(&options), ["quic-per-circuit", "quic"]);
        assert!(!options.heddle.tcp_no_delay && options.count_private_bandwidth && !options.is_exit());
        assert_eq!(options.relay_rate_and_burst(), (128 << 10, 3 << 20));
        assert!(matches!(options.heddle.scheduler, Scheduler::Ewma { .. }));
        assert_eq!((options.heddle.chosen.len(), options.heddle.shards), (1, Some(2)));
        assert_eq!(options.max_mem_in_queues, 512 << 20);
        let options = read(&["HeddleTransports tls"]).unwrap();
        assert_eq!(options.heddle, HeddleOptions { transports: vec![], ..HeddleOptions::default() });
        let one =
            read(&["RelayBandwidthRate 128 KBytes", "HeddleFlowControl dynamic", "HeddleHopCredit n23 20"])
                .unwrap();
        assert_eq!(one.relay_rate_and_burst(), (128 << 10, 128 << 10), "a rate alone is a limit, too");
        assert_eq!(one.heddle.flow_control, FlowChoice::Dynamic);
        assert_eq!(one.heddle.hop_credit.to_string(), "n23 20 70");
    }

    #[test]
    fn relays_exit_as_the_plan_says() {
        let server = "10.1.2.3".parse().unwrap();
        assert!(options(&[], true).unwrap().exit_policy(&[server]).allows(server, 80));
        assert!(options(&[], false).unwrap().exit_policy(&[server]).rejects_all());
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (line, about) in [
            ("HeddleTimings 1", "\"HeddleTimings 1\""),
            ("+Log debug stdout", "\"+Log debug stdout\""),
            ("HeddleTransports carrier-pigeon", "torrc:1: HeddleTransports: `carrier-pigeon`"),
            ("RelayBandwidthRate 3 furlongs", "torrc:1: RelayBandwidthRate: "),
            (
                "RelayBandwidthRate 3 KBytes",
                "torrc:1: RelayBandwidthRate: 3072 bytes per second is too little",
            ),
            ("ConnectionPadding 1", "torrc:1: ConnectionPadding: "),
            ("HiddenServicePort 80", "torrc:1: HiddenServicePort: "),
            ("%include /dev/null", "torrc:1: unknown option `%include`"),
        ] {
            let said = read(&[line]).err().unwrap_or_else(|| panic!("{line}")).to_string();
            assert!(said.contains(about) && said.contains("sim"), "{said}");
        }
        let params = |line: &str| params(&[line.to_owned()]);
        assert_eq!(params("ConsensusParams cc_alg=0 x=-3").unwrap().get("x", 0, -9, 9), -3);
        assert!(params("AuthDirFastGuarantee 1").is_err() && params("ConsensusParams cc_alg").is_err());
    }

    /// What is refused here is an option by that name.
    #[test]
    fn options_of_a_process_have_their_names() {
        for name in OF_A_PROCESS {
            let said = Torrc::parse(&format!("{name} \"\\x00\"\n"), Path::new("torrc"));
            let said = said.map(|(_, warnings)| warnings).map_err(|error| error.to_string());
            assert!(!format!("{said:?}").contains("unknown option"), "{name}: {said:?}");
        }
    }
}
