//! A database for one test, on the server that all tests share.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

use postgres::{Client, NoTls};

use crate::proxy::Proxy;
use crate::server::{SUPERUSER, Server};

/// An empty database; dropping it drops it on the server.
#[derive(Debug)]
pub struct Database {
    name: String,
    port: u16,
}

impl Database {
    /// Creates a database with a name that no other test has.
    ///
    /// # Panics
    /// Where no server can be started: a test that needs Postgres is never skipped.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}_{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let database = Self {
            name,
            port: shared_port(),
        };
        connect(database.port, "postgres")
            .batch_execute(&format!("CREATE DATABASE {}", database.name))
            .unwrap_or_else(|error| panic!("cannot create database {}: {error}", database.name));
        database
    }

    /// A new connection as the superuser.
    pub fn client(&self) -> Client {
        connect(self.port, &self.name)
    }

    /// Runs statements.
    pub fn execute(&self, sql: &str) {
        let done = self.client().batch_execute(sql);
        done.unwrap_or_else(|error| panic!("{error:?}\nin: {sql}"));
    }

    /// Every row of a query, each as its columns' texts; `None` is NULL.
    pub fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let messages = self.client().simple_query(sql);
        let messages = messages.unwrap_or_else(|error| panic!("{error:?}\nin: {sql}"));
        let rows = messages.iter().filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.map(|row| (0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect())
            .collect()
    }

    /// The one value of a query, as text.
    pub fn value(&self, sql: &str) -> Option<String> {
        self.rows(sql).into_iter().flatten().next().flatten()
    }

    /// The connection URL of the superuser.
    pub fn url(&self) -> String {
        self.url_for(SUPERUSER, "127.0.0.1", self.port)
    }

    /// The same through a proxy.
    pub fn url_through(&self, proxy: &Proxy) -> String {
        self.url_for(SUPERUSER, "127.0.0.1", proxy.port())
    }

    /// A connection URL of another user, host or port.
    pub fn url_for(&self, user: &str, host: &str, port: u16) -> String {
        format!("postgres://{user}@{host}:{port}/{}", self.name)
    }

    /// Its name on the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority that signed the server's certificate, which is for `localhost`.
    pub fn ca() -> PathBuf {
        match env::var_os("SETU_TEST_POSTGRES_CA") {
            Some(path) if env::var_os("SETU_TEST_POSTGRES").is_some() => path.into(),
            _ => own_server().ca(),
        }
    }
}

impl Default for Database {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Best effort: the whole server is thrown away at the end.
        if let Ok(mut client) = Client::connect(&connection_string(self.port, "postgres"), NoTls) {
            let _ = client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

/// The port of the server that `cargo xtask test` started, or of one that this process starts for itself.
fn shared_port() -> u16 {
    match env::var("SETU_TEST_POSTGRES") {
        Ok(port) => port
            .parse()
            .unwrap_or_else(|_| panic!("SETU_TEST_POSTGRES must be a port, not `{port}`")),
        Err(_) => own_server().port(),
    }
}

/// A static is never dropped; the server's keeper sees the end of this process and stops it.
fn own_server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(true).unwrap_or_else(|error| panic!("{error:#}")))
}

fn connection_string(port: u16, database: &str) -> String {
    format!("host=127.0.0.1 port={port} user={SUPERUSER} dbname={database}")
}

fn connect(port: u16, database: &str) -> Client {
    Client::connect(&connection_string(port, database), NoTls)
        .unwrap_or_else(|error| panic!("cannot connect to the test server at port {port}: {error}"))
}
