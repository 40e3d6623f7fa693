//! The bundled Postgres connector: a source and a destination over `postgres-protocol` and the contract's `net`.
//!
//! From below: `wire` frames messages, `client` runs statements, `session` connects and logs in; `catalog` and
//! `types` say what a table is made of; `copy_out` and `decode` turn the rows of a COPY into
//! columns, `encode` and `copy_in` columns into rows; `source`
//! and `destination` implement the SDK's traits with all that. A native build speaks to a real server as well (without
//! TLS, which the host does), and that is how the tests run.

mod auth;
mod catalog;
mod client;
mod config;
mod conninfo;
mod copy_in;
mod copy_out;
mod datetime;
mod decode;
mod destination;
mod encode;
mod failure;
mod hash;
mod numeric;
mod session;
mod source;
mod sql;
#[cfg(test)]
mod tests;
mod types;
mod wire;

pub use config::{DestinationConfig, SourceConfig};
pub use destination::PostgresDestination;
pub use source::PostgresSource;

setu_sdk::connector!(PostgresSource, PostgresDestination);
