//! The command line as types. Help texts are for users; the rest of the program sees only what they chose.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::runner::Mode;
use crate::staging::check_id;

/// Moves tables between systems through sandboxed connectors
#[derive(Debug, Parser)]
#[command(
    name = "setu",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) verb: Verb,
    #[command(flatten)]
    pub(super) logging: LoggingArguments,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Messages")]
pub(super) struct LoggingArguments {
    /// How messages on standard error look
    #[arg(
        long,
        value_enum,
        global = true,
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(super) log_format: LogFormat,
    /// Which log lines are shown
    #[arg(
        long,
        value_enum,
        global = true,
        value_name = "LEVEL",
        conflicts_with = "verbose"
    )]
    pub(super) log_level: Option<LogLevel>,
    /// Show more log lines: -v those of level info, -vv debug, -vvv trace
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Lines for people, with progress bars on a terminal
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Move the streams of a pipeline: extract and load, staged or direct
    Run(RunArguments),
    /// The first half: from the source to the blob store
    Extract(ExtractArguments),
    /// The second half: from the blob store to the destination
    Load(LoadArguments),
    /// Show what a run would do, and what each connector may reach
    Plan(PlanArguments),
    /// Reach both ends of a pipeline and log in
    Check(JobArguments),
    /// List the source's streams with their columns
    Discover(DiscoverArguments),
    /// Show the first rows of streams, straight from the source
    Preview(PreviewArguments),
    /// List the runs of a pipeline, the newest first
    Runs(RunsArguments),
    /// Show the streams of a run and how far they are
    Show(ShowArguments),
    /// Print the staged rows of a stream
    Cat(CatArguments),
    /// Give up a run that has not come to its end: nothing goes on with it, and no run waits for it
    GiveUp(GiveUpArguments),
    /// Remove old runs of a pipeline, and staged objects that no manifest names
    Gc(GcArguments),
    /// Look at connectors
    Plugin(PluginArguments),
}

/// What is worked on.
#[derive(Clone, Debug, Args)]
pub(super) struct PipelineArguments {
    /// The pipeline file
    #[arg(value_name = "PIPELINE", required_unless_present = "job")]
    pub(super) pipeline: Option<PathBuf>,
    /// A job that `setu plan --job-out` wrote, instead of a pipeline file
    #[arg(long, value_name = "FILE", conflicts_with = "pipeline")]
    pub(super) job: Option<PathBuf>,
}

/// What is worked on, by verbs that open connectors.
#[derive(Clone, Debug, Args)]
pub(super) struct JobArguments {
    #[command(flatten)]
    pub(super) file: PipelineArguments,
    /// The platform team's ceiling on grants and limits: what goes beyond it is refused
    #[arg(long, value_name = "FILE", env = "SETU_POLICY")]
    pub(super) policy: Option<PathBuf>,
}

