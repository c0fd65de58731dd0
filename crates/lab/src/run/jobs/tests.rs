//! What the scripts of jobs say.

use std::path::Path;

use super::scripts::{Places, scripts};
use crate::error::Result;

fn written(jobs: usize, program: &str, dir: &str) -> Result<[String; 4]> {
    let logs = Path::new(dir).join("logs");
    let places = Places { program: Path::new(program), dir: Path::new(dir), logs: &logs };
    scripts("a-plan", jobs, places).map(|files| files.map(|(_, text)| text))
}

#[test]
fn a_job_definition_file_has_a_task_for_each_job() {
    let (program, dir) = ("/opt/a \"b\" \\c/heddle", "/data/it's ü");
    let [file, ..] = written(2, program, dir).unwrap();
    let file: toml::Table = toml::from_str(&file).unwrap();
    assert_eq!(file["name"].as_str(), Some("a-plan"));
    let tasks = file["task"].as_array().unwrap();
    assert_eq!(tasks.len(), 2);
    for (task, number) in tasks.iter().zip(1_i64..) {
        let command: Vec<&str> =
            task["command"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect();
        assert_eq!(command, [program, "lab", "job", dir, &number.to_string()]);
        assert_eq!(task["id"].as_integer(), Some(number));
        assert_eq!(task["stdout"].as_str(), Some("none"));
        assert_eq!(task["stderr"].as_str(), Some(&*format!("{dir}/logs/{number}.log")));
    }
}

#[test]
fn scripts_of_arrays_make_the_job_of_their_number() {
    let [_, slurm, pbs, _] = written(12, "/opt/heddle", "/data/it's").unwrap();
    let last = |number: &str| {
        format!(
            "number=\"{number}\"\nexec '/opt/heddle' lab job '/data/it'\\''s' \"$number\" \
             >'/data/it'\\''s/logs'/\"$number\".log 2>&1\n"
        )
    };
    assert!(
        slurm.contains("\n#SBATCH --array=1-12\n") && slurm.ends_with(&last("${SLURM_ARRAY_TASK_ID:-1}"))
    );
    assert!(pbs.contains("\n#PBS -J 1-12\n") && pbs.ends_with(&last("${PBS_ARRAY_INDEX:-1}")), "{pbs}");
    // PBS has no array of one.
    let [_, slurm, pbs, _] = written(1, "/opt/heddle", "/data").unwrap();
    assert!(slurm.contains("--array=1-1\n") && !pbs.contains("-J"), "{pbs}");
}

#[test]
fn places_that_no_script_can_name_are_refused() {
    for (program, dir, said) in [
        ("heddle", "/data", "heddle: machines need"),
        ("/opt/heddle", "/da\nta", "without control characters"),
    ] {
        let refused = written(1, program, dir).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}
