//! What leaves a session: whose turn it is, and timers.

use super::{Content, Mux};
use crate::compact::codec;
use crate::compact::flow::{Flow, MuxEvent};
use crate::compact::flow_id::FlowId;
use crate::compact::remains::Remains;
use crate::connection::CloseReason;
use crate::segment::Header;
use crate::time::{Instant, MS};

/// Turns of flows that are gone are swept out where there are as many of them as of others, and so many more.
const TURNS_GONE_MIN: usize = 64;

/// Between flows that try again because the path is there: 1,400 bytes each millisecond, 11 Mbit/s.
const GAP_NS: u64 = MS;

/// The longest segment without payload.
const ACKNOWLEDGEMENT_BYTES_MAX: usize = codec::HEADER_BYTES + 3 * codec::SACK_BLOCK_BYTES;

/// Of flows that ended so much is left where memory is short: of what is on its way, and resets that wait to be
/// answered. An honest peer has fewer within a round trip, unless it lost many circuits just now.
const REMAINS_KEPT: usize = 64;
const RESETS_KEPT: usize = 1_024;

/// Going out.
impl Mux {
    /// Appends a datagram of at most `datagram_bytes_max` bytes; nothing when nothing has to leave. Flows take turns,
    /// segment by segment. Whoever makes it longer begins with [`codec::PADDING`].
    pub fn poll_datagram(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Content> {
        let most = out.len() + usize::from(self.options.datagram_bytes_max);
        let begin = out.len();
        out.append(&mut self.kept);
        let mut content = match codec::has_payload(&out[begin..]) {
            true => Content::Payload,
            false => Content::Acknowledgements,
        };
        while out.len() + ACKNOWLEDGEMENT_BYTES_MAX <= most {
            let unit = self.options.unit_bytes.into();
            let Some((id, header)) = self.remains.next_owed(unit) else { break };
            codec::emit(id.is_ours, id.port, &header, unit, &[], out);
        }
        while out.len() + codec::HEADER_BYTES <= most {
            let Some(id) = self.answers.pop_front() else { break };
            codec::emit_answer(id.is_ours, id.port, out);
        }
        if content != Content::Payload && self.emit_resets(now, most, out) {
            return Some(Content::Ends);
        }
        while let Some((id, header)) = self.next_segment(now) {
            let segment = out.len();
            let unit = u64::from(self.options.unit_bytes);
            if header.flags.rst {
                self.resets.refuse(id, self.options.unknown_code);
                continue;
            }
            codec::emit(id.is_ours, id.port, &header, unit, &self.payload, out);
            if out.len() > most {
                self.kept.extend_from_slice(&out[segment..]);
                out.truncate(segment);
                return Some(content);
            }
            if !self.payload.is_empty() {
                content = Content::Payload;
            }
        }
        if out.len() == begin && self.emit_resets(now, most, out) {
            return Some(Content::Ends);
        }
        (out.len() > begin).then_some(content)
    }

    /// Appends resets as far as they fit; whether there were any.
    fn emit_resets(&mut self, now: Instant, most: usize, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        let round_trip_ns = self.smoothed_rtt_ns();
        while out.len() + codec::RESET_BYTES <= most {
            let Some((id, code)) = self.resets.next(now, round_trip_ns) else { break };
            codec::emit_reset(id.is_ours, id.port, code, out);
        }
        out.len() > begin
    }

    /// The next segment, whose payload is put into `payload`: of flows in turn, then of those that wait for the window.
    fn next_segment(&mut self, now: Instant) -> Option<(FlowId, Header)> {
        while let Some(id) = self.ready.pop_front() {
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            let mut is_spare = false;
            if let Some(window) = &mut self.window {
                let room = window.room_in_turn(now);
                let most = if flow.connection.is_forced() { window.spare(now, room) } else { room };
                is_spare = most > room;
                flow.connection.set_room(most);
            }
            self.payload.clear();
            let transmit = flow.connection.poll_transmit(now, &mut self.payload);
            if let Some(window) = self.window.as_mut().filter(|_| is_spare && transmit.is_some()) {
                window.on_spare(now);
            }
            if transmit.is_some() {
                self.ready.push_back(id);
                self.account(now, id);
            } else {
                flow.is_queued = false;
                if let Some(window) = &mut self.window {
                    window.after_asking(id, flow);
                }
                self.account(now, id);
                self.settle(id);
            }
            self.tell_room(id);
            if let Some(transmit) = transmit {
                return Some((id, transmit.header));
            }
        }
        self.next_waiting(now)
    }

    /// A segment of a flow that waits for the window which flows share.
    fn next_waiting(&mut self, now: Instant) -> Option<(FlowId, Header)> {
        loop {
            let window = self.window.as_mut()?;
            let (id, room) = window.next_waiting(now)?;
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            flow.connection.set_room(room);
            self.payload.clear();
            let transmit = flow.connection.poll_transmit(now, &mut self.payload);
            window.after_turn(id, flow, transmit.is_some());
            let is_stuck = transmit.is_none() && flow.connection.waits_for_room();
            self.account(now, id);
            self.settle(id);
            self.tell_room(id);
            if is_stuck {
                return None;
            }
            if let Some(transmit) = transmit {
                return Some((id, transmit.header));
            }
        }
    }

    /// Notes what became of a flow, and tells the window that flows share.
    pub(super) fn account(&mut self, now: Instant, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.note_age(now);
        if let Some(window) = &mut self.window {
            window.settle(now, flow);
        }
    }

    fn tell_room(&mut self, id: FlowId) {
        if self.flows.get_mut(&id).is_some_and(|flow| flow.has_awaited_room()) {
            self.events.push_back(MuxEvent::Writable(id));
        }
    }

    /// Handles the timers that are due. `poll_datagram` has to follow.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.resets.handle_timeout(now);
        let window = &mut self.window;
        while self.remains.next_due(now, |remains| {
            window.iter_mut().for_each(|window| window.settle_remains(now, remains));
        }) {}
        while let Some((timer, id)) = self.timers.first().copied().filter(|(timer, _)| *timer <= now) {
            self.timers.remove(&(timer, id));
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.timer = None;
                let expiries = flow.connection.expiries();
                if let Some(window) = &self.window {
                    flow.connection.set_answered(window.answered_at());
                }
                // Each is listed once: what the peer answers ends both the list and all back-offs.
                let was_backed_off = flow.connection.is_backed_off();
                flow.connection.handle_timeout(now);
                self.has_expired |= flow.connection.expiries() > expiries;
                // Without a window nothing ends them but each flow's own acknowledgements.
                if self.window.is_some() && flow.connection.is_backed_off() && !was_backed_off {
                    self.backed_off.push(id);
                }
                self.account(now, id);
                self.enqueue(id);
            }
        }
    }

    /// The peer answered a question of the session's own, so the path is there: flows need not wait longer from one
    /// time-out to the next.
    pub fn on_answered(&mut self, now: Instant) {
        if let Some(window) = &mut self.window {
            window.on_answered(now);
        }
        self.calm(now);
    }

    /// If the peer answered something just now, time-outs that grew before are as long as ever, and what is due by that
    /// is sent one after another.
    pub(super) fn calm(&mut self, now: Instant) {
        if self.backed_off.is_empty() || self.window.as_ref().is_none_or(|window| window.answered_at() < now)
        {
            return;
        }
        let mut at = now;
        for id in core::mem::take(&mut self.backed_off) {
            if self.flows.get_mut(&id).is_some_and(|flow| flow.connection.calm(at)) {
                self.enqueue(id);
                at = at.plus_ns(GAP_NS);
            }
        }
    }

    /// The path was gone and is back, as something else told: flows need not wait for their backed-off timers. They try
    /// one after another, or a thousand of them would send as many segments at once, whatever the window.
    pub fn on_path_back(&mut self, now: Instant) {
        if let Some(window) = &mut self.window {
            window.on_path_back(now);
        }
        let mut at = now;
        let timed: Vec<_> = self.timers.iter().map(|(_, id)| *id).collect();
        for id in timed {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.connection.on_path_back(at);
                self.enqueue(id);
                at = at.plus_ns(GAP_NS);
            }
        }
    }

    pub(super) fn enqueue(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.is_queued) {
            flow.is_queued = true;
            self.ready.push_back(id);
        }
    }

    /// A flow has nothing to send: notes its timer, or that it is over.
    fn settle(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let heap_bytes = flow.connection.heap_bytes();
        self.flows_heap_bytes += heap_bytes;
        self.flows_heap_bytes -= core::mem::replace(&mut flow.heap_bytes, heap_bytes);
        let timer = flow.connection.poll_timeout();
        // A timer that was put off is looked at when it was due, which is less work than moving it each time.
        let is_put_off = flow.timer.is_some_and(|before| timer.is_some_and(|timer| before <= timer));
        if timer != flow.timer && !is_put_off {
            let before = core::mem::replace(&mut flow.timer, timer);
            before.map(|before| self.timers.remove(&(before, id)));
            timer.map(|timer| self.timers.insert((timer, id)));
        }
        // What was received before an orderly end is still to be read.
        let is_read = flow.connection.readable() == 0;
        if flow.connection.is_closed() && is_read {
            let reason = flow.connection.close_reason().unwrap_or(CloseReason::Finished);
            self.forget(id);
            self.events.push_back(MuxEvent::Closed(id, reason));
        }
    }

    /// A flow was reset and forgotten: keeps what is still on its way.
    pub(super) fn bury(&mut self, now: Instant, id: FlowId, flow: Flow) {
        let (sender, received, owes_ack) = flow.connection.into_remains();
        let mut remains = Remains::new(now, sender, received, owes_ack);
        let Some(window) = &mut self.window else {
            self.remains.insert(now, id, remains);
            return;
        };
        window.settle_remains(now, &mut remains);
        if let Some(mut eldest) = self.remains.insert(now, id, remains) {
            window.settle_remains(now, &mut eldest);
        }
    }

    /// Memory is short: of flows that were reset the eldest are given up, and nearly all of what they take is free.
    /// What they had in flight counts as lost. Whatever still comes of them is answered by a reset, and so a reset need
    /// not be repeated.
    pub fn give_up_remains(&mut self, now: Instant) {
        while let Some(mut eldest) = self.remains.give_up_beyond(now, REMAINS_KEPT) {
            if let Some(window) = &mut self.window {
                window.settle_remains(now, &mut eldest);
            }
        }
        self.remains.shrink();
        self.resets.forget_sent_beyond(RESETS_KEPT);
    }

    /// Takes a flow off all lists.
    pub(super) fn forget(&mut self, id: FlowId) -> Option<Box<Flow>> {
        let flow = self.flows.remove(&id)?;
        self.flows_heap_bytes -= flow.heap_bytes;
        self.theirs -= usize::from(!id.is_ours);
        flow.timer.map(|timer| self.timers.remove(&(timer, id)));
        // Flows that come and go while nothing may be sent leave their turns behind.
        if self.ready.len() > 2 * self.flows.len() + TURNS_GONE_MIN {
            self.ready.retain(|id| self.flows.contains_key(id));
        }
        if let Some(window) = &mut self.window {
            window.forget(&flow.account);
            let flows = &self.flows;
            window.purge(flows.len(), |id| flows.contains_key(&id));
        }
        Some(flow)
    }
}
