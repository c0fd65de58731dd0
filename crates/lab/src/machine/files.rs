//! Files that appear whole or not at all.

use std::fs;
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
    let json = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    let mut json = json.map_err(|error| Error::Options(format!("{}: {error}", path.display())))?;
    json.push(b'\n');
    write_whole(path, &json)
}
