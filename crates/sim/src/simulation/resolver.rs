//! The resolver that all hosts ask.

use super::Simulation;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use heddle_seam::language::Language;
use heddle_seam::node::{Query, Resolution, ResolveError};
use heddle_seam::rng::Rng;
use heddle_seam::time::Duration;

/// What a name lives for that is resolved as it should be.
const TTL_S: u32 = 600;
/// How long silent name servers are waited for, as by the driver over real sockets. The seam promises an answer
/// to each question, so this is how a node hears of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// What kind of answers the resolver gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolver {
    /// Those that are true.
    #[default]
    Good,
    /// None: after 20 s each question has failed.
    Dead,
    /// As many addresses as there may be, or a name, none of them true, with any time to live.
    Rubbish,
}

impl<L: Language> Simulation<L> {
    /// How questions are answered from now on. What was asked before is answered as it was to be.
    pub fn set_resolver(&mut self, kind: Resolver) {
        self.resolver_kind = kind;
    }

    /// What is said to a question, and how long that takes.
    pub(super) fn answer(&mut self, query: &Query) -> (Result<Resolution, ResolveError>, Duration) {
        match self.resolver_kind {
            Resolver::Good => {
                (self.true_answer(query).ok_or(ResolveError::NotFound), self.options.resolve_delay)
            }
            Resolver::Dead => (Err(ResolveError::Transient), PATIENCE),
            Resolver::Rubbish => (Ok(rubbish(&mut self.resolver)), self.options.resolve_delay),
        }
    }

    fn true_answer(&self, query: &Query) -> Option<Resolution> {
        match query {
            Query::Forward(name) => self.names.get(name).map(|addrs| {
                let addrs = addrs.iter().take(Resolution::MAX_ANSWERS);
                Resolution::Addresses(addrs.map(|addr| (*addr, TTL_S)).collect())
            }),
            Query::Reverse(addr) => {
                let named = self.names.iter().find(|(_, addrs)| addrs.contains(addr));
                named.map(|(name, _)| Resolution::Name(name.clone(), TTL_S))
            }
        }
    }
}

/// An answer that is of the right shape and nothing else.
fn rubbish(rng: &mut Rng) -> Resolution {
    let ttl_s = |rng: &mut Rng| [0, 1, u32::MAX, rng.next_u32()][rng.below(4) as usize];
    if rng.below(4) == 0 {
        let name = "x".repeat(1 + rng.below(255) as usize);
        return Resolution::Name(name, ttl_s(rng));
    }
    let addr = |rng: &mut Rng| match rng.below(4) {
        0 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        1 => IpAddr::V4(Ipv4Addr::BROADCAST),
        2 => IpAddr::V6(Ipv6Addr::from(rng.array::<16>())),
        // Where nobody is: the networks of simulations have private addresses and those for documents.
        _ => IpAddr::V4(Ipv4Addr::from(0xF000_0000 | rng.next_u32())),
    };
    let answers = (0..Resolution::MAX_ANSWERS).map(|_| (addr(rng), ttl_s(rng)));
    Resolution::Addresses(answers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Options;
    use heddle_seam::language::Plain;

    #[test]
    fn each_kind_answers_as_it_says() {
        let mut sim = Simulation::<Plain>::new(1, Options::default());
        let addr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        sim.add_name("a.example", &[addr]);
        let question = Query::Forward("a.example".to_owned());
        let truth = Ok(Resolution::Addresses(vec![(addr, TTL_S)]));
        assert_eq!(sim.answer(&question).0, truth);
        sim.set_resolver(Resolver::Dead);
        assert_eq!(sim.answer(&question), (Err(ResolveError::Transient), PATIENCE));
        sim.set_resolver(Resolver::Rubbish);
        for _ in 0..100 {
            match sim.answer(&question).0 {
                Ok(Resolution::Addresses(found)) => {
                    assert!(
                        found.len() == Resolution::MAX_ANSWERS && found.iter().all(|(of, _)| *of != addr)
                    );
                }
                Ok(Resolution::Name(name, _)) => assert!((1..=255).contains(&name.len())),
                Err(error) => panic!("{error:?} is no rubbish"),
            }
        }
        sim.set_resolver(Resolver::Good);
        assert_eq!(sim.answer(&question).0, truth);
    }
}
