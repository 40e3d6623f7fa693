//! `cargo xtask bench`: how fast rows move and how much memory that takes, beside Postgres' own tool.
//!
//! The yardstick is `psql COPY (binary) | psql COPY`, on the same private server, in the same rounds: ratios to it
//! mean something on any machine, rows a second only on this one. Rounds are interleaved, so that a machine that
//! slows down slows everything down, and medians are shown.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::server::{SUPERUSER, Server, server_programs};
use crate::system::step;
use crate::toolchain;

/// The most memory that the `setu` process may take, whatever is copied.
const MEMORY_LIMIT_MIB: u64 = 300;

/// Ten columns of the types that tables are made of, about 150 bytes a row.
const TABLE: &str = "CREATE TABLE orders AS SELECT
    i::bigint AS id, (i % 100000)::int AS customer, md5(i::text)::uuid AS token,
    CASE WHEN i % 10 = 0 THEN NULL ELSE 'note ' || md5((i * 7)::text) END AS note,
    (i % 1000000) / 100.0::numeric(12, 2) AS amount, i * 0.001::float8 AS weight, i % 3 = 0 AS paid,
    date '2020-01-01' + (i % 2000)::int AS day, timestamptz '2020-01-01' + i * interval '1 second' AS updated_at,
    jsonb_build_object('n', i, 'tag', 't' || i % 50) AS extra
    FROM generate_series(1, $ROWS) i;
    ALTER TABLE orders ALTER amount TYPE numeric(12, 2);
    ALTER TABLE orders ADD PRIMARY KEY (id);
    VACUUM ANALYZE orders;";

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Psql,
    Direct,
    Staged,
    CsvExtract,
}

const CONTESTANTS: [(Contestant, &str); 4] = [
    (Contestant::Psql, "psql COPY | psql COPY"),
    (Contestant::Direct, "setu run --mode direct"),
    (Contestant::Staged, "setu run --mode staged"),
    (Contestant::CsvExtract, "setu extract, CSV to staged"),
];

/// One timed run.
#[derive(Clone, Copy)]
struct Sample {
    elapsed: Duration,
    /// Of the `setu` process; none for others.
    peak_mib: Option<u64>,
}

struct Options {
    rows: u64,
    rounds: usize,
    check: bool,
}

/// Builds, measures and prints a table.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    toolchain::ensure()?;
    step("Building setu");
    let setu = toolchain::build_setu()?;
    step(&format!(
        "Starting a private Postgres and filling a table of {} rows",
        options.rows
    ));
    let bench = Bench::new(setu, options.rows)?;
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); CONTESTANTS.len()];
    for round in 0..=options.rounds {
        // Round 0 warms the caches up: the server's, the system's, and that of compiled plugins.
        let what = if round == 0 {
            "warm-up".to_owned()
        } else {
            format!("round {round} of {}", options.rounds)
        };
        step(&what);
        for (index, (contestant, name)) in CONTESTANTS.iter().enumerate() {
            let sample = bench.measure(*contestant).with_context(|| format!("`{name}`"))?;
            println!("    {name:<28} {:6.2} s", sample.elapsed.as_secs_f64());
            if round > 0 {
                samples[index].push(sample);
            }
        }
    }
    println!("\n{}", table(options.rows, &samples));
    if options.check {
        check(&samples)?;
    }
    Ok(())
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            rows: 1_000_000,
            rounds: 3,
            check: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut number = || -> Result<u64> {
                let value = arguments
                    .next()
                    .with_context(|| format!("`{argument}` needs a number"))?;
                let number = value.parse().ok().filter(|number| *number > 0);
                number.with_context(|| format!("`{argument} {value}`: not a number of 1 or more"))
            };
            match argument.as_str() {
                "--rows" => options.rows = number()?,
                "--rounds" => options.rounds = usize::try_from(number()?)?,
                "--check" => options.check = true,
                other => bail!("`bench` does not know `{other}`; it takes --rows N, --rounds N and --check"),
            }
        }
        Ok(options)
    }
}

/// Where everything is measured.
struct Bench {
    server: Server,
    psql: PathBuf,
    setu: PathBuf,
    rows: u64,
    folder: PathBuf,
}

