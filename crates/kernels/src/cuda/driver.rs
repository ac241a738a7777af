//! What this backend needs of the CUDA driver, each call checked. The driver is loaded when it is first asked for.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute, CUfunction_attribute_enum as FunctionAttribute};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUevent, CUfunction, CUgraphExec, CUmemorytype, CUmodule, CUresult, CUstream,
};

use crate::device::DeviceError;

/// One GPU: its context, and its streams of work.
pub(super) struct Driver {
    id: String,
    device: CUdevice,
    context: CUcontext,
    streams: [CUstream; 2],
    /// One for each stream: how far it had come when the other began to wait for it.
    events: [CUevent; 2],
    /// The stream at hand.
    current: AtomicUsize,
    /// What kernels and their sizes are chosen by.
    pub machine: Machine,
    /// The card's name.
    pub name: String,
    /// Its memory in bytes.
    pub memory: usize,
    /// The newest CUDA that the driver knows: 13000 for 13.0.
    pub version: u32,
    /// Bytes copied to the host so far.
    downloaded: AtomicU64,
}

/// The properties of a GPU that kernels depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Compute capability, 90 for 9.0.
    pub capability: u32,
    /// Multiprocessors.
    pub processors: u32,
    /// Shared memory that one thread block may have, in bytes.
    pub shared: u32,
}

/// A loaded module's function. Modules live as long as the process uses the device.
#[derive(Clone, Copy)]
pub(super) struct Function {
    handle: CUfunction,
    /// It waits by itself for the kernels before it (`after_previous` in prelude.cuh), and so may begin before they end: code
    /// for compute capability 9.0 or later.
    waits: bool,
}

// SAFETY: a handle; the driver's functions that take it are safe to call from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Number and size of the thread blocks of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub grid: [u32; 3],
    pub block: u32,
    /// Dynamic shared memory in bytes.
    pub shared: u32,
}

// SAFETY: handles to driver objects, which the driver guards by its own locks.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

/// The driver's words for a status.
fn describe(status: CUresult) -> String {
    let mut text: *const c_char = ptr::null();
    // SAFETY: the driver is loaded, as it gave this status; it writes one pointer to a constant string or null.
    let known = unsafe { sys::cuGetErrorString(status, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
    // SAFETY: a constant, terminated string of the driver.
    if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { format!("{status:?}") }
}

/// Why there is no memory.
fn refused(id: &str, status: CUresult, bytes: usize) -> DeviceError {
    match status {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { device: id.into(), bytes },
        status => DeviceError::Failed { device: id.into(), what: format!("cuMemAlloc: {}", describe(status)) },
    }
}

/// A copy of rows, without a source and a destination yet.
fn rows_of(width: usize, rows: usize) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: width,
        Height: rows,
    }
}

/// Whether kernels can be compiled for a card, or the line that says why not.
fn supported(name: &str, major: u32, minor: u32) -> Result<(), String> {
    let line = format!("{name} has compute capability {major}.{minor}; 8.0 or later is needed");
    if major >= 8 { Ok(()) } else { Err(line) }
}

