//! What the sandbox refused: counted for each stream, and told once for each target.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many targets of one stream are told; a connector may try as many as it likes.
const MAX_TOLD: usize = 100;

/// The refusals of one stream. Clones share their state, so that both ends and every attempt count together.
#[derive(Clone, Debug, Default)]
pub struct Denials(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    count: u64,
    told: BTreeSet<String>,
}

impl Denials {
    /// How many attempts were refused.
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    /// Counts a refusal; whether it is the first one of its kind, which people should be told of.
    pub(super) fn note(&self, what: &str) -> bool {
        let mut state = self.lock();
        state.count += 1;
        state.told.len() < MAX_TOLD && state.told.insert(what.to_owned())
    }

    /// Whether this is the first time that something is allowed which people should be told of.
    pub(super) fn note_allowed(&self, what: &str) -> bool {
        let mut state = self.lock();
        state.told.len() < MAX_TOLD && state.told.insert(format!("allowed {what}"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_counts_and_each_target_is_told_once() {
        let denials = Denials::default();
        let told: Vec<_> = ["a", "b", "a"].map(|what| denials.clone().note(what)).into();
        assert_eq!(told, [true, true, false]);
        assert_eq!(denials.count(), 3);
        let flood = (0..1_000).filter(|n| denials.note(&n.to_string())).count();
        assert_eq!(flood, MAX_TOLD - 2);
        assert_eq!(denials.count(), 1_003);
    }
}
