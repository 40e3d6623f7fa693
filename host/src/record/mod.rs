//! Logical types, schemas and stream names, and their form in Arrow.
//!
//! Everything in the host that speaks of rows speaks in these words: connectors, the staged layout and the copy
//! loop. Rows themselves are always Arrow [`RecordBatch`](arrow_array::RecordBatch)es. Not here: how values look
//! in a staged part (`staging::codec`) or in a guest's memory (`plugin::batch`).

mod arrow;
mod name;
mod types;

pub use name::{ParseNameError, StreamName};
pub use types::{DataType, Field, ParseDataTypeError, Schema, SchemaError, StreamInfo};
