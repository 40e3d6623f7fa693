//! The machine underneath: programs, the workspace's folder, Debian packages.
//!
//! Not here: what is installed and why; `toolchain` and `test` decide that.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    // As cargo says when it runs this program: a target folder can move with its workspace, or to another one.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    here.parent().unwrap_or(&here).to_owned()
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    // Cargo hands its own package's variables to `cargo run`; they belong to xtask and to nothing that it starts.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text == "OUT_DIR" || text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// The folder that cargo builds into.
pub(crate) fn target_dir() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root().join(folder)
}

/// Announces a step.
pub(crate) fn step(message: &str) {
    println!("\n==> {message}");
}

/// Shows a command and runs it with this terminal; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("    $ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs a command for its standard output; none where it cannot be started or fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether `program arguments…` runs and succeeds.
pub(crate) fn works(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    output(Command::new(program).args(arguments)).is_some()
}

/// Runs a program as root: directly, or through `sudo` where that asks no question.
pub(crate) fn as_root(program: &str) -> Result<Command> {
    if output(Command::new("id").arg("-u")).as_deref() == Some("0") {
        return Ok(Command::new(program));
    }
    if works("sudo", &["-n", "true"]) {
        let mut command = Command::new("sudo");
        command.args(["-n", program]);
        return Ok(command);
    }
    bail!("this needs root, and `sudo` is missing or wants a password")
}

/// Installs Debian packages.
pub(crate) fn apt_install(packages: &[&str]) -> Result<()> {
    let way_out = || format!("install it yourself: `apt-get install {}`", packages.join(" "));
    if !works("apt-get", &["--version"]) {
        bail!("this machine has no apt-get; {}", way_out());
    }
    let install = || {
        // Through `env`, because sudo passes no variables on.
        run(as_root("env")?
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes"])
            .arg("--no-install-recommends")
            .args(packages))
    };
    // A fresh image knows no packages, an old one knows versions that are gone: then the lists are fetched first.
    install()
        .or_else(|_| {
            run(as_root("apt-get")?.arg("update"))?;
            install()
        })
        .with_context(way_out)
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
