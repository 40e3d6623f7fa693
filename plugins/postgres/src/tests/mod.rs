//! Tests against a real server, which each test starts for itself. A machine without one fails them.

mod copy;
mod kept;
mod lost_rows;
mod read;
mod resume;
mod server;
mod session;
mod targets;
mod types;
mod write;
