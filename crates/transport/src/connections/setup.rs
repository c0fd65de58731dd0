//! How an endpoint is set up, whichever transport it is of, and why it cannot be.

use crate::Ciphers;
use crate::connections::silence::{DEAD_MIN, SUSPECT_MIN};
use core::fmt;
use heddle_proto::endpoint::Endpoint;
use heddle_proto::transport::Transport;
use heddle_seam::node::{StackId, StackOptions};
use heddle_seam::rng::Seed;
use heddle_seam::stopwatch::Stopwatch;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// A transport over datagrams as whoever assembles a relay needs it. Each is a line of the [registry](crate::registry).
#[derive(Debug)]
pub struct Registered {
    pub transport: &'static Transport,
    /// In one sentence, for people who choose.
    pub summary: &'static str,
    /// Why it is refused outside networks for tests, if it is.
    pub testing_only: Option<&'static str>,
    /// Options of its own, if it has any.
    pub options: &'static [TransportOption],
    /// The stack that the driver has to open beside the port, if the endpoint wants one.
    pub stack: Option<StackOptions>,
    /// Makes the endpoint of one UDP port.
    pub endpoint: fn(&EndpointSetup<'_>) -> Result<Box<dyn Endpoint>, SetupError>,
}

/// Two are the same if their transports are.
impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.transport == other.transport
    }
}

/// An option of one transport, whose value is one of some words.
#[derive(Debug)]
pub struct TransportOption {
    /// Its name in torrc.
    pub name: &'static str,
    /// The values, the default first.
    pub values: &'static [&'static str],
}

/// The values that were chosen, by the options' names.
pub type Chosen = BTreeMap<&'static str, &'static str>;

/// What any endpoint is made of. It has secrets, so it is not printed.
pub struct EndpointSetup<'a> {
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for.
    pub anchor: Instant,
    /// Whether the system cuts batches of datagrams, tells congestion marks and never fragments.
    pub offload: bool,
    /// Bytes that the shard may hold in queues.
    pub queue_bytes_max: usize,
    pub ciphers: Ciphers,
    pub chosen: &'a Chosen,
    /// What offers' key comes of, until [`Endpoint::set_key`].
    pub secret: &'a Zeroizing<[u8; 32]>,
    /// What its stack is called, if it wants one.
    pub stack: StackId,
    /// For this endpoint alone.
    pub seed: Seed,
    /// What is told how long steps take.
    pub stopwatch: Stopwatch,
}

impl EndpointSetup<'_> {
    /// The place among `option`'s values of the one that was chosen; that of the default if none was.
    pub(crate) fn choice(&self, option: &TransportOption) -> usize {
        let chosen = self.chosen.get(option.name);
        chosen.and_then(|chosen| option.values.iter().position(|value| value == chosen)).unwrap_or(0)
    }
}

/// How long the connections of an endpoint wait for what.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// How long a dialler waits for the peer, and for its proof.
    pub dial: Duration,
    /// How long a listener waits for the dialler, and for its proof.
    pub listen: Duration,
    /// A silent path is probed this often.
    pub keep_alive: Duration,
    /// A path is suspect when nothing was answered for three probe time-outs, and for this long: new circuits go
    /// elsewhere.
    pub path_suspect_min: Duration,
    /// It is dead when nothing was answered for three probe time-outs, and for this long: its circuits end.
    pub path_dead_min: Duration,
    /// A flow whose first cell does not come is reset after this.
    pub first_cell: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            dial: Duration::from_secs(10),
            listen: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            path_suspect_min: SUSPECT_MIN,
            path_dead_min: DEAD_MIN,
            first_cell: Duration::from_secs(10),
        }
    }
}

impl Timeouts {
    /// Says what cannot be done as it is asked.
    pub(crate) fn validate(&self) -> Result<(), InvalidOptions> {
        if [self.dial, self.listen, self.keep_alive].contains(&Duration::ZERO) {
            return Err(InvalidOptions("times are not zero"));
        }
        Ok(())
    }
}

/// Why options are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOptions(pub(crate) &'static str);

impl fmt::Display for InvalidOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for InvalidOptions {}

/// The endpoint cannot be set up as it was asked; our own fault.
#[derive(Debug)]
pub struct SetupError {
    transport: &'static str,
    why: String,
}

impl SetupError {
    pub(crate) fn new(transport: &'static str, why: impl fmt::Display) -> Self {
        SetupError { transport, why: why.to_string() }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be set up: {}", self.transport, self.why)
    }
}

impl core::error::Error for SetupError {}
