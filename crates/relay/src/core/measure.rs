//! MEASURE: a client asks what we counted of its own circuit (`heddle_proto::cell::measure`).

use super::Core;
use crate::keys::{CircuitKey, Side};
use crate::table::Circuit;
use heddle_proto::cell::measure::{LaneMeasured, Measured, is_measure};
use heddle_proto::cell::relay::RelayCommand;
use heddle_seam::time::Duration;

impl Core {
    /// Heard only where the operator allows it.
    pub(super) fn on_measure_asked(&mut self, key: CircuitKey, data: &[u8]) {
        if !self.config.answers_measure || !is_measure(data) {
            return;
        }
        // The lane towards the client is there as long as the circuit.
        let (elapsed, towards_client) = self.measure_lane(key, Side::Prev);
        let (_, away) = self.measure_lane(key, Side::Next);
        let elapsed_ms = u32::try_from(elapsed.as_millis()).unwrap_or(u32::MAX);
        let mut data = Vec::new();
        Measured { elapsed_ms, towards_client, away }.encode(&mut data);
        self.send_relay(key, RelayCommand::MEASURED, None, &data);
    }

    /// What a lane did since the last question, in which time, with its transport's name.
    fn measure_lane(&mut self, key: CircuitKey, side: Side) -> (Duration, LaneMeasured) {
        let link = self.table.get(key).and_then(|circuit: &Circuit| Some(circuit.lane(side)?.link()));
        let Some(link) = link.and_then(|link| self.links.get(link)) else { return Default::default() };
        let transport = link.transport().map_or("shard", |place| self.meter.transport_name(place));
        let (elapsed, measured) = self.table.measure(self.now, key, side).unwrap_or_default();
        (elapsed, measured.over(transport))
    }
}