/// How a run is carried out.
#[derive(Clone, Debug, Args)]
pub(super) struct CopyArguments {
    /// Only this stream of the pipeline, by its qualified name; may be repeated
    #[arg(long = "stream", value_name = "NAME")]
    pub(super) streams: Vec<String>,
    /// How many streams are copied at the same time [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub(super) parallel: Option<NonZeroUsize>,
    /// Take the run over from another process that is at work on it, and stop that one
    #[arg(long)]
    pub(super) take_over: bool,
    /// Write a report of the run as JSON to this file, or to standard output for `-`
    #[arg(long, value_name = "FILE|-")]
    pub(super) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// The run's id [default: that of the newest unfinished run, or a new one]
    #[arg(long, value_name = "ID", value_parser = run_id)]
    pub(super) run: Option<String>,
    /// Whether rows go through the blob store
    #[arg(long, value_enum, default_value = "auto", value_name = "MODE")]
    pub(super) mode: ModeArgument,
    #[command(flatten)]
    pub(super) copy: CopyArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeArgument {
    /// Direct up to SETU_DIRECT_MAX_ROWS rows (50,000 unless set), staged beyond
    Auto,
    /// From the source straight to the destination
    Direct,
    /// Through the blob store
    Staged,
}

impl From<ModeArgument> for Mode {
    fn from(mode: ModeArgument) -> Mode {
        match mode {
            ModeArgument::Auto => Mode::Auto,
            ModeArgument::Direct => Mode::Direct,
            ModeArgument::Staged => Mode::Staged,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ExtractArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// The run's id, the same for both halves
    #[arg(long, value_name = "ID", value_parser = run_id)]
    pub(super) run: String,
    #[command(flatten)]
    pub(super) copy: CopyArguments,
}

#[derive(Debug, Args)]
pub(super) struct LoadArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// The run's id, the same for both halves
    #[arg(long, value_name = "ID", value_parser = run_id)]
    pub(super) run: String,
    /// Wait for streams that are still being extracted, and load each as it becomes complete
    #[arg(long)]
    pub(super) wait: bool,
    #[command(flatten)]
    pub(super) copy: CopyArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The rows that it has committed stay where they are, and the next run brings them again."
)]
pub(super) struct GiveUpArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// The run's id
    #[arg(long, value_name = "ID", value_parser = run_id)]
    pub(super) run: String,
    /// Print JSON: each stream that it had begun to load, with the rows committed
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct PlanArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// Also write the job for `--job`, with every variable replaced. It may hold secrets: only its owner can read it
    #[arg(long, value_name = "FILE")]
    pub(super) job_out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct DiscoverArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct PreviewArguments {
    #[command(flatten)]
    pub(super) job: JobArguments,
    /// Only this stream of the source, whether the pipeline has it or not; may be repeated
    #[arg(long = "stream", value_name = "NAME")]
    pub(super) streams: Vec<String>,
    /// How many rows of each stream
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rows: u32,
    /// Print each row as a JSON object on a line of its own, whole
    #[arg(long)]
    pub(super) json: bool,
}

/// Where staged runs are looked for.
#[derive(Clone, Debug, Default, Args)]
#[command(
    after_help = "Without --pipeline or --job, runs are looked for in the blob store that SETU_BLOB_* name, or \
                        else in .setu/blob below the current folder."
)]
pub(super) struct StoreArguments {
    /// The pipeline file that the run belongs to
    #[arg(long, value_name = "FILE")]
    pub(super) pipeline: Option<PathBuf>,
    /// The job that the run belongs to
    #[arg(long, value_name = "FILE", conflicts_with = "pipeline")]
    pub(super) job: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct RunsArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// The run's id [default: the newest run]
    #[arg(value_name = "RUN")]
    pub(super) run: Option<String>,
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CatArguments {
    /// The run's id
    #[arg(value_name = "RUN")]
    pub(super) run: String,
    /// The stream's qualified name
    #[arg(value_name = "STREAM")]
    pub(super) stream: String,
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// How rows look
    #[arg(long, value_enum, default_value = "json", value_name = "FORMAT")]
    pub(super) format: RowFormat,
    /// Only the first rows
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RowFormat {
    /// Each row a JSON object on a line of its own
    Json,
    /// Comma-separated values with a header; nulls are empty, empty texts are ""
    Csv,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A run that a process is at work on is never touched. A run that has not come to an end is kept, \
                        since its rows may wait to be loaded, unless --unfinished is given. State, the cursors of \
                        incremental streams, is never removed."
)]
pub(super) struct GcArguments {
    #[command(flatten)]
    pub(super) job: PipelineArguments,
    /// Remove what was not written to for so long: 90s, 30m, 12h, 7d or 4w
    #[arg(long, value_name = "AGE", value_parser = age, required_unless_present = "keep_last")]
    pub(super) older_than: Option<Duration>,
    /// Keep this many of the newest runs, whatever their age
    #[arg(long, value_name = "N")]
    pub(super) keep_last: Option<usize>,
    /// Also remove runs that have not come to an end, with rows that were never loaded
    #[arg(long)]
    pub(super) unfinished: bool,
    /// Only show what would be removed
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `90s`, `30m`, `12h`, `7d`, `4w`
fn age(text: &str) -> Result<Duration, String> {
    let seconds = |unit| match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        "w" => Some(7 * 86_400),
        _ => None,
    };
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds(unit)?))
        .map(Duration::from_secs)
        .ok_or_else(|| "a number and a unit are needed: 90s, 30m, 12h, 7d or 4w".to_owned())
}

#[derive(Debug, Args)]
pub(super) struct PluginArguments {
    #[command(subcommand)]
    pub(super) verb: PluginVerb,
}

