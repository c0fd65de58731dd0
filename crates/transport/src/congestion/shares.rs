//! How many circuits share a connection, by what each of them sends.

/// What one circuit sent in the epoch of that number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    epoch: u64,
    cells: u64,
}

/// How many circuits share a connection: the number of equal shares that would be as uneven as those of the last epoch,
/// (Σx)² / Σx². A circuit with a cell now and then beside six downloads leaves it at six.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    epoch: u64,
    sum: u64,
    sum_of_squares: u64,
}

impl Shares {
    /// A circuit sends a cell.
    pub(crate) fn count(&mut self, share: &mut Share) {
        if share.epoch != self.epoch {
            *share = Share { epoch: self.epoch, cells: 0 };
        }
        self.sum += 1;
        self.sum_of_squares += 2 * share.cells + 1;
        share.cells += 1;
    }

    /// Ends an epoch. Gives the number of circuits, or nothing if nobody sent.
    pub(crate) fn next_epoch(&mut self) -> Option<f64> {
        let (sum, squares) = (self.sum as f64, self.sum_of_squares as f64);
        self.epoch += 1;
        (self.sum, self.sum_of_squares) = (0, 0);
        (squares > 0.0).then(|| sum * sum / squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_now_and_then_is_no_download() {
        let mut shares = Shares::default();
        let mut circuits = [Share::default(); 7];
        for turn in 0..100 {
            let count = if turn == 50 { 7 } else { 6 };
            circuits.iter_mut().take(count).for_each(|share| shares.count(share));
        }
        let number = shares.next_epoch().expect("they sent");
        assert!((5.9..6.1).contains(&number), "{number}");
        assert_eq!(shares.next_epoch(), None);
    }
}
