//! A private Postgres server: own data folder, own port, gone when its owner is.
//!
//! Used by the tests and, as a file, by `cargo xtask` (so it needs nothing but the standard library and `anyhow`).
//! It runs Debian's server programs, as the user `postgres` when this process is root, because Postgres refuses to
//! run as root. A keeper process holds the read end of a pipe whose write end lives here; when this process ends, in
//! whichever way, the keeper reads the end of the pipe, stops the server and removes its folder.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, Result, bail};

/// The superuser, who may log in from this machine without a password.
pub const SUPERUSER: &str = "postgres";
/// A user who logs in with SCRAM and [`PASSWORD`].
pub const SCRAM_USER: &str = "scram_user";
/// A user who logs in with md5 and [`PASSWORD`].
pub const MD5_USER: &str = "md5_user";
/// A user who logs in without a password, but only over TLS.
pub const TLS_USER: &str = "tls_user";
/// The password of the users who have one. Tests look for it in places where it must not be.
pub const PASSWORD: &str = "correct horse: battery/staple@%";

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: PathBuf,
    keeper: Child,
}

impl Server {
    /// Starts a server that answers on `127.0.0.1` and, with `tls`, has a certificate for `localhost` only.
    pub fn start(tls: bool) -> Result<Self> {
        let programs = server_programs()?;
        let account = Account::of_server()?;
        let folder = new_folder(&account)?;
        let keeper = start_keeper(&programs, &account, &folder)?;
        let mut server = Self {
            port: 0,
            folder,
            keeper,
        };
        server.initialise(&programs, &account, tls)?;
        // Another process may take the free port before the server does.
        for _ in 0..5 {
            server.port = free_port()?;
            if server.launch(&programs, &account, tls) {
                server.create_users(&programs)?;
                return Ok(server);
            }
        }
        let log = fs::read_to_string(server.folder.join("log")).unwrap_or_default();
        bail!("Postgres does not start; its log says:\n{log}");
    }

    /// The TCP port on `127.0.0.1`.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate authority that signed the server's certificate, in PEM; exists with `tls` only.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Fills the data folder, and writes who may log in and how.
    fn initialise(&self, programs: &Path, account: &Account, tls: bool) -> Result<()> {
        let data = self.folder.join("data");
        let log = fs::File::create(self.folder.join("initdb.log"))?;
        let status = account
            .command(&programs.join("initdb"))
            .arg("--pgdata")
            .arg(&data)
            .args(["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8"])
            .args(["--locale", "C", "--no-sync"])
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .context("cannot start initdb")?;
        if !status.success() {
            let log = fs::read_to_string(self.folder.join("initdb.log")).unwrap_or_default();
            bail!("initdb failed:\n{log}");
        }
        fs::write(data.join("pg_hba.conf"), logins())?;
        if tls {
            make_certificates(&self.folder)?;
            account.own(&self.folder.join("server.key"), 0o600)?;
        }
        Ok(())
    }

