//! What somebody who looks may ask, a line each (the interaction socket of libspe, thesis, section 4.2.2).
//!
//! ```text
//! list
//! collect on|off|clear|show SERIES|all
//! watch FAMILY [INDEX] every NANOSECONDS|at PLACE [with OBSERVER]
//! unwatch NUMBER
//! load OBSERVER BYTES
//! unload OBSERVER
//! ```
//!
//! Behind the line of `load` come so many bytes, the module.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::watch::{Watch, WatchId, When};

/// The longest line that is read, without its end.
pub const LINE_BYTES_MAX: usize = 256;
/// The longest module that is loaded.
pub const MODULE_BYTES_MAX: usize = 64 << 10;
/// The longest name of an observer.
const NAME_BYTES_MAX: usize = 32;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// What there is: families, series, observers, watches.
    List,
    /// Take a series down from now on, or do so no more.
    Collect { on: bool, which: Which },
    /// Forget what a series has.
    Clear(Which),
    /// Tell what a series has.
    Show(Which),
    /// Begin to look.
    Watch(Watch),
    /// Look no more.
    Unwatch(WatchId),
    /// Load an observer, or have it take the place of the one of that name. So many bytes follow.
    Load { name: String, bytes: usize },
    /// Forget an observer.
    Unload { name: String },
}

/// Which series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Every one.
    All,
    /// The one of that name.
    Named(String),
}

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear(String);

impl FromStr for Request {
    type Err = Unclear;

    fn from_str(line: &str) -> Result<Request, Unclear> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Unclear(format!("a request has at most {LINE_BYTES_MAX} bytes")));
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match *words.as_slice() {
            ["list"] => Ok(Request::List),
            ["collect", "on", which] => Ok(Request::Collect { on: true, which: Which::of(which) }),
            ["collect", "off", which] => Ok(Request::Collect { on: false, which: Which::of(which) }),
            ["collect", "clear", which] => Ok(Request::Clear(Which::of(which))),
            ["collect", "show", which] => Ok(Request::Show(Which::of(which))),
            ["watch", family, ref rest @ ..] => watch(family, rest).map(Request::Watch),
            ["unwatch", number] => Ok(Request::Unwatch(WatchId(whole(number)?))),
            ["load", name, bytes] => load(name, bytes),
            ["unload", name] => Ok(Request::Unload { name: observer(name)? }),
            [] => Err(Unclear("a request is missing".to_owned())),
            [first, ..] => {
                Err(Unclear(format!("{first:?} is no request, or has not the words that it needs")))
            }
        }
    }
}

fn watch(family: &str, words: &[&str]) -> Result<Watch, Unclear> {
    let (index, words) = match words {
        [first, rest @ ..] if first.bytes().all(|byte| byte.is_ascii_digit()) => (Some(whole(first)?), rest),
        words => (None, words),
    };
    let (when, words) = match words {
        ["every", period, rest @ ..] => (When::Every(Duration::from_nanos(whole(period)?)), rest),
        ["at", place, rest @ ..] => (When::At((*place).to_owned()), rest),
        _ => return Err(Unclear(format!("say when to look at {family}: every NANOSECONDS, or at PLACE"))),
    };
    let observer = match words {
        [] => None,
        ["with", name] => Some(observer(name)?),
        _ => return Err(Unclear("behind the time of a look there is nothing but: with OBSERVER".to_owned())),
    };
    Ok(Watch { family: family.to_owned(), index, when, observer })
}

fn load(name: &str, bytes: &str) -> Result<Request, Unclear> {
    let name = observer(name)?;
    match usize::try_from(whole(bytes)?) {
        Ok(bytes) if bytes <= MODULE_BYTES_MAX => Ok(Request::Load { name, bytes }),
        _ => Err(Unclear(format!("an observer has at most {MODULE_BYTES_MAX} bytes"))),
    }
}

/// The name of an observer: letters, digits, `_` and `-`.
fn observer(name: &str) -> Result<String, Unclear> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match name.len() <= NAME_BYTES_MAX && name.bytes().all(is_good) {
        true => Ok(name.to_owned()),
        false => Err(Unclear(format!(
            "an observer's name has letters, digits, `_` and `-`, {NAME_BYTES_MAX} at most"
        ))),
    }
}

