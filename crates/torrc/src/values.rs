//! Options whose values have a shape of their own: ports, logs, families.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use heddle_dir::authority::{is_nickname, parse_fingerprint};

/// Stock Tor's `DataDirectory`.
pub(super) const DATA_DIRECTORY: &str = "~/.tor";

/// A port to listen on or to advertise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This port, at least 1.
    Fixed(u16),
    /// Any free port the system picks.
    Auto,
}

/// One `ORPort` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrPort {
    /// The address, or `None` for every address of the families the line is about.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: Port,
    /// Whether the descriptor may name it (not `NoAdvertise`).
    pub advertise: bool,
    /// Whether the relay listens on it (not `NoListen`).
    pub listen: bool,
    /// Whether it is about IPv4 (not `IPv6Only`, and no IPv6 address).
    pub ipv4: bool,
    /// Whether it is about IPv6 (not `IPv4Only`, and no IPv4 address).
    pub ipv6: bool,
}

/// One address of an [`OrPort`]: a line without an address has one for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrAddress {
    /// The address; unspecified (`0.0.0.0` or `::`) when the line named none.
    pub address: IpAddr,
    /// The port.
    pub port: Port,
    /// Whether the line named the address.
    pub explicit: bool,
    /// Whether the descriptor may name it.
    pub advertise: bool,
    /// Whether the relay listens on it.
    pub listen: bool,
}

impl OrPort {
    /// Reads `[ADDRESS:]PORT|auto [FLAG…]`; a flag that is not known is a warning, as in stock Tor.
    /// `None` stands for port 0, which means no port.
    pub(super) fn parse(text: &str, warnings: &mut Vec<String>) -> Result<Option<Self>, String> {
        let mut words = text.split_ascii_whitespace();
        let target = words.next().unwrap_or("");
        let (address, port) = parse_listen_target(target)?;
        let Some(port) = port else { return Ok(None) };
        let mut or_port = Self {
            address,
            port,
            advertise: true,
            listen: true,
            ipv4: address.is_none_or(|address| address.is_ipv4()),
            ipv6: address.is_none_or(|address| address.is_ipv6()),
        };
        for flag in words {
            match flag.to_ascii_lowercase().as_str() {
                "noadvertise" => or_port.advertise = false,
                "nolisten" => or_port.listen = false,
                "ipv4only" => or_port.ipv6 = false,
                "ipv6only" => or_port.ipv4 = false,
                _ => warnings.push(format!("the flag `{flag}` is not known and is ignored")),
            }
        }
        if !or_port.advertise && !or_port.listen {
            return Err("NoAdvertise and NoListen together leave nothing; remove one of them".to_owned());
        }
        if !or_port.ipv4 && !or_port.ipv6 {
            return Err("no address family is left; remove IPv4Only or IPv6Only".to_owned());
        }
        Ok(Some(or_port))
    }

    /// The addresses the line stands for, IPv4 first.
    pub fn addresses(&self) -> Vec<OrAddress> {
        let any =
            [(self.ipv4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)), (self.ipv6, IpAddr::V6(Ipv6Addr::UNSPECIFIED))];
        any.into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, any)| OrAddress {
                address: self.address.unwrap_or(any),
                port: self.port,
                explicit: self.address.is_some(),
                advertise: self.advertise,
                listen: self.listen,
            })
            .collect()
    }
}

/// Reads `PORT`, `auto`, `ADDRESS:PORT` or `ADDRESS:auto`. The port is `None` when it is a bare 0.
fn parse_listen_target(target: &str) -> Result<(Option<IpAddr>, Option<Port>), String> {
    if target.is_empty() {
        return Err("a port is missing; write a port, `auto` or ADDRESS:PORT".to_owned());
    }
    if target.starts_with("unix:") {
        return Err("it cannot be a Unix socket; write a port, `auto` or ADDRESS:PORT".to_owned());
    }
    if target.eq_ignore_ascii_case("auto") {
        return Ok((None, Some(Port::Auto)));
    }
    if let Ok(port) = target.parse::<u16>() {
        return Ok((None, (port != 0).then_some(Port::Fixed(port))));
    }
    let bad =
        || format!("`{target}` is not a port, `auto` or ADDRESS:PORT (IPv6 addresses stand in brackets)");
    let (host, port) = target.rsplit_once(':').ok_or_else(bad)?;
    let port = match port.parse::<u16>() {
        _ if port.eq_ignore_ascii_case("auto") => Port::Auto,
        Ok(port) if port != 0 => Port::Fixed(port),
        _ => return Err(bad()),
    };
    let address = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => IpAddr::V6(host.parse().map_err(|_| bad())?),
        None => match host.parse::<Ipv4Addr>() {
            Ok(address) => IpAddr::V4(address),
            Err(_) => resolve(host).ok_or_else(bad)?,
        },
    };
    Ok((Some(address), Some(port)))
}

/// Reads `[ADDRESS:]PORT [prometheus]`; a bare port is one of 127.0.0.1. `None` stands for port 0, which means no port.
pub(super) fn parse_metrics_port(text: &str) -> Result<Option<SocketAddr>, String> {
    let mut words = text.split_ascii_whitespace();
    let (address, port) = parse_listen_target(words.next().unwrap_or(""))?;
    if let Some(format) = words.next().filter(|format| !format.eq_ignore_ascii_case("prometheus")) {
        return Err(format!("`{format}` is not a format of metrics; there is prometheus"));
    }
    match port {
        None => Ok(None),
        Some(Port::Fixed(port)) => {
            Ok(Some(SocketAddr::new(address.unwrap_or(Ipv4Addr::LOCALHOST.into()), port)))
        }
        Some(Port::Auto) => Err("it cannot be `auto`: whoever asks must know it; write a port".to_owned()),
    }
}

