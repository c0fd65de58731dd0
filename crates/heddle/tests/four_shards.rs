//! Stock and Heddle relays in every arrangement, with four shards in each Heddle relay. Longer than the default suite
//! should take: `cargo test -p heddle --test four_shards -- --ignored`.

mod support;

use heddle_lab::testnet::NetworkOptions;
use heddle_lab::traffic::Content;
use support::{Lab, six_relays};

#[test]
#[ignore = "a minute of traffic that two shards have in the default suite"]
fn files_survive_every_arrangement() {
    let relays = six_relays(&["HeddleShards 4"]);
    let lab = Lab::start(NetworkOptions { relays, ..NetworkOptions::default() });
    support::every_arrangement(&lab, Content { seed: 22, len: 20_000_000 });
    support::eight_circuits_at_once(&lab, 3_000_000);
    support::stalled_streams_hold_up_no_other(&lab, &["heddleguard", "heddlemiddle", "heddleexit"]);
    support::half_closed_streams(&lab, &["heddleguard", "stockmiddle", "heddleexit"]);
}
