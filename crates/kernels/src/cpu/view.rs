//! Typed views of host memory.
//!
//! [`View`] reads a tensor, [`ViewMut`] writes one, [`WeightRows`] reads a weight. All are made from an operand of the op at
//! hand; what makes their slices sound is checked in three places:
//!
//! * *inside the buffer, of this type, aligned*: [`locate`], whenever a view is made;
//! * *no operand that is written meets another, or a weight*: `Op::check`, at the head of `enqueue`. Where an op may work in
//!   place, its kernel touches that memory through the written view alone;
//! * *nothing else runs on this memory*: the device's lock, held by `enqueue`, `read` and `write`. A buffer remembers the lock
//!   that guards it, and [`HostMemory::first_byte`] refuses buffers that another device's lock guards.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use half::f16;

use super::CpuDevice;
use super::memory::HostMemory;
use super::team::Team;
use crate::device::DeviceError;
use crate::tensor::{DType, Tensor, Weight};

/// A type that tensors hold.
pub(super) trait Element: bytemuck::Pod + Send + Sync {
    /// Its name in a tensor.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
}

/// The address of a tensor's first element, after all checks that a view relies on.
fn locate<T: Element>(device: &CpuDevice, t: &Tensor, write: bool) -> Result<NonNull<T>, DeviceError> {
    let refuse = |what: String| Err(DeviceError::Failed { device: device.id().into(), what });
    if t.dtype != T::DTYPE {
        return refuse(format!("a tensor of {:?} taken as {:?}", t.dtype, T::DTYPE));
    }
    let end = t.span().checked_add(t.offset).and_then(|n| n.checked_mul(size_of::<T>()));
    if end.is_none_or(|end| end > t.buffer.bytes()) {
        return refuse(format!("{t:?} is not inside its buffer"));
    }
    let start = HostMemory::first_byte(device, &t.buffer, write)?;
    // SAFETY: offset <= offset + span, which is inside the buffer.
    let first = unsafe { start.cast::<T>().add(t.offset) };
    if !first.is_aligned() {
        return refuse(format!("{t:?} is not aligned"));
    }
    Ok(NonNull::new(first.cast_mut()).unwrap_or(NonNull::dangling()))
}

/// Shape and strides, and the offset of a group in them.
#[derive(Clone, Copy)]
struct Extent {
    rows: usize,
    groups: usize,
    cols: usize,
    row_stride: usize,
    group_stride: usize,
}

impl Extent {
    fn of(t: &Tensor) -> Self {
        let Tensor { rows, groups, cols, row_stride, group_stride, .. } = *t;
        Self { rows, groups, cols, row_stride, group_stride }
    }

    /// Offset of the first element of a group; inside the span of the tensor as the indices are inside its shape.
    fn at(&self, row: usize, group: usize) -> usize {
        assert!(row < self.rows && group < self.groups, "[{row}, {group}] of [{}, {}]", self.rows, self.groups);
        if self.cols == 0 { 0 } else { row * self.row_stride + group * self.group_stride }
    }

    /// Length of a tensor whose rows and groups follow each other.
    fn dense(&self) -> usize {
        assert!(self.rows <= 1 || self.row_stride == self.dense_row(), "rows are apart");
        self.rows * self.dense_row()
    }

    /// Length of a row whose groups follow each other.
    fn dense_row(&self) -> usize {
        assert!(self.groups == 1 || self.group_stride == self.cols, "groups are apart");
        self.groups * self.cols
    }
}

/// The elements of a tensor, to be read.
#[derive(Clone, Copy)]
pub(super) struct View<'a, T> {
    first: NonNull<T>,
    extent: Extent,
    life: PhantomData<&'a [T]>,
}

// SAFETY: a view is a shared slice with strides.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<'_, T> {}

impl<'a, T: Element> View<'a, T> {
    /// Of an operand that the op at hand reads, whose memory the caller does not also write.
    pub(super) fn of(device: &CpuDevice, t: &'a Tensor) -> Result<Self, DeviceError> {
        Ok(Self { first: locate(device, t, false)?, extent: Extent::of(t), life: PhantomData })
    }

    pub(super) fn rows(&self) -> usize {
        self.extent.rows
    }

    pub(super) fn groups(&self) -> usize {
        self.extent.groups
    }

    pub(super) fn cols(&self) -> usize {
        self.extent.cols
    }

