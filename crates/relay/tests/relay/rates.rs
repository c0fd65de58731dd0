//! The operator's rates, exact in virtual time: burst plus rate times time.

use super::bench::{Bench, Sock, config};
use super::client::{Client, Hop, Kind, target, theirs};
use super::plain::relay_line;
use heddle_proto::bucket::Limit;
use heddle_proto::cell::extend::{Extend2, ExtendTarget};
use heddle_proto::cell::frame::write_fixed;
use heddle_proto::cell::relay::RelayCommand;
use heddle_proto::cell::{BODY_LEN, CELL_LEN, Command};
use heddle_relay::RelayConfig;
use heddle_seam::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const NO_LIMIT: Limit = Limit { rate_bytes_per_s: 1 << 40, burst_bytes: 1 << 40 };

fn limit(rate_bytes_per_s: u64, burst_bytes: u64) -> Limit {
    Limit { rate_bytes_per_s, burst_bytes }
}

/// Whether `bytes` are within two per cent of what the limit lets through.
fn assert_passed(bytes: usize, limit: Limit, time: Duration) {
    let exact = limit.burst_bytes as f64 + limit.rate_bytes_per_s as f64 * time.as_secs_f64();
    let share = bytes as f64 / exact;
    assert!((0.98..=1.02).contains(&share), "{bytes} bytes where {exact} may pass");
}

/// The operator's limits in the two ways of setting them.
fn configs(limit: Limit) -> [RelayConfig; 2] {
    [
        RelayConfig { bandwidth: limit, ..config() },
        RelayConfig { bandwidth: NO_LIMIT, relay_bandwidth: Some(limit), ..config() },
    ]
}

#[test]
fn reading_is_held_to_the_rate() {
    let cases =
        [(limit(100_000, 100_000), 1), (limit(100_000, 500_000), 3), (limit(3_000_000, 3_000_000), 5)];
    for (limit, channels) in cases {
        for config in configs(limit) {
            let mut bench = Bench::new(config);
            let socks: Vec<Sock> = (1..=channels).map(|number| bench.relay_channel(0, number)).collect();
            // Cells of circuits that do not exist, more than can pass.
            let mut cells = Vec::new();
            for _ in 0..20 * limit.rate_bytes_per_s as usize / CELL_LEN / usize::from(channels) {
                write_fixed(&mut cells, 5, Command::RELAY, &[0; BODY_LEN]);
            }
            let total = socks
                .iter()
                .map(|sock| {
                    bench.write(*sock, &cells);
                    cells.len()
                })
                .sum::<usize>();
            let time = Duration::from_secs(8);
            bench.pass(time);
            let unread: usize = socks.iter().map(|sock| bench.unread(*sock)).sum();
            assert_passed(total - unread, limit, time);
        }
    }
}

/// A circuit whose next relay is at a private address, where no rate holds.
fn from_private(bench: &mut Bench, client_sock: Sock, id: u32) -> (Client, Hop) {
    let addr = Ipv4Addr::new(10, 0, 0, 2);
    let mut client = Client::create(bench, client_sock, theirs(id), Kind::Fast);
    let (handshake, _) = client.extend2(2);
    let onionskin = client.onionskin(Kind::Ntor, 2);
    drop(handshake);
    let create2 = heddle_proto::cell::create::Create2::parse(&onionskin.2).expect("a CREATE2");
    let SocketAddr::V4(at) = SocketAddr::new(IpAddr::V4(addr), 9001) else { unreachable!("it is IPv4") };
    let specs = ExtendTarget { ipv4: Some(at), ..target(2) }.specs();
    let mut data = Vec::new();
    Extend2 { specs, htype: create2.htype, hdata: create2.hdata }.encode(&mut data);
    client.send(bench, RelayCommand::EXTEND2, 0, &data);
    let next = match bench.shards[0].connects.is_empty() {
        true => bench.connected(0).into_iter().find(|sock| sock.id.is_dialled()).expect("a channel"),
        false => {
            let (next, _) = bench.connect_next(0);
            bench.write(next, &relay_line(2, addr.into()));
            next
        }
    };
    let hop = Hop::answer(bench, next, 2);
    // EXTENDED2 may have to wait for the rate, too.
    bench.pass(Duration::from_secs(2));
    let got = client.got_one(bench);
    client.extended(onionskin.0, &got);
    (client, hop)
}

#[test]
fn writing_is_held_to_the_rate() {
    for (limit, clients) in [(limit(100_000, 100_000), 1), (limit(200_000, 400_000), 3)] {
        for config in configs(limit) {
            let mut bench = Bench::new(RelayConfig { extend_to_private: true, ..config });
            let mut circuits = Vec::new();
            for _ in 0..clients {
                let sock = bench.client_channel(0);
                circuits.push(from_private(&mut bench, sock, 1));
            }
            // Until the buckets are full again.
            bench.pass(Duration::from_secs(10));
            for (_, hop) in &mut circuits {
                let mut cells = Vec::new();
                for _ in 0..15 * limit.rate_bytes_per_s as usize / CELL_LEN / clients {
                    let body = hop.seal(RelayCommand::DROP, 0, &[]);
                    write_fixed(&mut cells, hop.circ_id.get(), Command::RELAY, &body);
                }
                bench.write(hop.sock, &cells);
                assert_eq!(bench.unread(hop.sock), 0, "private peers are read without limit");
            }
            let time = Duration::from_secs(8);
            bench.pass(time);
            let received = circuits.iter().map(|(client, _)| bench.received(client.sock).len()).sum();
            assert_passed(received, limit, time);
        }
    }
}

