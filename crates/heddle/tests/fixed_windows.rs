//! Stock and Heddle relays in every arrangement, with the flow control of networks and clients that
//! know no congestion control: fixed windows and SENDME cells. The Heddle relays have two shards each.

mod support;

use std::sync::OnceLock;

use heddle_lab::testnet::NetworkOptions;
use heddle_lab::traffic::Content;
use support::{Lab, six_relays};

fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        Lab::start(NetworkOptions {
            relays: six_relays(&["HeddleShards 2"]),
            authority_torrc: vec!["ConsensusParams cc_alg=0".to_owned()],
            ..NetworkOptions::default()
        })
    })
}

#[test]
fn files_survive_every_arrangement() {
    support::every_arrangement(lab(), Content { seed: 21, len: 20_000_000 });
}

#[test]
fn eight_circuits_carry_files_at_once() {
    support::eight_circuits_at_once(lab(), 2_000_000);
}

#[test]
fn stalled_streams_hold_up_no_other() {
    support::stalled_streams_hold_up_no_other(lab(), &["heddleguard", "heddlemiddle", "heddleexit"]);
}

#[test]
fn streams_end_while_the_other_side_sends() {
    support::half_closed_streams(lab(), &["heddleguard", "stockmiddle", "heddleexit"]);
}