    /// The `cols` elements of a group.
    pub(super) fn at(&self, row: usize, group: usize) -> &'a [T] {
        let offset = self.extent.at(row, group);
        // SAFETY: `at` and `locate` put it inside the buffer, which lives for 'a; nothing writes it (module comment).
        unsafe { std::slice::from_raw_parts(self.first.add(offset).as_ptr(), self.extent.cols) }
    }

    /// All elements of a row.
    ///
    /// # Panics
    /// If the groups of a row do not follow each other.
    pub(super) fn row(&self, row: usize) -> &'a [T] {
        let (offset, len) = (self.extent.at(row, 0), self.extent.dense_row());
        // SAFETY: as in `at`; the whole row lies inside the tensor's span.
        unsafe { std::slice::from_raw_parts(self.first.add(offset).as_ptr(), len) }
    }

    /// All elements.
    ///
    /// # Panics
    /// If rows and groups do not follow each other.
    pub(super) fn all(&self) -> &'a [T] {
        let len = self.extent.dense();
        // SAFETY: as in `at`; a dense tensor is as long as its span.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), len) }
    }
}

/// The elements of a tensor, to be written. It can be cut into parts that meet nowhere, one for each thread.
pub(super) struct ViewMut<'a, T> {
    first: NonNull<T>,
    extent: Extent,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: a view is an exclusive slice with strides.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}
// SAFETY: as above; a shared view gives out nothing that writes.
unsafe impl<T: Sync> Sync for ViewMut<'_, T> {}

/// A part of a [`ViewMut`].
pub(super) struct Tile<'a, T> {
    /// Its rows in the whole.
    pub rows: Range<usize>,
    /// Its groups in the whole.
    pub groups: Range<usize>,
    /// Its elements.
    pub view: ViewMut<'a, T>,
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// Of an operand that the op at hand writes; one view of it at a time.
    pub(super) fn of(device: &CpuDevice, t: &'a Tensor) -> Result<Self, DeviceError> {
        if t.overlaps_itself() {
            return Err(DeviceError::Failed {
                device: device.id().into(),
                what: format!("{t:?} names an element twice"),
            });
        }
        Ok(Self { first: locate(device, t, true)?, extent: Extent::of(t), life: PhantomData })
    }

    pub(super) fn rows(&self) -> usize {
        self.extent.rows
    }

    pub(super) fn groups(&self) -> usize {
        self.extent.groups
    }

    pub(super) fn cols(&self) -> usize {
        self.extent.cols
    }

    /// The `cols` elements of a group.
    pub(super) fn at(&self, row: usize, group: usize) -> &[T] {
        let offset = self.extent.at(row, group);
        // SAFETY: `at` and `locate` put it inside the buffer; who writes it needs this view exclusively.
        unsafe { std::slice::from_raw_parts(self.first.add(offset).as_ptr(), self.extent.cols) }
    }

    /// The `cols` elements of a group.
    pub(super) fn at_mut(&mut self, row: usize, group: usize) -> &mut [T] {
        let offset = self.extent.at(row, group);
        // SAFETY: as in `at`; this view is borrowed exclusively, and no other reaches the same memory (module comment).
        unsafe { std::slice::from_raw_parts_mut(self.first.add(offset).as_ptr(), self.extent.cols) }
    }

    /// Copies the first group of one row to that of another.
    pub(super) fn copy_row(&mut self, from: usize, to: usize) {
        let (from, to) = (self.extent.at(from, 0), self.extent.at(to, 0));
        // SAFETY: both groups are inside the buffer, and this view is borrowed exclusively.
        unsafe { self.first.add(to).copy_from(self.first.add(from), self.extent.cols) };
    }

    /// All elements.
    ///
    /// # Panics
    /// If rows and groups do not follow each other.
    pub(super) fn all_mut(&mut self) -> &mut [T] {
        let len = self.extent.dense();
        // SAFETY: as in `at_mut`; a dense tensor is as long as its span.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), len) }
    }

    /// Cuts the whole into tiles of at most `rows x groups x cols`, for threads to write side by side; rows vary slowest.
    pub(super) fn tiles(self, shape: [usize; 3]) -> Tiles<'a, T> {
        Tiles { whole: self, shape }
    }

    /// Columns `cols` of a row of one group, for threads that cut the whole in some other way than [`ViewMut::tiles`].
    ///
    /// # Safety
    /// No two parts that are alive at once may meet.
    ///
    /// # Panics
    /// If the part is not inside the view.
    #[allow(clippy::mut_from_ref)] // what makes it sound is the caller's contract
    pub(super) unsafe fn part(&self, row: usize, cols: Range<usize>) -> &mut [T] {
        assert!(cols.start <= cols.end && cols.end <= self.extent.cols, "columns {cols:?} of {}", self.extent.cols);
        let offset = self.extent.at(row, 0) + cols.start;
        // SAFETY: `at`, `locate` and the check above put it inside the buffer; nobody else has it (the caller's contract).
        unsafe { std::slice::from_raw_parts_mut(self.first.add(offset).as_ptr(), cols.len()) }
    }

    fn tile(&self, rows: Range<usize>, groups: Range<usize>, cols: Range<usize>) -> Tile<'a, T> {
        // SAFETY: inside the span of the whole, as all three starts are inside its shape.
        let first = unsafe { self.first.add(self.extent.at(rows.start, groups.start) + cols.start) };
        let extent = Extent { rows: rows.len(), groups: groups.len(), cols: cols.len(), ..self.extent };
        Tile { rows, groups, view: ViewMut { first, extent, life: PhantomData } }
    }
}

