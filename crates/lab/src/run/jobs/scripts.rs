//! How HyperQueue, Slurm, PBS and a shell have jobs made.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};

/// Where things are on the machines that make jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// The program.
    pub(super) program: &'a Path,
    /// The directory of jobs.
    pub(super) dir: &'a Path,
    /// Where they say how they are getting on.
    pub(super) logs: &'a Path,
}

/// Names and texts of the files by which so many jobs are made.
///
/// # Errors
///
/// [`Error::Options`] for a place whose name cannot stand in a script.
pub(super) fn scripts(plan: &str, jobs: usize, places: Places<'_>) -> Result<[(&'static str, String); 4]> {
    let Places { program, dir, logs } = places;
    if !program.is_absolute() {
        let program = program.display();
        return Err(Error::Options(format!("{program}: machines need the program's path from the root on")));
    }
    let [program, dir, logs] = [text(program)?, text(dir)?, text(logs)?];
    Ok([
        ("hyperqueue.toml", hyperqueue(plan, jobs, [program, dir, logs])),
        ("slurm.sh", slurm(jobs, [program, dir, logs])),
        ("pbs.sh", pbs(jobs, [program, dir, logs])),
        ("plain.sh", plain(jobs, [program, dir, logs])),
    ])
}

/// A task for each job, with the job's number for its id, as the job definition files of HyperQueue have them.
fn hyperqueue(plan: &str, jobs: usize, [program, dir, logs]: [&str; 3]) -> String {
    let mut file = format!("# hq job submit-file hyperqueue.toml\nname = {}\n", quoted(plan));
    for number in 1..=jobs {
        let arguments = [program, "lab", "job", dir, &number.to_string()].map(quoted).join(", ");
        let log = quoted(&format!("{logs}/{number}.log"));
        let _ = write!(
            file,
            "\n[[task]]\nid = {number}\ncommand = [{arguments}]\nstdout = \"none\"\nstderr = {log}\n"
        );
    }
    file
}

fn slurm(jobs: usize, places: [&str; 3]) -> String {
    format!(
        "#!/bin/sh\n\
         # sbatch slurm.sh\n\
         #SBATCH --job-name=heddle-jobs\n\
         #SBATCH --array=1-{jobs}\n\
         #SBATCH --ntasks=1\n\
         #SBATCH --cpus-per-task=1\n\
         #SBATCH --requeue\n\
         #SBATCH --output=/dev/null\n\
         {}",
        one_of_an_array("${SLURM_ARRAY_TASK_ID:-1}", places)
    )
}

fn pbs(jobs: usize, places: [&str; 3]) -> String {
    // An array of one is refused there.
    let array = if jobs > 1 { format!("#PBS -J 1-{jobs}\n") } else { String::new() };
    format!(
        "#!/bin/sh\n\
         # qsub pbs.sh\n\
         #PBS -N heddle-jobs\n\
         {array}\
         #PBS -l select=1:ncpus=1\n\
         #PBS -r y\n\
         #PBS -o /dev/null\n\
         #PBS -e /dev/null\n\
         {}",
        one_of_an_array("${PBS_ARRAY_INDEX:-1}", places)
    )
}

/// The last lines of a script that makes the job whose number the shell has there.
fn one_of_an_array(number: &str, [program, dir, logs]: [&str; 3]) -> String {
    let [program, dir, logs] = [program, dir, logs].map(for_a_shell);
    format!("number=\"{number}\"\nexec {program} lab job {dir} \"$number\" >{logs}/\"$number\".log 2>&1\n")
}

fn plain(jobs: usize, [program, dir, logs]: [&str; 3]) -> String {
    let [program, dir, logs] = [program, dir, logs].map(for_a_shell);
    format!(
        "#!/bin/sh\n\
         # Makes the jobs from FIRST to LAST that are not made yet, N at the same time: sh plain.sh [N [FIRST LAST]]\n\
         seq \"${{2:-1}}\" \"${{3:-{jobs}}}\" | xargs -n 1 -P \"${{1:-$(nproc)}}\" sh -c '\n    \
         \"$1\" lab job \"$2\" \"$4\" 2>\"$3/$4.log\" && exit 0\n    \
         echo \"job $4 failed; see $3/$4.log\" >&2\n    \
         exit 1\n\
         ' sh {program} {dir} {logs}\n"
    )
}

/// A place as text that a line of a script can have.
fn text(place: &Path) -> Result<&str> {
    place.to_str().filter(|text| !text.contains(char::is_control)).ok_or_else(|| {
        Error::Options(format!("{place:?}: scripts name places in UTF-8, without control characters"))
    })
}

/// Text without control characters, for TOML, whose strings have the escapes of JSON's.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn for_a_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
