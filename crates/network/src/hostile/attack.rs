//! What a hostile client does.

use heddle_seam::rng::Rng;

/// Bytes that a handshake takes from the client's side, and some more: it may break off at any of them.
const HANDSHAKE_BYTES: u64 = 2_500;

/// What a hostile client does on a channel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Random bytes instead of TLS.
    Noise,
    /// A TLS connection that breaks off after so many bytes, at which a FIN is sent.
    BreakOff(usize),
    /// TLS, then random cells with random ids.
    RandomCells,
    /// TLS, then whole circuits that are sent random relay cells.
    RandomCircuits,
    /// TLS, then circuit after circuit, without ever reading an answer.
    NeverReads,
    /// CREATE2 with onionskins that are none, answers that nobody asked for, and relay cells on circuits that are half
    /// open.
    GarbageCreates,
    /// Relay cells and DESTROY under ids that other channels' circuits have.
    ForeignIds,
    /// A SENDME for the circuit when it is due, with a digest of its own making.
    WrongSendme,
    /// A SENDME for the circuit that is right, twice.
    SendmeTwice,
    /// SENDMEs of a stream for data that was never sent.
    StreamSendme,
    /// Far more DATA than the stream's window takes.
    DataBeyondWindow,
    /// More RELAY_EARLY than a circuit may have.
    TooManyEarly,
    /// A cell that the exit has had.
    Replay,
    BeginFlood,
    ResolveFlood,
    /// Streams whose servers send much, none of which is read.
    NeverReadsData,
    /// EXTEND2 from a relay to itself.
    ExtendToSelf,
    /// EXTEND2 to where a relay is, with identities that nobody has.
    ExtendToNobody,
    /// EXTEND2 to a relay's identities where nobody is.
    ExtendElsewhere,
    /// EXTEND2 that is cut short.
    ExtendCut,
}

impl Attack {
    /// One of each kind.
    pub fn all(rng: &mut Rng) -> Vec<Attack> {
        vec![
            Attack::Noise,
            Attack::BreakOff(1 + rng.below(HANDSHAKE_BYTES) as usize),
            Attack::RandomCells,
            Attack::RandomCircuits,
            Attack::NeverReads,
            Attack::GarbageCreates,
            Attack::ForeignIds,
            Attack::WrongSendme,
            Attack::SendmeTwice,
            Attack::StreamSendme,
            Attack::DataBeyondWindow,
            Attack::TooManyEarly,
            Attack::Replay,
            Attack::BeginFlood,
            Attack::ResolveFlood,
            Attack::NeverReadsData,
            Attack::ExtendToSelf,
            Attack::ExtendToNobody,
            Attack::ExtendElsewhere,
            Attack::ExtendCut,
        ]
    }

    /// For counts of what was done.
    pub fn name(self) -> &'static str {
        match self {
            Attack::Noise => "noise instead of TLS",
            Attack::BreakOff(_) => "handshakes broken off",
            Attack::RandomCells => "random cells",
            Attack::RandomCircuits => "random relay cells",
            Attack::NeverReads => "circuits whose answers nobody reads",
            Attack::GarbageCreates => "CREATE2 with garbage",
            Attack::ForeignIds => "cells for circuits of others",
            Attack::WrongSendme => "SENDMEs that prove nothing",
            Attack::SendmeTwice => "SENDMEs said twice",
            Attack::StreamSendme => "streams' SENDMEs for nothing",
            Attack::DataBeyondWindow => "DATA beyond windows",
            Attack::TooManyEarly => "too many RELAY_EARLY",
            Attack::Replay => "cells replayed",
            Attack::BeginFlood => "floods of BEGIN",
            Attack::ResolveFlood => "floods of RESOLVE",
            Attack::NeverReadsData => "streams that nobody reads",
            Attack::ExtendToSelf => "EXTEND2 to the relay itself",
            Attack::ExtendToNobody => "EXTEND2 to nobody",
            Attack::ExtendElsewhere => "EXTEND2 to where nobody is",
            Attack::ExtendCut => "EXTEND2 cut short",
        }
    }

    /// How many hops it has joined before it breaks a rule on a circuit; `None` if it does not want one.
    pub(super) fn hops(self) -> Option<usize> {
        match self {
            Attack::Noise
            | Attack::BreakOff(_)
            | Attack::RandomCells
            | Attack::RandomCircuits
            | Attack::NeverReads
            | Attack::GarbageCreates
            | Attack::ForeignIds => None,
            Attack::ExtendToSelf | Attack::ExtendToNobody | Attack::ExtendElsewhere | Attack::ExtendCut => {
                Some(1)
            }
            Attack::WrongSendme
            | Attack::SendmeTwice
            | Attack::StreamSendme
            | Attack::DataBeyondWindow
            | Attack::TooManyEarly
            | Attack::Replay
            | Attack::BeginFlood
            | Attack::ResolveFlood
            | Attack::NeverReadsData => Some(2),
        }
    }

    /// Whether a relay ends the circuit on which it is done, as soon as it sees it.
    pub fn ends_its_circuit(self) -> bool {
        match self {
            Attack::WrongSendme
            | Attack::SendmeTwice
            | Attack::StreamSendme
            | Attack::DataBeyondWindow
            | Attack::TooManyEarly
            | Attack::Replay
            | Attack::ExtendToSelf
            | Attack::ExtendCut => true,
            Attack::Noise
            | Attack::BreakOff(_)
            | Attack::RandomCells
            | Attack::RandomCircuits
            | Attack::NeverReads
            | Attack::GarbageCreates
            | Attack::ForeignIds
            | Attack::BeginFlood
            | Attack::ResolveFlood
            | Attack::NeverReadsData
            | Attack::ExtendToNobody
            | Attack::ExtendElsewhere => false,
        }
    }
}
