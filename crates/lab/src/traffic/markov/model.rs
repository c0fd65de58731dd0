//! A model file, and the scripts that follow from it.
//!
//! The file is JSON with the chains `stream_model` and `packet_model` and, optionally, `flow_model`
//! (or `flow_model_example`). Each has `transitions`: from state to state to weight, beginning in
//! `start`; and `emissions`: from state to symbol (`+`, `-` or `F`) to a weight `w` and the
//! `distribution` of the delay in microseconds that follows. They are the models of TGen
//! (doc/TGen-Markov-Models.md there), whose parameters keep their names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use heddle_netem::Rng;
use serde::Deserialize;

use super::chain::{Chain, ChainText, Emission, Walk};
use crate::error::{Error, Result};
use crate::traffic::script::Burst;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Payload of a packet of the model, as in TGen.
pub(super) const PACKET_BYTES: u32 = 1434;
/// Delays up to this many microseconds are not waited for, as in TGen.
const AT_ONCE_US: u32 = 10_000;
/// The longest pause of a script, which adds delays up, in microseconds: an hour.
const PAUSE_MAX_US: u32 = 3_600_000_000;

/// How often flows begin, which streams a flow has, and which packets a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkovModel {
    flows: Option<Chain>,
    streams: Chain,
    packets: Chain,
}

/// Other members, such as where the models come from, are not looked at.
#[derive(Deserialize)]
struct FileText {
    #[serde(alias = "flow_model_example")]
    flow_model: Option<ChainText>,
    stream_model: ChainText,
    packet_model: ChainText,
}

/// The packets of one stream, as both sides send them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// What the client sends.
    pub up: Vec<Burst>,
    /// What the server sends.
    pub down: Vec<Burst>,
    /// Whether the walk was longer than allowed and was cut.
    pub cut: bool,
}

impl MarkovModel {
    /// Reads a model file, or fails with a sentence that says what is wrong and where.
    pub fn read(path: &Path) -> Result<MarkovModel> {
        let doing = || format!("reading {}", path.display());
        let file = File::open(path).map_err(Error::io(doing()))?;
        let mut json = String::new();
        let len = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut json).map_err(Error::io(doing()))?;
        let wrong = |what: String| Error::Options(format!("{} is no Markov model: {what}", path.display()));
        if len as u64 > FILE_BYTES_MAX {
            return Err(wrong(format!("it is larger than {FILE_BYTES_MAX} bytes")));
        }
        MarkovModel::parse(&json).map_err(wrong)
    }

    /// Reads a model from JSON, or says in one sentence what is wrong with it.
    pub fn parse(json: &str) -> std::result::Result<MarkovModel, String> {
        let text: FileText = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let chain =
            |name: &str, text: &ChainText| Chain::parse(text).map_err(|wrong| format!("in {name}, {wrong}"));
        Ok(MarkovModel {
            flows: text.flow_model.map(|text| chain("flow_model", &text)).transpose()?,
            streams: chain("stream_model", &text.stream_model)?,
            packets: chain("packet_model", &text.packet_model)?,
        })
    }

    /// Whether the file says how often flows begin.
    pub fn has_flows(&self) -> bool {
        self.flows.is_some()
    }

    /// The flows of a client: each item is the delay from one flow to the next in microseconds.
    pub(super) fn flows(&self, rng: Rng) -> Option<Walk<'_>> {
        self.flows.as_ref().map(|chain| chain.walk(rng))
    }

    /// The streams of a flow: each item is the delay from one stream to the next.
    pub(super) fn streams(&self, rng: Rng) -> Walk<'_> {
        self.streams.walk(rng)
    }

    /// The packets of a stream, at most `packets_max` in both directions together.
    ///
    /// As in TGen, a delay follows a packet, each side adds up the delays since its own last packet,
    /// and packets with no more than 10 ms between them leave at once.
    pub fn script(&self, rng: Rng, packets_max: usize) -> Script {
        let mut walk = self.packets.walk(rng);
        let (mut up, mut down) = (Side::default(), Side::default());
        for (emission, delay_us) in walk.by_ref().take(packets_max) {
            match emission {
                Emission::ToServer => up.send(delay_us, &mut down),
                _ => down.send(delay_us, &mut up),
            }
        }
        Script { up: up.bursts, down: down.bursts, cut: walk.next().is_some() }
    }
}

impl Script {
    /// Payload from client to server, in bytes.
    pub(crate) fn up_bytes(&self) -> u64 {
        self.up.iter().map(|burst| u64::from(burst.bytes)).sum()
    }

    /// Payload from server to client, in bytes.
    pub(crate) fn down_bytes(&self) -> u64 {
        self.down.iter().map(|burst| u64::from(burst.bytes)).sum()
    }
}

/// One side of a stream while its script is made.
#[derive(Default)]
struct Side {
    bursts: Vec<Burst>,
    /// Delays since its own last packet.
    waited_us: u32,
}

impl Side {
    /// Adds a packet of this side; the delay after it counts for both.
    fn send(&mut self, delay_us: u32, other: &mut Side) {
        match self.bursts.last_mut() {
            Some(last) if self.waited_us <= AT_ONCE_US => last.bytes += PACKET_BYTES,
            _ => {
                let pause_us = if self.waited_us > AT_ONCE_US { self.waited_us } else { 0 };
                self.bursts.push(Burst { pause_us, bytes: PACKET_BYTES });
            }
        }
        self.waited_us = delay_us;
        other.waited_us = other.waited_us.saturating_add(delay_us).min(PAUSE_MAX_US);
    }
}

#[cfg(test)]
mod tests;
