use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use heddle_relay::Scheduler;
use heddle_seam::time::Duration;
use proptest::prelude::*;

use super::*;

/// Reads one torrc with a name that errors can show.
fn load(text: &str) -> Result<(Options, Vec<String>), String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("torrc");
    fs::write(&path, text).expect("writing to it");
    let strip = |text: String| text.replace(&format!("{}/", directory.path().display()), "");
    Torrc::load(&path)
        .map(|(options, warnings)| {
            (options, warnings.iter().map(|warning| strip(warning.to_string())).collect())
        })
        .map_err(|error| strip(error.to_string()))
}

/// The options of a relay with these lines.
fn relay(lines: &str) -> Options {
    let text = format!("ORPort 9001\nContactInfo x\n{lines}\n");
    load(&text).unwrap_or_else(|error| panic!("{lines}: {error}")).0
}

/// What is said about a relay with these lines, without the name of the file. They begin on line 1.
fn error(lines: &str) -> String {
    let text = format!("{lines}\nORPort 9001\nContactInfo x\n");
    load(&text).expect_err(lines)
}

/// What no relay should be without, so that a test sees the warnings alone that it is about.
const COMPLETE: &str = "ORPort 9001\nContactInfo x\nDirAuthority orport=5000 \
    v3ident=0123456789ABCDEF0123456789ABCDEF01234567 127.0.0.1:7000 FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF0001\n";

fn warnings(lines: &str) -> Vec<String> {
    let text = format!("{lines}\n{COMPLETE}");
    load(&text).unwrap_or_else(|error| panic!("{lines}: {error}")).1
}

const FULL: &str = r#"
# A relay with everything in it.
nickname  heddle1          # names have no case
ContactInfo "Jane \"J\" <jane AT example dot org>"
Address 192.0.2.1
ORPort 443 NoListen
ORPort 127.0.0.1:9001 NoAdvertise IPv4Only
ORPort [2001:db8::1]:auto
DataDirectory /var/lib/heddle
DirAuthority auth1 orport=5000 no-v2 v3ident=0123456789ABCDEF0123456789abcdef01234567 \
  # a comment between continued lines
  127.0.0.1:7000 FFFF FFFF FFFF FFFF FFFF FFFF FFFF FFFF FFFF 0001
TestingTorNetwork 1
AssumeReachable 1
ExitRelay 1
ExitPolicy accept 192.0.2.0/24:80-90, reject6 [2001:db8::]/32:*
ExitPolicy reject *:*
BandwidthRate 10 MBytes
BandwidthBurst 20 mbit
RelayBandwidthRate 1 MB
MaxMemInQueues 1.5 GB
MaxOnionQueueDelay 3 seconds
NumCPU 2
Log notice stderr
Log info-notice file /var/log/heddle/info.log
SafeLogging relay
User debian-tor
SocksPort 0
ServerDNSTestAddresses example.com, example.org
MyFamily $0000000000000000000000000000000000000001,friend
ShutdownWaitLength 1 minute
OutboundBindAddress 192.0.2.1
OutboundBindAddress [2001:db8::1]
ConnectionPadding auto
"#;

