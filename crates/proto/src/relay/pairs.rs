use super::shard::Relay;
use crate::endpoint::{ConnId, ConnectionEvent};
use crate::time::Instant;
impl Relay {
    pub(super) fn drain_port(&mut self, now: Instant, port: usize) {
        while let Some((conn, event)) = self.ports.0[port].endpoint.poll_event(now) {
            self.on_connection_event(now, port, conn, event);
        }
        self.ports.drain(&mut self.core, now, port);
    }
    fn on_connection_event(&mut self, _now: Instant, port: usize, conn: ConnId, event: ConnectionEvent) {
        if let Some(link) = self.ports.link(port, conn) {
            self.ports.on_event(&mut self.core, link, event);
        }
    }
}
