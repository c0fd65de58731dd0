//! What is particular to tcp-dtls.

use super::{MB, Transport, ready, transfer};
use heddle_network::Plan;

#[test]
fn a_pair_that_speaks_both_takes_the_preferred_and_has_the_other_ready() {
    let quic = Transport::named("quic").among(&[0, 1], &Plan::default());
    let mut net = Transport::named("tcp-dtls").paired(&quic);
    let circuit = net.build(&[0, 1, 2], true);
    let before = net.cells_out_over(1, "quic");
    transfer(&mut net, circuit, MB / 2);
    assert_eq!(net.cells_out_over(1, "quic"), before);
    assert_eq!(ready(&net), 6, "both ends of two connections and of one");
}
