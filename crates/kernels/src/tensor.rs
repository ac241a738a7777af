//! Handles to device memory. They are cheap to clone, carry shape and type, and own no lock.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use argon_gguf::Format;

/// Memory of one device. What is behind it only that device knows; it finds its own type through [`Storage::as_any`].
#[derive(Clone)]
pub struct Buffer(Arc<dyn Storage>);

/// What a device keeps behind a [`Buffer`].
pub trait Storage: Any + Send + Sync {
    /// Size in bytes.
    fn bytes(&self) -> usize;
    /// For the owning device to get its own type back.
    fn as_any(&self) -> &dyn Any;
}

impl Buffer {
    /// Wraps a device's own storage.
    pub fn new(storage: impl Storage) -> Self {
        Self(Arc::new(storage))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The storage as the device's own type, `None` if the buffer belongs to another kind of device.
    pub fn storage<S: Storage>(&self) -> Option<&S> {
        self.0.as_any().downcast_ref()
    }

    /// Whether both handles name the same memory.
    pub fn same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({:p}, {} bytes)", Arc::as_ptr(&self.0), self.bytes())
    }
}

/// Element type of a [`Tensor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    F16,
    /// Signed 32-bit integer (token and expert ids, positions).
    I32,
    /// Unsigned 32-bit word (plan buffers).
    U32,
}

impl DType {
    /// Size of one element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 => 2,
        }
    }
}

/// A view of device memory with three axes, `[rows, groups, cols]`: rows are tokens (or cache positions, or plan rows),
/// groups are heads or hyper-connection streams (1 where there are none), cols lie next to each other.
/// Offsets and strides count elements.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Where the elements live.
    pub buffer: Buffer,
    /// Type of the elements.
    pub dtype: DType,
    /// First element.
    pub offset: usize,
    /// Number of rows.
    pub rows: usize,
    /// Number of groups in a row.
    pub groups: usize,
    /// Number of neighbouring elements in a group.
    pub cols: usize,
    /// Elements from a row to the next.
    pub row_stride: usize,
    /// Elements from a group to the next.
    pub group_stride: usize,
}

impl Tensor {
    /// A dense view of a whole buffer from its start.
    pub fn dense(buffer: Buffer, dtype: DType, rows: usize, groups: usize, cols: usize) -> Self {
        Self { buffer, dtype, offset: 0, rows, groups, cols, row_stride: groups * cols, group_stride: cols }
    }

    /// Elements of a row, all groups together.
    pub fn width(&self) -> usize {
        self.groups * self.cols
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.rows * self.width()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows `range` of this view.
    ///
    /// # Panics
    /// If the range is not inside the view: a caller's mistake, not an input's.
    pub fn rows(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        Self { offset: self.offset + range.start * self.row_stride, rows: range.end - range.start, ..self.clone() }
    }

    /// The first `n` rows.
    pub fn first(&self, n: usize) -> Self {
        self.rows(0..n)
    }

    /// Columns `range` of every group.
    ///
    /// # Panics
    /// If the range is not inside the view.
    pub fn cols(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.cols, "cols {range:?} of {}", self.cols);
        Self { offset: self.offset + range.start, cols: range.end - range.start, ..self.clone() }
    }

    /// The same rows cut into `groups` groups of `cols` elements.
    ///
    /// # Panics
    /// If the row is not one dense run of `groups * cols` elements.
    pub fn split(&self, groups: usize, cols: usize) -> Self {
        assert!(
            self.is_row_dense() && groups * cols == self.width(),
            "split {}x{} as {groups}x{cols}",
            self.groups,
            self.cols
        );
        Self { groups, cols, group_stride: cols, ..self.clone() }
    }

    /// The same rows as one group.
    ///
    /// # Panics
    /// As [`Tensor::split`].
    pub fn flat(&self) -> Self {
        self.split(1, self.width())
    }

    /// Whether the groups of a row follow each other without a gap.
    pub fn is_row_dense(&self) -> bool {
        self.groups == 1 || self.group_stride == self.cols
    }

    /// Elements from `offset` to one past the last element; 0 for an empty view, `usize::MAX` where it overflows.
    pub fn span(&self) -> usize {
        self.span_of(self.rows, self.groups)
    }

    /// The span that this view would have with so many rows and groups.
    fn span_of(&self, rows: usize, groups: usize) -> usize {
        if rows == 0 || groups == 0 || self.cols == 0 {
            return 0;
        }
        let (rows, groups) =
            ((rows - 1).saturating_mul(self.row_stride), (groups - 1).saturating_mul(self.group_stride));
        rows.saturating_add(groups).saturating_add(self.cols)
    }

