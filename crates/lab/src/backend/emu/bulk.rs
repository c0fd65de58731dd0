//! TCP connections that send all the time, from a host's kernel or from `utcp`, to a host's kernel.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::SLICE;
use super::flow_hosts::{FlowHosts, PATIENCE};
use super::utcp_sender::Begun;
use crate::backend::Outcome;
use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::plan::{Bulk, Share, Tcp};
use crate::socks::is_timeout;

/// A connection by itself.
pub(super) fn run_bulk(bulk: &Bulk, place: usize, hosts: &dyn FlowHosts) -> Result<Outcome> {
    Ok(Outcome::Bulk { mbit_s: goodput_mbit_s(bulk, place, hosts)? })
}

/// Two connections over one wire. Both are counted in the same time.
pub(super) fn run_share(share: &Share, place: usize, hosts: &dyn FlowHosts) -> Result<Outcome> {
    let bulk = |sender, earlier: Duration| Bulk {
        congestion_control: share.congestion_control.clone(),
        sender,
        duration: share.duration + earlier,
        warm_up: share.warm_up + earlier,
    };
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| goodput_mbit_s(&bulk(share.first, share.apart), place, hosts));
        let begun = Instant::now();
        while begun.elapsed() < share.apart && !first.is_finished() {
            thread::sleep(SLICE.min(share.apart));
        }
        let second = goodput_mbit_s(&bulk(share.second, Duration::ZERO), place, hosts);
        (first.join().unwrap_or_else(|_| Err(Error::Options("a flow of the plan panicked".into()))), second)
    });
    let (first, second) = (first?, second?);
    let compared = if share.first == Tcp::Utcp { first } else { second };
    Ok(Outcome::Share { share: compared / (first + second), together_mbit_s: first + second })
}

/// Megabits (10^6 bits) of application data that arrived in a second.
fn goodput_mbit_s(bulk: &Bulk, place: usize, hosts: &dyn FlowHosts) -> Result<f64> {
    let listener = hosts.listen(place)?;
    let to = listener.local_addr().map_err(Error::io("listening for a bulk connection"))?;
    match bulk.sender {
        Tcp::Linux => from_kernel(bulk, place, hosts, &listener, to),
        Tcp::Utcp => {
            let begun = Begun::default();
            let from = hosts.attach(place, to, &bulk.congestion_control, &begun)?;
            let received =
                accept(&listener, &|| false).and_then(|mut stream| receive_bulk(&mut stream, bulk, &begun));
            hosts.detach(from)?;
            received
        }
    }
}

fn from_kernel(
    bulk: &Bulk,
    place: usize,
    hosts: &dyn FlowHosts,
    listener: &TcpListener,
    to: SocketAddr,
) -> Result<f64> {
    let (begun, ended) = (Begun::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let stream = hosts.connect(place, to)?;
            send_bulk(stream, bulk, &begun, &ended)
        });
        let received = accept(listener, &|| sender.is_finished()).and_then(|mut stream| {
            let received = receive_bulk(&mut stream, bulk, &begun);
            // Before the stream goes, which the sender would take for a fault.
            ended.store(true, Ordering::Relaxed);
            received
        });
        ended.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|_| Err(Error::Options("a bulk sender panicked".into())));
        // Why nothing came is the sender's to say.
        sent.and(received)
    })
}

fn send_bulk(mut stream: TcpStream, bulk: &Bulk, begun: &Begun, ended: &AtomicBool) -> Result<()> {
    let used = rustix::net::sockopt::tcp_congestion(&stream)
        .map_err(|error| Error::io("reading the congestion control")(error.into()))?;
    if used != bulk.congestion_control {
        return Err(Error::Lacking(format!("the kernel uses {used} instead of {}", bulk.congestion_control)));
    }
    stream.set_write_timeout(Some(SLICE)).map_err(Error::io("preparing a bulk connection"))?;
    let chunk = vec![0; 64 * 1024];
    begun.get_or_init(Instant::now);
    while !ended.load(Ordering::Relaxed) {
        interrupt::check()?;
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            // The receiver left because it has seen enough.
            Err(_) if ended.load(Ordering::Relaxed) => {}
            Err(error) => return Err(Error::io("sending bulk data")(error)),
        }
    }
    Ok(())
}

/// Counts what arrives between the warm-up and the end, from when the sender began. A thread that waits for a processor
/// would let a part of slow start pass unseen, and more of it where the sender itself does not wait.
fn receive_bulk(stream: &mut TcpStream, bulk: &Bulk, begun: &Begun) -> Result<f64> {
    stream.set_read_timeout(Some(SLICE)).map_err(Error::io("preparing a bulk connection"))?;
    let mut chunk = vec![0; 256 * 1024];
    let mut counted: u64 = 0;
    let (mut begin, mut last) = (None, Instant::now());
    loop {
        interrupt::check()?;
        let read = stream.read(&mut chunk);
        let now = Instant::now();
        if read.is_ok() {
            begin = begin.or(begun.get().copied()).or(Some(now));
        }
        let elapsed = begin.map_or(Duration::ZERO, |begin| now.saturating_duration_since(begin));
        if elapsed >= bulk.duration {
            let seconds = (bulk.duration - bulk.warm_up).as_secs_f64();
            return Ok(counted as f64 * 8.0 / 1e6 / seconds);
        }
        match read {
            Ok(0) => {
                return Err(Error::Refused { by: "a bulk sender", said: "the connection was closed".into() });
            }
            Ok(bytes) => {
                last = now;
                if elapsed >= bulk.warm_up {
                    counted += bytes as u64;
                }
            }
            Err(error) if !is_timeout(&error) => return Err(Error::io("receiving bulk data")(error)),
            Err(_) if now - last > PATIENCE => return Err(deadline("progress of a bulk connection")),
            Err(_) => {}
        }
    }
}

fn accept(listener: &TcpListener, sender_ended: &dyn Fn() -> bool) -> Result<TcpStream> {
    let doing = "accepting a bulk connection";
    listener.set_nonblocking(true).map_err(Error::io(doing))?;
    let begin = Instant::now();
    loop {
        interrupt::check()?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(Error::io(doing))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::io(doing)(error)),
        }
        if begin.elapsed() > PATIENCE || sender_ended() {
            return Err(deadline("the opening of a bulk connection"));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn deadline(waiting_for: &str) -> Error {
    Error::Deadline { waiting_for: waiting_for.to_owned(), after: PATIENCE }
}
