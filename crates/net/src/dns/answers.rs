//! Answers that were found, for as long as they are kept.
//!
//! The resolver's library has a cache too, but it counts answers and not their bytes, and a name may have thousands of
//! addresses. Here an answer is what a client can be told: 16 addresses, or one name.
//!
//! What is told is settled when the answer comes. Nobody who asks later learns from it that somebody asked before, nor
//! when: the times to live are those that the first one was told, and do not run down.

use super::ttl::fuzzy_s;
use heddle_seam::node::{Query, Resolution, ResolveError};
use heddle_seam::rng::Rng;
use moka::Expiry;
use moka::sync::Cache;
use std::time::{Duration, Instant};

type Answer = Result<Resolution, ResolveError>;

/// What the name servers said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// With the servers' own times to live.
    pub answer: Answer,
    /// The times to live of everything that was looked up, also of what there is not.
    pub ttls_s: Vec<u32>,
}

impl Found {
    /// What may be another answer next time.
    pub fn transient() -> Self {
        Found { answer: Err(ResolveError::Transient), ttls_s: Vec::new() }
    }
}

/// Answers to questions; the least useful ones go when there are too many.
#[derive(Clone)]
pub(super) struct Answers {
    known: Cache<Query, Known>,
}

#[derive(Clone)]
struct Known {
    answer: Answer,
    lifetime: Duration,
}

/// When an answer ends.
struct Lifetime;

impl Expiry<Query, Known> for Lifetime {
    fn expire_after_create(&self, _: &Query, known: &Known, _: Instant) -> Option<Duration> {
        Some(known.lifetime)
    }
}

impl Answers {
    /// Room for so many, each of [`ANSWER_BYTES`](super::ANSWER_BYTES) at most.
    pub(super) fn new(answers_max: u64) -> Self {
        Answers { known: Cache::builder().max_capacity(answers_max).expire_after(Lifetime).build() }
    }

    /// What is known, as it was told first.
    pub(super) fn get(&self, query: &Query) -> Option<Answer> {
        Some(self.known.get(query)?.answer)
    }

    /// What clients are told, which is remembered from now on. Unlike stock Tor we do not remember that servers did not
    /// answer, or one lost datagram would hide a name for minutes.
    pub(super) fn put(&self, query: Query, found: Found, rng: &mut Rng) -> Answer {
        let answer = found.answer.map(|answer| told(answer, rng));
        let lifetime_s = found.ttls_s.iter().map(|ttl_s| fuzzy_s(*ttl_s, rng)).min();
        if let Some(lifetime_s) = lifetime_s.filter(|_| answer != Err(ResolveError::Transient)) {
            let lifetime = Duration::from_secs(lifetime_s.into());
            self.known.insert(query, Known { answer: answer.clone(), lifetime });
        }
        answer
    }

    pub(super) fn clear(&self) {
        self.known.invalidate_all();
    }
}

/// The same with the times to live that clients are told. All addresses of a family have one, of the least that a
/// server gave one of them.
fn told(found: Resolution, rng: &mut Rng) -> Resolution {
    match found {
        Resolution::Addresses(mut addresses) => {
            for ipv4 in [true, false] {
                let of_family = || addresses.iter().filter(|(addr, _)| addr.is_ipv4() == ipv4);
                let Some(ttl_s) = of_family().map(|(_, ttl_s)| *ttl_s).min() else { continue };
                let ttl_s = fuzzy_s(ttl_s, rng);
                addresses.iter_mut().filter(|(addr, _)| addr.is_ipv4() == ipv4).for_each(|of| of.1 = ttl_s);
            }
            Resolution::Addresses(addresses)
        }
        Resolution::Name(name, ttl_s) => Resolution::Name(name, fuzzy_s(ttl_s, rng)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;
    use std::net::IpAddr;

    fn query(number: u32) -> Query {
        Query::Forward(format!("{number}.test"))
    }

    fn rng() -> Rng {
        Seed::from_number(1).rng()
    }

    /// Two addresses of IPv4 and one of IPv6.
    fn found(ttls_s: [u32; 3]) -> Found {
        let addrs = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|addr| addr.parse::<IpAddr>().unwrap());
        let answer = Ok(Resolution::Addresses(addrs.into_iter().zip(ttls_s).collect()));
        Found { answer, ttls_s: ttls_s.to_vec() }
    }

    fn ttls_s(answer: &Answer) -> Vec<u32> {
        match answer {
            Ok(Resolution::Addresses(addresses)) => addresses.iter().map(|(_, ttl_s)| *ttl_s).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_asks_later_is_told_what_the_first_one_was_told() {
        let (answers, mut rng) = (Answers::new(100), rng());
        let failure = Found { answer: Err(ResolveError::NotFound), ttls_s: vec![0, 0] };
        let name = Found { answer: Ok(Resolution::Name("host.test".into(), 77)), ttls_s: vec![77] };
        for (number, found) in [(1, found([0, 0, 0])), (2, failure), (3, name)] {
            let first = answers.put(query(number), found, &mut rng);
            assert_eq!(answers.get(&query(number)), Some(first.clone()));
            assert_eq!(answers.get(&query(number)), Some(first));
        }
        let _ = answers.put(query(4), Found::transient(), &mut rng);
        assert_eq!(answers.get(&query(4)), None);
        answers.clear();
        assert_eq!(answers.get(&query(1)), None);
    }

    #[test]
    fn each_family_is_told_one_time_of_its_least() {
        let mut rng = rng();
        for _ in 0..100 {
            let told = ttls_s(&Answers::new(1).put(query(1), found([86_400, 20, 400]), &mut rng));
            assert_eq!(told[0], told[1]);
            assert!((60..=540).contains(&told[0]) && (3360..=3840).contains(&told[2]), "{told:?}");
        }
    }

    #[test]
    fn what_is_told_says_nothing_about_when_an_answer_ends() {
        let mut rng = rng();
        let mut differences = Vec::new();
        for number in 0..1000 {
            let answers = Answers::new(1);
            let told = answers.put(query(number), Found { ttls_s: vec![60], ..found([60; 3]) }, &mut rng);
            let kept_s = answers.known.get(&query(number)).unwrap().lifetime.as_secs();
            assert!((60..=540).contains(&kept_s));
            differences.push(kept_s.abs_diff(ttls_s(&told)[0].into()));
        }
        // Two numbers of 0 to 480 are 160 apart in the mean.
        let mean = differences.iter().sum::<u64>() / 1000;
        assert!((140..180).contains(&mean), "{mean}");
    }

    #[test]
    fn an_answer_ends_with_the_first_of_what_was_looked_up() {
        let (answers, mut rng) = (Answers::new(1), rng());
        // There are addresses for a day, and that there are no others holds for a minute.
        let _ = answers.put(query(1), Found { ttls_s: vec![86_400, 60], ..found([86_400; 3]) }, &mut rng);
        assert!(answers.known.get(&query(1)).unwrap().lifetime <= Duration::from_secs(540));
    }

    #[test]
    fn there_are_no_more_than_fit() {
        let (answers, mut rng) = (Answers::new(10), rng());
        for number in 0..1000 {
            let _ = answers.put(query(number), found([300; 3]), &mut rng);
        }
        answers.known.run_pending_tasks();
        assert!(answers.known.entry_count() <= 10, "{}", answers.known.entry_count());
    }
}
