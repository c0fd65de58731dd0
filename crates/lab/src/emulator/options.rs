//! An emulated network as people write it down.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::{fs, io};

use heddle_netem::units::read;
use heddle_netem::{DirectionOptions, HostOptions, InterfaceOptions, TopologyOptions, WireOptions, pcapng};
use serde::{Deserialize, Serialize};

use super::attack::AttackOptions;
use super::variable;
use crate::error::{Error, Result};

/// Hosts beyond this have no automatic address left.
const ADDRESSED_HOSTS_MAX: usize = 60_000;

/// Hosts, the wires between them, and what their kernels are set to.
///
/// In TOML: `[[host]]` and `[[wire]]` and perhaps `[default_wire]`, with what `heddle-netem` knows about them; and
/// perhaps `[[attack]]`, `[kernel]` and `[lateness]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkOptions {
    /// The hosts.
    #[serde(default, rename = "host")]
    pub hosts: Vec<EmulatedHostOptions>,
    /// The wires, at most one between two hosts.
    #[serde(default, rename = "wire")]
    pub wires: Vec<WireOptions>,
    /// The wire of every pair of hosts that has none of its own. Default: such hosts cannot reach each other.
    #[serde(default)]
    pub default_wire: Option<DirectionOptions>,
    /// Who attacks on the way. Default: nobody.
    #[serde(default, rename = "attack")]
    pub attacks: Vec<AttackOptions>,
    /// What every host's kernel is set to.
    #[serde(default)]
    pub kernel: KernelOptions,
    /// How late packets may be before the run says that it is invalid.
    #[serde(default)]
    pub lateness: LatenessOptions,
}

/// A host: a kernel's network of its own, with one device for all its wires.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmulatedHostOptions {
    /// The name, unique among the hosts.
    pub name: String,
    /// What all that it sends passes first.
    #[serde(default)]
    pub up: InterfaceOptions,
    /// What all that it receives passes last.
    #[serde(default)]
    pub down: InterfaceOptions,
    /// Its addresses, each of one host only. Default: one of 10.0.0.0/16, by its place among the hosts.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// What TCP uses towards every other host. Default: that of `[kernel]`.
    #[serde(default)]
    pub congestion_control: Option<String>,
    /// Command lines for `sh` that run in it from the beginning. Default: none.
    #[serde(default)]
    pub run: Vec<String>,
}

/// What every host's kernel is set to, so that a run does not depend on the machine's own settings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelOptions {
    /// What TCP uses, unless a program asks for something else. Default: `cubic`.
    pub congestion_control: String,
    /// The least, first and most memory of a TCP socket for what it received, in bytes. Default: Linux' own,
    /// 4096, 131 072 and 6 291 456.
    pub tcp_rmem: [u32; 3],
    /// The same for what it sends. Default: Linux' own, 4096, 16 384 and 4 194 304.
    pub tcp_wmem: [u32; 3],
    /// More settings below `net.`, such as `"net.ipv4.tcp_no_metrics_save" = "1"`. Default: none.
    pub sysctl: BTreeMap<String, String>,
    /// How many of a host's packets, of up to 64 KiB, wait for the emulator before the kernel drops more. Default:
    /// 10 000.
    pub device_packets: u32,
}

impl Default for KernelOptions {
    fn default() -> Self {
        KernelOptions {
            congestion_control: "cubic".to_owned(),
            tcp_rmem: [4096, 131_072, 6_291_456],
            tcp_wmem: [4096, 16_384, 4_194_304],
            sysctl: BTreeMap::new(),
            device_packets: 10_000,
        }
    }
}

/// How late the emulator may be before its own delay counts as the network's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LatenessOptions {
    /// At the 99th percentile. Default: 1 ms.
    #[serde(rename = "p99", deserialize_with = "read::duration_ns")]
    pub p99_max_ns: u64,
    /// Ever. Default: 50 ms.
    #[serde(rename = "max", deserialize_with = "read::duration_ns")]
    pub most_max_ns: u64,
}

impl Default for LatenessOptions {
    fn default() -> Self {
        LatenessOptions { p99_max_ns: 1_000_000, most_max_ns: 50_000_000 }
    }
}

/// What is not part of the network itself.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// The root of all that chance does to packets.
    pub seed: u64,
    /// Where captures go; `None` makes none.
    pub captures: Option<PathBuf>,
    /// What opens TUN devices.
    pub tun_device: PathBuf,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { seed: 1, captures: None, tun_device: PathBuf::from("/dev/net/tun") }
    }
}

impl NetworkOptions {
    /// Reads a network from a TOML file.
    pub fn read(path: &Path) -> Result<NetworkOptions> {
        let text = fs::read_to_string(path).map_err(Error::io(format!("reading {}", path.display())))?;
        NetworkOptions::parse(&text).map_err(|error| Error::Options(format!("{}: {error}", path.display())))
    }

