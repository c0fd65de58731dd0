use std::net::{IpAddr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::emulator::forge::View;

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const SEQUENCE: u32 = u32::MAX - 1;
const ACKNOWLEDGED: u32 = 77;

fn options(rest: &str) -> AttackOptions {
    toml::from_str(&format!("from = 'a'\nto = 'b'\n{rest}")).unwrap()
}

fn attackers(all: &[&str], seed: u64) -> Attackers {
    let all: Vec<AttackOptions> = all.iter().map(|rest| options(rest)).collect();
    let find = |name: &str| Some(if name == "a" { A } else { B });
    Attackers::new(&all, find, &Seed::from_number(seed))
}

fn tcp(ipv6: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x13, 0x88, 0x13, 0x89];
    header.extend(SEQUENCE.to_be_bytes());
    header.extend(ACKNOWLEDGED.to_be_bytes());
    // With an option of twelve bytes, as timestamps are.
    header.extend([8 << 4, flags, 1, 0, 0, 0, 0, 0]);
    header.extend([1; 12]);
    ip(ipv6, packet::TCP, &[&header, payload].concat(), 16)
}

fn udp(ipv6: bool, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x13, 0x88, 0x13, 0x89];
    header.extend((payload.len() as u16 + 8).to_be_bytes());
    header.extend([0, 0]);
    ip(ipv6, packet::UDP, &[&header, payload].concat(), 6)
}

