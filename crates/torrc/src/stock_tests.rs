//! The same files for `tor --verify-config` and for Heddle: what stock Tor takes, Heddle takes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Whether a torrc is good. Each case is added to a relay's few lines.
const CASES: &[(&str, bool)] = &[
    ("", true),
    ("Nick foo", true),
    ("nickname foo", true),
    ("Nickname", true),
    ("Nickname a b", false),
    ("Nickname abcdefghijklmnopqrst", false),
    ("Nickname \"f\\x6fo\" # x", true),
    ("Nickname \"f\\157o\"", true),
    ("Nickname \"foo\" bar", false),
    ("Nickname \"foo", false),
    ("Nickname \"f\\qo\"", false),
    ("Nickname f\\\noo", true),
    ("Nickname f\\\n# comment\noo", true),
    ("Nickname#comment", true),
    ("Nickname foo#comment", true),
    ("+Nickname foo", true),
    ("/Nickname", true),
    ("/Blubber", false),
    ("Blubber 1", false),
    ("Log notice", true),
    ("Log NOTICE stdout", true),
    ("Log notice-err stderr", true),
    ("Log [net]info stdout", true),
    ("Log [handshake]debug [~net,~mm]info notice stdout", true),
    ("Log notice syslog", true),
    ("Log warning stderr", false),
    ("Log stderr", false),
    ("Log notice file", false),
    ("Log notice printer", false),
    ("ORPort", true),
    ("ORPort 127.0.0.1:auto", true),
    ("ORPort localhost:5999", true),
    ("ORPort [::1]:5999", true),
    ("ORPort ::1", false),
    ("ORPort 5998 NoAdvertise NoListen", false),
    ("ORPort 5998 IPv4Only IPv6Only", false),
    ("ORPort 127.0.0.1:5998 IPv6Only", false),
    ("ORPort 5998 Blubber", true),
    ("ORPort 65536", false),
    ("ORPort 0", false),
    ("ExitRelay yes", false),
    ("ExitRelay AUTO", true),
    ("RefuseUnknownExits auto", true),
    ("RefuseUnknownExits 2", false),
    ("DoSCircuitCreationEnabled AUTO", true),
    ("DoSCircuitCreationEnabled 2", false),
    ("DoSCircuitCreationRate 0", true),
    ("DoSCircuitCreationRate -1", false),
    ("DoSCircuitCreationBurst 2147483647", true),
    ("DoSCircuitCreationBurst 2147483648", false),
    ("DoSCircuitCreationDefenseType 9", true),
    ("DoSCircuitCreationDefenseTimePeriod 1.5 hours", true),
    ("DoSCircuitCreationDefenseTimePeriod 100 years", false),
    ("DoSConnectionConnectDefenseTimePeriod 5", true),
    ("DoSConnectionConnectDefenseTimePeriod -5", false),
    ("DoSConnectionMaxConcurrentCount many", false),
    ("DoSRefuseSingleHopClientRendezvous 1", true),
    ("DoSRefuseSingleHopClientRendezvous 7", false),
    ("DoSStreamCreationRate 1.5", false),
    ("DoSStreamCreationDefenseType 77", true),
    ("AssumeReachable 2", false),
    ("AssumeReachable 1\nAssumeReachableIPv6 0", false),
    ("NumCPUs -1", false),
    ("BandwidthRate 10 KB", false),
    ("BandwidthRate 100 kbytes", true),
    ("BandwidthRate 2 GB", false),
    ("BandwidthRate 2 GB\nBandwidthBurst 2 GB", true),
    ("BandwidthRate 3 GB\nBandwidthBurst 3 GB", false),
    ("RelayBandwidthRate 2 GB", true),
    ("RelayBandwidthRate 10 KB", false),
    ("RelayBandwidthBurst 1 MB", true),
    ("RelayBandwidthRate 2 MB\nRelayBandwidthBurst 1 MB", false),
    ("BandwidthRate 1 MB\nBandwidthBurst 1 MB\nRelayBandwidthRate 2 MB", true),
    ("BandwidthRate 10 KB\nRelayBandwidthRate 1 MB", false),
    ("AccountingMax 0", true),
    ("AddressDisableIPv6 1", true),
    ("AddressDisableIPv6 2", false),
    ("MaxAdvertisedBandwidth 1 KB", false),
    ("MaxMemInQueues 1.5 GB", true),
    ("MaxMemInQueues 1 parsec", false),
    ("MaxMemInQueues 1 MB", true),
    ("MaxOnionQueueDelay 1.5 seconds", true),
    ("MaxOnionQueueDelay 3 weeks", true),
    ("MaxOnionQueueDelay 4 weeks", false),
    ("MaxOnionQueueDelay 1 month", false),
    ("SigningKeyLifetime 47 hours", false),
    ("SigningKeyLifetime 2 days", true),
    ("ShutdownWaitLength 1minute", true),
    ("ShutdownWaitLength 1 fortnight", false),
    ("ShutdownWaitLength 100 years", false),
    ("SafeLogging relay", true),
    ("SafeLogging perhaps", false),
    ("MyFamily friend", true),
    ("MyFamily $zz", false),
    ("MyFamily 0000000000000000000000000000000000000001 , $0000000000000000000000000000000000000002", true),
    ("PublishServerDescriptor 0", true),
    ("PublishServerDescriptor v9", false),
    ("OutboundBindAddress 127.0.0.1\nOutboundBindAddress [::1]", true),
    ("OutboundBindAddress blubber", false),
    ("Address blubber.example", true),
    ("TestingTorNetwork 1", false),
    ("DirAuthority 127.0.0.1:80 0000000000000000000000000000000000000001", true),
    ("DirAuthority a orport=1 weight=2 127.0.0.1:80 0000000000000000000000000000000000000001", true),
    ("DirAuthority bridge v3ident=12 127.0.0.1:80 0000000000000000000000000000000000000001", true),
    ("DirAuthority a orport=x blubber 127.0.0.1:80 0000000000000000000000000000000000000001", true),
    ("DirAuthority a ipv6=127.0.0.1:9 127.0.0.1:80 0000000000000000000000000000000000000001", false),
    ("DirAuthority 127.0.0.1:80 00000000", false),
    ("DirAuthority 127.0.0.1 0000000000000000000000000000000000000001", false),
    ("DirAuthority a", false),
    ("ExitPolicy accept *:80,reject *:*", true),
    ("ExitPolicy accept6 127.0.0.1:80", true),
    ("ExitPolicy accept 192.0.2.1/255.255.0.0:80", true),
    ("ExitPolicy accept [::1]:80", true),
    ("ExitPolicy accept ::1:80", false),
    ("ExitPolicy Accept *:80", false),
    ("ExitPolicy accept *:0-80", false),
    ("ExitPolicy accept private", false),
    ("ExitPolicy accept private:80", true),
    ("ExitPolicy accept *:80 90", false),
    ("%include /nonexistent/torrc", false),
    ("%include /nonexistent/*", true),
    ("DNSPort 0", true),
    ("NumCPU 2", true),
    ("Group nobody", true),
];

