//! The torrc of `heddle proxy`, which is a stock client's in a testing network.
//!
//! What a stock client's torrc says beyond it is named in one warning for each option. Without `TestingTorNetwork 1`
//! and `DirAuthority` lines it is refused: the proxy is no user's client.

use super::lines::{self, Command, Line, Place};
use super::names::{self, Name};
use super::setting::flag;
use super::units::parse_seconds;
use super::values::{DATA_DIRECTORY, Log, expand_home};
use super::{TorrcError, Warning};
use heddle_dir::authority::DirAuthority;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The SOCKS port without a line about it, as with stock Tor.
const SOCKS_PORT: u16 = 9050;
const NOT_OF_A_PROXY: &str = "`heddle proxy` does not know this option, and ignores it";

/// The options of `heddle proxy`, by the names of stock Tor's that they come from.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `SocksPort`: where programs connect, on loopback. Port 0 is any.
    pub socks: SocketAddr,
    /// `DataDirectory`, where the consensus is kept.
    pub data_directory: PathBuf,
    /// `DirAuthority`; at least one.
    pub authorities: Vec<DirAuthority>,
    /// `MaxCircuitDirtiness`.
    pub dirty_max: Duration,
    /// `Log`; empty means notices to standard output.
    pub log: Vec<Log>,
}

impl ClientOptions {
    /// Reads and checks a torrc and everything it includes.
    ///
    /// # Errors
    /// One sentence with file and line, and how to mend it.
    pub fn load(path: &Path) -> Result<(Self, Vec<Warning>), TorrcError> {
        Self::load_for(path, env::var_os("HOME").as_deref())
    }

    /// The same for the user whose home directory this is.
    fn load_for(path: &Path, home: Option<&OsStr>) -> Result<(Self, Vec<Warning>), TorrcError> {
        let mut reader = Reader::default();
        for line in lines::read(path)? {
            reader.take(line)?;
        }
        reader.finish(&Place { file: path.to_owned(), line: 0 }, home)
    }
}

#[derive(Default)]
struct Reader {
    /// The lines that count, by option.
    lines: BTreeMap<&'static str, Vec<Line>>,
    told: BTreeSet<&'static str>,
    warnings: Vec<Warning>,
}

impl Reader {
    fn take(&mut self, line: Line) -> Result<(), TorrcError> {
        let name = match names::find(&line.name) {
            Name::Stock(name) | Name::Abbreviation(name) | Name::Obsolete(name) => name,
            Name::Unknown(closest) => {
                let mend = match closest {
                    Some(closest) => format!("did you mean {closest}?"),
                    None => "correct its name or remove the line".to_owned(),
                };
                return Err(TorrcError::at(&line.place, format!("unknown option `{}`; {mend}", line.name)));
            }
        };
        let is_list = matches!(name, "DirAuthority" | "Log");
        let is_ours =
            matches!(name, "SocksPort" | "DataDirectory" | "MaxCircuitDirtiness" | "TestingTorNetwork");
        if line.command == Command::Clear {
            self.lines.remove(name);
        } else if is_list {
            self.lines.entry(name).or_default().push(line);
        } else if is_ours {
            self.lines.insert(name, vec![line]);
        } else if self.told.insert(name) {
            self.warn(&line.place, name, NOT_OF_A_PROXY.to_owned());
        }
        Ok(())
    }

    fn warn(&mut self, place: &Place, option: &str, text: String) {
        self.warnings.push(Warning { place: place.clone(), option: option.to_owned(), text });
    }

