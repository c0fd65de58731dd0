//! Startup: the window doubles with each round trip until a queue shows, or a loss.

use super::bundle::BETA;
use super::way_back::without;
use super::{Mode, PACKETS_MIN, QUEUE_TARGET, Shared};
use heddle_seam::time::Duration;

/// A queue has to show in so many packets in a row. For as many acknowledgements that tell nothing one of them is
/// forgotten.
const SAMPLES: u32 = 8;

/// A peer that also sends data acknowledges many packets at once, with its own bursts. They all tell of one moment, and
/// it says of the newest alone how long it held the acknowledgement back. So the shortest of their round trips speaks
/// for them, and they count as two packets: as many as one acknowledgement covers where none is held back (RFC 9000,
/// section 13.2.2).
const SAMPLES_AT_ONCE: u32 = 2;

/// What packets have told of a queue in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    count: u32,
    /// Acknowledgements that told nothing, and for which none is forgotten yet.
    passed_over: u32,
    /// The shortest of the round trips without what they waited at most.
    shortest: Option<Duration>,
    /// The one that is known best: how much of it is uncertain, and the round trip.
    surest: Option<(Duration, Duration)>,
    /// The acknowledgement that is worked off, of a peer that stamps: its shortest round trip, and its packets.
    at_once: Option<(Duration, u32)>,
}

impl Told {
    fn add(&mut self, round_trip: Duration, uncertain: Duration, packets: u32) {
        self.count += packets;
        self.shortest = Some(self.shortest.map_or(round_trip, |shortest| shortest.min(round_trip)));
        let told = (uncertain, round_trip);
        self.surest = Some(self.surest.map_or(told, |surest| surest.min(told)));
    }

    fn pass_over(&mut self) {
        self.passed_over += 1;
        if self.passed_over == SAMPLES {
            (self.count, self.passed_over) = (self.count.saturating_sub(1), 0);
        }
        if self.count == 0 {
            *self = Told::default();
        }
    }
}

impl Shared {
    /// Doubles the window in a round trip, until a queue shows.
    pub(super) fn start_up(&mut self, round_trip: Duration, acked_bytes: u64) {
        if self.ack_wait.is_peer_stamping {
            let (shortest, packets) = self.told.at_once.unwrap_or((round_trip, 0));
            self.told.at_once = Some((shortest.min(round_trip), packets + 1));
        } else if self.ends_by_queue(round_trip, 1) {
            return;
        }
        if self.is_used() {
            self.packets += acked_bytes as f64 / self.packet_bytes;
        }
    }

    /// The acknowledgement is worked off.
    pub(super) fn on_worked_off(&mut self) {
        let at_once = self.told.at_once.take().filter(|_| self.is_starting());
        if let Some((round_trip, packets)) = at_once {
            self.ends_by_queue(round_trip, packets.min(SAMPLES_AT_ONCE));
        }
    }

    /// Ends the startup if a queue shows in some packets in a row (HyStart, RFC 9406, waits for the next round trip, in
    /// which a paced sender has doubled twice). Then the window is what the path holds without it. A round trip that is
    /// long, but would not be if what it may have waited on its way back were taken off, tells nothing.
    fn ends_by_queue(&mut self, round_trip: Duration, packets: u32) -> bool {
        let sample = without(self.ack_wait.waited, round_trip);
        let least = round_trip.saturating_sub(self.ack_wait.at_most);
        let base = self.base.get().unwrap_or(sample).min(sample);
        let queued = base + QUEUE_TARGET.max(base / 8);
        if least <= queued && sample > queued {
            self.told.pass_over();
            return false;
        }
        self.told.add(least, sample.saturating_sub(least), packets);
        if self.told.count < SAMPLES {
            return false;
        }
        let Told { shortest, surest, .. } = core::mem::take(&mut self.told);
        let Some((_, surest)) = surest.filter(|_| shortest.is_some_and(|shortest| shortest > queued)) else {
            return false;
        };
        self.mode = Mode::Delay;
        self.queues.packets_before = 0.0;
        self.packets = (self.packets * base.as_secs_f64() / surest.as_secs_f64()).max(PACKETS_MIN);
        true
    }

    /// Startup has sent up to twice what the path carries: what arrived lately in one of its round trips is the better
    /// guess.
    pub(super) fn end_startup(&mut self) {
        if self.is_starting() {
            self.mode = Mode::Delay;
            let delivered = self.base.get().map_or(0.0, |base| self.delivery.packets_in(base));
            self.packets = delivered.clamp(0.5 * self.packets, BETA * self.packets).max(PACKETS_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ceiling, WayBack};
    use super::*;
    use heddle_seam::time::Instant;
    use heddle_utcp::congestion::AckWait;

    const PATH_MS: u64 = 100;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + ms)
    }

    /// At startup on a path of 100 ms.
    fn starting() -> Shared {
        let mut shared = Shared::new(at(0), 1200, Duration::ZERO, Ceiling::default());
        shared.on_probe(at(0), Duration::from_millis(PATH_MS));
        shared
    }

    fn acknowledge(shared: &mut Shared, ms: u64, round_trip_ms: u64) {
        shared.on_acked(at(ms), at(ms - round_trip_ms), 1200);
        shared.set_in_flight(0);
    }

