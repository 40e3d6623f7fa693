//! A private S3 server: own data folder, own ports, gone when its owner is.
//!
//! Used by the tests and, as a file, by `cargo xtask` (so it needs nothing but the standard library and `anyhow`),
//! which also installs the two programs. SeaweedFS keeps to conditions, Garage ignores them: what must hold of any S3
//! store is shown on both. A keeper process holds the read end of a pipe whose write end lives here; when this
//! process ends, in whichever way, the keeper reads the end of the pipe, stops the server and removes its folder.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, Result, bail};

/// The version of SeaweedFS that the tests are written for.
pub const SEAWEEDFS_VERSION: &str = "4.48";
/// The version of Garage that the tests are written for.
pub const GARAGE_VERSION: &str = "2.5.0";

/// How long a server may take until it answers.
const START_TIME: Duration = Duration::from_secs(60);

/// The key that both servers know. Garage wants this form.
const ACCESS_KEY: &str = "GK5e70000000000000000000aa";
/// Its secret. Tests look for it in places where it must not be.
const SECRET_KEY: &str = "5e70c0ffee5e70c0ffee5e70c0ffee5e70c0ffee5e70c0ffee5e70c0ffee5e70";

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct S3Server {
    port: u16,
    region: &'static str,
    /// A bucket that is there from the start, where tests cannot make their own.
    bucket: &'static str,
    keeper: Child,
}

impl S3Server {
    /// Starts SeaweedFS. It has no bucket.
    pub fn seaweedfs() -> Result<Self> {
        let program = seaweedfs_program();
        start(&program, "us-east-1", "", |folder, ports| {
            let identities = format!(
                r#"{{"identities":[{{"name":"test","credentials":[{{"accessKey":"{ACCESS_KEY}","secretKey":"{SECRET_KEY}"}}],"actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
            );
            fs::write(folder.join("s3.json"), identities)?;
            let mut command = Command::new(&program);
            command.arg("mini").args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
            command.arg(format!("-dir={}", folder.display()));
            command.arg(format!("-s3.config={}", folder.join("s3.json").display()));
            let names = [
                "s3.port",
                "s3.port.grpc",
                "master.port",
                "master.port.grpc",
                "volume.port",
                "volume.port.grpc",
                "filer.port",
                "filer.port.grpc",
                "admin.port",
            ];
            for (name, port) in names.iter().zip(ports) {
                command.arg(format!("-{name}={port}"));
            }
            command.args([
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-webdav=false",
                "-admin.ui=false",
                "-master.telemetry=false",
                "-s3.autoCreateBucket=false",
                "-s3.allowDeleteBucketNotEmpty=true",
            ]);
            Ok(command)
        })
    }

    /// Starts Garage. It has one bucket, and tests cannot make others.
    pub fn garage() -> Result<Self> {
        let program = garage_program();
        start(&program, "garage", "garage-bucket", |folder, ports| {
            let configuration = format!(
                "metadata_dir = \"{0}/meta\"\ndata_dir = \"{0}/data\"\ndb_engine = \"lmdb\"\nreplication_factor = 1\n\
                 rpc_bind_addr = \"127.0.0.1:{1}\"\nrpc_public_addr = \"127.0.0.1:{1}\"\nrpc_secret = \"{SECRET_KEY}\"\n\
                 [s3_api]\ns3_region = \"garage\"\napi_bind_addr = \"127.0.0.1:{2}\"\n",
                folder.display(),
                ports[1],
                ports[0]
            );
            let file = folder.join("garage.toml");
            fs::write(&file, configuration)?;
            let mut command = Command::new(&program);
            command.arg("-c").arg(file);
            command.args(["server", "--single-node", "--default-bucket"]);
            command.env("GARAGE_DEFAULT_ACCESS_KEY", ACCESS_KEY);
            command.env("GARAGE_DEFAULT_SECRET_KEY", SECRET_KEY);
            command.env("GARAGE_DEFAULT_BUCKET", "garage-bucket");
            Ok(command)
        })
    }

