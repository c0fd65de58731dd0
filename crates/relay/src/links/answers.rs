//! What circuits do to connections and how peers answer CREATE2, noted until pairs are told.

use crate::keys::LinkKey;
use heddle_proto::endpoint::ConnId;
use heddle_proto::ids::RelayIds;
use heddle_seam::time::Duration;

/// How long a peer has to answer CREATE2 before the end of the circuit, by whomever else, counts as its failure.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a CREATE2.
#[derive(Debug)]
pub(crate) struct Answer {
    pub peer: RelayIds,
    /// The flow's port and connection; none for a channel.
    pub flow: Option<(usize, ConnId)>,
    pub answered: bool,
}

/// What is noted; each input's notes are taken after it.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Connections that may have got their first flow or lost their last.
    pub touched: Vec<LinkKey>,
    pub answers: Vec<Answer>,
    /// Relays one of whose channels grew old.
    pub retired: Vec<RelayIds>,
    /// Whether there are pairs to be told.
    pub counts_answers: bool,
}
