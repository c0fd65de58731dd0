//! Files that survive a crash: whole or not at all, and readable by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use zeroize::Zeroizing;

/// Reads `path`, up to `bytes_max`; `None` when there is no such file or it is empty, which
/// stock Tor treats alike. A longer file is an error of kind `InvalidData`.
pub(crate) fn read(path: &Path, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Room for everything from the start, so that no reallocation leaves a secret behind.
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = Zeroizing::new(Vec::with_capacity(length.min(bytes_max) + 1));
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is larger than {bytes_max} bytes"),
        ));
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

/// Replaces `path` by `bytes` in one step, with mode 0600, and sees it onto the disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    remove(temporary)?;
    let written = write_new(temporary, bytes).and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        // The first error is the one to report; a leftover is removed by the next write.
        let _ = remove(temporary);
    }
    written?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Removes `path` if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Makes the directory `path` with mode 0700, or takes what an existing one grants to too many:
/// writing by its group, and everything by others. A group may be left to read.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    const TOO_MUCH: u32 = 0o027;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & TOO_MUCH != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777 & !TOO_MUCH))?;
    }
    Ok(())
}