#[test]
fn a_full_torrc_is_read() {
    let text = FULL.replace("20 mbit", "200 mbit");
    let (options, warnings) = load(&text).expect("a good torrc");
    let ignored: Vec<_> = warnings.iter().filter_map(|warning| warning.split(": ").nth(1)).collect();
    assert_eq!(ignored, ["SafeLogging"]);
    assert!(warnings.iter().all(|warning| warning.ends_with("is ignored")), "{warnings:?}");
    assert_eq!(options.nickname, "heddle1");
    assert_eq!(options.contact_info.as_deref(), Some("Jane \"J\" <jane AT example dot org>"));
    assert_eq!(options.dir_authority.len(), 1);
    let authority = &options.dir_authority[0];
    assert_eq!(authority.nickname.as_deref(), Some("auth1"));
    assert_eq!(authority.or_port, Some(5000));
    assert_eq!(authority.dir_address.to_string(), "127.0.0.1:7000");
    assert_eq!(authority.rsa_id[..2], [0xff, 0xff]);
    assert_eq!(authority.rsa_id[18..], [0x00, 0x01]);
    assert_eq!(authority.v3_ident.unwrap()[..3], [0x01, 0x23, 0x45]);
    assert!(!options.exit_policy_reject_private && options.extend_allow_private_addresses);
    assert!(options.count_private_bandwidth);
    assert_eq!(options.exit_policy.len(), 3);
    assert_eq!((options.bandwidth_rate, options.bandwidth_burst), (10 << 20, 25 << 20));
    assert_eq!(options.relay_rate_and_burst(), (1 << 20, 1 << 20));
    assert_eq!(options.max_mem_in_queues, 3 << 29);
    assert_eq!((options.max_onion_queue_delay_ms, options.num_cpus), (3000, 2));
    let file = LogTarget::File(PathBuf::from("/var/log/heddle/info.log"));
    assert_eq!(options.log[1].target, file);
    assert_eq!((options.log[1].min, options.log[1].max), (Severity::Info, Severity::Notice));
    assert_eq!(options.user.as_deref(), Some("debian-tor"), "the program looks who it is");
    assert_eq!(options.my_family, ["$0000000000000000000000000000000000000001", "friend"]);
    assert_eq!(options.shutdown_wait_length_s, 60);
    assert_eq!(options.outbound_bind_address.len(), 2);
    assert_eq!(options.key_directory(), Path::new("/var/lib/heddle/keys"));
}

#[test]
fn debuggers_are_kept_out_unless_the_operator_lets_them_in() {
    assert!(Options::default().disable_debugger_attachment);
    let text = "DisableDebuggerAttachment 0\nORPort 9001\nDataDirectory /var/lib/heddle\n";
    let (options, warnings) = load(text).unwrap();
    assert!(!options.disable_debugger_attachment);
    assert!(!warnings.iter().any(|warning| warning.contains("DebuggerAttachment")), "{warnings:?}");
}

#[test]
fn a_burst_below_its_rate_is_refused_where_it_stands() {
    let error = load(FULL).expect_err("20 mbit is 2.5 MB");
    assert_eq!(error, "torrc:19: BandwidthBurst: it must be at least BandwidthRate; raise it");
}

#[test]
fn too_little_memory_for_queues_is_raised_as_stock_tor_raises_it() {
    for (value, mb, words) in
        [("1 MB", 64, "at least 64 MB"), ("64 MB", 64, "little"), ("256 MB", 256, ""), ("0", 0, "")]
    {
        let lines = format!("MaxMemInQueues {value}");
        assert_eq!(relay(&lines).max_mem_in_queues, mb << 20, "{value}");
        let warnings = warnings(&lines);
        assert_eq!(warnings.len(), usize::from(!words.is_empty()), "{value}: {warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains(words)), "{warnings:?}");
    }
}

#[test]
fn a_path_at_home_needs_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("torrc");
    let load_for = |lines: &str, home: Option<&str>| {
        fs::write(&path, format!("{COMPLETE}{lines}\n")).unwrap();
        let loaded = Torrc::load_for(&[&path], home.map(OsStr::new));
        loaded.map(|(options, _)| options).map_err(|error| error.to_string())
    };
    let at_home = load_for("PidFile ~/run/pid\nLog notice file ~/log", Some("/elsewhere")).unwrap();
    assert_eq!(at_home.data_directory, Path::new("/elsewhere/.tor"));
    assert_eq!(at_home.pid_file.as_deref(), Some(Path::new("/elsewhere/run/pid")));
    assert_eq!(at_home.log[0].target, LogTarget::File("/elsewhere/log".into()));
    let whole = load_for("DataDirectory /data", None).unwrap();
    assert_eq!(whole.data_directory, Path::new("/data"));
    for (lines, home, expected) in [
        ("", None, "torrc: DataDirectory: HOME is not set, so `~/.tor` is nowhere; set the option to"),
        ("", Some(""), "torrc: DataDirectory: HOME is not set"),
        ("DataDirectory ~/data", None, "torrc:4: DataDirectory: HOME is not set, so `~/data` is nowhere"),
        ("DataDirectory /data\nLog notice file ~/log", None, "torrc:5: Log: HOME is not set"),
        ("KeyDirectory ~tor/keys", Some("/elsewhere"), "torrc:4: KeyDirectory: `~tor/keys` is in another"),
    ] {
        let said = load_for(lines, home).unwrap_err();
        assert!(said.contains(expected), "{said}");
    }
    let (unread, _) = Torrc::parse(COMPLETE, Path::new("torrc")).unwrap();
    assert_eq!(unread.data_directory, Path::new("~/.tor"));
}

