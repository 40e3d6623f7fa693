//! Tests against a real server, which each test starts for itself. A machine without one fails them.

mod copy;
mod read;
mod server;
mod session;
mod targets;
mod types;
mod write;
