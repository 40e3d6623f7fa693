//! `cargo xtask`: everything that a machine needs before Setu runs on it, as a program instead of a wiki page.
//!
//! Each verb makes sure of what it needs, says what it does, and works again on a machine where all of it is there.
//! Not here: the tests (`tests/`, `host/fuzz`), and anything that `setu` itself does.

mod bench;
mod fuzz;
mod quickstart;
// The tests' library exports these modules whole; here some of it is private or unused.
#[allow(unreachable_pub, dead_code)]
#[path = "../../tests/src/s3_server.rs"]
mod s3_server;
#[allow(unreachable_pub, dead_code)]
#[path = "../../tests/src/server.rs"]
mod server;
mod system;
mod test;
mod test_servers;
mod toolchain;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask VERB

  quickstart                Build Setu and move a real data set: CSV, staged on disk, into CSV files
  setup                     Install what a build needs: a C compiler, the wasm target
  test [--full] [FILTER]…   Build and run the tests, with the servers that they need; --full adds
                            the slow ones
  bench [--rows N] [--rounds N] [--check]
                            Postgres to Postgres beside `psql COPY | psql COPY`, and CSV to a staged run;
                            --check fails where the peak memory of `setu` passes 300 MiB
  fuzz [--seconds N] [TARGET]…
                            Try made-up inputs on all fuzz targets, or on these, N seconds each (60)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = match arguments.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("", arguments.as_slice()),
    };
    let result = match verb {
        "quickstart" => quickstart::quickstart(rest),
        "setup" => toolchain::ensure(),
        "test" => test::test(rest),
        "bench" => bench::bench(rest),
        "fuzz" => fuzz::fuzz(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
