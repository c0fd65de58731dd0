//! `heddle lab`: experiments over emulated wires, and their reports.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::book_cli::{self, BookArgs};
use crate::output::{command_line, minutes, print, print_json, validity};
use crate::trace_cli::{self, TraceArgs};
use clap::{Args, Subcommand, ValueEnum};
use heddle_lab::costs::Cpu;
use heddle_lab::fidelity;
use heddle_lab::figures::{self, Quantity};
use heddle_lab::plan::{self, Plan};
use heddle_lab::report;
use heddle_lab::results::{Results, Stored, Summary};
use heddle_lab::run::{BackendKind, CollectOptions, JobDone, RunOptions};
use serde_json::{Value, json};

/// Examples for `heddle lab --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  heddle lab list                                    the plans that ship
  heddle lab run calibrate --out results/calibrate   run one; see results/calibrate/report.html
  heddle lab run calibrate --runs 10 --set probes=1000 --out results/long
  heddle lab run thesis-exp08 --arms stock,quic --runs 4 --out results/loss
  heddle lab run thesis-exp08 --backend sim --arms tls,quic --runs 1 --out results/virtual
  heddle lab run thesis-exp08 --backend sim --arms tls --cpu costs.json --cores 1 --out results/busy
  heddle lab run thesis-exp08 --backend sim --arms quic --runs 1 --out results/seen --trace results/seen/trace
  heddle lab run isolation --phase beside --phase stall --runs 5 --out results/stall
  heddle lab run my-plan.toml --out results/mine     a plan of your own
  heddle lab fidelity first-byte --arms tls,quic --runs 1 --out results/fidelity
  heddle lab report results/a results/b --out both.html
  heddle lab jobs pctcp-network --runs 5 --out jobs  each arm of each run as a job, for HyperQueue, Slurm, PBS
  heddle lab job jobs 3                              makes one of them, on any machine
  heddle lab collect jobs --out results/network      puts together what they gave
  heddle lab book list                               the book of results: what it measures, and how long that takes

A run makes hosts and wires on this machine and takes them away again, also after Ctrl-C. It needs root,
or unprivileged user namespaces and /dev/net/tun; it says what is missing. With --backend sim hosts and
wires are simulated in virtual time, which needs neither and has no stock Tor; only such runs can be jobs. A run and
`collect` end with 0 when the result is valid, with 2 when it is not, and with 1 when there is none.";

#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the plans that ship.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows a plan.
    Show {
        /// A plan's name, or a TOML file.
        plan: String,
        /// Changes a value that the plan lets be set.
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
        set: Vec<(String, String)>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lists what is measured: names, units and meanings.
    Figures {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Runs a plan.
    Run(RunArgs),
    /// Writes the runs of a plan in virtual time as jobs for many machines: each arm of each run by itself.
    Jobs(JobsArgs),
    /// Makes one of these jobs, unless it is made already.
    Job {
        /// The directory of jobs.
        dir: PathBuf,
        /// The job's number, from 1.
        number: usize,
    },
    /// Puts together what jobs gave, as the same runs on one machine would have given it.
    Collect {
        /// The directory of jobs.
        dir: PathBuf,
        /// A directory for the results.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Prints the summary as JSON instead of as text.
        #[arg(long)]
        json: bool,
    },
    /// Runs plans over emulated wires and in virtual time, and compares what they gave.
    Fidelity(FidelityArgs),
    /// Measures what the book of results lists, and draws its pages.
    Book(BookArgs),
    /// Draws the report of one run anew, or of several side by side.
    Report {
        /// Directories that runs wrote.
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// The report. Default: report.html in the directory; several runs need a name.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Prints the summaries as JSON instead of as text.
        #[arg(long)]
        json: bool,
    },
}

/// What is to be measured.
#[derive(Debug, Args)]
struct WantedArgs {
    /// A plan's name, or a TOML file.
    plan: String,
    /// Only these arms, separated by commas. Default: all that are not there by choice.
    #[arg(long, value_name = "ARM", value_delimiter = ',')]
    arms: Vec<String>,
    /// Only this phase of the plan's network; may be given several times. Default: all.
    #[arg(long = "phase", value_name = "PHASE")]
    phases: Vec<String>,
    /// The seed of the first run. Default: the plan's.
    #[arg(long)]
    seed: Option<u64>,
    /// Changes a value that the plan lets be set.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// What hosts and wires are made of.
    #[arg(long, value_enum, default_value_t = Backend::Emu)]
    backend: Backend,
    /// How many runs, with --resume in all. Default: as the plan says.
    #[arg(long)]
    runs: Option<usize>,
    /// A directory for the results.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Adds runs to the results that are there, of the same plan, values, arms, phases, first seed, backend, costs,
    /// cryptography, commit and machine.
    #[arg(long)]
    resume: bool,
    /// Prints the summary as JSON instead of as text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    computing: ComputingArgs,
    #[command(flatten)]
    trace: TraceArgs,
}

#[derive(Debug, Args)]
struct JobsArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// What hosts and wires are made of: virtual time, because emulated wires are one machine's own.
    #[arg(long, value_enum, default_value_t = Backend::Sim)]
    backend: Backend,
    /// How many runs. Default: as the plan says.
    #[arg(long)]
    runs: Option<usize>,
    /// A directory for the jobs and what they give, which all machines see.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    computing: ComputingArgs,
    /// Where the machines have this program. Default: where it is here.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Prints the jobs as JSON instead of as text.
    #[arg(long)]
    json: bool,
}

