//! Setu moves tables between systems in two halves, **extract** and **load**, that may run in different processes
//! and meet only on a blob prefix. Connectors are untrusted WebAssembly components; this crate is the host that owns
//! everything that must be trusted.
//!
//! | module | what it is |
//! |---|---|
//! | [`record`] | logical types and schemas, and their form in Arrow |
//! | [`connector`] | the [`Source`](connector::Source) and [`Destination`](connector::Destination) traits, and where connectors are found |
//! | [`blob`] | the keyed object store: file system, memory |
//! | [`staging`] | the staged layout: a destination and a source over a blob store |
//! | [`plugin`] | WebAssembly components as connectors: sandbox, grants, limits |
//! | [`runner`] | the copy loop, runs, resume, state |
//! | [`pipeline`] | the YAML file and the job that it becomes |
//! | [`policy`] | the platform team's ceiling on grants and limits |
//! | [`cli`] | the `setu` command |
//!
//! Dependencies point one way: `cli` → `runner` → {`connector`, `staging`, `plugin`} → {`record`, `blob`}.

mod address;
pub mod blob;
pub mod cli;
pub mod connector;
mod crash;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod nearest;
pub mod pipeline;
mod place;
pub mod plugin;
pub mod policy;
mod printable;
pub mod record;
pub mod runner;
pub mod staging;
