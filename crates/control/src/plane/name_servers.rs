//! An exit's name servers. While they are not known, or lie about everything, it says that it is none.

use crate::language::Wanted;
use heddle_seam::time::{Duration, Instant};

/// Between two looks at the list of name servers, while none is known.
const RELOAD_EVERY: Duration = Duration::from_secs(600);
/// Between two questions whether they still answer.
const ASK_EVERY: Duration = Duration::from_secs(60);

pub struct NameServers {
    known: bool,
    /// When the list was read last.
    read_at: Option<Instant>,
    /// When it was asked last whether they are known.
    asked_at: Option<Instant>,
}

impl NameServers {
    pub fn new(known: bool) -> Self {
        NameServers { known, read_at: None, asked_at: None }
    }

    /// Whether names can be resolved, as far as anybody needs that.
    pub(crate) fn are_known(&self) -> bool {
        self.known
    }

    /// What to ask: each time while they are not known, because SIGHUP may have had the list read since, and once in a
    /// while when they are.
    pub fn look(&mut self, now: Instant) -> Option<Wanted> {
        let read_at = *self.read_at.get_or_insert(now);
        let asked_at = *self.asked_at.get_or_insert(now);
        if self.known && now.since(asked_at) < ASK_EVERY {
            return None;
        }
        self.asked_at = Some(now);
        let reload = !self.known && now.since(read_at) >= RELOAD_EVERY;
        if self.known || reload {
            self.read_at = Some(now);
        }
        Some(Wanted::NameServers { reload })
    }

    /// What came of it; true when the relay is an exit from now on, or is none any more.
    pub(crate) fn on_looked(&mut self, known: bool) -> bool {
        let is_news = known != self.known;
        self.known = known;
        match (is_news, known) {
            (true, true) => log::info!("The name servers are known, and the relay is an exit"),
            (true, false) => log::warn!(
                "No name can be resolved for clients, so the relay is no exit until that is mended"
            ),
            (false, _) => {}
        }
        is_news
    }
}
