//! Reading one file: header, keys, tensors, and whether everything lies where the header says.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::tensor::{Announced, TensorInfo};
use crate::{Bytes, Format, Metadata, file};
use std::path::Path;

pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;

/// A huge page. Nothing needs more, and a larger one would only move the data away.
const MAX_ALIGNMENT: u64 = 2 << 20;

/// Far more tensors than any model has, even with a tensor per expert.
pub(crate) const MAX_TENSORS: u64 = 1 << 20;

/// One file, read and checked.
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
}

impl Part {
    /// Maps and reads the file at `path`.
    ///
    /// # Errors
    /// [`Error::File`] with what is wrong with it.
    pub(crate) fn open(path: &Path) -> Result<Part, Error> {
        file::map(path).and_then(Part::read).map_err(|error| error.in_file(path))
    }

    /// Reads a file that is in memory or mapped. Its tensors are marked as those of part 0.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(bytes: Bytes) -> Result<Part, Error> {
        identify(&bytes)?;
        let mut cursor = Cursor::new(&bytes);
        let counts = read_header(&mut cursor)?;
        let metadata = Metadata::read(&bytes, &mut cursor, counts.keys)?;
        let alignment = alignment(&metadata)?;
        let announced = read_tensors(&mut cursor, counts.tensors)?;
        let header_end = cursor.position() as u64;
        let layout = Layout { bytes: &bytes, header_end, alignment, announced: &announced };
        let offsets = layout.check()?;
        let tensors = announced
            .into_iter()
            .zip(offsets)
            .map(|(tensor, offset)| locate(tensor, offset, &bytes))
            .collect::<Result<_, _>>()?;
        Ok(Part { bytes, metadata, tensors })
    }
}

struct Counts {
    keys: u64,
    tensors: u64,
}

/// Whether this is a GGUF file at all, going by its first bytes.
fn identify(bytes: &[u8]) -> Result<(), Error> {
    let start = &bytes[..bytes.len().min(MAGIC.len())];
    match start {
        _ if start == MAGIC => Ok(()),
        [] => Err(Error::Empty),
        _ if bytes.starts_with(b"version https://git-lfs") => Err(Error::LfsPointer),
        _ if MAGIC.starts_with(start) => Err(truncated_header()),
        _ => Err(Error::NotGguf { found: start.to_vec() }),
    }
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Counts, Error> {
    cursor.array::<{ MAGIC.len() }>().ok_or_else(truncated_header)?;
    let version = cursor.u32().ok_or_else(truncated_header)?;
    match version {
        2 | 3 => {}
        _ if (1..=0xff).contains(&version.swap_bytes()) => return Err(Error::BigEndian),
        _ => return Err(Error::Version { version }),
    }
    let tensors = cursor.u64().ok_or_else(truncated_header)?;
    let keys = cursor.u64().ok_or_else(truncated_header)?;
    Ok(Counts { keys, tensors })
}

fn truncated_header() -> Error {
    Error::Truncated { item: "the header".to_owned() }
}

fn alignment(metadata: &Metadata) -> Result<u64, Error> {
    match metadata.u64(ALIGNMENT_KEY)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(alignment) => check_alignment(alignment),
    }
}

/// `alignment`, if it is one.
pub(crate) fn check_alignment(alignment: u64) -> Result<u64, Error> {
    if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT {
        Ok(alignment)
    } else {
        Err(Error::Alignment { alignment })
    }
}

fn read_tensors(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Announced>, Error> {
    let max = MAX_TENSORS.min(cursor.left() / Announced::MIN_SIZE);
    if count > max {
        return Err(Error::Count { item: "tensors", count, max });
    }
    (0..count).map(|number| Announced::read(cursor, number)).collect()
}

fn locate(tensor: Announced, offset: u64, file: &Bytes) -> Result<TensorInfo, Error> {
    let Announced { name, shape, format, bytes, .. } = tensor;
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
    match range.and_then(|range| file.slice(range)) {
        Some(data) => Ok(TensorInfo { name, shape, format, part: 0, offset, bytes, data }),
        None => Err(Error::OutOfFile { tensor: name, len: file.len() as u64 }),
    }
}

/// Where the tensors of a file say they are.
struct Layout<'a> {
    bytes: &'a [u8],
    header_end: u64,
    alignment: u64,
    announced: &'a [Announced],
}

impl Layout<'_> {
    /// Absolute offsets of the tensors, in the order of the header, once they are aligned, apart from each other and
    /// within the file, with nothing behind them.
    fn check(&self) -> Result<Vec<u64>, Error> {
        let len = self.bytes.len() as u64;
        let data_start = self.align(self.header_end);
        let mut order: Vec<&Announced> = self.announced.iter().collect();
        order.sort_by_key(|tensor| tensor.offset);
        let mut end = self.header_end;
        let mut previous: Option<&Announced> = None;
        for (i, tensor) in order.iter().enumerate() {
            let named = || tensor.name.clone();
            if !tensor.offset.is_multiple_of(self.alignment) {
                return Err(Error::Misaligned { tensor: named(), offset: tensor.offset, alignment: self.alignment });
            }
            let out_of_file = || Error::OutOfFile { tensor: named(), len };
            let start = data_start.checked_add(tensor.offset).ok_or_else(out_of_file)?;
            if let Some(previous) = previous.filter(|_| start < end) {
                return Err(Error::Overlap { first: previous.name.clone(), second: named() });
            }
            let next = order.get(i + 1).map(|next| next.offset);
            let room = next.map_or(len.saturating_sub(start), |next| next - tensor.offset);
            if self.has_blocks_of_128(tensor, room, next.is_none()) {
                return Err(Error::Q2Block128 { tensor: named() });
            }
            end = start.checked_add(tensor.bytes as u64).filter(|end| *end <= len).ok_or_else(out_of_file)?;
            previous = Some(tensor);
        }
        self.check_end(end)?;
        // No sum overflows: each of them was checked above.
        Ok(self.announced.iter().map(|tensor| data_start + tensor.offset).collect())
    }

    /// Whether a `Q2_0` tensor fills its room exactly if its blocks have 128 weights, and not if they have 64.
    fn has_blocks_of_128(&self, tensor: &Announced, room: u64, last: bool) -> bool {
        const BLOCK_LEN: usize = 128;
        const BLOCK_BYTES: usize = 34;
        if tensor.format != Format::Q2_0 || !tensor.shape[0].is_multiple_of(BLOCK_LEN) {
            return false;
        }
        let half_blocks = tensor.bytes / tensor.format.block_bytes();
        let (ours, theirs) = (tensor.bytes as u64, (half_blocks / 2 * BLOCK_BYTES) as u64);
        let fills = |bytes| room == self.align(bytes) || last && room == bytes;
        fills(theirs) && !fills(ours)
    }

    /// Nothing but padding follows the last tensor.
    fn check_end(&self, end: u64) -> Result<(), Error> {
        let padded = self.align(end);
        for offset in [end, padded] {
            let rest = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
            if rest.is_some_and(|rest| rest.starts_with(MAGIC)) {
                return Err(Error::Joined { offset });
            }
        }
        match self.bytes.len() as u64 {
            len if len > padded => Err(Error::TrailingBytes { count: len - end }),
            _ => Ok(()),
        }
    }

    /// The next multiple of the alignment, for lengths of things in memory and so far from overflow.
    fn align(&self, position: u64) -> u64 {
        position.next_multiple_of(self.alignment)
    }
}
