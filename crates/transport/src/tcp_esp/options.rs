//! What may be chosen about `tcp-esp`.

use crate::setup::{EndpointSetup, InvalidOptions};
use crate::silence::{DEAD_MIN, SUSPECT_MIN};
use core::time::Duration;
use heddle_esp::Lifetime;

/// What may be chosen about an endpoint of `tcp-esp`.
#[derive(Clone, Copy, Debug)]
pub struct EspOptions {
    /// How long an association may serve. It is renewed in time.
    pub lifetime: Lifetime,
    /// Whether the system cuts batches of datagrams.
    pub batches: bool,
    /// How long a dialler waits for the peer's proof.
    pub dial_timeout: Duration,
    /// How long a listener waits for the dialler, and for its proof.
    pub listen_timeout: Duration,
    /// A silent path is probed this often.
    pub keep_alive: Duration,
    /// A path is suspect when nothing was answered for three probe time-outs, and for this long: new circuits go
    /// elsewhere.
    pub path_suspect_min: Duration,
    /// It is dead when nothing was answered for three probe time-outs, and for this long: its circuits end.
    pub path_dead_min: Duration,
    /// A flow whose first cell does not come is reset after this.
    pub first_cell_timeout: Duration,
}

impl Default for EspOptions {
    fn default() -> Self {
        EspOptions {
            lifetime: Lifetime::default(),
            batches: true,
            dial_timeout: Duration::from_secs(10),
            listen_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            path_suspect_min: SUSPECT_MIN,
            path_dead_min: DEAD_MIN,
            first_cell_timeout: Duration::from_secs(10),
        }
    }
}

impl EspOptions {
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        EspOptions { batches: setup.offload, ..EspOptions::default() }
    }

    /// Says what cannot be done as it is asked.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        if [self.dial_timeout, self.listen_timeout, self.keep_alive].contains(&Duration::ZERO) {
            return Err(InvalidOptions("times are not zero"));
        }
        // A peer that is a generation behind must not be left behind by two.
        if self.lifetime.packets_max < 1000 || self.lifetime.age_max < Duration::from_secs(600) {
            return Err(InvalidOptions("an association serves for 1,000 packets and ten minutes at least"));
        }
        Ok(())
    }
}
