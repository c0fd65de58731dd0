//! TCP and UDP ports on loopback that no other network on the machine will take.
//!
//! Tor has to be told its ports before it binds them, so asking the kernel for a free one and
//! letting go of it is a race. Instead, the ports below the ephemeral range are cut into blocks;
//! whoever holds a listener on a block's first port owns the block.

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use crate::error::{Error, Result};

/// The first port of the first block.
const FIRST: u16 = 10_000;
/// Ports in a block, of which the first is the reservation.
const BLOCK: u16 = 100;
/// Blocks: 10,000 to 32,000, below Linux' default ephemeral range (32,768 and up).
const BLOCKS: u16 = 220;

/// A block of loopback ports, owned for as long as this value lives.
#[derive(Debug)]
pub struct PortBlock {
    _reservation: TcpListener,
    next: u16,
    end: u16,
}

impl PortBlock {
    /// Takes the first block nobody owns, looking from a place that differs between processes.
    pub fn reserve() -> Result<PortBlock> {
        let start = (std::process::id() % u32::from(BLOCKS)) as u16;
        for step in 0..BLOCKS {
            let base = FIRST + (start + step) % BLOCKS * BLOCK;
            if let Ok(reservation) = TcpListener::bind((Ipv4Addr::LOCALHOST, base)) {
                return Ok(PortBlock { _reservation: reservation, next: base + 1, end: base + BLOCK });
            }
        }
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        Err(Error::Io { doing: "looking for free loopback ports".into(), source })
    }

    /// The next port of the block that can be bound now, for TCP and for UDP.
    pub fn take(&mut self) -> Result<u16> {
        while self.next < self.end {
            let port = self.next;
            self.next += 1;
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
                && UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
            if free {
                return Ok(port);
            }
        }
        Err(Error::Options(format!("a network has at most {} ports", BLOCK - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap() {
        let mut a = PortBlock::reserve().unwrap();
        let mut b = PortBlock::reserve().unwrap();
        let mut ports: Vec<u16> = (0..20).map(|_| a.take().unwrap()).collect();
        ports.extend((0..20).map(|_| b.take().unwrap()));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 40);
    }

    #[test]
    fn a_port_in_use_is_skipped() {
        let mut block = PortBlock::reserve().unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, block.next)).unwrap();
        assert_ne!(block.take().unwrap(), taken.local_addr().unwrap().port());
    }

    #[test]
    fn a_block_has_an_end() {
        let mut block = PortBlock::reserve().unwrap();
        let taken = (0..BLOCK).map_while(|_| block.take().ok()).count();
        assert!(taken < usize::from(BLOCK));
        assert!(block.take().is_err());
    }
}
