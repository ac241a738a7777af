//! Why a file, a value or a request was refused.

use crate::Format;
use std::io;
use std::path::PathBuf;

/// Everything this crate can refuse. Each message names the key or tensor, and [`Error::File`] the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error in the file at `path`. Whatever [`Gguf::open`](crate::Gguf::open) refuses comes in this form.
    #[error("{}: {error}", path.display())]
    File {
        /// The file, or the part of a split model.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<Error>,
    },
    /// The operating system refused.
    #[error("{message}")]
    Io {
        /// The kind of refusal.
        kind: io::ErrorKind,
        /// The system's words.
        message: String,
    },
    /// A directory, pipe or device.
    #[error("not a regular file")]
    NotAFile,
    /// No bytes at all.
    #[error("the file is empty")]
    Empty,
    /// A git-lfs pointer in place of the file.
    #[error("this is a git-lfs pointer, not the model; fetch it with `git lfs pull`")]
    LfsPointer,
    /// The file does not begin with `GGUF`.
    #[error("not a GGUF file: it begins with \"{}\", not \"GGUF\"", found.escape_ascii())]
    NotGguf {
        /// The first bytes, four at most.
        found: Vec<u8>,
    },
    /// A file for big-endian machines.
    #[error("a big-endian GGUF file; only little-endian files are supported")]
    BigEndian,
    /// A version other than 2 and 3.
    #[error("GGUF version {version}; versions 2 and 3 are supported")]
    Version {
        /// The version found.
        version: u32,
    },
    /// The file ends inside `item`.
    #[error("the file ends inside {item}")]
    Truncated {
        /// What is cut off.
        item: String,
    },
    /// More keys or tensors than the rest of the file could hold, or than any model has.
    #[error("there should be {count} {item}, but at most {max} are possible here")]
    Count {
        /// "keys" or "tensors".
        item: &'static str,
        /// Their number.
        count: u64,
        /// The most that are accepted.
        max: u64,
    },
    /// A key or tensor name that is empty, too long or not UTF-8.
    #[error("the name of {item} {fault}")]
    Name {
        /// Which key or tensor, by its number.
        item: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A key occurs twice.
    #[error("key {} occurs twice", quote(key))]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A tensor occurs twice.
    #[error("tensor {} occurs twice", quote(tensor))]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },
    /// The stored value of a key is malformed.
    #[error("the value of key {} {fault}", quote(key))]
    Value {
        /// The key.
        key: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A key that is needed is absent.
    #[error("key {} is missing", quote(key))]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key has a value of another type, or a number that does not fit.
    #[error("key {} should hold {wanted} but holds {found}", quote(key))]
    ValueType {
        /// The key.
        key: String,
        /// The type asked for.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// `general.alignment` is no power of two, or larger than any page.
    #[error("key \"general.alignment\" is {alignment}, not a power of two up to 2 MiB")]
    Alignment {
        /// The value found.
        alignment: u64,
    },
    /// A tensor has no dimensions, or more than four.
    #[error("tensor {} has {count} dimensions; 1 to 4 are supported", quote(tensor))]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// Dimensions found.
        count: u64,
    },
    /// A tensor has a dimension of length 0.
    #[error("dimension {axis} of tensor {} is 0", quote(tensor))]
    ZeroDimension {
        /// The tensor.
        tensor: String,
        /// Which one, counted from 0.
        axis: usize,
    },
    /// The size of a tensor overflows.
    #[error("the shape of tensor {} is too large", quote(tensor))]
    TooLarge {
        /// The tensor.
        tensor: String,
    },
    /// A tensor has a type id that is not in the table of formats.
    #[error("tensor {} has type id {id}, which is not supported", quote(tensor))]
    UnknownFormat {
        /// The tensor.
        tensor: String,
        /// The type id.
        id: u32,
    },
    /// The rows of a tensor are no multiple of the block of its format.
    #[error("tensor {} has rows of {cols} weights, no multiple of {format}'s block of {}", quote(tensor), format.block_len())]
    RowBlock {
        /// The tensor.
        tensor: String,
        /// Weights in a row.
        cols: usize,
        /// Its format.
        format: Format,
    },
    /// The offsets show that a `Q2_0` tensor has blocks of 128 weights.
    #[error("tensor {}: Q2_0 with 128 weights per block is not supported", quote(tensor))]
    Q2Block128 {
        /// The tensor.
        tensor: String,
    },
    /// A tensor begins at an offset that is no multiple of the alignment.
    #[error("tensor {} begins at offset {offset}, no multiple of the alignment {alignment}", quote(tensor))]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Its offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// The data of a tensor does not end within the file.
    #[error("tensor {} does not lie within the file ({len} bytes): is the file cut off?", quote(tensor))]
    OutOfFile {
        /// The tensor.
        tensor: String,
        /// Length of the file.
        len: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors {} and {} overlap", quote(first), quote(second))]
    Overlap {
        /// The one with the smaller offset.
        first: String,
        /// The other.
        second: String,
    },
    /// Bytes follow the last tensor and its padding.
    #[error("{count} bytes follow the end of the last tensor")]
    TrailingBytes {
        /// How many, padding included.
        count: u64,
    },
    /// A second GGUF file follows the first one.
    #[error("a second GGUF file begins at byte {offset}: were the parts of a split model joined? Keep them apart")]
    Joined {
        /// Where it begins.
        offset: u64,
    },
    /// A part of a split model is not named as one, so that the others cannot be found.
    #[error(
        "this is part {number} of {count} of a model, but is not named so: the name must end in \"-{number:05}-of-{count:05}.gguf\""
    )]
    PartName {
        /// Which part it says it is, counted from 1.
        number: u64,
        /// How many there are.
        count: u64,
    },
    /// A file is named as a part of a split model and is not one.
    #[error("named as part {number} of {count}, but it is not a part of a split model")]
    NotAPart {
        /// Which part its name says, counted from 1.
        number: u64,
        /// How many parts its name says.
        count: u64,
    },
    /// A part of a split model is missing.
    #[error("part {number} of {count} of the model is missing")]
    MissingPart {
        /// Which part, counted from 1.
        number: u64,
        /// How many there are.
        count: u64,
    },
    /// A part of a split model disagrees with its name or with the first part.
    #[error("part {number} does not belong to this model: its {key} is {found}, not {expected}")]
    ForeignPart {
        /// Which part, counted from 1.
        number: u64,
        /// The key that gives it away.
        key: String,
        /// Its value.
        found: String,
        /// The value that belongs there.
        expected: String,
    },
    /// The parts do not hold as many tensors as they say.
    #[error("the parts hold {found} tensors, but \"split.tensors.count\" is {expected}")]
    TensorTotal {
        /// Tensors found.
        found: u64,
        /// Tensors announced.
        expected: u64,
    },
    /// A model would be split into more parts than can be numbered.
    #[error("the model would have {count} parts; at most 65535 are possible")]
    TooManyParts {
        /// How many it would be.
        count: usize,
    },
    /// There is no encoder for a format.
    #[error("there is no encoder for {format}")]
    NoEncoder {
        /// The format.
        format: Format,
    },
    /// A tensor was given more or fewer bytes than its shape and format need.
    #[error("tensor {} needs {expected} bytes of data, not {found}", quote(tensor))]
    DataLength {
        /// The tensor.
        tensor: String,
        /// Bytes needed.
        expected: u64,
        /// Bytes given, as far as they were counted.
        found: u64,
    },
    /// A key that the writer sets itself.
    #[error("key {} is written by the writer itself", quote(key))]
    ReservedKey {
        /// The key.
        key: String,
    },
}

