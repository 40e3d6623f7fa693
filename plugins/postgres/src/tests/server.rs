//! A private Postgres server for one test: own folder, own port, gone at the end.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::client::{Client, Row};
use crate::conninfo::{ConnInfo, SslMode};
use crate::session::Endpoint;

/// Who may log in how, unless a test says otherwise.
const TRUST: &str = "host all all 127.0.0.1/32 trust";

/// A running server with the superuser `postgres`.
pub(super) struct Server {
    binaries: PathBuf,
    folder: PathBuf,
    pub(super) port: u16,
}

impl Server {
    /// Starts one that trusts everybody.
    pub(super) fn start() -> Server {
        Server::start_with(TRUST, &[])
    }

    /// Starts one with this `pg_hba.conf` and these settings.
    pub(super) fn start_with(hba: &str, settings: &[&str]) -> Server {
        let binaries = find_binaries();
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .unwrap()
            .port();
        let folder = std::env::temp_dir().join(format!("setu-postgres-{}-{port}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        if is_root() {
            // A server refuses to run as root.
            run(Command::new("chown").arg("postgres").arg(&folder));
        }
        let server = Server {
            binaries,
            folder,
            port,
        };
        let data = server.folder.join("data");
        run(server.command("initdb").arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]));
        std::fs::write(
            data.join("pg_hba.conf"),
            format!("local all postgres trust\n{hba}\n"),
        )
        .unwrap();
        let mut options = format!(
            "-p {port} -k {} -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB",
            server.folder.display()
        );
        settings
            .iter()
            .for_each(|setting| options.push_str(&format!(" -c {setting}")));
        run(server
            .command("pg_ctl")
            .arg("-D")
            .arg(&data)
            .args(["-w", "-t", "60", "-l"])
            .arg(server.folder.join("log"))
            .args(["-o", &options, "start"]));
        server
    }

    /// A URL of the superuser.
    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// A session of the superuser.
    pub(super) fn session(&self) -> Client {
        let endpoint = Endpoint {
            info: ConnInfo::parse(&self.url()).unwrap(),
            sslmode: SslMode::Disable,
            ca_pem: None,
        };
        endpoint.connect().unwrap()
    }

    /// Runs statements.
    pub(super) fn execute(&self, sql: &str) {
        self.session()
            .execute(sql)
            .unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    /// Runs statements over the local socket, whatever `pg_hba.conf` demands of others.
    pub(super) fn execute_locally(&self, sql: &str) {
        run(self
            .command("psql")
            .args([
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-p",
                &self.port.to_string(),
                "-c",
                sql,
                "-h",
            ])
            .arg(&self.folder));
    }

    /// All rows of a query, each as the texts of its values.
    pub(super) fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        texts(&mut self.session(), sql)
    }

    /// The same with every name spelled with its schema.
    pub(super) fn canonical_rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let mut session = self.session();
        session.execute("SET search_path = pg_catalog").unwrap();
        texts(&mut session, sql)
    }

    /// The single value of a query.
    pub(super) fn value(&self, sql: &str) -> String {
        self.rows(sql)[0][0].clone().unwrap_or_else(|| "null".to_owned())
    }

    fn command(&self, name: &str) -> Command {
        let binary = self.binaries.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(binary);
            command
        } else {
            Command::new(binary)
        };
        command.current_dir("/");
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = self
            .command("pg_ctl")
            .arg("-D")
            .arg(self.folder.join("data"))
            .args(["-m", "immediate", "-w", "stop"])
            .stdout(Stdio::null())
            .status();
        assert!(
            std::thread::panicking() || stopped.is_ok_and(|status| status.success()),
            "the server does not stop"
        );
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn texts(session: &mut Client, sql: &str) -> Vec<Vec<Option<String>>> {
    session
        .execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 3")
        .unwrap();
    let rows = session
        .query(sql, &[])
        .unwrap_or_else(|error| panic!("{error}\n{sql}"));
    rows.iter().map(Row::texts).collect()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

/// The newest server of Debian's folders, or the one on the PATH.
fn find_binaries() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let debian = versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .max();
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
    };
    debian.or_else(on_path).expect(
        "these tests need a Postgres server: install Debian's `postgresql`, or put `initdb` on the PATH",
    )
}

fn run(command: &mut Command) {
    let status = command
        .stdout(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
