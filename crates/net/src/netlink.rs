//! Setting up the devices, addresses and routes of the calling thread's network namespace (rtnetlink(7)).

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

// From linux/netlink.h, linux/rtnetlink.h, linux/if_link.h and linux/if_addr.h.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
const RTAX_CC_ALGO: u16 = 16;
const RT_TABLE_MAIN: u8 = 254;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_KERNEL: u8 = 2;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RT_SCOPE_HOST: u8 = 254;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;

const HEADER_BYTES: usize = 16;

/// A socket to the kernel. It speaks about the namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

/// A device, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(u32);

impl Device {
    /// The loopback device of any namespace.
    pub const LOOPBACK: Device = Device(1);
}

/// A route to one neighbour, or to all.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// Where it leads: to this address, or to every one of its family if this is the unspecified one.
    pub to: IpAddr,
    /// The address that what takes it comes from.
    pub from: IpAddr,
    /// The longest packet on it.
    pub mtu_bytes: u32,
    /// What TCP connections over it use. Unlike the namespace's default this may be any algorithm that the kernel has,
    /// whatever the first namespace allows to others.
    pub congestion_control: Option<&'a str>,
}

impl Netlink {
    /// Opens the socket. Errors are the kernel's.
    pub fn open() -> io::Result<Netlink> {
        let fd = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Netlink { fd, sequence: 0 })
    }

    /// The device of this name.
    pub fn device(&self, name: &str) -> io::Result<Device> {
        Ok(Device(net::netdevice::name_to_index(&self.fd, name)?))
    }

    /// Brings a device up.
    pub fn up(&mut self, device: Device) -> io::Result<()> {
        self.change(device, IFF_UP, |_| {})
    }

    /// Sets the longest packet of a device and how many packets wait in its queue.
    pub fn configure(&mut self, device: Device, mtu_bytes: u32, queue_packets: u32) -> io::Result<()> {
        self.change(device, 0, |message| {
            message.attribute(IFLA_MTU, &mtu_bytes.to_ne_bytes());
            message.attribute(IFLA_TXQLEN, &queue_packets.to_ne_bytes());
        })
    }

    /// Sets how many packets a device cuts of what the kernel hands it at once, at most; the kernel cuts what would be
    /// more.
    pub(crate) fn limit_segments(&mut self, device: Device, packets: u32) -> io::Result<()> {
        self.change(device, 0, |message| message.attribute(IFLA_GSO_MAX_SEGS, &packets.to_ne_bytes()))
    }

    /// Gives a device an address, and only that: no route to any neighbour comes with it.
    pub fn add_address(&mut self, device: Device, address: IpAddr) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        message.bytes.extend([family(address), bits(address), IFA_F_NODAD, 0]);
        message.bytes.extend(device.0.to_ne_bytes());
        message.address(IFA_LOCAL, address);
        message.address(IFA_ADDRESS, address);
        self.request(message)
    }

    /// Adds a route over a device.
    ///
    /// # Errors
    ///
    /// The kernel's; EINVAL when it does not have the congestion control.
    pub fn add_route(&mut self, device: Device, route: &Route<'_>) -> io::Result<()> {
        let kind = [RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST];
        let bits = if route.to.is_unspecified() { 0 } else { bits(route.to) };
        let mut message = Message::route(NLM_F_EXCL, bits, kind, device, route.to, route.from);
        message.nested(RTA_METRICS, |metrics| {
            metrics.attribute(RTAX_MTU, &route.mtu_bytes.to_ne_bytes());
            if let Some(algorithm) = route.congestion_control {
                metrics.text(RTAX_CC_ALGO, algorithm);
            }
        });
        self.request(message)
    }

    /// Sets what TCP uses from the namespace to itself: replaces the route to the `bits` first bits of `to`, an IPv4
    /// address of its own, that the kernel made when the device got it.
    pub fn set_local_congestion_control(
        &mut self,
        device: Device,
        to: Ipv4Addr,
        bits: u8,
        algorithm: &str,
    ) -> io::Result<()> {
        let kind = [RT_TABLE_LOCAL, RTPROT_KERNEL, RT_SCOPE_HOST, RTN_LOCAL];
        let mask = u32::MAX.checked_shl(32u32.saturating_sub(bits.into())).unwrap_or(0);
        let network = Ipv4Addr::from_bits(to.to_bits() & mask);
        let mut message = Message::route(NLM_F_REPLACE, bits, kind, device, network.into(), to.into());
        message.nested(RTA_METRICS, |metrics| metrics.text(RTAX_CC_ALGO, algorithm));
        self.request(message)
    }

    fn change(
        &mut self,
        device: Device,
        flags: u32,
        attributes: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.bytes.extend([0; 4]);
        for word in [device.0, flags, flags] {
            message.bytes.extend(word.to_ne_bytes());
        }
        attributes(&mut message);
        self.request(message)
    }

    /// Sends a request and waits for the kernel's answer.
    fn request(&mut self, message: Message) -> io::Result<()> {
        self.sequence += 1;
        let bytes = message.finish(self.sequence);
        net::sendto(&self.fd, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = [0; 4096];
        let (len, _) = net::recv(&self.fd, &mut answer, RecvFlags::empty())?;
        // The answer is an error with a number below zero, or zero for success (netlink(7)).
        let word = |at: usize| answer[..len].get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
        let (kind, error) = (word(4), word(HEADER_BYTES));
        let is_error = kind.is_some_and(|kind| u16::from_ne_bytes([kind[0], kind[1]]) == NLMSG_ERROR);
        match error.map(|error| i32::from_ne_bytes(*error)) {
            Some(0) if is_error => Ok(()),
            Some(error) if is_error => Err(Errno::from_raw_os_error(error.saturating_neg()).into()),
            _ => Err(io::Error::other("the kernel's answer is no acknowledgement")),
        }
    }
}

/// A message that is being written: its header, a fixed part and attributes, each padded to four bytes.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        Message { bytes }
    }

    /// `kind` is the table, who made the route, how far it leads and its type.
    fn route(flag: u16, bits: u8, kind: [u8; 4], device: Device, to: IpAddr, from: IpAddr) -> Message {
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | flag);
        message.bytes.extend([family(to), bits, 0, 0]);
        message.bytes.extend(kind);
        message.bytes.extend(0u32.to_ne_bytes());
        message.address(RTA_DST, to);
        message.address(RTA_PREFSRC, from);
        message.attribute(RTA_OIF, &device.0.to_ne_bytes());
        message
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), b"\0"].concat());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |message| message.bytes.extend(value));
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    /// An attribute that `content` writes; its length does not count the padding behind it.
    fn nested(&mut self, kind: u16, content: impl FnOnce(&mut Message)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        content(self);
        let len = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    family.as_raw() as u8
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
