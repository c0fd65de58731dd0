//! See the crate's description; modules follow.
