//! Bytes that stay where they are, with a handle that keeps them alive.

use memmap2::Mmap;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A part of a mapped file or of memory. Cloning copies the handle, not the bytes.
#[derive(Clone)]
pub struct Bytes {
    source: Source,
    range: Range<usize>,
}

#[derive(Clone)]
enum Source {
    Mapped(Arc<Mmap>),
    Shared(Arc<[u8]>),
    Static(&'static [u8]),
}

impl Source {
    fn as_slice(&self) -> &[u8] {
        match self {
            Source::Mapped(map) => map,
            Source::Shared(bytes) => bytes,
            Source::Static(bytes) => bytes,
        }
    }
}

impl Bytes {
    fn whole(source: Source) -> Bytes {
        let range = 0..source.as_slice().len();
        Bytes { source, range }
    }

    /// The bytes of `range`, counted from the start of this handle's, or `None` if there are not so many.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        self.get(range.clone())?;
        let start = self.range.start + range.start;
        Some(Bytes { source: self.source.clone(), range: start..start + range.len() })
    }

    /// Says that the bytes of `range` are needed soon. Of a mapped file, the system then reads them in the background:
    /// places far apart that are asked for one after the other, and only then looked at, cost one wait and not one each.
    ///
    /// Only a hint: where there is nothing to read, no such range, or no such call in the system, nothing happens.
    pub fn will_need(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let (Source::Mapped(map), Some(bytes)) = (&self.source, self.get(range.clone())) {
            // An error means that the hint is not taken.
            let _ = map.advise_range(memmap2::Advice::WillNeed, self.range.start + range.start, bytes.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.source.as_slice()[self.range.clone()]
    }
}

impl From<Mmap> for Bytes {
    fn from(map: Mmap) -> Bytes {
        Bytes::whole(Source::Mapped(Arc::new(map)))
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(bytes: Arc<[u8]>) -> Bytes {
        Bytes::whole(Source::Shared(bytes))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::from(Arc::<[u8]>::from(bytes))
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Bytes {
        Bytes::whole(Source::Static(bytes))
    }
}

impl<const N: usize> From<&'static [u8; N]> for Bytes {
    fn from(bytes: &'static [u8; N]) -> Bytes {
        Bytes::from(bytes.as_slice())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.range.len())
    }
}
