//! Captures of wires, one file for each, in the format of draft-ietf-opsawg-pcapng.
//!
//! A wire's file has two interfaces for its ends, named by their hosts: what a host sent is outbound at its end before
//! anything happened to it, what reached a host is inbound at its end. A third one, `dropped`, has what was lost, when
//! it was lost, with a comment that says why. So every packet is in the file twice. Packets are as long as on the wire.
//!
//! A thread writes the files: the emulator must not wait for a disk. What it falls behind with is counted, not kept.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use heddle_netem::HostId;

/// How many packets may wait for the disk.
const WAITING_MAX: usize = 16_384;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// Packets begin with their IP header (LINKTYPE_RAW).
const LINKTYPE_RAW: u16 = 101;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const COMMENT: u16 = 1;
/// The name of the interface of what did not arrive, and its number behind those of the two ends.
const DROPPED: (&str, u32) = ("dropped", 2);

/// At which end of a wire, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Leaving the host that sent it.
    Sent,
    /// Reaching the host that it was for.
    Arrived,
    /// Nowhere any more, for this reason.
    Dropped(&'static str),
}

struct Record {
    file: usize,
    interface: u32,
    place: Place,
    unix_ns: u64,
    packet: Vec<u8>,
}

/// The captures of all wires.
pub(super) struct Captures {
    /// The file of each pair of hosts, the lower number first.
    files: BTreeMap<(HostId, HostId), usize>,
    send: Option<SyncSender<Record>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Packets that are in no file.
    pub missed: u64,
}

impl Captures {
    /// Makes the directory and a file `A-B.pcapng` for each wire.
    pub(super) fn create(dir: &Path, wires: &[(HostId, HostId)], names: &[String]) -> io::Result<Captures> {
        fs::create_dir_all(dir)?;
        let (mut files, mut writers) = (BTreeMap::new(), Vec::new());
        for (one, other) in wires {
            // A wire has two directions and one file.
            let Entry::Vacant(entry) = files.entry((*one.min(other), *one.max(other))) else { continue };
            let (first, second) = *entry.key();
            let ends = [first, second].map(|host| names[host.0 as usize].as_str());
            entry.insert(writers.len());
            let file = File::create(dir.join(file_name(ends)))?;
            writers.push(PcapNg::new(BufWriter::new(file), &[ends[0], ends[1], DROPPED.0])?);
        }
        let (send, records) = sync_channel(WAITING_MAX);
        let thread =
            thread::Builder::new().name("captures".into()).spawn(move || drain(&records, writers))?;
        Ok(Captures { files, send: Some(send), thread: Some(thread), missed: 0 })
    }

    /// Adds a packet between two hosts to the file of their wire.
    pub(super) fn add(&mut self, from: HostId, to: HostId, place: Place, unix_ns: u64, packet: &[u8]) {
        let Some(file) = self.files.get(&(from.min(to), from.max(to))) else { return };
        let end = |end: HostId| u32::from(end > from.min(to));
        let interface = match place {
            Place::Sent => end(from),
            Place::Arrived => end(to),
            Place::Dropped(_) => DROPPED.1,
        };
        let record = Record { file: *file, interface, place, unix_ns, packet: packet.to_vec() };
        if self.send.as_ref().is_none_or(|send| send.try_send(record).is_err()) {
            self.missed += 1;
        }
    }

    /// Writes what waits and closes the files.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.send = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that writes captures panicked")),
            None => Ok(()),
        }
    }
}

fn drain(records: &Receiver<Record>, mut writers: Vec<PcapNg<BufWriter<File>>>) -> io::Result<()> {
    while let Ok(record) = records.recv() {
        writers[record.file].packet(record.interface, record.place, record.unix_ns, &record.packet)?;
    }
    writers.iter_mut().try_for_each(|writer| writer.out.flush())
}

/// The file of the wire between two hosts: what could be a path is replaced.
pub(super) fn file_name(hosts: [&str; 2]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let safely = |host: &str| host.chars().map(|c| if safe(c) { c } else { '_' }).collect::<String>();
    format!("{}.pcapng", hosts.map(safely).join("-"))
}

/// One file.
struct PcapNg<W> {
    out: W,
}

impl<W: Write> PcapNg<W> {
    fn new(out: W, interfaces: &[&str]) -> io::Result<Self> {
        let mut file = PcapNg { out };
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend((-1i64).to_le_bytes());
        file.block(SECTION_HEADER, &body)?;
        for name in interfaces {
            let mut body = Vec::new();
            body.extend(u32::from(LINKTYPE_RAW).to_le_bytes());
            body.extend(0u32.to_le_bytes());
            option(&mut body, IF_NAME, name.as_bytes());
            // Times count nanoseconds.
            option(&mut body, IF_TSRESOL, &[9]);
            option(&mut body, 0, &[]);
            file.block(INTERFACE_DESCRIPTION, &body)?;
        }
        Ok(file)
    }

    fn packet(&mut self, interface: u32, place: Place, unix_ns: u64, packet: &[u8]) -> io::Result<()> {
        let len = packet.len() as u32;
        let mut body = Vec::with_capacity(packet.len() + 40);
        for word in [interface, (unix_ns >> 32) as u32, unix_ns as u32, len, len] {
            body.extend(word.to_le_bytes());
        }
        body.extend(packet);
        pad(&mut body);
        match place {
            Place::Arrived => option(&mut body, EPB_FLAGS, &1u32.to_le_bytes()),
            Place::Sent => option(&mut body, EPB_FLAGS, &2u32.to_le_bytes()),
            Place::Dropped(reason) => option(&mut body, COMMENT, reason.as_bytes()),
        }
        option(&mut body, 0, &[]);
        self.block(ENHANCED_PACKET, &body)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let len = (body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len)?;
        self.out.write_all(body)?;
        self.out.write_all(&len)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_wire_share_one_open_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (HostId(0), HostId(1));
        let names = ["a", "../b"].map(str::to_owned);
        let mut captures = Captures::create(dir.path(), &[(b, a), (a, b)], &names).unwrap();
        let descriptors =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        let open: Vec<_> = descriptors.filter(|path| path.starts_with(dir.path())).collect();
        assert_eq!(open, [dir.path().join("a-.._b.pcapng")]);
        captures.finish().unwrap();
    }

    #[test]
    fn blocks_say_their_length_at_both_ends() {
        let mut file = PcapNg::new(Vec::new(), &["a", "bb"]).unwrap();
        file.packet(1, Place::Arrived, 0x1_0000_0002, &[0x45, 0, 0]).unwrap();
        let mut rest = &file.out[..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let len = word(4) as usize;
            assert_eq!(word(len - 4) as usize, len);
            kinds.push(word(0));
            if word(0) == ENHANCED_PACKET {
                assert_eq!((1..6).map(|n| word(4 + 4 * n)).collect::<Vec<_>>(), [1, 1, 2, 3, 3]);
                assert_eq!(rest[28..32], [0x45, 0, 0, 0]);
            }
            rest = &rest[len..];
        }
        let before = file.out.len();
        file.packet(2, Place::Dropped("loss"), 0, &[0x45]).unwrap();
        assert_eq!(file.out[before + 32..before + 40], *b"\x01\0\x04\0loss");
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE_DESCRIPTION, INTERFACE_DESCRIPTION, ENHANCED_PACKET]);
    }
}
