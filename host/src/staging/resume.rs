//! How an extract starts: a pure decision over what is staged.

use super::{Manifest, ManifestStatus};
use crate::connector::Position;

/// How an extract of a stream starts, given its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// From the first row, at part 0.
    Fresh,
    /// After the last named part.
    After {
        /// Where the source goes on.
        position: Position,
        /// How many parts are kept.
        parts: usize,
    },
    /// Every row is staged.
    Complete,
}

/// Decides how an extract starts. `resumable` is what the source says of the stream.
///
/// A stream whose last named part has no position starts over: which rows came after it is not known, and what is
/// resumed must equal what was never interrupted.
pub fn resume(manifest: Option<&Manifest>, resumable: bool) -> Resume {
    let Some(manifest) = manifest else {
        return Resume::Fresh;
    };
    if manifest.status == ManifestStatus::Complete {
        return Resume::Complete;
    }
    match manifest.parts.last().and_then(|part| part.position.clone()) {
        Some(position) if resumable => Resume::After {
            position,
            parts: manifest.parts.len(),
        },
        _ => Resume::Fresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Schema, StreamName};
    use crate::staging::Part;

    fn manifest(status: ManifestStatus, positions: &[Option<u8>]) -> Manifest {
        let part = |position: &Option<u8>| Part {
            key: String::new(),
            rows: 1,
            bytes: 1,
            min_cursor: None,
            max_cursor: None,
            position: position.map(|byte| vec![byte]),
        };
        Manifest {
            stream: StreamName::bare("s"),
            stream_type: "table".into(),
            schema: Schema::default(),
            status,
            parts: positions.iter().map(part).collect(),
            rows_total: positions.len() as u64,
            cursor_field: None,
            high_water_mark: None,
            created_at: String::new(),
            completed_at: None,
            attempt: 1,
        }
    }

    #[test]
    fn an_extract_starts_where_nothing_can_be_lost_or_doubled() {
        use ManifestStatus::{Complete, Extracting};
        let after = |position, parts| Resume::After {
            position: vec![position],
            parts,
        };
        let cases = [
            (None, true, Resume::Fresh),
            (None, false, Resume::Fresh),
            (Some(manifest(Extracting, &[])), true, Resume::Fresh),
            (Some(manifest(Extracting, &[Some(1)])), true, after(1, 1)),
            (Some(manifest(Extracting, &[Some(1)])), false, Resume::Fresh),
            (Some(manifest(Extracting, &[None, Some(2)])), true, after(2, 2)),
            (Some(manifest(Extracting, &[Some(1), None])), true, Resume::Fresh),
            (Some(manifest(Complete, &[])), true, Resume::Complete),
            (
                Some(manifest(Complete, &[Some(1), None])),
                false,
                Resume::Complete,
            ),
        ];
        for (manifest, resumable, expected) in cases {
            assert_eq!(
                resume(manifest.as_ref(), resumable),
                expected,
                "{manifest:?}, {resumable}"
            );
        }
    }
}
