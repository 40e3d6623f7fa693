//! `cargo xtask fuzz`: each fuzz target for a while, from its seeds and from what earlier fuzzing left.
//!
//! The targets are those of `host/fuzz`; what must hold of them stands in `host/src/fuzzing.rs`. No sanitizer is used:
//! stable Rust has none, and what is fuzzed is safe code with every check on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::s3_server::tools;
use crate::system::{cargo, root, run, step, target_dir};
use crate::toolchain;

const CARGO_FUZZ_VERSION: &str = "0.13.2";
/// One input that takes longer is a defect.
const TIMEOUT_SECONDS: u64 = 20;

/// Fuzzes the targets that are named, or all; `--seconds` is for each.
pub(crate) fn fuzz(arguments: &[String]) -> Result<()> {
    let all = targets()?;
    let (seconds, named) = parse(arguments, &all)?;
    toolchain::ensure()?;
    let program = ensure_cargo_fuzz()?;
    for target in if named.is_empty() { &all } else { &named } {
        step(&format!("Fuzzing `{target}` for {seconds} s"));
        fuzz_one(&program, target, seconds)?;
    }
    println!("\nNothing was found.");
    Ok(())
}

fn parse(arguments: &[String], all: &[String]) -> Result<(u64, Vec<String>)> {
    let mut seconds = 60;
    let mut named = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let number = arguments.next().and_then(|number| number.parse().ok());
            // For the fuzzer, 0 means forever.
            let number = number.filter(|number| *number > 0);
            seconds = number.context("`--seconds` needs a number of at least 1")?;
        } else if all.contains(argument) {
            named.push(argument.clone());
        } else {
            bail!("`{argument}` is no fuzz target; there are {}", all.join(", "));
        }
    }
    Ok((seconds, named))
}

/// The names of all targets, in order.
fn targets() -> Result<Vec<String>> {
    let mut names: Vec<String> = files(&folder().join("fuzz_targets"))?
        .iter()
        .filter_map(|path| path.file_stem().map(|name| name.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn fuzz_one(program: &Path, target: &str, seconds: u64) -> Result<()> {
    let [corpus, seeds, artifacts] =
        ["corpus", "seeds", "artifacts"].map(|name| folder().join(name).join(target));
    for folder in [&corpus, &seeds, &artifacts] {
        std::fs::create_dir_all(folder)?;
    }
    let started = SystemTime::now();
    let mut command = Command::new(program);
    // Cargo's own place for `host/fuzz` would be a second target folder.
    command.env("CARGO_TARGET_DIR", target_dir().join("fuzz"));
    command
        .current_dir(root())
        .arg("run")
        .arg("--fuzz-dir")
        .arg(folder());
    // Linking what no target reaches would take in all of the WebAssembly runtime.
    command.args(["--sanitizer", "none", "--strip-dead-code=true", target]);
    // New inputs go into the first folder. What failed before is tried again first of all.
    command.args([&corpus, &seeds, &artifacts]);
    command.arg("--").args([
        format!("-max_total_time={seconds}"),
        format!("-timeout={TIMEOUT_SECONDS}"),
        "-print_final_stats=1".to_owned(),
    ]);
    run(&mut command).with_context(|| match newest_since(&artifacts, started) {
        Some(artifact) => format!(
            "`{target}` fails on {}; `cargo xtask fuzz {target}` tries it again before all else. Once it is mended, \
             move it to {}, where the tests try it for ever",
            artifact.display(),
            seeds.display()
        ),
        None => format!("cannot fuzz `{target}`"),
    })
}

/// The last file that was written into a folder since then.
fn newest_since(folder: &Path, since: SystemTime) -> Option<PathBuf> {
    let modified = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let newest = files(folder).ok()?.into_iter().max_by_key(modified)?;
    modified(&newest).is_some_and(|at| at >= since).then_some(newest)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn folder() -> PathBuf {
    root().join("host/fuzz")
}

/// Compiles cargo-fuzz where it is missing.
fn ensure_cargo_fuzz() -> Result<PathBuf> {
    let folder = tools().join(format!("cargo-fuzz-{CARGO_FUZZ_VERSION}"));
    let program = folder.join("bin/cargo-fuzz");
    if program.is_file() {
        return Ok(program);
    }
    step("cargo-fuzz is missing: compiling it (a minute, once)");
    run(cargo()
        .args([
            "install",
            "cargo-fuzz",
            "--version",
            CARGO_FUZZ_VERSION,
            "--locked",
            "--debug",
            "--root",
        ])
        .arg(&folder)
        // Its own, so that nothing of it is taken for ours.
        .env("CARGO_TARGET_DIR", target_dir().join("cargo-fuzz")))?;
    Ok(program)
}
