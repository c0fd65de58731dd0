//! Playing a client's instructions: bursts of bytes with pauses before them, in both directions.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::Serving;
use crate::traffic::CHUNK;
use crate::traffic::peer::SLICE;
use crate::traffic::script::{BURST_WIRE_BYTES, BURSTS_MAX, Burst, FINISHED};

impl Serving<'_> {
    /// Reads a script of `script_bytes`, sends its bursts while it discards `upload_bytes`, and says
    /// at the end of both that it has finished. Pauses count from the end of the burst before.
    pub(super) fn play(
        &mut self,
        beginning: Vec<u8>,
        script_bytes: u64,
        upload_bytes: u64,
    ) -> io::Result<()> {
        let whole = script_bytes.is_multiple_of(BURST_WIRE_BYTES as u64);
        if !whole || script_bytes > (BURSTS_MAX * BURST_WIRE_BYTES) as u64 {
            return self.refuse();
        }
        let mut script = beginning;
        let mut chunk = vec![0; CHUNK];
        while (script.len() as u64) < script_bytes {
            match self.receive(&mut chunk)? {
                0 => return Ok(()),
                len => script.extend(&chunk[..len]),
            }
        }
        let early = (script.len() as u64 - script_bytes).min(upload_bytes);
        let mut uploading = Serving { stream: self.stream.try_clone()?, state: self.state };
        let gone = AtomicBool::new(false);
        thread::scope(|scope| {
            let upload = scope.spawn(|| {
                let drained = uploading.drain(upload_bytes - early);
                gone.store(drained.is_err(), Ordering::Relaxed);
                drained
            });
            let bursts = script[..script_bytes as usize].chunks_exact(BURST_WIRE_BYTES);
            let played = bursts.map(Burst::from_wire).try_for_each(|burst| self.burst(burst, &gone));
            if played.is_err() {
                // Wakes the other thread, which may wait for bytes that never come.
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            let drained = upload.join().map_err(|_| io::Error::from(io::ErrorKind::Other))?;
            played.and(drained)
        })?;
        self.send(&[FINISHED])
    }

    fn burst(&mut self, burst: Burst, gone: &AtomicBool) -> io::Result<()> {
        let due = Instant::now() + burst.pause();
        loop {
            self.check()?;
            if gone.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(SLICE));
        }
        let zeros = [0; 16 * 1024];
        let mut left = burst.bytes as usize;
        while left > 0 {
            let len = left.min(zeros.len());
            self.send(&zeros[..len])?;
            left -= len;
        }
        Ok(())
    }

    /// Reads and forgets exactly so many bytes.
    fn drain(&mut self, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        let mut chunk = vec![0; CHUNK];
        while left > 0 {
            let at_most = left.min(CHUNK as u64) as usize;
            match self.receive(&mut chunk[..at_most])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => left -= len as u64,
            }
        }
        Ok(())
    }
}
