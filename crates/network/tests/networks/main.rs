//! Whole networks in virtual time: relays, clients, servers and authorities.
//!
//! They are one program, because each would compile the simulator anew.

mod bootstrap;
mod chaos;
mod datagrams;
mod end_to_end_windows;
mod first_byte;
mod hostile;
mod measure;
mod neighbour;
mod network;
mod null_crypto;
mod own_transport;
mod rates;
mod schedulers;
mod swarm;
mod upgraded;
