//! What a file says about its tensors, and whether that can be true.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::{Bytes, Format, name};

/// A tensor of a file: where its bytes are and what they mean.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its shape in ggml's order: `[cols, rows, experts, ..]`, one to four lengths, none of them 0. The weights of a row
    /// lie next to each other.
    pub shape: Vec<usize>,
    /// How its weights are stored.
    pub format: Format,
    /// The file that holds it: an index into [`Gguf::parts`](crate::Gguf::parts), 0 for a model in one file.
    pub part: usize,
    /// Where its bytes begin, counted from the start of that file: a multiple of the file's alignment (32 by default, 1
    /// at least).
    pub offset: u64,
    /// Length of its bytes: rows times [`TensorInfo::row_bytes`].
    pub bytes: usize,
    /// The bytes themselves, once they are known to be there.
    pub(crate) data: Bytes,
}

impl TensorInfo {
    /// Weights in a row.
    pub fn cols(&self) -> usize {
        self.shape[0]
    }

    /// Rows, over all the other dimensions.
    pub fn rows(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.bytes / self.rows()
    }
}

/// The most dimensions a tensor has.
const MAX_DIMENSIONS: u64 = 4;

/// Bytes of a tensor of this shape and format.
///
/// # Errors
/// [`Error::Dimensions`], [`Error::ZeroDimension`], [`Error::RowBlock`], [`Error::TooLarge`].
pub(crate) fn byte_len(tensor: &str, shape: &[usize], format: Format) -> Result<usize, Error> {
    let named = || tensor.to_owned();
    check_dimensions(tensor, shape.len() as u64)?;
    if let Some(axis) = shape.iter().position(|&len| len == 0) {
        return Err(Error::ZeroDimension { tensor: named(), axis });
    }
    let (cols, rest) = (shape[0], &shape[1..]);
    if !cols.is_multiple_of(format.block_len()) {
        return Err(Error::RowBlock { tensor: named(), cols, format });
    }
    let row_bytes = format.row_bytes(cols);
    rest.iter()
        .try_fold(cols, |product, &len| product.checked_mul(len)) // the weights can be counted ...
        .and_then(|_| rest.iter().try_fold(row_bytes?, |product, &len| product.checked_mul(len))) // ... and the bytes
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| Error::TooLarge { tensor: named() })
}

fn check_dimensions(tensor: &str, count: u64) -> Result<(), Error> {
    match count {
        1..=MAX_DIMENSIONS => Ok(()),
        _ => Err(Error::Dimensions { tensor: tensor.to_owned(), count }),
    }
}

/// A tensor as the header announces it, before anybody looked for its bytes.
pub(crate) struct Announced {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) format: Format,
    /// Counted from the start of the data.
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl Announced {
    /// A tensor takes a name (8 + 1), a number of dimensions, one of them, a type and an offset at least.
    pub(crate) const MIN_SIZE: u64 = 9 + 4 + 8 + 4 + 8;

    pub(crate) fn read(cursor: &mut Cursor<'_>, number: u64) -> Result<Announced, Error> {
        let name = name::read(cursor).map_err(|fault| Error::Name { item: format!("tensor {number}"), fault })?;
        let truncated =
            || Error::Truncated { item: format!("the description of tensor {}", crate::error::quote(name)) };
        let dimensions = cursor.u32().ok_or_else(truncated)?;
        check_dimensions(name, dimensions.into())?;
        let mut shape = Vec::with_capacity(dimensions as usize);
        for _ in 0..dimensions {
            let len = cursor.u64().ok_or_else(truncated)?;
            shape.push(usize::try_from(len).map_err(|_| Error::TooLarge { tensor: name.to_owned() })?);
        }
        let id = cursor.u32().ok_or_else(truncated)?;
        let offset = cursor.u64().ok_or_else(truncated)?;
        let format = Format::from_ggml(id).ok_or_else(|| Error::UnknownFormat { tensor: name.to_owned(), id })?;
        let bytes = byte_len(name, &shape, format)?;
        Ok(Announced { name: name.to_owned(), shape, format, offset, bytes })
    }
}
