//! What a torrc says, as plain values.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use heddle_dir::authority::{DirAuthority, is_nickname};
use heddle_proto::policy::{ExitPolicy, ExitPolicyOptions, Rule};
use heddle_relay::DosOptions;

use super::heddle::HeddleOptions;
use super::values::{DATA_DIRECTORY, Log, OrAddress, OrPort, expand_home};

/// The options of a relay. Each field is named like the stock option it comes from; see tor(1) for what stock Tor
/// makes of it. `Default` is stock Tor's default.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The relay's name, 1 to 19 letters and digits.
    pub nickname: String,
    /// How to reach the operator; published.
    pub contact_info: Option<String>,
    /// The addresses or host names to publish instead of a guess, at most one for each family.
    pub address: Vec<String>,
    /// Where other relays and clients connect to.
    pub or_port: Vec<OrPort>,
    /// Where the relay keeps its files.
    pub data_directory: PathBuf,
    /// Where the keys are; see [`Self::key_directory`].
    pub key_directory: Option<PathBuf>,
    /// Where directory documents are kept; see [`Self::cache_directory`].
    pub cache_directory: Option<PathBuf>,
    /// The directory authorities instead of the built-in ones, when not empty.
    pub dir_authority: Vec<DirAuthority>,
    /// The directory authorities instead of the built-in ones, apart from bridge authorities, when not empty.
    pub alternate_dir_authority: Vec<DirAuthority>,
    /// Whether the relay is in a private network for tests.
    pub testing_tor_network: bool,
    /// Whether directories at private addresses may be used.
    pub dir_allow_private_addresses: bool,
    /// Whether circuits may be extended to private addresses.
    pub extend_allow_private_addresses: bool,
    /// Whether the master identity's secret is kept elsewhere: it is neither read nor made.
    pub offline_master_key: bool,
    /// How long a signing key is valid, in seconds.
    pub signing_key_lifetime_s: u64,
    /// How long an Ed25519 link certificate is valid, in seconds.
    pub testing_link_cert_lifetime_s: u64,
    /// How long an Ed25519 authentication key is valid, in seconds.
    pub testing_auth_key_lifetime_s: u64,
    /// How long before its end a signing key is replaced, in seconds.
    pub testing_signing_key_slop_s: u64,
    /// How long before its end a link certificate is replaced, in seconds.
    pub testing_link_key_slop_s: u64,
    /// How long before its end an authentication key is replaced, in seconds.
    pub testing_auth_key_slop_s: u64,
    /// How long a directory connection may stall, in seconds.
    pub testing_dir_connection_max_stall_s: u64,
    /// Whether the ORPort is published without finding it reachable first.
    pub assume_reachable: bool,
    /// The same for IPv6; `None` follows [`Self::assume_reachable`].
    pub assume_reachable_ipv6: Option<bool>,
    /// Whether the descriptor is sent to the authorities.
    pub publish_server_descriptor: bool,
    /// Whether the relay is an exit; `None` means only when one of the exit policy's options is set.
    pub exit_relay: Option<bool>,
    /// The operator's rules, in order.
    pub exit_policy: Vec<Rule>,
    /// Whether the reduced policy follows the operator's rules.
    pub reduced_exit_policy: bool,
    /// Whether private networks and our own addresses are closed to exit streams.
    pub exit_policy_reject_private: bool,
    /// Whether the addresses of all local interfaces are closed to exit streams.
    pub exit_policy_reject_local_interfaces: bool,
    /// Whether exit streams may go to IPv6 addresses.
    pub ipv6_exit: bool,
    /// Whether relays that the consensus does not list get no exit streams; `None` is as the consensus says.
    pub refuse_unknown_exits: Option<bool>,
    /// Defences against denial of service (`DoS…`).
    pub dos: DosOptions,
    /// Whether clients that come straight to us get no rendezvous point; `None` is as the consensus says.
    pub dos_refuse_single_hop_client_rendezvous: Option<bool>,
    /// The long-term limit of traffic in each direction, in bytes per second.
    pub bandwidth_rate: u64,
    /// The most that may pass at once, in bytes.
    pub bandwidth_burst: u64,
    /// The long-term limit of relayed traffic in bytes per second; 0 means [`Self::bandwidth_rate`].
    pub relay_bandwidth_rate: u64,
    /// The most relayed traffic that may pass at once in bytes; 0 means [`Self::bandwidth_burst`].
    pub relay_bandwidth_burst: u64,
    /// `CountPrivateBandwidth`: whether the rates also hold for private addresses.
    pub count_private_bandwidth: bool,
    /// The most that the descriptor claims, in bytes per second.
    pub max_advertised_bandwidth: u64,
    /// The most memory that queues may take, in bytes; 0 lets the relay choose by the machine's memory.
    pub max_mem_in_queues: u64,
    /// How long an onionskin may wait for a worker before it is refused, in milliseconds; 0 is as the consensus says.
    pub max_onion_queue_delay_ms: u64,
    /// How many threads work on onionskins; 0 means one for each core.
    pub num_cpus: u32,
    /// Whether debuggers of the same user are kept out, and no core is dumped.
    pub disable_debugger_attachment: bool,
    /// Where metrics are served.
    pub metrics_port: Option<SocketAddr>,
    /// Who may ask for metrics; ports do not matter. Nobody else may.
    pub metrics_port_policy: Vec<Rule>,
    /// Where messages go; empty means notices to standard output.
    pub log: Vec<Log>,
    /// How careful messages are with addresses.
    pub safe_logging: SafeLogging,
    /// Whether the relay goes into the background.
    pub run_as_daemon: bool,
    /// The file that gets the process id.
    pub pid_file: Option<PathBuf>,
    /// The user that the relay is to run as. It must be started as that one.
    pub user: Option<String>,
    /// The system's resolver configuration, instead of `/etc/resolv.conf`.
    pub server_dns_resolv_conf_file: Option<PathBuf>,
    /// Whether names are also looked up in the local search domains.
    pub server_dns_search_domains: bool,
    /// Whether the relay looks for a name server that lies about names that do not exist.
    pub server_dns_detect_hijacking: bool,
    /// Names that everybody knows. If such a name server lies about most of them, too, the relay is no exit.
    pub server_dns_test_addresses: Vec<String>,
    /// Whether the relay starts although its name servers cannot be read.
    pub server_dns_allow_broken_config: bool,
    /// Whether host names with unusual letters are looked up.
    pub server_dns_allow_non_rfc953_hostnames: bool,
    /// Whether the case of names is mixed to make forged answers harder.
    pub server_dns_randomize_case: bool,
    /// The relays of the same operator, as `$FINGERPRINT` or nickname.
    pub my_family: Vec<String>,
    /// How long a stopping relay serves its circuits, in seconds.
    pub shutdown_wait_length_s: u64,
    /// The addresses to connect from, at most one for each family.
    pub outbound_bind_address: Vec<IpAddr>,
    /// The addresses to connect to relays from; empty means [`Self::outbound_bind_address`].
    pub outbound_bind_address_or: Vec<IpAddr>,
    /// The addresses exit streams come from; empty means [`Self::outbound_bind_address`].
    pub outbound_bind_address_exit: Vec<IpAddr>,
    /// Whether circuits may be padded.
    pub circuit_padding: bool,
    /// Whether only cheap circuit padding is negotiated.
    pub reduced_circuit_padding: bool,
    /// Whether connections are padded; `None` leaves it to the other side.
    pub connection_padding: Option<bool>,
    /// Whether connections are closed early and padded less.
    pub reduced_connection_padding: bool,
    /// Options that stock Tor does not know.
    pub heddle: HeddleOptions,
}

