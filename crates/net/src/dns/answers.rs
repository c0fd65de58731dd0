//! Answers that were found, until their time to live ends.
//!
//! The resolver's library has a cache too, but it counts answers and not their bytes, and a name may have thousands of
//! addresses. Here an answer is what a client can be told: 16 addresses, or one name.

use heddle_proto::node::{Query, Resolution, ResolveError};
use moka::Expiry;
use moka::sync::Cache;
use std::time::{Duration, Instant};

/// How long an answer counts at most, whatever it says itself.
const LIFETIME_MAX: Duration = Duration::from_secs(3600);
/// How long there is no such name.
const NOT_FOUND_LIFETIME: Duration = Duration::from_secs(60);

type Answer = Result<Resolution, ResolveError>;

/// Answers to questions; the least useful ones go when there are too many.
#[derive(Clone)]
pub(super) struct Answers {
    known: Cache<Query, Known>,
}

#[derive(Clone)]
struct Known {
    answer: Answer,
    since: Instant,
}

/// When an answer ends.
struct Lifetime;

impl Expiry<Query, Known> for Lifetime {
    fn expire_after_create(&self, _: &Query, known: &Known, _: Instant) -> Option<Duration> {
        lifetime(&known.answer)
    }
}

impl Answers {
    /// Room for so many: a name of at most 255 bytes, and an answer of at most 16 × 24 bytes or as long a name, so less than
    /// 1 KiB each with what the map itself takes.
    pub(super) fn new(answers_max: u64) -> Self {
        Answers { known: Cache::builder().max_capacity(answers_max).expire_after(Lifetime).build() }
    }

    /// What is known, with the times to live that are left.
    pub(super) fn get(&self, query: &Query) -> Option<Answer> {
        let Known { answer, since } = self.known.get(query)?;
        let age_s = u32::try_from(since.elapsed().as_secs()).unwrap_or(u32::MAX);
        Some(answer.map(|found| older(found, age_s)))
    }

    /// Remembers an answer, unless it may be another one next time.
    pub(super) fn put(&self, query: Query, answer: &Answer) {
        if lifetime(answer).is_some_and(|lifetime| !lifetime.is_zero()) {
            self.known.insert(query, Known { answer: answer.clone(), since: Instant::now() });
        }
    }

    pub(super) fn clear(&self) {
        self.known.invalidate_all();
    }
}

fn lifetime(answer: &Answer) -> Option<Duration> {
    let ttl_s = match answer {
        Ok(Resolution::Addresses(addresses)) => addresses.iter().map(|(_, ttl_s)| *ttl_s).min()?,
        Ok(Resolution::Name(_, ttl_s)) => *ttl_s,
        Err(ResolveError::NotFound) => return Some(NOT_FOUND_LIFETIME),
        Err(_) => return Some(Duration::ZERO),
    };
    Some(Duration::from_secs(ttl_s.into()).min(LIFETIME_MAX))
}

fn older(found: Resolution, age_s: u32) -> Resolution {
    match found {
        Resolution::Addresses(mut addresses) => {
            for (_, ttl_s) in &mut addresses {
                *ttl_s = ttl_s.saturating_sub(age_s);
            }
            Resolution::Addresses(addresses)
        }
        Resolution::Name(name, ttl_s) => Resolution::Name(name, ttl_s.saturating_sub(age_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn query(number: u32) -> Query {
        Query::Forward(format!("{number}.test"))
    }

    fn address(ttl_s: u32) -> Answer {
        Ok(Resolution::Addresses(vec![(IpAddr::from([192, 0, 2, 1]), ttl_s), ([192, 0, 2, 2].into(), 900)]))
    }

    #[test]
    fn answers_are_kept_as_long_as_the_shortest_lives_and_failures_are_not() {
        let answers = Answers::new(100);
        assert_eq!(lifetime(&address(300)), Some(Duration::from_secs(300)));
        assert_eq!(lifetime(&Ok(Resolution::Name("host.test".into(), 1 << 30))), Some(LIFETIME_MAX));
        for (number, answer) in [(1, address(300)), (2, Err(ResolveError::NotFound))] {
            answers.put(query(number), &answer);
            assert_eq!(answers.get(&query(number)), Some(answer));
        }
        for (number, answer) in [(3, Err(ResolveError::Transient)), (4, address(0))] {
            answers.put(query(number), &answer);
            assert_eq!(answers.get(&query(number)), None);
        }
        answers.clear();
        assert_eq!(answers.get(&query(1)), None);
    }

    #[test]
    fn times_to_live_run_on() {
        let later = older(address(300).unwrap(), 400);
        assert_eq!(
            later,
            Resolution::Addresses(vec![([192, 0, 2, 1].into(), 0), ([192, 0, 2, 2].into(), 500)])
        );
        assert_eq!(older(Resolution::Name("a".into(), 77), 7), Resolution::Name("a".into(), 70));
    }

    #[test]
    fn there_are_no_more_than_fit() {
        let answers = Answers::new(10);
        for number in 0..1000 {
            answers.put(query(number), &address(300));
        }
        answers.known.run_pending_tasks();
        assert!(answers.known.entry_count() <= 10, "{}", answers.known.entry_count());
    }
}
