//! A short number for a long text, the same in every version of this program.

/// FNV-1a, for names that must be short: nothing relies on it being hard to invert.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
