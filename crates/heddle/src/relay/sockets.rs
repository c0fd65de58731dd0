//! How the process's descriptors are divided, so that no stranger uses up those of another purpose.
//!
//! What circuits over tcp-esp may have comes first: a quarter, unless the operator says how many, where the relay
//! speaks it. The rest is divided in sixteenths:
//!
//! ```text
//! limit = an eighth for listeners, files, directories and endpoints, an eighth of which is for accepted connections on
//!         their way to another shard
//!       + three eighths for channels
//!       + three eighths for streams
//!       + a sixteenth for closed sockets that still send
//!       + a sixteenth for the resolver, which opens up to eight sockets for a question
//! ```
//!
//! A relay that is no exit has no streams and asks nothing: their parts are its channels'. What of this a shard has is
//! the [assembly](heddle_assembly)'s to say.

use heddle_assembly::sixteenth;
use heddle_net::SOCKETS_PER_QUESTION;
use heddle_seam::node::RESOLVER_PLACES;

/// Without a limit of descriptors: as many flows as a relay may have circuits over one channel.
const STACK_SOCKETS: u64 = 65_536;

/// Sockets that circuits over tcp-esp may have, of all shards, with those that are made in advance. What the operator
/// chose holds up to half of all descriptors, so that others are left for everything else.
pub(super) fn on_stacks(chosen: Option<u32>, sockets_max: Option<u64>) -> u64 {
    match (chosen, sockets_max) {
        (Some(chosen), Some(sockets_max)) => u64::from(chosen).min(sockets_max / 2),
        (Some(chosen), None) => chosen.into(),
        (None, Some(sockets_max)) => sockets_max / 4,
        (None, None) => STACK_SOCKETS,
    }
}

/// Questions that the resolver may work on at once, of all shards.
pub(super) fn questions(sockets_max: Option<u64>) -> usize {
    let fits = |sockets_max| RESOLVER_PLACES.min(sixteenth(sockets_max) / SOCKETS_PER_QUESTION);
    sockets_max.map_or(RESOLVER_PLACES, fits)
}

/// Closed sockets that may still send, of each of so many shards that would bear `most`.
pub(super) fn closing(most: usize, sockets_max: Option<u64>, shards: u16) -> usize {
    sockets_max.map_or(most, |sockets_max| most.min(sixteenth(sockets_max) / usize::from(shards)))
}

/// Accepted connections that may be on their way to each of so many shards that would bear `most`. There must be one,
/// or the shard that accepts would have them all.
pub(super) fn handed(most: usize, sockets_max: Option<u64>, shards: u16) -> usize {
    sockets_max.map_or(most, |sockets_max| most.min(sixteenth(sockets_max) / 4 / usize::from(shards)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_assembly::shard_limits;
    use heddle_relay::Limits;

    #[test]
    fn all_shards_together_leave_an_eighth() {
        for sockets_max in [64, 1024, 4096, 65_536, 1 << 20] {
            for (shards, is_exit) in [(1, true), (4, true), (16, true), (3, false)] {
                let whole = Limits { questions: questions(Some(sockets_max)), ..Limits::default() };
                let limits = shard_limits(&whole, Some(sockets_max), shards, is_exit);
                let closing = closing(1024, Some(sockets_max), shards);
                let of_shard = limits.channels + closing + if is_exit { limits.streams } else { 0 };
                let of_resolver =
                    if is_exit { SOCKETS_PER_QUESTION * questions(Some(sockets_max)) } else { 0 };
                let held = usize::from(shards) * of_shard + of_resolver;
                assert!(held as u64 <= sockets_max - sockets_max / 8, "{sockets_max}: {limits:?}");
                let asked = usize::from(shards) * limits.questions;
                assert!(asked <= questions(Some(sockets_max)), "{sockets_max}: {limits:?}");
                if sockets_max >= 1024 {
                    assert!(limits.channels >= 24 && limits.streams >= 24, "{sockets_max}: {limits:?}");
                    let handed = usize::from(shards) * handed(1024, Some(sockets_max), shards);
                    assert!(handed as u64 <= sockets_max / 64, "{sockets_max}: {handed}");
                    assert!(closing >= 4 && questions(Some(sockets_max)) >= 8, "{sockets_max}");
                }
            }
        }
    }

    #[test]
    fn flows_with_sockets_have_a_quarter_or_what_was_chosen_up_to_half() {
        assert_eq!([on_stacks(None, Some(4096)), on_stacks(None, None)], [1024, STACK_SOCKETS]);
        assert_eq!([100, 5000].map(|chosen| on_stacks(Some(chosen), Some(4096))), [100, 2048]);
        assert_eq!(on_stacks(Some(100_000), None), 100_000);
    }

    #[test]
    fn where_there_are_plenty_limits_are_as_they_are() {
        assert_eq!(questions(None), RESOLVER_PLACES);
        assert_eq!([closing(1024, Some(1 << 20), 4), closing(1024, None, 16)], [1024, 1024]);
    }
}
