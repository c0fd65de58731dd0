//! Exit policies.
