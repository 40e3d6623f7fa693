//! Batches: columns in Arrow's memory layout, built and read without an allocation per cell.

mod builder;
mod view;

pub use builder::{BatchBuilder, ColumnBuilder};
pub use view::ColumnView;