    /// The last line of an option, read.
    fn one<T>(
        &self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, TorrcError> {
        match self.lines.get(name).and_then(|lines| lines.last()) {
            Some(line) => {
                read(&line.value).map_err(|why| TorrcError::at(&line.place, format!("{name}: {why}")))
            }
            None => Ok(default),
        }
    }

    /// All lines of an option, read.
    fn all<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str, &mut Vec<String>) -> Result<T, String>,
    ) -> Result<Vec<T>, TorrcError> {
        let mut values = Vec::new();
        for line in self.lines.get(name).cloned().unwrap_or_default() {
            let mut texts = Vec::new();
            let value = read(&line.value, &mut texts)
                .map_err(|why| TorrcError::at(&line.place, format!("{name}: {why}")))?;
            values.push(value);
            texts.into_iter().for_each(|text| self.warn(&line.place, name, text));
        }
        Ok(values)
    }

    /// `DataDirectory`, or stock Tor's.
    fn data_directory(&self, whole: &Place, home: Option<&OsStr>) -> Result<PathBuf, TorrcError> {
        match self.one("DataDirectory", None, |text| expand_home(Path::new(text), home).map(Some))? {
            Some(directory) => Ok(directory),
            None => expand_home(Path::new(DATA_DIRECTORY), home)
                .map_err(|why| TorrcError::at(whole, format!("DataDirectory: {why}"))),
        }
    }

    fn finish(
        mut self,
        whole: &Place,
        home: Option<&OsStr>,
    ) -> Result<(ClientOptions, Vec<Warning>), TorrcError> {
        if !self.one("TestingTorNetwork", false, flag)? {
            let line = self.lines.get("TestingTorNetwork").and_then(|lines| lines.last());
            let text = "TestingTorNetwork: `heddle proxy` is for laboratories, and nobody is anonymous with it; \
                        set TestingTorNetwork 1 in a private network, and use Tor Browser or Arti elsewhere";
            return Err(TorrcError::at(line.map_or(whole, |line| &line.place), text.to_owned()));
        }
        let authorities = self.all("DirAuthority", |text, warnings| {
            DirAuthority::parse(text, warnings).map_err(|error| error.to_string())
        })?;
        if !authorities.iter().any(|authority| authority.v3_ident.is_some()) {
            let text =
                "DirAuthority: a test network needs its own authorities; add DirAuthority lines with v3ident";
            return Err(TorrcError::at(whole, text.to_owned()));
        }
        let options = ClientOptions {
            socks: self.one("SocksPort", (Ipv4Addr::LOCALHOST, SOCKS_PORT).into(), socks_port)?,
            data_directory: self.data_directory(whole, home)?,
            authorities,
            dirty_max: Duration::from_secs(self.one("MaxCircuitDirtiness", 600, parse_seconds)?),
            log: self.all("Log", |text, warnings| {
                let mut log = Log::parse(text, warnings)?;
                log.expand_home(home)?;
                Ok(log)
            })?,
        };
        Ok((options, self.warnings))
    }
}

