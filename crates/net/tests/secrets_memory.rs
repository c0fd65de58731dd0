//! What handshakes leave in memory when they are over: they go from a loop to a worker and back through queues, and
//! what was moved out of a queue is still in it. Memory is the process's, so this test is alone in its program.

#![allow(clippy::disallowed_methods, reason = "a driver's tests know the system")]

use heddle_net::{EventLoop, Options, Workers};
use heddle_proto::crypto::onionskin::{ClientHandshake, HandshakeType, OnionKeys};
use heddle_proto::crypto::{CircuitKeys, NtorKeypair, RelayLayer};
use heddle_relay::{Input, Job, JobResult, Output, RelayLanguage};
use heddle_seam::node::{JobId, Node, SocketId};
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const HANDSHAKES: u64 = 1_000;
/// Stacks of the threads at work keep what the last few calls left.
const LEFT_MAX: usize = 20;
/// The test must not find what it looks for in itself.
const MASK: u64 = 0x5bd1_e995_7f4a_7c15;

/// The first words of secrets, each masked.
#[derive(Clone, Default)]
struct Marks(Arc<Mutex<HashSet<u64>>>);

impl Marks {
    fn note(&self, secret: &[u8]) {
        let word = u64::from_le_bytes(*secret.first_chunk().expect("a secret is longer"));
        self.0.lock().expect("nobody panicked").insert(word ^ MASK);
    }

    /// How many of them are in memory.
    fn found(&self) -> usize {
        let marks = self.0.lock().expect("nobody panicked").clone();
        let mut by_end = vec![false; 1 << 16];
        marks.iter().for_each(|mark| by_end[((mark ^ MASK) & 0xffff) as usize] = true);
        let mut found = HashSet::new();
        let memory = File::open("/proc/self/mem").expect("Linux");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        let mut buffer = vec![0; 1 << 20];
        for line in maps.lines().filter(|line| line.contains(" rw")) {
            let (first, rest) = line.split_once('-').expect("a range");
            let end = rest.split(' ').next().expect("its end");
            let [mut at, end] = [first, end].map(|hex| u64::from_str_radix(hex, 16).expect("a number"));
            let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + buffer.len() as u64;
            while at < end {
                let len = buffer.len().min((end - at) as usize);
                let is_own = own.start < at + len as u64 && at < own.end;
                if !is_own && memory.read_exact_at(&mut buffer[..len], at).is_ok() {
                    for bytes in buffer[..len].windows(8) {
                        let word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                        if by_end[(word & 0xffff) as usize] && marks.contains(&(word ^ MASK)) {
                            found.insert(word ^ MASK);
                        }
                    }
                }
                at += len as u64;
            }
        }
        found.len()
    }
}

/// Bytes that look like a secret's.
fn secret<const LEN: usize>(number: u64) -> [u8; LEN] {
    let mut state = number + 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    })
}

/// Has all handshakes wait for the worker, and then all results for the loop.
struct Handshakes {
    asked: u64,
    answered: u64,
    marks: Marks,
    keys: Arc<OnionKeys>,
    onionskin: Vec<u8>,
    release: Option<mpsc::Sender<()>>,
    released: Option<mpsc::Receiver<()>>,
    worked: mpsc::Receiver<()>,
    has_worked: Option<mpsc::Sender<()>>,
    over: mpsc::Sender<()>,
}

impl Handshakes {
    fn job(&mut self, number: u64) -> Job {
        if number == 0 {
            let released = self.released.take().expect("it begins once");
            return Job::Channel(Box::new(move || {
                let _ = released.recv();
                Box::new(())
            }));
        }
        if number > HANDSHAKES {
            let worked = self.has_worked.take().expect("it ends once");
            return Job::Channel(Box::new(move || {
                let _ = worked.send(());
                Box::new(())
            }));
        }
        Job::Onionskin {
            keys: self.keys.clone(),
            handshake: HandshakeType::Ntor,
            onionskin: self.onionskin.clone(),
            congestion: None,
            seed: Seed::from_bytes(&secret(number)),
        }
    }
}

impl Node<RelayLanguage> for Handshakes {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, _: Instant, input: Input) {
        let Input::Computed { result, .. } = input else { return };
        if self.answered == 0 {
            self.worked.recv().expect("the worker comes to the end");
        }
        self.answered += 1;
        if let JobResult::Onionskin(answer) = result {
            self.marks.note(answer.expect("the onionskin is good").keys.nonce());
        }
        if self.answered == HANDSHAKES + 2 {
            self.over.send(()).expect("the test waits");
        }
    }

    fn poll_output(&mut self, _: Instant, _: &mut Vec<u8>) -> Output {
        if self.asked < HANDSHAKES + 2 {
            let number = self.asked;
            self.asked += 1;
            return Output::Compute { id: JobId(number), job: self.job(number) };
        }
        self.release.take();
        Output::Timeout(None)
    }
}

#[test]
fn handshakes_that_are_over_leave_no_secret_in_memory() {
    let marks = Marks::default();
    (1..=HANDSHAKES).for_each(|number| marks.note(&secret::<32>(number)));
    let keypair = NtorKeypair::from_secret(&[3; 32]);
    let (_, onionskin) = ClientHandshake::ntor(&[1; 20], keypair.public(), &mut Seed::from_number(0).rng());
    let keys = OnionKeys { rsa_id: [1; 20], ed25519_id: [2; 32], ntor_current: keypair, ntor_previous: None };
    let (release, released) = mpsc::channel();
    let (has_worked, worked) = mpsc::channel();
    let (over, is_over) = mpsc::channel();
    let node = Handshakes {
        asked: 0,
        answered: 0,
        marks: marks.clone(),
        keys: Arc::new(keys),
        onionskin,
        release: Some(release),
        released: Some(released),
        worked,
        has_worked: Some(has_worked),
        over,
    };
    let workers = Workers::start(1, 4096).expect("a thread");
    let mut event_loop = EventLoop::new(node, Options::default()).expect("a loop");
    event_loop.set_workers(&workers);
    let handle = event_loop.handle();
    let running = thread::spawn(move || event_loop.run().expect("it runs"));
    is_over.recv().expect("all are answered");
    // The loop and the workers, and so their queues, are still there.
    let found = marks.found();
    assert!(found <= LEFT_MAX, "{found} of {} seeds and keys are still in memory", 2 * HANDSHAKES);
    handle.stop();
    running.join().expect("nobody panicked");

    // Until its first cell comes, a layer keeps the seeds of its digests as they are.
    let marks = Marks::default();
    // Every other one stays, so that the memory between them does.
    let mut layers: Vec<_> = (0..2 * HANDSHAKES)
        .map(|number| {
            let material = secret(HANDSHAKES + 1 + number);
            if number % 2 == 0 {
                marks.note(&material);
            }
            Some(Box::new(RelayLayer::new(&CircuitKeys::from_bytes(&material))))
        })
        .collect();
    assert!(marks.found() > HANDSHAKES as usize / 2, "what is there is found");
    layers.iter_mut().step_by(2).for_each(|layer| drop(layer.take()));
    let found = marks.found();
    assert!(found <= LEFT_MAX, "{found} of {HANDSHAKES} digests' seeds are still in memory");
    drop(layers);
}
