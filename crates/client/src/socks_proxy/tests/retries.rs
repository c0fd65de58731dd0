//! What becomes of requests when exits refuse them or do not answer, and of circuits when guards do not.

use super::*;

/// Paths are chosen, and relays answer.
fn choosing(names: &[&str], guards: u8) -> World {
    choosing_with(SocksOptions::default(), names, guards)
}

fn choosing_with(options: SocksOptions, names: &[&str], guards: u8) -> World {
    let mut world = World::silent(options);
    (world.builds, world.connects) = (true, true);
    world.input(Input::Control(world.directory(names, guards)));
    world
}

impl World {
    /// The exit of the last BEGIN refuses it. Returns its number.
    fn refuse(&mut self, reason: EndReason) -> u8 {
        let stream = self.last_begin();
        self.say(stream, RelayCommand::END, &[reason.0, 127, 0, 0, 1, 0, 0, 0, 60]);
        self.exits[&stream.0]
    }

    fn begins(&self) -> usize {
        self.said.iter().filter(|(_, command, ..)| *command == RelayCommand::BEGIN).count()
    }

    /// Time passes, second by second.
    fn wait(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| self.pass(SECOND));
    }
}

#[test]
fn a_refused_request_goes_to_another_exit_each_time() {
    for (reason, reply, stays) in [(EndReason::EXITPOLICY, 2, true), (EndReason::RESOLVEFAILED, 4, false)] {
        let mut world = choosing(&["guard", "a", "b", "c", "d", "e"], 1);
        let socket = world.ask(None);
        let mut circuits = BTreeSet::new();
        let exits: BTreeSet<u8> = (0..3)
            .map(|_| {
                circuits.insert(world.last_begin().0);
                world.refuse(reason)
            })
            .collect();
        assert_eq!((exits.len(), world.last_reply(socket)), (3, reply), "{reason:?}");
        assert!(world.programs[&socket].is_closed);
        // A policy is about one address. Who failed otherwise gets no more streams.
        world.ask(None);
        assert_eq!(circuits.contains(&world.last_begin().0), stays, "{reason:?}");
    }
}

#[test]
fn where_no_other_exit_is_left_the_refusal_is_told() {
    let mut world = choosing(&["guard", "middle", "exit"], 2);
    let socket = world.ask(None);
    world.refuse(EndReason::EXITPOLICY);
    assert_eq!((world.begins(), world.last_reply(socket)), (1, 2));
    let told = world.events.iter().filter(|event| matches!(event, SocksEvent::NoPath { .. })).count();
    assert_eq!(told, 0, "there is a path for others");
}

/// Where there are as many circuits as may be, the oldest idle one gives way, if another can take its place.
#[test]
fn an_idle_circuit_gives_way_only_to_one_that_has_a_path() {
    let options = SocksOptions { circuits_max: 2, ..SocksOptions::default() };
    let mut world = choosing_with(options, &["guard", "middle", "exit"], 2);
    let has_first = |world: &World| world.proxy.proxy.has_circuit(CircuitNumber(0));
    let idle = world.ask(Some(b'a'));
    world.ask(Some(b'b'));
    world.refuse(EndReason::EXITPOLICY);
    world.ask(Some(b'b'));
    world.input(Input::Eof { socket: idle });
    world.refuse(EndReason::EXITPOLICY);
    assert!(has_first(&world), "no other exit was left to try");
    world.ask(Some(b'c'));
    assert!(!has_first(&world) && world.begins() == 4);
}

#[test]
fn a_circuit_whose_exit_does_not_answer_is_left_for_another() {
    let mut world = choosing(&["guard", "a", "b", "c", "d"], 1);
    let socket = world.ask(None);
    let mut circuits = vec![world.last_begin().0];
    for _ in 0..2 {
        world.wait(16);
        circuits.push(world.last_begin().0);
    }
    world.wait(90);
    assert_eq!((world.begins(), world.last_reply(socket)), (3, 6), "TTL expired");
    world.ask(None);
    circuits.push(world.last_begin().0);
    circuits.sort();
    circuits.dedup();
    assert_eq!(circuits.len(), 4);
}

