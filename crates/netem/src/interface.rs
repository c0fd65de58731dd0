//! A rate with the queue in front of it: a host's attachment, or the head of a wire.

use crate::codel::Codel;
use crate::drop_log::DropLog;
use crate::options::{InterfaceOptions, RateStep};
use crate::rate::Rate;
use crate::stats::{DropReason, InterfaceStats};
use crate::transit::{Packet, Transit};
use crate::waiting::Waiting;
use heddle_seam::time::Instant;

/// A server of packets: one at a time, each for as long as its bits take.
///
/// It holds at most the queue's bounds and one packet more.
#[derive(Debug)]
pub(crate) struct Interface<P> {
    rate: Rate,
    schedule: Vec<RateStep>,
    /// How many steps of the schedule are made.
    steps_made: usize,
    framing_bytes: u64,
    waiting: Waiting<Transit<P>>,
    codel: Option<Codel>,
    /// The packet that is being put on the interface, and when it is done.
    serving: Option<(Transit<P>, Instant)>,
    /// What was left of the last nanosecond of the busy period, in bits times 10⁹, so that no rounding adds up.
    remainder: u64,
    /// When the last packet was done. A packet that joins an idle interface in that very nanosecond goes on with the
    /// remainder.
    last_done: Instant,
    stats: InterfaceStats,
}

impl<P: Packet> Interface<P> {
    pub(crate) fn new(options: &InterfaceOptions) -> Self {
        Interface {
            rate: options.rate,
            schedule: options.schedule.clone(),
            steps_made: 0,
            framing_bytes: options.framing_bytes,
            waiting: Waiting::new(options.queue.packets_max, options.queue.bytes_max),
            codel: options.queue.codel.as_ref().map(Codel::new),
            serving: None,
            remainder: 0,
            last_done: Instant::ZERO,
            stats: InterfaceStats::default(),
        }
    }

    /// Takes a packet. Gives it back when it passes at once, because the rate is unlimited and nothing waits.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        packet: Transit<P>,
        log: &mut DropLog<P>,
    ) -> Option<Transit<P>> {
        self.make_changes(now);
        self.stats.packets_in += 1;
        let bytes = packet.len_bytes + self.framing_bytes;
        if self.rate == Rate::Unlimited && self.serving.is_none() {
            self.on_passed(bytes);
            return Some(packet);
        }
        if self.serving.is_none() {
            // Nothing waits then, and what does not wait needs no room in the queue.
            if now > self.last_done {
                self.remainder = 0;
            }
            self.waiting.note_length(bytes);
            self.serve(now, packet, 0);
        } else if let Err(packet) = self.waiting.push(now, packet, bytes) {
            log.bury(now, packet, DropReason::QueueFull, &mut self.stats.drops);
        }
        None
    }

    /// When the packet that is being put on the interface is done.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.serving.as_ref().map(|(_, done)| *done)
    }

    /// Takes the packet that is done at `now`, which is `next_time`, and goes on with the next.
    pub(crate) fn finish(&mut self, now: Instant, log: &mut DropLog<P>) -> Option<Transit<P>> {
        let (packet, _) = self.serving.take()?;
        self.last_done = now;
        self.make_changes(now);
        self.on_passed(packet.len_bytes + self.framing_bytes);
        self.serve_next(now, log);
        Some(packet)
    }

    /// From the next packet on, another rate.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        self.remainder = 0;
    }

    pub(crate) fn stats(&self) -> InterfaceStats {
        InterfaceStats { queue: self.waiting.stats, ..self.stats }
    }

    /// Packets that wait or are being put on the interface.
    pub(crate) fn inside(&self) -> u64 {
        self.waiting.stats.packets + u64::from(self.serving.is_some())
    }

    /// Makes the changes that are due. Nothing depends on the rate between two packets, so this is early enough.
    fn make_changes(&mut self, now: Instant) {
        while let Some(step) = self.schedule.get(self.steps_made).filter(|step| step.at_ns <= now.as_nanos())
        {
            self.steps_made += 1;
            self.set_rate(step.rate);
        }
    }

    fn serve_next(&mut self, now: Instant, log: &mut DropLog<P>) {
        let next = match &mut self.codel {
            Some(codel) => {
                let InterfaceStats { drops, marked, .. } = &mut self.stats;
                let signal = |mut transit: Transit<P>, may_mark: bool| {
                    if may_mark && transit.packet.mark_congestion() {
                        *marked += 1;
                        return Some(transit);
                    }
                    log.bury(now, transit, DropReason::Codel, drops);
                    None
                };
                codel.dequeue(now, &mut self.waiting, signal)
            }
            None => self.waiting.pop(now),
        };
        if let Some((packet, sojourn_ns)) = next {
            self.serve(now, packet, sojourn_ns);
        }
    }

    /// Begins to put a packet on the interface that waited for `sojourn_ns`.
    fn serve(&mut self, now: Instant, mut packet: Transit<P>, sojourn_ns: u64) {
        self.waiting.stats.on_sojourn(sojourn_ns);
        packet.queued_ns += sojourn_ns;
        let done = now.plus_ns(self.service_ns(packet.len_bytes + self.framing_bytes));
        self.serving = Some((packet, done));
    }

    /// How long `bytes` take, in whole nanoseconds; the rest is carried over to the next packet.
    fn service_ns(&mut self, bytes: u64) -> u64 {
        let Rate::BitsPerS(rate) = self.rate else { return 0 };
        // At most (16 MiB + 64 KiB) · 8 · 10⁹ + 10¹⁵, which is below 2⁶⁴.
        let work = bytes * 8 * 1_000_000_000 + self.remainder;
        self.remainder = work % rate;
        work / rate
    }

    fn on_passed(&mut self, bytes: u64) {
        self.stats.packets_out += 1;
        self.stats.bytes_out += bytes;
    }
}
