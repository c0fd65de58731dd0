//! A temporary directory that is removed even when the program that made it is killed.
//!
//! A destructor cannot promise that: statics are never dropped and SIGKILL runs nothing. So a small
//! shell waits on a pipe that only this program holds open; when the pipe closes, for whatever
//! reason, it removes what is left.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

use heddle_net::wall_clock;

use crate::error::{Error, Result};

/// Makes the directory, which must not be there yet, says so, waits for the end of its input, and removes it. It is the
/// one to make it, so that there is no moment at which the directory has no sweeper. It tries to remove it for a while,
/// because processes that are being killed at the same moment may still add files.
const SWEEP: &str = r#"trap '' HUP INT TERM
mkdir -m 700 -- "$1" || exit 1
echo made
read -r _
tries=0
while [ -e "$1" ] && [ "$tries" -lt 100 ]; do
  rm -rf -- "$1" || sleep 0.1
  tries=$((tries + 1))
done"#;

/// Makes the names of one program's directories differ.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The directory and the shell that watches over it.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    sweeper: Child,
}

impl Scratch {
    /// Makes an empty directory, readable only by its owner, under the system's temporary directory.
    pub fn new() -> Result<Scratch> {
        Scratch::make().map_err(Error::io("making a temporary directory"))
    }

    fn make() -> io::Result<Scratch> {
        let (pid, ns, number) = (process::id(), wall_clock().ns, MADE.fetch_add(1, Ordering::Relaxed));
        let temporary = path::absolute(env::temp_dir())?;
        let dir = temporary.join(format!("heddle-lab-{pid}-{ns:x}-{number}"));
        let sweeper = Command::new("sh")
            .args(["-c", SWEEP, "sweep"])
            .arg(&dir)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut scratch = Scratch { dir, sweeper };
        let mut said = [0; 5];
        let made = scratch.sweeper.stdout.take().map(|mut stdout| stdout.read_exact(&mut said));
        match made {
            Some(Ok(())) => Ok(scratch),
            _ => {
                // It is not ours to remove.
                let dir = std::mem::take(&mut scratch.dir);
                Err(io::Error::other(format!("{} could not be made", dir.display())))
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed here is the sweeper's to try again.
        let _ = fs::remove_dir_all(&self.dir);
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn it_is_its_owners_alone_and_no_two_are_the_same() {
        use std::os::unix::fs::PermissionsExt;
        let (one, other) = (Scratch::new().unwrap(), Scratch::new().unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

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
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
