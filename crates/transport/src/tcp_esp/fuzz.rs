//! For the fuzz target: an end that has the pair's keys, and says inside of them whatever it likes.

use super::associations::Associations;
use super::chain::Root;
use super::options::EspOptions;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::PairSecrets;
use heddle_seam::time::Instant;

/// The associations of one end.
pub struct Sealer(Associations);

impl Sealer {
    /// Those of the end with this role.
    pub fn new(now: Instant, role: Role, secrets: &PairSecrets) -> Self {
        Sealer(Associations::new(now, &Root::new(secrets), role, EspOptions::default().lifetime))
    }

    /// An authentic datagram, whatever is in it.
    pub fn seal(&mut self, now: Instant, next_header: u8, payload: &[u8]) -> Vec<u8> {
        self.0.renew(now);
        let mut datagram = Vec::new();
        assert!(self.0.seal(now, next_header, payload, &mut datagram), "a datagram holds so much");
        datagram
    }
}
