//! What a build needs beyond rustup's stable toolchain: a C compiler for the host, the wasm target for the plugins.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::system::{apt_install, cargo, output, root, run, step, works};

const TARGET: &str = "wasm32-wasip2";

/// Makes sure of everything that `cargo build --release` needs.
pub(crate) fn ensure() -> Result<()> {
    ensure_c_compiler()?;
    ensure_wasm_target()
}

/// Rust links through `cc`, and the TLS library compiles C.
fn ensure_c_compiler() -> Result<()> {
    let header = root().join("xtask/probe.h");
    let probe = ["-x", "c", "-fsyntax-only", &header.to_string_lossy()];
    if works("cc", &probe) {
        return Ok(());
    }
    step("A C compiler and its headers are missing: installing Debian's build-essential");
    apt_install(&["build-essential"])?;
    if !works("cc", &probe) {
        bail!("`cc` still does not work; a C compiler with the C library's headers is needed");
    }
    Ok(())
}

/// Plugins are compiled for `wasm32-wasip2`: by rustup where its server can be reached, otherwise from Debian's
/// source of the standard library.
fn ensure_wasm_target() -> Result<()> {
    if has_wasm_target() {
        return Ok(());
    }
    step(&format!(
        "The Rust target {TARGET} is missing: plugins are compiled for it"
    ));
    if works("rustup", &["--version"]) {
        let added = run(Command::new("timeout").args(["300", "rustup", "target", "add", TARGET]));
        if added.is_ok() && has_wasm_target() {
            return Ok(());
        }
        println!(
            "    rustup could not install it; building it from Debian's rust-src instead (about a minute)"
        );
    }
    run(Command::new("bash")
        .arg(root().join("xtask/wasm-std-from-debian.sh"))
        .current_dir(root()))
    .with_context(|| format!("install the target {TARGET} yourself: `rustup target add {TARGET}`"))?;
    if !has_wasm_target() {
        bail!("the target {TARGET} is still missing; `rustup target add {TARGET}` is the ordinary way");
    }
    Ok(())
}

/// Whether the active toolchain has the target's standard library. rustup's own records do not tell: a library that
/// was built here is not in them.
fn has_wasm_target() -> bool {
    // Asked of cargo's own rustc, as the build will be.
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = output(Command::new(rustc).current_dir(root()).args([
        "--print",
        "target-libdir",
        "--target",
        TARGET,
    ]));
    let Some(folder) = folder else {
        return false;
    };
    std::fs::read_dir(Path::new(&folder)).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name == "libstd.rlib" || (name.starts_with("libstd-") && name.ends_with(".rlib"))
        })
    })
}

/// Builds the `setu` command and returns its path. Cargo shows its own progress.
pub(crate) fn build_setu() -> Result<std::path::PathBuf> {
    // With `--workspace`, as the tests are built: the features of dependencies, and so their compiled code, are then the
    // same, and nothing compiles twice.
    run(cargo().args(["build", "--release", "--workspace", "--bin", "setu"]))?;
    let binary = crate::system::target_dir().join("release/setu");
    if !binary.is_file() {
        bail!("cargo built no {}", binary.display());
    }
    Ok(binary)
}
