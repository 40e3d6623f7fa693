//! Write connectors for Setu: a typed configuration, one trait, one macro.
//!
//! A connector is a crate of type `cdylib`, built for `wasm32-wasip2`. Its author
//!
//! 1. writes the configuration as a struct with `Deserialize` and `JsonSchema`; doc comments become descriptions, and
//!    `#[schemars(extend("x-setu-grant" = "network"))]` turns a value into a grant;
//! 2. implements [`Source`] with a [`Reader`], or [`Destination`] with a [`Writer`], or both;
//! 3. calls [`source!`], [`destination!`] or [`connector!`].
//!
//! Rows travel as columns in Arrow's memory layout: [`BatchBuilder`] makes them without an allocation per cell, and
//! [`ColumnView`] reads them. `docs/writing-a-connector.md` walks through a whole one, `docs/contract.md` says what the
//! host calls when, and what it demands.

// The generated bindings name this crate by its own name, here as in an author's crate.
extern crate self as setu_sdk;

mod batch;
#[doc(hidden)]
pub mod bindings;
#[doc(hidden)]
pub mod destination;
mod error;
#[doc(hidden)]
pub mod export;
pub mod log;
pub mod net;
#[doc(hidden)]
pub mod source;
pub mod text;
mod types;

#[doc(hidden)]
pub use wit_bindgen;
pub use {schemars, serde, serde_json};

pub use batch::{BatchBuilder, ColumnBuilder, ColumnView};
pub use destination::{Destination, Writer};
pub use error::{Error, ErrorKind, Result};
pub use export::config_schema;
pub use source::{Reader, Source};
pub use types::*;

/// What a configuration must be: readable from JSON, with a JSON Schema.
pub trait Config: serde::de::DeserializeOwned + schemars::JsonSchema {}

impl<C: serde::de::DeserializeOwned + schemars::JsonSchema> Config for C {}

/// Reads a configuration that the host has checked against its schema.
fn parse_config<C: Config>(json: &str) -> Result<C> {
    let wrong = |error: serde_json::Error| Error::config(format!("configuration: {error}"));
    // By way of a value: the lines and columns of this text mean nothing to the author of the pipeline.
    let value: serde_json::Value = serde_json::from_str(json).map_err(wrong)?;
    C::deserialize(value).map_err(wrong)
}
