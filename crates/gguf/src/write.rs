//! Writing GGUF files.

mod value;

use crate::error::Error;
use crate::metadata::MAX_ENTRIES;
use crate::part::{self, ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_TENSORS};
use crate::{Format, name, split, tensor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

pub use value::ToMetadata;

/// The version written.
const VERSION: u32 = 3;

/// Gathers keys and tensors, then writes them in one pass.
///
/// ```
/// use argon_gguf::{Format, Gguf, Writer};
///
/// let mut file = Vec::new();
/// Writer::new()
///     .metadata("general.architecture", "example")
///     .metadata("example.block_count", 2u32)
///     .tensor("weight", &[2, 1], Format::F32, [1f32, 2.0].map(f32::to_le_bytes).concat())
///     .write(&mut file)?;
///
/// let model = Gguf::from_bytes(file)?;
/// assert_eq!(model.metadata().require_u32("example.block_count")?, 2);
/// assert_eq!(model.tensors()[0].shape, [2, 1]);
/// # Ok::<(), argon_gguf::Error>(())
/// ```
pub struct Writer<'a> {
    entries: Vec<Entry>,
    tensors: Vec<Tensor<'a>>,
    alignment: u64,
}

struct Entry {
    key: String,
    /// Type and value as they are stored.
    encoded: Vec<u8>,
}

struct Tensor<'a> {
    name: String,
    shape: Vec<usize>,
    format: Format,
    data: Data<'a>,
}

enum Data<'a> {
    Bytes(Cow<'a, [u8]>),
    Fill(Fill<'a>),
}

type Fill<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + 'a>;

/// A tensor whose size has been checked.
struct Planned<'a> {
    tensor: Tensor<'a>,
    bytes: u64,
}

impl Default for Writer<'_> {
    fn default() -> Self {
        Writer { entries: Vec::new(), tensors: Vec::new(), alignment: DEFAULT_ALIGNMENT }
    }
}

