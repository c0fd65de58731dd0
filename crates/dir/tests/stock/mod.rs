//! Stock Tor for the tests: a scratch directory, and an authority of a network of one.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use base64ct::{Base64Unpadded, Encoding};
use heddle_dir::authority::DirAuthority;
use heddle_dir::descriptor::RouterDescriptor;
use heddle_dir::http::{self, Answer, HttpError, HttpResponse};
use heddle_dir::publish::{POST_ANSWER_BYTES_MAX, POST_PATH, PostOutcome};

/// A directory that is removed with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("heddle-dir-{}-{name}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The fingerprint that stock Tor finds, or makes, in `data_directory`; `kind` is `rsa` or
/// `ed25519`.
pub fn list_fingerprint(data_directory: &Path, nickname: &str, kind: &str) -> String {
    let torrc = data_directory.join("torrc");
    let text = format!(
        "DataDirectory {}\nNickname {nickname}\nORPort 9\nSocksPort 0\nExitRelay 0\n",
        data_directory.display()
    );
    fs::write(&torrc, text).unwrap();
    let output = Command::new("tor")
        .args(["--list-fingerprint", kind, "--quiet"])
        .args(["--defaults-torrc", "/nonexistent", "-f"])
        .arg(&torrc)
        .output()
        .expect("the tests need stock tor: install the package `tor`");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "tor --list-fingerprint: {text}");
    let line = text.lines().last().unwrap();
    line.strip_prefix(nickname).unwrap().replace(' ', "")
}

/// Starts stock Tor as a relay without a network on `data_directory`, and ends it so that it writes its state.
pub fn start_and_stop(data_directory: &Path) {
    let torrc = data_directory.join("torrc");
    let text = format!(
        "DataDirectory {}\nORPort 127.0.0.1:{}\nAddress 127.0.0.1\nSocksPort 0\nExitRelay 0\nAssumeReachable 1\n\
         PublishServerDescriptor 0\nDisableNetwork 1\n",
        data_directory.display(),
        free_ports()[0]
    );
    fs::write(&torrc, text).unwrap();
    let mut process = Command::new("tor")
        .args(["--defaults-torrc", "/nonexistent", "-f"])
        .arg(&torrc)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tests need stock tor: install the package `tor`");
    let log = read_lines(process.stdout.take().unwrap());
    wait_for_line(&log, "Bootstrapped 0%");
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    wait_for_line(&log, "exiting cleanly");
    assert!(process.wait().unwrap().success());
}

fn wait_for_line(log: &mpsc::Receiver<String>, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match log.recv_timeout(left) {
            Ok(line) if line.contains(text) => return,
            Ok(_) => {}
            Err(error) => panic!("tor did not log {text:?}: {error}"),
        }
    }
}

/// Two ports of loopback that nobody has now.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// A stock authority, alone in its network; ended and removed with the value.
pub struct Authority {
    process: Child,
    log: mpsc::Receiver<String>,
    pub line: DirAuthority,
    // Dropped after the process is ended, by the order of the fields.
    scratch: Scratch,
}

impl Authority {
    /// Starts one that votes every ten seconds, and waits until it listens.
    pub fn start(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let data = scratch.path().join("data");
        let [or_port, dir_port] = free_ports();
        let v3_ident = generate_voting_keys(&data);
        let rsa_id = list_fingerprint(&data, "auth", "rsa");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, dir_port);
        let line = format!("auth orport={or_port} v3ident={v3_ident} {address} {rsa_id}");
        let torrc = scratch.path().join("torrc");
        fs::write(&torrc, authority_torrc(&data, or_port, dir_port, &line)).unwrap();
        let mut process = Command::new("tor")
            .args(["--defaults-torrc", "/nonexistent", "-f"])
            .arg(&torrc)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let log = read_lines(process.stdout.take().unwrap());
        let line = DirAuthority::parse(&line, &mut Vec::new()).unwrap();
        let authority = Authority { process, log, line, scratch };
        authority.wait_for_log("Opened Directory listener");
        authority
    }

    /// Waits until the authority logs a line with `text`.
    pub fn wait_for_log(&self, text: &str) {
        wait_for_line(&self.log, text);
    }

    /// Its Ed25519 identity, from the file that it keeps for its operator.
    pub fn ed25519_id(&self) -> [u8; 32] {
        let path = self.scratch.path().join("data/fingerprint-ed25519");
        let line = fs::read_to_string(path).unwrap();
        let id = line.trim().split(' ').next_back().unwrap();
        Base64Unpadded::decode_vec(id).unwrap().try_into().unwrap()
    }

    pub fn dir_address(&self) -> SocketAddrV4 {
        self.line.dir_address
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends `request` to a directory that is known to be good, and reads its answer.
pub fn exchange(to: SocketAddr, request: &[u8], body_bytes_max: usize) -> Result<HttpResponse, HttpError> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request).unwrap();
    let (mut answer, mut piece) = (Answer::new(body_bytes_max), [0; 4096]);
    loop {
        let length = stream.read(&mut piece).unwrap();
        if length == 0 {
            return answer.end();
        }
        if let Some(response) = answer.push(&piece[..length])? {
            return Ok(response);
        }
    }
}

/// What `authority` makes of `descriptor`.
pub fn post(authority: &Authority, descriptor: &RouterDescriptor) -> PostOutcome {
    let to = authority.dir_address().into();
    let request = http::post(to, POST_PATH, descriptor.text.as_bytes());
    PostOutcome::from_result(exchange(to, &request, POST_ANSWER_BYTES_MAX))
}

/// The lines of `output`, read by a thread of its own so that the writer never blocks.
fn read_lines(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Once the test is over nobody listens, and the output is only drained.
            let _ = sender.send(line);
        }
    });
    receiver
}

fn authority_torrc(data: &Path, or_port: u16, dir_port: u16, line: &str) -> String {
    format!(
        "DataDirectory {}\nNickname auth\nContactInfo auth@example.com\nSocksPort 0\n\
         Address 127.0.0.1\nORPort 127.0.0.1:{or_port}\nDirPort 127.0.0.1:{dir_port}\n\
         DirAuthority {line}\nTestingTorNetwork 1\nAuthoritativeDirectory 1\n\
         V3AuthoritativeDirectory 1\nAuthDirTestReachability 0\nExitRelay 0\n\
         TestingV3AuthInitialVotingInterval 10\nTestingV3AuthInitialVoteDelay 2\n\
         TestingV3AuthInitialDistDelay 2\nV3AuthVotingInterval 10\nV3AuthVoteDelay 2\n\
         V3AuthDistDelay 2\nTestingAuthDirTimeToLearnReachability 0\n\
         VersioningAuthoritativeDirectory 1\nRecommendedVersions 0.4.9.11\n\
         ConsensusParams heddletest=7 onion-key-rotation-days=14\n\
         Log notice stdout\n",
        data.display()
    )
}

/// Makes an authority's voting keys with stock Tor's tool, and returns their identity.
fn generate_voting_keys(data: &Path) -> String {
    let keys = data.join("keys");
    fs::create_dir_all(&keys).unwrap();
    let mut process = Command::new("tor-gencert")
        .args(["--create-identity-key", "--passphrase-fd", "0", "-m", "12"])
        .current_dir(&keys)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tests need tor-gencert, of the package `tor`");
    process.stdin.take().unwrap().write_all(b"pass\n").unwrap();
    assert!(process.wait().unwrap().success());
    let certificate = fs::read_to_string(keys.join("authority_certificate")).unwrap();
    let line = certificate.lines().find_map(|line| line.strip_prefix("fingerprint "));
    line.unwrap().to_owned()
}
