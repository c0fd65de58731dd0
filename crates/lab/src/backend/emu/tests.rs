//! Flows between sockets of this machine's loopback, without any wire: it shows that flows flow, not that wires are
//! right.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use super::flow_hosts::End;
use super::utcp_sender::Begun;
use super::*;
use crate::plan::Case;
use crate::plan::tests::small;

struct Loopback {
    controls: Vec<Option<String>>,
}

impl FlowHosts for Loopback {
    fn listen(&self, _flow: usize) -> Result<TcpListener> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("listening"))
    }

    fn connect(&self, flow: usize, to: SocketAddr) -> Result<TcpStream> {
        let stream = TcpStream::connect(to).map_err(Error::io("connecting"))?;
        if let Some(control) = &self.controls[flow] {
            rustix::net::sockopt::set_tcp_congestion(&stream, control).unwrap();
        }
        Ok(stream)
    }

    fn attach(&self, _flow: usize, _to: SocketAddr, _control: &str, _begun: &Begun) -> Result<IpAddr> {
        Err(Error::Lacking("the loopback has no other network stack than the kernel's".into()))
    }

    fn detach(&self, _address: IpAddr) -> Result<()> {
        Ok(())
    }

    fn datagrams(&self, _flow: usize, _end: End) -> Result<UdpSocket> {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("binding"))
    }
}

#[test]
fn connections_and_datagrams_flow() {
    let plan = small(&[]).unwrap().plan;
    let cases: Vec<&Case> = plan.arms.iter().flat_map(|arm| arm.as_ref().flows()).collect();
    let flows: Vec<WireFlow<'_>> =
        cases.iter().map(|case| WireFlow { from: "sender", to: "receiver", case }).collect();
    let control = |case: &&Case| case.bulk.as_ref().map(|bulk| bulk.congestion_control.clone());
    let hosts = Loopback { controls: cases.iter().map(control).collect() };
    let mut waits = 0;
    let outcomes = run_all(&flows, &hosts, &mut || waits += 1).unwrap();
    let [Outcome::Bulk { mbit_s: one }, Outcome::Bulk { mbit_s: other }, Outcome::Probe { delays_ms }] =
        &*outcomes
    else {
        panic!("{outcomes:?}");
    };
    assert!(*one > 1.0 && *other > 1.0 && waits > 0, "{one} {other} {waits}");
    // A loopback loses none, but where the machine is busy the receiver's buffer may be full.
    let came: Vec<f64> = delays_ms.iter().copied().flatten().collect();
    assert!(delays_ms.len() == 2000 && came.len() > 1000, "{} of {}", came.len(), delays_ms.len());
    assert!(came.iter().all(|ms| *ms >= 0.0));
}