/// What computing is in virtual time.
#[derive(Debug, Args)]
struct ComputingArgs {
    /// Charges each relay in virtual time for computing, by this table of costs; `heddle bench --costs FILE` writes one
    /// for this machine. Default: computing takes no time.
    #[arg(long, value_name = "FILE")]
    cpu: Option<PathBuf>,
    /// How many cores each relay has then.
    #[arg(long, default_value_t = 1, requires = "cpu")]
    cores: usize,
    /// With --backend sim: links encrypt nothing, and all is as long as ever. For networks of many hosts; results say
    /// so.
    #[arg(long)]
    null_crypto: bool,
}

impl ComputingArgs {
    fn cpu(&self) -> heddle_lab::error::Result<Option<Cpu>> {
        self.cpu.as_ref().map(|file| Cpu::read(file, self.cores)).transpose()
    }
}

#[derive(Debug, Args)]
struct FidelityArgs {
    /// Plans' names, or TOML files.
    #[arg(required = true, value_name = "PLAN")]
    plans: Vec<String>,
    /// Only these arms, separated by commas; in virtual time a model stands for stock Tor.
    #[arg(long, value_name = "ARM", value_delimiter = ',')]
    arms: Vec<String>,
    /// Only this phase of the plans' networks; may be given several times. Default: all.
    #[arg(long = "phase", value_name = "PHASE")]
    phases: Vec<String>,
    /// How many runs of each. Default: as the plan says.
    #[arg(long)]
    runs: Option<usize>,
    /// Changes a value that the plans let be set.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// A directory for the results, PLAN/emu and PLAN/sim in it; what is there already is not measured anew.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Backend {
    /// Network namespaces of this machine and emulated wires between them.
    Emu,
    /// Virtual time: simulated hosts and wires with the relay's own code, the same again for the same seed. Needs no
    /// root, and has no stock Tor.
    Sim,
}

impl From<Backend> for BackendKind {
    fn from(backend: Backend) -> BackendKind {
        match backend {
            Backend::Emu => BackendKind::Emu,
            Backend::Sim => BackendKind::Sim,
        }
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("{text:?} is not of the form KEY=VALUE"))
}

