//! What the exit policy says of a name's addresses, and how a new one comes into force.

use super::bench::{Bench, config};
use super::client::Client;
use super::streams::{addr, addrs, begin, exit, policy, reason};
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::stream::EndReason;
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Control, RelayConfig};

const IPV6_OK: u32 = 1;

/// An exit for all but these.
fn refusing(what: &str) -> RelayConfig {
    let refusal = format!("reject {what}");
    RelayConfig { exit_policy: policy(&[refusal.as_str(), "accept *:*"]), ..config() }
}

#[test]
fn of_a_names_addresses_the_first_that_the_policy_allows_is_taken() {
    let refused = Err(EndReason::EXITPOLICY);
    let cases = [
        ("203.0.114.8:*", &["203.0.114.8", "203.0.114.7"][..], Ok("203.0.114.7")),
        ("203.0.114.8:*", &["203.0.114.7", "203.0.114.8"], Ok("203.0.114.7")),
        ("203.0.114.8:*", &["203.0.114.8", "203.0.114.9", "203.0.114.7"], Ok("203.0.114.9")),
        ("203.0.114.8:80", &["203.0.114.8", "203.0.114.7"], Ok("203.0.114.7")),
        ("203.0.114.8:81", &["203.0.114.8", "203.0.114.7"], Ok("203.0.114.8")),
        ("private:*", &["10.0.0.1", "127.0.0.1", "203.0.114.7"], Ok("203.0.114.7")),
        ("private:*", &["10.0.0.1", "2a00:1::7"], Ok("2a00:1::7")),
        ("private:*", &["10.0.0.1", "127.0.0.1", "192.168.0.1"], refused),
        ("private:*", &["127.0.0.1", "fd00::1", "::1"], refused),
    ];
    for (what, answer, wanted) in cases {
        let found = begin(refusing(what), "a.example:80", IPV6_OK, Some(addrs(answer)));
        assert_eq!(found, wanted.map(addr), "{what} and {answer:?}");
    }
}

/// The relay hears of a policy while it runs.
fn change_to(bench: &mut Bench, policy: ExitPolicy) {
    bench.control(0, Control::ExitPolicy(policy));
}

/// The stream is refused for the policy's sake, and nothing is connected.
fn expect_refused(bench: &mut Bench, client: &mut Client, stream: u16) {
    let got = client.got_one(bench);
    assert_eq!((got.stream, reason(&got)), (stream, EndReason::EXITPOLICY));
    assert!(bench.shards[0].connects.is_empty());
}

fn expect_connected(bench: &mut Bench, client: &mut Client, stream: u16, to: &str) {
    let (_, connected) = bench.connect_next(0);
    assert_eq!(connected.ip(), addr(to));
    let got = client.got_one(bench);
    assert_eq!((got.command, got.stream), (RelayCommand::CONNECTED, stream));
}

#[test]
fn a_new_policy_is_for_new_streams_and_the_old_go_on() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    // The address of a name that was asked for before is looked at when it is known.
    client.begin(&mut bench, 4, "a.example:80");
    let all = config().exit_policy.expect("it is an exit");
    change_to(&mut bench, all.without(addr("203.0.114.7")));
    bench.resolve_next(0, addrs(&["203.0.114.7"]));
    expect_refused(&mut bench, &mut client, 4);
    client.begin(&mut bench, 5, "203.0.114.7:80");
    expect_refused(&mut bench, &mut client, 5);
    client.begin(&mut bench, 6, "b.example:80");
    bench.resolve_next(0, addrs(&["203.0.114.7"]));
    expect_refused(&mut bench, &mut client, 6);
    client.begin(&mut bench, 7, "203.0.114.8:80");
    expect_connected(&mut bench, &mut client, 7, "203.0.114.8");
    client.send(&mut bench, RelayCommand::DATA, 3, b"still here");
    assert_eq!(bench.received(server), b"still here");
    bench.write(server, b"and there");
    let got = client.got_one(&mut bench);
    assert_eq!((got.command, got.stream, &got.data[..]), (RelayCommand::DATA, 3, &b"and there"[..]));
}

#[test]
fn a_relay_may_cease_to_be_an_exit_and_become_one_again() {
    let (mut bench, mut client) = exit();
    let server = client.connect(&mut bench, 3);
    change_to(&mut bench, ExitPolicy::reject_all());
    for (stream, to) in [(4, "203.0.114.8:80"), (5, "a.example:80")] {
        client.begin(&mut bench, stream, to);
        expect_refused(&mut bench, &mut client, stream);
    }
    assert!(bench.shards[0].resolves.is_empty(), "who is no exit asks for no names");
    client.send(&mut bench, RelayCommand::DATA, 3, b"still here");
    assert_eq!(bench.received(server), b"still here");
    change_to(&mut bench, config().exit_policy.expect("it is an exit"));
    client.begin(&mut bench, 6, "203.0.114.8:80");
    expect_connected(&mut bench, &mut client, 6, "203.0.114.8");
}
