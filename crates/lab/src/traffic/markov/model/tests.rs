use std::collections::BTreeMap;

use heddle_netem::Seed;
use serde_json::{Value, json};

use super::*;

fn constant(weight: f64, delay_us: f64) -> Value {
    json!({ "w": weight, "distribution": "uniform", "param_low": delay_us, "param_high": delay_us })
}

/// Two packets up, one down, until a coin says that it is over.
fn model() -> Value {
    json!({
        "source": "made up",
        "flow_model": {
            "transitions": { "start": { "a": 1.0 }, "a": { "a": 1.0 } },
            "emissions": { "a": { "+": { "w": 1.0, "distribution": "exponential", "param_rate": 1e-5 } } },
        },
        "stream_model": {
            "transitions": { "start": { "a": 1.0 }, "a": { "a": 1.0, "end": 1.0 } },
            "emissions": { "a": { "+": constant(1.0, 2000.0) }, "end": { "F": constant(1.0, 0.0) } },
        },
        "packet_model": {
            "transitions": { "start": { "a": 1.0 }, "a": { "b": 1.0 }, "b": { "a": 3.0, "end": 1.0 } },
            "emissions": {
                "a": { "+": constant(2.0, 4000.0), "-": constant(1.0, 4000.0) },
                "b": { "-": constant(1.0, 20_000.0) },
                "end": { "F": constant(1.0, 0.0) },
            },
        },
    })
}

fn parse(model: &Value) -> std::result::Result<MarkovModel, String> {
    MarkovModel::parse(&model.to_string())
}

fn rng(n: u64) -> Rng {
    Seed::from_number(n).child(&["test"]).rng()
}

#[test]
fn a_script_repeats_by_seed() {
    let model = parse(&model()).unwrap();
    assert!(model.has_flows());
    assert_eq!(model.script(rng(1), 1000), model.script(rng(1), 1000));
    let scripts: Vec<Script> = (0..20).map(|n| model.script(rng(n), 1000)).collect();
    assert!(scripts.iter().any(|script| *script != scripts[0]));
}

#[test]
fn walks_follow_the_weights() {
    let model = parse(&model()).unwrap();
    let n = 20_000;
    let (mut up, mut down, mut lengths) = (0, 0, BTreeMap::<u64, u32>::new());
    for seed in 0..n {
        let script = model.script(rng(seed), 10_000);
        let packet = u64::from(PACKET_BYTES);
        up += script.up_bytes() / packet;
        down += script.down_bytes() / packet;
        *lengths.entry((script.up_bytes() + script.down_bytes()) / packet / 2).or_default() += 1;
    }
    // Rounds are geometric with mean 4; a round has 2/3 packets up and 4/3 down. Its variance is 12.
    let rounds = n as f64 * 4.0;
    let tolerance = 5.0 * (n as f64 * 12.0).sqrt();
    assert!((up as f64 - rounds * 2.0 / 3.0).abs() < tolerance, "{up}");
    assert!((down as f64 - rounds * 4.0 / 3.0).abs() < 2.0 * tolerance, "{down}");
    // Chi-squared with 5 degrees of freedom; 20.5 is its 0.1 % quantile.
    let chi_squared: f64 = (1..=6)
        .map(|length| {
            let tail = length == 6;
            let p = 0.75_f64.powi(length - 1) * if tail { 1.0 } else { 0.25 };
            let seen: u32 = match tail {
                true => lengths.range(6..).map(|(_, count)| count).sum(),
                false => lengths.get(&(length as u64)).copied().unwrap_or_default(),
            };
            let expected = n as f64 * p;
            (f64::from(seen) - expected).powi(2) / expected
        })
        .sum();
    assert!(chi_squared < 20.5, "{chi_squared}");
}

#[test]
fn short_delays_join_packets_and_long_ones_are_added_up() {
    let mut text = model();
    // Always: up, 4 ms, down, 20 ms, up, 4 ms, down.
    text["packet_model"]["emissions"]["a"] = json!({ "+": constant(1.0, 4000.0) });
    text["packet_model"]["transitions"] = json!({
        "start": { "a": 1 }, "a": { "b": 1 }, "b": { "c": 1 }, "c": { "d": 1 }, "d": { "end": 1 },
    });
    text["packet_model"]["emissions"]["c"] = json!({ "-": constant(1.0, 3000.0) });
    text["packet_model"]["emissions"]["d"] = json!({ "+": constant(1.0, 0.0) });
    let script = parse(&text).unwrap().script(rng(0), 1000);
    let burst = |pause_us, packets| Burst { pause_us, bytes: packets * PACKET_BYTES };
    // Up at 0 ms and, after 4 + 20 + 3 ms, again. Down: 4 ms are not waited for; 20 ms are.
    assert_eq!(script.up, [burst(0, 1), burst(27_000, 1)]);
    assert_eq!(script.down, [burst(0, 1), burst(20_000, 1)]);
    assert!(!script.cut);
}

