//! The program that a source of traffic is. Backends differ in who carries its streams and in nothing else.

use std::sync::Arc;
use std::time::Duration;

use heddle_seam::time::Instant;

use super::{OPEN_MAX, Source};
use crate::plan::Traffic;
use crate::traffic::Identity;
use crate::traffic::echo::Echoes;
use crate::traffic::fetch::{Draws, Fetches, Profile};
use crate::traffic::lines::WayId;
use crate::traffic::program::Program;
use crate::traffic::sunk::Sunk;
use crate::traffic::timing::{BulkStream, Timing, TimingWork};
use crate::traffic::upload::{Upload, UploadWork};

impl Source {
    /// Begins now, by this way to its server. `sunk` is what came of uploads there, and `number` which of them this is.
    pub(super) fn program(
        &self,
        now: Instant,
        way: WayId,
        sunk: Arc<Sunk>,
        number: usize,
    ) -> Box<dyn Program> {
        let (identity, timeout, warmup_max) = (self.identity(), self.timeout(), self.steady_max);
        let timing = |bulk, probe_pause| {
            let work = TimingWork { bulk, probe_pause, measured_s_max: None, warmup_max, timeout };
            Box::new(Timing::new(now, way, &identity, &work))
        };
        match self.traffic {
            Traffic::Probe { pause } => timing(None, Some(pause)),
            Traffic::Bulk { limit_kb_s, reads_for } => {
                let reads_for = Some(reads_for).filter(|reads_for| !reads_for.is_zero());
                timing(Some(BulkStream { limit_b_s: limit_kb_s.saturating_mul(1000), reads_for }), None)
            }
            Traffic::Echo { every } => Box::new(Echoes::new(now, way, every, timeout)),
            Traffic::Upload {} => {
                Box::new(Upload::new(now, way, UploadWork { sunk, number, warmup_max, timeout }))
            }
            Traffic::Fetch { size, pause } => {
                let draws = Draws::new(&identity, "fetch", &Profile::of_plan(size, pause));
                Box::new(Fetches::new(now, way, draws, None, Some(now + self.lasts), timeout))
            }
        }
    }

    /// How long its streams may take to open, and then to go on.
    pub(super) fn timeout(&self) -> Duration {
        match self.traffic {
            Traffic::Fetch { .. } => 10 * OPEN_MAX,
            _ => OPEN_MAX,
        }
    }

    fn identity(&self) -> Identity {
        Identity { label: self.label.clone(), seed: self.seed, ..Identity::default() }
    }
}
