//! The names of congestion controls in plans.

use super::case::Tcp;

/// The congestion controls of `utcp`, by the kernel's names.
const UTCP_CONTROLS: [&str; 2] = ["cubic", "reno"];

/// Checks that all of these TCPs have a congestion control, as far as that can be known.
pub(super) fn check(name: &str, senders: &[Tcp]) -> Result<(), String> {
    check_name(name)?;
    if senders.contains(&Tcp::Utcp) && !UTCP_CONTROLS.contains(&name) {
        return Err(format!("utcp has no congestion control {name:?}"));
    }
    Ok(())
}

/// Checks what a kernel is asked for; only the kernel knows what it has.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(()),
        false => Err(format!("{name:?} is no congestion control")),
    }
}