#[test]
fn a_walk_without_an_end_is_cut() {
    let mut text = model();
    text["packet_model"]["transitions"]["b"] = json!({ "a": 1.0 });
    let script = parse(&text).unwrap().script(rng(0), 100);
    assert_eq!((script.up_bytes() + script.down_bytes()) / u64::from(PACKET_BYTES), 100);
    assert!(script.cut);
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut text = model();
        change(&mut text);
        let error = parse(&text).unwrap_err();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let cases: Vec<(String, &str)> = vec![
        (wrong(&|m| m["stream_model"] = Value::Null), "invalid type: null"),
        (wrong(&|m| drop(m.as_object_mut().unwrap().remove("packet_model"))), "missing field `packet_model`"),
        (
            wrong(&|m| m["packet_model"]["transitions"]["start"] = json!({})),
            "in packet_model, the transitions of the state \"start\" have no weight, or too much",
        ),
        (
            wrong(&|m| m["packet_model"]["transitions"]["a"]["x"] = json!(1)),
            "in packet_model, the state \"a\" leads to \"x\", which emits nothing",
        ),
        (
            wrong(&|m| m["packet_model"]["transitions"]["a"]["start"] = json!(1)),
            "in packet_model, the state \"a\" leads to \"start\", which emits nothing",
        ),
        (
            wrong(&|m| m["packet_model"]["transitions"]["x"] = json!({ "a": 1 })),
            "in packet_model, the state \"x\" has transitions and emits nothing",
        ),
        (
            wrong(&|m| m["stream_model"]["transitions"]["a"]["a"] = json!(-1)),
            "in stream_model, the transitions of the state \"a\" have the weight -1",
        ),
        (
            wrong(&|m| m["packet_model"]["emissions"]["b"]["?"] = constant(1.0, 1.0)),
            "in packet_model, the state \"b\" emits \"?\", which is not +, - or F",
        ),
        (
            wrong(&|m| m["packet_model"]["emissions"]["b"]["-"]["distribution"] = json!("zipf")),
            "in packet_model, the emission \"-\" of the state \"b\" has the unknown distribution \"zipf\"",
        ),
        (
            wrong(&|m| m["packet_model"]["emissions"]["b"]["-"]["distribution"] = json!("pareto")),
            "in packet_model, the emission \"-\" of the state \"b\" has no number as \"param_shape\"",
        ),
        (
            wrong(&|m| m["flow_model"]["emissions"]["a"]["+"]["param_rate"] = json!(0)),
            "in flow_model, the emission \"+\" of the state \"a\" has 0 as \"param_rate\", which must be positive",
        ),
        (
            wrong(&|m| m["packet_model"]["emissions"]["a"]["+"]["param_high"] = json!(1)),
            "in packet_model, the emission \"+\" of the state \"a\" has 4000 as its low and 1 as its high bound",
        ),
    ];
    for (said, expected) in cases {
        assert!(said.starts_with(expected), "{said:?} is not {expected:?}");
    }
    assert!(MarkovModel::parse("{").unwrap_err().contains("line 1"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.json");
    let error = MarkovModel::read(&path).unwrap_err().to_string();
    assert!(error.contains("model.json"), "{error}");
    std::fs::write(&path, "[]").unwrap();
    let error = MarkovModel::read(&path).unwrap_err().to_string();
    assert!(error.contains("model.json is no Markov model: "), "{error}");
    std::fs::write(&path, " ".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
    assert!(MarkovModel::read(&path).unwrap_err().to_string().contains("larger"));
    std::fs::write(&path, model().to_string()).unwrap();
    assert_eq!(MarkovModel::read(&path).unwrap(), parse(&model()).unwrap());
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}", at in 0_usize..2000, byte in 0_u8..128) {
        let _ = MarkovModel::parse(&text);
        let mut bent = model().to_string().into_bytes();
        let at = at % bent.len();
        bent[at] = byte;
        if let Ok(bent) = MarkovModel::parse(&String::from_utf8_lossy(&bent)) {
            let script = bent.script(rng(1), 50);
            assert!(script.up.len() + script.down.len() <= 50);
        }
    }
}