/// Does what the arguments say.
pub fn run(args: LabArgs) -> Result<ExitCode, Box<dyn Error>> {
    match args.command {
        Command::List { json } => list(json)?,
        Command::Show { plan, set, json } => show(&plan, &set.into_iter().collect(), json)?,
        Command::Figures { json } => list_figures(json)?,
        Command::Run(args) => return run_plan(args),
        Command::Jobs(args) => write_jobs(args)?,
        Command::Job { dir, number } => make_job(&dir, number)?,
        Command::Collect { dir, out, json } => return collect(dir, out, json),
        Command::Fidelity(args) => compare_backends(args)?,
        Command::Book(args) => return book_cli::run(args),
        Command::Report { dirs, out, json } => draw(&dirs, out, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<(), Box<dyn Error>> {
    let mut plans = Vec::new();
    for shipped in plan::shipped() {
        plans.push(Plan::load(shipped.name, &BTreeMap::new())?.plan);
    }
    if json {
        return print_json(&plans.iter().map(describe).collect::<Result<_, _>>()?);
    }
    let width = plans.iter().map(|plan| plan.name.len()).max().unwrap_or(0);
    for plan in &plans {
        let Plan { name, title, budget, runs, .. } = plan;
        println!("{name:width$}  {title} ({runs} runs, at most {})", minutes(*budget));
    }
    Ok(())
}

fn show(name: &str, set: &BTreeMap<String, String>, json: bool) -> Result<(), Box<dyn Error>> {
    let loaded = Plan::load(name, set)?;
    if json {
        return print_json(&describe(&loaded.plan)?);
    }
    print!("{}", loaded.text);
    Ok(())
}

fn list_figures(json: bool) -> Result<(), Box<dyn Error>> {
    if json {
        let describe = |quantity: &Quantity| {
            let Quantity { name, unit, title, meaning, labels, better, .. } = quantity;
            json!({
                "name": name, "unit": unit, "title": title, "meaning": meaning, "labels": labels, "better": better.name(),
            })
        };
        return print_json(&figures::all().map(describe).collect());
    }
    let width = figures::all().map(|quantity| quantity.name.len()).max().unwrap_or(0);
    let line = |Quantity { name, unit, title, meaning, .. }: &Quantity| {
        format!("{name:width$}  {unit:8}  {title}: {meaning}\n")
    };
    print(&figures::all().map(line).collect::<String>())
}

/// What a program may want to know about a plan.
fn describe(plan: &Plan) -> heddle_lab::error::Result<Value> {
    let arms = || plan.arms.iter().map(|arm| arm.as_ref());
    let names = |by_choice| arms().filter(move |arm| arm.by_choice == by_choice).map(|arm| arm.name.as_str());
    let phases =
        plan.tor.iter().flat_map(|tor| tor.as_ref().phases.iter().map(|phase| phase.as_ref().name.as_str()));
    let usual = plan.with_arms(&[])?;
    Ok(json!({
        "name": plan.name,
        "title": plan.title,
        "about": plan.about,
        "source": plan.source,
        "runs": plan.runs,
        "seed": plan.seed,
        "budget_s": plan.budget.as_secs_f64(),
        "run_s": plan::estimate(&usual).as_secs_f64(),
        "set": plan.set,
        "arms": names(false).collect::<Vec<_>>(),
        "arms_by_choice": names(true).collect::<Vec<_>>(),
        "phases": phases.collect::<Vec<_>>(),
    }))
}

fn run_plan(args: RunArgs) -> Result<ExitCode, Box<dyn Error>> {
    let WantedArgs { plan, arms, phases, seed, set } = args.wanted;
    let loaded = Plan::load(&plan, &set.into_iter().collect())?;
    let trace = args.trace.begin()?;
    let options = RunOptions {
        loaded,
        arms,
        phases,
        runs: args.runs,
        seed,
        out: args.out,
        resume: args.resume,
        command: command_line(),
        heddle: std::env::current_exe()?,
        backend: args.backend.into(),
        cpu: args.computing.cpu()?,
        null_crypto: args.computing.null_crypto,
        trace: trace.clone(),
    };
    let measured = heddle_lab::experiment(&options).inspect_err(|_| {
        if options.out.join("report.html").exists() {
            eprintln!("heddle: what was measured before is in {}", options.out.display());
        }
    });
    // A run that broke off is the one whose trace is wanted.
    if let Some(trace) = &trace {
        trace_cli::end(trace)?;
    }
    tell_results(&options.out, &measured?, args.json)
}

/// Prints what was measured and where the report is. Returns how the command ends.
fn tell_results(out: &Path, summary: &Summary, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    print_results(&[out.to_owned()], json)?;
    if !json {
        println!("{} written", out.join("report.html").display());
    }
    Ok(validity(summary))
}

fn write_jobs(args: JobsArgs) -> Result<(), Box<dyn Error>> {
    let WantedArgs { plan, arms, phases, seed, set } = args.wanted;
    let options = RunOptions {
        loaded: Plan::load(&plan, &set.into_iter().collect())?,
        arms,
        phases,
        runs: args.runs,
        seed,
        out: args.out,
        resume: false,
        command: command_line(),
        heddle: args.program.map_or_else(std::env::current_exe, Ok)?,
        backend: args.backend.into(),
        cpu: args.computing.cpu()?,
        null_crypto: args.computing.null_crypto,
        trace: None,
    };
    let jobs = heddle_lab::run::write_jobs(&options)?;
    let (dir, count) = (options.out.display(), jobs.len());
    if args.json {
        return print_json(&json!({ "dir": options.out, "jobs": jobs }));
    }
    print(&format!(
        "{count} jobs are in {dir}; have them made by one of\n  \
         hq job submit-file {dir}/hyperqueue.toml\n  \
         sbatch {dir}/slurm.sh\n  \
         qsub {dir}/pbs.sh\n  \
         sh {dir}/plain.sh\n\
         and put together what they gave: heddle lab collect {dir} --out RESULTS\n"
    ))
}

fn make_job(dir: &Path, number: usize) -> Result<(), Box<dyn Error>> {
    let JobDone { job, file, was_there } = heddle_lab::run::make_job(dir, number)?;
    let did = if was_there { "was there before" } else { "written" };
    print(&format!("{job}: {} {did}\n", file.display()))
}

fn collect(dir: PathBuf, out: PathBuf, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let options = CollectOptions { dir, out, command: command_line() };
    let summary = heddle_lab::collect(&options, &mut |fault| eprintln!("heddle: {fault}"))?;
    tell_results(&options.out, &summary, json)
}

fn compare_backends(args: FidelityArgs) -> Result<(), Box<dyn Error>> {
    let mut ratios = Vec::new();
    let set = args.set.into_iter().collect();
    for name in &args.plans {
        let options = RunOptions {
            loaded: Plan::load(name, &set)?,
            arms: args.arms.clone(),
            phases: args.phases.clone(),
            runs: args.runs,
            seed: None,
            out: args.out.clone(),
            resume: false,
            command: command_line(),
            heddle: std::env::current_exe()?,
            backend: BackendKind::default(),
            cpu: None,
            null_crypto: false,
            trace: None,
        };
        // On standard error, because a program may read the rest.
        ratios.extend(fidelity::measure(&options, &mut |remark| eprintln!("{remark}"))?);
    }
    if args.json {
        return print_json(&serde_json::to_value(&ratios)?);
    }
    print(&fidelity::text(&ratios))
}

fn draw(dirs: &[PathBuf], out: Option<PathBuf>, json: bool) -> Result<(), Box<dyn Error>> {
    let out = match (out, dirs) {
        (Some(out), _) => out,
        (None, [dir]) => dir.join("report.html"),
        (None, _) => return Err("the report of several runs needs --out FILE".into()),
    };
    report::write(dirs, &out)?;
    print_results(dirs, json)?;
    if !json {
        println!("{} written", out.display());
    }
    Ok(())
}

fn print_results(dirs: &[PathBuf], json: bool) -> Result<(), Box<dyn Error>> {
    let stored = dirs.iter().map(|dir| Stored::read(dir)).collect::<Result<Vec<_>, _>>()?;
    if json {
        let summaries: Vec<&Summary> = stored.iter().map(|stored| &stored.summary).collect();
        return print_json(&serde_json::to_value(summaries)?);
    }
    let results: Vec<Results<'_>> = stored.iter().map(Stored::results).collect();
    print!("{}", report::text(&results));
    Ok(())
}
