//! What workers do for channels, and what came of it.

use crate::job::JobResult;
use crate::keys::LinkKey;
use crate::shard::Relay;
use heddle_proto::channel::Done;
use heddle_seam::node::JobId;
use heddle_seam::time::Instant;

impl Relay {
    /// Hands on what a channel wants done, after bytes or a time came.
    pub(crate) fn start_work(&mut self, link: LinkKey) {
        let work = self.carriers.get_mut(link).and_then(|carrier| carrier.channel.poll_work());
        if let Some(work) = work {
            self.core.begin_work(link, work);
        }
    }

    /// A worker is done.
    pub(crate) fn on_computed(&mut self, now: Instant, id: JobId, result: JobResult) {
        match result {
            JobResult::Onionskin(result) => self.core.on_answered(id, result),
            JobResult::Channel(done) => {
                if let Some(link) = self.core.finish_work(id) {
                    self.on_work_done(now, link, done);
                }
            }
        }
    }

    fn on_work_done(&mut self, now: Instant, link: LinkKey, done: Done) {
        // The channel may have ended meanwhile.
        let Some(carrier) = self.carriers.get_mut(link) else { return };
        match carrier.channel.handle_work(now, done) {
            Ok(()) => {
                self.drain_channel(now, link);
                self.start_work(link);
            }
            Err(error) => self.end_channel(now, link, error),
        }
    }
}
