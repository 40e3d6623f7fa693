//! `cargo xtask quickstart`: from a fresh machine to real data moved through a staged run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::system::{root, run, step, target_dir};
use crate::toolchain;

/// The run's id: fixed, so that the commands printed at the end can be pasted.
const RUN: &str = "quickstart";

/// Sets up, builds, runs the example and shows what it did.
pub(crate) fn quickstart(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("`quickstart` takes no arguments, and got `{argument}`");
    }
    let started = Instant::now();
    if !target_dir().join("release/setu").exists() {
        println!(
            "Setu's quickstart: build the `setu` command, then move a real data set with it.\n\
             Nearly all of the time is compiling (a WebAssembly runtime is among the dependencies): about 10 to 15\n\
             minutes on two cores, 3 on eight. Moving the data takes seconds, and so does a second quickstart."
        );
    }
    toolchain::ensure()?;
    step("Building setu");
    let setu = toolchain::build_setu()?;
    let example = root().join("examples/quickstart");
    let pipeline = example.join("pipeline.yaml");

    // From nothing, every time: what is seen below is what this run did.
    for folder in ["out", ".setu"] {
        remove(&example.join(folder))?;
    }
    let pipeline = relative(&pipeline);
    step("Moving CSV files to CSV files, staged on disk in between");
    run_setu(&setu, &["run", &pipeline, "--mode", "staged", "--run", RUN])?;
    step("What was staged");
    run_setu(&setu, &["show", RUN, "--pipeline", &pipeline])?;

    let files = outputs(&example.join("out"))?;
    if files.is_empty() {
        bail!("the run wrote no file below {}", example.join("out").display());
    }
    println!(
        "\nDone in {} s. The files to open:",
        started.elapsed().as_secs().max(1)
    );
    for file in files {
        println!("    {}", relative(&file));
    }
    let command = relative(&setu);
    println!(
        "What was staged in between, one gzip of JSON lines a part: {}\n\n\
         Try next:\n    \
         {command} discover {pipeline}             # the streams, their columns and types\n    \
         {command} cat {RUN} planes --pipeline {pipeline} | head -3\n    \
         {command} plan {pipeline}                 # what would happen, and what each connector may reach\n    \
         cargo xtask test                          # every test, with the Postgres server that they need\n    \
         README.md, docs/pipeline.md               # Postgres, incremental runs, writing a connector",
        relative(&example.join(".setu/blob")),
    );
    Ok(())
}

fn run_setu(setu: &Path, arguments: &[&str]) -> Result<()> {
    run(Command::new(setu).args(arguments).current_dir(root()))
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The files of a folder, in order.
fn outputs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot look into {}", folder.display()))?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    // What the connector keeps for itself is hidden.
    let is_hidden = |file: &Path| {
        file.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    files.retain(|file| file.is_file() && !is_hidden(file));
    files.sort();
    Ok(files)
}

/// A path as one would type it in the workspace's root.
fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