#[test]
fn stock_tor_and_heddle_take_the_same_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("torrc");
    let mut differing = Vec::new();
    for &(lines, good) in CASES {
        let data = directory.path().join("data");
        let base =
            format!("DataDirectory {}\nSocksPort 0\nORPort 127.0.0.1:5997\nContactInfo x\n", data.display());
        fs::write(&path, base + lines + "\n").expect("writing to it");
        let Some(stock) = stock_takes(&path) else {
            // The expectations below were checked against stock 0.4.9.11; without it they still hold for Heddle.
            continue;
        };
        if stock != good {
            differing.push(format!("stock: {lines:?}"));
        }
    }
    for &(lines, good) in CASES {
        fs::write(&path, format!("SocksPort 0\nORPort 127.0.0.1:5997\nContactInfo x\n{lines}\n"))
            .expect("writing to it");
        match Torrc::load(&path) {
            Ok(_) if !good => differing.push(format!("heddle takes {lines:?}")),
            Err(error) if good => differing.push(format!("heddle: {lines:?}: {error}")),
            _ => {}
        }
    }
    assert_eq!(differing, Vec::<String>::new());
}

/// What `tor --verify-config` says; `None` where there is no tor.
fn stock_takes(path: &Path) -> Option<bool> {
    let status = Command::new("tor")
        .args([
            "--verify-config",
            "--hush",
            "--ignore-missing-torrc",
            "--defaults-torrc",
            "/nonexistent/defaults",
            "-f",
        ])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.ok().map(|status| status.success())
}