    /// Reads a network from TOML.
    pub fn parse(text: &str) -> Result<NetworkOptions> {
        let options: NetworkOptions =
            toml::from_str(text).map_err(|error| Error::Options(error.to_string()))?;
        options.check()?;
        Ok(options)
    }

    /// The first fault that the wires' own checks do not find.
    pub fn check(&self) -> Result<()> {
        let fault = |what: String| Err(Error::Options(what));
        self.topology().validate().or_else(|error| fault(error.to_string()))?;
        if self.hosts.is_empty() || self.hosts.len() > ADDRESSED_HOSTS_MAX {
            return fault(format!("{} hosts; possible is from 1 to {ADDRESSED_HOSTS_MAX}", self.hosts.len()));
        }
        self.check_names()?;
        let mut taken = BTreeSet::new();
        for address in self.addresses().into_iter().flatten() {
            if !taken.insert(address) {
                return fault(format!("{address} belongs to two hosts"));
            }
            if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
                return fault(format!("{address} cannot be a host's address"));
            }
        }
        if let Some(what) = self.attacks.iter().find_map(|attack| self.attack_fault(attack)) {
            return fault(what);
        }
        for name in self.kernel.sysctl.keys() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if !name.starts_with("net.") || !name.chars().all(plain) || name.contains("..") {
                return fault(format!("kernel: sysctl: {name:?} is no setting below net."));
            }
        }
        Ok(())
    }

    fn attack_fault(&self, attack: &AttackOptions) -> Option<String> {
        let AttackOptions { from, to, .. } = attack;
        let is_unknown = |end: &&String| !self.hosts.iter().any(|host| host.name == **end);
        if let Some(end) = [from, to].into_iter().find(is_unknown) {
            return Some(format!("attack: there is no host \"{end}\""));
        }
        let joins = |wire: &WireOptions| [(from, to), (to, from)].contains(&(&wire.from, &wire.to));
        let is_joined = self.default_wire.is_some() || self.wires.iter().any(joins);
        let no_wire = || format!("attack from \"{from}\" to \"{to}\": no wire joins these two hosts");
        attack.fault().or_else(|| (!is_joined).then(no_wire))
    }

    /// Different names must not become the same where not every character may stand.
    fn check_names(&self) -> Result<()> {
        let mut variables = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (place, EmulatedHostOptions { name, .. }) in self.hosts.iter().enumerate() {
            places.insert(name, place);
            let variable = variable(name);
            if let Some(other) = variables.insert(variable.clone(), name) {
                let what = format!("hosts {other:?} and {name:?} would have the same variable, {variable}");
                return Err(Error::Options(what));
            }
        }
        let mut files = BTreeMap::new();
        for WireOptions { from, to, .. } in &self.wires {
            let ends = if places[from] < places[to] { [from, to] } else { [to, from] };
            let file = pcapng::file_name(ends.map(String::as_str));
            if let Some([one, other]) = files.insert(file.clone(), [from, to]) {
                return Err(Error::Options(format!(
                    "wires from {one:?} to {other:?} and from {from:?} to {to:?} would have the same capture, {file}"
                )));
            }
        }
        Ok(())
    }

    /// The part that `heddle-netem` emulates.
    pub fn topology(&self) -> TopologyOptions {
        let host = |host: &EmulatedHostOptions| HostOptions {
            name: host.name.clone(),
            up: host.up.clone(),
            down: host.down.clone(),
        };
        TopologyOptions {
            hosts: self.hosts.iter().map(host).collect(),
            wires: self.wires.clone(),
            default_wire: self.default_wire.clone(),
        }
    }

    /// The addresses of each host, its own or the automatic one.
    pub fn addresses(&self) -> Vec<Vec<IpAddr>> {
        let of = |(place, host): (usize, &EmulatedHostOptions)| {
            let [_, _, high, low] = (place as u32 + 1).to_be_bytes();
            let automatic = || vec![Ipv4Addr::new(10, 0, high, low).into()];
            if host.addresses.is_empty() { automatic() } else { host.addresses.clone() }
        };
        self.hosts.iter().enumerate().map(of).collect()
    }
}

/// Where a setting such as `net.ipv4.tcp_rmem` is written.
pub(super) fn sysctl_path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

