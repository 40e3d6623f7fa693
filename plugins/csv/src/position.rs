//! Where a read can go on.
//!
//! A position names the file by its length, the time of its last change and a hash of its first bytes, and in it the
//! byte and the line at which the next record begins (in the decompressed data). A file that was changed since, or
//! grew, is not gone on with.

const VERSION: u8 = 2;

/// Which file it is, as far as one can tell without reading it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    length: u64,
    modified: u64,
    head: u64,
}

impl Identity {
    /// Of a file with this length (as stored), this time of its last change and these first bytes.
    pub(crate) fn new(length: u64, modified: u64, head: &[u8]) -> Self {
        Identity {
            length,
            modified,
            head: fnv1a(head),
        }
    }

    /// The file's length as stored.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

/// "Everything before this byte has been returned."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) file: Identity,
    pub(crate) offset: u64,
    pub(crate) line: u64,
}

impl Position {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let file = self.file;
        for number in [file.length, file.modified, file.head, self.offset, self.line] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// None for bytes that no version of this connector wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, numbers) = bytes.split_first()? else {
            return None;
        };
        let (numbers, []) = numbers.as_chunks::<8>() else {
            return None;
        };
        let &[length, modified, head, offset, line] = numbers else {
            return None;
        };
        let number = u64::from_le_bytes;
        Some(Position {
            file: Identity {
                length: number(length),
                modified: number(modified),
                head: number(head),
            },
            offset: number(offset),
            line: number(line),
        })
    }
}

/// FNV-1a, 64 bits: tells accidental changes, not forged ones.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_anything_else_is_refused() {
        let position = Position {
            file: Identity::new(7, 8, b"a,b"),
            offset: u64::MAX,
            line: 3,
        };
        let bytes = position.encode();
        assert_eq!(Position::decode(&bytes), Some(position));
        for wrong in [&bytes[..40], &[], &[1; 41], &[bytes.clone(), vec![0]].concat()] {
            assert_eq!(Position::decode(wrong), None);
        }
    }
}
