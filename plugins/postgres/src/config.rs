//! The configurations of source and destination. Their doc comments are what people read in `setu plugin inspect`.

use std::fmt;

use serde::Deserialize;
use setu_sdk::schemars::JsonSchema;
use setu_sdk::{Error, Result};

use crate::conninfo::{ConnInfo, SslMode};
use crate::session::Endpoint;

/// A Postgres database to read from.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "setu_sdk::schemars")]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// The server and database: `postgres://user:password@host:5432/database?sslmode=require`, or
    /// `host=… user=… dbname=…`. Several hosts (`host1,host2`) are tried in order.
    #[schemars(extend("x-setu-grant" = "network", "x-setu-default-port" = 5432, "x-setu-secret" = true))]
    url: String,
    /// The password, instead of one in `url`.
    #[schemars(extend("x-setu-secret" = true))]
    #[serde(default)]
    password: Option<String>,
    /// Encryption, instead of `sslmode` in `url`; `prefer` where neither is set.
    #[serde(default)]
    sslmode: Option<SslMode>,
    /// A file with the certificates of trusted CAs, in PEM.
    #[schemars(extend("x-setu-grant" = "read"))]
    #[serde(default)]
    sslrootcert: Option<String>,
    /// The certificates of trusted CAs themselves, in PEM.
    #[serde(default)]
    ca_pem: Option<String>,
    /// Only streams of these schemas; all but the system's where it is not set.
    #[serde(default)]
    pub(crate) schemas: Option<Vec<String>>,
    /// Types that are read in their widest form, for tables with values that the usual form cannot hold: `numeric`
    /// (a NaN in a `numeric(p,s)` column), `timestamp` and `timestamptz` (the years after 294246).
    #[serde(default)]
    pub(crate) as_text: Vec<TextType>,
}

/// A type that can be read in its widest form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(crate = "setu_sdk::schemars")]
#[serde(rename_all = "lowercase")]
pub(crate) enum TextType {
    /// `numeric(p,s)` as numeric of any length.
    Numeric,
    /// `timestamp` as text.
    Timestamp,
    /// `timestamptz` as text.
    Timestamptz,
}

/// A Postgres database to write to.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "setu_sdk::schemars")]
#[serde(deny_unknown_fields)]
pub struct DestinationConfig {
    /// The server and database: `postgres://user:password@host:5432/database?sslmode=require`, or
    /// `host=… user=… dbname=…`. Several hosts (`host1,host2`) are tried in order.
    #[schemars(extend("x-setu-grant" = "network", "x-setu-default-port" = 5432, "x-setu-secret" = true))]
    url: String,
    /// The password, instead of one in `url`.
    #[schemars(extend("x-setu-secret" = true))]
    #[serde(default)]
    password: Option<String>,
    /// Encryption, instead of `sslmode` in `url`; `prefer` where neither is set.
    #[serde(default)]
    sslmode: Option<SslMode>,
    /// A file with the certificates of trusted CAs, in PEM.
    #[schemars(extend("x-setu-grant" = "read"))]
    #[serde(default)]
    sslrootcert: Option<String>,
    /// The certificates of trusted CAs themselves, in PEM.
    #[serde(default)]
    ca_pem: Option<String>,
    /// The schema that tables are written to; the stream's namespace, or `public`, where it is not set. Created when
    /// it is missing.
    #[serde(default)]
    pub(crate) schema: Option<String>,
}

impl SourceConfig {
    /// Where to connect to.
    pub(crate) fn endpoint(&self) -> Result<Endpoint> {
        endpoint(
            &self.url,
            &self.password,
            self.sslmode,
            &self.sslrootcert,
            &self.ca_pem,
        )
    }
}

impl DestinationConfig {
    /// Where to connect to.
    pub(crate) fn endpoint(&self) -> Result<Endpoint> {
        endpoint(
            &self.url,
            &self.password,
            self.sslmode,
            &self.sslrootcert,
            &self.ca_pem,
        )
    }
}

fn endpoint(
    url: &str,
    password: &Option<String>,
    sslmode: Option<SslMode>,
    sslrootcert: &Option<String>,
    ca_pem: &Option<String>,
) -> Result<Endpoint> {
    let mut info = ConnInfo::parse(url)?;
    if password.is_some() {
        info.password.clone_from(password);
    }
    let ca_pem = match (ca_pem, sslrootcert) {
        (Some(_), Some(_)) => {
            return Err(Error::config(
                "`sslrootcert` and `ca_pem` are both set; keep one of them",
            ));
        }
        (Some(pem), None) => Some(pem.clone()),
        (None, Some(path)) => Some(
            std::fs::read_to_string(path)
                .map_err(|error| Error::from(error).context(format!("`sslrootcert` {path}")))?,
        ),
        (None, None) => None,
    };
    let sslmode = sslmode.or(info.sslmode).unwrap_or(SslMode::Prefer);
    Ok(Endpoint {
        info,
        sslmode,
        ca_pem,
    })
}

// Neither the URL nor the password belongs in a log.
impl fmt::Debug for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceConfig").finish_non_exhaustive()
    }
}

impl fmt::Debug for DestinationConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DestinationConfig").finish_non_exhaustive()
    }
}
