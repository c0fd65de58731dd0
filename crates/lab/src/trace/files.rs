//! The files of a trace, and how much they may take together.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_seam::time::Instant;

use super::Traced;

/// What waits of a file before it is written. A large network has more wires than a process has descriptors, so files
/// are open only while something is written.
const WAITING_BYTES: usize = 32 << 10;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    files: Vec<OneFile>,
    bytes: u64,
    bytes_max: u64,
    full_at: Option<Instant>,
    /// The first failure, after which nothing is written any more.
    failure: Option<io::Error>,
}

#[derive(Debug)]
struct OneFile {
    name: String,
    waiting: Vec<u8>,
    is_made: bool,
}

impl Files {
    pub(super) fn new(dir: &Path, bytes_max: u64) -> Files {
        Files { dir: dir.to_owned(), files: Vec::new(), bytes: 0, bytes_max, full_at: None, failure: None }
    }

    /// The number of the first file, of this name; `None` where there are files already.
    pub(super) fn first(&mut self, name: &str) -> Option<usize> {
        self.files.is_empty().then(|| self.add(name))
    }

    /// The number of a further file. One whose name is taken gets another.
    pub(super) fn add(&mut self, name: &str) -> usize {
        let is_taken = |name: &str| self.files.iter().any(|file| file.name == name);
        let others = (2..).map(|number| format!("{number}.{name}"));
        let name = [name.to_owned()].into_iter().chain(others).find(|name| !is_taken(name));
        self.files.push(OneFile { name: name.unwrap_or_default(), waiting: Vec::new(), is_made: false });
        self.files.len() - 1
    }

    /// Appends to a file what happened at a time, whole or not at all: after the first that did not fit nothing is
    /// written any more.
    pub(super) fn append(&mut self, at: Instant, file: usize, record: &[u8]) {
        let bytes = self.bytes.saturating_add(record.len() as u64);
        if self.full_at.is_some() || self.failure.is_some() {
            return;
        }
        if bytes > self.bytes_max {
            self.full_at = Some(at);
            return;
        }
        self.bytes = bytes;
        self.files[file].waiting.extend_from_slice(record);
        if self.files[file].waiting.len() >= WAITING_BYTES {
            self.flush(file);
        }
    }

    /// Writes all that waits.
    pub(super) fn end(&mut self) -> io::Result<Traced> {
        (0..self.files.len()).for_each(|file| self.flush(file));
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(Traced {
                files: self.files.len(),
                bytes: self.bytes,
                full_at: self.full_at.map(|at| Duration::from_nanos(at.as_nanos())),
            }),
        }
    }

    fn flush(&mut self, file: usize) {
        let OneFile { name, waiting, is_made } = &mut self.files[file];
        let waiting = mem::take(waiting);
        let is_news = !mem::replace(is_made, true) || !waiting.is_empty();
        if is_news && self.failure.is_none() {
            let file = OpenOptions::new().create(true).append(true).open(self.dir.join(name));
            self.failure = file.and_then(|mut file| file.write_all(&waiting)).err();
        }
    }
}

impl Drop for Files {
    /// Of a run that broke off the trace is wanted most.
    fn drop(&mut self) {
        (0..self.files.len()).for_each(|file| self.flush(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_ends_the_trace_and_leaves_whole_records() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::new(dir.path(), 10);
        let (one, other) = (files.first("one").unwrap(), files.add("one"));
        assert_eq!(files.first("three"), None);
        let at = Instant::from_nanos;
        files.append(at(1), one, b"1234");
        files.append(at(2), other, b"567");
        files.append(at(3), one, b"8901");
        files.append(at(4), other, b"2");
        let traced = Traced { files: 2, bytes: 7, full_at: Some(Duration::from_nanos(3)) };
        assert_eq!(files.end().unwrap(), traced);
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        assert_eq!((read("one"), read("2.one")), (b"1234".to_vec(), b"567".to_vec()));
    }

    #[test]
    fn what_cannot_be_written_is_told_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::new(&dir.path().join("gone"), 1000);
        let file = files.add("a");
        files.append(Instant::ZERO, file, b"1");
        assert_eq!(files.end().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
