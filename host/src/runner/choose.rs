//! Direct or staged: decided once for each stream of a run, and remembered.

use super::Mode;
use super::record::CopyMode;
use crate::connector::{Error, ErrorKind, Result};

/// What is known when a stream's copy mode is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// What the user asked for.
    pub(super) requested: Mode,
    /// What an earlier attempt of the same run decided.
    pub(super) recorded: Option<CopyMode>,
    /// The run already has a manifest of the stream.
    pub(super) staged: bool,
}

/// A decision, or the need to count first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Decided.
    Mode(CopyMode),
    /// Direct if there are few rows.
    Count,
}

/// Decides, or asks for a count. A run never changes the mode of a stream: marks count parts in the one and nothing
/// but the end in the other.
pub(super) fn choose(stream: &str, situation: Situation) -> Result<Choice> {
    let begun = situation
        .recorded
        .or(situation.staged.then_some(CopyMode::Staged));
    let requested = match situation.requested {
        Mode::Auto => None,
        Mode::Direct => Some(CopyMode::Direct),
        Mode::Staged => Some(CopyMode::Staged),
    };
    match (begun, requested) {
        (None, None) => Ok(Choice::Count),
        (None, Some(mode)) => Ok(Choice::Mode(mode)),
        (Some(begun), requested) if requested.is_none_or(|mode| mode == begun) => Ok(Choice::Mode(begun)),
        (Some(begun), _) => {
            let begun = match begun {
                CopyMode::Direct => "direct",
                CopyMode::Staged => "staged",
            };
            let message = format!(
                "stream {stream} was begun {begun} in this run: go on with `--mode {begun}`, or start another run with `--run`"
            );
            Err(Error::new(ErrorKind::Config, message))
        }
    }
}

/// The mode for a stream of so many rows, counted no further than one beyond `most`; none: it could not be counted.
pub(super) fn by_count(rows: Option<u64>, most: u64) -> CopyMode {
    if rows.is_some_and(|rows| rows <= most) {
        CopyMode::Direct
    } else {
        CopyMode::Staged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_the_mode_in_which_its_run_began() {
        use CopyMode::{Direct, Staged};
        let cases = [
            // requested, recorded, staged -> choice; none: refused
            (Mode::Auto, None, false, Some(Choice::Count)),
            (Mode::Auto, None, true, Some(Choice::Mode(Staged))),
            (Mode::Auto, Some(Direct), false, Some(Choice::Mode(Direct))),
            (Mode::Direct, None, false, Some(Choice::Mode(Direct))),
            (Mode::Direct, None, true, None),
            (Mode::Direct, Some(Staged), true, None),
            (Mode::Staged, None, false, Some(Choice::Mode(Staged))),
            (Mode::Staged, Some(Direct), false, None),
            (Mode::Staged, Some(Staged), true, Some(Choice::Mode(Staged))),
        ];
        for (requested, recorded, staged, expected) in cases {
            let situation = Situation {
                requested,
                recorded,
                staged,
            };
            assert_eq!(choose("s", situation).ok(), expected, "{situation:?}");
        }
    }

    #[test]
    fn few_rows_go_direct_and_unknown_numbers_are_staged() {
        let cases = [
            (Some(0), CopyMode::Direct),
            (Some(50_000), CopyMode::Direct),
            (Some(50_001), CopyMode::Staged),
            (None, CopyMode::Staged),
        ];
        for (rows, expected) in cases {
            assert_eq!(by_count(rows, 50_000), expected, "{rows:?}");
        }
    }
}
