//! Mapping a file: the only unsafe code of this crate.

use crate::{Bytes, Error};
use memmap2::Mmap;
use std::fs::{self, File};
use std::path::Path;

/// Maps a whole file, read-only.
///
/// # Errors
/// [`Error::NotAFile`], [`Error::Empty`], or what the operating system says.
pub(crate) fn map(path: &Path) -> Result<Bytes, Error> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(Error::NotAFile); // opening a pipe would wait for a writer
    }
    if metadata.len() == 0 {
        return Err(Error::Empty); // an empty mapping does not exist
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is read-only and private to this process, and its length is the file's as the system reports
    // it. What no reader can check is that nobody shortens or rewrites the file while it is mapped: `Gguf::open` says
    // so, and every read of the mapping is bounds-checked against the mapping, not against lengths read earlier.
    #[allow(unsafe_code)]
    let map = unsafe { Mmap::map(&file) }?;
    Ok(Bytes::from(map))
}
