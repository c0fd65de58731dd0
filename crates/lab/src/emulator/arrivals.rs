//! Packets that arrived at a host together, on their way into its kernel, which gets those of one connection as one.
//!
//! A wire carries packets (`engine` cuts what kernels hand over), or one lost packet would be forty; and they are put
//! together again only behind it, and only where they arrive together.

use std::io::IoSlice;

use heddle_net::offload::Run;

/// Packets that arrived at a host together, in order.
///
/// What waits here is given to the kernel before the emulator does anything else, so it is bounded by what one turn of
/// the emulator delivers to a host.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    packets: Vec<Arrival>,
}

#[derive(Debug)]
struct Arrival {
    packet: Vec<u8>,
    /// It goes to the kernel as it is: put together with others it would have a good checksum.
    corrupted: bool,
    due_ns: u64,
}

/// What goes into a kernel at once.
#[derive(Debug)]
pub(super) struct Together<'a> {
    /// The header and the packet.
    pub parts: &'a [IoSlice<'a>],
    /// How many packets of the wire that is.
    pub packets: u64,
    /// When the first of them was due.
    pub due_ns: u64,
}

impl Arrivals {
    pub(super) fn push(&mut self, packet: Vec<u8>, corrupted: bool, due_ns: u64) {
        self.packets.push(Arrival { packet, corrupted, due_ns });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Hands everything over to `give`, put together where possible.
    pub(super) fn hand_over(&mut self, give: &mut impl FnMut(Together<'_>)) {
        let mut rest = self.packets.as_mut_slice();
        while let Some((first, others)) = rest.split_first() {
            let run = if first.corrupted {
                Run::alone(&first.packet)
            } else {
                let whole = others.iter().take_while(|other| !other.corrupted);
                Run::of(&first.packet, whole.map(|other| other.packet.as_slice()))
            };
            let (together, others) = rest.split_at_mut(run.packets());
            let header = run.begin(&mut together[0].packet);
            let parts = run.parts(&header, together.iter().map(|arrival| arrival.packet.as_slice()));
            let (packets, due_ns) = (together.len() as u64, together[0].due_ns);
            give(Together { parts: parts.as_slice(), packets, due_ns });
            rest = others;
        }
        self.packets.clear();
    }
}

#[cfg(test)]
mod tests {
    use heddle_net::packet::{self, TCP};

    use super::*;

    /// Segments of one connection, each behind the one before.
    fn segments(count: u32) -> Vec<Vec<u8>> {
        let segment = |number: u32| {
            let ip = [0x45, 0, 0, 0, 0, 0, 64, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let tcp = [0, 80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x50, 0x10, 16, 0, 0, 0, 0, 0];
            let mut packet = [&ip[..], &tcp, &[5; 100]].concat();
            packet::set_u32(&mut packet, 24, number * 100);
            packet::set_ip_header(&mut packet, 20, 0);
            packet::set_checksum(&mut packet, 20, 36, TCP);
            packet
        };
        (0..count).map(segment).collect()
    }

    #[test]
    fn corrupted_packets_reach_the_kernel_as_they_are() {
        let given = |corrupted: Option<usize>| {
            let mut arrivals = Arrivals::default();
            for (number, packet) in segments(5).into_iter().enumerate() {
                arrivals.push(packet, Some(number) == corrupted, number as u64);
            }
            let (mut given, mut bytes) = (Vec::new(), Vec::new());
            arrivals.hand_over(&mut |together| {
                given.push((together.packets, together.due_ns));
                bytes.extend(together.parts.iter().flat_map(|part| part.to_vec()));
            });
            assert!(arrivals.is_empty());
            (given, bytes)
        };
        assert_eq!(given(None).0, [(5, 0)]);
        let (apart, bytes) = given(Some(2));
        assert_eq!(apart, [(2, 0), (1, 2), (2, 3)]);
        let corrupted = &segments(5)[2];
        assert!(bytes.windows(corrupted.len()).any(|window| window == corrupted));
        assert_eq!(given(Some(0)).0, [(1, 0), (4, 1)]);
    }
}
