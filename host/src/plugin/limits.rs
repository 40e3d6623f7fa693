//! How much of the host an instance may use: the numbers, their defaults, and the check that wasmtime asks.
//!
//! Each limit is counted for one instance, that is for one opened connector and one stream. Going over one ends the
//! instance; `fault` turns that into an error that names the limit and the setting. Not here: limits on what a guest
//! returns (rows, positions, columns), which are rules of the contract and are checked where the value arrives.

use std::time::Duration;

use wasmtime::ResourceLimiter;

use crate::pipeline::LimitSpec;

const MIB: usize = 1 << 20;

/// The most open files, sockets, streams and the like of one instance.
pub(super) const MAX_HANDLES: usize = 1_000;
/// The most elements of one WebAssembly table.
const MAX_TABLE_ELEMENTS: usize = 100_000;
/// The most core instances, tables and memories that one component is made of.
const MAX_PARTS: usize = 64;

/// The limits of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Linear memory, in bytes.
    pub(super) memory: usize,
    /// What one value that crosses the boundary may make the host allocate, in bytes.
    pub(super) host_memory: usize,
    /// The longest time without progress in one call: computing, sleeping, waiting for a file.
    pub(super) call: Duration,
    /// The longest time that one call waits for a server's next answer through `net`. A database may sort for many
    /// minutes before it sends its first row, so this is longer than `call` unless the pipeline says a number.
    pub(super) answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: 512 * MIB,
            host_memory: 256 * MIB,
            call: Duration::from_secs(300),
            answer: Duration::from_secs(3600),
        }
    }
}

impl Limits {
    /// The defaults, with what a pipeline file changes.
    pub(super) fn new(spec: &LimitSpec) -> Self {
        let default = Limits::default();
        let mib = |value: Option<u64>, default| {
            value.map_or(default, |v| (v as usize).saturating_mul(MIB).max(MIB))
        };
        let call = spec.call_timeout_seconds.map(|s| Duration::from_secs(s.max(1)));
        Limits {
            memory: mib(spec.memory_mib, default.memory),
            host_memory: mib(spec.host_memory_mib, default.host_memory),
            call: call.unwrap_or(default.call),
            answer: call.unwrap_or(default.answer),
        }
    }

    /// For `describe`, which has nothing to wait for.
    pub(super) fn for_describe() -> Self {
        Limits {
            host_memory: 16 * MIB,
            call: Duration::from_secs(20),
            answer: Duration::from_secs(20),
            ..Limits::default()
        }
    }
}

/// What an instance ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Exceeded {
    /// All linear memories together would have had this many bytes.
    #[error("linear memory of {0} bytes")]
    Memory(usize),
    /// One table would have had this many elements.
    #[error("a table of {0} elements")]
    Table(usize),
}

/// Counts an instance's linear memory and tables. A request beyond the limit is an error rather than a failed
/// `memory.grow`: an allocator that cannot grow ends in a panic that would hide the reason.
#[derive(Debug)]
pub(super) struct Limiter {
    memory_limit: usize,
    memory: usize,
}

impl Limiter {
    pub(super) fn new(limits: &Limits) -> Self {
        Limiter {
            memory_limit: limits.memory,
            memory: 0,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory.saturating_add(desired.saturating_sub(current));
        if total > self.memory_limit {
            return Err(Exceeded::Memory(total).into());
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > MAX_TABLE_ELEMENTS {
            return Err(Exceeded::Table(desired).into());
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        MAX_PARTS
    }

    fn tables(&self) -> usize {
        MAX_PARTS
    }

    fn memories(&self) -> usize {
        MAX_PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_overrides_each_limit_alone() {
        let spec = LimitSpec {
            memory_mib: Some(64),
            ..LimitSpec::default()
        };
        let expected = Limits {
            memory: 64 * MIB,
            ..Limits::default()
        };
        assert_eq!(Limits::new(&spec), expected);
        assert_eq!(Limits::new(&LimitSpec::default()), Limits::default());
    }

    #[test]
    fn a_time_that_a_pipeline_names_holds_for_servers_too() {
        let spec = LimitSpec {
            call_timeout_seconds: Some(7),
            ..LimitSpec::default()
        };
        let limits = Limits::new(&spec);
        assert_eq!(
            (limits.call, limits.answer),
            (Duration::from_secs(7), Duration::from_secs(7))
        );
    }

    #[test]
    fn memory_is_counted_over_all_memories_of_an_instance() {
        let limits = Limits {
            memory: 3 * MIB,
            ..Limits::default()
        };
        let mut limiter = Limiter::new(&limits);
        assert!(limiter.memory_growing(0, 2 * MIB, None).is_ok_and(|ok| ok));
        assert!(limiter.memory_growing(0, MIB, None).is_ok_and(|ok| ok));
        let error = limiter.memory_growing(MIB, MIB + 65_536, None).unwrap_err();
        assert_eq!(
            error.downcast_ref::<Exceeded>(),
            Some(&Exceeded::Memory(3 * MIB + 65_536))
        );
    }
}