/// How careful messages are with addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SafeLogging {
    /// Addresses are written as they are (`0`).
    Off,
    /// Addresses of clients are left out, those of relays are written (`relay`).
    Relay,
    /// Addresses are left out (`1`).
    On,
}

/// The least bandwidth of a relay in bytes per second; stock Tor asks the same of its relays.
const RELAY_RATE_MIN: u64 = 75 * 1024;

/// The largest bandwidth a descriptor can name: C's largest `int`.
pub(super) const BANDWIDTH_MAX: u64 = i32::MAX as u64;

const DAY_S: u64 = 24 * 3600;

/// Stock Tor's `ServerDNSTestAddresses`.
const WELL_KNOWN: [&str; 4] = ["www.google.com", "www.mit.edu", "www.yahoo.com", "www.slashdot.org"];

impl Options {
    /// Where the keys are: `KeyDirectory`, or `keys` in the data directory.
    pub fn key_directory(&self) -> PathBuf {
        self.key_directory.clone().unwrap_or_else(|| self.data_directory.join("keys"))
    }

    /// Where directory documents are kept: `CacheDirectory`, or the data directory.
    pub fn cache_directory(&self) -> PathBuf {
        self.cache_directory.clone().unwrap_or_else(|| self.data_directory.clone())
    }

