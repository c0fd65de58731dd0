//! The habits of this repository, as functions that find what breaks them. `tests/tidy.rs` runs them over the tree.

pub mod circles;
pub mod fields;
pub mod graph;
pub mod licence;
pub mod markdown;
pub mod methods;
pub mod modules;
pub mod public;
pub mod source;
pub mod tokens;
pub mod tree;
