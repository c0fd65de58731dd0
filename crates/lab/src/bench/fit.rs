//! Fits costs to what was measured: least squares of relative errors, with no cost below zero.

/// More sweeps change no digit that is written down.
const SWEEPS: usize = 20_000;

/// What each operation costs if `rows` have how often each was done and what all of that cost, so that the sum of the
/// squares of the relative errors is least. Rows that cost nothing say nothing.
///
/// One cost after the other is set to what is best while the others stay, until that changes nothing. Where operations
/// always come together their costs are one of many answers that are as good.
pub(super) fn fit<const N: usize>(rows: &[([f64; N], f64)]) -> [f64; N] {
    let rows: Vec<[f64; N]> = rows
        .iter()
        .filter(|(_, cost)| *cost > 0.0)
        .map(|(counts, cost)| counts.map(|count| count / cost))
        .collect();
    // Columns of one length each, so that a byte weighs as much as a turn.
    let length = |column: usize| {
        rows.iter().map(|row| row[column] * row[column]).sum::<f64>().sqrt().max(f64::MIN_POSITIVE)
    };
    let lengths: [f64; N] = std::array::from_fn(length);
    let product =
        |a: usize, b: usize| rows.iter().map(|row| row[a] * row[b]).sum::<f64>() / (lengths[a] * lengths[b]);
    let gram: [[f64; N]; N] = std::array::from_fn(|a| std::array::from_fn(|b| product(a, b)));
    let wanted: [f64; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column]).sum::<f64>() / lengths[column]);
    let mut costs = [0.0; N];
    for _ in 0..SWEEPS {
        for column in 0..N {
            let others: f64 =
                (0..N).filter(|other| *other != column).map(|other| gram[column][other] * costs[other]).sum();
            let own = gram[column][column];
            costs[column] = if own > 0.0 { ((wanted[column] - others) / own).max(0.0) } else { 0.0 };
        }
    }
    std::array::from_fn(|column| costs[column] / lengths[column])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1e-12)
    }

    #[test]
    fn costs_that_were_charged_are_found_again() {
        let costs = [2e-5, 0.0, 4e-9];
        let counts = [[1e4, 3e4, 1e8], [5e4, 1e4, 2e7], [2e3, 9e4, 9e8], [7e4, 7e4, 1e6]];
        let rows = counts.map(|row| (row, row.iter().zip(costs).map(|(count, cost)| count * cost).sum()));
        let found = fit(&rows);
        assert!(found.iter().zip(costs).all(|(found, cost)| close(*found, cost)), "{found:?}");
    }

    #[test]
    fn no_cost_is_below_zero_and_an_operation_that_was_never_done_costs_nothing() {
        // The best answer without that bound would pay for the second.
        let rows = [([1.0, 0.0, 0.0], 1.0), ([1.0, 1.0, 0.0], 0.5), ([0.0, 0.0, 0.0], 0.0)];
        let found = fit(&rows);
        assert_eq!([found[1], found[2]], [0.0, 0.0]);
        // Of 1/x and 1/(x/2), in relative terms.
        assert!(close(found[0], 0.6), "{found:?}");
    }
}
