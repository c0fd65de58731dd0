//! In which order what is compared takes its turns.

/// The order of so many arms in a round: from one place on in rounds of even number and back in those of odd number,
/// and a place further after each two. So nobody is always the first, and nobody always follows the same one: what a
/// turn leaves behind, as warm caches or a throttled processor, meets all alike.
pub(crate) fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let first = round / 2;
    (0..count)
        .map(move |turn| if round.is_multiple_of(2) { turn } else { count - 1 - turn })
        .map(move |turn| (first + turn) % count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_has_every_place_equally_often_and_comes_before_another_as_often_as_behind_it() {
        for count in 1..=6 {
            let mut places = BTreeMap::new();
            let mut neighbours = BTreeMap::new();
            for round in 0..2 * count {
                let order: Vec<usize> = order(count, round).collect();
                order.iter().copied().enumerate().for_each(|at| *places.entry(at).or_insert(0) += 1);
                order.windows(2).for_each(|pair| *neighbours.entry((pair[0], pair[1])).or_insert(0) += 1);
            }
            assert_eq!(places.len(), count * count);
            assert!(places.values().all(|times| *times == 2), "{count}: {places:?}");
            for ((before, after), times) in &neighbours {
                assert_eq!(neighbours[&(*after, *before)], *times, "{count}: {before} and {after}");
            }
        }
    }

    #[test]
    fn two_take_their_turns_there_and_back() {
        let all: Vec<Vec<usize>> = (0..4).map(|round| order(2, round).collect()).collect();
        assert_eq!(all, [[0, 1], [1, 0], [1, 0], [0, 1]]);
    }
}
