//! What the laboratory's commands print, and how they name themselves.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use heddle_lab::bench::text;
use heddle_lab::results::Summary;
use serde_json::Value;

/// Prints JSON for other programs.
pub(crate) fn print_json(value: &Value) -> Result<(), Box<dyn Error>> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Prints to whoever reads, who may have read enough (`| head`).
pub fn print(text: &str) -> Result<(), Box<dyn Error>> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The command as it would be typed again.
pub(crate) fn command_line() -> String {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let name =
        Path::new(&program).file_name().map_or(program.clone(), |name| name.to_string_lossy().into_owned());
    let quoted = arguments.map(|argument| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:".contains(c);
        let is_plain = !argument.is_empty() && argument.chars().all(plain);
        if is_plain { argument } else { format!("'{}'", argument.replace('\'', "'\\''")) }
    });
    std::iter::once(name).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// How a command ends whose results may be valid, or not.
pub(crate) fn validity(summary: &Summary) -> ExitCode {
    if summary.valid { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

/// Prints what a bench gave. Returns how its command ends.
pub(crate) fn tell(summary: &Summary, as_json: bool) -> Result<ExitCode, Box<dyn Error>> {
    match as_json {
        true => println!("{}", serde_json::to_string_pretty(summary)?),
        false => print!("{}", text(summary)),
    }
    Ok(validity(summary))
}

/// A time for people.
pub fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
