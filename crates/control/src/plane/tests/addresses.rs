//! A relay behind a translation of addresses, and one whose machine gets other addresses.

use super::*;
use heddle_proto::ids::RsaId;
use std::net::IpAddr;

/// The authority that the consensus of the tests lists.
const AUTHORITY: &str = "F0DEF88D0840A2A71EFA1E45EEC4C73307824447";
const SEEN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7));
const MINUTE: Duration = Duration::from_secs(60);

fn rsa(fingerprint: &str) -> RsaId {
    let byte = |place: usize| u8::from_str_radix(&fingerprint[2 * place..][..2], 16).unwrap();
    RsaId(std::array::from_fn(byte))
}

/// Where the consensus lists it.
const AT: [u8; 4] = [127, 0, 0, 1];
/// Where else it is.
const ALSO_AT: [u8; 4] = [198, 51, 100, 1];

/// A relay whose IPv4 address is to be learnt, and an authority of which the consensus comes.
fn world(options: ControlOptions) -> World {
    world_at(&["0.0.0.0:9001", "[2001:db8::5]:9002"], options)
}

fn addrs(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The same at these addresses.
fn world_at(advertised: &[&str], options: ControlOptions) -> World {
    let lines = [
        format!("a v3ident={V3_IDENT} {}:80 {AUTHORITY}", IpAddr::from(AT)),
        format!("b {}:80 {AUTHORITY}", IpAddr::from(ALSO_AT)),
    ];
    let authorities = lines.map(|line| DirAuthority::parse(&line, &mut Vec::new()).unwrap()).into();
    let options = ControlOptions { advertised: addrs(advertised), authorities, ..options };
    World::new(plane(options, NOW), NOW, vec![((AT, 80).into(), Manner::Honest)])
}

fn seen(ours: IpAddr) -> Told {
    Told::OurAddress { ours, by: rsa(AUTHORITY), at: (AT, 39833).into() }
}

fn last_post(world: &World) -> &str {
    let (_, post) = world.heard.iter().rfind(|(_, request)| request.starts_with("POST /tor/ ")).unwrap();
    post
}

/// The line `router` of the last descriptor, and the one of IPv6.
fn published(world: &World) -> (&str, &str) {
    let post = last_post(world);
    let line = |name: &str| post.lines().find(|line| line.starts_with(name)).unwrap();
    (line("router "), line("or-address "))
}

fn policies(world: &World) -> Vec<&ExitPolicy> {
    let policy = |wanted| match wanted {
        &Wanted::Tell { control: Control::ExitPolicy(ref policy), .. } => Some(policy),
        _ => None,
    };
    world.wanted.iter().filter_map(policy).collect()
}

#[test]
fn nothing_is_published_or_probed_until_an_authority_says_where_we_are() {
    for assume_reachable in [true, false] {
        let mut world = world(ControlOptions { assume_reachable, ..options(Vec::new()) });
        world.run(MINUTE * 5 - TICK, |_| false);
        assert_eq!((world.posts(), tells(&world, "ProbeReachability")), (0, 0));
        assert_eq!(tells(&world, "AskAddress"), 3, "at first, and after one minute and two more");
        world.wanted.clear();
        world.tell(seen(SEEN));
        world.run(TICK * 2, |_| false);
        assert_eq!(tells(&world, "Transport"), 2, "NETINFO of both shards names it");
        assert_eq!(tells(&world, "ProbeReachability"), usize::from(!assume_reachable));
        world.tell(Told::Reachable);
        world.run(TICK * 2, |_| false);
        assert_eq!(world.posts(), 1);
        let (router, ipv6) = published(&world);
        assert!(router.contains(" 198.51.100.7 9001 "), "{router}");
        assert_eq!(ipv6, "or-address [2001:db8::5]:9002");
        world.wanted.clear();
        world.run(MINUTE * 19, |_| false);
        assert_eq!(tells(&world, "AskAddress"), 0);
        world.run(MINUTE, |_| false);
        assert_eq!(tells(&world, "AskAddress"), 1, "such addresses change");
    }
}

#[test]
fn only_an_authority_is_believed_and_only_what_can_be() {
    let mut world = world(options(Vec::new()));
    world.run(TICK * 2, |_| false);
    let nobody = rsa("7CB873C68D304F6C3BBD11527AC4E2A0DE27E67B");
    let ours = |text: &str| seen(text.parse().unwrap());
    for told in [
        Told::OurAddress { ours: SEEN, by: nobody, at: (AT, 39833).into() },
        // Somebody may forward what we send there.
        Told::OurAddress { ours: SEEN, by: rsa(AUTHORITY), at: address(9) },
        // An authority that sees its own address is behind the same translation, or mistaken.
        Told::OurAddress { ours: ALSO_AT.into(), by: rsa(AUTHORITY), at: (ALSO_AT, 443).into() },
        ours("10.1.2.3"),
        ours("100.64.0.1"),
        ours("127.0.0.1"),
        ours("0.0.0.0"),
        ours("224.0.0.1"),
        ours("2001:4860:4860::8888"),
    ] {
        let what = format!("{told:?}");
        world.tell(told);
        world.run(TICK * 2, |_| false);
        assert_eq!(world.posts(), 0, "{what}");
    }
    world.tell(seen(SEEN));
    world.run(TICK * 2, |_| false);
    assert_eq!(world.posts(), 1);
}

#[test]
fn a_relay_that_knows_its_address_asks_and_believes_nobody() {
    let mut world = world(options(Vec::new()));
    world.plane.addresses = Addresses::new(&options(Vec::new()));
    assert!(Addresses::new(&world.plane.options).advertised().len() == 1, "of two one is learnt");
    world.run(MINUTE, |_| false);
    world.tell(seen(SEEN));
    world.run(MINUTE * 2, |_| false);
    assert_eq!((tells(&world, "AskAddress"), world.posts()), (0, 1));
    let (_, post) = world.heard.iter().rfind(|(_, request)| request.starts_with("POST ")).unwrap();
    assert!(post.contains(" 203.0.113.5 9001 "), "{post}");
}

#[test]
fn another_address_counts_once_it_was_told_twice() {
    let mut world = world(ControlOptions { assume_reachable: false, ..options(Vec::new()) });
    world.run(TICK * 2, |_| false);
    world.tell(seen(SEEN));
    world.tell(Told::Reachable);
    world.run(MINUTE * 2, |_| false);
    assert_eq!(world.posts(), 1);
    world.wanted.clear();
    let another = |last: u8| seen([198, 51, 100, last].into());
    // The same is no news, and each word that is not repeated at once is one of an authority that is mistaken.
    for told in [seen(SEEN), another(8), seen(SEEN), another(8), another(9)] {
        world.tell(told);
        world.run(MINUTE * 2, |_| false);
        assert_eq!((world.posts(), tells(&world, "Transport")), (1, 0));
    }
    let asked = tells(&world, "AskAddress");
    assert!(asked >= 3, "what is said once is soon asked for again, and not {asked} times");
    world.wanted.clear();
    world.tell(another(9));
    world.run(TICK * 2, |_| false);
    // Others reached us before, so it is published while they look whether they do now.
    assert_eq!((world.posts(), tells(&world, "Transport")), (2, 2));
    assert_eq!(tells(&world, "ProbeReachability"), 1);
    assert!(published(&world).0.contains(" 198.51.100.9 9001 "));
    world.tell(Told::Reachable);
    world.run(MINUTE * 2, |_| false);
    assert_eq!((world.posts(), tells(&world, "ProbeReachability")), (2, 1));
}

#[test]
fn another_authority_is_asked_whether_an_address_is_another() {
    let mut world = world(options(Vec::new()));
    // The consensus of the tests lists two relays.
    let other = "7CB873C743B09FBD91494A8237A7F87999EEEEC1";
    let line = format!("c {}:81 {other}", IpAddr::from(AT));
    world.plane.options.authorities.push(DirAuthority::parse(&line, &mut Vec::new()).unwrap());
    world.run(TICK * 2, |_| false);
    for (teller, asked) in [(AUTHORITY, other), (other, AUTHORITY)] {
        let tell = |ours| Told::OurAddress { ours, by: rsa(teller), at: (AT, 1).into() };
        world.tell(tell(SEEN));
        world.tell(tell([198, 51, 100, 8].into()));
        world.run(TICK, |_| false);
        world.wanted.clear();
        world.run(MINUTE * 3, |_| false);
        assert_eq!(asked_of(&world), [rsa(asked); 2], "after a minute and another");
        // It does not answer, so either may be asked.
        world.run(MINUTE * 300, |_| false);
        assert!(asked_of(&world).contains(&rsa(teller)));
    }
}

/// Who was asked.
fn asked_of(world: &World) -> Vec<RsaId> {
    let authority = |wanted: &Wanted| match wanted {
        Wanted::Tell { control: Control::AskAddress { authority, .. }, .. } => Some(authority.rsa),
        _ => None,
    };
    world.wanted.iter().filter_map(authority).collect()
}

#[test]
fn one_that_answers_nothing_is_asked_ever_more_slowly() {
    let mut world = world(options(Vec::new()));
    world.run(MINUTE * 16, |_| false);
    assert_eq!(tells(&world, "AskAddress"), 5, "after 0, 1, 3, 7 and 15 minutes");
    world.run(MINUTE * 60, |_| false);
    assert_eq!(tells(&world, "AskAddress"), 5 + 3, "and then after 31, 47 and 63");
}

#[test]
fn an_exit_leads_nobody_to_the_address_that_it_learnt() {
    for exit_rejects_own in [true, false] {
        let exit_policy = ExitPolicy::from_rules(&["accept *:80".parse().unwrap()]);
        let mut world = world(ControlOptions { exit_policy, exit_rejects_own, ..options(Vec::new()) });
        world.run(TICK * 2, |_| false);
        assert_eq!(policies(&world).len(), 0, "as at the start");
        world.tell(seen(SEEN));
        world.run(TICK * 2, |_| false);
        assert_eq!(policies(&world).len(), if exit_rejects_own { 2 } else { 0 });
        for policy in policies(&world) {
            assert!(!policy.allows(SEEN, 80));
            assert!(policy.allows([198, 51, 100, 8].into(), 80));
        }
        let (_, post) = world.heard.last().unwrap();
        assert_eq!(post.contains("\nreject 198.51.100.7:*\n"), exit_rejects_own);
        assert!(post.contains("\naccept *:80\n"));
        // A shard that missed it is told again.
        world.wanted.clear();
        world.tell(Told::Missed { shard: 1 });
        world.run(TICK * 2, |_| false);
        assert_eq!(policies(&world).len(), 1);
    }
}

/// What the driver finds when it looks at the machine's addresses.
fn found(texts: &[&str]) -> Told {
    Told::Addresses(addrs(texts))
}

/// The same twice, which is what counts.
fn moves(world: &mut World, texts: &[&str]) {
    (0..2).for_each(|_| world.tell(found(texts)));
}

/// Where the relay was last to be reached by its own probe.
fn probed(world: &World) -> &[SocketAddr] {
    let place = |wanted| match wanted {
        &Wanted::Tell { control: Control::ProbeReachability { ref ourselves, .. }, .. } => {
            Some(ourselves.addrs.as_slice())
        }
        _ => None,
    };
    world.wanted.iter().rev().find_map(place).unwrap()
}

#[test]
fn other_addresses_of_the_machine_are_tested_and_published() {
    let before = ["203.0.113.5:9001", "[2001:db8::5]:9001"];
    let after = ["203.0.113.6:9001", "[2001:db8::6]:9001"];
    let mut world = world_at(&before, ControlOptions { assume_reachable: false, ..options(Vec::new()) });
    world.run(TICK * 2, |_| false);
    world.tell(Told::Reachable);
    world.run(MINUTE * 3, |_| false);
    let looks = world.wanted.iter().filter(|wanted| matches!(wanted, Wanted::Addresses));
    assert_eq!(looks.count(), 3, "one a minute");
    assert_eq!((world.posts(), published(&world).1), (1, "or-address [2001:db8::5]:9001"));
    world.wanted.clear();
    world.tell(found(&before));
    world.run(MINUTE * 2, |_| false);
    let news = |world: &World| (tells(world, "Transport"), tells(world, "ProbeReachability"));
    assert_eq!((world.posts(), news(&world)), (1, (0, 0)), "the same is no news");

    world.tell(found(&after));
    world.tell(found(&before));
    world.tell(found(&after));
    world.run(TICK * 2, |_| false);
    assert_eq!((world.posts(), news(&world)), (1, (0, 0)), "one look may be mistaken");
    world.tell(found(&after));
    world.run(TICK * 2, |_| false);
    // NETINFO of both shards names them, and whether others reach us there is looked for.
    assert_eq!((world.posts(), news(&world)), (2, (2, 1)));
    assert_eq!(probed(&world), addrs(&after));
    let (router, ipv6) = published(&world);
    assert!(router.contains(" 203.0.113.6 9001 "), "{router}");
    assert_eq!(ipv6, "or-address [2001:db8::6]:9001");
    world.tell(Told::Reachable);
    world.run(TICK * 2, |_| false);
    world.wanted.clear();
    moves(&mut world, &after);
    world.run(MINUTE * 2, |_| false);
    assert_eq!((world.posts(), news(&world)), (2, (0, 0)));
}

#[test]
fn one_that_nobody_reached_yet_is_not_published_for_having_moved() {
    let options = ControlOptions { assume_reachable: false, ..options(Vec::new()) };
    let mut world = world_at(&["203.0.113.5:9001", "[2001:db8::5]:9001"], options);
    world.run(TICK * 2, |_| false);
    moves(&mut world, &["203.0.113.6:9001", "[2001:db8::5]:9001"]);
    world.run(MINUTE * 2, |_| false);
    assert_eq!(world.posts(), 0);
    world.tell(Told::Reachable);
    world.run(MINUTE * 2, |_| false);
    assert_eq!(world.posts(), 1);
    // Others dial the IPv4 address, which is the same.
    world.wanted.clear();
    moves(&mut world, &["203.0.113.6:9001"]);
    world.run(TICK * 2, |_| false);
    assert_eq!((world.posts(), tells(&world, "ProbeReachability")), (2, 0));
}

#[test]
fn ipv6_may_come_and_go_beside_an_address_that_stays() {
    let both = ["203.0.113.5:9001", "[2001:db8::5]:9001"];
    let mut world = world_at(&both, options(Vec::new()));
    world.run(MINUTE * 2, |_| false);
    moves(&mut world, &both[..1]);
    world.run(MINUTE * 2, |_| false);
    assert_eq!(world.posts(), 2);
    assert!(last_post(&world).contains(" 203.0.113.5 9001 ") && !last_post(&world).contains("\nor-address "));
    moves(&mut world, &both);
    world.run(TICK * 2, |_| false);
    assert_eq!((world.posts(), published(&world).1), (3, "or-address [2001:db8::5]:9001"));
}

#[test]
fn a_machine_that_is_behind_a_translation_now_asks_authorities_as_at_the_start() {
    let (own, none) = (["203.0.113.5:9001"], ["0.0.0.0:9001"]);
    let mut world = world_at(&own, options(Vec::new()));
    world.run(MINUTE * 2, |_| false);
    assert_eq!((world.posts(), tells(&world, "AskAddress")), (1, 0));
    moves(&mut world, &none);
    world.run(TICK * 2, |_| false);
    assert_eq!((world.posts(), tells(&world, "AskAddress")), (1, 1), "nothing is published yet");
    world.tell(seen(SEEN));
    world.run(TICK * 2, |_| false);
    assert_eq!(world.posts(), 2);
    assert!(last_post(&world).contains(" 198.51.100.7 9001 "));
    moves(&mut world, &none);
    world.run(MINUTE * 2, |_| false);
    assert_eq!(world.posts(), 2, "what was learnt stays");

    moves(&mut world, &own);
    world.run(TICK * 2, |_| false);
    assert_eq!(world.posts(), 3);
    assert!(last_post(&world).contains(" 203.0.113.5 9001 "));
    world.wanted.clear();
    world.tell(seen(SEEN));
    world.run(MINUTE * 30, |_| false);
    assert_eq!((world.posts(), tells(&world, "AskAddress")), (3, 0), "who knows it asks and believes nobody");
}

#[test]
fn an_exit_leads_nobody_to_an_address_that_the_machine_got() {
    let exit_policy = ExitPolicy::from_rules(&["accept *:80".parse().unwrap()]);
    let options = ControlOptions { exit_policy, ..options(Vec::new()) };
    let mut world = world_at(&["203.0.113.5:9001"], options);
    world.run(TICK * 2, |_| false);
    moves(&mut world, &["203.0.113.6:9001"]);
    world.run(TICK * 2, |_| false);
    assert_eq!(policies(&world).len(), 2, "one for each shard");
    for policy in policies(&world) {
        assert!(!policy.allows([203, 0, 113, 6].into(), 80) && policy.allows(SEEN, 80));
    }
    // A shard that missed it is told again.
    world.wanted.clear();
    world.tell(Told::Missed { shard: 1 });
    world.run(TICK * 2, |_| false);
    assert_eq!(policies(&world).len(), 1);
}
