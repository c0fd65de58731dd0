//! A temporary directory that is removed even when the program that made it is killed.
//!
//! A destructor cannot promise that: statics are never dropped and SIGKILL runs nothing. So a small
//! shell waits on a pipe that only this program holds open; when the pipe closes, for whatever
//! reason, it removes what is left.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// Waits for the end of its input, then removes the directory. It tries again for a while, because
/// processes that are being killed at the same moment may still add files.
const SWEEP: &str = r#"trap '' HUP INT TERM
read -r _
tries=0
while [ -e "$1" ] && [ "$tries" -lt 100 ]; do
  rm -rf -- "$1" || sleep 0.1
  tries=$((tries + 1))
done"#;

/// The directory and the shell that watches over it.
#[derive(Debug)]
pub struct Scratch {
    dir: Option<TempDir>,
    sweeper: Child,
}

impl Scratch {
    /// Makes an empty directory, readable only by its owner, under the system's temporary directory.
    pub fn new() -> Result<Scratch> {
        Scratch::make().map_err(Error::io("making a temporary directory"))
    }

    fn make() -> io::Result<Scratch> {
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        let sweeper = Command::new("sh")
            .args(["-c", SWEEP, "sweep"])
            .arg(dir.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Scratch { dir: Some(dir), sweeper })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().expect("only drop takes the directory").path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed here is the sweeper's to try again.
        drop(self.dir.take());
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn dropping_removes_the_directory() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn the_sweeper_removes_it_when_the_program_is_gone() {
        let mut scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("sub")).unwrap();
        // As the kernel does with the pipe of a program that was killed.
        drop(scratch.sweeper.stdin.take());
        let start = Instant::now();
        while path.exists() {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    }
}
