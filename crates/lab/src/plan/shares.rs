//! How many members groups of hosts have that divide one number among them.

/// What a group says of its size: its `count`, if it is a group, and its `share` of that.
pub(super) type Wanted = (Option<usize>, Option<f64>);

/// Sums of shares that differ by less are the same.
const ALIKE: f64 = 1e-9;

/// How many members each group has; `None` for a host that is no group.
///
/// Groups one after another that have shares of the same count divide it, as far as their shares are 1 together. What
/// they have is that part of the count, to the nearest host: each has its share without what is left of a host, and the
/// hosts that are missing then go to those that have the most left, which is the method of the largest remainder. Each
/// has one at least.
pub(super) fn sizes(groups: &[Wanted]) -> Vec<Option<usize>> {
    let mut sizes = Vec::with_capacity(groups.len());
    while let Some((count, share)) = groups.get(sizes.len()).copied() {
        match (count, share) {
            (Some(count), Some(_)) => {
                let shares = division(count, &groups[sizes.len()..]);
                sizes.extend(divide(count, &shares).into_iter().map(Some));
            }
            _ => sizes.push(count),
        }
    }
    sizes
}

/// The shares of the first groups, which divide one number: at least one.
fn division(count: usize, groups: &[Wanted]) -> Vec<f64> {
    let mut sum = 0.0;
    let shares = groups.iter().map_while(|(other, share)| share.filter(|_| *other == Some(count)));
    let fits = shares.take_while(|share| {
        let is_first = sum == 0.0;
        sum += share;
        is_first || sum <= 1.0 + ALIKE
    });
    fits.collect()
}

fn divide(count: usize, shares: &[f64]) -> Vec<usize> {
    let whole = |hosts: f64| (hosts + ALIKE).floor();
    let exact: Vec<f64> = shares.iter().map(|share| share * count as f64).collect();
    let mut sizes: Vec<usize> = exact.iter().map(|hosts| whole(*hosts) as usize).collect();
    let all = exact.iter().sum::<f64>().round() as usize;
    let mut by_rest: Vec<usize> = (0..exact.len()).collect();
    // The first of those that are alike comes first.
    by_rest.sort_by(|a, b| {
        let rest = |group: &usize| exact[*group] - whole(exact[*group]);
        let is_alike = (rest(a) - rest(b)).abs() < ALIKE;
        if is_alike { a.cmp(b) } else { rest(b).total_cmp(&rest(a)) }
    });
    let missing = all.saturating_sub(sizes.iter().sum());
    by_rest.iter().take(missing).for_each(|group| sizes[*group] += 1);
    // Whoever has none takes one of who has most.
    for group in 0..sizes.len() {
        if sizes[group] > 0 {
            continue;
        }
        sizes[group] = 1;
        if let Some(most) = sizes.iter_mut().max().filter(|most| **most > 1) {
            *most -= 1;
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize, shares: &[f64]) -> Vec<usize> {
        let groups: Vec<Wanted> = shares.iter().map(|share| (Some(count), Some(*share))).collect();
        sizes(&groups).into_iter().flatten().collect()
    }

    #[test]
    fn shares_of_a_number_add_up_to_it() {
        assert_eq!(of(5, &[0.5, 0.5]), [3, 2], "and not three each");
        assert_eq!(of(10, &[1.0 / 3.0; 3]), [4, 3, 3]);
        assert_eq!(of(7, &[0.25, 0.25, 0.5]), [2, 2, 3], "the largest remainders");
        assert_eq!(of(20, &[0.6, 0.4]), [12, 8]);
        for count in 3..500 {
            for shares in [[0.95, 0.04, 0.01], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]] {
                let sizes = of(count, &shares);
                assert_eq!(sizes.iter().sum::<usize>(), count, "{sizes:?}");
                let within = |(size, share): (&usize, f64)| {
                    (*size as f64 - share * count as f64).abs() < 1.0 || *size == 1 || count < 100
                };
                assert!(sizes.iter().zip(shares).all(within), "{sizes:?} of {count}");
            }
        }
    }

    #[test]
    fn a_group_has_one_at_least_and_parts_of_a_number_are_its_part() {
        assert_eq!(of(10, &[0.99, 0.01]), [9, 1]);
        assert_eq!(of(1, &[0.5, 0.5]), [1, 1], "there is no other way");
        assert_eq!(of(10, &[0.25, 0.25]), [3, 2], "half of them");
        assert_eq!(of(10, &[0.33]), [3]);
    }

    #[test]
    fn only_groups_one_after_another_that_are_one_at_most_divide_a_number() {
        // Two divisions of one number.
        assert_eq!(of(5, &[0.5, 0.5, 0.5, 0.5]), [3, 2, 3, 2]);
        let groups =
            [(Some(5), Some(0.5)), (None, None), (Some(5), Some(0.5)), (Some(7), Some(0.5)), (Some(4), None)];
        assert_eq!(sizes(&groups), [Some(3), None, Some(3), Some(4), Some(4)]);
    }
}