    /// The authorities that are configured instead of the built-in ones; empty when there are none.
    pub fn authorities(&self) -> impl Iterator<Item = &DirAuthority> {
        self.dir_authority.iter().chain(&self.alternate_dir_authority)
    }

    /// The addresses of all ORPorts without duplicates. An address that was written stands before one that was not:
    /// `ORPort 9001` leaves IPv6 to an `ORPort [2001:db8::1]:9001` beside it.
    pub fn or_addresses(&self) -> Vec<OrAddress> {
        let mut addresses: Vec<OrAddress> = Vec::new();
        for address in self.or_port.iter().flat_map(OrPort::addresses) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let explicit: Vec<OrAddress> = addresses.iter().filter(|address| address.explicit).copied().collect();
        addresses.retain(|address| {
            address.explicit
                || !explicit.iter().any(|other| {
                    other.address.is_ipv4() == address.address.is_ipv4() && other.port == address.port
                })
        });
        addresses
    }

    /// Whether streams may leave here at all.
    pub fn is_exit(&self) -> bool {
        self.exit_relay.unwrap_or(!self.exit_policy.is_empty() || self.reduced_exit_policy || self.ipv6_exit)
    }

    /// The policy of the relay. `own_addresses` are the addresses it publishes, and with
    /// `ExitPolicyRejectLocalInterfaces` those of its interfaces too.
    pub fn exit_policy(&self, own_addresses: &[IpAddr]) -> ExitPolicy {
        if !self.is_exit() {
            return ExitPolicy::reject_all();
        }
        let mut reject_addresses = Vec::new();
        if self.exit_policy_reject_private || self.exit_policy_reject_local_interfaces {
            reject_addresses.extend_from_slice(own_addresses);
        }
        if self.exit_policy_reject_local_interfaces {
            reject_addresses.extend(self.or_port.iter().filter_map(|or_port| or_port.address));
            reject_addresses.extend_from_slice(&self.outbound_bind_address);
            reject_addresses.extend_from_slice(&self.outbound_bind_address_or);
            reject_addresses.extend_from_slice(&self.outbound_bind_address_exit);
        }
        ExitPolicy::build(&ExitPolicyOptions {
            rules: self.exit_policy.clone(),
            ipv6_exit: self.ipv6_exit,
            reject_private: self.exit_policy_reject_private,
            reject_addresses,
            reduced: self.reduced_exit_policy,
        })
    }

    /// The rate and burst of relayed traffic in bytes per second and bytes, after all limits.
    pub fn relay_rate_and_burst(&self) -> (u64, u64) {
        let (rate, burst) = self.relay_limits();
        (
            or_default(rate, self.bandwidth_rate).min(self.bandwidth_rate),
            or_default(burst, self.bandwidth_burst).min(self.bandwidth_burst),
        )
    }

    /// `RelayBandwidthRate` and `RelayBandwidthBurst`, of which each stands for both where it is alone; 0 for none.
    fn relay_limits(&self) -> (u64, u64) {
        (
            or_default(self.relay_bandwidth_rate, self.relay_bandwidth_burst),
            or_default(self.relay_bandwidth_burst, self.relay_bandwidth_rate),
        )
    }

