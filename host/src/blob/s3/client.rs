//! The SDK's client, set up so that AWS and the stores that imitate it all understand it.

use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::{Builder as HttpBuilder, Connector};

use crate::blob::Spec;

/// What stores that are not AWS mostly call their only region.
const DEFAULT_REGION: &str = "us-east-1";

/// How long an address may take to accept a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the server may be silent: before it answers, and between two pieces of a body.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The slowest line on which a body still arrives in time.
const LEAST_BYTES_PER_SECOND: u64 = 128 << 10;
/// The first try and the retries, where the server is out of reach, overloaded or broken.
const ATTEMPTS: u32 = 4;
/// The backoff before the first retry is at most this, before each further one at most twice as much.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Makes the client, and tells its region. Nothing is sent yet.
pub(super) async fn client(spec: Spec) -> (Client, String) {
    let http = http_client();
    let (credentials, region) = if spec.access_key.is_empty() {
        let provider = ProviderConfig::without_region().with_http_client(http.clone());
        let region = match spec.region.is_empty() {
            true => surrounding_region(&provider).await,
            false => Region::new(spec.region.clone()),
        };
        let chain = DefaultCredentialsChain::builder()
            .configure(provider)
            .region(region.clone())
            .build()
            .await;
        (SharedCredentialsProvider::new(chain), region)
    } else {
        let keys = Credentials::new(spec.access_key, spec.secret_key, None, None, "setu");
        let region = match spec.region.is_empty() {
            true => Region::from_static(DEFAULT_REGION),
            false => Region::new(spec.region),
        };
        (SharedCredentialsProvider::new(keys), region)
    };
    let mut config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .credentials_provider(credentials)
        .region(region.clone())
        .force_path_style(spec.force_path_style)
        .timeout_config(timeouts(0))
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(ATTEMPTS)
                .with_initial_backoff(FIRST_BACKOFF)
                .with_max_backoff(LONGEST_BACKOFF),
        )
        // Uploads are bounded by a time for each attempt, downloads by a time for each piece.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        // Older stores, and others than AWS, do not know the trailers of the newer checksums.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    if !spec.endpoint.is_empty() {
        // The SDK joins a path and the bucket as they are: without a slash at its end, a path would run into it.
        config = config.endpoint_url(format!("{}/", spec.endpoint.trim_end_matches('/')));
    }
    (Client::from_conf(config.build()), region.to_string())
}

/// The times allowed to one attempt at a request with a body of this size.
pub(super) fn timeouts(body: usize) -> TimeoutConfig {
    let transfer = Duration::from_secs(body as u64 / LEAST_BYTES_PER_SECOND);
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(SILENCE_TIMEOUT + transfer)
        .build()
}

/// The region that goes with credentials of the default chain: of the environment or the profile.
async fn surrounding_region(provider: &ProviderConfig) -> Region {
    let profile = ProfileFileRegionProvider::builder().configure(provider).build();
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(profile)
        .or_else(Region::from_static(DEFAULT_REGION));
    let region = chain.region().await;
    region.unwrap_or(Region::from_static(DEFAULT_REGION))
}

/// HTTP with the TLS library that the rest of the program uses, the system's certificates, and the proxies that
/// `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name.
fn http_client() -> SharedHttpClient {
    HttpBuilder::new().build_with_connector_fn(|settings, components| {
        let mut connector = Connector::builder().proxy_config(ProxyConfig::from_env());
        connector.set_connector_settings(settings.cloned());
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        connector.tls_provider(Provider::rustls(CryptoMode::Ring)).build()
    })
}
