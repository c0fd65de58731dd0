//! The kernel's end: an ordinary blocking socket that writes and reads a pattern at once.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Bytes of the stream from `at`; the period is a prime.
pub fn pattern(at: u64, into: &mut [u8]) {
    const PERIOD: u64 = 65_521;
    for (place, byte) in into.iter_mut().enumerate() {
        *byte = (((at + place as u64) % PERIOD).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    }
}

pub fn listen(at: SocketAddr) -> TcpListener {
    TcpListener::bind(at).expect("the address is ours")
}

pub fn connect(to: SocketAddr) -> TcpStream {
    TcpStream::connect(to).expect("it listens")
}

/// Writes `bytes` bytes and FIN, and reads as many and FIN.
pub fn exchange(stream: TcpStream, bytes: u64) {
    let mut reading = stream.try_clone().expect("a descriptor");
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut read, mut buffer, mut wanted) = (0, vec![0; 1 << 16], vec![0; 1 << 16]);
            loop {
                let count = reading.read(&mut buffer).expect("no reset");
                if count == 0 {
                    break;
                }
                pattern(read, &mut wanted[..count]);
                assert!(buffer[..count] == wanted[..count], "wrong bytes after {read}");
                read += count as u64;
            }
            assert_eq!(read, bytes);
        });
        let (mut written, mut buffer) = (0, vec![0; 1 << 16]);
        let mut writing = &stream;
        while written < bytes {
            let count = (bytes - written).min(buffer.len() as u64) as usize;
            pattern(written, &mut buffer[..count]);
            writing.write_all(&buffer[..count]).expect("no reset");
            written += count as u64;
        }
        stream.shutdown(Shutdown::Write).expect("it is open");
    });
}
