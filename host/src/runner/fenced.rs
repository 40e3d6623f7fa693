//! A destination's writer that stops once the load was taken over by another process.

use std::sync::Arc;

use crate::connector::{Chunk, LoadSummary, PartBudget, Result, Writer};
use crate::staging::Fence;

/// Asks a fence before each commit and before the end. A transactional destination knows the attempts of a load as well,
/// and refuses the older one in the transaction itself; this is what others have, and the clearer message for all.
pub(super) struct FencedWriter<'a> {
    inner: Box<dyn Writer + 'a>,
    fence: Arc<dyn Fence>,
}

impl<'a> FencedWriter<'a> {
    pub(super) fn new(inner: Box<dyn Writer + 'a>, fence: Arc<dyn Fence>) -> Self {
        FencedWriter { inner, fence }
    }
}

impl Writer for FencedWriter<'_> {
    fn committed(&mut self) -> Result<u64> {
        self.inner.committed()
    }

    fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.inner.write(chunk)
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        self.fence.check()?;
        self.inner.commit(mark)
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        self.fence.check()?;
        self.inner.finish(high_water_mark)
    }

    fn part_budget(&self) -> Option<Arc<PartBudget>> {
        self.inner.part_budget()
    }
}
