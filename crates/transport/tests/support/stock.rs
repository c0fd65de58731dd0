//! A stock tor on loopback, and a blocking driver for one channel.

use base64ct::{Base64Unpadded, Encoding};
use heddle_proto::cell::{self, CircId};
use heddle_proto::channel::{Channel, ChannelError, Incoming, Target};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_seam::time::{Instant, UnixTime};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// How long stock tor may take for whatever a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a socket may stand still meanwhile.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// What stock tor takes for the time, in seconds since the epoch.
pub fn now_unix_s() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_epoch.unwrap().as_secs()
}

/// A running stock tor; killed when dropped.
pub struct Stock {
    child: Child,
    log: mpsc::Receiver<String>,
    /// What was taken from its log.
    pub lines: Vec<String>,
    _dir: TempDir,
}

impl Stock {
    /// Starts `tor` with these lines beside what every test needs.
    pub fn start(torrc: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        let file = dir.path().join("torrc");
        let common = format!(
            "DataDirectory {}\nTestingTorNetwork 1\nLog info stdout\nSafeLogging 0\n\
             DirAuthority none orport=9 v3ident={:040} 127.0.0.1:9 {:040}\n",
            data.display(),
            1,
            2,
        );
        std::fs::write(&file, common + torrc).unwrap();
        let mut child = Command::new("tor")
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need stock tor");
        let log = read_lines(child.stdout.take().unwrap());
        Stock { child, log, lines: Vec::new(), _dir: dir }
    }

    /// A relay that has nobody to talk to.
    pub fn relay() -> Self {
        Self::start(
            "SocksPort 0\nORPort 127.0.0.1:auto\nAddress 127.0.0.1\nAssumeReachable 1\nExitRelay 0\n\
             Nickname stock\nPublishServerDescriptor 0\n",
        )
    }

    /// Takes lines from the log up to one that holds `part`.
    pub fn wait_for(&mut self, part: &str) -> String {
        let deadline = std::time::Instant::now() + WAIT_MAX;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let line = self.log.recv_timeout(left).unwrap_or_else(|why| {
                panic!("tor has not said {part:?}, {why}:\n{}", self.lines.join("\n"));
            });
            self.lines.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Where a relay listens and who it is, once it says so.
    pub fn target(&mut self) -> (Target, SocketAddr) {
        let listener = self.wait_for("Opened OR listener connection (ready) on ");
        let addr: SocketAddr = listener.trim().rsplit(' ').next().unwrap().parse().unwrap();
        let rsa = last_word(&self.wait_for("identity key fingerprint is"));
        let ed25519 = last_word(&self.wait_for("identity key ed25519 fingerprint is"));
        let mut rsa_id = [0; 20];
        for (byte, digits) in rsa_id.iter_mut().zip(rsa.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
        let ed25519_id = Base64Unpadded::decode_vec(&ed25519).unwrap().try_into().unwrap();
        let target = Target { rsa: RsaId(rsa_id), ed25519: Some(Ed25519Id(ed25519_id)), addrs: vec![addr] };
        self.wait_for("Bootstrapped 0%");
        (target, addr)
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of `output`, read by a thread of its own, so that a test waits no longer than it wants and tor is never
/// held up.
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

/// The next connection to `listener`. Stock tor has to make it in time.
pub fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    listener.set_nonblocking(true).unwrap();
    let deadline = std::time::Instant::now() + WAIT_MAX;
    loop {
        match listener.accept() {
            Ok((socket, peer)) => {
                socket.set_nonblocking(false).unwrap();
                return (socket, peer);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(std::time::Instant::now() < deadline, "stock tor has not connected");
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("no connection can be taken: {error}"),
        }
    }
}

fn last_word(line: &str) -> String {
    line.trim().rsplit(' ').next().unwrap().trim_matches('\'').to_owned()
}

/// A channel over a blocking socket.
pub struct Driver {
    pub channel: Box<dyn Channel>,
    socket: TcpStream,
    start: std::time::Instant,
}

impl Driver {
    pub fn new(socket: TcpStream, make: impl FnOnce(Instant, UnixTime) -> Box<dyn Channel>) -> Self {
        socket.set_read_timeout(Some(SILENCE_MAX)).unwrap();
        socket.set_write_timeout(Some(SILENCE_MAX)).unwrap();
        let start = std::time::Instant::now();
        let wall = UnixTime { ns: now_unix_s() * 1_000_000_000 };
        let mut channel = make(Instant::ZERO, wall);
        channel.handle_writable(Instant::ZERO, 1 << 20);
        Driver { channel, socket, start }
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// Sends a cell, its body filled up with zeros.
    pub fn send(&mut self, circ_id: CircId, command: cell::Command, body: &[u8]) {
        let mut padded = [0; cell::BODY_LEN];
        padded[..body.len()].copy_from_slice(body);
        self.channel.send(self.now(), circ_id, command, &padded);
        self.flush();
    }

    pub fn flush(&mut self) {
        let (now, mut out) = (self.now(), Vec::new());
        let calls = (0..1000).take_while(|_| self.channel.poll_transmit(now, &mut out)).count();
        assert!(calls < 1000, "the channel always has more to send");
        self.socket.write_all(&out).unwrap();
        self.channel.handle_writable(Instant::ZERO, 1 << 20);
    }

    /// Reads until something comes in that `want` takes. Padding could come for ever.
    pub fn until<T>(&mut self, mut want: impl FnMut(Incoming<'_>) -> Option<T>) -> Result<T, ChannelError> {
        let deadline = std::time::Instant::now() + WAIT_MAX;
        loop {
            assert!(std::time::Instant::now() < deadline, "stock tor has not said what is waited for");
            let now = self.now();
            while let Some(incoming) = self.channel.next_incoming(now)? {
                if let Some(found) = want(incoming) {
                    self.flush();
                    return Ok(found);
                }
            }
            self.flush();
            let mut buf = [0; 16 * 1024];
            let len = self.socket.read(&mut buf).expect("stock tor answers in time");
            if len == 0 {
                self.channel.handle_eof(now)?;
            }
            assert_eq!(self.channel.handle_read(now, &buf[..len])?, len, "less than a record waits");
            super::work_off(&mut *self.channel, now)?;
        }
    }
}
