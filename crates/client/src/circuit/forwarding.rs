//! A circuit whose cells are datagrams (`heddle_forwarding`): the client's end of it.
//!
//! 1. All hops are joined. [`OriginCircuit::forward_datagrams`] asks each, by a relay cell.
//! 2. When all have answered, [`OriginEvent::Forwarding`] says so, and what is said to the last hop goes as datagrams.

use super::{Fault, OriginCell, OriginCircuit, OriginError, OriginEvent};
use heddle_forwarding::{DIGEST, Forward, Forwarded, HopKeys, HopLayer, Part, Session, SessionStats};
use heddle_proto::cell::relay::{self, DATA_LEN, RelayCommand};
use heddle_proto::cell::{BODY_LEN, Body, Command};
use heddle_seam::time::Instant;
use heddle_utcp::BufferPool;
use zeroize::Zeroizing;

/// What TCP may hold of one circuit's bytes: a window in either direction, and a reserve.
const POOL_BYTES: usize = 4 << 20;
/// Datagrams wait in the session, which knows best what leaves next, and only so many for the channel.
const WAITING_MAX: usize = 8;

/// What was asked of the hops, and what came of it.
pub(super) struct Forwarding {
    keys: Vec<HopKeys>,
    /// Whether each has answered.
    answers: Vec<bool>,
    running: Option<Running>,
}

struct Running {
    /// Those of all hops but the last.
    layers: Vec<HopLayer>,
    session: Box<Session>,
}

impl OriginCircuit {
    /// Asks all hops to let this circuit's cells be datagrams, before the first stream begins.
    ///
    /// # Errors
    ///
    /// When streams exist, or a hop is being joined, or there is none.
    pub fn forward_datagrams(&mut self) -> Result<(), OriginError> {
        self.check_idle()?;
        let hops = self.hops();
        if hops == 0 || self.end.is_some() || self.forwarding.is_some() {
            return Err(OriginError::State);
        }
        let keys: Vec<_> = (0..hops).map(|_| HopKeys::new(self.rng.array(), self.rng.array())).collect();
        for (hop, keys) in keys.iter().enumerate() {
            let part = if hop + 1 == hops { Part::End } else { Part::Pass };
            let mut data = Zeroizing::new(Vec::with_capacity(DATA_LEN));
            Forward { part, keys: keys.clone() }.encode(&mut data);
            self.send_as(Command::RELAY, hop, RelayCommand::FORWARD, None, &data);
        }
        self.forwarding = Some(Box::new(Forwarding { answers: vec![false; hops], keys, running: None }));
        Ok(())
    }

    /// Whether what is said to the last hop goes as datagrams.
    pub fn forwards_datagrams(&self) -> bool {
        self.session().is_some()
    }

    /// Whether hops were asked and have not all answered.
    pub(super) fn is_forwarding_asked(&self) -> bool {
        self.forwarding.as_ref().is_some_and(|forwarding| forwarding.running.is_none())
    }

    fn session(&self) -> Option<&Session> {
        Some(&self.forwarding.as_ref()?.running.as_ref()?.session)
    }

    fn session_mut(&mut self) -> Option<&mut Session> {
        Some(&mut self.forwarding.as_mut()?.running.as_mut()?.session)
    }

    /// What its session has done so far, once it has one.
    pub fn session_stats(&self) -> Option<SessionStats> {
        self.session().map(Session::stats)
    }

    /// A hop answered.
    pub(super) fn on_forwarded(&mut self, now: Instant, hop: usize, data: &[u8]) -> Result<(), Fault> {
        let hops = self.hops();
        let forwarding = self.forwarding.as_mut().ok_or("FORWARDED that nobody asked for")?;
        let part = if hop + 1 == hops { Part::End } else { Part::Pass };
        let is_right = Forwarded::parse(data) == Some(Forwarded(part));
        let answer = forwarding.answers.get_mut(hop).filter(|answer| is_right && !**answer);
        *answer.ok_or("FORWARDED that does not fit")? = true;
        if forwarding.answers.iter().all(|answer| *answer)
            && let Some((end, others)) = forwarding.keys.split_last()
        {
            let layers = others.iter().map(HopLayer::new).collect();
            let session = Box::new(Session::connect(now, end, BufferPool::new(POOL_BYTES)));
            forwarding.running = Some(Running { layers, session });
            forwarding.keys.clear();
            self.events.push_back(OriginEvent::Forwarding);
        }
        Ok(())
    }

    /// A DATAGRAM cell came. Before all hops have answered none is expected, and the last hop sends none unasked.
    pub(super) fn on_datagram(&mut self, now: Instant, body: &Body) -> Result<(), Fault> {
        let forwarding = self.forwarding.as_mut().and_then(|forwarding| forwarding.running.as_mut());
        let Some(Running { layers, session }) = forwarding else { return Ok(()) };
        let mut body = *body;
        layers.iter().for_each(|layer| layer.backward(&mut body));
        session.handle_cell(now, &mut body).map_err(|fault| fault.0)?;
        let mut message = [0; BODY_LEN];
        while let Some(session) = self.session_mut()
            && session.next_message(now, &mut message).map_err(|fault| fault.0)?
        {
            let (header, data) = relay::parse(&message).map_err(|_| "a message that is too long")?;
            match header.command {
                RelayCommand::MEASURED => self.on_measured(self.hops() - 1, data)?,
                _ => self.on_end_cell(now, header, data, DIGEST)?,
            }
        }
        self.check_session()
    }

    /// TCP to the last hop ends no sooner than the circuit.
    fn check_session(&self) -> Result<(), Fault> {
        let is_over = self.session().is_some_and(Session::is_over);
        if is_over { Err("the last hop's TCP is over") } else { Ok(()) }
    }

    /// Says something to the last hop as a message of its session. False when it has none.
    pub(super) fn send_message(&mut self, body: &Body) -> bool {
        let Some(session) = self.session_mut() else { return false };
        if let Err(fault) = session.send(body) {
            self.end_for(fault.0);
        }
        true
    }

    /// Messages that wait for the session's TCP, in cells.
    pub(super) fn waiting_messages(&self) -> usize {
        self.session().map_or(0, |session| session.queued_cells() as usize)
    }

    /// Makes the datagrams that are to leave now, as far as the channel takes them soon.
    pub(crate) fn pump_session(&mut self, now: Instant) {
        let running = self.forwarding.as_mut().and_then(|forwarding| forwarding.running.as_mut());
        let Some(Running { layers, session }) = running.filter(|_| !self.closed) else { return };
        while self.out.len() < WAITING_MAX {
            let mut body = [0; BODY_LEN];
            if !session.poll_cell(now, &mut body) {
                break;
            }
            layers.iter().for_each(|layer| layer.forward(&mut body));
            self.out.push_back(OriginCell { command: Command::DATAGRAM, body });
        }
        // TCP finds that it has tried often enough when it is asked for what leaves.
        if let Err(fault) = self.check_session() {
            self.end_for(fault);
        }
    }

    /// When [`OriginCircuit::handle_session_timeout`] is to be called, if cells do not wait for the channel anyway.
    pub(crate) fn session_timeout(&self) -> Option<Instant> {
        self.session().filter(|_| !self.closed && self.out.len() < WAITING_MAX)?.poll_timeout()
    }

    /// The session's time has come, if it has.
    pub(crate) fn handle_session_timeout(&mut self, now: Instant) {
        if let Some(session) = self.session_mut() {
            session.handle_timeout(now);
        }
        if let Err(fault) = self.check_session() {
            self.end_for(fault);
        }
    }
}
