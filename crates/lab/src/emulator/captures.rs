//! Captures of wires, one file for each, as [`heddle_netem::pcapng`] makes them.
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
use heddle_netem::pcapng::{self, Captured, Place};

/// How many packets may wait for the disk.
const WAITING_MAX: usize = 16_384;

struct Record {
    file: usize,
    place: Place,
    is_of_second: bool,
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
            let mut file = BufWriter::new(File::create(dir.join(pcapng::file_name(ends)))?);
            let mut head = Vec::new();
            pcapng::begin(ends, &mut head);
            file.write_all(&head)?;
            writers.push(file);
        }
        let (send, records) = sync_channel(WAITING_MAX);
        let thread =
            thread::Builder::new().name("captures".into()).spawn(move || drain(&records, writers))?;
        Ok(Captures { files, send: Some(send), thread: Some(thread), missed: 0 })
    }

    /// Adds a packet between two hosts to the file of their wire.
    pub(super) fn add(&mut self, from: HostId, to: HostId, place: Place, unix_ns: u64, packet: &[u8]) {
        let Some(file) = self.files.get(&(from.min(to), from.max(to))) else { return };
        let record = Record { file: *file, place, is_of_second: from > to, unix_ns, packet: packet.to_vec() };
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

fn drain(records: &Receiver<Record>, mut writers: Vec<BufWriter<File>>) -> io::Result<()> {
    let mut block = Vec::new();
    while let Ok(Record { file, place, is_of_second, unix_ns, packet }) = records.recv() {
        block.clear();
        pcapng::packet(place, is_of_second, unix_ns, Captured::whole(&packet), &mut block);
        writers[file].write_all(&block)?;
    }
    writers.iter_mut().try_for_each(Write::flush)
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
}