#[test]
fn a_limit_of_relayed_traffic_raises_a_lower_one_of_all() {
    const MB: u64 = 1 << 20;
    let all = "BandwidthRate 1 MB\nBandwidthBurst 1 MB\n";
    for (lines, (rate, burst)) in [
        ("RelayBandwidthRate 2 MB", (2 * MB, 2 * MB)),
        ("RelayBandwidthBurst 3 MB", (3 * MB, 3 * MB)),
        ("RelayBandwidthRate 2 MB\nRelayBandwidthBurst 4 MB", (2 * MB, 4 * MB)),
    ] {
        let options = relay(&format!("{all}{lines}"));
        assert_eq!((options.bandwidth_rate, options.bandwidth_burst), (rate, burst), "{lines}");
        assert_eq!(options.relay_rate_and_burst(), (rate, burst), "{lines}");
    }
    let lower = relay(&format!("{all}RelayBandwidthRate 100 KB"));
    assert_eq!((lower.bandwidth_rate, lower.bandwidth_burst), (MB, MB));
    // What is too little on its own stays an error, as with stock Tor.
    assert!(error("BandwidthRate 10 KB\nRelayBandwidthRate 1 MB").contains("torrc:1: BandwidthRate: 10240"));
}

#[test]
fn ipv6_is_turned_off_but_for_what_is_named_and_listened_on() {
    let shown = |lines: &str| -> Vec<(String, bool)> {
        let options = relay(&format!("AddressDisableIPv6 1\n{lines}"));
        let addresses = options.or_addresses();
        addresses.iter().map(|address| (address.address.to_string(), address.advertise)).collect()
    };
    let ipv4 = ("0.0.0.0".to_owned(), true);
    assert_eq!(shown(""), std::slice::from_ref(&ipv4));
    assert_eq!(shown("ORPort 9002 IPv6Only"), std::slice::from_ref(&ipv4));
    assert_eq!(shown("ORPort [2001:db8::1]:9002"), [ipv4.clone(), ("2001:db8::1".to_owned(), false)]);
    assert_eq!(shown("ORPort [2001:db8::1]:9002 NoListen"), [ipv4]);
    assert_eq!(relay("AddressDisableIPv6 0").or_addresses().len(), 2);
    assert_eq!(warnings("AddressDisableIPv6 1"), Vec::<String>::new());
    let alone = load("AddressDisableIPv6 1\nORPort 9001 IPv6Only\n").unwrap_err();
    assert!(alone.contains("a relay needs an ORPort"), "{alone}");
}

#[test]
fn an_or_port_without_address_is_of_both_families() {
    let any = relay("").or_addresses();
    assert_eq!(any.len(), 2);
    assert!(any.iter().all(|address| !address.explicit && address.listen && address.advertise));
    let beside = relay("ORPort [2001:db8::1]:9001").or_addresses();
    let texts: Vec<String> = beside.iter().map(|address| address.address.to_string()).collect();
    assert_eq!(texts, ["0.0.0.0", "2001:db8::1"]);
    assert_eq!(relay("ORPort 9001 IPv4Only").or_addresses().len(), 2);
}

#[test]
fn an_exit_policy_follows_its_switches() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert!(!relay("").is_exit());
    assert!(!relay("ExitRelay 0\nExitPolicy accept *:*").exit_policy(&[]).allows(ip("192.0.2.1"), 80));
    assert!(relay("ExitRelay 1").exit_policy(&[]).allows(ip("192.0.2.1"), 80));
    assert!(relay("ReducedExitPolicy 1").exit_policy(&[]).allows(ip("192.0.2.1"), 443));
    let own = relay("ExitPolicy accept *:*").exit_policy(&[ip("198.51.100.1")]);
    assert!(!own.allows(ip("198.51.100.1"), 80) && !own.allows(ip("127.0.0.1"), 80));
    assert!(!own.allows(ip("2001:db8::1"), 80));
    assert!(relay("IPv6Exit 1").exit_policy(&[]).allows(ip("2001:db8::1"), 80));
}