fn ip(ipv6: bool, protocol: u8, content: &[u8], checksum: usize) -> Vec<u8> {
    let mut packet = if ipv6 {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        header.extend(
            [Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::LOCALHOST].map(|a| a.octets()).concat(),
        );
        header
    } else {
        vec![0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
    };
    let start = packet.len();
    packet.extend(content);
    packet::set_ip_header(&mut packet, start, 0);
    packet::set_checksum(&mut packet, start, start + checksum, protocol);
    packet
}

/// Whether all checksums of a packet are good, computed again from nothing.
fn is_good(packet: &[u8]) -> bool {
    let mut again = packet.to_vec();
    let (start, protocol) = if packet[0] >> 4 == 4 { (20, packet[9]) } else { (40, packet[6]) };
    let field = match protocol {
        packet::TCP => 16,
        packet::UDP => 6,
        _ => 2,
    };
    packet::set_ip_header(&mut again, start, 0);
    match protocol {
        1 => packet::set_plain_checksum(&mut again, start, start + field),
        _ => packet::set_checksum(&mut again, start, start + field, protocol),
    }
    again == packet && packet::declared_bytes(packet) == Some(packet.len())
}

/// What is on the wire after these packets, one each millisecond.
fn play(attackers: &mut Attackers, packets: &[Vec<u8>]) -> Vec<Passing> {
    let pass = |(number, packet): (u64, &Vec<u8>)| {
        let passing = Passing { from: A, to: B, packet: packet.clone() };
        attackers.pass(Time::from_nanos(number * 1_000_000), passing)
    };
    (0..).zip(packets).flat_map(pass).collect()
}

/// The same without where they go.
fn bytes(passing: &[Passing]) -> Vec<Vec<u8>> {
    passing.iter().map(|passing| passing.packet.clone()).collect()
}

fn view(packet: &[u8]) -> View {
    forge::view(packet).unwrap()
}

#[test]
fn a_reset_has_the_number_that_the_receiver_expects() {
    for (ipv6, flags, payload, next) in
        [(false, 0x18, 10, 8), (true, 0x18, 10, 8), (false, 2, 0, u32::MAX), (false, 0x11, 0, u32::MAX)]
    {
        let packet = tcp(ipv6, flags, &vec![5; payload]);
        let mut attackers = attackers(&["kind = { reset = { both_ends = true } }"], 1);
        let on_wire = play(&mut attackers, std::slice::from_ref(&packet));
        let [passed, reset, back] = &on_wire[..] else { panic!("{on_wire:?}") };
        assert_eq!(passed, &Passing { from: A, to: B, packet: packet.clone() });
        let start = view(&packet).start;
        let word = |packet: &[u8], at: usize| packet::u32_at(packet, start + at).unwrap();
        assert!(is_good(&reset.packet) && is_good(&back.packet));
        assert_eq!((reset.from, reset.to, reset.packet.len()), (A, B, start + 20));
        assert_eq!((word(&reset.packet, 4), word(&reset.packet, 8)), (next, ACKNOWLEDGED));
        assert_eq!(packet::destination(&reset.packet), packet::destination(&packet));
        assert_eq!((reset.packet[start + 13], back.packet[start + 13]), (0x14, 0x14));
        // The other one goes the other way, with the number that the segment acknowledged, and acknowledges it all.
        assert_eq!((back.from, back.to), (B, A));
        assert_eq!((word(&back.packet, 4), word(&back.packet, 8)), (ACKNOWLEDGED, next));
        assert_eq!((view(&back.packet).from_port, view(&back.packet).to_port), (5001, 5000));
        let sender: IpAddr = if ipv6 { "fd00::1".parse().unwrap() } else { "10.0.0.1".parse().unwrap() };
        assert_eq!(packet::destination(&back.packet), Some(sender));
    }
}

#[test]
fn the_thesis_flag_is_set_after_a_thousand_packets() {
    let packets = vec![tcp(false, 0x18, &[1; 100]); 2100];
    let mut attackers =
        attackers(&["flow = { to_port = 5001 }\neach = { packets = 1000 }\nkind = { set_reset = {} }"], 1);
    let on_wire = play(&mut attackers, &packets);
    assert_eq!(on_wire.len(), 2100);
    let resets: Vec<usize> = (0..2100).filter(|number| on_wire[*number].packet[20 + 13] & 4 != 0).collect();
    assert_eq!(resets, [1000, 2001]);
    assert!(is_good(&on_wire[1000].packet));
    let expected =
        AttackSummary { from: "a".into(), to: "b".into(), kind: "set_reset", seen: 2100, acted: 2 };
    assert_eq!(attackers.summaries(), [expected]);
}

#[test]
fn unreachable_quotes_the_packet_and_goes_to_its_sender() {
    let payload = [7; 1300];
    for (packet, kind, code, quoted) in [
        (udp(false, &payload), 3, 3, 28),
        (tcp(false, 0x18, &payload), 3, 3, 28),
        (udp(true, &payload), 1, 4, 1232),
    ] {
        let mut attackers = attackers(&["kind = { unreachable = {} }"], 1);
        let on_wire = play(&mut attackers, std::slice::from_ref(&packet));
        let [passed, answer] = &on_wire[..] else { panic!("{on_wire:?}") };
        assert_eq!((&passed.packet, answer.from, answer.to), (&packet, B, A));
        let start = view(&packet).start;
        assert!(is_good(&answer.packet));
        assert_eq!(answer.packet[start..start + 2], [kind, code]);
        assert_eq!(answer.packet[start + 8..], packet[..quoted]);
    }
    let mut attackers = attackers(&["kind = { unreachable = { code = 4, mtu = 1000 } }"], 1);
    let on_wire = play(&mut attackers, &[udp(false, &payload), udp(true, &payload)]);
    assert_eq!(on_wire[1].packet[20..28][..2], [3, 4]);
    assert_eq!(on_wire[1].packet[26..28], 1000u16.to_be_bytes());
    assert_eq!((on_wire[3].packet[40], &on_wire[3].packet[44..48]), (2, &1000u32.to_be_bytes()[..]));
}

#[test]
fn payloads_are_made_up_tampered_with_and_cut() {
    let payload: Vec<u8> = (0..100).collect();
    for packet in [udp(false, &payload), udp(true, &payload), tcp(false, 0x18, &payload)] {
        let start = view(&packet).payload;
        let on_wire =
            play(&mut attackers(&["kind = { garbage = { keep = 9 } }"], 1), std::slice::from_ref(&packet));
        assert_eq!((on_wire.len(), &on_wire[0].packet), (2, &packet));
        let garbage = &on_wire[1].packet;
        assert_eq!((garbage.len(), &garbage[start..start + 9]), (packet.len(), &packet[start..start + 9]));
        assert!(garbage[start + 9..] != packet[start + 9..] && is_good(garbage));

        let on_wire = play(&mut attackers(&["kind = { tamper = {} }"], 1), std::slice::from_ref(&packet));
        let bits: u32 = (on_wire[0].packet[start..].iter())
            .zip(&packet[start..])
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert_eq!((on_wire.len(), bits, is_good(&on_wire[0].packet)), (1, 1, true));

        let on_wire =
            play(&mut attackers(&["kind = { truncate = { keep = 30 } }"], 1), std::slice::from_ref(&packet));
        assert_eq!((on_wire[0].packet.len(), is_good(&on_wire[0].packet)), (start + 30, true));
        let on_wire = play(&mut attackers(&["kind = { truncate = {} }"], 1), &vec![packet.clone(); 50]);
        assert!(on_wire.iter().all(|cut| cut.packet.len() < packet.len() && is_good(&cut.packet)));
        assert!(bytes(&play(&mut attackers(&["kind = { drop = {} }"], 1), &[packet])).is_empty());
    }
}

#[test]
fn old_packets_come_again_and_held_ones_later() {
    let packets: Vec<Vec<u8>> = (0..200).map(|number| udp(false, &[number; 20])).collect();
    let on_wire = bytes(&play(&mut attackers(&["kind = { replay = {} }"], 1), &packets));
    assert_eq!(on_wire.len(), 399, "the first packet has none before it");
    let number = |packet: &Vec<u8>| usize::from(packet[28]);
    for pair in on_wire[1..].chunks(2) {
        assert!(number(&pair[1]) < number(&pair[0]) && number(&pair[1]) + REMEMBERED_MAX >= number(&pair[0]));
    }

    let attack = "each = { packets = 9 }\nkind = { reorder = { behind = 3 } }";
    let on_wire = bytes(&play(&mut attackers(&[attack], 1), &packets[..30]));
    let numbers: Vec<usize> = on_wire.iter().map(number).collect();
    assert_eq!(numbers[..16], [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 9, 13, 14, 15]);
    assert_eq!(numbers.len(), 29, "the last one is still held");
}

#[test]
fn what_is_held_is_released_in_order_and_what_is_remembered_is_not() {
    let packets: Vec<Vec<u8>> = (0..5).map(|number| udp(false, &[number; 20])).collect();
    let all =
        ["times = 2", "times = 3"].map(|times| format!("{times}\nkind = {{ reorder = {{ behind = 9 }} }}"));
    let mut attackers = attackers(&[&all[0], &all[1], "kind = { replay = {} }"], 1);
    assert!(play(&mut attackers, &packets).is_empty());
    let released = attackers.release();
    // The second one holds what the first one let pass.
    assert_eq!(bytes(&released), [&packets[2..], &packets[..2]].concat());
    assert!(released.iter().all(|passing| (passing.from, passing.to) == (A, B)));
    assert!(attackers.release().is_empty());
}

#[test]
fn filters_triggers_and_limits_hold() {
    let mixed = [udp(false, b"x"), tcp(false, 0x10, b""), tcp(false, 0x18, b"data")];
    let dropped = |attack: &str| {
        let left = bytes(&play(&mut attackers(&[&format!("{attack}\nkind = {{ drop = {{}} }}")], 1), &mixed));
        mixed.iter().map(|packet| !left.contains(packet)).collect::<Vec<_>>()
    };
    assert_eq!(dropped(""), [true, true, true]);
    assert_eq!(dropped("flow = { protocol = 'udp' }"), [true, false, false]);
    assert_eq!(dropped("flow = { protocol = 'tcp', payload_bytes_min = 1 }"), [false, false, true]);
    assert_eq!(dropped("flow = { from_port = 5000 }"), [true, true, true]);
    assert_eq!(dropped("flow = { from_port = 1 }"), [false, false, false]);
    assert_eq!(dropped("times = 1"), [true, false, false]);
    assert_eq!(dropped("after = '1 ms'"), [false, true, true]);
    let packets = vec![mixed[0].clone(); 1000];
    let left = |attack: &str| {
        play(&mut attackers(&[&format!("{attack}\nkind = {{ drop = {{}} }}")], 1), &packets).len()
    };
    assert_eq!(left("each = { interval = '10 ms' }"), 900);
    assert!((650..750).contains(&left("each = { probability = '30 %' }")));
}

#[test]
fn a_seed_decides_and_several_attackers_act_one_after_the_other() {
    let packets: Vec<Vec<u8>> = (0..100).map(|number| udp(number % 2 == 0, &[number; 50])).collect();
    let all = [
        "each = { probability = '20 %' }\nkind = { garbage = {} }",
        "kind = { tamper = {} }",
        "each = { packets = 4 }\nkind = { replay = {} }",
    ];
    let first = play(&mut attackers(&all, 1), &packets);
    assert_eq!(play(&mut attackers(&all, 1), &packets), first);
    assert_ne!(play(&mut attackers(&all, 2), &packets), first);
    assert!(first.len() > 130 && first.iter().all(|passing| !packets.contains(&passing.packet)));
    // The other direction has nobody on it.
    let mut attackers = attackers(&all, 1);
    assert!(attackers.are_on(A, B) && !attackers.are_on(B, A));
    let passing = Passing { from: B, to: A, packet: packets[0].clone() };
    assert_eq!(attackers.pass(Time::ZERO, passing.clone()), [passing]);
}

proptest! {
    /// Nothing that a host may send makes an attacker panic, and what is no TCP or UDP passes as it is.
    #[test]
    fn any_bytes_pass(
        mut packet in prop::collection::vec(any::<u8>(), 1..120),
        version in 4u8..7,
        ihl in 0u8..16,
        protocol in prop::sample::select(vec![6u8, 17, 1]),
        seed: u64,
    ) {
        packet[0] = version << 4 | if version == 4 { ihl } else { 0 };
        let len = packet.len() as u16;
        if packet.len() > 9 {
            packet[6..8].fill(0);
            packet[if version == 4 { 9 } else { 6 }] = protocol;
            let (at, declared) = if version == 4 { (2, len) } else { (4, len.saturating_sub(40)) };
            packet::set_u16(&mut packet, at, declared);
        }
        let kinds = ["reset = { both_ends = true }", "set_reset = {}", "unreachable = {}", "unreachable = { code = 4 }", "replay = {}",
            "garbage = {}", "tamper = {}", "truncate = {}", "truncate = { keep = 3 }", "reorder = { behind = 1 }", "drop = {}"];
        for kind in kinds {
            let mut attackers = attackers(&[&format!("kind = {{ {kind} }}")], seed);
            let on_wire = play(&mut attackers, &[packet.clone(), packet.clone()]);
            if forge::view(&packet).is_none() {
                prop_assert_eq!(bytes(&on_wire), vec![packet.clone(); 2]);
            }
        }
    }
}
