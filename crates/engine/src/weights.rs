//! Tensors of a file, found by name and checked once: shape against the metadata, then on to the device.

use std::collections::HashSet;

use argon_gguf::{Bytes, Gguf, TensorInfo, decode_row};
use argon_kernels::device::tensor;
use argon_kernels::{DType, Device, Tensor, Weight};

use crate::EngineError;
use crate::config::Config;
use crate::finite::Stored;

type Result<T> = std::result::Result<T, EngineError>;

/// Binds the tensors of one file to one device and remembers which ones it has bound.
pub(crate) struct Binder<'a> {
    gguf: &'a Gguf,
    device: &'a dyn Device,
    bound: HashSet<String>,
    /// Dense weights that nobody has looked at.
    unread: Vec<Stored>,
}

/// A weight of which tokens use single rows.
pub(crate) struct Table {
    pub weight: Weight,
    rows: Stored,
    /// Whether every row has been looked at.
    checked: bool,
}

impl Table {
    /// Refuses rows that are no numbers.
    pub fn check(&self, rows: impl Iterator<Item = usize> + Clone) -> Result<()> {
        if self.checked { Ok(()) } else { self.rows.check_rows(rows) }
    }
}

/// What a file holds beyond the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Leftovers {
    /// Bytes of the layers that only drafting (MTP) uses.
    pub draft_bytes: usize,
    /// Bytes of a vision tower.
    pub vision_bytes: usize,
    /// Bytes of indexers in layers whose attention is dense.
    pub indexer_bytes: usize,
}

impl<'a> Binder<'a> {
    pub fn new(gguf: &'a Gguf, device: &'a dyn Device) -> Self {
        Self { gguf, device, bound: HashSet::new(), unread: Vec::new() }
    }

    /// Whether the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// Rows of the tensor, whatever its width: the size of a vocabulary.
    pub fn rows_of(&self, name: &str) -> Result<usize> {
        Ok(self.info(name)?.rows())
    }

    /// Whether weights are only read when they are used, so that they need not be looked at before.
    pub fn reads_in_place(&self) -> bool {
        self.device.reads_in_place()
    }

    /// A weight of `rows` x `cols`, output by input.
    pub fn weight(&mut self, name: &str, rows: usize, cols: usize) -> Result<Weight> {
        let (weight, stored) = self.experts(name, 1, rows, cols)?;
        match self.reads_in_place() {
            true => self.unread.push(stored),
            false => stored.check()?,
        }
        Ok(weight)
    }

    /// A weight of `rows` x `cols` whose rows are gathered.
    pub fn table(&mut self, name: &str, rows: usize, cols: usize) -> Result<Table> {
        let (weight, rows) = self.experts(name, 1, rows, cols)?;
        let checked = !self.reads_in_place();
        if checked {
            rows.check()?;
        }
        Ok(Table { weight, rows, checked })
    }

    /// All rows of a table as a weight.
    pub fn whole(&mut self, table: &Table) -> Weight {
        if self.reads_in_place() {
            self.unread.push(table.rows.clone());
        }
        table.weight.clone()
    }

    /// The weights of `experts` experts, each of `rows` x `cols`, and what to look at them by.
    pub fn experts(&mut self, name: &str, experts: usize, rows: usize, cols: usize) -> Result<(Weight, Stored)> {
        let info = self.bind(name, &[cols, rows, experts])?;
        let data = self.gguf.data(info);
        let buffer = self.device.constant(data.clone())?;
        let weight = Weight::dense(buffer, info.format, experts, rows, cols);
        let weight = weight.ok_or_else(|| mismatch(info, &[cols, rows, experts]))?;
        self.device.prepare(&weight)?;
        Ok((weight, Stored::new(info, data)))
    }

    /// The rows of a weight of `cols` columns in another order: output row i is row `order[i]` of the file.
    /// `order` names each row of the file once.
    pub fn reordered(&mut self, name: &str, order: &[usize], cols: usize) -> Result<Weight> {
        let info = self.bind(name, &[cols, order.len()])?;
        let (data, row) = (self.gguf.data(info), info.row_bytes());
        Stored::new(info, data.clone()).check()?;
        let bytes: Vec<u8> = order.iter().flat_map(|&from| &data[from * row..(from + 1) * row]).copied().collect();
        let buffer = self.device.constant(Bytes::from(bytes))?;
        let weight = Weight::dense(buffer, info.format, 1, order.len(), cols);
        let weight = weight.ok_or_else(|| mismatch(info, &[cols, order.len()]))?;
        self.device.prepare(&weight)?;
        Ok(weight)
    }

