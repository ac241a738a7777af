//! A device that does as another one does, but for what it changes. What is forwarded is written here alone.

use argon_gguf::Bytes;

use crate::device::{Clock, Device, DeviceError, DeviceInfo, host_elapsed};
use crate::op::Op;
use crate::tensor::{Buffer, Tensor, Weight};

/// A [`Device`] around [`inner`](Wrapper::inner): each method is that device's unless it is overridden. Time is the host's, around
/// the wrapper's own work.
pub trait Wrapper: Send + Sync {
    /// The device inside.
    fn inner(&self) -> &dyn Device;

    /// [`Device::info`].
    fn info(&self) -> DeviceInfo {
        self.inner().info()
    }

    /// [`Device::tile_rows`].
    fn tile_rows(&self, entries: usize, experts: usize) -> usize {
        self.inner().tile_rows(entries, experts)
    }

    /// [`Device::alloc`].
    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.inner().alloc(bytes)
    }

    /// [`Device::constant`].
    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        self.inner().constant(bytes)
    }

    /// [`Device::reads_in_place`].
    fn reads_in_place(&self) -> bool {
        self.inner().reads_in_place()
    }

    /// [`Device::prepare`].
    fn prepare(&self, weight: &Weight) -> Result<(), DeviceError> {
        self.inner().prepare(weight)
    }

    /// [`Device::write`].
    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        self.inner().write(dst, bytes)
    }

    /// [`Device::read`].
    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.inner().read(src, bytes)
    }

    /// [`Device::bytes_to_host`].
    fn bytes_to_host(&self) -> u64 {
        self.inner().bytes_to_host()
    }

    /// [`Device::enqueue`].
    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        self.inner().enqueue(op)
    }

    /// [`Device::sync`].
    fn sync(&self) -> Result<(), DeviceError> {
        self.inner().sync()
    }
}

impl<W: Wrapper> Device for W {
    fn info(&self) -> DeviceInfo {
        Wrapper::info(self)
    }

    fn tile_rows(&self, entries: usize, experts: usize) -> usize {
        Wrapper::tile_rows(self, entries, experts)
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        Wrapper::alloc(self, bytes)
    }

    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        Wrapper::constant(self, bytes)
    }

    fn reads_in_place(&self) -> bool {
        Wrapper::reads_in_place(self)
    }

    fn prepare(&self, weight: &Weight) -> Result<(), DeviceError> {
        Wrapper::prepare(self, weight)
    }

    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        Wrapper::write(self, dst, bytes)
    }

    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        Wrapper::read(self, src, bytes)
    }

    fn bytes_to_host(&self) -> u64 {
        Wrapper::bytes_to_host(self)
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        Wrapper::enqueue(self, op)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Wrapper::sync(self)
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn elapsed(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        host_elapsed(self, work)
    }
}
