//! An exit's name servers. Until they are known it says that it is none.

use crate::language::Wanted;
use heddle_seam::time::{Duration, Instant};

/// Between two looks at the list of name servers, while none is known.
const RELOAD_EVERY: Duration = Duration::from_secs(600);

pub struct NameServers {
    known: bool,
    /// When the list was read last.
    read_at: Option<Instant>,
}

impl NameServers {
    pub fn new(known: bool) -> Self {
        NameServers { known, read_at: None }
    }

    /// Whether names can be resolved, as far as anybody needs that.
    pub(crate) fn are_known(&self) -> bool {
        self.known
    }

    /// What to ask while they are not known. The list was read when the relay started, and SIGHUP may have had it read
    /// since.
    pub fn look(&mut self, now: Instant) -> Option<Wanted> {
        let read_at = *self.read_at.get_or_insert(now);
        let reload = now.since(read_at) >= RELOAD_EVERY;
        if reload {
            self.read_at = Some(now);
        }
        (!self.known).then_some(Wanted::NameServers { reload })
    }

    /// What came of it; true when the relay is an exit from now on.
    pub(crate) fn on_looked(&mut self, known: bool) -> bool {
        let is_news = known && !self.known;
        if is_news {
            self.known = true;
            log::info!("The name servers are known, and the relay is an exit");
        }
        is_news
    }
}
