//! MEASURE: a client asks what we counted of its own circuit (`heddle_proto::cell::measure`).

use super::Core;
use crate::keys::{CircuitKey, Side};
use crate::table::Circuit;
use heddle_proto::cell::measure::{LaneMeasured, Measured, is_measure};
use heddle_proto::cell::relay::RelayCommand;

impl Core {
    /// Heard only where the operator allows it.
    pub(super) fn on_measure_asked(&mut self, key: CircuitKey, data: &[u8]) {
        if !self.config.answers_measure || !is_measure(data) {
            return;
        }
        let now = self.now;
        let since = self.table.get_mut(key).and_then(|circuit| circuit.measure_since(now));
        let elapsed = since.map_or(0, |since| now.since(since).as_millis());
        let measured = Measured {
            elapsed_ms: u32::try_from(elapsed).unwrap_or(u32::MAX),
            towards_client: self.measure_lane(key, Side::Prev),
            away: self.measure_lane(key, Side::Next),
        };
        let mut data = Vec::new();
        measured.encode(&mut data);
        self.send_relay(key, RelayCommand::MEASURED, None, &data);
    }

    /// What a lane did since the last question, with its transport's name.
    fn measure_lane(&mut self, key: CircuitKey, side: Side) -> LaneMeasured {
        let link = self.table.get(key).and_then(|circuit: &Circuit| Some(circuit.lane(side)?.link()));
        let Some(link) = link.and_then(|link| self.links.get(link)) else { return LaneMeasured::default() };
        let transport = link.transport().map_or("shard", |place| self.meter.transport_name(place));
        self.table.measure(key, side).unwrap_or_default().over(transport)
    }
}
