//! What never changes of a device: the driver's handles, the limits that calls keep, and where the driver's errors are noted.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use super::codebooks;
use super::device::WgpuOptions;
use super::memory::Window;
use crate::device::DeviceError;

/// Bytes that a kernel has to be able to bind, the least that is tested: of a constant in several buffers each holds whole rows.
const LEAST_BINDING: u64 = 16 << 10;

/// A device but for what changes as ops are enqueued.
pub(super) struct Core {
    pub id: String,
    pub options: WgpuOptions,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// The largest buffer.
    pub max_buffer: u64,
    /// The most that a kernel can bind of a buffer.
    pub max_binding: u64,
    /// What offsets of bindings are multiples of.
    pub alignment: u64,
    /// The most workgroups in each direction.
    pub max_groups: usize,
    /// Told apart from every other device's.
    pub owner: Arc<()>,
    /// For operands that are not there.
    pub nothing: Window,
    pub codebooks: Window,
    /// Bytes copied to the host so far.
    pub downloaded: AtomicU64,
    /// The first thing that went wrong in the driver since anybody asked.
    failure: Arc<Mutex<Option<DeviceError>>>,
}

impl Core {
    /// What `device` is to be under these options.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where the limits are too low for any kernel.
    pub(super) fn new(
        id: String,
        options: WgpuOptions,
        device: wgpu::Device,
        queue: wgpu::Queue,
        failure: Arc<Mutex<Option<DeviceError>>>,
    ) -> Result<Self, DeviceError> {
        let limits = device.limits();
        // Kernels count bytes and elements in 32 bits.
        let max_buffer = limits.max_buffer_size.min(u64::from(u32::MAX) / 16 * 16);
        let own = limits.max_storage_buffer_binding_size.min(max_buffer);
        let max_binding = options.max_binding.map_or(own, |wanted| wanted.min(own)) / 16 * 16;
        let own = limits.max_compute_workgroups_per_dimension;
        let max_groups = options.max_groups.map_or(own, |wanted| wanted.min(own)) as usize;
        for (name, found, least) in
            [("bytes in a binding", max_binding, LEAST_BINDING), ("workgroups in each direction", max_groups as u64, 1)]
        {
            if found < least {
                let what = format!("kernels that need {least} {name}: they may have {found}");
                return Err(DeviceError::Unsupported { device: id, what });
            }
        }
        let empty = |size| wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        let words = codebooks::words();
        let [nothing, codebooks] = [256, words.len() as u64 * 4].map(|size| Window {
            buffer: device.create_buffer(&empty(size)),
            offset: 0,
            size,
        });
        queue.write_buffer(&codebooks.buffer, 0, bytemuck::cast_slice(&words));
        let alignment = u64::from(limits.min_storage_buffer_offset_alignment).max(16);
        let owner = Arc::default();
        Ok(Self {
            id,
            options,
            device,
            queue,
            max_buffer,
            max_binding,
            alignment,
            max_groups,
            owner,
            nothing,
            codebooks,
            downloaded: AtomicU64::new(0),
            failure,
        })
    }

    /// A buffer that holds these words.
    pub(super) fn buffer_of(&self, words: &[u32]) -> Result<Window, DeviceError> {
        let buffer = self.create(words.len() * 4)?;
        self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(words));
        let size = buffer.size();
        Ok(Window { buffer, offset: 0, size })
    }

    pub(super) fn failed(&self, what: impl Into<String>) -> DeviceError {
        DeviceError::Failed { device: self.id.clone(), what: what.into() }
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> DeviceError {
        DeviceError::Unsupported { device: self.id.clone(), what: what.into() }
    }

    /// A number as kernels see it.
    pub(super) fn word(&self, what: &str, value: usize) -> Result<u32, DeviceError> {
        u32::try_from(value).map_err(|_| self.unsupported(format!("{what} of {value}, beyond 32 bits")))
    }

    /// Waits for everything that was submitted. What fails is found by [`Core::failure`].
    pub(super) fn wait(&self) {
        if let Err(error) = self.device.poll(wgpu::PollType::wait_indefinitely()) {
            note(&self.failure, self.failed(error.to_string()));
        }
    }

    /// What went wrong in the driver since the last time, if anything.
    pub(super) fn failure(&self) -> Option<DeviceError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Keeps the first failure.
fn note(failure: &Mutex<Option<DeviceError>>, error: DeviceError) {
    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
}

/// Has the driver's errors noted instead of ending the process.
pub(super) fn listen(id: &str, device: &wgpu::Device) -> Arc<Mutex<Option<DeviceError>>> {
    let failure: Arc<Mutex<Option<DeviceError>>> = Arc::default();
    let (errors, losses) = (failure.clone(), failure.clone());
    let (error_id, loss_id) = (id.to_string(), id.to_string());
    device.on_uncaptured_error(Arc::new(move |error| {
        let device = error_id.clone();
        note(
            &errors,
            match error {
                // Of what the driver asked for itself: nobody says how much.
                wgpu::Error::OutOfMemory { .. } => DeviceError::Failed { device, what: "out of memory".into() },
                error => DeviceError::Failed { device, what: error.to_string() },
            },
        );
    }));
    device.set_device_lost_callback(move |reason, what| {
        if reason != wgpu::DeviceLostReason::Destroyed {
            note(&losses, DeviceError::Failed { device: loss_id.clone(), what: format!("the device is lost: {what}") });
        }
    });
    failure
}