#[test]
fn options_of_our_own_are_read_in_any_case() {
    let plain = relay("").heddle;
    assert_eq!(plain, HeddleOptions::default());
    let over = |options: &Options| -> Vec<&str> {
        options.heddle.over_datagrams().iter().map(|line| line.transport.name).collect()
    };
    assert_eq!(over(&relay("")), ["quic"]);
    assert!(!relay("heddletcpnodelay 0").heddle.tcp_no_delay);
    assert_eq!(warnings("HeddleTCPNoDelay 0"), Vec::<String>::new());
    assert_eq!(relay("HeddleShards 3").heddle.shards, Some(3));
    assert_eq!(relay("HeddleShards AUTO").heddle.shards, None);
    assert_eq!(over(&relay("HeddleTransports QUIC")), ["quic"]);
    assert_eq!(over(&relay("HeddleTransports tcp-dtls,quic,TLS")), ["tcp-dtls", "quic"]);
    assert!(over(&relay("HeddleTransports tls")).is_empty());
    assert!(over(&relay("HeddleUDPPort 0")).is_empty());
    assert_eq!(relay("HeddleUDPPort auto").heddle.udp_port, UdpPort::Auto);
    assert_eq!(relay("HeddleUDPPort 9001").heddle.udp_port, UdpPort::Fixed(9001));
    assert!(!relay("HeddleUDPOffload 0").heddle.udp_offload);
    assert!(relay("HeddleTimings 1").heddle.timings && !relay("").heddle.timings);
    for (value, wanted) in [("auto", None), ("0", Some(false)), ("1", Some(true))] {
        let options = relay(&format!("HeddleHopByHopFlowControl {value}"));
        assert_eq!(options.heddle.hop_by_hop_flow_control, wanted, "{value}");
    }
    for (value, wanted) in [("none", "none"), ("N23", "n23 10 70"), ("n23-adaptive 20", "n23-adaptive 20")] {
        assert_eq!(relay(&format!("HeddleHopCredit {value}")).heddle.hop_credit.to_string(), wanted);
    }
    assert_ne!(relay("HeddleScheduler ewma").heddle.scheduler, plain.scheduler);
    for (value, interval_ms) in [("kist", 0), ("KIST 10", 10)] {
        let scheduler = relay(&format!("HeddleScheduler {value}")).heddle.scheduler;
        assert!(
            matches!(scheduler, Scheduler::Kist { interval, .. } if interval == Duration::from_millis(interval_ms))
        );
    }
    let options = relay("heddlequiccongestioncontrol BBR\nHeddleTCPCongestionControl reno");
    let chosen = [("HeddleQUICCongestionControl", "bbr"), ("HeddleTCPCongestionControl", "reno")];
    assert_eq!(options.heddle.chosen, chosen.into());
    assert!(relay("HeddleQUICCongestionControl auto").heddle.chosen.is_empty());
    let stacked = relay("HeddleESPCongestionControl BBR\nHeddleESPSocketsMax 4000").heddle;
    assert_eq!(
        (stacked.esp_congestion_control.as_deref(), stacked.esp_sockets_max),
        (Some("bbr"), Some(4000))
    );
    assert_eq!(relay("HeddleESPCongestionControl auto\nHeddleESPSocketsMax auto").heddle, plain);
}

#[test]
fn metrics_are_local_and_for_nobody_by_default() {
    let addr = |text: &str| Some(text.parse().unwrap());
    assert_eq!(relay("").metrics_port, None);
    assert_eq!(relay("MetricsPort 0").metrics_port, None);
    assert_eq!(relay("MetricsPort 9035").metrics_port, addr("127.0.0.1:9035"));
    assert_eq!(relay("MetricsPort [::1]:9035 prometheus").metrics_port, addr("[::1]:9035"));
    assert!(relay("MetricsPort 9035").metrics_port_policy.is_empty());
    assert_eq!(relay("MetricsPortPolicy accept 192.0.2.0/24,reject *").metrics_port_policy.len(), 2);
    let said = warnings("MetricsPort 9035\nMetricsPortPolicy accept 127.0.0.1:80");
    assert_eq!(said, ["torrc:2: MetricsPortPolicy: the port in `accept 127.0.0.1:80` is ignored"]);
}

