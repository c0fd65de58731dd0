//! Why a handshake of a circuit comes to nothing, at either end.

/// Why an onionskin is not answered. The client is at fault, or its directory is out of date; the
/// circuit dies (DESTROY with reason PROTOCOL), the channel lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnionskinError {
    /// A handshake type that we do not speak.
    Type(u16),
    /// Too short or too long for its type.
    Length,
    /// Meant for another relay, or for an onion key that we no longer hold.
    UnknownKey,
    /// An X25519 key of small order.
    WeakPoint,
    /// The message inside is not authentic.
    Authentication,
    /// The message inside is not a well-formed list of extensions.
    Extensions,
    /// The client insists on a subprotocol capability that we do not have.
    Subprotocol,
}

impl core::fmt::Display for OnionskinError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = match self {
            OnionskinError::Type(htype) => return write!(f, "unsupported handshake type {htype}"),
            OnionskinError::Length => "onionskin of a wrong length",
            OnionskinError::UnknownKey => "onionskin for a key that we do not hold",
            OnionskinError::WeakPoint => "onionskin with a key of small order",
            OnionskinError::Authentication => "onionskin that is not authentic",
            OnionskinError::Extensions => "onionskin with malformed extensions",
            OnionskinError::Subprotocol => "onionskin that requests an unsupported subprotocol",
        };
        f.write_str(text)
    }
}

impl core::error::Error for OnionskinError {}

/// Why a relay's reply is not accepted; the circuit dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// Too short or too long for its type.
    Length,
    /// An X25519 key of small order, or an onion key that is one.
    WeakPoint,
    /// The reply is not authentic: the peer is not the relay we meant.
    Authentication,
    /// The message inside is malformed, or answers what we did not ask.
    Extensions,
}

impl core::fmt::Display for ReplyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            ReplyError::Length => "reply of a wrong length",
            ReplyError::WeakPoint => "key of small order",
            ReplyError::Authentication => "reply that is not authentic",
            ReplyError::Extensions => "reply with wrong extensions",
        })
    }
}

impl core::error::Error for ReplyError {}
