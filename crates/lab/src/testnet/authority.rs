//! The keys of a directory authority, made by stock Tor's own programs.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, thread};

use crate::error::{Error, Result};

const INSTALL: &str = "install Debian's package `tor` (apt-get install tor), or set HEDDLE_TOR";

/// The stock programs of one installation.
#[derive(Clone, Debug)]
pub(super) struct Stock {
    pub(super) tor: PathBuf,
    gencert: PathBuf,
}

impl Stock {
    /// Finds `tor` (the given path, `HEDDLE_TOR`, or the search path) and `tor-gencert` beside it or
    /// in the search path.
    pub(super) fn find(tor: Option<&Path>) -> Result<Stock> {
        let missing = |name: String| Error::MissingProgram { name, hint: INSTALL };
        let asked = tor.map(Path::to_owned).or_else(|| env::var_os("HEDDLE_TOR").map(PathBuf::from));
        let tor = match asked {
            Some(path) if path.is_file() => path,
            Some(path) => return Err(missing(path.display().to_string())),
            None => in_search_path("tor").ok_or_else(|| missing("tor".into()))?,
        };
        let beside = tor.with_file_name("tor-gencert");
        let gencert = if beside.is_file() { Some(beside) } else { in_search_path("tor-gencert") };
        Ok(Stock { tor, gencert: gencert.ok_or_else(|| missing("tor-gencert".into()))? })
    }

    /// What the program says of its version, such as `0.4.9.11`.
    pub(super) fn version(&self) -> Option<String> {
        let output = Command::new(&self.tor).arg("--version").output().ok()?;
        let said = String::from_utf8(output.stdout).ok()?;
        let version = said.strip_prefix("Tor version ")?.split_whitespace().next()?;
        Some(version.trim_end_matches('.').to_owned())
    }
}

fn in_search_path(name: &str) -> Option<PathBuf> {
    // A user's search path often lacks the places where daemons are installed.
    let dirs = env::split_paths(&env::var_os("PATH")?).collect::<Vec<_>>();
    let daemons = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    dirs.into_iter().chain(daemons).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// An authority whose keys lie in its DataDirectory.
#[derive(Clone, Debug)]
pub(super) struct Authority {
    pub(super) nickname: String,
    /// Holds `torrc`, `log`, `control` and `data`.
    pub(super) dir: PathBuf,
    pub(super) address: IpAddr,
    pub(super) or_port: u16,
    pub(super) dir_port: u16,
    /// SHA-1 of the long-term authority key, upper-case hexadecimal.
    v3_ident: String,
    /// The relay identity's fingerprint, upper-case hexadecimal.
    fingerprint: String,
}

impl Authority {
    /// The torrc line by which everybody knows this authority.
    pub(super) fn dir_authority_line(&self) -> String {
        let Authority { nickname, address, or_port, dir_port, v3_ident, fingerprint, .. } = self;
        format!(
            "DirAuthority {nickname} orport={or_port} v3ident={v3_ident} {address}:{dir_port} {fingerprint}"
        )
    }
}

/// A name and ports for an authority to be made.
pub(super) struct Place {
    pub(super) nickname: String,
    pub(super) dir: PathBuf,
    pub(super) address: IpAddr,
    pub(super) or_port: u16,
    pub(super) dir_port: u16,
}

/// Makes the keys of all authorities at the same time.
pub(super) fn make_all(stock: &Stock, places: Vec<Place>) -> Result<Vec<Authority>> {
    thread::scope(|scope| {
        let makers: Vec<_> =
            places.into_iter().map(|place| scope.spawn(move || make(stock, place))).collect();
        let panicked = "making keys does not panic";
        makers.into_iter().map(|maker| maker.join().expect(panicked)).collect()
    })
}

fn make(stock: &Stock, place: Place) -> Result<Authority> {
    let Place { nickname, dir, address, or_port, dir_port } = place;
    let data = dir.join("data");
    let keys = data.join("keys");
    make_private_dir(&keys)?;
    let mut gencert = Command::new(&stock.gencert);
    gencert
        .args(["--create-identity-key", "--passphrase-fd", "0", "-m", "12"])
        .args(["-a", &format!("{address}:{dir_port}")])
        .args(["-i", "authority_identity_key", "-s", "authority_signing_key"])
        .args(["-c", "authority_certificate"])
        .current_dir(&keys);
    run(gencert, b"not secret\n")?;
    let certificate = keys.join("authority_certificate");
    let text = fs::read_to_string(&certificate);
    let text = text.map_err(Error::io(format!("reading {}", certificate.display())))?;
    let v3_ident = text.lines().find_map(|line| line.strip_prefix("fingerprint "));
    let malformed = |sent: String| Error::Malformed { by: "tor-gencert", sent };
    let v3_ident = v3_ident.ok_or_else(|| malformed(text.clone()))?.to_owned();

    let empty = dir.join("empty");
    fs::write(&empty, "").map_err(Error::io("writing an empty torrc"))?;
    let mut list = Command::new(&stock.tor);
    list.args(["--list-fingerprint", "--quiet", "--defaults-torrc"]).arg(&empty).arg("-f").arg(&empty);
    list.arg("--DataDirectory").arg(&data);
    list.args(["--Nickname", &nickname, "--ORPort", &or_port.to_string(), "--SocksPort", "0"]);
    // "nickname ABCD 0123 …", after whatever warnings there are.
    let listed = String::from_utf8_lossy(&run(list, b"")?.stdout).into_owned();
    let fingerprint = listed.lines().find_map(|line| line.strip_prefix(&format!("{nickname} ")));
    let malformed = || Error::Malformed { by: "tor --list-fingerprint", sent: listed.clone() };
    let fingerprint = fingerprint.ok_or_else(malformed)?.replace(' ', "");
    Ok(Authority { nickname, dir, address, or_port, dir_port, v3_ident, fingerprint })
}

/// Makes a directory, and those above it, that only the owner can enter, as Tor demands.
pub(super) fn make_private_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(Error::io(format!("making {}", path.display())))
}

/// Runs a program to its end with the given input.
fn run(mut command: Command, input: &[u8]) -> Result<Output> {
    let name = command.get_program().display().to_string();
    let doing = || format!("running {name}");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(Error::io(doing()))?;
    let mut stdin = child.stdin.take().expect("its input is a pipe");
    let written = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().map_err(Error::io(doing()))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(Error::Exited {
            process: name,
            status: output.status.to_string(),
            log: String::from_utf8_lossy(&said).into_owned(),
            torrc: PathBuf::from("its command line"),
        });
    }
    written.map_err(Error::io(doing()))?;
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_missing_tor_says_how_to_get_it() {
        let error = Stock::find(Some(Path::new("/nonexistent/tor"))).unwrap_err();
        assert!(error.to_string().contains("apt-get install tor"), "{error}");
    }

    #[test]
    fn an_authority_gets_its_keys() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place {
            nickname: "auth0".into(),
            dir: dir.path().join("auth0"),
            address: Ipv4Addr::LOCALHOST.into(),
            or_port: 10_001,
            dir_port: 10_002,
        };
        let made = make_all(&Stock::find(None).unwrap(), vec![place]).unwrap();
        assert_eq!((made[0].v3_ident.len(), made[0].fingerprint.len()), (40, 40));
        assert!(made[0].dir_authority_line().starts_with("DirAuthority auth0 orport=10001 v3ident="));
        assert!(dir.path().join("auth0/data/keys/authority_signing_key").exists());
    }
}
