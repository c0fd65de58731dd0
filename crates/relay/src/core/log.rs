//! Tells what happens to single circuits, where somebody follows them.

use super::Core;
use super::observe::index_of;
use crate::circuit_log::{CircuitLog, EndedBy, Happened, Neighbour, What};
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::links::LinkKind;
use crate::stats::CHANNELS;
use crate::table::{Circuit, CreditWord, Departure, Lane};
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{Body, CircId, Command};

impl Core {
    /// From now on somebody hears what happens to circuits.
    pub fn set_circuit_log(&mut self, log: Box<dyn CircuitLog>) {
        self.circuit_log = Some(log);
    }

    /// A cell of a circuit came on this side.
    #[inline]
    pub(super) fn log_cell_in(&mut self, key: CircuitKey, side: Side, command: Command) {
        if self.circuit_log.is_some() {
            self.tell_cell_in(key, side, command, None);
        }
    }

    /// DESTROY came.
    pub(super) fn log_destroy_in(&mut self, key: CircuitKey, side: Side, reason: DestroyReason) {
        if self.circuit_log.is_some() {
            self.tell_cell_in(key, side, Command::DESTROY, Some(reason));
        }
    }

    /// A cell of a circuit leaves.
    #[inline]
    pub(super) fn log_cell_out(&mut self, link: LinkKey, departure: &Departure) {
        if self.circuit_log.is_some() {
            self.tell_cell_out(link, departure);
        }
    }

    /// A circuit leaves for another shard, which is asked for it by no cell.
    pub(super) fn log_crossing(&mut self, key: CircuitKey, link: LinkKey, circ_id: CircId, create2: &Body) {
        let (command, body) = (Command::CREATE2, create2);
        let what = What::CellOut { command, is_forward: true, queued_cells: 0, body };
        self.write_log(Some(key), link, circ_id, what);
    }

    /// A neighbour asked for a circuit, and there is one if the id is taken.
    pub(super) fn log_created(&mut self, link: LinkKey, circ_id: CircId, command: Command, body: &Body) {
        if let Some((key, Side::Prev)) = self.followed(link, circ_id) {
            self.write_log(Some(key), link, circ_id, What::Opened { command, body });
        }
    }

    /// Another shard asked for one, or we do.
    pub(super) fn log_transit(&mut self, key: CircuitKey) {
        let Some(circuit) = self.table.get(key).filter(|_| self.circuit_log.is_some()) else { return };
        let Some(body) = circuit.wanted().map(|wanted| wanted.create2) else { return };
        let (link, circ_id) = (circuit.prev().link(), circuit.prev().circ_id());
        self.write_log(Some(key), link, circ_id, What::Opened { command: Command::CREATE2, body: &body });
    }

    /// A neighbour asked for a circuit, and is told that there is none.
    pub(super) fn log_refused(&mut self, link: LinkKey, circ_id: CircId, reason: DestroyReason) {
        self.write_log(None, link, circ_id, What::Refused { reason });
    }

    /// A neighbour speaks of credit.
    pub(super) fn log_credit_in(&mut self, link: LinkKey, CreditWord { circ_id, message }: CreditWord) {
        if let Some((key, side)) = self.followed(link, circ_id) {
            let what = What::CreditIn { message, is_forward: side == Side::Prev };
            self.write_log(Some(key), link, circ_id, what);
        }
    }

    /// It is spoken to.
    pub(super) fn log_credit_out(&mut self, link: LinkKey, CreditWord { circ_id, message }: CreditWord) {
        if let Some((key, side)) = self.followed(link, circ_id) {
            let what = What::CreditOut { message, is_forward: side == Side::Next };
            self.write_log(Some(key), link, circ_id, what);
        }
    }

    /// DESTROY leaves.
    pub(super) fn log_destroy_out(&mut self, link: LinkKey, circ_id: CircId, reason: DestroyReason) {
        self.write_log(None, link, circ_id, What::DestroyOut { reason });
    }

    /// A circuit has ended, without a word on `silent`, where its end came from.
    pub(super) fn log_destroyed(
        &mut self,
        key: CircuitKey,
        circuit: &Circuit,
        reason: DestroyReason,
        silent: Option<Side>,
    ) {
        let by = match silent {
            Some(Side::Prev) => EndedBy::Behind,
            Some(Side::Next) => EndedBy::Ahead,
            None => EndedBy::Us,
        };
        let (link, circ_id) = (circuit.prev().link(), circuit.prev().circ_id());
        self.write_log(Some(key), link, circ_id, What::Destroyed { reason, by });
    }

    #[cold]
    fn tell_cell_in(&mut self, key: CircuitKey, side: Side, command: Command, reason: Option<DestroyReason>) {
        let Some(circuit) = self.table.get(key) else { return };
        let Some(lane) = circuit.lane(side) else { return };
        let (link, circ_id) = (lane.link(), lane.circ_id());
        let queued_cells = circuit.lane(side.opposite()).map_or(0, Lane::queued_cells);
        let what = What::CellIn { command, is_forward: side == Side::Prev, queued_cells, reason };
        self.write_log(Some(key), link, circ_id, what);
    }

    #[cold]
    fn tell_cell_out(&mut self, link: LinkKey, departure: &Departure) {
        let Departure { circ_id, slot, circuit, side, left, .. } = departure;
        let (command, body) = (self.pool.command(slot), *self.pool.body(slot));
        let is_forward = *side == Side::Next;
        let what = What::CellOut { command, is_forward, queued_cells: *left, body: &body };
        self.write_log(Some(*circuit), link, *circ_id, what);
    }

    /// The circuit at a place, if somebody follows circuits.
    fn followed(&self, link: LinkKey, circ_id: CircId) -> Option<(CircuitKey, Side)> {
        self.circuit_log.as_ref().and_then(|_| self.table.find(link, circ_id))
    }

    fn write_log(&mut self, key: Option<CircuitKey>, link: LinkKey, circ_id: CircId, what: What<'_>) {
        let Some(log) = &mut self.circuit_log else { return };
        let neighbour = match self.links.get(link).map(|link| link.kind()) {
            Some(LinkKind::Channel(channel)) => {
                Neighbour::At { addr: channel.addr(), transport: self.meter.transport_name(CHANNELS) }
            }
            Some(LinkKind::Flows(flows)) => Neighbour::At {
                addr: flows.connection().addr,
                transport: self.meter.transport_name(flows.transport()),
            },
            Some(LinkKind::Shard(shard)) => Neighbour::Shard(*shard),
            None => Neighbour::Nobody,
        };
        let (circuit, link) = (key.map(index_of), index_of(link));
        log.on_circuit(self.now, &Happened { circuit, link, circ_id, neighbour, what });
    }
}
