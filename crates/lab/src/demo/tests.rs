use super::*;

#[test]
fn arms_say_what_they_are() {
    let mut options = DemoOptions::default();
    assert_eq!(options.arm_name(Arm::Heddle), "heddle");
    assert_eq!(options.arm_name(Arm::Stock), "stock");
    options.heddle_positions = vec!["middle".parse().unwrap()];
    assert_eq!(options.arm_name(Arm::Heddle), "heddle-middle");
    let names: Vec<_> = options.relays().into_iter().map(|relay| relay.nickname).collect();
    assert_eq!(names, ["stockguard", "heddlemiddle", "stockexit", "stockmiddle"]);
    options.heddle_positions.clear();
    assert!(options.validate().is_err());
    options.arms = vec![Arm::Stock];
    options.validate().unwrap();
    options.arms = vec![Arm::Stock, Arm::Stock];
    assert!(options.validate().is_err());
    let endless = DemoOptions { budget: Duration::from_secs(u64::MAX), ..DemoOptions::default() };
    assert!(endless.validate().is_err());
}

#[test]
fn every_relay_has_a_host_with_the_same_wires() {
    let options = DemoOptions { heddle_positions: vec![Position::Middle], ..DemoOptions::default() };
    let network = network::hosts(&options).unwrap();
    network.check().unwrap();
    let hosts: Vec<&str> = network.hosts.iter().map(|host| &*host.name).collect();
    let relays = ["stockguard", "heddlemiddle", "stockmiddle", "stockexit"];
    assert_eq!(hosts, [&["web", "bulk"][..], &relays, &["server", "authorities"]].concat());
    let wire = |from: &str, to: &str| {
        let found = network.wires.iter().find(|wire| wire.from == from && wire.to == to);
        found.unwrap_or_else(|| panic!("no wire from {from} to {to}")).there.clone()
    };
    assert_eq!(wire("stockguard", "heddlemiddle"), wire("stockguard", "stockmiddle"));
    assert_eq!(wire("heddlemiddle", "stockexit").delay_ns, 25_340_000);
    assert_eq!(wire("web", "stockguard"), wire("bulk", "stockguard"));
}

#[test]
fn the_drawing_has_the_networks_hosts_and_wires() {
    let tor = network::described(&DemoOptions::default()).unwrap();
    let groups: Vec<_> = tor.wires.iter().map(|group| (&*group.as_ref().name, group.as_ref())).collect();
    let names: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["clients", "", "", ""]);
    let clients = groups[0].1;
    assert_eq!(clients.between.len(), 2);
    assert_eq!(clients.there.rate, heddle_netem::Rate::BitsPerS(10_000_000));
    assert_eq!(clients.back.as_ref().unwrap().rate, heddle_netem::Rate::BitsPerS(50_000_000));
    assert_eq!(tor.relays[1].as_ref().up.rate, heddle_netem::Rate::BitsPerS(100_000_000));
}

#[test]
fn a_network_of_ones_own_needs_the_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("network.toml");
    let host = |name: &str| format!("[[host]]\nname = '{name}'\n");
    let names = ["web", "bulk", "guard", "middle", "exit", "server", "authorities"];
    let whole: String = names.map(host).concat();
    let hosts = |text: &str| {
        std::fs::write(&path, text).unwrap();
        network::hosts(&DemoOptions { network: Some(path.clone()), ..DemoOptions::default() })
    };
    assert_eq!(hosts(&whole).unwrap().hosts.len(), 10);
    assert!(hosts(&whole.replace("middle", "centre")).unwrap_err().to_string().contains("\"middle\""));
    let fixed = whole.replace("'exit'", "'exit'\naddresses = ['10.1.0.1']");
    assert!(hosts(&fixed).unwrap_err().to_string().contains("cannot have addresses"));
}
