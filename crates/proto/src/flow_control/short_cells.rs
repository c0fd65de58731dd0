//! Which DATA cells are cut short, so that nobody can acknowledge what they did not read (proposal 289).
//!
//! A SENDME proves that its sender has seen a cell, by the running digest up to it. Whoever knows every byte of a
//! stream, their own server's for instance, knows all digests in advance, unless something is in the cells that they do
//! not know: padding, which is random. So a full cell leaves some room for it now and then.
//!
//! 1. A number of cells is drawn, 50 to 99.
//! 2. A cell among them that is short by itself does.
//! 3. If there was none, the last one is cut short.
//!
//! The numbers are stock Tor's.

use crate::cell::relay::DATA_LEN;
use heddle_seam::rng::Rng;

/// A cell with at most so much data has 16 bytes of random padding, behind four that are zero.
const SHORT_LEN: usize = DATA_LEN - 4 - 16;
const CELLS_MIN: u32 = 50;
const CELLS_MAX: u32 = 99;

/// What the end of a circuit knows of the DATA cells that it makes.
#[derive(Debug)]
pub struct ShortCells {
    /// Full cells until one must have been short.
    left: u32,
    /// Whether one was.
    was_short: bool,
}

impl ShortCells {
    pub fn new(rng: &mut Rng) -> Self {
        ShortCells { left: draw(rng), was_short: false }
    }

    /// How much data the next cell may carry.
    pub fn data_len_max(&self) -> usize {
        if self.left == 0 && !self.was_short { SHORT_LEN } else { DATA_LEN }
    }

    /// Counts a cell with so much data.
    pub fn on_packaged(&mut self, data_len: usize, rng: &mut Rng) {
        self.was_short |= data_len <= SHORT_LEN;
        if self.left == 0 {
            *self = ShortCells::new(rng);
        }
        self.left -= 1;
    }

    /// How much data the next cells carry together, when there is enough. So few of them that only one can be cut
    /// short.
    pub fn data_len_of(&self, cells: u32) -> usize {
        debug_assert!(cells <= CELLS_MIN, "{cells} cells may hold two short ones");
        let cut = !self.was_short && self.left < cells;
        cells as usize * DATA_LEN - if cut { DATA_LEN - SHORT_LEN } else { 0 }
    }
}

fn draw(rng: &mut Rng) -> u32 {
    // Below 50, so it fits.
    CELLS_MIN + rng.below(u64::from(CELLS_MAX - CELLS_MIN + 1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    #[test]
    fn one_of_50_to_99_cells_is_short() {
        let mut rng = Seed::from_number(1).rng();
        let mut cells = ShortCells::new(&mut rng);
        let (mut run, mut runs) = (0_u32, Vec::new());
        for _ in 0..1_000_000 {
            let len = cells.data_len_max();
            cells.on_packaged(len, &mut rng);
            run += 1;
            if len < DATA_LEN {
                assert_eq!(len, 478);
                runs.push(run);
                run = 0;
            }
        }
        // The first comes one cell later, as it does with stock Tor.
        let (first, others) = runs.split_first().unwrap();
        assert!((51..=100).contains(first));
        assert_eq!((others.iter().min(), others.iter().max()), (Some(&50), Some(&99)));
        let mean = f64::from(others.iter().sum::<u32>()) / others.len() as f64;
        assert!((74.0..75.0).contains(&mean), "{mean}");
        // What it costs: 20 of 37,100 bytes.
        let lost = runs.len() as f64 * 20.0 / (1_000_000.0 * DATA_LEN as f64);
        assert!((0.000_5..0.000_6).contains(&lost), "{lost}");
    }

    #[test]
    fn a_cell_that_is_short_by_itself_does() {
        let mut rng = Seed::from_number(2).rng();
        let mut cells = ShortCells::new(&mut rng);
        for number in 0..10_000 {
            assert_eq!(cells.data_len_max(), DATA_LEN);
            cells.on_packaged(if number % 40 == 0 { SHORT_LEN } else { DATA_LEN }, &mut rng);
        }
        // One byte more leaves too little room.
        let cut = (0..200).filter(|_| {
            let len = cells.data_len_max();
            cells.on_packaged(len.min(SHORT_LEN + 1), &mut rng);
            len == SHORT_LEN
        });
        assert!(cut.count() >= 2);
    }

    #[test]
    fn cells_carry_together_what_was_said() {
        let mut rng = Seed::from_number(3).rng();
        let mut cells = ShortCells::new(&mut rng);
        for round in 0..10_000_u32 {
            let batch = 1 + round % CELLS_MIN;
            let said = cells.data_len_of(batch);
            let mut carried = 0;
            for _ in 0..batch {
                let len = cells.data_len_max();
                cells.on_packaged(len, &mut rng);
                carried += len;
            }
            assert_eq!(said, carried);
            if round % 7 == 0 {
                cells.on_packaged(1, &mut rng);
            }
        }
    }
}
