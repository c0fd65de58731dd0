//! Work that waits for others, minutes perhaps, on a thread of its own.

use crate::relay::outcome;
use std::io;
use std::sync::mpsc::{self, Receiver, TryRecvError};

/// Work under way. One that is dropped goes on, and nobody hears what it came to.
pub(super) struct Background<T> {
    done: Receiver<Result<T, String>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts `work` on a thread with the name `thread`. An error is the system's, which has no more threads.
    pub fn start(thread: &'static str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (sender, done) = mpsc::sync_channel(1);
        std::thread::Builder::new().name(thread.into()).spawn(move || {
            // Nobody may wait for it any more.
            let _ = sender.send(outcome(thread, work));
        })?;
        Ok(Background { done })
    }

    /// What it came to, once; `None` while it is under way. An error says that it panicked.
    pub fn poll(&self) -> Option<Result<T, String>> {
        match self.done.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("a thread ended without a word".to_owned())),
        }
    }
}