#[derive(Debug, Subcommand)]
pub(super) enum PluginVerb {
    /// List the connectors that a pipeline can name
    List,
    /// Show what a connector is, what it says of itself and how it is configured
    Inspect {
        /// A connector's name or the path of its `.wasm` file
        #[arg(value_name = "CONNECTOR")]
        connector: String,
        /// Also show what it may reach in this pipeline
        #[arg(long, value_name = "FILE")]
        pipeline: Option<PathBuf>,
        /// The platform team's policy: code that it does not allow is not run to ask it
        #[arg(long, value_name = "FILE", env = "SETU_POLICY")]
        policy: Option<PathBuf>,
    },
    /// Pin the connectors of a pipeline in `setu.lock` as they are now
    Lock {
        /// The pipeline file
        #[arg(value_name = "PIPELINE")]
        pipeline: PathBuf,
        /// The platform team's policy: code that it does not allow is not pinned
        #[arg(long, value_name = "FILE", env = "SETU_POLICY")]
        policy: Option<PathBuf>,
    },
}

fn run_id(id: &str) -> Result<String, String> {
    check_id("run", id).map_err(|error| error.to_string())?;
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Verb, String> {
        let parsed = Arguments::try_parse_from(["setu"].into_iter().chain(line.split_whitespace()));
        parsed.map(|arguments| arguments.verb).map_err(|error| {
            assert_eq!(error.exit_code(), 2, "{line}");
            error.to_string()
        })
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn run_takes_what_its_help_says() {
        let line = "run p.yaml --run a.1 --mode staged --stream x --stream y --parallel 3 --report - -vv --log-format json";
        let Ok(Verb::Run(run)) = parse(line) else {
            panic!("it parses")
        };
        assert_eq!(
            run.job.file.pipeline.as_deref(),
            Some(std::path::Path::new("p.yaml"))
        );
        assert_eq!(run.run.as_deref(), Some("a.1"));
        assert_eq!(Mode::from(run.mode), Mode::Staged);
        assert_eq!(run.copy.streams, ["x", "y"]);
        assert_eq!(run.copy.parallel.map(NonZeroUsize::get), Some(3));
        assert_eq!(run.copy.report.as_deref(), Some(std::path::Path::new("-")));
        let Ok(Verb::Run(run)) = parse("run p.yaml") else {
            panic!("it parses")
        };
        assert_eq!((Mode::from(run.mode), run.run), (Mode::Auto, None));
    }

    #[test]
    fn what_is_missing_or_contradicts_itself_is_a_usage_error() {
        for (line, expected) in [
            ("run", "<PIPELINE>"),
            ("run p.yaml --job j.json", "cannot be used with"),
            ("extract p.yaml", "--run <ID>"),
            ("load --job j.json", "--run <ID>"),
            (
                "run p.yaml --mode sideways",
                "[possible values: auto, direct, staged]",
            ),
            (
                "run p.yaml --run ../x",
                "run `../x` must start with a letter or digit",
            ),
            ("run p.yaml --parallel 0", "--parallel <N>"),
            ("give-up p.yaml", "--run <ID>"),
            ("give-up p.yaml --run ..", "run `..` must start with"),
            ("preview p.yaml --rows 0", "--rows <N>"),
            ("show r --pipeline p --job j", "cannot be used with"),
            ("check p.yaml -v --log-level info", "cannot be used with"),
            ("rum p.yaml", "unrecognized subcommand 'rum'"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1800),
            ("12h", 43_200),
            ("7d", 604_800),
            ("4w", 2_419_200),
        ] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in [
            "",
            "7",
            "d",
            "7 d",
            "-7d",
            "7y",
            "1.5h",
            "99999999999999999999d",
            "9999999999999999999w",
        ] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        assert!(parse("gc p.yaml").is_err());
        assert!(matches!(parse("gc p.yaml --keep-last 3"), Ok(Verb::Gc(_))));
    }

    #[test]
    fn both_halves_take_a_job_in_place_of_a_pipeline() {
        assert!(matches!(
            parse("extract --job j.json --run r"),
            Ok(Verb::Extract(_))
        ));
        let Ok(Verb::Load(load)) = parse("load --job j.json --run r --wait") else {
            panic!("it parses")
        };
        assert!(load.wait && load.job.file.pipeline.is_none());
    }
}