fn whole(word: &str) -> Result<u64, Unclear> {
    word.parse().map_err(|_| Unclear(format!("{word:?} is no whole number, or too large")))
}

impl Which {
    fn of(word: &str) -> Which {
        match word {
            "all" => Which::All,
            name => Which::Named(name.to_owned()),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::List => f.write_str("list"),
            Request::Collect { on: true, which } => write!(f, "collect on {which}"),
            Request::Collect { on: false, which } => write!(f, "collect off {which}"),
            Request::Clear(which) => write!(f, "collect clear {which}"),
            Request::Show(which) => write!(f, "collect show {which}"),
            Request::Watch(watch) => write!(f, "watch {watch}"),
            Request::Unwatch(WatchId(number)) => write!(f, "unwatch {number}"),
            Request::Load { name, bytes } => write!(f, "load {name} {bytes}"),
            Request::Unload { name } => write!(f, "unload {name}"),
        }
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.family)?;
        if let Some(index) = self.index {
            write!(f, " {index}")?;
        }
        match &self.when {
            When::Every(period) => write!(f, " every {}", period.as_nanos())?,
            When::At(place) => write!(f, " at {place}")?,
        }
        match &self.observer {
            Some(name) => write!(f, " with {name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::All => f.write_str("all"),
            Which::Named(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Unclear {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unclear(line: &str) -> String {
        line.parse::<Request>().unwrap_err().to_string()
    }

    #[test]
    fn requests_are_read() {
        let watch = Watch {
            family: "lanes".to_owned(),
            index: Some(7),
            when: When::Every(Duration::from_millis(100)),
            observer: Some("mine".to_owned()),
        };
        assert_eq!("watch lanes 7 every 100000000 with mine".parse(), Ok(Request::Watch(watch)));
        assert_eq!("  list ".parse(), Ok(Request::List));
        assert_eq!("collect on all".parse(), Ok(Request::Collect { on: true, which: Which::All }));
        assert_eq!("load a 65536".parse(), Ok(Request::Load { name: "a".to_owned(), bytes: 65_536 }));
    }

    #[test]
    fn what_is_no_request_is_told_in_a_sentence() {
        assert_eq!(unclear(""), "a request is missing");
        assert_eq!(unclear("watch lanes"), "say when to look at lanes: every NANOSECONDS, or at PLACE");
        assert_eq!(unclear("dance now"), "\"dance\" is no request, or has not the words that it needs");
        assert!(unclear("load a 65537").contains("at most 65536 bytes"));
        assert!(unclear("load ../../x 5").contains("letters, digits"));
        assert!(unclear("watch lanes every 99999999999999999999").contains("too large"));
        assert!(unclear("watch lanes every 5 for me").contains("with OBSERVER"));
        assert!(unclear(&"x".repeat(1_000)).contains("256 bytes"));
    }

    fn word() -> impl Strategy<Value = String> {
        "[a-z][a-z0-9_-]{0,20}".prop_filter("all is no name", |word| word != "all")
    }

    fn request() -> impl Strategy<Value = Request> {
        let which = || prop_oneof![Just(Which::All), word().prop_map(Which::Named)];
        let when = prop_oneof![
            any::<u64>().prop_map(|ns| When::Every(Duration::from_nanos(ns))),
            word().prop_map(When::At)
        ];
        let watch = (word(), any::<Option<u64>>(), when, proptest::option::of(word()));
        prop_oneof![
            Just(Request::List),
            (any::<bool>(), which()).prop_map(|(on, which)| Request::Collect { on, which }),
            which().prop_map(Request::Clear),
            which().prop_map(Request::Show),
            watch.prop_map(|(family, index, when, observer)| {
                Request::Watch(Watch { family, index, when, observer })
            }),
            any::<u64>().prop_map(|number| Request::Unwatch(WatchId(number))),
            (word(), 0..=MODULE_BYTES_MAX).prop_map(|(name, bytes)| Request::Load { name, bytes }),
            word().prop_map(|name| Request::Unload { name }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_that_was_written_is_read(request in request()) {
            prop_assert_eq!(request.to_string().parse(), Ok(request));
        }

        #[test]
        fn any_line_is_read_or_refused(line in ".{0,300}") {
            if let Ok(request) = line.parse::<Request>() {
                prop_assert_eq!(request.to_string().parse(), Ok(request));
            }
        }
    }
}
