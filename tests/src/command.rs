//! The `setu` command as a test runs it: in a folder of its own, with a clean environment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with pipeline files, and the environment in which `setu` runs there.
#[derive(Debug)]
pub struct Setu {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Setu {
    /// An empty folder.
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("setu-test-");
        Self {
            folder: folder.unwrap_or_else(|error| panic!("cannot create a temporary folder: {error}")),
            variables: Vec::new(),
        }
    }

    /// The same with the given `pipeline.yaml`.
    pub fn with_pipeline(yaml: &str) -> Self {
        let setu = Self::new();
        setu.write("pipeline.yaml", yaml);
        setu
    }

    /// The folder in which `setu` runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path below the folder.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.folder().join(relative)
    }

    /// Writes a file, and the folders that it needs.
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        let written = fs::create_dir_all(path.parent().unwrap_or(self.folder()))
            .and_then(|()| fs::write(&path, content));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// Reads a text file.
    pub fn read(&self, relative: &str) -> String {
        let path = self.path(relative);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// Sets an environment variable for every later command.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Runs `setu` with these arguments to its end.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Outcome {
        let mut command = self.command();
        command.args(arguments);
        let output = command.output();
        Outcome::new(
            output.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")),
            format!("{command:?}"),
        )
    }

    /// Runs `setu` with arguments that are written as on a command line, separated by single spaces.
    pub fn line(&self, arguments: &str) -> Outcome {
        self.run(arguments.split(' '))
    }

    /// The same with further environment variables.
    pub fn line_with(&self, arguments: &str, variables: &[(&str, &str)]) -> Outcome {
        let mut command = self.command();
        command.args(arguments.split(' ')).envs(variables.iter().copied());
        let output = command.output();
        Outcome::new(
            output.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")),
            format!("{command:?}"),
        )
    }

    /// Runs a command line that must succeed.
    #[track_caller]
    pub fn succeed(&self, arguments: &str) -> Outcome {
        let outcome = self.line(arguments);
        outcome.assert_status(0);
        outcome
    }

    /// Runs a command line that must succeed, with `--report -`, and returns the report.
    #[track_caller]
    pub fn report(&self, arguments: &str) -> Value {
        self.succeed(&format!("{arguments} --report -")).json()
    }

    /// Starts a command line that a test goes on to interrupt.
    pub fn spawn(&self, arguments: &str) -> Child {
        let mut command = self.command();
        command
            .args(arguments.split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
    }

    /// The same, to hear at its end what it said: see [`Outcome::of`].
    pub fn spawn_heard(&self, arguments: &str) -> Child {
        let mut command = self.command();
        command
            .args(arguments.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .env_clear();
        // HOME decides where compiled plugins are cached: shared by all tests, or each would compile them anew.
        // A backtrace must not appear even where the environment asks for one.
        for name in ["HOME", "PATH", "XDG_CACHE_HOME"] {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("RUST_BACKTRACE", "1");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Default for Setu {
    fn default() -> Self {
        Self::new()
    }
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status; none after a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    command: String,
}

impl Outcome {
    fn new(output: Output, command: String) -> Self {
        Self {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            command,
        }
    }

    /// Waits for a command that [`Setu::spawn_heard`] started.
    pub fn of(child: Child) -> Self {
        let command = format!("process {}", child.id());
        let output = child.wait_with_output();
        Self::new(
            output.unwrap_or_else(|error| panic!("{command}: {error}")),
            command,
        )
    }

    /// Both streams.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Standard output as one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}):\n{self}"),
        }
    }

    /// The exit status must be this.
    #[track_caller]
    pub fn assert_status(&self, status: i32) -> &Self {
        assert_eq!(self.status, Some(status), "exit status of\n{self}");
        self
    }

    /// A failure as people should see it: status 1 or 2, all of these words in what was said, in few lines, and no
    /// trace of the program's inside.
    #[track_caller]
    pub fn assert_clear_failure(&self, words: &[&str]) -> &Self {
        assert!(matches!(self.status, Some(1 | 2)), "exit status of\n{self}");
        let text = self.text();
        for word in words {
            assert!(text.contains(word), "`{word}` is not said by\n{self}");
        }
        for inside in [
            "panicked at",
            "stack backtrace",
            "Backtrace",
            "   0: ",
            "RUST_BACKTRACE",
            "thread '",
        ] {
            assert!(!text.contains(inside), "`{inside}` is shown by\n{self}");
        }
        assert!(text.lines().count() <= 12, "one clear message, not\n{self}");
        self
    }

    /// None of this may have been said.
    #[track_caller]
    pub fn assert_hides(&self, secrets: &[&str]) -> &Self {
        for secret in secrets {
            assert!(!self.text().contains(secret), "`{secret}` is shown by\n{self}");
        }
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            status,
            stdout,
            stderr,
            command,
        } = self;
        write!(
            f,
            "{command}\n--- status {status:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

/// Kills a command, and waits until it is gone.
#[track_caller]
pub fn kill(mut child: Child) {
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        panic!("cannot kill process {}: {error}", child.id());
    }
}

/// The `setu` to test: the one that `cargo xtask test` has built, or one that cargo brings up to date now.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match env::var_os("SETU_BIN") {
        Some(path) => path.into(),
        None => build().unwrap_or_else(|why| {
            panic!("{why}; build it with `cargo build --release --workspace --bin setu`, or run `cargo xtask test`")
        }),
    })
}

/// Builds the command with the profile of this test, whose executable lies in `<target>/<profile>/deps`.
fn build() -> Result<PathBuf, String> {
    let test = env::current_exe().map_err(|error| format!("cannot find this test's executable: {error}"))?;
    let folder = test.parent().and_then(Path::parent);
    let folder = folder.ok_or("this test is not in a target folder")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(["build", "--quiet", "--workspace", "--bin", "setu"]);
    if folder.ends_with("release") {
        command.arg("--release");
    }
    // These describe the package under test. A build script that looks at them, and some do, would run again, and
    // everything that depends on it would be compiled again.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text == "OUT_DIR" || text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let output = command
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "setu does not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let binary = folder.join("setu");
    match binary.is_file() {
        true => Ok(binary),
        false => Err(format!("there is no {}", binary.display())),
    }
}
