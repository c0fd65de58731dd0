//! What a relay may hold, and how its shards divide it.

use heddle_relay::Limits;
use heddle_torrc::Options;

/// `MaxMemInQueues`, or what stock Tor takes without it: three quarters of the machine's memory where that is less than
/// 8 GiB, else two fifths, because a second relay is to have room there; 256 MiB at least, and 8 GiB at most. Where
/// the memory is not known it is the least.
pub fn queue_bytes_max(options: &Options, memory_bytes: Option<u64>) -> usize {
    const MIN: u64 = 256 << 20;
    const MAX: u64 = 8 << 30;
    const LARGE_MEMORY: u64 = 8 << 30;
    let part = |total: u64| if total < LARGE_MEMORY { total / 4 * 3 } else { total / 5 * 2 };
    let bytes = match options.max_mem_in_queues {
        0 => memory_bytes.map_or(MIN, |total| part(total).clamp(MIN, MAX)),
        chosen => chosen,
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// What one shard of so many may hold of `limits`, where the process may have `sockets_max` descriptors for it; with
/// `None` there is no limit. Questions are the whole relay's, and each shard has an even part of them. Of descriptors
/// channels have six sixteenths and streams as many; a relay that is no exit has no streams and asks nothing, so their
/// parts and the resolver's are its channels'.
pub fn shard_limits(limits: &Limits, sockets_max: Option<u64>, shards: u16, is_exit: bool) -> Limits {
    let shards = usize::from(shards);
    let limits = Limits { questions: limits.questions / shards, ..limits.clone() };
    let Some(sockets_max) = sockets_max else { return limits };
    let part = sixteenth(sockets_max) / shards;
    let channels_parts = if is_exit { 6 } else { 13 };
    Limits {
        channels: limits.channels.min(part.saturating_mul(channels_parts)),
        streams: limits.streams.min(part.saturating_mul(6)),
        ..limits
    }
}

/// A sixteenth of the descriptors.
pub fn sixteenth(sockets_max: u64) -> usize {
    usize::try_from(sockets_max / 16).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_alone_are_divided_where_there_are_plenty_of_descriptors() {
        let limits = Limits { questions: 2048, ..Limits::default() };
        let divided = Limits { questions: 512, ..limits.clone() };
        assert_eq!(shard_limits(&limits, Some(1 << 20), 4, true), divided);
        assert_eq!(shard_limits(&limits, None, 4, true), divided);
    }

    #[test]
    fn memory_is_what_was_chosen_or_the_part_that_stock_tor_takes() {
        let mut options = Options::default();
        let gib = |number: u64| Some(number << 30);
        let found = [None, gib(0), gib(4), gib(10), gib(100)].map(|memory| queue_bytes_max(&options, memory));
        assert_eq!(found, [256 << 20, 256 << 20, 3 << 30, 4 << 30, 8 << 30]);
        let around = [(8 << 30) - 4, 8 << 30].map(|memory| queue_bytes_max(&options, Some(memory)));
        assert_eq!(around, [(6 << 30) - 3, (8 << 30) / 5 * 2]);
        options.max_mem_in_queues = 70 << 20;
        assert_eq!(queue_bytes_max(&options, gib(5)), 70 << 20);
    }
}
