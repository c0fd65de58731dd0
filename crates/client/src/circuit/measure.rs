//! What the relays of a circuit counted of it, for whoever measures (`heddle_proto::cell::measure`).

use super::{Fault, OriginCircuit, OriginError, OriginEvent};
use heddle_proto::cell::Command;
use heddle_proto::cell::measure::{MEASURE, Measured};
use heddle_proto::cell::relay::RelayCommand;

/// A hop that has not answered so many questions is asked no more: it does not allow it, or cannot keep up.
const UNANSWERED_MAX: u8 = 8;

/// How many questions each hop has not answered.
#[derive(Default)]
pub(super) struct Questions(Vec<u8>);

impl Questions {
    /// Whether a hop may be asked, which it is then.
    fn ask(&mut self, hop: usize) -> bool {
        if self.0.len() <= hop {
            self.0.resize(hop + 1, 0);
        }
        let unanswered = &mut self.0[hop];
        let may_ask = *unanswered < UNANSWERED_MAX;
        *unanswered += u8::from(may_ask);
        may_ask
    }

    /// A hop answers one. False when it was asked none.
    fn answer(&mut self, hop: usize) -> bool {
        let Some(unanswered) = self.0.get_mut(hop).filter(|unanswered| **unanswered > 0) else {
            return false;
        };
        *unanswered -= 1;
        true
    }

    /// The circuit ends after so many hops.
    pub(super) fn truncate(&mut self, hops: usize) {
        self.0.truncate(hops);
    }
}

impl OriginCircuit {
    /// Asks each hop what it has counted of this circuit since it was asked before; the first time has it begin.
    /// [`OriginEvent::Measured`] tells, of those that allow it. Those that have left eight questions unanswered are not
    /// asked.
    ///
    /// # Errors
    ///
    /// When the circuit is over, or is being joined, or its hops are being asked to forward datagrams.
    pub fn measure(&mut self) -> Result<(), OriginError> {
        self.check_idle()?;
        if self.is_forwarding_asked() {
            return Err(OriginError::State);
        }
        for hop in 0..self.hops() {
            if self.questions.ask(hop) {
                self.send_as(Command::RELAY, hop, RelayCommand::MEASURE, None, &MEASURE);
            }
        }
        Ok(())
    }

    /// A hop answered.
    pub(super) fn on_measured(&mut self, hop: usize, data: &[u8]) -> Result<(), Fault> {
        if !self.questions.answer(hop) {
            return Err("MEASURED that nobody asked for");
        }
        let measured = Box::new(Measured::parse(data).map_err(|_| "malformed MEASURED")?);
        self.events.push_back(OriginEvent::Measured { hop: hop + 1, measured });
        Ok(())
    }
}
