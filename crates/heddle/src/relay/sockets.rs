//! How the process's descriptors are divided, so that no stranger uses up those of another purpose.
//!
//! ```text
//! limit = an eighth for listeners, files, directories and endpoints
//!       + three eighths for channels
//!       + three eighths for streams
//!       + an eighth for the resolver, which opens up to two sockets for a question
//! ```
//!
//! A relay that is no exit has no streams and asks nothing: their parts are its channels'.

use heddle_proto::relay::Limits;

/// What a shard of so many may hold where the process may have `sockets_max` descriptors. With `None` there is no limit.
pub(super) fn fit(limits: &Limits, sockets_max: Option<u64>, shards: u16, is_exit: bool) -> Limits {
    let Some(sockets_max) = sockets_max else { return limits.clone() };
    let eighth = usize::try_from(sockets_max / 8).unwrap_or(usize::MAX) / usize::from(shards);
    let channels_part = if is_exit { 3 } else { 7 };
    Limits {
        channels: limits.channels.min(eighth.saturating_mul(channels_part)),
        streams: limits.streams.min(eighth.saturating_mul(3)),
        questions: limits.questions.min(eighth / 2),
        ..limits.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shards_together_leave_an_eighth() {
        for sockets_max in [1024, 4096, 65_536, 1 << 20] {
            for (shards, is_exit) in [(1, true), (4, true), (16, true), (3, false)] {
                let limits = fit(&Limits::default(), Some(sockets_max), shards, is_exit);
                let of_exits = if is_exit { limits.streams + 2 * limits.questions } else { 0 };
                let held = usize::from(shards) * (limits.channels + of_exits);
                assert!(held as u64 <= sockets_max - sockets_max / 8, "{sockets_max}: {limits:?}");
                assert!(limits.channels >= 24 && limits.streams >= 24, "{sockets_max}: {limits:?}");
            }
        }
    }

    #[test]
    fn where_there_are_plenty_limits_are_as_they_are() {
        let limits = Limits { questions: 2048, ..Limits::default() };
        assert_eq!(fit(&limits, Some(1 << 20), 4, true), limits);
        assert_eq!(fit(&limits, None, 16, true), limits);
    }
}
