//! What chance does to a packet on one direction of a wire.
//!
//! Everything is drawn when a packet is offered, and each effect has a generator of its own and costs the same number
//! of draws for every packet. So the k-th packet offered while an effect is on always meets the same fate from it,
//! whatever the other effects, the queue or other wires do.

use crate::loss::LossProcess;
use crate::options::{DirectionOptions, Jitter, Reorder};
use crate::seed::{Rng, Seed};

/// What happens to one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    pub lost: bool,
    pub duplicated: bool,
    /// The bit to flip, as a fraction of the packet.
    pub flip: Option<f64>,
    pub jitter_ns: i64,
    pub hold_ns: u64,
}

/// The effects of one direction that chance rules.
#[derive(Debug)]
pub(crate) struct Fates {
    seed: Seed,
    /// Packets so far, which numbers them.
    packets: u64,
    pub loss: LossProcess,
    pub jitter: Jitter,
    pub reorder: Option<Reorder>,
    pub duplicate: f64,
    pub corrupt: f64,
    loss_rng: LazyRng,
    jitter_rng: LazyRng,
    reorder_rng: LazyRng,
    duplicate_rng: LazyRng,
    corrupt_rng: LazyRng,
}

impl Fates {
    pub(crate) fn new(options: &DirectionOptions, seed: Seed) -> Self {
        Fates {
            seed,
            packets: 0,
            loss: LossProcess::new(options.loss.clone()),
            jitter: options.jitter.clone(),
            reorder: options.reorder.clone(),
            duplicate: options.duplicate,
            corrupt: options.corrupt,
            loss_rng: LazyRng("loss", None),
            jitter_rng: LazyRng("jitter", None),
            reorder_rng: LazyRng("reorder", None),
            duplicate_rng: LazyRng("duplicate", None),
            corrupt_rng: LazyRng("corrupt", None),
        }
    }

    /// The fate of the next packet.
    pub(crate) fn draw(&mut self) -> Fate {
        self.packets += 1;
        let mut fate = Fate::default();
        let loss_rng = if self.loss.is_random() { Some(self.loss_rng.get(&self.seed)) } else { None };
        fate.lost = self.loss.takes(self.packets, loss_rng);
        if self.jitter != Jitter::None {
            fate.jitter_ns = jitter_ns(&self.jitter, self.jitter_rng.get(&self.seed));
        }
        if let Some(reorder) = &self.reorder
            && self.reorder_rng.get(&self.seed).chance(reorder.probability)
        {
            fate.hold_ns = reorder.hold_ns;
        }
        if self.duplicate > 0.0 {
            fate.duplicated = self.duplicate_rng.get(&self.seed).chance(self.duplicate);
        }
        if self.corrupt > 0.0 {
            let rng = self.corrupt_rng.get(&self.seed);
            let (is_corrupted, place) = (rng.chance(self.corrupt), rng.unit());
            fate.flip = is_corrupted.then_some(place);
        }
        fate
    }
}

/// A generator that is made when it is first needed: most wires have few effects, and a generator takes 320 bytes.
#[derive(Debug)]
struct LazyRng(&'static str, Option<Box<Rng>>);

impl LazyRng {
    fn get(&mut self, seed: &Seed) -> &mut Rng {
        let label = self.0;
        self.1.get_or_insert_with(|| Box::new(seed.child(&[label]).rng()))
    }
}

/// One offset. Two draws for a normal one, otherwise one. The functions of `libm` make it the same on every machine.
fn jitter_ns(jitter: &Jitter, rng: &mut Rng) -> i64 {
    match jitter {
        Jitter::None => 0,
        // The inverse of the distribution function; 1 - u is never zero.
        Jitter::Exponential { mean_ns } => rounded(-(*mean_ns as f64) * libm::log(1.0 - rng.unit())),
        // Box and Muller's transformation, of which one of two results is used.
        Jitter::Normal { std_dev_ns } => {
            let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.unit()));
            rounded(*std_dev_ns as f64 * radius * libm::cos(core::f64::consts::TAU * rng.unit()))
        }
        Jitter::Uniform { spread_ns } => rng.below(2 * spread_ns + 1) as i64 - *spread_ns as i64,
        Jitter::Table { offsets_ns } => offsets_ns[rng.below(offsets_ns.len() as u64) as usize],
    }
}

fn rounded(ns: f64) -> i64 {
    libm::round(ns) as i64
}
