//! The relay, one behaviour a test, over a transport without cryptography and under a driver that
//! holds it to its contract. Expectations are those of tor-spec and of stock tor 0.4.8.

mod bench;
mod buffers;
mod circuits;
mod client;
mod credit;
mod datagrams;
mod dials;
mod dos;
mod extend;
mod floods;
mod flow;
mod flows;
mod idle;
mod late;
mod observe;
mod pairs;
mod peer;
mod pipe;
mod plain;
mod poisoned;
mod policies;
mod pressure;
mod random;
mod rates;
mod runs;
mod secrets;
mod shards;
mod shares;
mod streams;
mod truncate;
mod unanswered;
mod unread;
mod unused;
mod world;
