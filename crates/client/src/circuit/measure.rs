//! What the relays of a circuit counted of it, for whoever measures (`heddle_proto::cell::measure`).

use super::{Fault, OriginCircuit, OriginError, OriginEvent};
use heddle_proto::cell::Command;
use heddle_proto::cell::measure::{MEASURE, Measured};
use heddle_proto::cell::relay::RelayCommand;

impl OriginCircuit {
    /// Asks each hop what it has counted of this circuit since it was asked before; the first time has it begin.
    /// [`OriginEvent::Measured`] tells, of those that allow it.
    ///
    /// # Errors
    ///
    /// When the circuit is over, or is being joined.
    pub fn measure(&mut self) -> Result<(), OriginError> {
        self.check_idle()?;
        for hop in 0..self.hops() {
            self.send_as(Command::RELAY, hop, RelayCommand::MEASURE, None, &MEASURE);
        }
        Ok(())
    }

    /// A hop answered.
    pub(super) fn on_measured(&mut self, hop: usize, data: &[u8]) -> Result<(), Fault> {
        let measured = Box::new(Measured::parse(data).map_err(|_| "malformed MEASURED")?);
        self.events.push_back(OriginEvent::Measured { hop: hop + 1, measured });
        Ok(())
    }
}