impl Driver {
    /// The card with this number.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let id = format!("cuda:{ordinal}");
        let fail = |what: String| DeviceError::Failed { device: id.clone(), what };
        // SAFETY: loads the driver's library, whose initialisers are the vendor's business.
        if !unsafe { sys::is_culib_present() } {
            return Err(fail("no NVIDIA driver: libcuda is not on this system".into()));
        }
        let check = |status: CUresult, call: &str| match status {
            CUresult::CUDA_SUCCESS => Ok(()),
            status => Err(fail(format!("{call}: {}", describe(status)))),
        };
        let (mut count, mut device, mut context) = (0, 0, ptr::null_mut());
        let (mut streams, mut events) = ([ptr::null_mut(); 2], [ptr::null_mut(); 2]);
        let (mut name, mut memory, mut version) = ([0 as c_char; 256], 0, 0);
        // SAFETY: every pointer is to a local of the type that the driver writes, the name's length is given.
        let attribute = unsafe {
            check(sys::cuInit(0), "the NVIDIA driver does not start")?;
            check(sys::cuDriverGetVersion(&mut version), "cuDriverGetVersion")?;
            check(sys::cuDeviceGetCount(&mut count), "cuDeviceGetCount")?;
            if ordinal >= count as usize {
                return Err(fail(format!("no such GPU: {count} found")));
            }
            check(sys::cuDeviceGet(&mut device, ordinal as c_int), "cuDeviceGet")?;
            check(sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device), "cuDeviceGetName")?;
            check(sys::cuDeviceTotalMem_v2(&mut memory, device), "cuDeviceTotalMem")?;
            |attribute: Attribute| {
                let mut value = 0;
                check(sys::cuDeviceGetAttribute(&mut value, attribute, device), "cuDeviceGetAttribute")?;
                Ok(value as u32)
            }
        };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let machine = Machine {
            capability: 10 * major + minor,
            processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        };
        // SAFETY: terminated by the driver within its length.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        supported(&name, major, minor).map_err(fail)?;
        // SAFETY: as above. The primary context is released in `drop`.
        unsafe {
            check(sys::cuDevicePrimaryCtxRetain(&mut context, device), "the GPU gives no context")?;
            check(sys::cuCtxSetCurrent(context), "cuCtxSetCurrent")?;
            let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            let untimed = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
            for (stream, event) in streams.iter_mut().zip(&mut events) {
                check(sys::cuStreamCreate(stream, flags), "cuStreamCreate")?;
                check(sys::cuEventCreate(event, untimed), "cuEventCreate")?;
            }
        }
        let (current, version) = (AtomicUsize::new(0), version as u32);
        Ok(Self {
            id,
            device,
            context,
            streams,
            events,
            current,
            machine,
            name,
            memory,
            version,
            downloaded: AtomicU64::new(0),
        })
    }

    /// Bytes copied to the host so far.
    pub fn downloaded(&self) -> u64 {
        self.downloaded.load(Ordering::Relaxed)
    }

    /// The device's id, `cuda:0`.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn failed(&self, what: impl Into<String>) -> DeviceError {
        DeviceError::Failed { device: self.id.clone(), what: what.into() }
    }

    fn check(&self, status: CUresult, call: &str) -> Result<(), DeviceError> {
        match status {
            CUresult::CUDA_SUCCESS => Ok(()),
            status => Err(self.failed(format!("{call}: {}", describe(status)))),
        }
    }

    /// Makes the context this thread's. The other methods do it themselves.
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context lives as long as `self`.
        self.check(unsafe { sys::cuCtxSetCurrent(self.context) }, "cuCtxSetCurrent")
    }

    /// Uninitialised memory; at least 256-byte aligned.
    pub fn alloc(&self, bytes: usize) -> Result<u64, DeviceError> {
        if bytes > self.memory {
            return Err(refused(&self.id, CUresult::CUDA_ERROR_OUT_OF_MEMORY, bytes));
        }
        self.enter()?;
        let mut address = 0;
        // SAFETY: writes one address.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) } {
            CUresult::CUDA_SUCCESS => Ok(address),
            status => Err(refused(&self.id, status, bytes)),
        }
    }

    /// Gives memory back after the work that may use it.
    pub fn free(&self, address: u64) -> Result<(), DeviceError> {
        self.sync()?;
        // SAFETY: the caller owns the address, which came from `alloc`; no work is left that knows it.
        self.check(unsafe { sys::cuMemFree_v2(address) }, "cuMemFree")
    }

    /// Enqueues zeroing.
    ///
    /// # Safety
    /// The bytes are inside one allocation of this device.
    pub unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check(unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.stream()) }, "cuMemsetD8Async")
    }

    /// Enqueues a copy from the host: `rows` rows of `width` bytes, `pitch` bytes apart on the device, without gaps on
    /// the host. The host's bytes may be changed when it returns.
    ///
    /// # Safety
    /// The device's bytes are inside one allocation of this device.
    pub unsafe fn upload(&self, address: u64, pitch: usize, width: usize, from: &[u8]) -> Result<(), DeviceError> {
        if width == 0 || from.is_empty() {
            return Ok(());
        }
        self.enter()?;
        let rows = from.len() / width;
        if rows == 1 || pitch == width {
            // SAFETY: `from` is as long as the copy; pageable memory is staged before the call returns.
            let status = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), from.len(), self.stream()) };
            return self.check(status, "cuMemcpyHtoDAsync");
        }
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: from.as_ptr().cast(),
            srcPitch: width,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: address,
            dstPitch: pitch,
            ..rows_of(width, rows)
        };
        // SAFETY: as above, row by row.
        self.check(unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.stream()) }, "cuMemcpy2DAsync")?;
        self.sync()
    }

    /// Waits for the work so far, then copies to the host, as [`Self::upload`] the other way.
    ///
    /// # Safety
    /// The device's bytes are inside one allocation of this device.
    pub unsafe fn download(&self, to: &mut [u8], address: u64, pitch: usize, width: usize) -> Result<(), DeviceError> {
        if width == 0 || to.is_empty() {
            return Ok(());
        }
        self.enter()?;
        self.downloaded.fetch_add(to.len() as u64, Ordering::Relaxed);
        let rows = to.len() / width;
        if rows == 1 || pitch == width {
            // SAFETY: `to` is as long as the copy, which has ended when `sync` returns.
            let status = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, to.len(), self.stream()) };
            self.check(status, "cuMemcpyDtoHAsync")?;
            return self.sync();
        }
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: address,
            srcPitch: pitch,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: to.as_mut_ptr().cast(),
            dstPitch: width,
            ..rows_of(width, rows)
        };
        // SAFETY: as above, row by row.
        self.check(unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.stream()) }, "cuMemcpy2DAsync")?;
        self.sync()
    }

    /// Waits for everything enqueued.
    pub fn sync(&self) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the streams live as long as `self`.
        let wait = |stream| self.check(unsafe { sys::cuStreamSynchronize(stream) }, "the GPU stopped");
        self.streams.into_iter().try_for_each(wait)
    }

    /// Chooses the stream for what is enqueued from now on. Whoever does so must be alone in using this device.
    pub fn turn(&self, stream: usize) {
        self.current.store(stream, Ordering::Relaxed);
    }

    fn stream(&self) -> CUstream {
        self.streams[self.current.load(Ordering::Relaxed)]
    }

    /// Has the other stream wait for the one at hand.
    pub fn meet(&self) -> Result<(), DeviceError> {
        let current = self.current.load(Ordering::Relaxed);
        self.wait(1 - current, current)
    }

    /// Has one stream wait for all that another has been given.
    pub fn wait(&self, stream: usize, other: usize) -> Result<(), DeviceError> {
        self.enter()?;
        let event = self.events[other];
        // SAFETY: streams and events live as long as `self`; a wait is for the last recording before it.
        unsafe {
            self.check(sys::cuEventRecord(event, self.streams[other]), "cuEventRecord")?;
            self.check(sys::cuStreamWaitEvent(self.streams[stream], event, 0), "cuStreamWaitEvent")
        }
    }

    /// A function of a compiled module, allowed as much shared memory as a block may have; `waits` as in [`Function`].
    pub fn load(&self, image: &[u8], function: &str, waits: bool) -> Result<Function, DeviceError> {
        self.enter()?;
        let (mut module, mut found): (CUmodule, CUfunction) = (ptr::null_mut(), ptr::null_mut());
        let name = CString::new(function).map_err(|e| self.failed(e.to_string()))?;
        // A PTX image is text and must end with a zero byte; binaries do not mind one.
        let image = [image, &[0]].concat();
        // SAFETY: the image is a module made by NVRTC; pointers are to locals and terminated strings.
        unsafe {
            self.check(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()), "cuModuleLoadData")?;
            self.check(sys::cuModuleGetFunction(&mut found, module, name.as_ptr()), "cuModuleGetFunction")?;
            let mut fixed = 0;
            let size = FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
            self.check(sys::cuFuncGetAttribute(&mut fixed, size, found), "cuFuncGetAttribute")?;
            let most = (self.machine.shared as c_int - fixed).max(0);
            let limit = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            self.check(sys::cuFuncSetAttribute(found, limit, most), "cuFuncSetAttribute")?;
        }
        Ok(Function { handle: found, waits })
    }

    /// Enqueues a kernel that takes one struct.
    ///
    /// # Safety
    /// `A` is the kernel's parameter, as C lays it out; what its addresses name is inside allocations of this device.
    pub unsafe fn launch<A>(&self, function: Function, launch: Launch, arguments: &A) -> Result<(), DeviceError> {
        let [x, y, z] = launch.grid;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        self.enter()?;
        let mut parameters = [ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
        let mut early = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: launch.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            hStream: self.stream(),
            attrs: &mut early,
            numAttrs: u32::from(function.waits),
        };
        // SAFETY: the driver copies configuration and argument before it returns; the rest is the caller's.
        let status =
            unsafe { sys::cuLaunchKernelEx(&config, function.handle, parameters.as_mut_ptr(), ptr::null_mut()) };
        self.check(status, "cuLaunchKernelEx")
    }

    /// Records what `work` enqueues instead of running it.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<Graph, DeviceError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is this device's.
        self.check(unsafe { sys::cuStreamBeginCapture_v2(self.stream(), mode) }, "cuStreamBeginCapture")?;
        let outcome = work();
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes the graph's handle; capture began above.
        let ended = unsafe { sys::cuStreamEndCapture(self.stream(), &mut graph) };
        outcome?;
        self.check(ended, "cuStreamEndCapture")?;
        // SAFETY: the graph was just made; it is not needed beside its executable form.
        unsafe {
            let status = sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0);
            self.check(sys::cuGraphDestroy(graph), "cuGraphDestroy")?;
            self.check(status, "cuGraphInstantiate")?;
        }
        Ok(Graph(exec))
    }

    /// Enqueues a recorded sequence.
    pub fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the graph was made by this device's `capture`.
        self.check(unsafe { sys::cuGraphLaunch(graph.0, self.stream()) }, "cuGraphLaunch")
    }

    /// Enqueues a time stamp.
    pub fn stamp(&self) -> Result<Stamp, DeviceError> {
        self.enter()?;
        let mut event = ptr::null_mut();
        // SAFETY: writes the event's handle, which is recorded on this device's stream.
        unsafe {
            self.check(sys::cuEventCreate(&mut event, 0), "cuEventCreate")?;
            let stamp = Stamp(event);
            self.check(sys::cuEventRecord(stamp.0, self.stream()), "cuEventRecord")?;
            Ok(stamp)
        }
    }

    /// Milliseconds between two time stamps, both passed.
    pub fn between(&self, from: &Stamp, to: &Stamp) -> Result<f32, DeviceError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events were recorded.
        let status = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, from.0, to.0) };
        self.check(status, "cuEventElapsedTime").map(|()| milliseconds)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: created in `open`; nothing uses them any more. There is nobody left to report an error to.
        unsafe {
            for (stream, event) in self.streams.into_iter().zip(self.events) {
                let _ = sys::cuStreamDestroy_v2(stream);
                let _ = sys::cuEventDestroy_v2(event);
            }
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// A recorded sequence of launches.
pub struct Graph(CUgraphExec);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made in `capture`, dropped once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

/// A moment on the device.
pub(super) struct Stamp(CUevent);

impl Drop for Stamp {
    fn drop(&mut self) {
        // SAFETY: made in `stamp`, dropped once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_before_8_0_are_refused_in_one_line() {
        for (major, minor) in [(8, 0), (8, 6), (9, 0), (12, 0)] {
            assert_eq!(supported("a card", major, minor), Ok(()));
        }
        let refused = supported("Tesla T4", 7, 5).unwrap_err();
        assert_eq!(refused, "Tesla T4 has compute capability 7.5; 8.0 or later is needed");
    }

    #[test]
    fn too_little_memory_is_one_line() {
        let line = refused("cuda:0", CUresult::CUDA_ERROR_OUT_OF_MEMORY, 5_000_000_000).to_string();
        assert_eq!(line, "cuda:0: out of memory: 5000000000 bytes asked for");
    }

    #[test]
    fn a_missing_driver_or_card_is_one_line() {
        // No machine has so many GPUs.
        let error = Driver::open(10_000).err().expect("no such GPU").to_string();
        assert!(error.starts_with("cuda:10000: ") && !error.contains('\n'), "{error}");
        // SAFETY: as in `open`.
        if !unsafe { sys::is_culib_present() } {
            assert_eq!(error, "cuda:10000: no NVIDIA driver: libcuda is not on this system");
        }
    }
}
