//! `cargo xtask test`: every test of the workspace, with the servers that they need.
//!
//! Nothing is skipped for want of a server: what cannot be installed or started is an error that says what to do.

use std::process::Command;

use anyhow::{Result, bail};

use crate::s3_server::S3Server;
use crate::server::Server;
use crate::system::{cargo, output, run, step};
use crate::test_servers::{ensure_garage, ensure_postgres, ensure_seaweedfs};
use crate::toolchain;

/// Builds and runs the tests; `arguments` are `--full` and nextest's own.
pub(crate) fn test(arguments: &[String]) -> Result<()> {
    let full = arguments.iter().any(|argument| argument == "--full");
    let filters: Vec<&String> = arguments
        .iter()
        .filter(|argument| *argument != "--full")
        .collect();

    toolchain::ensure()?;
    let nextest = ensure_nextest();
    ensure_postgres()?;
    ensure_seaweedfs()?;
    if full {
        ensure_garage()?;
    }
    step("Building setu, which the end-to-end tests run");
    let setu = toolchain::build_setu()?;
    step("Starting private servers, stopped at the end");
    let postgres = Server::start(true)?;
    println!("    Postgres at 127.0.0.1:{}", postgres.port());
    let seaweedfs = S3Server::seaweedfs()?;
    println!("    SeaweedFS at 127.0.0.1:{}", seaweedfs.port());
    let garage = full.then(S3Server::garage).transpose()?;
    if let Some(garage) = &garage {
        println!("    Garage at 127.0.0.1:{}", garage.port());
    }

    let with_services = |mut command: Command| {
        command
            .env("SETU_BIN", &setu)
            .env("SETU_TEST_POSTGRES", postgres.port().to_string())
            .env("SETU_TEST_POSTGRES_CA", postgres.ca())
            .env("SETU_TEST_S3", seaweedfs.spec());
        if let Some(garage) = &garage {
            command.env("SETU_TEST_GARAGE", garage.spec());
        }
        command
    };
    step("Running the tests");
    run_all(&with_services, nextest, full, &filters)?;
    if filters.is_empty() {
        step("Running the examples in the documentation");
        run(with_services(cargo()).args(["test", "--release", "--workspace", "--doc"]))?;
    }
    println!("\nAll tests passed.");
    Ok(())
}

fn run_all(with: &dyn Fn(Command) -> Command, nextest: bool, full: bool, filters: &[&String]) -> Result<()> {
    let mut command = with(cargo());
    if nextest {
        command.args(["nextest", "run", "--release", "--workspace", "--no-fail-fast"]);
        if full {
            command.args(["--run-ignored", "all"]);
        }
        return run(command.args(filters));
    }
    command.args([
        "test",
        "--release",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--no-fail-fast",
    ]);
    let (options, names): (Vec<&String>, Vec<&String>) =
        filters.iter().partition(|filter| filter.starts_with('-'));
    if names.len() > 1 {
        bail!("without nextest only one filter is possible: `cargo install cargo-nextest --locked`");
    }
    command.args(options).arg("--").args(names);
    if full {
        command.arg("--include-ignored");
    }
    run(&mut command)
}

/// Whether tests run with nextest: a process and a time limit for each, and one summary. Without it cargo's own
/// runner runs the very same tests.
fn ensure_nextest() -> bool {
    let there = || output(cargo().args(["nextest", "--version"])).is_some();
    if there() {
        return true;
    }
    step("cargo-nextest, which runs the tests, is missing: installing it (a few minutes, once)");
    let installed = run(cargo().args(["install", "cargo-nextest", "--locked"]));
    if installed.is_ok() && there() {
        return true;
    }
    println!("    that failed; going on with `cargo test`");
    false
}