    /// `AddressDisableIPv6`: no IPv6 address is published, and none is listened on that the operator did not name.
    pub(super) fn disable_ipv6(&mut self) {
        for or_port in &mut self.or_port {
            match or_port.address {
                None => or_port.ipv6 = false,
                Some(address) => or_port.advertise &= address.is_ipv4(),
            }
        }
        self.or_port.retain(|or_port| or_port.ipv4 || or_port.ipv6);
        self.or_port.retain(|or_port| or_port.advertise || or_port.listen);
    }

    /// Puts in what follows from several options or from where the program runs, and checks all of them. An error
    /// names the option to mend first.
    pub(super) fn complete(&mut self, home: Option<&OsStr>) -> Result<(), (&'static str, String)> {
        self.expand_home(home)?;
        // As stock Tor does, before a relay's own limits raise what is too little.
        self.validate_minima()?;
        let (rate, burst) = self.relay_limits();
        self.bandwidth_rate = self.bandwidth_rate.max(rate);
        self.bandwidth_burst = self.bandwidth_burst.max(burst);
        self.validate()
    }

    fn expand_home(&mut self, home: Option<&OsStr>) -> Result<(), (&'static str, String)> {
        let paths = [
            ("DataDirectory", Some(&mut self.data_directory)),
            ("KeyDirectory", self.key_directory.as_mut()),
            ("CacheDirectory", self.cache_directory.as_mut()),
            ("PidFile", self.pid_file.as_mut()),
            ("ServerDNSResolvConfFile", self.server_dns_resolv_conf_file.as_mut()),
        ];
        for (name, path) in paths {
            if let Some(path) = path {
                *path = expand_home(path, home).map_err(|reason| (name, reason))?;
            }
        }
        for log in &mut self.log {
            log.expand_home(home).map_err(|reason| ("Log", reason))?;
        }
        Ok(())
    }

    /// Checks what no option shows alone. An error names the option to mend first.
    fn validate(&self) -> Result<(), (&'static str, String)> {
        if !is_nickname(&self.nickname) {
            let reason = format!("`{}` is not a nickname: use 1 to 19 letters and digits", self.nickname);
            return Err(("Nickname", reason));
        }
        self.validate_or_port().map_err(|reason| ("ORPort", reason.to_owned()))?;
        self.validate_bandwidth()?;
        self.heddle.validate(self.testing_tor_network)?;
        if self.testing_tor_network && self.authorities().next().is_none() {
            let reason = "a test network needs its own authorities; add DirAuthority lines".to_owned();
            return Err(("TestingTorNetwork", reason));
        }
        // A key is replaced a day before its end, whatever TestingSigningKeySlop says, and is to last as long again.
        let lifetime_min_s = 2 * DAY_S;
        if self.signing_key_lifetime_s < lifetime_min_s {
            let reason = format!("it is too short; set at least {lifetime_min_s} seconds");
            return Err(("SigningKeyLifetime", reason));
        }
        if self.assume_reachable && self.assume_reachable_ipv6 == Some(false) {
            let reason = "it cannot be 0 while AssumeReachable is 1; remove one of them".to_owned();
            return Err(("AssumeReachableIPv6", reason));
        }
        Ok(())
    }