#[test]
fn lines_replace_append_and_clear() {
    let directory = tempfile::tempdir().unwrap();
    let (below, above) = (directory.path().join("below"), directory.path().join("above"));
    fs::write(&below, format!("{COMPLETE}Log notice stdout\nNickname a\nMyFamily b\nUser u\n")).unwrap();
    fs::write(&above, "+Log info stderr\nNickname c\nMyFamily d\nMyFamily e\n/User\n").unwrap();
    let (options, warnings) = Torrc::load_layers(&[&below, &above]).unwrap();
    assert_eq!(options.log.len(), 2);
    assert_eq!(options.nickname, "c");
    assert_eq!(options.my_family, ["d", "e"]);
    assert_eq!(options.user, None);
    assert_eq!(warnings, []);
}

#[test]
fn includes_follow_files_directories_and_patterns() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/b"), "Nickname second\n").unwrap();
    fs::write(at("d/a"), "Nickname first\n").unwrap();
    fs::write(at("d/.hidden"), "Nonsense\n").unwrap();
    fs::write(at("one.conf"), "MyFamily one\n").unwrap();
    fs::write(at("two.conf"), "\n\nMyFamily two\n").unwrap();
    let main = format!(
        "{COMPLETE}%include {0}/d\n%include {0}/*.conf\n%include {0}/none*\n",
        directory.path().display()
    );
    fs::write(at("torrc"), main).unwrap();
    let (options, warnings) = Torrc::load(&at("torrc")).unwrap();
    assert_eq!(options.nickname, "second");
    assert_eq!(options.my_family, ["one", "two"]);
    assert_eq!(warnings.len(), 1, "Nickname is set twice: {warnings:?}");

    fs::write(at("two.conf"), "\n\nMyFamily !\n").unwrap();
    let error = Torrc::load(&at("torrc")).unwrap_err().to_string();
    assert!(error.contains("two.conf:3: MyFamily: `!` is not a fingerprint"), "{error}");

    fs::write(at("loop"), format!("%include {}\n", at("loop").display())).unwrap();
    let error = Torrc::load(&at("loop")).unwrap_err().to_string();
    assert!(error.contains("nested more than"), "{error}");
}

