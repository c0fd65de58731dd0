//! Many clients that open circuits over chosen relays, as fast as those take them.
//!
//! A [`Crowd`] is some onion proxies, each with a thread and a TLS channel of its own. It is told how many circuits
//! there are to be, and says when they are there. Circuits stay open until the crowd is dropped.

use heddle_client::{Handshake, Hop, OnionProxy, ProxyEvent};
use heddle_control::Judge;
use heddle_net::{EventLoop, LoopHandle, Options};
use heddle_seam::language::Plain;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::rng::{Repeatable, Seed};
use heddle_seam::time::Instant;
use heddle_transport::tls::{TlsOptions, TlsTransport};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Who opens circuits, and over what.
#[derive(Clone, Debug)]
pub struct CrowdOptions {
    /// The relays of every circuit, the guard first.
    pub path: Vec<Hop>,
    /// How many onion proxies. A proxy looks through its circuits for each cell that it sends, so it should have few.
    pub proxies: usize,
    /// Circuits that each may have under way at once.
    pub in_flight: usize,
}

/// Clients at work; see the module.
pub struct Crowd {
    members: Vec<Member>,
    news: Receiver<News>,
    built: usize,
}

struct Member {
    wanted: Arc<AtomicUsize>,
    handle: LoopHandle<Plain>,
    thread: Option<JoinHandle<()>>,
}

/// What a proxy says: so many circuits more are there, or why one is not.
enum News {
    Built(usize),
    Failed(String),
}

impl Crowd {
    /// Starts the proxies, which do nothing yet.
    pub fn start(options: &CrowdOptions, seed: &Seed) -> Result<Crowd, Box<dyn Error>> {
        let (sender, news) = mpsc::channel();
        let mut crowd = Crowd { members: Vec::new(), news, built: 0 };
        for number in 0..options.proxies {
            crowd.members.push(Member::start(options, number, sender.clone(), seed)?);
        }
        Ok(crowd)
    }

    /// Opens circuits until there are so many in all, dealt out evenly.
    ///
    /// # Errors
    ///
    /// A circuit that could not be built, or none that was for so long.
    pub fn open(&mut self, circuits: usize, patience: Duration) -> Result<(), Box<dyn Error>> {
        let count = self.members.len();
        for (place, member) in self.members.iter().enumerate() {
            member.wanted.store(circuits / count + usize::from(place < circuits % count), Ordering::Relaxed);
            member.handle.control(()).map_err(|_| "a proxy has stopped")?;
        }
        while self.built < circuits {
            match self.news.recv_timeout(patience) {
                Ok(News::Built(more)) => self.built += more,
                Ok(News::Failed(why)) => return Err(format!("a circuit was not built: {why}").into()),
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = patience.as_secs();
                    return Err(format!("no circuit was built for {seconds} s, after {}", self.built).into());
                }
                Err(RecvTimeoutError::Disconnected) => return Err("the proxies have stopped".into()),
            }
        }
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.members.iter().for_each(|member| member.handle.stop());
        for thread in self.members.iter_mut().filter_map(|member| member.thread.take()) {
            // It panicked; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Member {
    fn start(
        options: &CrowdOptions,
        number: usize,
        news: Sender<News>,
        seed: &Seed,
    ) -> Result<Member, Box<dyn Error>> {
        let seed = seed.child("proxy", number as u64);
        let entropy = Box::new(Repeatable::new(&seed.child("tls", 0)));
        let transport = TlsTransport::new(TlsOptions::default(), None, Arc::new(Judge), entropy)?;
        let wanted = Arc::new(AtomicUsize::new(0));
        let client = CrowdNode {
            proxy: OnionProxy::new(Box::new(transport), Arc::default(), &seed),
            path: options.path.iter().map(|hop| (hop.clone(), Handshake::Ntor)).collect(),
            in_flight_max: options.in_flight,
            wanted: wanted.clone(),
            begun: 0,
            built: 0,
            news,
        };
        let event_loop = EventLoop::new(client, Options::default())?;
        let handle = event_loop.handle();
        let run = move || drop(event_loop.run());
        let thread = std::thread::Builder::new().name(format!("proxy {number}")).spawn(run)?;
        Ok(Member { wanted, handle, thread: Some(thread) })
    }
}

/// An onion proxy that builds circuits by itself.
struct CrowdNode {
    proxy: OnionProxy,
    path: Vec<(Hop, Handshake)>,
    in_flight_max: usize,
    wanted: Arc<AtomicUsize>,
    begun: usize,
    built: usize,
    news: Sender<News>,
}

impl CrowdNode {
    fn look(&mut self) {
        let before = self.built;
        for event in self.proxy.take_events() {
            match event {
                ProxyEvent::Built(_) => self.built += 1,
                ProxyEvent::CircuitClosed(_, why) => self.tell(News::Failed(why.to_string())),
                ProxyEvent::ChannelClosed(why) => self.tell(News::Failed(why.to_string())),
                ProxyEvent::Begun(_)
                | ProxyEvent::Connected(_)
                | ProxyEvent::Ended(..)
                | ProxyEvent::Answered(..) => {}
            }
        }
        if self.built > before {
            self.tell(News::Built(self.built - before));
        }
        let wanted = self.wanted.load(Ordering::Relaxed).min(self.built + self.in_flight_max);
        while self.begun < wanted {
            self.begun += 1;
            if self.proxy.build(self.path.clone()).is_none() {
                self.tell(News::Failed("the path has no address".to_owned()));
            }
        }
    }

    /// Whoever no longer listens has heard enough.
    fn tell(&self, news: News) {
        let _ = self.news.send(news);
    }
}

impl Node<Plain> for CrowdNode {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        Node::<Plain>::recv_buf(&mut self.proxy, socket)
    }

    fn handle_input(&mut self, now: Instant, input: Input<Plain>) {
        self.proxy.handle_input(now, input);
        self.look();
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<Plain> {
        self.proxy.poll_output(now, buf)
    }
}
