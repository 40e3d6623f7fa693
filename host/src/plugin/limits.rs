//! How much of the host an instance may use: the numbers, their defaults, and the check that wasmtime asks.
//!
//! Each limit is counted for one instance, that is for one opened connector and one stream. Going over one ends the
//! instance; `fault` turns that into an error that names the limit and the setting. Not here: limits on what a guest
//! returns (rows, positions, columns), which are rules of the contract and are checked where the value arrives.

use std::time::Duration;

use wasmtime::ResourceLimiter;

use crate::pipeline::{Limit, LimitSpec};

const MIB: usize = 1 << 20;

/// The most elements of one WebAssembly table.
const MAX_TABLE_ELEMENTS: usize = 100_000;
/// The most core instances, tables and memories that one component is made of.
const MAX_PARTS: usize = 64;

/// The longest time that one call waits for a server's next answer, where nobody says otherwise: a database may sort for
/// many minutes before it sends its first row.
const ANSWER_SECONDS: u64 = 3600;

/// The limits of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Linear memory, in bytes.
    pub(super) memory: usize,
    /// What one value that crosses the boundary may make the host allocate, in bytes.
    pub(super) host_memory: usize,
    /// The longest time without progress in one call: computing, sleeping, waiting for a file.
    pub(super) call: Duration,
    /// The longest time that one call waits for a server's next answer through `net`.
    pub(super) answer: Duration,
    /// From the opening of the instance on.
    pub(super) total: Duration,
    /// Of one processor, in hundredths.
    pub(super) cpu: u32,
    /// Open files, sockets, streams and the like.
    pub(super) handles: usize,
    pub(super) log_lines: u64,
    pub(super) log_bytes: u64,
    /// No pipeline file changes them.
    pub(super) fixed: bool,
}

impl Limits {
    /// The defaults, with what a pipeline file changes, none of them beyond what a policy allows.
    pub(super) fn new(spec: &LimitSpec, ceiling: &LimitSpec) -> Self {
        let value = |limit| effective(limit, spec, ceiling);
        let bytes = |limit| (value(limit) as usize).saturating_mul(MIB);
        let seconds = |limit| Duration::from_secs(value(limit));
        let answer = spec.get(Limit::CallTimeoutSeconds).unwrap_or(ANSWER_SECONDS);
        let most = ceiling.get(Limit::CallTimeoutSeconds).unwrap_or(u64::MAX);
        Limits {
            memory: bytes(Limit::MemoryMib),
            host_memory: bytes(Limit::HostMemoryMib),
            call: seconds(Limit::CallTimeoutSeconds),
            answer: Duration::from_secs(answer.min(most)),
            total: seconds(Limit::TotalTimeoutSeconds),
            cpu: value(Limit::CpuPercent) as u32,
            handles: value(Limit::OpenHandles) as usize,
            log_lines: value(Limit::LogLines),
            log_bytes: bytes(Limit::LogMib) as u64,
            fixed: false,
        }
    }

    /// For `describe`, which has nothing to wait for; not beyond what a policy allows.
    pub(super) fn for_describe(ceiling: &LimitSpec) -> Self {
        let spec = [(Limit::HostMemoryMib, 16), (Limit::CallTimeoutSeconds, 20)];
        Limits {
            fixed: true,
            ..Limits::new(&spec.into_iter().collect(), ceiling)
        }
    }
}

/// The limits as a pipeline file would have to say them, where they differ from the defaults.
pub(super) fn changed(spec: &LimitSpec, ceiling: &LimitSpec) -> LimitSpec {
    let all = Limit::ALL.map(|limit| (limit, effective(limit, spec, ceiling)));
    all.into_iter()
        .filter(|(limit, value)| *value != limit.default())
        .collect()
}

/// What a pipeline says or else the default, not beyond what a policy allows.
pub(super) fn effective(limit: Limit, spec: &LimitSpec, ceiling: &LimitSpec) -> u64 {
    let wanted = spec.get(limit).unwrap_or_else(|| limit.default());
    ceiling.get(limit).map_or(wanted, |most| wanted.min(most))
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

    fn spec(limits: &[(Limit, u64)]) -> LimitSpec {
        limits.iter().copied().collect()
    }

    fn none() -> LimitSpec {
        LimitSpec::default()
    }

    fn defaults() -> Limits {
        Limits::new(&none(), &none())
    }

    #[test]
    fn a_pipeline_overrides_each_limit_alone() {
        let given = spec(&[(Limit::MemoryMib, 64)]);
        let expected = Limits {
            memory: 64 * MIB,
            ..defaults()
        };
        assert_eq!(Limits::new(&given, &none()), expected);
        assert_eq!(changed(&given, &none()), given);
        assert_eq!(changed(&none(), &none()), none());
    }

    #[test]
    fn a_policy_caps_the_defaults_too() {
        let ceiling = spec(&[
            (Limit::MemoryMib, 100),
            (Limit::CallTimeoutSeconds, 600),
            (Limit::CpuPercent, 50),
        ]);
        let wide = spec(&[
            (Limit::MemoryMib, 1_000),
            (Limit::CallTimeoutSeconds, 1_000),
            (Limit::HostMemoryMib, 1_000),
        ]);
        for (spec, call, host_memory) in [(none(), 300, 256), (wide, 600, 1_000)] {
            let expected = Limits {
                memory: 100 * MIB,
                call: Duration::from_secs(call),
                answer: Duration::from_secs(600),
                host_memory: host_memory * MIB,
                cpu: 50,
                ..defaults()
            };
            assert_eq!(Limits::new(&spec, &ceiling), expected);
        }
        let expected = spec(&[(Limit::MemoryMib, 100), (Limit::CpuPercent, 50)]);
        assert_eq!(changed(&none(), &ceiling), expected);
    }

    #[test]
    fn a_policy_caps_what_describe_may_use() {
        let ceiling = spec(&[
            (Limit::MemoryMib, 64),
            (Limit::CpuPercent, 50),
            (Limit::CallTimeoutSeconds, 600),
        ]);
        let expected = Limits {
            memory: 64 * MIB,
            cpu: 50,
            ..Limits::for_describe(&none())
        };
        assert_eq!(Limits::for_describe(&ceiling), expected);
    }

    #[test]
    fn a_time_that_a_pipeline_names_holds_for_servers_too() {
        let limits = Limits::new(&spec(&[(Limit::CallTimeoutSeconds, 7)]), &none());
        assert_eq!(
            (limits.call, limits.answer),
            (Duration::from_secs(7), Duration::from_secs(7))
        );
    }

    #[test]
    fn memory_is_counted_over_all_memories_of_an_instance() {
        let mut limiter = Limiter::new(&Limits::new(&spec(&[(Limit::MemoryMib, 3)]), &none()));
        assert!(limiter.memory_growing(0, 2 * MIB, None).is_ok_and(|ok| ok));
        assert!(limiter.memory_growing(0, MIB, None).is_ok_and(|ok| ok));
        let error = limiter.memory_growing(MIB, MIB + 65_536, None).unwrap_err();
        assert_eq!(
            error.downcast_ref::<Exceeded>(),
            Some(&Exceeded::Memory(3 * MIB + 65_536))
        );
    }
}