impl<'a> Writer<'a> {
    /// A file without keys and tensors.
    pub fn new() -> Writer<'a> {
        Writer::default()
    }

    /// Adds a key.
    pub fn metadata(mut self, key: impl Into<String>, value: impl ToMetadata) -> Self {
        let mut encoded = value.value_type().id().to_le_bytes().to_vec();
        value.encode(&mut encoded);
        self.entries.push(Entry { key: key.into(), encoded });
        self
    }

    /// Has all tensors begin at multiples of `alignment` bytes (32 otherwise).
    pub fn alignment(mut self, alignment: u64) -> Self {
        self.alignment = alignment;
        self
    }

    /// Adds a tensor. `shape` is in ggml's order, `[cols, rows, experts, ..]`.
    pub fn tensor(
        self,
        name: impl Into<String>,
        shape: &[usize],
        format: Format,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        self.push(name.into(), shape, format, Data::Bytes(data.into()))
    }

    /// Adds a tensor whose data are produced when their turn comes: `fill` must write exactly as many bytes as shape and
    /// format need.
    pub fn tensor_with(
        self,
        name: impl Into<String>,
        shape: &[usize],
        format: Format,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        self.push(name.into(), shape, format, Data::Fill(Box::new(fill)))
    }

    fn push(mut self, name: String, shape: &[usize], format: Format, data: Data<'a>) -> Self {
        self.tensors.push(Tensor { name, shape: shape.to_vec(), format, data });
        self
    }

    /// Writes everything to `out`.
    ///
    /// # Errors
    /// Before the first byte: a name, shape, alignment or length that no file may have. Later: [`Error::Io`], and
    /// [`Error::DataLength`] for a tensor whose `fill` wrote too little or too much.
    pub fn write(self, mut out: impl Write) -> Result<(), Error> {
        let (entries, tensors, alignment) = self.plan()?;
        write_part(&mut out, &entries, tensors, alignment)
    }

    /// Writes everything to a new file at `path`, or over an old one.
    ///
    /// # Errors
    /// As [`Writer::write`], with the path.
    pub fn write_file(self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let (entries, tensors, alignment) = self.plan().map_err(|error| error.in_file(path))?;
        create_part(path, &entries, tensors, alignment)
    }

    /// Writes everything to the files `STEM-00001-of-0000N.gguf` and so on, the metadata in the first one, with no more
    /// than `max_bytes` of tensors in each (but one tensor at least). Returns their paths.
    ///
    /// # Errors
    /// As [`Writer::write`], with the path, and [`Error::TooManyParts`].
    pub fn write_split(self, stem: impl AsRef<Path>, max_bytes: u64) -> Result<Vec<PathBuf>, Error> {
        let stem = stem.as_ref();
        let (mut entries, tensors, alignment) = self.plan().map_err(|error| error.in_file(stem))?;
        let total = tensors.len() as i32; // at most MAX_TENSORS, as `plan` has checked
        let parts = divide(tensors, alignment, max_bytes);
        let count = u16::try_from(parts.len()).map_err(|_| Error::TooManyParts { count: parts.len() })?;
        let mut paths = Vec::with_capacity(parts.len());
        for (number, tensors) in (0..count).zip(parts) {
            entries.extend(split_entries(number, count, total));
            let path = split::part_path(stem, u64::from(number) + 1, count.into());
            create_part(&path, &entries, tensors, alignment)?;
            paths.push(path);
            entries.retain(|entry| entry.key == ALIGNMENT_KEY); // each part needs it
        }
        Ok(paths)
    }

    /// Checks everything that can be checked before a byte is written.
    fn plan(mut self) -> Result<(Vec<Entry>, Vec<Planned<'a>>, u64), Error> {
        check_count("keys", self.entries.len(), MAX_ENTRIES)?;
        check_count("tensors", self.tensors.len(), MAX_TENSORS)?;
        check_keys(&self.entries)?;
        let alignment = part::check_alignment(self.alignment)?;
        if alignment != DEFAULT_ALIGNMENT {
            let alignment = u32::try_from(alignment).map_err(|_| Error::Alignment { alignment })?;
            self = self.metadata(ALIGNMENT_KEY, alignment);
        }
        let mut names = HashSet::new();
        let mut planned = Vec::with_capacity(self.tensors.len());
        for (i, tensor) in self.tensors.into_iter().enumerate() {
            if !names.insert(tensor.name.clone()) {
                return Err(Error::DuplicateTensor { tensor: tensor.name });
            }
            planned.push(Planned::new(i, tensor)?);
        }
        Ok((self.entries, planned, alignment))
    }
}

fn check_count(item: &'static str, count: usize, max: u64) -> Result<(), Error> {
    let count = count as u64;
    if count > max { Err(Error::Count { item, count, max }) } else { Ok(()) }
}

fn check_keys(entries: &[Entry]) -> Result<(), Error> {
    let mut keys = HashSet::new();
    for (i, Entry { key, .. }) in entries.iter().enumerate() {
        name::check(key).map_err(|fault| Error::Name { item: format!("key {i}"), fault })?;
        if [ALIGNMENT_KEY, split::NUMBER_KEY, split::COUNT_KEY, split::TENSORS_KEY].contains(&key.as_str()) {
            return Err(Error::ReservedKey { key: key.clone() });
        }
        if !keys.insert(key) {
            return Err(Error::DuplicateKey { key: key.clone() });
        }
    }
    Ok(())
}

