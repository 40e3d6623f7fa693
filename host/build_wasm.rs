//! Builds packages of this workspace as WebAssembly components, from a build script.
//!
//! Used by `host/build.rs` for the bundled plugins and by `tests/build.rs` for the tests' own. A build script runs
//! inside a cargo build whose environment (flags, wrappers, target folder) is meant for the host's machine, so the
//! inner cargo gets a clean one, and a target folder of its own that every profile of the outer build shares.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TARGET: &str = "wasm32-wasip2";

/// What the inner cargo may inherit: where tools, caches and the network are.
const KEPT: [&str; 13] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "NO_PROXY",
];
const KEPT_PREFIXES: [&str; 5] = [
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
    "CARGO_INCREMENTAL",
];

/// Builds the packages and copies `<package>.wasm` (with underscores) into `OUT_DIR`.
pub(crate) fn build(packages: &[&str]) {
    let root = workspace_root();
    for path in ["plugins", "wit", "Cargo.lock", "Cargo.toml", "host/build_wasm.rs"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    require_target();

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // OUT_DIR is <target>/<profile>/build/<package>/out.
    let target_dir = out
        .ancestors()
        .nth(4)
        .expect("OUT_DIR lies in a target folder")
        .join("plugins");

    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .current_dir(&root)
        .env_clear()
        .envs(env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            KEPT.contains(&&*name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        }));
    cargo.env("RUSTFLAGS", "-C target-feature=+simd128");
    cargo
        .args([
            "build",
            "--locked",
            "--profile",
            "plugin",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target_dir);
    for package in packages {
        cargo.args(["--package", package]);
    }
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cannot start cargo for the plugins: {error}"));
    if !output.status.success() {
        panic!(
            "the plugins do not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    for package in packages {
        let file = format!("{}.wasm", package.replace('-', "_"));
        let built = target_dir.join(TARGET).join("plugin").join(&file);
        fs::copy(&built, out.join(&file)).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    }
}

/// The nearest folder above the building package that holds the workspace's lock file.
fn workspace_root() -> PathBuf {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let root = package
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").exists());
    root.expect("a workspace above the package").to_owned()
}

/// Fails early, and with the way out, where the standard library of the target is missing.
fn require_target() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    let installed = output
        .ok()
        .filter(|output| output.status.success())
        .is_some_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists());
    if !installed {
        println!(
            "cargo::error=the Rust target {TARGET} is not installed, and Setu's plugins are compiled for it: run \
             `rustup target add {TARGET}`, or `cargo xtask quickstart`, which does all the set-up"
        );
        std::process::exit(1);
    }
}