    /// The port of its S3 interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The blob store's specification as JSON; without a bucket where tests make their own.
    pub fn spec(&self) -> String {
        let bucket = match self.bucket {
            "" => String::new(),
            bucket => format!(r#","bucket":"{bucket}""#),
        };
        format!(
            r#"{{"backend":"s3","endpoint":"http://127.0.0.1:{}","region":"{}","accessKey":"{ACCESS_KEY}","secretKey":"{SECRET_KEY}","forcePathStyle":true{bucket}}}"#,
            self.port, self.region
        )
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // The keeper's exit means that the server is gone and its folder removed. Nothing can be done if it fails.
        let _ = self.keeper.wait();
    }
}

/// Where SeaweedFS is installed.
pub fn seaweedfs_program() -> PathBuf {
    tools().join(format!("seaweedfs-{SEAWEEDFS_VERSION}/weed"))
}

/// Where Garage is installed.
pub fn garage_program() -> PathBuf {
    tools().join(format!("garage-{GARAGE_VERSION}/bin/garage"))
}

/// The folder of programs that only the tests need, in the user's cache.
pub fn tools() -> PathBuf {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.unwrap_or_else(env::temp_dir).join("setu/tools")
}

/// Starts a server that `command` describes, given its folder and free ports, of which the first is that of S3.
fn start(
    program: &Path,
    region: &'static str,
    bucket: &'static str,
    command: impl Fn(&Path, &[u16]) -> Result<Command>,
) -> Result<S3Server> {
    if !program.is_file() {
        bail!(
            "there is no {}: `cargo xtask test` installs it (Garage with --full)",
            program.display()
        );
    }
    let mut log = String::new();
    // Another process may take a free port before the server does.
    for _ in 0..5 {
        let ports = free_ports()?;
        let folder = new_folder()?;
        let keeper = start_keeper(&command(&folder, &ports)?, &folder)?;
        let server = S3Server {
            port: ports[0],
            region,
            bucket,
            keeper,
        };
        if answers(server.port, &folder) {
            return Ok(server);
        }
        log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    }
    bail!("{} does not start; its log says:\n{log}", program.display());
}

/// Waits until the server takes requests; says no where it ends instead.
fn answers(port: u16, folder: &Path) -> bool {
    let deadline = Instant::now() + START_TIME;
    while Instant::now() < deadline && !folder.join("ended").exists() {
        // SeaweedFS says itself when it is ready, Garage refuses what is not signed.
        match status(port) {
            Some(200 | 403) => return true,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    false
}

/// The status of an unsigned request.
fn status(port: u16) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).ok()?;
    let line = std::str::from_utf8(&line).ok()?;
    line.strip_prefix("HTTP/1.1 ")?.parse().ok()
}

fn new_folder() -> Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let folder = env::temp_dir().join(format!("setu-s3-{}-{now}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Different free ports.
fn free_ports() -> Result<Vec<u16>> {
    let listeners: std::io::Result<Vec<TcpListener>> =
        (0..9).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect();
    let ports: std::io::Result<Vec<u16>> = listeners?
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect();
    Ok(ports?)
}

/// Starts the process that starts the server, and that outlives this one by as long as it takes to clean up.
fn start_keeper(server: &Command, folder: &Path) -> Result<Child> {
    const SCRIPT: &str = r#"
        trap '' INT HUP TERM
        folder=$1
        shift
        {
            "$@" </dev/null >"$folder/log" 2>&1 &
            echo $! >"$folder/pid"
            wait $!
            : >"$folder/ended"
        } &
        cat >/dev/null
        until [ -s "$folder/pid" ]; do sleep 0.05; done
        kill -KILL "$(cat "$folder/pid")"
        wait
        rm -rf "$folder"
    "#;
    let mut keeper = Command::new("/bin/sh");
    keeper.args(["-c", SCRIPT, "keeper"]);
    keeper
        .arg(folder)
        .arg(server.get_program())
        .args(server.get_args());
    for (name, value) in server.get_envs() {
        if let Some(value) = value {
            keeper.env(name, value);
        }
    }
    // Group 0 is a group of its own: what interrupts this process must not stop the clean-up.
    keeper
        .current_dir(folder)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a shell")
}
