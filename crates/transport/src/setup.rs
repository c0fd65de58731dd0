//! Why an endpoint cannot be set up.

use core::fmt;

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