#[test]
fn every_error_names_its_line_and_the_mend() {
    let cases = [
        ("\n\nBandwithRate 1", "torrc:3: unknown option `BandwithRate`; did you mean BandwidthRate?"),
        ("Blubber 1", "torrc:1: unknown option `Blubber`; correct its name or remove the line"),
        ("HeddleBlubber 1", "torrc:1: unknown option `HeddleBlubber`; correct its name or remove the line"),
        ("Nickname a b", "torrc:1: Nickname: `a b` is not a nickname: use 1 to 19 letters and digits"),
        ("ExitRelay yes", "torrc:1: ExitRelay: `yes` is none of 0, 1 and auto"),
        ("AssumeReachable on", "torrc:1: AssumeReachable: `on` is neither 0 nor 1"),
        (
            "Address 192.0.2.1\nAddress 2001:db8::1\nAddress 192.0.2.2",
            "torrc:3: Address: `192.0.2.2` is a second IPv4 address; remove one of the lines",
        ),
        (
            "BridgeRelay 1",
            "torrc:1: BridgeRelay: Heddle is no bridge and would be published for everybody to see; run stock tor",
        ),
        ("DisableNetwork 1", "torrc:1: DisableNetwork: a relay opens its ports; remove the line to start it"),
        (
            "AccountingMax 1 GB",
            "torrc:1: AccountingMax: Heddle does no accounting and would not stop there; remove the line and set \
             RelayBandwidthRate to what you can pay for, or run stock tor",
        ),
        ("AddressDisableIPv6 2", "torrc:1: AddressDisableIPv6: `2` is neither 0 nor 1"),
        (
            "SigningKeyLifetime 47 hours",
            "torrc:1: SigningKeyLifetime: it is too short; set at least 172800 seconds",
        ),
        ("HeddleTCPNoDelay maybe", "torrc:1: HeddleTCPNoDelay: `maybe` is neither 0 nor 1"),
        (
            "HeddleTransports sctp",
            "torrc:1: HeddleTransports: `sctp` is not a transport: there are quic, tcp-dtls, quic-per-circuit, \
             tcp-esp, sctp-dtls, torchestra-dtls, imux-dtls, tls",
        ),
        (
            "HeddleTransports quic-per-circuit",
            "torrc:1: HeddleTransports: quic-per-circuit is not for people's traffic: it shows every circuit on the \
             wire, so it is for experiments; leave it out, or set TestingTorNetwork",
        ),
        (
            "HeddleForwardDatagrams 1",
            "torrc:1: HeddleForwardDatagrams: circuits of datagrams are not for people's traffic: a guard may tell \
             the exit by the time that it takes to answer; leave it out, or set TestingTorNetwork",
        ),
        (
            "HeddleMeasure 1",
            "torrc:1: HeddleMeasure: who may ask how long cells wait here learns of others' traffic; leave it out, or \
             set TestingTorNetwork",
        ),
        ("HeddleTransports quic,quic", "torrc:1: HeddleTransports: `quic` is named twice; name it once"),
        (
            "HeddleTransports tls,quic",
            "torrc:1: HeddleTransports: what follows `tls` would never be used; name it before, or leave it out",
        ),
        ("HeddleUDPPort 65536", "torrc:1: HeddleUDPPort: `65536` is neither `auto` nor a port"),
        (
            "HeddleUDPPort 65534\nHeddleShards 3",
            "torrc:1: HeddleUDPPort: there are not 2 ports above 65534 for all shards and transports; lower it",
        ),
        ("HeddleScheduler fifo", "torrc:1: HeddleScheduler: `fifo` is none of round-robin, ewma and kist"),
        ("HeddleScheduler kist 0", "torrc:1: HeddleScheduler: `0` is no interval of 1 to 100 milliseconds"),
        (
            "HeddleQUICCongestionControl reno",
            "torrc:1: HeddleQUICCongestionControl: `reno` is none of auto, shared, cubic, bbr",
        ),
        (
            "HeddleTCPCongestionControl bbr",
            "torrc:1: HeddleTCPCongestionControl: `bbr` is none of auto, shared, cubic, reno",
        ),
        (
            "HeddleESPCongestionControl ../x",
            "torrc:1: HeddleESPCongestionControl: `../x` is neither `auto` nor the name of a congestion control",
        ),
        (
            "HeddleESPSocketsMax 0",
            "torrc:1: HeddleESPSocketsMax: `0` is neither `auto` nor a number of sockets",
        ),
        ("HeddleShards 0", "torrc:1: HeddleShards: `0` is neither `auto` nor a number from 1 to 64"),
        (
            "MetricsPort 9035 influx",
            "torrc:1: MetricsPort: `influx` is not a format of metrics; there is prometheus",
        ),
        ("NumCPUs -1", "torrc:1: NumCPUs: `-1` is not a whole number"),
        (
            "BandwidthRate 10 KB",
            "torrc:1: BandwidthRate: 10240 bytes per second is too little for a relay; set at least 76800",
        ),
        ("Nickname \"a", "torrc:1: the closing quote is missing"),
        (
            "Nickname \"a\" b",
            "torrc:1: something follows the closing quote; quote the whole value or nothing",
        ),
        (
            "ORPort 0",
            "torrc:1: ORPort: `ORPort 0` turns off a port that another line sets; remove one of them",
        ),
        (
            "TestingTorNetwork 1",
            "torrc:1: TestingTorNetwork: a test network needs its own authorities; add DirAuthority lines",
        ),
        (
            "ExitPolicy accept *:0",
            "torrc:1: ExitPolicy: `accept *:0` is not a rule: the port must be *, a port from 1 to 65535 or a rising \
             range such as 80-443",
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(error(lines), expected, "{lines}");
    }
    let missing = Torrc::load(Path::new("/nonexistent/torrc")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/torrc: the file cannot be read"), "{missing}");
}

#[test]
fn what_is_not_supported_is_said_once() {
    let said = warnings(
        "HiddenServiceDir a\nHiddenServiceDir b\nDirPort 80\nControlPort 0\nNick x\nGroup y\nSocksPort 9050",
    );
    let expected = [
        "torrc:1: HiddenServiceDir: this option is known but not supported, and is ignored",
        "torrc:5: Nickname: `Nick` is short for Nickname; write the whole name",
        "torrc:6: Group: this option no longer exists and is ignored; remove it",
        "torrc:3: DirPort: directories are served through the ORPort only; remove it",
        "torrc:7: SocksPort: Heddle is a relay only and opens no SOCKS port; set it to 0",
    ];
    assert_eq!(said, expected);
    let said = warnings("AccountingMax 0\nFamilyId *\nFamilyId *");
    let expected = "torrc:2: FamilyId: Heddle has no family keys, so clients do not know the family by it; name all \
                    its relays in MyFamily";
    assert_eq!(said, [expected]);
}

#[test]
fn a_relay_without_authorities_or_contact_is_told() {
    let said = load("ORPort 9001\nNickname x\n").unwrap().1;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("torrc: ContactInfo: it is not set"), "{said:?}");
    assert!(said[1].starts_with("torrc: DirAuthority: there is none"), "{said:?}");
    assert_eq!(warnings("Nickname x"), Vec::<String>::new());
    // Nobody can sign a consensus.
    let said = load(&COMPLETE.replace("v3ident=", "blubber=")).unwrap().1;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].starts_with("torrc: DirAuthority: none has a v3ident"), "{said:?}");
    // An alternative to the built-in ones is one.
    let alternate = COMPLETE.replace("DirAuthority", "AlternateDirAuthority");
    assert_eq!(load(&alternate).unwrap().1, Vec::<String>::new());
}

