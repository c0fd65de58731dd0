//! The socket at which somebody on this machine asks to look into the relay: a Unix socket in the `DataDirectory`,
//! which only the relay's user may open.

use super::Told;
use heddle_spe::{LINE_BYTES_MAX, MODULE_BYTES_MAX, Request, Unclear};
use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// How many may be connected at once. Each has a thread, which reads.
pub const CONNECTIONS_MAX: usize = 4;
/// Who does not take what he asked for within this time is cut off.
pub(super) const WRITE_MAX: Duration = Duration::from_millis(500);

/// Which connection; none has the number of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Opens the socket, in the place of one that an earlier relay left. It is made in a directory that nobody else may
/// enter, and moved when nobody else may open it: there is no moment at which somebody could.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else has this name"));
        }
        _ => {}
    }
    let private = path.with_extension(format!("new.{}", std::process::id()));
    let made = private.join("s");
    // What a relay with the same number left that ended in between.
    let _ = std::fs::remove_file(&made);
    let _ = std::fs::remove_dir(&private);
    DirBuilder::new().mode(0o700).create(&private)?;
    let listener = UnixListener::bind(&made).and_then(|listener| {
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&made, path)?;
        Ok(listener)
    });
    let _ = std::fs::remove_file(&made);
    let _ = std::fs::remove_dir(&private);
    listener
}

/// Accepts connections until the one who is told is gone, and has each read on a thread of its own.
pub(super) fn accept_all(listener: &UnixListener, told: &SyncSender<Told>) {
    let open = Arc::new(AtomicUsize::new(0));
    for (number, stream) in (0..).zip(listener.incoming()) {
        let Ok(stream) = stream else {
            // No descriptor is left; that passes, and until then this must not take all the time that there is.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            drop(super::say(&stream, &format!("error: {CONNECTIONS_MAX} others are connected already\n")));
            continue;
        }
        let connection = ConnectionId(number);
        let Ok(writer) = stream.try_clone().and_then(|writer| {
            writer.set_write_timeout(Some(WRITE_MAX))?;
            Ok(writer)
        }) else {
            continue;
        };
        if told.send(Told::Connected(connection, writer)).is_err() {
            return;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (tell, left) = (told.clone(), open.clone());
        let read = move || {
            read_all(connection, stream, &tell);
            left.fetch_sub(1, Ordering::Relaxed);
            drop(tell.send(Told::Gone(connection)));
        };
        if std::thread::Builder::new().name("observed".into()).spawn(read).is_err() {
            // There is no thread left, which passes as well.
            open.fetch_sub(1, Ordering::Relaxed);
            drop(told.send(Told::Gone(connection)));
        }
    }
}

/// Reads requests until there are no more.
fn read_all(connection: ConnectionId, stream: UnixStream, told: &SyncSender<Told>) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(asked)) = read_request(&mut reader) {
        // What follows a line that is none might be bytes of a module.
        let is_over = asked.is_err();
        if told.send(Told::Asked(connection, asked)).is_err() || is_over {
            return;
        }
    }
}

/// A request, and the module that came with it.
type Asked = Result<(Request, Vec<u8>), Unclear>;

/// The next request; `None` at the end.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Asked>> {
    let mut line = Vec::new();
    let len_max = LINE_BYTES_MAX as u64 + 2;
    if reader.by_ref().take(len_max).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let request: Request = match String::from_utf8_lossy(line.trim_ascii_end()).parse() {
        Ok(request) => request,
        Err(unclear) => return Ok(Some(Err(unclear))),
    };
    let mut module = Vec::new();
    if let Request::Load { bytes, .. } = &request {
        // The request's own bound holds for what is taken here.
        module.resize(*bytes, 0);
        reader.read_exact(&mut module)?;
    }
    Ok(Some(Ok((request, module))))
}

/// The body of a fuzz target. What is asked is the same in whatever pieces it comes, and when it is written and read
/// again; and no module is longer than one may be, or than what came.
pub fn fuzz(bytes: &[u8]) {
    let read = |bytes: &[u8], piece: usize| {
        let mut reader = BufReader::with_capacity(piece, bytes);
        let mut all: Vec<(Request, Vec<u8>)> = Vec::new();
        // What follows a line that is none is not read.
        while let Ok(Some(Ok(asked))) = read_request(&mut reader) {
            all.push(asked);
        }
        all
    };
    let asked = read(bytes, 8192);
    assert_eq!(asked, read(bytes, 1));
    let modules: usize = asked.iter().map(|(_, module)| module.len()).sum();
    assert!(modules <= bytes.len() && asked.iter().all(|(_, module)| module.len() <= MODULE_BYTES_MAX));
    let written = asked.iter().map(|(request, module)| [format!("{request}\n").as_bytes(), module].concat());
    let written: Vec<u8> = written.flatten().collect();
    assert_eq!(asked, read(&written, 7));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Vec<Asked> {
        let mut reader = bytes;
        let mut all = Vec::new();
        while let Ok(Some(asked)) = read_request(&mut reader) {
            all.push(asked);
        }
        all
    }

    #[test]
    fn a_module_follows_its_line() {
        let asked = read(b"list\nload mine 3\nab\nlist\r\nlist");
        let good: Vec<_> = asked.into_iter().map(Result::unwrap).collect();
        assert_eq!(good.len(), 4);
        assert_eq!(good[1], (Request::Load { name: "mine".to_owned(), bytes: 3 }, b"ab\n".to_vec()));
        assert_eq!(read(b"load mine 30\nab"), [], "it is cut short");
        assert!(read(&[b'x'; 5_000])[0].is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            prop_assert!(read(&bytes).len() <= bytes.len());
        }
    }
}
