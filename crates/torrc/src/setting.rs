//! A line of the table of options: how its value is read and put.

use heddle_transport::registry::{self, Chosen, TransportOption};

use super::options::Options;

/// How many lines of an option count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// Only the last one.
    One,
    /// All of them.
    All,
}

/// One option: its stock name, how many of its lines count, and what a value does.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) lines: Lines,
    effect: Effect,
}

#[derive(Clone, Copy)]
enum Effect {
    Set(fn(&mut Options, &str, &mut Vec<String>) -> Result<(), String>),
    /// Chooses among the words that a transport's option has.
    Choose(&'static TransportOption),
}

/// Options whose values are read and checked, but change nothing.
const WITHOUT_EFFECT: &[&str] = &[
    "AssumeReachableIPv6",
    "CircuitPadding",
    "ConnectionPadding",
    "DirAllowPrivateAddresses",
    "DoSRefuseSingleHopClientRendezvous",
    "OutboundBindAddressExit",
    "ReducedCircuitPadding",
    "ReducedConnectionPadding",
    "RunAsDaemon",
    "SafeLogging",
    "ServerDNSAllowBrokenConfig",
    "TestingAuthKeyLifetime",
    "TestingAuthKeySlop",
    "TestingDirConnectionMaxStall",
    "TestingLinkCertLifetime",
    "TestingLinkKeySlop",
    "TestingSigningKeySlop",
];

impl Setting {
    /// Puts a value into the options. The `Vec` takes warnings, an error is the reason and the mend.
    pub(super) fn set(
        &self,
        options: &mut Options,
        text: &str,
        warnings: &mut Vec<String>,
    ) -> Result<(), String> {
        match self.effect {
            Effect::Set(set) => set(options, text, warnings),
            Effect::Choose(option) => choose(&mut options.heddle.chosen, option, text),
        }
    }

    /// Whether a relay does anything with the value.
    pub(super) fn has_effect(&self) -> bool {
        !WITHOUT_EFFECT.contains(&self.name)
    }
}

pub(super) const fn one(
    name: &'static str,
    set: fn(&mut Options, &str, &mut Vec<String>) -> Result<(), String>,
) -> Setting {
    Setting { name, lines: Lines::One, effect: Effect::Set(set) }
}

pub(super) const fn all(
    name: &'static str,
    set: fn(&mut Options, &str, &mut Vec<String>) -> Result<(), String>,
) -> Setting {
    Setting { name, lines: Lines::All, effect: Effect::Set(set) }
}

/// The setting of a transport's own option, in any case.
pub(super) fn find_of_transport(name: &str) -> Option<Setting> {
    let option = registry::option(name)?;
    Some(Setting { name: option.name, lines: Lines::One, effect: Effect::Choose(option) })
}

pub(super) fn put<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

pub(super) fn push<T>(field: &mut Vec<T>, value: Result<T, String>) -> Result<(), String> {
    field.push(value?);
    Ok(())
}

/// The value of a transport's option is kept as the registry spells it, and its default is nothing.
fn choose(chosen: &mut Chosen, option: &TransportOption, text: &str) -> Result<(), String> {
    if text.eq_ignore_ascii_case("auto") {
        chosen.remove(option.name);
        return Ok(());
    }
    let found = option.values.iter().find(|value| value.eq_ignore_ascii_case(text));
    let value = found.ok_or_else(|| format!("`{text}` is none of auto, {}", option.values.join(", ")))?;
    chosen.insert(option.name, value);
    Ok(())
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("`{text}` is neither 0 nor 1")),
    }
}

pub(super) fn flag_or_auto(text: &str) -> Result<Option<bool>, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    flag(text).map(Some).map_err(|_| format!("`{text}` is none of 0, 1 and auto"))
}

pub(super) fn count(text: &str) -> Result<u32, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<i32>().ok().filter(|_| digits);
    number
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| format!("`{text}` is not a whole number"))
}

/// The items of a list separated by commas.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}
