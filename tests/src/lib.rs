//! What the end-to-end tests share: the `setu` command, Postgres databases, an unreliable network, staged objects.
//!
//! The tests see Setu as its users do: a command, files, databases. Not here: anything that a unit test beside the
//! code could show.

mod command;
mod database;
mod proxy;
pub mod server;
mod staged;
mod table;

pub use command::{Outcome, Setu};
pub use database::Database;
pub use proxy::Proxy;
pub use staged::{StagedStream, staged_keys};
pub use table::{csv_rows, wait_until};