/// Private addresses count when the operator says so (`CountPrivateBandwidth`).
#[test]
fn private_addresses_may_count() {
    let limit = limit(100_000, 100_000);
    let mut bench = Bench::new(RelayConfig { bandwidth: limit, count_private_bandwidth: true, ..config() });
    let sock = bench.accept(0, SocketAddr::from(([10, 0, 0, 9], 5000)));
    let cells = vec![0; 2_000_000];
    bench.write(sock, super::plain::CLIENT_LINE);
    bench.write(sock, &cells);
    bench.pass(Duration::from_secs(8));
    assert_passed(cells.len() - bench.unread(sock), limit, Duration::from_secs(8));
}

/// What comes in small portions is held to the rate as well.
#[test]
fn small_portions_pass_at_the_rate() {
    let limit = limit(50_000, 50_000);
    let mut bench = Bench::new(RelayConfig { bandwidth: limit, ..config() });
    let sock = bench.relay_channel(0, 1);
    let mut total = 0;
    for _ in 0..4000 {
        bench.write(sock, &[0; 211]);
        total += 211;
        bench.pass(Duration::from_millis(2));
    }
    assert_passed(total - bench.unread(sock), limit, Duration::from_secs(8));
}

/// Streams of an exit are read and written within the global limit.
#[test]
fn streams_are_held_to_the_rate() {
    let limit = limit(100_000, 100_000);
    let mut bench = Bench::new(RelayConfig { bandwidth: limit, ..config() });
    // A private channel, so that only the stream counts.
    let sock = bench.accept(0, SocketAddr::from(([10, 0, 0, 9], 5000)));
    bench.write(sock, &relay_line(1, IpAddr::from([10, 0, 0, 9])));
    let mut client = Client::create(&mut bench, sock, theirs(1), Kind::Ntor);
    let server = client.connect(&mut bench, 1);
    bench.write(server, &vec![7; 2_000_000]);
    let (mut received, mut cells) = (0, 0);
    for _ in 0..400 {
        bench.pass(Duration::from_millis(20));
        for got in client.got(&mut bench) {
            received += got.data.len();
            cells += 1;
            if u32::is_multiple_of(cells, 50) {
                client.send(&mut bench, RelayCommand::SENDME, 1, &[]);
            }
            if cells.is_multiple_of(100) {
                client.sendme(&mut bench, got.digest);
            }
        }
    }
    assert_passed(received, limit, Duration::from_secs(8));
}

/// Whoever has much to say does not keep the others from their share.
#[test]
fn channels_share_the_rate() {
    let limit = limit(200_000, 200_000);
    let mut bench = Bench::new(RelayConfig { bandwidth: limit, ..config() });
    let socks: Vec<Sock> = (1..=4).map(|number| bench.relay_channel(0, number)).collect();
    for sock in &socks {
        bench.write(*sock, &vec![0; 2_000_000]);
    }
    bench.pass(Duration::from_secs(8));
    for sock in &socks {
        let read = 2_000_000 - bench.unread(*sock);
        // The first could use what was saved up before the others came.
        assert!((390_000..610_000).contains(&read), "{read} bytes of 1,800,000 were read");
    }

    let mut bench = Bench::new(RelayConfig { bandwidth: limit, extend_to_private: true, ..config() });
    let mut circuits = Vec::new();
    for _ in 0..4 {
        let sock = bench.client_channel(0);
        circuits.push(from_private(&mut bench, sock, 1));
    }
    bench.pass(Duration::from_secs(10));
    for (client, hop) in &mut circuits {
        bench.received(client.sock);
        for _ in 0..3000 {
            hop.send(&mut bench, RelayCommand::DROP, 0, &[]);
        }
    }
    bench.pass(Duration::from_secs(8));
    for (client, _) in &circuits {
        let sent = bench.received(client.sock).len();
        assert!((300_000..610_000).contains(&sent), "{sent} bytes of 1,800,000 were sent");
    }
}

/// Many more wait for the rate than it serves at once: each has its turn, and looks are paid for by the bytes that
/// pass.
#[test]
fn however_many_wait_for_the_rate_each_has_its_turn() {
    const CHANNELS: u32 = 1500;
    const SECONDS: u64 = 10;
    let mut bench = Bench::new(RelayConfig { bandwidth: limit(1_000_000, 1_000_000), ..config() });
    let addr = |number: u32| IpAddr::from(Ipv4Addr::from_bits(0xcb00_0000 + number));
    let socks: Vec<Sock> = (0..CHANNELS).map(|number| bench.client_at(0, addr(number))).collect();
    bench.pass(Duration::from_secs(5));
    // Cells of circuits that do not exist.
    let mut cells = Vec::new();
    (0..200).for_each(|_| write_fixed(&mut cells, 5, Command::RELAY, &[0; BODY_LEN]));
    socks.iter().for_each(|sock| bench.write(*sock, &cells));
    let before = bench.shards[0].interests;
    bench.pass(Duration::from_secs(SECONDS));
    let looks_per_s = (bench.shards[0].interests - before) as u64 / SECONDS;
    assert!(looks_per_s < 4000, "{looks_per_s} changes of interest a second");
    // Each could have 6,667 bytes.
    let least = socks.iter().map(|sock| cells.len() - bench.unread(*sock)).min();
    assert!(least >= Some(5000), "{least:?} bytes");
}
