//! Programs that take the place of a host's kernel, so that another TCP than the kernel's can send over the same wires.
//!
//! A program is attached to one address of a host. What reaches the host for that address goes to the program; what the
//! program sends goes on the host's wires beside what its kernel sends. It runs on the thread that moves packets, as
//! the kernel's own protocols do, which work inside the calls that hand packets over: so neither waits for a processor
//! more than the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use heddle_net::packet;
use heddle_netem::{HostId, Instant as Time};

/// A network stack without I/O. Times are the emulation's, from its beginning. Nothing it does may take long: all wires
/// wait meanwhile.
pub(crate) trait Stack: Send {
    /// Takes an IP packet as it was on the wire.
    fn handle_packet(&mut self, now: Time, packet: &[u8]);

    /// Handles the timers that are due.
    fn handle_timeout(&mut self, now: Time);

    /// Puts the next IP packet that has to leave, with all checksums, into the empty `packet`. False when there is
    /// none.
    fn poll_packet(&mut self, now: Time, packet: &mut Vec<u8>) -> bool;

    /// When [`handle_timeout`](Self::handle_timeout) has to be called.
    fn poll_timeout(&self) -> Option<Time>;
}

/// The programs of all hosts.
#[derive(Default)]
pub(super) struct Stacks {
    attached: BTreeMap<IpAddr, Attached>,
    timers: BTreeSet<(Time, IpAddr)>,
    /// Those that were given something and not asked yet.
    touched: BTreeSet<IpAddr>,
}

struct Attached {
    host: HostId,
    stack: Box<dyn Stack>,
    timer: Option<Time>,
}

impl fmt::Debug for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.attached.keys()).finish()
    }
}

impl Stacks {
    pub(super) fn attach(&mut self, host: HostId, address: IpAddr, stack: Box<dyn Stack>) {
        self.detach(address);
        self.attached.insert(address, Attached { host, stack, timer: None });
        self.touched.insert(address);
    }

    pub(super) fn detach(&mut self, address: IpAddr) -> Option<Box<dyn Stack>> {
        let gone = self.attached.remove(&address)?;
        self.touched.remove(&address);
        if let Some(timer) = gone.timer {
            self.timers.remove(&(timer, address));
        }
        Some(gone.stack)
    }

    /// Gives a packet to whom it is addressed. False when that is no program.
    pub(super) fn handle_packet(&mut self, now: Time, packet: &[u8]) -> bool {
        if self.attached.is_empty() {
            return false;
        }
        let Some(address) = packet::destination(packet) else { return false };
        let Some(attached) = self.attached.get_mut(&address) else { return false };
        attached.stack.handle_packet(now, packet);
        self.touched.insert(address);
        true
    }

    /// The next program that has to be asked, with its timers handled. Until there is none.
    pub(super) fn begin(&mut self, now: Time) -> Option<IpAddr> {
        let due = self.timers.first().filter(|(timer, _)| *timer <= now).map(|(_, address)| *address);
        let address = due.or_else(|| self.touched.first().copied())?;
        self.touched.remove(&address);
        let attached = self.attached.get_mut(&address)?;
        if let Some(timer) = attached.timer.take() {
            self.timers.remove(&(timer, address));
        }
        attached.stack.handle_timeout(now);
        Some(address)
    }

    /// The next packet of a program and its host. With the last one, the program's timer is noted.
    pub(super) fn poll_packet(&mut self, address: IpAddr, now: Time, packet: &mut Vec<u8>) -> Option<HostId> {
        let attached = self.attached.get_mut(&address)?;
        if attached.stack.poll_packet(now, packet) {
            return Some(attached.host);
        }
        // One that is late already must not keep the others from their turn.
        attached.timer = attached.stack.poll_timeout().map(|timer| timer.max(now.plus_ns(1)));
        self.timers.extend(attached.timer.map(|timer| (timer, address)));
        None
    }

    /// When a program wants to be asked.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.timers.first().map(|(timer, _)| *timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every packet by itself, and wants to be woken every millisecond.
    #[derive(Default)]
    struct Echo {
        packets: Vec<Vec<u8>>,
        timer: Option<Time>,
    }

    impl Stack for Echo {
        fn handle_packet(&mut self, _now: Time, packet: &[u8]) {
            self.packets.push(packet.to_vec());
        }

        fn handle_timeout(&mut self, now: Time) {
            if self.timer.is_none_or(|timer| timer <= now) {
                self.timer = Some(now.plus_ns(1_000_000));
            }
        }

        fn poll_packet(&mut self, _now: Time, packet: &mut Vec<u8>) -> bool {
            self.packets.pop().map(|sent| packet.extend(sent)).is_some()
        }

        fn poll_timeout(&self) -> Option<Time> {
            self.timer
        }
    }

    fn packet_to(address: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[16..].copy_from_slice(&address);
        packet
    }

    /// Asks all that have to be asked, and gives the hosts whose packets they sent.
    fn asked(stacks: &mut Stacks, now: Time) -> Vec<u32> {
        let mut senders = Vec::new();
        while let Some(address) = stacks.begin(now) {
            let mut packet = Vec::new();
            while let Some(host) = stacks.poll_packet(address, now, &mut packet) {
                senders.push(host.0);
                packet.clear();
            }
        }
        senders
    }

    #[test]
    fn packets_go_to_whom_they_are_addressed_and_timers_are_kept() {
        let mut stacks = Stacks::default();
        let [one, other] = [[10, 0, 0, 1], [10, 1, 0, 1]];
        assert!(!stacks.handle_packet(Time::ZERO, &packet_to(one)) && stacks.next_time().is_none());
        stacks.attach(HostId(7), other.into(), Box::new(Echo::default()));
        assert!(asked(&mut stacks, Time::ZERO).is_empty());
        assert_eq!(stacks.next_time(), Some(Time::from_nanos(1_000_000)));
        // The host's other address is its kernel's.
        assert!(!stacks.handle_packet(Time::from_nanos(5), &packet_to(one)));
        assert!(stacks.handle_packet(Time::from_nanos(5), &packet_to(other)));
        assert_eq!(asked(&mut stacks, Time::from_nanos(5)), [7]);
        assert_eq!(stacks.next_time(), Some(Time::from_nanos(1_000_000)));
        assert!(asked(&mut stacks, Time::from_nanos(1_500_000)).is_empty());
        assert_eq!(stacks.next_time(), Some(Time::from_nanos(2_500_000)));
        assert!(stacks.detach(other.into()).is_some() && stacks.detach(other.into()).is_none());
        assert!(stacks.next_time().is_none() && !stacks.handle_packet(Time::ZERO, &packet_to(other)));
    }
}
