//! Whose process the relay is. It stays the user that it is started as, so whoever starts it as another one than the
//! operator meant is told before anything is written.

use crate::torrc::Options;
use heddle_net::process::effective_user;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const ROOT: u32 = 0;

/// Whose this process is, and the names of the machine's users.
pub(crate) struct Users {
    process: u32,
    /// What `/etc/passwd` says.
    passwd: String,
}

impl Users {
    /// As the system says. Without names there are numbers.
    pub fn of_system() -> Self {
        Users { process: effective_user(), passwd: fs::read_to_string("/etc/passwd").unwrap_or_default() }
    }

    /// Looks whether the process may be a relay with these options, and returns what the operator is to be warned of.
    ///
    /// # Errors
    /// When it is root's although `User` names somebody else, because then root would serve strangers, and when a
    /// directory is another user's.
    pub fn check(&self, options: &Options) -> Result<Option<String>, String> {
        let warning = match self.differs(options) {
            Some(error) if self.process == ROOT => return Err(error),
            warning => warning,
        };
        self.must_own("DataDirectory", &options.data_directory)?;
        self.must_own("KeyDirectory", &options.key_directory())?;
        self.must_own("CacheDirectory", &options.cache_directory())?;
        Ok(warning)
    }

    /// What is to be said where `User` names somebody else.
    pub fn differs(&self, options: &Options) -> Option<String> {
        let wanted = options.user.as_deref()?;
        let found = self.names().find(|(name, _)| *name == wanted);
        let what = match found {
            Some((_, number)) if number == self.process => return None,
            Some(_) => format!("not as {wanted}"),
            None => format!("and {wanted} is not in /etc/passwd"),
        };
        let process = self.shown(self.process);
        Some(format!(
            "User: this process runs as {process}, {what}, and a relay of Heddle stays the user that it is started as; \
             start it as {wanted}, or remove the line"
        ))
    }

    /// Fails where the directory is there and another user's. Root could write to it all the same, and would leave
    /// files that its owner's relay can never read again.
    pub fn must_own(&self, option: &str, directory: &Path) -> Result<(), String> {
        // Where it cannot be looked at, whoever opens it says so.
        let Ok(found) = fs::metadata(directory) else { return Ok(()) };
        if found.uid() == self.process {
            return Ok(());
        }
        let (owner, process) = (self.shown(found.uid()), self.shown(self.process));
        let directory = directory.display();
        Err(format!(
            "{option} {directory} belongs to {owner}, and this process runs as {process}, whose files there its owner \
             could not use; run it as {owner}, or name another directory"
        ))
    }

    fn shown(&self, number: u32) -> String {
        match self.names().find(|(_, other)| *other == number) {
            Some((name, _)) => format!("{name} ({number})"),
            None => format!("user {number}"),
        }
    }

    fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            Some((name, fields.nth(1)?.parse::<u32>().ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(process: u32) -> Users {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\ndebian-tor:x:107:114::/:/bin/false\n";
        Users { process, passwd: passwd.to_owned() }
    }

    #[test]
    fn a_directory_of_another_user_is_refused_by_names() {
        let directory = tempfile::tempdir().unwrap();
        let (path, own) = (directory.path(), effective_user());
        assert_eq!(users(own).must_own("DataDirectory", path), Ok(()));
        assert_eq!(users(own ^ 1).must_own("DataDirectory", &path.join("none")), Ok(()));
        let said = users(own ^ 1).must_own("DataDirectory", path).unwrap_err();
        let begins = format!("DataDirectory {} belongs to {}, ", path.display(), users(own).shown(own));
        let ends = format!("run it as {}, or name another directory", users(own).shown(own));
        assert!(said.starts_with(&begins) && said.ends_with(&ends), "{said}");
        assert!(said.contains(&format!("this process runs as {}, ", users(own).shown(own ^ 1))), "{said}");
        let shown = [0, 107, 4321].map(|user| users(0).shown(user));
        assert_eq!(shown, ["root (0)", "debian-tor (107)", "user 4321"]);

        // The keys may lie elsewhere.
        let options = Options {
            data_directory: "/nonexistent/data".into(),
            key_directory: Some(path.to_owned()),
            ..Options::default()
        };
        assert_eq!(users(own).check(&options), Ok(None));
        assert!(users(own ^ 1).check(&options).unwrap_err().starts_with("KeyDirectory "));
    }

    #[test]
    fn another_user_than_the_torrc_names_is_told_and_root_is_refused() {
        let of = |user: Option<&str>| Options {
            user: user.map(str::to_owned),
            data_directory: "/nonexistent/data".into(),
            ..Options::default()
        };
        for (process, user) in [(0, None), (7, None), (0, Some("root")), (107, Some("debian-tor"))] {
            assert_eq!(users(process).check(&of(user)), Ok(None), "{process} {user:?}");
        }
        let warning = users(7).check(&of(Some("debian-tor"))).unwrap().unwrap();
        assert!(warning.starts_with("User: this process runs as user 7, not as debian-tor, "), "{warning}");
        assert!(warning.ends_with("; start it as debian-tor, or remove the line"), "{warning}");
        let error = users(0).check(&of(Some("debian-tor"))).unwrap_err();
        assert!(error.starts_with("User: this process runs as root (0), not as debian-tor, "), "{error}");
        let error = users(0).check(&of(Some("tor"))).unwrap_err();
        assert!(error.contains("root (0), and tor is not in /etc/passwd, and "), "{error}");
    }
}