impl<'a> Planned<'a> {
    fn new(number: usize, tensor: Tensor<'a>) -> Result<Planned<'a>, Error> {
        name::check(&tensor.name).map_err(|fault| Error::Name { item: format!("tensor {number}"), fault })?;
        let bytes = tensor::byte_len(&tensor.name, &tensor.shape, tensor.format)? as u64;
        match &tensor.data {
            Data::Bytes(data) if data.len() as u64 != bytes => Err(data_length(&tensor.name, bytes, data.len() as u64)),
            _ => Ok(Planned { tensor, bytes }),
        }
    }
}

fn data_length(tensor: &str, expected: u64, found: u64) -> Error {
    Error::DataLength { tensor: tensor.to_owned(), expected, found }
}

/// Tensors in runs of at most `max_bytes`, one tensor at least in each run but for one empty run if there are none.
fn divide(tensors: Vec<Planned<'_>>, alignment: u64, max_bytes: u64) -> Vec<Vec<Planned<'_>>> {
    let mut parts = vec![Vec::new()];
    let mut filled = 0u64;
    for planned in tensors {
        let bytes = planned.bytes.next_multiple_of(alignment);
        filled = filled.saturating_add(bytes);
        match parts.last_mut() {
            Some(part) if part.is_empty() || filled <= max_bytes => part.push(planned),
            _ => {
                filled = bytes;
                parts.push(vec![planned]);
            }
        }
    }
    parts
}

/// In the types that llama.cpp reads.
fn split_entries(number: u16, count: u16, tensors: i32) -> Vec<Entry> {
    Writer::new()
        .metadata(split::NUMBER_KEY, number)
        .metadata(split::COUNT_KEY, count)
        .metadata(split::TENSORS_KEY, tensors)
        .entries
}

fn create_part(path: &Path, entries: &[Entry], tensors: Vec<Planned<'_>>, alignment: u64) -> Result<(), Error> {
    const BUFFER: usize = 1 << 20;
    let write = || {
        let mut out = BufWriter::with_capacity(BUFFER, File::create(path)?);
        write_part(&mut out, entries, tensors, alignment)?;
        Ok(out.flush()?)
    };
    write().map_err(|error: Error| error.in_file(path))
}

fn write_part(out: &mut dyn Write, entries: &[Entry], tensors: Vec<Planned<'_>>, alignment: u64) -> Result<(), Error> {
    let header = encode_header(entries, &tensors, alignment)?;
    out.write_all(&header)?;
    write_padding(out, header.len() as u64, alignment)?;
    for Planned { tensor, bytes } in tensors {
        match tensor.data {
            Data::Bytes(data) => out.write_all(&data)?,
            Data::Fill(fill) => write_filled(out, &tensor.name, bytes, fill)?,
        }
        write_padding(out, bytes, alignment)?;
    }
    Ok(())
}

fn encode_header(entries: &[Entry], tensors: &[Planned<'_>], alignment: u64) -> Result<Vec<u8>, Error> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((entries.len() as u64).to_le_bytes());
    for entry in entries {
        value::encode_string(&entry.key, &mut out);
        out.extend(&entry.encoded);
    }
    let mut offset = 0u64;
    for Planned { tensor, bytes } in tensors {
        value::encode_string(&tensor.name, &mut out);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        for &len in &tensor.shape {
            out.extend((len as u64).to_le_bytes());
        }
        out.extend(tensor.format.ggml_id().to_le_bytes());
        out.extend(offset.to_le_bytes());
        let end = offset.checked_add(*bytes).and_then(|end| end.checked_next_multiple_of(alignment));
        offset = end.ok_or_else(|| Error::TooLarge { tensor: tensor.name.clone() })?;
    }
    Ok(out)
}

fn write_padding(out: &mut dyn Write, written: u64, alignment: u64) -> io::Result<()> {
    let padding = written.next_multiple_of(alignment) - written;
    io::copy(&mut io::repeat(0).take(padding), out).map(drop)
}

fn write_filled(out: &mut dyn Write, tensor: &str, bytes: u64, fill: Fill<'_>) -> Result<(), Error> {
    let mut exact = Exact { out, left: bytes, refused: 0 };
    let result = fill(&mut exact);
    match exact {
        Exact { left: 0, refused: 0, .. } => Ok(result?),
        Exact { left, refused, .. } => {
            if refused == 0 {
                result?; // a failure of its own, not a wrong length
            }
            Err(data_length(tensor, bytes, bytes - left + refused))
        }
    }
}

/// Passes on so many bytes and refuses a write that would exceed them.
struct Exact<'a> {
    out: &'a mut dyn Write,
    left: u64,
    /// Length of a write that was refused.
    refused: u64,
}

impl Write for Exact<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len() as u64;
        if len > self.left {
            self.refused = len;
            return Err(io::Error::other("more data than the tensor holds"));
        }
        let written = self.out.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
