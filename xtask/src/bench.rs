//! Placeholder.
use anyhow::{Result, bail};
pub(crate) fn bench(_arguments: &[String]) -> Result<()> {
    bail!("later")
}
