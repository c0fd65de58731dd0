//! What a loop has done so far, for metrics and for tests that hold down system calls.

/// Totals since a loop started. Each names system calls unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `epoll_pwait2`: how often the loop looked for work.
    pub waits: u64,
    /// Waits that were allowed to sleep, because nothing was left to do.
    pub sleeps: u64,
    /// Sleeps before a wait, so that turns which move little are not too many.
    pub rests: u64,
    /// Events that the waits returned (not calls).
    pub events: u64,
    /// `epoll_ctl`.
    pub epoll_ctls: u64,
    pub accepts: u64,
    /// Accepts that found the process out of descriptors or memory; accepting paused after each.
    pub accepts_out_of_resources: u64,
    pub connects: u64,
    pub recvs: u64,
    /// Receives that found nothing.
    pub recvs_empty: u64,
    /// Bytes received.
    pub recv_bytes: u64,
    pub sends: u64,
    /// Sends that the kernel cut short or refused because its buffer was full.
    pub sends_blocked: u64,
    /// Bytes that the kernel took to send.
    pub send_bytes: u64,
    /// `getsockopt` of TCP_INFO: how often the kernel was asked how much may be on its way.
    pub window_asks: u64,
    /// Receives from UDP ports.
    pub datagram_recvs: u64,
    /// Datagrams received (not calls).
    pub datagrams_received: u64,
    /// Bytes of datagrams received.
    pub datagram_recv_bytes: u64,
    /// Sends from UDP ports.
    pub datagram_sends: u64,
    /// Datagrams that the kernel took to send (not calls).
    pub datagrams_sent: u64,
    /// Bytes of datagrams that the kernel took to send.
    pub datagram_send_bytes: u64,
    /// Sends from UDP ports that the kernel had no room for.
    pub datagram_sends_blocked: u64,
    /// Datagrams that were not sent, because too many waited already or the kernel refused them (not calls).
    pub datagrams_dropped: u64,
    /// Reads of stacks' devices.
    pub stack_recvs: u64,
    /// Packets that stacks sent, as they are on a wire (not calls).
    pub stack_packets_received: u64,
    /// Writes to stacks' devices.
    pub stack_sends: u64,
    /// Packets that stacks took (not calls).
    pub stack_packets_sent: u64,
    /// Of [`Counters::recv_bytes`], those of sockets on stacks, whose packets had come in datagrams.
    pub stack_recv_bytes: u64,
    /// Of [`Counters::send_bytes`], those of sockets on stacks, whose packets leave in datagrams.
    pub stack_send_bytes: u64,
    /// Packets that a stack did not take (not calls).
    pub stack_packets_lost: u64,
    /// Sockets opened, by us or by peers (not calls).
    pub sockets_opened: u64,
    /// Sockets closed, whatever the reason (not calls).
    pub sockets_closed: u64,
    /// Inputs handed to the node (not calls).
    pub inputs: u64,
    /// Jobs run on the loop itself because the workers' queue was full (not calls).
    pub jobs_inline: u64,
}

impl Counters {
    /// Bytes that went in or out so far.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.recv_bytes + self.send_bytes + self.datagram_recv_bytes + self.datagram_send_bytes
    }
}