#[test]
fn a_stream_that_was_promised_and_never_opened_is_reset() {
    let mut world = World::new(SocksOptions { optimistic: true, ..SocksOptions::default() });
    let (unanswered, circ_id) = (world.ask(None), world.last_begin().0);
    let opened = world.ask(None);
    world.say(world.last_begin(), RelayCommand::CONNECTED, &[127, 0, 0, 1, 0, 0, 0, 60]);
    world.wait(121);
    assert!(world.programs[&unanswered].is_reset && !world.programs[&opened].is_reset);
    world.ask(None);
    assert_ne!(world.last_begin().0, circ_id);
}

/// The circuit that a request has claimed may never be built.
#[test]
fn a_built_circuit_is_taken_before_one_that_is_not() {
    let mut world = World::new(SocksOptions::default());
    world.builds = false;
    world.ask(Some(b'a'));
    world.builds = true;
    world.ask(Some(b'b'));
    assert_eq!(world.begins(), 2, "no time has passed");
    assert!(
        !world.proxy.proxy.has_circuit(CircuitNumber(3)),
        "the one that was left is ahead of the next request"
    );
}

#[test]
fn a_guard_that_does_not_answer_gives_way_to_another() {
    for connects in [false, true] {
        let mut world = World::silent(SocksOptions::default());
        world.connects = connects;
        world.input(Input::Control(world.directory(&["a", "b", "c", "exit", "other"], 3)));
        assert_eq!(world.dialled.len(), 1);
        (world.builds, world.connects) = (true, true);
        world.wait(63);
        let first = world.dialled[0];
        assert!(world.dialled.len() == 2 && world.dialled[1] != first, "{:?}", world.dialled);
        let why = |event: &SocksEvent| match event {
            SocksEvent::Closed { why, .. } => Some(why.clone()),
            _ => None,
        };
        let why = world.events.iter().find_map(why).unwrap();
        let name = ["a", "b", "c"][usize::from(first) - 1];
        assert_eq!(why, format!("{name} did not answer in time"));
        assert!(world.events.iter().any(|event| matches!(event, SocksEvent::Built { .. })));
    }
}

#[test]
fn a_guard_that_refuses_gives_way_to_another() {
    let mut world = World::silent(SocksOptions::default());
    world.connects = true;
    world.input(Input::Control(world.directory(&["a", "b", "c", "exit", "other"], 3)));
    let circ_id = world.proxy.proxy.circ_id(CircuitNumber(0)).unwrap();
    world.builds = true;
    world.feed_guard(&cell(circ_id, Command::DESTROY, &[0; BODY_LEN]));
    world.settle();
    world.wait(2);
    assert!(world.dialled.len() == 2 && world.dialled[1] != world.dialled[0], "{:?}", world.dialled);
}

/// Circuits that nobody answers are given up after a minute, and begun anew, later each time; requests wait meanwhile.
#[test]
fn circuits_that_are_not_built_are_begun_anew() {
    let mut world = World::new(SocksOptions::default());
    world.builds = false;
    let first = world.ask(Some(b'x'));
    let second = world.ask(Some(b'y'));
    let built = world.layers.len();
    world.pass(Duration::from_secs(61));
    let closed = world.events.iter().filter(|event| matches!(event, SocksEvent::Closed { .. })).count();
    assert_eq!((closed, built), (2, 1), "the one for `y`, and the one ahead");
    world.builds = true;
    for _ in 0..20 {
        world.pass(SECOND);
    }
    let stream = world.last_begin();
    world.say(stream, RelayCommand::CONNECTED, &[]);
    assert_eq!(world.last_reply(second), 0);
    assert!(!world.programs[&first].is_closed, "its circuit was there before");
}

#[test]
fn a_lost_channel_is_dialled_again() {
    let mut world = World::new(SocksOptions::default());
    let (open, _) = world.open(None);
    let before = world.guard.unwrap();
    world.layers.clear();
    world.input(Input::Failed { socket: before, error: SocketError::Reset });
    assert!(world.programs[&open].is_reset);
    for _ in 0..3 {
        world.pass(SECOND);
    }
    assert_ne!(world.guard, Some(before));
    world.open(None);
}
