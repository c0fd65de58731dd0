//! What may be chosen about `tcp-esp`.

use crate::connections::setup::{EndpointSetup, InvalidOptions, Timeouts};
use core::time::Duration;
use heddle_esp::Lifetime;

/// What may be chosen about an endpoint of `tcp-esp`.
#[derive(Clone, Copy, Debug)]
pub struct EspOptions {
    /// How long an association may serve. It is renewed in time.
    pub lifetime: Lifetime,
    /// Whether the system cuts batches of datagrams.
    pub batches: bool,
    pub timeouts: Timeouts,
}

impl Default for EspOptions {
    fn default() -> Self {
        EspOptions { lifetime: Lifetime::default(), batches: true, timeouts: Timeouts::default() }
    }
}

impl EspOptions {
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        EspOptions { batches: setup.offload, ..EspOptions::default() }
    }

    /// Says what cannot be done as it is asked.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        self.timeouts.validate()?;
        // A peer that is a generation behind must not be left behind by two.
        if self.lifetime.packets_max < 1000 || self.lifetime.age_max < Duration::from_secs(600) {
            return Err(InvalidOptions("an association serves for 1,000 packets and ten minutes at least"));
        }
        Ok(())
    }
}
