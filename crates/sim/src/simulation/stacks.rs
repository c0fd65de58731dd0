//! Stacks of nodes' own: kernels that are joined to a node in the place of the wires.

use super::kernel::{Kernel, Owner, options};
use super::{ActorId, Due, HostId, KernelId, Simulation};
use crate::trace::Kind;
use heddle_seam::datagrams::Packets;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, StackId, StackOptions};
use heddle_utcp::Options;

/// As many packets as a kernel leaves together to a device that cuts them.
const TOGETHER_MAX: usize = 44;
/// Headers of IPv4 and TCP without options.
const HEADERS_BYTES: u16 = 40;

/// A stack that was opened.
pub(crate) struct Stack {
    pub options: StackOptions,
    pub kernel: KernelId,
    /// Packets that the node is about to get.
    waiting: Vec<Vec<u8>>,
}

impl<L: Language> Simulation<L> {
    /// Opens a stack of a shard's. It stays, and goes and comes with the shard's process.
    pub fn open_stack(&mut self, host: HostId, shard: usize, stack: StackId, options: StackOptions) {
        let actor = self.actor(host, shard);
        let kernel = self.stack_kernel(actor, stack, &options);
        self.stacks.insert((actor, stack), Stack { options, kernel, waiting: Vec::new() });
    }

    fn stack_kernel(&mut self, actor: ActorId, stack: StackId, options_of_it: &StackOptions) -> KernelId {
        let kernel = KernelId(self.kernels.len());
        let tcp = Options {
            mss_bytes: options_of_it.packet_bytes_max - HEADERS_BYTES,
            ..options(self.options.receive_buffer_max_bytes)
        };
        let seed = self.seed.child("stack", kernel.0 as u64);
        self.kernels.push(Kernel::new(Owner::Stack(actor, stack), options_of_it.ports, tcp, &seed));
        kernel
    }

    /// A node's process was killed: its stacks say nothing any more.
    pub(crate) fn drop_stacks(&mut self, actor: ActorId) {
        for stack in self.stacks_of(actor) {
            let state = &mut self.stacks.get_mut(&(actor, stack)).expect("it was listed");
            state.waiting.clear();
            let kernel = &mut self.kernels[state.kernel.0];
            kernel.owner = Owner::Nobody;
            kernel.sockets.clear();
        }
    }

    /// It was started anew, and so are they.
    pub(crate) fn renew_stacks(&mut self, actor: ActorId) {
        for stack in self.stacks_of(actor) {
            let options = self.stacks[&(actor, stack)].options;
            let kernel = self.stack_kernel(actor, stack, &options);
            self.stacks.get_mut(&(actor, stack)).expect("it was listed").kernel = kernel;
        }
    }

    fn stacks_of(&self, actor: ActorId) -> Vec<StackId> {
        let all = (actor, StackId(0))..=(actor, StackId(u8::MAX));
        self.stacks.range(all).map(|((_, stack), _)| *stack).collect()
    }

    /// A stack sends a packet, of which its node hears at the same instant, with those of the same length that come
    /// right behind it and one that is shorter.
    pub(crate) fn send_packet(&mut self, actor: ActorId, stack: StackId, packet: Vec<u8>) {
        let life = self.actors[actor.0].life;
        let waiting = &mut self.stacks.get_mut(&(actor, stack)).expect("the kernel is a stack's").waiting;
        let fits = waiting.last().zip(waiting.first()).is_some_and(|(last, first)| {
            last.len() == first.len() && packet.len() <= first.len() && waiting.len() < TOGETHER_MAX
        });
        if !fits {
            let before = std::mem::take(waiting);
            if !before.is_empty() {
                self.queue.push(self.now, Due::Packets(actor, life, stack, before));
            }
        }
        self.stacks.get_mut(&(actor, stack)).expect("it was there").waiting.push(packet);
    }

    /// No more packets follow at the moment.
    pub(crate) fn flush_packets(&mut self, actor: ActorId, stack: StackId) {
        let state = self.stacks.get_mut(&(actor, stack)).expect("the kernel is a stack's");
        let waiting = std::mem::take(&mut state.waiting);
        if !waiting.is_empty() {
            self.queue.push(self.now, Due::Packets(actor, self.actors[actor.0].life, stack, waiting));
        }
    }

    /// Hands a node what its stack sends.
    pub(crate) fn on_stack_packets(&mut self, actor: ActorId, stack: StackId, together: &[Vec<u8>]) {
        let data = together.concat();
        let len = data.len() as u64;
        let stride = together.first().map_or(1, Vec::len);
        let packets = Packets { stride, data: data[..].into() };
        self.input(actor, Kind::Packets, stack.0.into(), len, Input::Packets { stack, packets });
    }

    /// Hands a stack the packets that its node appended to the buffer.
    pub(crate) fn receive_packets(&mut self, actor: ActorId, stack: StackId, stride: usize) {
        assert!(stride > 0, "packets have a length");
        let bytes = std::mem::take(&mut self.buf);
        let len = bytes.len() as u64;
        self.trace.record(self.now, actor.0, Kind::SendPackets, stack.0.into(), len, &[]);
        let open = self.stacks.get(&(actor, stack));
        let kernel = open.expect("a node names only stacks that were opened").kernel;
        for packet in bytes.chunks(stride) {
            self.kernels[kernel.0].tcp.handle_packet(self.now, packet);
        }
        self.pump(kernel);
        self.buf = bytes;
    }
}
