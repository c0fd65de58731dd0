//! Relay cryptography and circuit handshakes.
