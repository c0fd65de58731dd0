//! How other threads reach a loop.

use crate::counters::Counters;
use heddle_seam::language::{Job, Language};
use heddle_seam::node::{Input, JobId, Resolution, ResolveError, ResolveId, ShardId};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Controls that may wait for a loop at once; more are not taken.
pub(crate) const CONTROLS_MAX: usize = 256;

/// Reaches a running [`EventLoop`](crate::EventLoop) from any thread.
pub struct LoopHandle<L: Language> {
    mailbox: Arc<Mailbox<L>>,
}

impl<L: Language> Clone for LoopHandle<L> {
    fn clone(&self) -> Self {
        LoopHandle { mailbox: self.mailbox.clone() }
    }
}

/// Whoever asks the resolver.
pub(crate) trait Asker: Send {
    fn resolved(&self, id: ResolveId, answer: Result<Resolution, ResolveError>);
}

impl<L: Language> Asker for LoopHandle<L> {
    fn resolved(&self, id: ResolveId, answer: Result<Resolution, ResolveError>) {
        self.post(self.mail(), Input::Resolved { id, answer });
    }
}

/// A connection that another loop accepted.
pub(crate) struct Handed {
    pub fd: OwnedFd,
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

struct Mailbox<L: Language> {
    mail: Mutex<Mail<L>>,
    counters: Mutex<Counters>,
    /// An `eventfd` that the loop watches edge-triggered, so nobody ever needs to read it.
    wake: OwnedFd,
}

/// What waits for a loop. Its inputs are bounded by those who send: controls by [`CONTROLS_MAX`] and the few that must
/// be heard, answers by the questions that the node has under way, messages of shards by their credits.
pub(crate) struct Mail<L: Language> {
    pub inputs: VecDeque<Input<L>>,
    pub handed: VecDeque<Handed>,
    handed_max: usize,
    controls: usize,
    shard_messages: usize,
    shard_messages_max: usize,
    pub stop: bool,
    pub close_listeners: bool,
    pub fault: Option<&'static str>,
    closed: bool,
}

/// Why a loop did not take a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// [`CONTROLS_MAX`] are waiting already.
    Full,
    /// The loop has ended.
    Stopped,
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotTaken::Full => "the loop has too many controls waiting",
            NotTaken::Stopped => "the loop has ended",
        })
    }
}

impl std::error::Error for NotTaken {}

impl<L: Language> Default for Mail<L> {
    fn default() -> Self {
        Mail {
            inputs: VecDeque::new(),
            handed: VecDeque::new(),
            handed_max: 0,
            controls: 0,
            shard_messages: 0,
            shard_messages_max: 0,
            stop: false,
            close_listeners: false,
            fault: None,
            closed: false,
        }
    }
}

impl<L: Language> Mail<L> {
    fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.handed.is_empty()
    }
}

