//! Stock Tor's `state` file: lines of a keyword and a value.
//!
//! Lines that are not set here stay as they are, so that a stock Tor that returns finds what it left.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::Files;

const FILE_BYTES_MAX: usize = 1 << 20;

/// Where it is.
pub(crate) fn path(data_directory: &Path) -> PathBuf {
    data_directory.join("state")
}

/// Reads the file `path`; one that is not there says nothing.
pub(crate) fn read(files: &dyn Files, path: &Path) -> io::Result<String> {
    let file = files.read(path, FILE_BYTES_MAX)?;
    Ok(file.map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// What the last line with that keyword says.
pub(crate) fn value<'a>(state: &'a str, keyword: &str) -> Option<&'a str> {
    let mut values = state.lines().filter_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '));
    values.next_back().map(str::trim)
}

/// Writes the file `path` with these keywords and values in the place of all that it has of the same keywords.
pub(crate) fn set(files: &dyn Files, path: &Path, values: &[(&str, String)]) -> io::Result<()> {
    let mut text = String::new();
    for line in read(files, path)?.lines() {
        let keyword = line.split(' ').next();
        if !values.iter().any(|(ours, _)| keyword == Some(*ours)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    for (keyword, value) in values {
        text.push_str(&format!("{keyword} {value}\n"));
    }
    files.write(path, text.as_bytes())
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
        files.write(&path, b"# comment\nKey 1\nKeyX 2\nOther 3\nKey 4\n").unwrap();
        set(&files, &path, &[("Key", "5".into()), ("New", "6".into())]).unwrap();
        assert_eq!(read(&files, &path).unwrap(), "# comment\nKeyX 2\nOther 3\nKey 5\nNew 6\n");
    }
}