impl Bench {
    fn new(setu: PathBuf, rows: u64) -> Result<Self> {
        let server = Server::start(false)?;
        let folder = crate::system::target_dir().join("bench");
        let bench = Self {
            psql: server_programs()?.join("psql"),
            server,
            setu,
            rows,
            folder,
        };
        bench.clear()?;
        bench.sql("postgres", "CREATE DATABASE source")?;
        bench.sql("source", &TABLE.replace("$ROWS", &rows.to_string()))?;
        let csv = bench.folder.join("csv");
        fs::create_dir_all(&csv)?;
        let file = fs::File::create(csv.join("orders.csv"))?;
        let copied = bench
            .psql("source", "COPY orders TO STDOUT (FORMAT csv, HEADER)")
            .stdout(file)
            .status()?;
        succeeded(copied, "COPY to CSV")?;
        Ok(bench)
    }

    /// Runs one contestant into an empty target, and makes sure that all rows arrived.
    fn measure(&self, contestant: Contestant) -> Result<Sample> {
        self.sql("postgres", "DROP DATABASE IF EXISTS target WITH (FORCE)")?;
        self.sql("postgres", "CREATE DATABASE target")?;
        let _ = fs::remove_dir_all(self.folder.join("blob"));
        let sample = match contestant {
            Contestant::Psql => self.psql_copy()?,
            Contestant::Direct => {
                self.setu(&["run", "postgres.yaml", "--mode", "direct", "--run", "bench"])?
            }
            Contestant::Staged => {
                self.setu(&["run", "postgres.yaml", "--mode", "staged", "--run", "bench"])?
            }
            Contestant::CsvExtract => self.setu(&["extract", "csv.yaml", "--run", "bench"])?,
        };
        if contestant != Contestant::CsvExtract {
            let arrived = self.value("target", "SELECT count(*) FROM orders")?;
            if arrived != self.rows.to_string() {
                bail!("{arrived} rows arrived, not {}", self.rows);
            }
        }
        Ok(sample)
    }