/// What is wrong with a stored name or value. Reads on from "the value of key ...".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends inside it.
    #[error("is cut off by the end of the file")]
    Truncated,
    /// A string is longer than the rest of the file.
    #[error("has a string of {len} bytes, more than are left in the file")]
    StringLength {
        /// The length found.
        len: u64,
    },
    /// An array is longer than the rest of the file.
    #[error("has an array of {len} elements, more than are left in the file")]
    ArrayLength {
        /// The length found.
        len: u64,
    },
    /// A value type that does not exist.
    #[error("has the unknown type {id}")]
    UnknownType {
        /// The type id.
        id: u32,
    },
    /// Arrays in arrays in arrays.
    #[error("has arrays nested too deeply")]
    Nesting,
    /// A string is not UTF-8.
    #[error("is not valid UTF-8")]
    Utf8,
    /// A bool is neither 0 nor 1.
    #[error("has a bool of {found}, neither 0 nor 1")]
    Bool {
        /// The byte found.
        found: u8,
    },
    /// A name is empty.
    #[error("is empty")]
    EmptyName,
    /// A name is longer than 65,535 bytes.
    #[error("is {len} bytes long; at most 65535 are allowed")]
    LongName {
        /// The length found.
        len: u64,
    },
}

impl Error {
    /// Says which file the error is about.
    pub(crate) fn in_file(self, path: impl Into<PathBuf>) -> Error {
        Error::File { path: path.into(), error: Box::new(self) }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io { kind: error.kind(), message: error.to_string() }
    }
}

/// A name from a file: escaped, and shortened where it is absurdly long.
pub(crate) fn quote(name: &str) -> String {
    const SHOWN: usize = 100;
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &name[..end]),
        None => format!("{name:?}"),
    }
}