/// Looks a host name up, preferring IPv4 as stock Tor does. This happens only while the torrc is read.
fn resolve(host: &str) -> Option<IpAddr> {
    if host.is_empty() || host.contains(':') {
        return None;
    }
    let found: Vec<SocketAddr> = (host, 0).to_socket_addrs().ok()?.collect();
    let preferred = found.iter().find(|address| address.is_ipv4()).or(found.first());
    preferred.map(SocketAddr::ip)
}

/// Whether a `…Port` line that Heddle cannot serve turns the port off.
pub(super) fn is_port_off(text: &str) -> bool {
    text.split_ascii_whitespace().next() == Some("0")
}

/// Reads one item of `MyFamily`: a fingerprint with or without `$`, which is returned with `$` and in capitals
/// as descriptors have it, or a nickname.
pub(super) fn parse_family_member(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('$').unwrap_or(text);
    let fingerprint = bare.split(['=', '~']).next().unwrap_or(bare);
    if parse_fingerprint(fingerprint).is_some() {
        return Ok(format!("${}", fingerprint.to_ascii_uppercase()));
    }
    if is_nickname(text) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is not a fingerprint of 40 hexadecimal digits"))
}

/// How severe a message is, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Details for developers.
    Debug,
    /// What happens, in some detail.
    Info,
    /// What an operator wants to know.
    Notice,
    /// What an operator should look at.
    Warn,
    /// What stops the relay.
    Err,
}

/// Where messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of a file.
    File(PathBuf),
    /// The system's log.
    Syslog,
}

/// One `Log` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The least severe messages that are written.
    pub min: Severity,
    /// The most severe messages that are written.
    pub max: Severity,
    /// Where they go.
    pub target: LogTarget,
}

impl Log {
    /// Reads `[DOMAINS]min[-max] … [stdout|stderr|syslog|file PATH]`; without a target it is standard output. Of
    /// several ranges, which are for several domains, the widest holds for all.
    pub(super) fn parse(text: &str, warnings: &mut Vec<String>) -> Result<Self, String> {
        let (mut range, mut rest) = severities(text, warnings)?;
        while let Ok(((min, max), after)) = severities(rest, warnings) {
            range = (range.0.min(min), range.1.max(max));
            rest = after;
        }
        let rest = rest.trim();
        let (word, argument) = rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, ""));
        let target = match (word.to_ascii_lowercase().as_str(), argument.trim()) {
            ("" | "stdout", "") => LogTarget::Stdout,
            ("stderr", "") => LogTarget::Stderr,
            ("syslog", "") => LogTarget::Syslog,
            ("file", path) if !path.is_empty() => LogTarget::File(path.into()),
            _ => {
                return Err(format!("`{rest}` is not stdout, stderr, syslog or `file PATH`"));
            }
        };
        Ok(Self { min: range.0, max: range.1, target })
    }

    /// As [`expand_home`] does, for its file if it has one.
    pub(super) fn expand_home(&mut self, home: Option<&OsStr>) -> Result<(), String> {
        if let LogTarget::File(path) = &mut self.target {
            *path = expand_home(path, home)?;
        }
        Ok(())
    }
}

/// The range of severities that a text begins with, and what is behind it.
fn severities<'a>(
    text: &'a str,
    warnings: &mut Vec<String>,
) -> Result<((Severity, Severity), &'a str), String> {
    const DOMAINS: &str = "log domains are not supported; messages of every domain are written";
    let text = text.trim_start();
    let (has_domains, text) = match text.strip_prefix('[') {
        Some(rest) => {
            let (_, rest) = rest.split_once(']').ok_or("the list of domains has no closing bracket")?;
            (true, rest.trim_start())
        }
        None => (false, text),
    };
    let (levels, rest) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
    let (min, max) = levels.split_once('-').unwrap_or((levels, "err"));
    let range = (parse_severity(min)?, parse_severity(max)?);
    if has_domains && !warnings.iter().any(|warning| warning == DOMAINS) {
        warnings.push(DOMAINS.to_owned());
    }
    Ok((range, rest))
}

fn parse_severity(text: &str) -> Result<Severity, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(Severity::Debug),
        "info" => Ok(Severity::Info),
        "notice" => Ok(Severity::Notice),
        "warn" => Ok(Severity::Warn),
        "err" => Ok(Severity::Err),
        _ => Err(format!("`{text}` is not a severity; write debug, info, notice, warn or err")),
    }
}

/// An IP address, with or without brackets.
pub fn address(text: &str) -> Option<IpAddr> {
    text.trim_matches(['[', ']']).parse().ok()
}

/// A path in which a leading `~` stands for the home directory. Without one it would be a folder of that name, wherever
/// the program was started, with keys in it that nobody looks for there.
pub(super) fn expand_home(path: &Path, home: Option<&OsStr>) -> Result<PathBuf, String> {
    let shown = path.display();
    match path.strip_prefix("~") {
        Ok(rest) => match home.filter(|home| !home.is_empty()) {
            Some(home) => Ok(Path::new(home).join(rest)),
            None => Err(format!("HOME is not set, so `{shown}` is nowhere; set the option to a whole path")),
        },
        Err(_) if path.to_string_lossy().starts_with('~') => {
            Err(format!("`{shown}` is in another user's home, which is not looked up; write the whole path"))
        }
        Err(_) => Ok(path.to_owned()),
    }
}
