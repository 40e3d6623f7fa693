//! A bucket for one test, on the S3 server that all tests share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, process};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Builder, Credentials, Region};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use setu::blob::Spec;
use tokio::runtime::Runtime;

use crate::s3_server::S3Server;

/// An empty bucket. It stays; the whole server is thrown away at the end.
#[derive(Debug)]
pub struct Bucket {
    spec: Spec,
}

impl Bucket {
    /// Creates a bucket with a name that no other test has.
    ///
    /// # Panics
    /// Where no server can be started: a test that needs S3 is never skipped.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut spec = shared("SETU_TEST_S3", own_server);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |time| time.as_millis());
        spec.bucket = format!("test-{}-{count}-{now}", process::id());
        let created = block_on(client(&spec).create_bucket().bucket(&spec.bucket).send());
        created.unwrap_or_else(|error| panic!("cannot create bucket {}: {error:?}", spec.bucket));
        Self { spec }
    }

    /// The one bucket of a server that ignores conditions, which all its tests share.
    ///
    /// # Panics
    /// Where no server can be started.
    pub fn without_conditions() -> Self {
        Self {
            spec: shared("SETU_TEST_GARAGE", own_garage),
        }
    }

    /// How `setu` gets there.
    pub fn spec(&self) -> Spec {
        self.spec.clone()
    }

    /// The server's port on `127.0.0.1`.
    pub fn port(&self) -> u16 {
        let port = self.spec.endpoint.rsplit(':').next();
        port.and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("no port in `{}`", self.spec.endpoint))
    }

    /// The same bucket through something else on `127.0.0.1`; `path` starts with `/` or is empty.
    pub fn spec_through(&self, port: u16, path: &str) -> Spec {
        Spec {
            endpoint: format!("http://127.0.0.1:{port}{path}"),
            ..self.spec()
        }
    }

    /// The value of `staging:` in a pipeline file.
    pub fn yaml(&self) -> String {
        // JSON is YAML.
        serde_json::to_string(&self.spec).unwrap_or_else(|error| panic!("{error}"))
    }

    /// How many uploads in pieces are neither complete nor aborted.
    pub fn unfinished_uploads(&self) -> usize {
        let request = client(&self.spec).list_multipart_uploads();
        let uploads = block_on(request.bucket(&self.spec.bucket).send());
        let uploads = uploads.unwrap_or_else(|error| panic!("cannot list uploads: {error:?}"));
        uploads.uploads().len()
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self::new()
    }
}

/// The server that `cargo xtask test` started, or one that this process starts for itself.
fn shared(variable: &str, own: fn() -> &'static S3Server) -> Spec {
    let json = env::var(variable).unwrap_or_else(|_| own().spec());
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{variable} is no blob specification: {error}"))
}

/// A static is never dropped; the server's keeper sees the end of this process and stops it.
fn own_server() -> &'static S3Server {
    static SERVER: OnceLock<S3Server> = OnceLock::new();
    SERVER.get_or_init(|| S3Server::seaweedfs().unwrap_or_else(|error| panic!("{error:#}")))
}

fn own_garage() -> &'static S3Server {
    static SERVER: OnceLock<S3Server> = OnceLock::new();
    SERVER.get_or_init(|| S3Server::garage().unwrap_or_else(|error| panic!("{error:#}")))
}

fn client(spec: &Spec) -> Client {
    let http = aws_smithy_http_client::Builder::new();
    let http = http
        .tls_provider(Provider::rustls(CryptoMode::Ring))
        .build_https();
    let keys = Credentials::new(&spec.access_key, &spec.secret_key, None, None, "test");
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .credentials_provider(keys)
        .region(Region::new(spec.region.clone()))
        .endpoint_url(&spec.endpoint)
        .force_path_style(true);
    Client::from_conf(config.build())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = Runtime::new().unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(future)
}
