//! Options as people write them, and the sentences that answer mistakes.

use heddle_netem::{
    CodelOptions, DirectionOptions, Flap, HostOptions, InterfaceOptions, Jitter, Loss, PolicerOptions,
    QueueOptions, Rate, RateStep, Reorder, Seed, Step, Topology, TopologyOptions, WireOptions,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn read(text: &str) -> TopologyOptions {
    toml::from_str(text).expect("good TOML")
}

#[test]
fn every_option_is_read() {
    let options = read(include_str!("everything.toml"));
    assert_eq!(options.validate(), Ok(()));
    let host = |name: &str| HostOptions { name: name.into(), ..HostOptions::default() };
    let down = InterfaceOptions {
        rate: Rate::BitsPerS(50_000_000),
        framing_bytes: 14,
        queue: QueueOptions { packets_max: 100, bytes_max: 150_000, codel: None },
        schedule: vec![RateStep { at_ns: 90_000 * MS, rate: Rate::BitsPerS(1_000_000) }],
    };
    let up = InterfaceOptions { rate: Rate::BitsPerS(5_000_000), ..InterfaceOptions::default() };
    let client = HostOptions { up, down, ..host("client") };
    let back = DirectionOptions {
        jitter: Jitter::Table { offsets_ns: [-500_000, 0, 0, 3_000_000].into() },
        loss: Loss::Listed { packets: [1, 2, 500].into() },
        ..DirectionOptions::default()
    };
    let default_wire = DirectionOptions {
        delay_ns: 20 * MS,
        jitter: Jitter::Uniform { spread_ns: MS },
        loss: Loss::Bernoulli { probability: 0.005 },
        ..DirectionOptions::default()
    };
    let wire = WireOptions { from: "client".into(), to: "guard".into(), there: there(), back: Some(back) };
    let expected = TopologyOptions {
        hosts: vec![client, host("guard"), host("exit")],
        wires: vec![wire],
        default_wire: Some(default_wire),
    };
    assert_eq!(options, expected);
}

fn there() -> DirectionOptions {
    let codel = Some(CodelOptions { target_ns: 5 * MS, interval_ns: 100 * MS, ecn: true });
    let loss = Loss::GilbertElliott { good_to_bad: 0.001, bad_to_good: 0.25, loss_good: 0.0, loss_bad: 0.9 };
    DirectionOptions {
        rate: Rate::BitsPerS(10_000_000),
        framing_bytes: 14,
        queue: QueueOptions { packets_max: 200, bytes_max: 125_000, codel },
        policer: Some(PolicerOptions { rate_bits_per_s: 20_000_000, burst_bytes: 64_000 }),
        mtu_bytes: 1400,
        delay_ns: 50 * MS,
        jitter: Jitter::Normal { std_dev_ns: 2 * MS },
        jitter_reorders: true,
        loss,
        reorder: Some(Reorder { probability: 0.01, hold_ns: 3 * MS }),
        duplicate: 0.001,
        corrupt: 0.0001,
        down: false,
        flap: Some(Flap { first_ns: 60 * S, down_ns: 200 * MS, up_ns: 30 * S }),
        schedule: vec![
            Step {
                at_ns: 10 * S,
                rate: Some(Rate::BitsPerS(2_000_000)),
                delay_ns: Some(80 * MS),
                jitter: Some(Jitter::Exponential { mean_ns: 5 * MS }),
                ..Step::default()
            },
            Step { at_ns: 20 * S, loss: Some(Loss::EveryNth { n: 100 }), ..Step::default() },
            Step {
                at_ns: 30 * S,
                rate: Some(Rate::Unlimited),
                mtu_bytes: Some(1280),
                delay_ns: None,
                jitter: Some(Jitter::None),
                loss: Some(Loss::None),
                reorder: Some(Reorder { probability: 0.0, hold_ns: 0 }),
                duplicate: Some(0.0),
                corrupt: Some(0.0),
                down: Some(true),
            },
        ],
        in_flight_packets_max: 10_000,
        in_flight_bytes_max: 16 << 20,
    }
}

#[test]
fn absent_options_have_their_defaults() {
    let options = read("[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n[[wire]]\nfrom = 'a'\nto = 'b'\n");
    assert_eq!(options.hosts[0].up, InterfaceOptions::default());
    assert_eq!(options.wires[0].there, DirectionOptions::default());
    assert_eq!((&options.wires[0].back, &options.default_wire), (&None, &None));
    assert_eq!(options.validate(), Ok(()));
    assert_eq!(TopologyOptions::default().validate(), Ok(()));
}

/// What TOML that cannot be read says, at the end of its message.
#[test]
fn unreadable_options_say_what_to_write() {
    let cases = [
        ("delay = 50", "invalid type: integer `50`, expected a duration with a unit, such as \"50 ms\""),
        ("delay = '50'", "\"50\" has no unit; write for example \"50 ms\""),
        ("delay = '50 mss'", "has the unknown unit \"mss\"; a duration has ns, us, µs, ms, s, min, h"),
        ("rate = 1.5", "expected a rate with a unit, such as \"10 Mbit/s\", or \"unlimited\""),
        ("rate = '10 Mbps'", "has the unknown unit \"Mbps\"; a rate has bit/s, kbit/s, Mbit/s, Gbit/s, B/s"),
        ("mtu = true", "invalid type: boolean `true`, expected a size with a unit, such as \"1500 B\""),
        ("corrupt = 'often'", "\"often\" is not a probability; write a number such as 0.01 or \"1 %\""),
        ("delya = '50 ms'", "unknown field `delya`, expected one of"),
        (
            "loss = { bernouli = { probability = 1 } }",
            "unknown variant `bernouli`, expected one of `none`, `bernoulli`",
        ),
        ("loss = { bernoulli = { p = 1 } }", "unexpected keys in table: p, available keys: probability"),
        ("loss = { every_nth = {} }", "missing field `n`"),
        (
            "jitter = { table = { offsets = ['1 ms', '2'] } }",
            "\"2\" has no unit; write for example \"50 ms\"",
        ),
        ("flap = { first = '1 s', down = '1 s' }", "missing field `up`"),
        ("schedule = [{ delay = '1 s' }]", "missing field `at`"),
        ("policer = { rate = 'unlimited', burst = '1 kB' }", "is not a rate; write a number and a unit"),
        ("policer = { rate = '1 Mbit/s' }", "missing field `burst`"),
        ("queue = { packets = -1 }", "invalid value: integer `-1`, expected u64"),
    ];
    for (line, expected) in cases {
        let error = toml::from_str::<DirectionOptions>(line).expect_err(line).to_string();
        assert!(error.contains(expected) && error.contains("line 1"), "{line}: {error}");
    }
}

/// What `validate` says about options that were read.
#[test]
fn impossible_options_get_one_sentence() {
    let cases = [
        ("rate = '0 bit/s'", "rate is 0; for a direction that passes nothing write down = true"),
        ("rate = '9999999 Gbit/s'", "rate is 9999999000000000 bit/s, at most 1000000000000000 are possible"),
        ("framing = '1 MB'", "framing is 1000000 bytes, at most 65536 are possible"),
        ("queue = { packets = 0 }", "queue: packets is 0, possible is from 1 to 10000000"),
        ("queue = { bytes = '0 B' }", "queue: bytes is 0, possible is from 1 to"),
        ("queue = { codel = { target = '0 ms' } }", "queue: codel: target is above 0 and at most interval"),
        ("queue = { codel = { target = '200 ms' } }", "queue: codel: target is above 0 and at most interval"),
        ("policer = { rate = '0 bit/s', burst = '1 B' }", "policer: rate is 0 bit/s, possible is from 1 to"),
        ("policer = { rate = '1 bit/s', burst = '0 B' }", "policer: burst is 0 bytes, possible is from 1"),
        ("mtu = '0 B'", "mtu is 0 bytes, possible is from 1 to 16777216"),
        ("mtu = '17 MiB'", "mtu is 17825792 bytes, possible is from 1 to 16777216"),
        ("delay = '25 h'", "delay is 90000000000000 ns, at most one day is possible"),
        ("jitter = { exponential = { mean = '25 h' } }", "jitter: exponential: mean is 90000000000000 ns"),
        (
            "jitter = { table = { offsets = [] } }",
            "jitter: table: there are 0 offsets, possible is from 1 to 65536",
        ),
        (
            "jitter = { table = { offsets = ['-25 h'] } }",
            "jitter: table: the longest offset is 90000000000000 ns",
        ),
        (
            "loss = { bernoulli = { probability = 1.5 } }",
            "loss: bernoulli: probability is 1.5, a probability is from 0 to 1",
        ),
        ("loss = { bernoulli = { probability = nan } }", "loss: bernoulli: probability is NaN"),
        (
            "loss = { gilbert_elliott = { good_to_bad = -1, bad_to_good = 1 } }",
            "loss: gilbert_elliott: good_to_bad is -1",
        ),
        ("loss = { every_nth = { n = 0 } }", "loss: every_nth: n is 0, it is at least 1"),
        ("loss = { listed = { packets = [0] } }", "loss: listed: packets are counted from 1"),
        ("loss = { listed = { packets = [2, 2] } }", "loss: listed: the packets do not rise"),
        ("reorder = { probability = 2, hold = '1 ms' }", "reorder: probability is 2"),
        ("duplicate = '101 %'", "duplicate is 1.01, a probability is from 0 to 1"),
        ("corrupt = inf", "corrupt is inf"),
        ("flap = { first = '0 s', down = '0 s', up = '1 s' }", "flap: down and up are both above 0"),
        ("schedule = [{ at = '1 s' }]", "schedule: step at 1000000000 ns: it changes nothing"),
        ("schedule = [{ at = '1 s', mtu = '0 B' }]", "schedule: step at 1000000000 ns: mtu is 0 bytes"),
        (
            "schedule = [{ at = '2 s', down = true }, { at = '1 s', down = false }]",
            "schedule: the steps are not in",
        ),
        ("in_flight_packets = 0", "in_flight_packets is 0, possible is from 1 to 10000000"),
        ("in_flight_bytes = '0 B'", "in_flight_bytes is 0, possible is from 1 to"),
    ];
    for (line, expected) in cases {
        let direction: DirectionOptions = toml::from_str(line).expect(line);
        let error = direction.validate().expect_err(line).to_string();
        assert!(error.starts_with(expected) && !error.contains('\n'), "{line}: {error}");
    }
}

#[test]
fn a_topology_names_the_place_of_a_fault() {
    let hosts = "[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n";
    let cases = [
        ("[[host]]\nname = 'a'\n", "host \"a\" is there twice"),
        ("[[host]]\nname = ''\n", "host \"\": a name has from 1 to 64 bytes"),
        ("[[host]]\nname = 'c'\nup = { rate = '0 bit/s' }", "host \"c\": up: rate is 0"),
        ("[[host]]\nname = 'c'\ndown = { queue = { packets = 0 } }", "host \"c\": down: queue: packets is 0"),
        ("[[wire]]\nfrom = 'a'\nto = 'x'\n", "wire from \"a\" to \"x\": there is no host \"x\""),
        ("[[wire]]\nfrom = 'a'\nto = 'a'\n", "wire from \"a\" to \"a\": a wire joins two different hosts"),
        (
            "[[wire]]\nfrom = 'a'\nto = 'b'\n[[wire]]\nfrom = 'b'\nto = 'a'\n",
            "wire from \"b\" to \"a\": the two hosts have a wire already",
        ),
        (
            "[[wire]]\nfrom = 'a'\nto = 'b'\nthere = { mtu = '0 B' }",
            "wire from \"a\" to \"b\": there: mtu is 0 bytes",
        ),
        (
            "[[wire]]\nfrom = 'a'\nto = 'b'\nback = { mtu = '0 B' }",
            "wire from \"a\" to \"b\": back: mtu is 0 bytes",
        ),
        ("default_wire = { mtu = '0 B' }", "default_wire: mtu is 0 bytes"),
    ];
    for (text, expected) in cases {
        // A key at the root stands before the tables.
        let text = if text.starts_with('[') { format!("{hosts}{text}") } else { format!("{text}\n{hosts}") };
        let options = read(&text);
        let error = options.validate().expect_err(&text).to_string();
        assert!(error.starts_with(expected) && !error.contains('\n'), "{text}: {error}");
        let refused = Topology::<Vec<u8>>::new(&options, &Seed::from_number(1)).expect_err(&text);
        assert_eq!(refused.to_string(), error);
    }
}