    fn validate_or_port(&self) -> Result<(), &'static str> {
        let addresses = self.or_addresses();
        let advertised: Vec<&OrAddress> = addresses.iter().filter(|address| address.advertise).collect();
        if addresses.is_empty() {
            return Err("a relay needs an ORPort; add one, such as `ORPort 9001`");
        }
        if !addresses.iter().any(|address| address.listen) {
            return Err("a port is advertised but none is listened on; add an ORPort without NoListen");
        }
        if advertised.is_empty() {
            return Err("a port is listened on but none is advertised; add an ORPort without NoAdvertise");
        }
        if !advertised.iter().any(|address| address.address.is_ipv4()) {
            return Err(
                "a relay must be reachable over IPv4; add an ORPort without IPv6Only or an IPv6 address",
            );
        }
        Ok(())
    }

    fn validate_minima(&self) -> Result<(), (&'static str, String)> {
        let minima = [
            ("BandwidthRate", self.bandwidth_rate, RELAY_RATE_MIN),
            ("MaxAdvertisedBandwidth", self.max_advertised_bandwidth, RELAY_RATE_MIN / 2),
        ];
        for (name, rate, min) in minima {
            if rate < min {
                return Err((
                    name,
                    format!("{rate} bytes per second is too little for a relay; set at least {min}"),
                ));
            }
        }
        Ok(())
    }

    fn validate_bandwidth(&self) -> Result<(), (&'static str, String)> {
        let (relay_rate, relay_burst) = self.relay_rate_and_burst();
        if relay_rate < RELAY_RATE_MIN {
            let reason = format!(
                "{relay_rate} bytes per second is too little for a relay; set at least {RELAY_RATE_MIN}"
            );
            return Err(("RelayBandwidthRate", reason));
        }
        if relay_burst < relay_rate {
            return Err((
                "RelayBandwidthBurst",
                "it must be at least RelayBandwidthRate; raise it".to_owned(),
            ));
        }
        if self.bandwidth_burst < self.bandwidth_rate {
            return Err(("BandwidthBurst", "it must be at least BandwidthRate; raise it".to_owned()));
        }
        Ok(())
    }
}

/// What stands for a value that is not set, which is 0.
fn or_default(value: u64, default: u64) -> u64 {
    if value == 0 { default } else { value }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nickname: "Unnamed".to_owned(),
            contact_info: None,
            address: Vec::new(),
            or_port: Vec::new(),
            data_directory: DATA_DIRECTORY.into(),
            key_directory: None,
            cache_directory: None,
            dir_authority: Vec::new(),
            alternate_dir_authority: Vec::new(),
            testing_tor_network: false,
            dir_allow_private_addresses: false,
            extend_allow_private_addresses: false,
            offline_master_key: false,
            signing_key_lifetime_s: 30 * DAY_S,
            testing_link_cert_lifetime_s: 2 * DAY_S,
            testing_auth_key_lifetime_s: 2 * DAY_S,
            testing_signing_key_slop_s: DAY_S,
            testing_link_key_slop_s: 3 * 3600,
            testing_auth_key_slop_s: 3 * 3600,
            testing_dir_connection_max_stall_s: 300,
            assume_reachable: false,
            assume_reachable_ipv6: None,
            publish_server_descriptor: true,
            exit_relay: None,
            exit_policy: Vec::new(),
            reduced_exit_policy: false,
            exit_policy_reject_private: true,
            exit_policy_reject_local_interfaces: false,
            ipv6_exit: false,
            refuse_unknown_exits: None,
            dos: DosOptions::default(),
            dos_refuse_single_hop_client_rendezvous: None,
            bandwidth_rate: 1 << 30,
            bandwidth_burst: 1 << 30,
            relay_bandwidth_rate: 0,
            relay_bandwidth_burst: 0,
            count_private_bandwidth: false,
            max_advertised_bandwidth: 1 << 30,
            max_mem_in_queues: 0,
            max_onion_queue_delay_ms: 0,
            num_cpus: 0,
            disable_debugger_attachment: true,
            metrics_port: None,
            metrics_port_policy: Vec::new(),
            log: Vec::new(),
            safe_logging: SafeLogging::On,
            run_as_daemon: false,
            pid_file: None,
            user: None,
            server_dns_resolv_conf_file: None,
            server_dns_search_domains: false,
            server_dns_detect_hijacking: true,
            server_dns_test_addresses: WELL_KNOWN.map(str::to_owned).into(),
            server_dns_allow_broken_config: true,
            server_dns_allow_non_rfc953_hostnames: false,
            server_dns_randomize_case: true,
            my_family: Vec::new(),
            shutdown_wait_length_s: 30,
            outbound_bind_address: Vec::new(),
            outbound_bind_address_or: Vec::new(),
            outbound_bind_address_exit: Vec::new(),
            circuit_padding: true,
            reduced_circuit_padding: false,
            connection_padding: None,
            reduced_connection_padding: false,
            heddle: HeddleOptions::default(),
        }
    }
}