/// A [`ViewMut`] in tiles. Each is handed out once: tiles name different elements, which are different memory
/// ([`ViewMut::of`] checked that), so each may be written for itself; the whole has moved in here and writes nothing any more.
pub(super) struct Tiles<'a, T> {
    whole: ViewMut<'a, T>,
    /// Rows, groups and columns of a tile.
    shape: [usize; 3],
}

impl<'a, T: Element> Tiles<'a, T> {
    /// Calls `work` with every tile.
    pub(super) fn for_each(self, team: &Team, work: impl Fn(Tile<'a, T>) + Sync) {
        team.for_each(self.len(), |i| work(self.tile(i)));
    }

    /// Calls `work` with every tile and the one of `other` that is in the same place.
    ///
    /// # Panics
    /// If `other` has not as many.
    pub(super) fn for_each_with<U: Element>(
        self,
        other: Tiles<'a, U>,
        team: &Team,
        work: impl Fn(Tile<'a, T>, Tile<'a, U>) + Sync,
    ) {
        assert_eq!(self.len(), other.len(), "tiles of two tensors");
        team.for_each(self.len(), |i| work(self.tile(i), other.tile(i)));
    }

    /// Every tile, to be shared out in some other way.
    pub(super) fn all(self) -> Vec<Tile<'a, T>> {
        (0..self.len()).map(|i| self.tile(i)).collect()
    }

    /// Tiles in each direction.
    fn counts(&self) -> [usize; 3] {
        let Extent { rows, groups, cols, .. } = self.whole.extent;
        [rows.div_ceil(self.shape[0]), groups.div_ceil(self.shape[1]), cols.div_ceil(self.shape[2])]
    }

    fn len(&self) -> usize {
        self.counts().iter().product()
    }

    fn tile(&self, i: usize) -> Tile<'a, T> {
        let (Extent { rows, groups, cols, .. }, counts) = (self.whole.extent, self.counts());
        let part = |i: usize, step: usize, len: usize| i * step..len.min((i + 1) * step);
        self.whole.tile(
            part(i / (counts[1] * counts[2]), self.shape[0], rows),
            part(i / counts[2] % counts[1], self.shape[1], groups),
            part(i % counts[2], self.shape[2], cols),
        )
    }
}

/// The encoded rows of a weight.
#[derive(Clone, Copy)]
pub(super) struct WeightRows<'a> {
    first: NonNull<u8>,
    weight: &'a Weight,
    row_len: usize,
}

// SAFETY: shared bytes with strides.
unsafe impl Send for WeightRows<'_> {}
// SAFETY: as above.
unsafe impl Sync for WeightRows<'_> {}

impl<'a> WeightRows<'a> {
    /// Of a weight that the op at hand reads.
    pub(super) fn of(device: &CpuDevice, weight: &'a Weight) -> Result<Self, DeviceError> {
        let first = HostMemory::first_byte(device, &weight.buffer, false)?;
        let (row_len, end) = (weight.format.row_bytes(weight.cols), weight.end());
        match (row_len, end, NonNull::new(first.cast_mut())) {
            (Some(row_len), Some(end), Some(first)) if end <= weight.buffer.bytes() => {
                Ok(Self { first, weight, row_len })
            }
            _ => Err(DeviceError::Failed {
                device: device.id().into(),
                what: format!("{weight:?} is not inside its buffer"),
            }),
        }
    }

    /// The bytes from a row of one expert's matrix to the end of a later one, as many rows as `rows`.
    pub(super) fn span(&self, expert: usize, rows: Range<usize>) -> &'a [u8] {
        let (Some(last), false) = (rows.end.checked_sub(1), rows.is_empty()) else { return &[] };
        let (first, last) = (self.row(expert, rows.start), self.row(expert, last));
        let len = last.as_ptr_range().end.addr() - first.as_ptr().addr();
        // SAFETY: from one row to the end of a later one of the same buffer; see `row`.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// One row of one expert's matrix.
    pub(super) fn row(&self, expert: usize, row: usize) -> &'a [u8] {
        let w = self.weight;
        assert!(expert < w.experts && row < w.rows, "row {row} of expert {expert} in {} x {}", w.experts, w.rows);
        let start = w.offset + expert * w.expert_bytes + row * w.row_bytes;
        // SAFETY: before `Weight::end`, which `of` found to be inside the buffer, that lives for 'a. Constant bytes are
        // never written; owned ones are written between ops, not by an op that names them as a weight (`Op::check`).
        unsafe { std::slice::from_raw_parts(self.first.add(start).as_ptr(), self.row_len) }
    }
}