    /// One past the last byte in the buffer; `None` where that overflows.
    pub fn end(&self) -> Option<usize> {
        self.offset.checked_add(self.span())?.checked_mul(self.dtype.bytes())
    }

    /// Whether the strides may give one element two names. Such a view is never written.
    pub fn overlaps_itself(&self) -> bool {
        let apart = |count: usize, stride: usize, inner: usize| count <= 1 || stride >= inner;
        let rows_outside = apart(self.groups, self.group_stride, self.cols)
            && apart(self.rows, self.row_stride, self.span_of(1, self.groups));
        let groups_outside = apart(self.rows, self.row_stride, self.cols)
            && apart(self.groups, self.group_stride, self.span_of(self.rows, 1));
        !self.is_empty() && !rows_outside && !groups_outside
    }

    /// Whether two views can touch the same bytes. Interleaved views (two column ranges of the same rows) are told apart
    /// when their rows have the same stride and their columns do not meet.
    pub fn overlaps(&self, other: &Tensor) -> bool {
        if !self.buffer.same(&other.buffer) || self.is_empty() || other.is_empty() {
            return false;
        }
        let bytes = |t: &Tensor| (t.offset.saturating_mul(t.dtype.bytes()), t.end().unwrap_or(usize::MAX));
        let ((a0, a1), (b0, b1)) = (bytes(self), bytes(other));
        if a1 <= b0 || b1 <= a0 {
            return false;
        }
        !self.interleaves(other)
    }

    /// Whether both are column ranges of rows of one common stride that never meet.
    fn interleaves(&self, other: &Tensor) -> bool {
        if self.dtype != other.dtype {
            return false;
        }
        let lane = |t: &Tensor, stride: usize| {
            let width = if stride == t.row_stride { (t.groups - 1) * t.group_stride + t.cols } else { t.cols };
            (t.offset % stride, t.offset % stride + width)
        };
        let apart = |stride: usize| {
            let ((a0, a1), (b0, b1)) = (lane(self, stride), lane(other, stride));
            a1 <= stride && b1 <= stride && (a1 <= b0 || b1 <= a0)
        };
        let strides_match = self.row_stride == other.row_stride && self.row_stride > 0;
        let groups_match = self.group_stride == other.group_stride
            && self.group_stride > 0
            && self.row_stride.is_multiple_of(self.group_stride);
        strides_match && (apart(self.row_stride) || (groups_match && apart(self.group_stride)))
    }
}

/// Quantised weight rows of one or many experts: `experts` matrices of `rows x cols` (output by input).
#[derive(Clone, Debug)]
pub struct Weight {
    /// Where the bytes live.
    pub buffer: Buffer,
    /// How a row is encoded.
    pub format: Format,
    /// Number of matrices; 1 for a dense weight.
    pub experts: usize,
    /// Rows of one matrix (N, output features).
    pub rows: usize,
    /// Columns of one matrix (K, input features), a multiple of the format's block length.
    pub cols: usize,
    /// First byte of expert 0, row 0.
    pub offset: usize,
    /// Bytes from a row to the next.
    pub row_bytes: usize,
    /// Bytes from an expert to the next.
    pub expert_bytes: usize,
}

impl Weight {
    /// A weight that fills `buffer` from its start, experts and rows without gaps.
    /// `None` if `cols` does not fit the format's block or the sizes overflow or exceed the buffer.
    pub fn dense(buffer: Buffer, format: Format, experts: usize, rows: usize, cols: usize) -> Option<Self> {
        let row_bytes = format.row_bytes(cols)?;
        let expert_bytes = row_bytes.checked_mul(rows)?;
        (expert_bytes.checked_mul(experts)? <= buffer.bytes()).then_some(Self {
            buffer,
            format,
            experts,
            rows,
            cols,
            offset: 0,
            row_bytes,
            expert_bytes,
        })
    }

    /// One past the last byte in the buffer; `None` where that overflows or the columns do not fit the format.
    pub fn end(&self) -> Option<usize> {
        let row = self.format.row_bytes(self.cols)?;
        if self.experts == 0 || self.rows == 0 {
            return Some(self.offset);
        }
        let last = (self.experts - 1)
            .checked_mul(self.expert_bytes)?
            .checked_add((self.rows - 1).checked_mul(self.row_bytes)?)?;
        self.offset.checked_add(last)?.checked_add(row)
    }

    /// Rows `range` of every expert: the gate or the up half of a fused tensor.
    ///
    /// # Panics
    /// If the range is not inside the weight.
    pub fn rows(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        Self { offset: self.offset + range.start * self.row_bytes, rows: range.end - range.start, ..self.clone() }
    }
}