    /// Starts the server and waits until it answers.
    fn launch(&self, programs: &Path, account: &Account, tls: bool) -> bool {
        let folder = self.folder.display();
        let mut options = format!(
            "-p {} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c full_page_writes=off \
             -c synchronous_commit=off -c max_connections=200 -c wal_level=logical -c max_wal_size=4GB",
            self.port
        );
        if tls {
            options += &format!(
                " -c ssl=on -c ssl_cert_file={folder}/server.pem -c ssl_key_file={folder}/server.key"
            );
        }
        let status = account
            .command(&programs.join("pg_ctl"))
            .args(["start", "--wait", "--timeout", "60", "--silent"])
            .arg("--pgdata")
            .arg(self.folder.join("data"))
            .arg("--log")
            .arg(self.folder.join("log"))
            .args(["--options", &options])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    fn create_users(&self, programs: &Path) -> Result<()> {
        let sql = format!(
            "CREATE ROLE {SCRAM_USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}';
             SET password_encryption = 'md5';
             CREATE ROLE {MD5_USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}';
             CREATE ROLE {TLS_USER} LOGIN SUPERUSER;"
        );
        let output = Command::new(programs.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
            .args(["--host", "127.0.0.1", "--username", SUPERUSER])
            .args(["--port", &self.port.to_string(), "--command", &sql])
            .output()
            .context("cannot start psql")?;
        if !output.status.success() {
            bail!(
                "cannot create the test users: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // The keeper's exit means that the server is gone and its folder removed. Nothing can be done if it fails.
        let _ = self.keeper.wait();
    }
}

/// The user that the server's programs run as.
struct Account {
    /// None: the user of this process.
    switch_to: Option<(u32, u32)>,
}

impl Account {
    fn of_server() -> Result<Self> {
        let id = |arguments: &[&str]| -> Result<u32> {
            let output = Command::new("id").args(arguments).output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            text.trim()
                .parse()
                .with_context(|| format!("`id {}` says `{}`", arguments.join(" "), text.trim()))
        };
        if id(&["-u"])? != 0 {
            return Ok(Self { switch_to: None });
        }
        let ids = id(&["-u", SUPERUSER]).and_then(|user| Ok((user, id(&["-g", SUPERUSER])?)));
        let ids = ids.context("Postgres refuses to run as root, and there is no user `postgres`")?;
        Ok(Self { switch_to: Some(ids) })
    }

    /// A command that runs as this user, from a folder that the user may enter.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null());
        if let Some((user, group)) = self.switch_to {
            command.uid(user).gid(group);
        }
        command
    }

    fn own(&self, path: &Path, mode: u32) -> Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        if let Some((user, group)) = self.switch_to {
            std::os::unix::fs::chown(path, Some(user), Some(group))?;
        }
        Ok(())
    }
}

/// The folder of Postgres' server programs: the newest that Debian has installed, or the one in `PATH`.
pub fn server_programs() -> Result<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .collect();
    versions.sort();
    let on_path = env::var_os("PATH").unwrap_or_default();
    let candidates = versions.into_iter().rev().map(|(_, folder)| folder);
    let found = candidates.chain(env::split_paths(&on_path)).find(|folder| {
        ["initdb", "pg_ctl", "psql"]
            .iter()
            .all(|name| folder.join(name).is_file())
    });
    found.context(
        "Postgres' server programs are not installed: `cargo xtask test` installs them, and so does \
         `apt-get install postgresql`",
    )
}

/// A folder of its own below the system's temporary one, which every user may enter.
fn new_folder(account: &Account) -> Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let folder = env::temp_dir().join(format!("setu-postgres-{}-{now}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Others may enter: tests that are not run by the server's user read the certificate authority.
    account.own(&folder, 0o711)?;
    Ok(folder)
}

/// Starts the process that outlives this one by as long as it takes to clean up.
fn start_keeper(programs: &Path, account: &Account, folder: &Path) -> Result<Child> {
    const SCRIPT: &str = r#"
        trap '' INT HUP TERM
        cat >/dev/null
        if [ -e "$2/data/postmaster.pid" ]; then
            "$1/pg_ctl" stop --pgdata "$2/data" --mode immediate --wait --silent
        fi
        rm -rf "$2"
    "#;
    // Group 0 is a group of its own: what interrupts this process must not stop the clean-up. The temporary folder
    // is sticky, so the server's user can remove what it owns.
    account
        .command(Path::new("/bin/sh"))
        .args(["-c", SCRIPT, "keeper"])
        .arg(programs)
        .arg(folder)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a shell")
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Who may log in, and how: the first line that matches decides.
fn logins() -> String {
    format!(
        "local     all all                     trust\n\
         host      all {SCRAM_USER} all        scram-sha-256\n\
         host      all {MD5_USER}   all        md5\n\
         hostssl   all {TLS_USER}   all        trust\n\
         hostnossl all {TLS_USER}   all        reject\n\
         host      all all 127.0.0.1/32        trust\n"
    )
}

/// A certificate authority (`ca.pem`), a certificate for `localhost` signed by it (`server.pem`, `server.key`), and
/// an authority that signed nothing (`stranger.pem`).
fn make_certificates(folder: &Path) -> Result<()> {
    let key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ];
    let authority = |name: &str, key_file: &str, file: &str| {
        let mut arguments = vec!["req", "-x509", "-days", "2"];
        arguments.extend(key);
        arguments.extend(["-subj", name, "-keyout", key_file, "-out", file]);
        openssl(folder, &arguments)
    };
    authority("/CN=Setu test authority", "ca.key", "ca.pem")?;
    authority("/CN=Another authority", "stranger.key", "stranger.pem")?;
    let mut extensions = fs::File::create(folder.join("extensions"))?;
    writeln!(
        extensions,
        "subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth"
    )?;
    let mut request = vec!["req"];
    request.extend(key);
    request.extend([
        "-subj",
        "/CN=localhost",
        "-keyout",
        "server.key",
        "-out",
        "server.csr",
    ]);
    openssl(folder, &request)?;
    openssl(
        folder,
        &[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "extensions",
            "-out",
            "server.pem",
        ],
    )
}

fn openssl(folder: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot start openssl, which makes the test certificates: `apt-get install openssl`")?;
    if !output.status.success() {
        bail!(
            "openssl {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