#[test]
fn several_domains_are_logged_with_the_widest_range() {
    let log = relay("Log [handshake]debug-notice [~net,~mm]info-warn notice stderr").log;
    assert_eq!(log, [Log { min: Severity::Debug, max: Severity::Err, target: LogTarget::Stderr }]);
    let said = warnings("Log [net]info [mm]notice stdout");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("torrc:1"), "{said:?}");
    assert!(error("Log [net]info [mm stdout").contains("stdout, stderr, syslog"));
}

#[test]
fn a_host_name_for_an_address_is_named() {
    let said = warnings("Address relay.example.org");
    assert!(said[0].starts_with("torrc:1") && said[0].contains("not an IP address"), "{said:?}");
    assert_eq!(warnings("Address 192.0.2.1\nAddress [2001:db8::1]"), Vec::<String>::new());
}

#[test]
fn control_characters_in_contact_info_are_spaces_in_the_descriptor() {
    assert_eq!(load("ORPort 9001\nContactInfo a\tb\n").unwrap().0.contact_info.as_deref(), Some("a b"));
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "(([%+/]?(ORPort|Log|Address|DirAuthority|Nick)|.{0,6}) .{0,30}\n){0,6}") {
        let lines = lines::parse(&text, Path::new("torrc"));
        if let Ok(lines) = lines {
            let mut resolved = Resolved::default();
            let lines = lines.into_iter().filter(|line| line.name != "%include").collect();
            let place = Place { file: PathBuf::new(), line: 0 };
            let _ = resolved.add_layer(lines).and_then(|()| resolved.finish(&place, Some(OsStr::new("~"))));
        }
    }

    #[test]
    fn a_quoted_value_survives(value in "[^\0]{0,40}") {
        let quoted: String = value.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        let lines = lines::parse(&format!("ContactInfo \"{quoted}\" # comment"), Path::new("torrc")).unwrap();
        prop_assert_eq!(&lines[0].value, &value);
    }

    #[test]
    fn a_continued_value_is_joined(parts in prop::collection::vec("[a-z]{1,8}", 1..6)) {
        let text = format!("Name {}", parts.join("\\\n"));
        let lines = lines::parse(&text, Path::new("torrc")).unwrap();
        prop_assert_eq!(lines.len(), 1);
        prop_assert_eq!(&lines[0].value, &parts.concat());
    }
}
