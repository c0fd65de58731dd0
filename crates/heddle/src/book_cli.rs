//! `heddle lab book`: the book of results.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand};
use heddle_lab::book::{self, Book, MeasureOptions, Step};
use serde_json::json;

use crate::output::{minutes, print, print_json};

const EXAMPLES: &str = "\
Examples:
  heddle lab book list                                what is measured, and how long it takes
  heddle lab book run                                 measures all that is missing at this commit
  heddle lab book run --only bench,thesis-exp08       only these
  heddle lab book draw --from target/book/COMMIT      takes what was measured over, and draws the pages
  heddle lab book draw --check                        fails when a page is not what the figures say

A run that was interrupted goes on when it is begun again. Nothing is measured twice at one commit.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BookArgs {
    #[command(subcommand)]
    command: Command,
    /// Another list than the one that comes with the program.
    #[arg(long, value_name = "FILE", global = true)]
    list: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the measurements.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Makes measurements, each once, at the commit that is checked out.
    Run {
        /// Only these, separated by commas.
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        only: Vec<String>,
        /// Where results go, a directory for each commit.
        #[arg(long, value_name = "DIR", default_value = "target/book")]
        out: PathBuf,
        /// Measures although files differ from the commit; the figures say so.
        #[arg(long)]
        allow_dirty: bool,
    },
    /// Draws the pages and the README's table from the figures in docs/results.
    Draw {
        /// Takes over what was measured there first.
        #[arg(long, value_name = "DIR", conflicts_with = "check")]
        from: Option<PathBuf>,
        /// Only tells which files are not what the figures say.
        #[arg(long)]
        check: bool,
        /// The repository.
        #[arg(long, value_name = "DIR", default_value = ".")]
        root: PathBuf,
    },
}

/// Does what the arguments say.
pub fn run(args: BookArgs) -> Result<ExitCode, Box<dyn Error>> {
    let book = args.list.map_or_else(Book::shipped, |path| Book::read(&path))?;
    match args.command {
        Command::List { json } => list(&book, json)?,
        Command::Run { only, out, allow_dirty } => {
            let heddle = std::env::current_exe()?;
            return measure(&book, &MeasureOptions { heddle, out, only, allow_dirty });
        }
        Command::Draw { check: true, root, .. } => {
            let stale = book::stale(&book, &root)?;
            stale.iter().for_each(|path| eprintln!("{}: not what the figures say", path.display()));
            return Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Draw { from, root, .. } => {
            if let Some(dir) = from {
                println!(
                    "{} measurements taken over from {}",
                    book::collect(&book, &dir, &root)?,
                    dir.display()
                );
            }
            book::draw(&book, &root)?.iter().for_each(|path| println!("{} written", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(book: &Book, json: bool) -> Result<(), Box<dyn Error>> {
    let all = &book.measurements;
    if json {
        let describe = |wanted: &book::Wanted| {
            json!({
                "name": wanted.name,
                "page": wanted.page,
                "command": wanted.command,
                "minutes": wanted.minutes,
            })
        };
        return print_json(&all.iter().map(describe).collect());
    }
    let width = all.iter().map(|wanted| wanted.name.len()).max().unwrap_or(0);
    let line = |wanted: &book::Wanted| {
        format!("{:width$}  {:>3} min  heddle {}\n", wanted.name, wanted.minutes, wanted.command)
    };
    let total = all.iter().map(book::Wanted::time).sum();
    print(&(all.iter().map(line).collect::<String>() + &format!("All take about {}.\n", minutes(total))))
}

fn measure(book: &Book, options: &MeasureOptions) -> Result<ExitCode, Box<dyn Error>> {
    let mut begun = Instant::now();
    let (dir, failed) = book::measure(book, options, &mut |step| match step {
        Step::Known(wanted) => eprintln!("{}: measured at this commit before", wanted.name),
        Step::Begins(wanted, left) => {
            begun = Instant::now();
            eprintln!("[about {} left] {}: heddle {}", minutes(left), wanted.name, wanted.command);
        }
        Step::Disturbed(wanted) => {
            eprintln!("{}: the machine is not quiet; it is measured nevertheless", wanted.name);
        }
        Step::Ended(wanted, valid) => {
            let valid = if valid { "valid" } else { "NOT VALID" };
            eprintln!("{}: {valid}, after {}", wanted.name, minutes(begun.elapsed()));
        }
        Step::Failed(wanted, log) => eprintln!("{}: no results; see {}", wanted.name, log.display()),
    })?;
    println!(
        "Results are in {}. Draw the pages: heddle lab book draw --from {}",
        dir.display(),
        dir.display()
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
