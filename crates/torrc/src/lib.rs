//! The operator's torrc, as stock Tor reads it.
//!
//! 1. `lines` turns files into lines: comments, quotes, continuation, `%include`.
//! 2. [`Torrc::load`] finds each line's option among stock Tor's names and decides which lines count: the last one of
//!    a plain option, all of a list's, and what `+Option` and `/Option` add and clear.
//! 3. `settings` and `heddle_settings` put the values into [`Options`], and `Options::complete` checks them together.
//!
//! A torrc that stock Tor takes is taken here. What Heddle does not support is named in one warning for each option;
//! an unknown name is an error, because a misspelt option must not be lost in silence.

mod client;
mod dos;
mod heddle;
mod heddle_settings;
mod lines;
mod names;
mod options;
mod setting;
mod settings;
mod units;
mod values;

#[cfg(test)]
mod stock_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

pub use client::ClientOptions;
pub use heddle::{HeddleOptions, UdpPort};
pub use heddle_settings::SHARDS_MAX;
pub use options::{Options, SafeLogging};
pub use values::address;
pub use values::{Log, LogTarget, OrAddress, OrPort, Port, Severity};

use lines::{Command, Line, Place};
use names::Name;
use setting::{Lines, Setting};

const NOT_SUPPORTED: &str = "this option is known but not supported, and is ignored";

/// Reads torrc files.
pub struct Torrc;

/// Something in a torrc that the operator should know and that stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    place: Place,
    option: String,
    text: String,
}

/// What is wrong with a torrc: one sentence with its file and line and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrcError {
    place: Place,
    text: String,
}

impl Torrc {
    /// Reads and checks a torrc and everything it includes.
    pub fn load(path: &Path) -> Result<(Options, Vec<Warning>), TorrcError> {
        Self::load_layers(&[path])
    }

    /// Reads and checks lines that are in no file, and include none. `path` is what errors call them. They are no
    /// user's, so `~` in a path stays what it is.
    pub fn parse(text: &str, path: &Path) -> Result<(Options, Vec<Warning>), TorrcError> {
        let mut resolved = Resolved::default();
        resolved.add_layer(lines::parse(text, path)?)?;
        resolved.finish(&Place { file: path.to_owned(), line: 0 }, Some(OsStr::new("~")))
    }

    /// Reads several files, each over those before it, such as a system's `--defaults-torrc` and then the operator's
    /// torrc: a list that a later file sets replaces the earlier one's, unless it is written `+Option`.
    pub fn load_layers(paths: &[&Path]) -> Result<(Options, Vec<Warning>), TorrcError> {
        Self::load_for(paths, env::var_os("HOME").as_deref())
    }

    /// The same for the user whose home directory this is.
    fn load_for(paths: &[&Path], home: Option<&OsStr>) -> Result<(Options, Vec<Warning>), TorrcError> {
        let mut resolved = Resolved::default();
        for path in paths {
            resolved.add_layer(lines::read(path)?)?;
        }
        let last = Place { file: paths.last().map_or_else(PathBuf::new, |path| path.to_path_buf()), line: 0 };
        resolved.finish(&last, home)
    }
}

/// The lines that count, by option.
#[derive(Default)]
struct Resolved {
    /// How many files were added.
    layer: usize,
    values: BTreeMap<&'static str, Vec<Value>>,
    unsupported: BTreeMap<&'static str, Place>,
    warnings: Vec<Warning>,
}

/// One value of an option and the number of the layer that set it.
struct Value {
    layer: usize,
    place: Place,
    text: String,
}

impl Resolved {
    fn add_layer(&mut self, lines: Vec<Line>) -> Result<(), TorrcError> {
        self.layer += 1;
        for line in lines {
            if let Some(setting) = self.find_setting(&line)? {
                self.add_line(setting, line);
            }
        }
        Ok(())
    }

    /// The setting a line is about; `None` when it has none and a warning says so.
    fn find_setting(&mut self, line: &Line) -> Result<Option<Setting>, TorrcError> {
        let written = line.name.as_str();
        if let Some(setting) = heddle_settings::find(written) {
            return Ok(Some(setting));
        }
        let name = match names::find(written) {
            Name::Stock(name) => name,
            Name::Abbreviation(name) => {
                self.warn(line, name, format!("`{written}` is short for {name}; write the whole name"));
                name
            }
            Name::Obsolete(name) => {
                self.warn(line, name, "this option no longer exists and is ignored; remove it".to_owned());
                return Ok(None);
            }
            Name::Unknown(Some(closest)) => {
                let text = format!("unknown option `{written}`; did you mean {closest}?");
                return Err(TorrcError::at(&line.place, text));
            }
            Name::Unknown(None) => {
                let text = format!("unknown option `{written}`; correct its name or remove the line");
                return Err(TorrcError::at(&line.place, text));
            }
        };
        // `__Option` is an option that a controller does not save.
        let setting = settings::find(name).or_else(|| settings::find(name.strip_prefix("__")?));
        if setting.is_none()
            && line.command != Command::Clear
            && self.unsupported.insert(name, line.place.clone()).is_none()
        {
            self.warn(line, name, NOT_SUPPORTED.to_owned());
        }
        Ok(setting)
    }