impl<L: Language> LoopHandle<L> {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let mailbox = Mailbox { mail: Mutex::default(), counters: Mutex::default(), wake };
        Ok(LoopHandle { mailbox: Arc::new(mailbox) })
    }

    /// Tells loops apart, as long as they live.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.mailbox).addr()
    }

    /// Hands the node an [`Input::Control`].
    pub fn control(&self, control: L::Control) -> Result<(), NotTaken> {
        let mut mail = self.mail();
        if mail.closed {
            return Err(NotTaken::Stopped);
        }
        if mail.controls == CONTROLS_MAX {
            return Err(NotTaken::Full);
        }
        mail.controls += 1;
        self.post(mail, Input::Control(control));
        Ok(())
    }

    /// Hands the node an [`Input::Control`], however many wait: for what is said once or twice in a program's life and
    /// must not be lost.
    pub fn must_hear(&self, control: L::Control) {
        self.post(self.mail(), Input::Control(control));
    }

    /// Ends the loop: the node is not called again, and what is pending on closed sockets is sent
    /// as far as [`Options::close_flush_max`](crate::Options::close_flush_max) allows.
    pub fn stop(&self) {
        self.mail().stop = true;
        self.wake();
    }

    /// Closes the listeners, so that the ports are free for a successor; connections live on.
    pub fn close_listeners(&self) {
        self.mail().close_listeners = true;
        self.wake();
    }

    /// What the loop did, as of the end of its last turn.
    pub fn counters(&self) -> Counters {
        *lock(&self.mailbox.counters)
    }

    /// Hands over another shard's message.
    ///
    /// # Panics
    ///
    /// When more wait than the credits between the shards allow: one of them broke its promise, and
    /// a queue without bound would only hide it.
    pub(crate) fn shard_message(&self, from: ShardId, message: L::Message) {
        let mut mail = self.mail();
        if mail.closed {
            return;
        }
        mail.shard_messages += 1;
        assert!(mail.shard_messages <= mail.shard_messages_max, "shard {from:?} sent more than its credits");
        self.post(mail, Input::FromShard { from, message });
    }

    /// Hands over a connection, or gives it back when the loop has enough of them or has ended.
    pub(crate) fn hand_over(&self, handed: Handed) -> Result<(), Handed> {
        let mut mail = self.mail();
        if mail.closed || mail.handed.len() >= mail.handed_max {
            return Err(handed);
        }
        let is_first = mail.is_empty();
        mail.handed.push_back(handed);
        drop(mail);
        if is_first {
            self.wake();
        }
        Ok(())
    }

    /// So many connections may wait for this loop that it did not accept itself.
    pub(crate) fn allow_handed(&self, max: usize) {
        self.mail().handed_max = max;
    }

    pub(crate) fn allow_shard_messages(&self, max: usize) {
        self.mail().shard_messages_max = max;
    }

    pub(crate) fn computed(&self, id: JobId, result: <L::Job as Job>::Result) {
        self.post(self.mail(), Input::Computed { id, result });
    }

    /// Ends the loop with an error: a thread that it relies on is gone.
    pub(crate) fn fault(&self, what: &'static str) {
        self.mail().fault = Some(what);
        self.wake();
    }

    /// Takes all that waits.
    pub(crate) fn take(&self) -> Mail<L> {
        let mut mail = self.mail();
        let Mail { handed_max, shard_messages_max, .. } = *mail;
        std::mem::replace(&mut *mail, Mail { handed_max, shard_messages_max, ..Mail::default() })
    }

    /// Takes nothing more, because the loop has ended.
    pub(crate) fn close(&self) {
        *self.mail() = Mail { closed: true, ..Mail::default() };
    }

    pub(crate) fn publish(&self, counters: &Counters) {
        *lock(&self.mailbox.counters) = *counters;
    }

    pub(crate) fn wake_fd(&self) -> &OwnedFd {
        &self.mailbox.wake
    }

    /// Only the first mail since the loop last looked needs to wake it.
    fn post(&self, mut mail: MutexGuard<'_, Mail<L>>, input: Input<L>) {
        if mail.closed {
            return;
        }
        let is_first = mail.is_empty();
        mail.inputs.push_back(input);
        drop(mail);
        if is_first {
            self.wake();
        }
    }

    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        while let Err(error) = rustix::io::write(&self.mailbox.wake, &one) {
            match error {
                Errno::INTR => {}
                // The count of wakes is about to overflow, after 2^64 of them.
                Errno::AGAIN => drop(rustix::io::read(&self.mailbox.wake, &mut [0; 8])),
                _ => return,
            }
        }
    }

    fn mail(&self) -> MutexGuard<'_, Mail<L>> {
        lock(&self.mailbox.mail)
    }
}

/// What a mutex here guards is valid after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::language::Plain;

    #[test]
    fn controls_are_bounded() {
        let handle = LoopHandle::<Plain>::new().unwrap();
        for _ in 0..CONTROLS_MAX {
            handle.control(()).unwrap();
        }
        assert_eq!(handle.control(()), Err(NotTaken::Full));
        handle.must_hear(());
        assert_eq!(handle.take().inputs.len(), CONTROLS_MAX + 1);
        handle.control(()).unwrap();
        handle.close();
        assert_eq!(handle.control(()), Err(NotTaken::Stopped));
        assert!(handle.take().inputs.is_empty());
    }
}
