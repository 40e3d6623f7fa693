//! Tests against a real server, which each test starts for itself. A machine without one fails them.

mod copy;
mod server;
mod types;