/// A port, or an address of loopback with one; what else stock Tor takes is about isolation, which is always as its
/// default.
fn socks_port(text: &str) -> Result<SocketAddr, String> {
    let word = text.split_ascii_whitespace().next().unwrap_or_default();
    let (host, port) = word.rsplit_once(':').map_or((None, word), |(host, port)| (Some(host), port));
    let bare = host.map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    let address = match bare {
        None => Ok(Ipv4Addr::LOCALHOST.into()),
        Some("localhost") => Ok(Ipv4Addr::LOCALHOST.into()),
        Some(host) => host.parse().map_err(|_| format!("`{word}` is no ADDRESS:PORT")),
    }?;
    let port = match port {
        "auto" => 0,
        port => match port.parse::<u16>() {
            Ok(0) => {
                return Err("the proxy is of no use without its port; set it, or `auto` for any".to_owned());
            }
            Ok(port) => port,
            Err(_) => return Err(format!("`{word}` is neither a port nor `auto`")),
        },
    };
    let socks = SocketAddr::new(address, port);
    match socks.ip().is_loopback() {
        true => Ok(socks),
        false => Err(format!("{address} is not on loopback, where the proxy belongs; name 127.0.0.1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogTarget;

    const AUTHORITY: &str = "DirAuthority a orport=1 v3ident=3A1CEB849C2532E1BF0FF86900CF217296106DE4 127.0.0.1:9 \
                             0000000000000000000000000000000000000000";

    fn load(text: &str) -> Result<(ClientOptions, Vec<String>), String> {
        load_for(text, Some(OsStr::new("/elsewhere")))
    }

    fn load_for(text: &str, home: Option<&OsStr>) -> Result<(ClientOptions, Vec<String>), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("torrc");
        std::fs::write(&path, text).unwrap();
        let cut = |text: String| text.replace(&format!("{}/", directory.path().display()), "");
        let (options, warnings) =
            ClientOptions::load_for(&path, home).map_err(|error| cut(error.to_string()))?;
        Ok((options, warnings.iter().map(|warning| cut(warning.to_string())).collect()))
    }

    #[test]
    fn a_stock_clients_torrc_is_taken() {
        let text = format!(
            "TestingTorNetwork 1\n{AUTHORITY}\nSocksPort 9051\nSocksPort 127.0.0.1:9052\nDataDirectory /tmp/here\n\
             LearnCircuitBuildTimeout 0\nMaxCircuitDirtiness 2 hours\nLog notice stderr\nConfluxEnabled 0\n"
        );
        let (options, warnings) = load(&text).unwrap();
        assert_eq!(options.socks, "127.0.0.1:9052".parse().unwrap());
        assert_eq!((options.authorities.len(), options.log.len()), (1, 1));
        assert_eq!(options.data_directory, Path::new("/tmp/here"));
        assert_eq!(options.dirty_max, Duration::from_secs(7200));
        let ignored = |line, name| format!("torrc:{line}: {name}: {NOT_OF_A_PROXY}");
        assert_eq!(warnings, [ignored(6, "LearnCircuitBuildTimeout"), ignored(9, "ConfluxEnabled")]);
        let (options, _) = load(&format!("TestingTorNetwork 1\n{AUTHORITY}\n")).unwrap();
        assert_eq!(options.socks, "127.0.0.1:9050".parse().unwrap());
    }

    #[test]
    fn a_path_at_home_needs_one() {
        let network = format!("TestingTorNetwork 1\n{AUTHORITY}\n");
        let (options, _) = load(&format!("{network}Log notice file ~/log\n")).unwrap();
        assert_eq!(options.data_directory, Path::new("/elsewhere/.tor"));
        assert_eq!(options.log[0].target, LogTarget::File("/elsewhere/log".into()));
        let homeless = |lines: &str| load_for(&format!("{network}{lines}"), None);
        let said = homeless("").unwrap_err();
        assert!(said.starts_with("torrc: DataDirectory: HOME is not set, so `~/.tor` is nowhere"), "{said}");
        let said = homeless("DataDirectory /data\nLog notice file ~/log\n").unwrap_err();
        assert!(said.starts_with("torrc:4: Log: HOME is not set, so `~/log` is nowhere"), "{said}");
        assert_eq!(homeless("DataDirectory /data\n").unwrap().0.data_directory, Path::new("/data"));
    }

    #[test]
    fn what_cannot_be_is_said_with_its_line() {
        let network = format!("TestingTorNetwork 1\n{AUTHORITY}\n");
        for (text, error) in [
            ("SocksPort 9050\n".to_owned(), "torrc: TestingTorNetwork: `heddle proxy` is for laboratories"),
            (format!("{AUTHORITY}\nTestingTorNetwork 0\n"), "torrc:2: TestingTorNetwork: `heddle proxy` is"),
            ("TestingTorNetwork 1\n".to_owned(), "torrc: DirAuthority: a test network needs"),
            (format!("{network}SocksPort 0\n"), "torrc:3: SocksPort: the proxy is of no use"),
            (format!("{network}SocksPort 0.0.0.0:9050\n"), "torrc:3: SocksPort: 0.0.0.0 is not on loopback"),
            (format!("{network}SocksPort x\n"), "torrc:3: SocksPort: `x` is neither"),
            (format!("{network}SockPort 1\n"), "torrc:3: unknown option `SockPort`; did you mean SocksPort?"),
            (
                format!("{network}MaxCircuitDirtiness soon\n"),
                "torrc:3: MaxCircuitDirtiness: `soon` is not a time",
            ),
        ] {
            let found = load(&text).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
        assert_eq!(
            load(&format!("{network}SocksPort [::1]:auto\n")).unwrap().0.socks,
            "[::1]:0".parse().unwrap()
        );
    }
}
