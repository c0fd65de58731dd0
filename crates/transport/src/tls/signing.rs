//! A responder's answer to a ClientHello, made by a worker.
//!
//! rustls signs within the call that reads the end of a ClientHello and offers no other way, so the whole session goes
//! to the worker with that record, and comes back answered. Meanwhile nothing can be asked of it, and the peer has
//! nothing to say.

use super::plaintext::Plaintext;
use heddle_proto::channel::{ChannelError, Done, Work};
use rustls::Connection;

/// What a worker gets.
pub(super) struct Signing {
    pub connection: Connection,
    /// At most one record.
    pub record: Vec<u8>,
}

/// What comes of it.
pub(super) struct Signed {
    pub connection: Connection,
    pub read: Result<Plaintext, ChannelError>,
}

impl Signing {
    pub(super) fn into_work(self) -> Work {
        Box::new(move || -> Done { Box::new(self.sign()) })
    }

    fn sign(self) -> Signed {
        let Signing { mut connection, record } = self;
        let mut plaintext = Plaintext::default();
        let read = plaintext.read(&mut connection, &record).map(|_| plaintext);
        Signed { connection, read }
    }
}
