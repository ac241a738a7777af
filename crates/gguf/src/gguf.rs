//! A model: one file or the parts of a split one.

use crate::error::Error;
use crate::part::Part;
use crate::split::{Record, Split};
use crate::tensor::TensorInfo;
use crate::{Bytes, Metadata};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A model in GGUF: its metadata and its tensors, described and not yet read.
#[derive(Clone, Debug)]
pub struct Gguf {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    parts: Vec<PartFile>,
}

/// One of the files that a model consists of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartFile {
    /// Where it is; `None` for a model in memory.
    pub path: Option<PathBuf>,
    /// The whole of it.
    pub bytes: Bytes,
}

/// Where the bytes of a tensor are, for those who read files themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Location<'a> {
    /// The file; `None` for a model in memory.
    pub path: Option<&'a Path>,
    /// Where the bytes begin, counted from the start of the file.
    pub offset: u64,
    /// How many they are.
    pub len: usize,
}

impl Gguf {
    /// Maps the file at `path` and, if it is a part of a split model (any of them), the other parts beside it.
    ///
    /// Everything that the headers say is checked here; no tensor is read. The files must not be changed while they are
    /// mapped: reading a mapping of a file that has been shortened ends the process.
    ///
    /// # Errors
    /// [`Error::File`] with the file and what is wrong with it.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, Error> {
        let path = path.as_ref();
        let entry = Part::open(path)?;
        match Split::detect(path, &entry.metadata).map_err(|error| error.in_file(path))? {
            None => Gguf::new(Some(path.to_owned()), entry),
            Some(split) => Gguf::open_split(&split),
        }
    }

    fn open_split(split: &Split) -> Result<Gguf, Error> {
        let (path, first) = split.open_part(1, None)?;
        let mut model = Gguf::new(Some(path), first)?;
        for number in 2..=split.count() {
            let (path, part) = split.open_part(number, Some(&model.metadata))?;
            model.add(Some(path), part)?;
        }
        split.check_total(model.tensors.len(), &model.metadata)?;
        Ok(model)
    }

    /// Reads a model in memory: `&'static [u8]` (embedded, not copied), `Arc<[u8]>` or `Vec<u8>`.
    ///
    /// # Errors
    /// Whatever is wrong with it. A part of a split model is refused, for want of the others.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Gguf, Error> {
        let part = Part::read(bytes.into())?;
        if let Some(record) = Record::read(&part.metadata)? {
            return Err(Error::PartName { number: record.number, count: record.count });
        }
        Gguf::new(None, part)
    }

    fn new(path: Option<PathBuf>, part: Part) -> Result<Gguf, Error> {
        let metadata = part.metadata.clone();
        let mut model = Gguf { metadata, tensors: Vec::new(), index: HashMap::new(), parts: Vec::new() };
        model.add(path, part)?;
        Ok(model)
    }

    fn add(&mut self, path: Option<PathBuf>, part: Part) -> Result<(), Error> {
        for mut tensor in part.tensors {
            tensor.part = self.parts.len();
            if self.index.insert(tensor.name.clone(), self.tensors.len()).is_some() {
                let error = Error::DuplicateTensor { tensor: tensor.name };
                return Err(match path {
                    Some(path) => error.in_file(path),
                    None => error,
                });
            }
            self.tensors.push(tensor);
        }
        self.parts.push(PartFile { path, bytes: part.bytes });
        Ok(())
    }

    /// The keys and values; of a split model, those of the first part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in the order of the file, part after part.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The bytes of a tensor of this model, to be kept for as long as they are needed.
    pub fn data(&self, tensor: &TensorInfo) -> Bytes {
        tensor.data.clone()
    }

    /// Where the bytes of a tensor of this model are.
    pub fn location(&self, tensor: &TensorInfo) -> Location<'_> {
        let path = self.parts.get(tensor.part).and_then(|part| part.path.as_deref());
        Location { path, offset: tensor.offset, len: tensor.bytes }
    }

    /// The files that the model consists of, in order.
    pub fn parts(&self) -> &[PartFile] {
        &self.parts
    }
}
