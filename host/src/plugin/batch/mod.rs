//! Batches in a guest's memory layout and in Arrow's, which are the same: no value is parsed on either way.
//!
//! [`lift`] checks everything that a guest can get wrong and then wraps its buffers as they are. [`lower`] lends
//! Arrow's buffers to the call that copies them into the guest, and cuts large batches into pieces first. The words
//! of 128-bit integers cross low word first, as they lie in memory on the little-endian machines that Setu runs on.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod lift;
mod lower;

pub(super) use lift::lift;
pub(super) use lower::{Lowered, pieces};

#[cfg(test)]
mod tests;

#[cfg(target_endian = "big")]
compile_error!("batches are shared with little-endian guests as they lie in memory");