    fn add_line(&mut self, setting: Setting, line: Line) {
        let layer = self.layer;
        if line.command == Command::Clear {
            self.values.remove(setting.name);
            return;
        }
        if line.value.is_empty() {
            match setting.lines {
                Lines::One => drop(self.values.remove(setting.name)),
                Lines::All => {
                    self.warn(&line, setting.name, "the line has no value and is ignored".to_owned())
                }
            }
            return;
        }
        let values = self.values.entry(setting.name).or_default();
        let mut repeated = false;
        match setting.lines {
            Lines::One => {
                repeated = values.iter().any(|value| value.layer == layer);
                values.clear();
            }
            Lines::All if line.command == Command::Set => values.retain(|value| value.layer == layer),
            Lines::All => {}
        }
        values.push(Value { layer, place: line.place.clone(), text: line.value.clone() });
        if repeated {
            self.warn(
                &line,
                setting.name,
                "this option is set more than once; only the last line counts".to_owned(),
            );
        }
    }

    fn warn(&mut self, line: &Line, option: &str, text: String) {
        self.warnings.push(Warning { place: line.place.clone(), option: option.to_owned(), text });
    }

    /// Whether an option that is 0 or 1 is 1.
    fn is_on(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|values| values.iter().any(|value| value.text == "1"))
    }

    fn finish(mut self, last: &Place, home: Option<&OsStr>) -> Result<(Options, Vec<Warning>), TorrcError> {
        let mut options = Options::default();
        if self.is_on("TestingTorNetwork") {
            apply_testing_defaults(&mut options);
        }
        for (name, values) in &self.values {
            let setting = heddle_settings::find(name)
                .or_else(|| settings::find(name))
                .expect("values are kept under the names of settings");
            set_option(&setting, values, &mut options, &mut self.warnings)?;
        }
        if self.is_on("AddressDisableIPv6") {
            options.disable_ipv6();
        }
        options.complete(home).map_err(|(name, reason)| {
            let place =
                self.values.get(name).and_then(|values| values.last()).map_or(last, |value| &value.place);
            TorrcError::at(place, format!("{name}: {reason}"))
        })?;
        self.warnings.extend(missing(&options).map(|(option, text)| Warning {
            place: last.clone(),
            option: option.to_owned(),
            text: text.to_owned(),
        }));
        Ok((options, self.warnings))
    }
}

/// What a relay can do without, but an operator hardly meant to leave out: the option, and why it matters.
fn missing(options: &Options) -> impl Iterator<Item = (&'static str, &'static str)> {
    let contact = options.contact_info.is_none().then_some((
        "ContactInfo",
        "it is not set; set it so that you can be told when your relay misbehaves",
    ));
    let authority = options.authorities().next().is_none().then_some((
        "DirAuthority",
        "there is none, and the public network's are not built in, so the relay asks nobody for a consensus and \
         publishes nowhere; add the lines of your network",
    ));
    let votes = options.authorities().any(|authority| authority.v3_ident.is_some());
    let vote = (authority.is_none() && !votes).then_some((
        "DirAuthority",
        "none has a v3ident, without which nothing that they sign is believed, so the relay asks nobody for a \
         consensus; copy the whole lines of your network",
    ));
    contact.into_iter().chain(authority).chain(vote)
}

/// Puts an option's values into the options. The first of several equal warnings is enough. A value
/// that nothing heeds is a warning too, unless it is the default.
fn set_option(
    setting: &Setting,
    values: &[Value],
    options: &mut Options,
    warnings: &mut Vec<Warning>,
) -> Result<(), TorrcError> {
    let before = options.clone();
    let mut said: Vec<String> = Vec::new();
    for value in values {
        let mut texts = Vec::new();
        setting
            .set(options, &value.text, &mut texts)
            .map_err(|reason| TorrcError::at(&value.place, format!("{}: {reason}", setting.name)))?;
        for text in texts {
            if !said.contains(&text) {
                said.push(text.clone());
                warnings.push(Warning { place: value.place.clone(), option: setting.name.to_owned(), text });
            }
        }
    }
    if let (false, Some(value), true) = (setting.has_effect(), values.last(), *options != before) {
        warnings.push(Warning {
            place: value.place.clone(),
            option: setting.name.to_owned(),
            text: NOT_SUPPORTED.to_owned(),
        });
    }
    let zero = |value: &Value| values::is_port_off(&value.text);
    if setting.name == "ORPort" && values.iter().any(zero) && !values.iter().all(zero) {
        let value = values.iter().find(|value| zero(value)).expect("one was found just now");
        let text =
            "ORPort: `ORPort 0` turns off a port that another line sets; remove one of them".to_owned();
        return Err(TorrcError::at(&value.place, text));
    }
    Ok(())
}

/// What `TestingTorNetwork 1` changes for a relay (tor(1), "TestingTorNetwork").
fn apply_testing_defaults(options: &mut Options) {
    options.count_private_bandwidth = true;
    options.dir_allow_private_addresses = true;
    options.extend_allow_private_addresses = true;
    options.exit_policy_reject_private = false;
    options.testing_dir_connection_max_stall_s = 30;
}

impl TorrcError {
    fn at(place: &Place, text: String) -> Self {
        Self { place: place.clone(), text }
    }
}

impl Warning {
    /// Whether what was written has no effect, because Heddle does not heed the option.
    pub fn is_of_no_effect(&self) -> bool {
        self.text == NOT_SUPPORTED || self.text == settings::NO_FAMILY_KEYS
    }

    /// The stock name of the option it is about.
    pub fn option(&self) -> &str {
        &self.option
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.option, self.text)
    }
}

impl fmt::Display for TorrcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

impl std::error::Error for TorrcError {}

impl fmt::Display for Place {
    /// `FILE:LINE`, or `FILE` for what concerns the whole file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file.display()),
            line => write!(f, "{}:{line}", self.file.display()),
        }
    }
}
