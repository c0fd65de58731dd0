//! What a transport is to those who know none by name: what it is called, which number offers give it, and what its
//! lanes share.

/// A transport, as an endpoint or a maker of channels says it of itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Transport {
    /// Its name in torrc, plans and metrics.
    pub name: &'static str,
    /// Its number in offers.
    pub id: TransportId,
    /// What one circuit's trouble does to the others.
    pub isolation: Isolation,
}

/// A transport's number in offers and in what is derived from them. Those from 128 on are for experiments; nobody gives
/// them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(pub u8);

impl TransportId {
    /// Stock Tor's channel, which no offer names, because it is always there.
    pub const TLS: TransportId = TransportId(0);
}

/// What one circuit's trouble can do to the others on the same channel or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// What a lost packet holds back.
    pub ordering: Scope,
    /// What shares one congestion window.
    pub congestion: Scope,
    /// What a reader that stops holds back. A flow that holds back its own circuit alone may be left unread while its
    /// cells wait; others are read whatever waits, and windows bound their queues.
    pub backpressure: Scope,
}

/// How far an effect reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Circuit,
    Channel,
}
