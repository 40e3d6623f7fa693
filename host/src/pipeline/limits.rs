//! The limits that a pipeline file, a job and a policy can name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Something that a connector may use only so much of. The unit is part of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// The linear memory of one instance.
    MemoryMib,
    /// The host's memory that one call may make the host allocate.
    HostMemoryMib,
    /// The time without progress in one call.
    CallTimeoutSeconds,
    /// The time from the opening of an instance to the end of its last call.
    TotalTimeoutSeconds,
    /// The share of one processor that an instance may compute with, in hundredths.
    CpuPercent,
    /// Open files, sockets, streams and the like of one instance.
    OpenHandles,
    /// Lines that one instance may log.
    LogLines,
    /// Bytes of the lines that one instance may log.
    LogMib,
    /// The size of the component.
    ComponentMib,
    /// The time that compiling the component may take.
    CompileTimeoutSeconds,
}

impl Limit {
    /// All of them.
    pub const ALL: [Limit; 10] = [
        Limit::MemoryMib,
        Limit::HostMemoryMib,
        Limit::CallTimeoutSeconds,
        Limit::TotalTimeoutSeconds,
        Limit::CpuPercent,
        Limit::OpenHandles,
        Limit::LogLines,
        Limit::LogMib,
        Limit::ComponentMib,
        Limit::CompileTimeoutSeconds,
    ];

    /// The key under `limits:`.
    pub fn name(self) -> &'static str {
        match self {
            Limit::MemoryMib => "memoryMib",
            Limit::HostMemoryMib => "hostMemoryMib",
            Limit::CallTimeoutSeconds => "callTimeoutSeconds",
            Limit::TotalTimeoutSeconds => "totalTimeoutSeconds",
            Limit::CpuPercent => "cpuPercent",
            Limit::OpenHandles => "openHandles",
            Limit::LogLines => "logLines",
            Limit::LogMib => "logMib",
            Limit::ComponentMib => "componentMib",
            Limit::CompileTimeoutSeconds => "compileTimeoutSeconds",
        }
    }

    /// What holds where nobody says otherwise: more than any honest connector needs.
    pub fn default(self) -> u64 {
        match self {
            Limit::MemoryMib => 512,
            Limit::HostMemoryMib => 256,
            Limit::CallTimeoutSeconds => 300,
            Limit::TotalTimeoutSeconds => 7 * 24 * 3600,
            Limit::CpuPercent => 100,
            Limit::OpenHandles => 1_000,
            Limit::LogLines => 10_000,
            Limit::LogMib => 4,
            Limit::ComponentMib => 64,
            Limit::CompileTimeoutSeconds => 300,
        }
    }
}

/// Limits that differ from their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Limit, u64>")]
pub struct LimitSpec(BTreeMap<Limit, u64>);

impl LimitSpec {
    /// A limit, where it is given.
    pub fn get(&self, limit: Limit) -> Option<u64> {
        self.0.get(&limit).copied()
    }

    /// Gives a limit; 0 counts as 1.
    pub fn set(&mut self, limit: Limit, value: u64) {
        self.0.insert(limit, value.max(1));
    }

    /// The given limits.
    pub fn iter(&self) -> impl Iterator<Item = (Limit, u64)> + '_ {
        self.0.iter().map(|(limit, value)| (*limit, *value))
    }

    /// Whether none is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These limits, and of the others those that `defaults` gives.
    #[must_use]
    pub fn or(mut self, defaults: &LimitSpec) -> LimitSpec {
        for (limit, value) in defaults.iter() {
            self.0.entry(limit).or_insert(value);
        }
        self
    }
}

impl From<BTreeMap<Limit, u64>> for LimitSpec {
    fn from(limits: BTreeMap<Limit, u64>) -> Self {
        limits.into_iter().collect()
    }
}

impl FromIterator<(Limit, u64)> for LimitSpec {
    fn from_iter<I: IntoIterator<Item = (Limit, u64)>>(limits: I) -> Self {
        let mut spec = LimitSpec::default();
        limits
            .into_iter()
            .for_each(|(limit, value)| spec.set(limit, value));
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_of_a_job_is_nothing() {
        for limit in Limit::ALL {
            let json = serde_json::json!({ limit.name(): 0 });
            let spec: LimitSpec = serde_json::from_value(json).expect("it reads");
            assert_eq!(spec.get(limit), Some(1));
        }
    }

    #[test]
    fn a_job_spells_each_limit_as_a_pipeline_does() {
        for limit in Limit::ALL {
            let spec: LimitSpec = [(limit, 7)].into_iter().collect();
            let json = serde_json::to_value(&spec).expect("it serialises");
            assert_eq!(json, serde_json::json!({ limit.name(): 7 }));
            assert_eq!(
                serde_json::from_value::<LimitSpec>(json).expect("it reads back"),
                spec
            );
        }
        assert!(serde_json::from_str::<LimitSpec>(r#"{"memory": 7}"#).is_err());
    }
}
