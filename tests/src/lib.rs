//! What the end-to-end tests share: the `setu` command, Postgres databases, S3 buckets, an unreliable network, staged
//! objects, a table that is large enough to be interrupted.
//!
//! The tests see Setu as its users do: a command, files, databases. Not here: anything that a unit test beside the
//! code could show.

mod bucket;
mod command;
mod database;
mod http_proxy;
pub mod many;
mod proxy;
pub mod s3_server;
pub mod server;
mod staged;
mod table;

pub use bucket::Bucket;
pub use command::{Outcome, Setu, kill};
pub use database::Database;
pub use http_proxy::{Fault, HttpProxy};
pub use proxy::Proxy;
pub use staged::{StagedStream, staged_keys};
pub use table::{csv_rows, wait_until};