    /// When startup ends, if packets without a stamp acknowledge one of ours each millisecond, which had a queue of
    /// so many milliseconds on their way there and another on their way back, and one of the peer's with a stamp comes
    /// after each so many; and the window then.
    fn ends_after_ms(queues_ms: [u64; 2], stamp_every_ms: u64) -> Option<(u64, f64)> {
        let (mut shared, mut way_back) = (starting(), WayBack::default());
        // The fastest stamp is one without a queue.
        way_back.on_packet(at(900), Some(900_000), Duration::ZERO);
        shared.packets = 200.0;
        (1000..2000).find_map(|ms| {
            if ms % stamp_every_ms == 0 {
                let sent_ms = (ms - queues_ms[1]) as u32;
                way_back.on_packet(at(ms), Some(sent_ms * 1000), Duration::ZERO);
            }
            shared.set_ack_wait(way_back.on_packet(at(ms), None, Duration::ZERO));
            acknowledge(&mut shared, ms, PATH_MS + queues_ms[0] + queues_ms[1]);
            (!shared.is_starting()).then_some((ms, shared.packets))
        })
    }

    /// As in experiment 11, where some twenty stamps came in a second and none in a packet that acknowledged anything.
    #[test]
    fn a_queue_shows_behind_the_stamps_of_a_peer_that_sends_little() {
        let (ended, packets) = ends_after_ms([60, 0], 53).expect("it ends");
        assert!(ended < 1100 && (120.0..130.0).contains(&packets), "{ended}: {packets}");
        // Half a second after a stamp packets count as those of a peer that stamps nothing.
        let (ended, _) = ends_after_ms([60, 0], 5000).expect("it ends");
        assert!((1400..1420).contains(&ended), "{ended}");
        // A queue of 19 ms is longer than 12.5 ms without what passed for six of 53 packets.
        let (ended, _) = ends_after_ms([19, 0], 53).expect("it ends");
        assert!(ended < 1400, "{ended}");
    }

    #[test]
    fn the_peer_s_queue_is_not_taken_for_ours() {
        assert_eq!(ends_after_ms([0, 60], 2), None);
        assert_eq!(ends_after_ms([0, 60], 40), None);
        assert_eq!(ends_after_ms([0, 900], 2), None);
        let (ended, packets) = ends_after_ms([60, 60], 2).expect("it ends");
        assert!(ended < 1100 && (120.0..130.0).contains(&packets), "{ended}: {packets}");
    }

    /// Ten packets that left within ten milliseconds, of which the peer says for how long it put off the newest.
    #[test]
    fn what_a_stamping_peer_acknowledges_at_once_counts_as_two_packets_and_by_the_newest() {
        for (is_peer_stamping, queue_ms, acknowledgements) in
            [(true, 20, Some(4)), (true, 8, None), (false, 20, Some(1)), (false, 8, None)]
        {
            let mut shared = starting();
            let ended = (1..10).find(|_| {
                shared.set_ack_wait(AckWait { is_peer_stamping, ..AckWait::default() });
                let sent_ms = (0..10).map(|packet| 9 - packet);
                sent_ms.for_each(|before| acknowledge(&mut shared, 1000, PATH_MS + queue_ms + before));
                shared.on_worked_off();
                !shared.is_starting()
            });
            assert_eq!(ended, acknowledgements, "{is_peer_stamping}, {queue_ms} ms");
        }
    }

    /// Once in a while the peer's stamp has waited less than what comes behind it.
    #[test]
    fn packets_that_tell_of_a_queue_now_and_then_end_no_startup() {
        let mut shared = starting();
        let wait = |ms| AckWait {
            waited: Duration::ZERO,
            at_most: Duration::from_millis(ms),
            is_peer_stamping: true,
        };
        for number in 0..1000 {
            shared.set_ack_wait(wait(if number % 20 == 0 { 40 } else { 60 }));
            acknowledge(&mut shared, 1000 + number, PATH_MS + 60);
        }
        assert!(shared.is_starting());
    }

    /// Packets come late after a time-out, in an acknowledgement that waited, where another one waited nothing.
    #[test]
    fn a_mistaken_restart_leaves_the_wait_of_the_acknowledgement_that_tells_so() {
        let mut shared = starting();
        acknowledge(&mut shared, 1000, PATH_MS);
        let before = shared.clone();
        shared.restart(at(1500));
        let wait = Duration::from_millis(60);
        shared.set_ack_wait(AckWait { waited: wait, at_most: wait, is_peer_stamping: true });
        shared.undo_restart(before);
        (0..100).for_each(|_| acknowledge(&mut shared, 1600, PATH_MS + 60));
        shared.on_worked_off();
        assert!(shared.is_starting() && shared.base.get() == Some(Duration::from_millis(PATH_MS)));
    }

    /// Where no peer stamps, eight packets are looked at, and then the next eight, whoever acknowledges how many.
    #[test]
    fn a_peer_that_never_stamps_has_eight_packets_looked_at() {
        let mut shared = starting();
        shared.packets = 100.0;
        let round_trips = [[100].as_slice(), &[150; 14]].concat();
        round_trips.iter().for_each(|rtt_ms| acknowledge(&mut shared, 1000, *rtt_ms));
        assert!(shared.is_starting());
        acknowledge(&mut shared, 1000, 150);
        assert!(!shared.is_starting() && (shared.packets - 100.0 / 1.5).abs() < 0.01, "{}", shared.packets);
    }
}