    /// A small tensor decoded to f32 `[1, 1, len]`.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<Tensor> {
        self.small(name, &[&[len]], [1, 1, len])
    }

    /// One vector for each of `groups` groups, f32 `[1, groups, cols]`; flat or in rows in the file.
    pub fn group_vectors(&mut self, name: &str, groups: usize, cols: usize) -> Result<Tensor> {
        self.small(name, &[&[groups * cols], &[cols, groups]], [1, groups, cols])
    }

    /// The taps of a convolution, f32 `[channels, 1, taps]`.
    pub fn taps(&mut self, name: &str, channels: usize, taps: usize) -> Result<Tensor> {
        self.small(name, &[&[taps, channels]], [channels, 1, taps])
    }

    /// A small tensor decoded on the host.
    pub fn host_vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>> {
        let info = self.bind(name, &[len])?;
        decoded(info, self.gguf.data(info))
    }

    /// f32 values made by the host, `[1, 1, len]`.
    pub fn values(&self, values: &[f32]) -> Result<Tensor> {
        upload(self.device, values, [1, 1, values.len()])
    }

    /// What is left over, and the dense weights to be looked at before they are used. A tensor that is neither bound nor known
    /// to be another part of the file is an error: without it the answer would be another one.
    pub fn finish(self, config: &Config) -> Result<(Leftovers, Vec<Stored>)> {
        let mut left = Leftovers::default();
        for info in self.gguf.tensors().iter().filter(|info| !self.bound.contains(&info.name)) {
            match part_of(&info.name, config) {
                Part::Draft => left.draft_bytes += info.bytes,
                Part::Vision => left.vision_bytes += info.bytes,
                Part::Indexer => left.indexer_bytes += info.bytes,
                Part::Model => {
                    return Err(EngineError::ForeignTensor {
                        tensor: info.name.clone(),
                        architecture: config.family.name,
                    });
                }
            }
        }
        Ok((left, self.unread))
    }

    fn info(&self, name: &str) -> Result<&'a TensorInfo> {
        self.gguf.tensor(name).ok_or_else(|| EngineError::MissingTensor { tensor: name.to_owned() })
    }

    /// The tensor, if its shape is `expected` (trailing lengths of 1 aside), and from now on bound.
    fn bind(&mut self, name: &str, expected: &[usize]) -> Result<&'a TensorInfo> {
        let info = self.info(name)?;
        if trimmed(&info.shape) != trimmed(expected) {
            return Err(mismatch(info, expected));
        }
        if !info.format.is_weight() {
            return Err(EngineError::NotWeights { tensor: name.to_owned(), format: info.format });
        }
        self.bound.insert(name.to_owned());
        Ok(info)
    }

    /// A tensor of any of the `accepted` shapes, decoded to f32 and seen as `view`.
    fn small(&mut self, name: &str, accepted: &[&[usize]], view: [usize; 3]) -> Result<Tensor> {
        let info = self.info(name)?;
        let shape = accepted.iter().find(|shape| trimmed(shape) == trimmed(&info.shape)).unwrap_or(&accepted[0]);
        self.bind(name, shape)?;
        upload(self.device, &decoded(info, self.gguf.data(info))?, view)
    }
}

/// All values of a tensor, all of them numbers.
fn decoded(info: &TensorInfo, data: Bytes) -> Result<Vec<f32>> {
    let mut values = vec![0.0; info.cols() * info.rows()];
    decode_row(info.format, &data, &mut values);
    Stored::new(info, data).check()?;
    Ok(values)
}

/// Copies `values` into a tensor of their own.
fn upload(device: &dyn Device, values: &[f32], [rows, groups, cols]: [usize; 3]) -> Result<Tensor> {
    let uploaded = tensor(device, DType::F32, rows, groups, cols)?;
    device.write(&uploaded, bytemuck::cast_slice(values))?;
    Ok(uploaded)
}

/// A shape without the lengths of 1 at its end.
fn trimmed(shape: &[usize]) -> &[usize] {
    let end = shape.iter().rposition(|&len| len != 1).map_or(1, |last| last + 1);
    &shape[..end]
}

fn mismatch(info: &TensorInfo, expected: &[usize]) -> EngineError {
    EngineError::Shape { tensor: info.name.clone(), expected: trimmed(expected).to_vec(), found: info.shape.clone() }
}

/// The part of a file that a tensor belongs to.
enum Part {
    Model,
    Draft,
    Vision,
    Indexer,
}

fn part_of(name: &str, config: &Config) -> Part {
    let draft = config.layers()..config.layers() + config.draft_layers;
    let block = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
    match block {
        Some(block) if draft.contains(&block) => Part::Draft,
        Some(_) if config.family.attention.indexer && name.contains(".indexer.") => Part::Indexer,
        _ if name.starts_with("v.") || name.starts_with("mm.") => Part::Vision,
        _ => Part::Model,
    }
}
