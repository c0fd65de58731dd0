//! Stock Tor's `state` file: lines of a keyword and a value.
//!
//! Lines that are not set here stay as they are, so that a stock Tor that returns finds what it left.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::Files;
use zeroize::Zeroizing;

const FILE_BYTES_MAX: usize = 1 << 20;

/// Where it is.
pub(crate) fn path(data_directory: &Path) -> PathBuf {
    data_directory.join("state")
}

/// Reads the file `path`; one that is not there says nothing.
pub(crate) fn read(files: &dyn Files, path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(files, path)?).into_owned())
}

fn bytes(files: &dyn Files, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    Ok(files.read(path, FILE_BYTES_MAX)?.unwrap_or_default())
}

/// What the last line with that keyword says.
pub(crate) fn value<'a>(state: &'a str, keyword: &str) -> Option<&'a str> {
    let mut values = state.lines().filter_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '));
    values.next_back().map(str::trim)
}

/// Writes the file `path` with these keywords and values in the place of all that it has of the same keywords.
pub(crate) fn set(files: &dyn Files, path: &Path, values: &[(&str, String)]) -> io::Result<()> {
    let is_ours = |line: &[u8]| {
        let keyword = line.split(|byte| byte.is_ascii_whitespace()).next();
        values.iter().any(|(ours, _)| keyword == Some(ours.as_bytes()))
    };
    let there = bytes(files, path)?;
    let mut text: Vec<u8> = Vec::with_capacity(there.len());
    for line in there.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_ours(line)) {
        text.extend(line);
        if !line.ends_with(b"\n") {
            text.push(b'\n');
        }
    }
    for (keyword, value) in values {
        text.extend(format!("{keyword} {value}\n").as_bytes());
    }
    files.write(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::InMemory;

    #[test]
    fn the_last_line_counts_and_prefixes_do_not() {
        let text = "# comment\nKeyX 1\nKey 2\nKey  3 \nTorVersion Tor 0.4.9.11\n";
        assert_eq!(value(text, "Key"), Some("3"));
        assert_eq!((value(text, "TorVersio"), value("", "Key")), (None, None));
    }

    #[test]
    fn lines_of_others_stay() {
        let (files, path) = (InMemory::default(), path(Path::new("data")));
        files.create_private_dir(Path::new("data")).unwrap();
        assert_eq!(read(&files, &path).unwrap(), "");
        files.write(&path, b"# comment\nKey 1\nKeyX \xff2\r\nOther 3\nKey 4\nKey\nLast").unwrap();
        set(&files, &path, &[("Key", "5".into()), ("New", "6".into())]).unwrap();
        let written = files.read(&path, FILE_BYTES_MAX).unwrap().unwrap();
        let wanted = b"# comment\nKeyX \xff2\r\nOther 3\nLast\nKey 5\nNew 6\n";
        assert_eq!(written.escape_ascii().to_string(), wanted.escape_ascii().to_string());
    }
}