/// Writes a setting of the calling thread's network namespace.
pub(super) fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(sysctl_path(name), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::attack::Trigger;

    const TWO: &str = "[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n[[wire]]\nfrom = 'a'\nto = 'b'\n";

    #[test]
    fn what_is_not_said_has_the_documented_default() {
        let options = NetworkOptions::parse(TWO).unwrap();
        assert_eq!(options.kernel.congestion_control, "cubic");
        assert_eq!(options.lateness, LatenessOptions { p99_max_ns: 1_000_000, most_max_ns: 50_000_000 });
        let addresses: Vec<IpAddr> = options.addresses().concat();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.2"].map(|address| address.parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn everything_can_be_said() {
        let rest = r#"
            [kernel]
            congestion_control = "reno"
            tcp_rmem = [4096, 8192, 65536]
            sysctl = { "net.ipv4.tcp_no_metrics_save" = "1" }
            [lateness]
            p99 = "0.2 ms"
            max = "5 ms"
            [default_wire]
            delay = "1 ms""#;
        let options = NetworkOptions::parse(&format!("{TWO}{rest}")).unwrap();
        assert_eq!((options.lateness.p99_max_ns, options.kernel.tcp_rmem[2]), (200_000, 65_536));
        assert_eq!(options.default_wire.unwrap().delay_ns, 1_000_000);
    }

    #[test]
    fn faults_are_said() {
        let cases = [
            ("", "0 hosts"),
            ("[[host]]\nname = 'a'\ncolour = 'red'", "colour"),
            (
                "[[host]]\nname = 'a-b'\n[[host]]\nname = 'A_b'",
                r#"hosts "a-b" and "A_b" would have the same variable, HEDDLE_A_B"#,
            ),
            (
                &["[[host]]\nname = 'a'\n[[host]]\nname = 'b-c'\n[[host]]\nname = 'a-b'\n[[host]]\nname = 'c'\n",
                  "[[wire]]\nfrom = 'b-c'\nto = 'a'\n[[wire]]\nfrom = 'a-b'\nto = 'c'"].concat(),
                r#"from "b-c" to "a" and from "a-b" to "c" would have the same capture, a-b-c.pcapng"#,
            ),
            ("[[host]]\nname = 'a'\naddresses = ['10.0.0.2']\n[[host]]\nname = 'b'", "belongs to two hosts"),
            ("[[host]]\nname = 'a'\naddresses = ['127.0.0.1']", "cannot be a host's address"),
            ("[[host]]\nname = 'a'\n[[wire]]\nfrom = 'a'\nto = 'c'", "c"),
            ("[[host]]\nname = 'a'\n[kernel.sysctl]\n'kernel.panic' = '1'", "no setting below net."),
            ("[[host]]\nname = 'a'\n[kernel.sysctl]\n'net.../x' = '1'", "no setting below net."),
            ("[[host]]\nname = 'a'\n[lateness]\nmax = '5'", "5"),
        ];
        for (toml, said) in cases {
            let error = NetworkOptions::parse(toml).unwrap_err().to_string();
            assert!(error.contains(said), "{toml}: {error}");
        }
    }

    fn attacked(to: &str, rest: &str) -> Result<NetworkOptions> {
        let attack = format!("[[attack]]\nfrom = 'a'\nto = '{to}'\n{rest}");
        NetworkOptions::parse(&format!("{TWO}[[host]]\nname = 'far'\n{attack}"))
    }

    #[test]
    fn bad_attacks_are_said() {
        let drop = "kind = { drop = {} }";
        let unlikely = |probability: &str| format!("each = {{ probability = {probability} }}\n{drop}");
        let cases = [
            ("c", drop, "no host \"c\""),
            ("far", drop, "from \"a\" to \"far\": no wire joins these two hosts"),
            ("b", "kind = { reorder = { behind = 0 } }", "behind"),
            ("b", "kind = { burn = {} }", "burn"),
            ("b", "flow = { protocol = 'udp' }\nkind = { reset = {} }", "only TCP"),
            ("b", &unlikely("'150 %'"), "a probability is from 0 to 1"),
            ("b", &unlikely("1.5"), "a probability is from 0 to 1"),
            ("b", &unlikely("nan"), "a probability is from 0 to 1"),
            ("b", &unlikely("'-1 %'"), "is not a probability"),
        ];
        for (to, rest, said) in cases {
            let error = attacked(to, rest).unwrap_err().to_string();
            assert!(error.contains(said), "{to} {rest}: {error}");
        }
    }

    #[test]
    fn attacks_have_probabilities_as_wires_do_and_may_be_on_the_default_wire() {
        for (probability, value) in [("0.25", 0.25), ("1", 1.0), ("'5 %'", 0.05)] {
            let each = format!("each = {{ probability = {probability} }}");
            let options = attacked("b", &format!("{each}\nkind = {{ drop = {{}} }}")).unwrap();
            assert_eq!(options.attacks[0].each, Trigger::Probability(value));
        }
        attacked("far", "kind = { drop = {} }\n[default_wire]").unwrap();
    }
}
