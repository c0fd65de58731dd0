//! Plans in virtual time.
