//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
    serde_json::from_slice(&text).map_err(|error| Error::Options(format!("{}: {error}", path.display())))
}

/// Writes a file that appears whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    written.map_err(Error::io(format!("writing {}", path.display())))
}

/// Writes a value as JSON, for people to read when it is small.
pub(crate) fn write_json(path: &Path, value: &impl Serialize, pretty: bool) -> Result<()> {
    write_whole(path, &json(path, value, pretty)?)
}

/// Writes a value as JSON where others may do so at the same time, on other machines too: the file is at any time all
/// of what one of them wrote.
pub(crate) fn write_json_among_others(path: &Path, value: &impl Serialize) -> Result<()> {
    let json = json(path, value, false)?;
    let doing = || Error::io(format!("writing {}", path.display()));
    // A draft that others wrote to, too, could be theirs by half when it gets its name.
    let own = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(doing())?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.part", own.trim()));
    let draft = Path::new(&draft);
    let written = write_to_disk(draft, &json).and_then(|()| fs::rename(draft, path));
    if written.is_err() {
        // It may not be there at all.
        let _ = fs::remove_file(draft);
    }
    written.map_err(doing())
}

/// Writes a file so that a machine that stops has all of it.
fn write_to_disk(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn json(path: &Path, value: &impl Serialize, pretty: bool) -> Result<Vec<u8>> {
    let json = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    let mut json = json.map_err(|error| Error::Options(format!("{}: {error}", path.display())))?;
    json.push(b'\n');
    Ok(json)
}
