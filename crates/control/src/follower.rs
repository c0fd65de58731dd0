//! The directory's part of a client: it follows the consensus as a relay does, and tells of the network that it lists.
//!
//! 1. What was kept of an earlier life is told at once, if it still holds.
//! 2. Once a second it asks whether a round of fetches is due, and carries out what that asks for.
//! 3. A new consensus is told as a [`Directory`], of those relays whose keys are known.

use crate::clock::Clock;
use crate::exchanges::{Exchanges, Outcome};
use core::convert::Infallible;
use heddle_client::{Candidate, Directory, Hop};
use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::client::{DirectoryClient, FetchError};
use heddle_dir::consensus::{Consensus, Relay};
use heddle_dir::files::Files;
use heddle_proto::params::NetworkParams;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

const TICK: Duration = Duration::from_secs(1);

/// The language of a [`Follower`].
#[derive(Debug)]
pub enum FollowerLanguage {}

impl Language for FollowerLanguage {
    type Control = Infallible;
    type Event = News;
    type Message = Infallible;
    type Job = Infallible;
}

/// What a follower tells.
#[derive(Clone, Debug)]
pub enum News {
    /// The network is like this from now on. The consensus holds until then, in seconds since 1970.
    Directory { directory: Arc<Directory>, listed: usize, valid_until_unix_s: u64 },
    /// A round of fetches brought nothing.
    Trouble(String),
}

/// Follows the consensus; a [`Node`].
pub struct Follower {
    client: DirectoryClient,
    exchanges: Exchanges<()>,
    clock: Clock,
    rng: Rng,
    tick_at: Instant,
    news: VecDeque<News>,
}

impl Follower {
    /// Follows the consensus of `authorities`, and keeps it in `directory`.
    pub fn new(
        files: Arc<dyn Files>,
        directory: &Path,
        authorities: Vec<DirAuthority>,
        now_unix_s: u64,
        mut rng: Rng,
    ) -> Self {
        let client = DirectoryClient::new(files, directory, authorities, now_unix_s, &mut rng);
        let mut follower = Follower {
            client,
            exchanges: Exchanges::new(),
            clock: Clock::new(now_unix_s),
            rng,
            tick_at: Instant::ZERO,
            news: VecDeque::new(),
        };
        follower.tell();
        follower
    }

    fn tell(&mut self) {
        let Some(consensus) = self.client.consensus() else { return };
        self.news.push_back(News::Directory {
            directory: Arc::new(directory(consensus)),
            listed: consensus.relays.len(),
            valid_until_unix_s: consensus.valid_until_unix_s,
        });
    }

    fn fetch(&mut self, now: Instant) {
        match self.client.poll(now, self.clock.unix_s(now), &mut self.rng) {
            Ok(Some(request)) => self.exchanges.start(now, request, ()),
            Ok(None) => {}
            Err(error) => self.trouble(&error),
        }
    }

    fn trouble(&mut self, error: &FetchError) {
        self.news.push_back(News::Trouble(error.to_string()));
    }

    fn on_outcome(&mut self, now: Instant, (_, answer): Outcome<()>) {
        let before = self.client.consensus().cloned();
        if let Some(Err(error)) = self.client.on_answer(now, self.clock.unix_s(now), answer, &mut self.rng) {
            self.trouble(&error);
        }
        if let Some(panic) = self.client.take_panic() {
            log::error!("What a directory sent could not be read, which is a fault of ours: {panic}");
        }
        if self.client.consensus() != before.as_ref() {
            self.tell();
        }
        if self.client.is_fetching() {
            self.fetch(now);
        }
    }
}

/// What a client needs to know of a consensus.
fn directory(consensus: &Consensus) -> Directory {
    Directory {
        params: Arc::new(NetworkParams(consensus.params.clone())),
        weights: consensus.bandwidth_weights.clone(),
        relays: consensus.relays.iter().filter_map(candidate).collect(),
    }
}

fn candidate(relay: &Relay) -> Option<Candidate> {
    let (target, ntor_key) = relay.hop()?;
    Some(Candidate {
        nickname: relay.nickname.clone(),
        hop: Hop { target, ntor_key },
        guard: relay.flags.guard,
        exit: relay.flags.exit && !relay.flags.bad_exit,
        bandwidth: relay.bandwidth,
        ports: if relay.flags.bad_exit { Vec::new() } else { relay.exit_ports.clone() },
        ntor_v3: supports(&relay.protocols, "Relay", 4),
        congestion_control: supports(&relay.protocols, "FlowCtrl", 2),
    })
}

/// Whether a list of subprotocols, such as `Link=4-5 Relay=2-4`, has this version (tor-spec, section 9).
fn supports(protocols: &str, name: &str, version: u32) -> bool {
    let versions =
        protocols.split_ascii_whitespace().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
    let has = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        bounds.is_some_and(|(first, last)| (first..=last).contains(&version))
    };
    versions.is_some_and(|versions| versions.split(',').any(has))
}

impl Node<FollowerLanguage> for Follower {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        self.exchanges.recv_buf()
    }

    fn handle_input(&mut self, now: Instant, input: Input<FollowerLanguage>) {
        self.clock.start(now);
        match input {
            Input::WallClock(time) => self.clock.set(now, time),
            // Not at other inputs: what has come in time may lie in sockets that are read after them.
            Input::Timeout => {
                while let Some(outcome) = self.exchanges.expire(now) {
                    self.on_outcome(now, outcome);
                }
            }
            input => {
                if let Some(outcome) = self.exchanges.handle(&input) {
                    self.on_outcome(now, outcome);
                }
            }
        }
        if self.tick_at <= now {
            self.tick_at = now + TICK;
            self.fetch(now);
        }
    }

    fn poll_output(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Output<FollowerLanguage> {
        if let Some(news) = self.news.pop_front() {
            return Output::Event(news);
        }
        if let Some(output) = self.exchanges.poll_output(buf) {
            return output;
        }
        let ends = self.exchanges.next_end().into_iter();
        Output::Timeout(Some(ends.fold(self.tick_at, Instant::min)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_their_ranges() {
        let list = "Cons=1-2 FlowCtrl=1-2 Link=4,5 Relay=2-4 LinkAuth=3";
        for (name, version, is_there) in [
            ("FlowCtrl", 2, true),
            ("FlowCtrl", 3, false),
            ("Link", 5, true),
            ("Link", 3, false),
            ("Relay", 4, true),
            ("Auth", 3, false),
            ("Conflux", 1, false),
        ] {
            assert_eq!(supports(list, name, version), is_there, "{name}={version}");
        }
        assert!(!supports("Relay=x-4 =", "Relay", 4));
    }

    #[test]
    fn a_relay_becomes_a_candidate_once_its_keys_are_known() {
        let mut relay = Relay {
            nickname: "exit".to_owned(),
            exit_ports: vec![(80, 80)],
            protocols: "Relay=2-4".to_owned(),
            bandwidth: 7,
            ..Relay::default()
        };
        relay.flags.exit = true;
        assert!(candidate(&relay).is_none());
        relay.ed25519_id = Some([1; 32]);
        relay.ntor_onion_key = Some([2; 32]);
        let found = candidate(&relay).unwrap();
        assert_eq!(
            (found.bandwidth, found.exit, found.guard, &found.ports[..]),
            (7, true, false, &[(80, 80)][..])
        );
        assert_eq!((found.ntor_v3, found.congestion_control), (true, false));
        relay.flags.bad_exit = true;
        let found = candidate(&relay).unwrap();
        assert_eq!((found.exit, &found.ports[..]), (false, &[][..]), "a bad exit is no exit");
    }
}