    /// The yardstick, into a table with the same primary key.
    fn psql_copy(&self) -> Result<Sample> {
        let schema = "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, token uuid, note text,
            amount numeric(12, 2), weight float8, paid boolean, day date, updated_at timestamptz, extra jsonb)";
        let started = Instant::now();
        self.sql("target", schema)?;
        let mut from = self
            .psql(
                "source",
                "COPY (SELECT * FROM orders ORDER BY id) TO STDOUT (FORMAT binary)",
            )
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start psql")?;
        let pipe = from.stdout.take().context("psql has no output")?;
        let into = self
            .psql("target", "COPY orders FROM STDIN (FORMAT binary)")
            .stdin(pipe)
            .status()?;
        succeeded(from.wait()?, "COPY to a pipe")?;
        succeeded(into, "COPY from a pipe")?;
        Ok(Sample {
            elapsed: started.elapsed(),
            peak_mib: None,
        })
    }

    fn setu(&self, arguments: &[&str]) -> Result<Sample> {
        let log = self.folder.join("setu.log");
        let started = Instant::now();
        let mut child = Command::new(&self.setu)
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("cannot start setu")?;
        let (status, peak_mib) = wait_with_peak(&mut child)?;
        let elapsed = started.elapsed();
        if !status.success() {
            bail!("{status}:\n{}", fs::read_to_string(&log).unwrap_or_default());
        }
        Ok(Sample {
            elapsed,
            peak_mib: Some(peak_mib),
        })
    }

    /// Empties the folder and writes the two pipelines.
    fn clear(&self) -> Result<()> {
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder)?;
        let end = |database: &str| {
            let url = format!(
                "postgres://{SUPERUSER}@127.0.0.1:{}/{database}",
                self.server.port()
            );
            format!("{{ connector: postgres, config: {{ url: \"{url}\" }} }}")
        };
        let rest = "staging: { backend: fs, fsRoot: blob }\n";
        let postgres = format!(
            "pipeline: bench\nsource: {}\ndestination: {}\nstreams: [{{ name: public.orders }}]\n{rest}",
            end("source"),
            end("target")
        );
        let csv = format!(
            "pipeline: bench\nsource: {{ connector: csv, config: {{ path: csv }} }}\n\
             destination: {{ connector: csv, config: {{ path: out }} }}\nstreams: [{{ name: orders }}]\n{rest}"
        );
        fs::write(self.folder.join("postgres.yaml"), postgres)?;
        fs::write(self.folder.join("csv.yaml"), csv)?;
        Ok(())
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut command = Command::new(&self.psql);
        command
            .args([
                "--no-psqlrc",
                "--quiet",
                "--set",
                "ON_ERROR_STOP=1",
                "--tuples-only",
                "--no-align",
            ])
            .args([
                "--host",
                "127.0.0.1",
                "--username",
                SUPERUSER,
                "--dbname",
                database,
            ])
            .args(["--port", &self.server.port().to_string()])
            .stdin(Stdio::null());
        // One -c each: VACUUM may not share a transaction with other statements.
        for statement in sql
            .split(";\n")
            .map(str::trim)
            .filter(|statement| !statement.is_empty())
        {
            command.args(["--command", statement]);
        }
        command
    }

    fn sql(&self, database: &str, sql: &str) -> Result<()> {
        self.value(database, sql).map(|_| ())
    }

    fn value(&self, database: &str, sql: &str) -> Result<String> {
        let output = self.psql(database, sql).output().context("cannot start psql")?;
        if !output.status.success() {
            bail!("psql: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

fn succeeded(status: ExitStatus, what: &str) -> Result<()> {
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    Ok(())
}

/// Waits for a process, and asks the system meanwhile how much memory it has taken at most. The system's own figure
/// only grows, so what is missed is what was added in the last few milliseconds.
fn wait_with_peak(child: &mut Child) -> Result<(ExitStatus, u64)> {
    let status_file = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut peak = 0;
    loop {
        peak = peak_mib(&status_file).unwrap_or(peak);
        if let Some(status) = child.try_wait()? {
            return Ok((status, peak));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn peak_mib(status_file: &Path) -> Option<u64> {
    let text = fs::read_to_string(status_file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.div_ceil(1024))
}

/// The results, as a table in Markdown.
fn table(rows: u64, samples: &[Vec<Sample>]) -> String {
    let rate = |samples: &[Sample]| rows as f64 / median(samples).as_secs_f64();
    let yardstick = samples.first().map_or(1.0, |samples| rate(samples));
    let mut text = format!(
        "{rows} rows, 10 columns, {} rounds, medians; memory is the peak of the `setu` process\n\n\
         | | seconds | rows/s | to psql | peak memory |\n|---|---:|---:|---:|---:|\n",
        samples.first().map_or(0, Vec::len)
    );
    for ((contestant, name), samples) in CONTESTANTS.iter().zip(samples) {
        let ratio = match contestant {
            Contestant::CsvExtract => "–".to_owned(),
            _ => format!("{:.2}", rate(samples) / yardstick),
        };
        let memory = peak(samples).map_or("–".to_owned(), |mib| format!("{mib} MiB"));
        let seconds = median(samples).as_secs_f64();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {seconds:.2} | {:.0} | {ratio} | {memory} |",
            rate(samples)
        );
    }
    text
}

fn check(samples: &[Vec<Sample>]) -> Result<()> {
    for ((_, name), samples) in CONTESTANTS.iter().zip(samples) {
        if let Some(mib) = peak(samples).filter(|mib| *mib > MEMORY_LIMIT_MIB) {
            bail!("`{name}` took {mib} MiB at its peak; {MEMORY_LIMIT_MIB} MiB is the limit");
        }
    }
    println!("The memory of every run stayed below {MEMORY_LIMIT_MIB} MiB.");
    Ok(())
}

/// The largest peak of all rounds.
fn peak(samples: &[Sample]) -> Option<u64> {
    samples.iter().filter_map(|sample| sample.peak_mib).max()
}

fn median(samples: &[Sample]) -> Duration {
    let mut times: Vec<Duration> = samples.iter().map(|sample| sample.elapsed).collect();
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
