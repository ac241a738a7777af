//! Reading numbers from bytes, never past their end.

/// A position in a byte slice. A read that would pass the end returns `None` and moves nothing.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, position: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Bytes not yet read.
    pub(crate) fn left(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    /// The bytes from an earlier position up to here.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.position]
    }

    pub(crate) fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let end = self.position.checked_add(usize::try_from(count).ok()?)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, _) = self.bytes[self.position..].split_first_chunk()?;
        self.position += N;
        Some(*taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
