//! The device: ops in program order, and what went wrong with them.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use argon_gguf::Bytes;

use super::adapter;
use super::core::{Core, listen};
use super::memory::{SLACK, Window};
use super::queue::{Call, Queue};
use super::shader::Kernel;
use super::tier::{self, Allowed, Tier};
use super::{
    attention, delta_net, elementwise, gather, gemm, half_check, plan, route, select_blocks, subgroup_check, tune,
};
use crate::device::{Clock, Device, DeviceError, DeviceInfo, host_elapsed};
use crate::fallible::Fallible;
use crate::op::{Op, Precision};
use crate::tensor::{Buffer, Tensor, Weight};

/// How to set up a [`WgpuDevice`].
#[derive(Clone, Debug)]
pub struct WgpuOptions {
    /// The adapter's number.
    pub adapter: usize,
    /// Bytes that a kernel may bind of a buffer, where less than the adapter's own limit is wanted.
    pub max_binding: Option<u64>,
    /// Workgroups in each direction of a grid, where less than the adapter's own limit is wanted.
    pub max_groups: Option<u32>,
    /// Multiply-adds that one submit holds: fewer than a slow adapter does before its driver's watchdog ends it.
    pub work_per_submit: u64,
    /// What kernels may use of the adapter.
    pub allowed: Allowed,
    /// Kernels check every index, for tests.
    pub checked: bool,
}

impl Default for WgpuOptions {
    fn default() -> Self {
        Self {
            adapter: 0,
            max_binding: None,
            max_groups: None,
            work_per_submit: 1 << 36,
            allowed: Allowed::default(),
            checked: false,
        }
    }
}

/// What changes as ops are enqueued.
pub(super) struct State {
    pub queue: Queue,
    /// Where kernels note what is wrong with their input: two words for each op of `fallible`, all ones if nothing is.
    pub status: Window,
    /// Ops since the last look at the status that can fail.
    fallible: Vec<Fallible>,
    /// The error of such an op, until it is reported.
    pending: Option<DeviceError>,
    /// Memory between the kernels of one op.
    scratch: [Option<Buffer>; 4],
}

/// Fallible ops between two looks at the status.
const FALLIBLE: usize = 1024;

/// A GPU behind wgpu.
pub struct WgpuDevice {
    core: Core,
    tier: Tier,
    info: DeviceInfo,
    state: Mutex<State>,
}

impl WgpuDevice {
    /// The adapter with the number of the options.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] without such an adapter or if it gives no device; [`DeviceError::Unsupported`] where its
    /// limits are too small.
    pub fn new(options: WgpuOptions) -> Result<Self, DeviceError> {
        let id = format!("wgpu:{}", options.adapter);
        let adapter = adapter::open(&id, options.adapter)?;
        let request = adapter.request_device(&adapter::requirements(&id, &adapter, options.allowed)?);
        let failed = |what: String| DeviceError::Failed { device: id.clone(), what };
        let (device, queue) = pollster::block_on(request).map_err(|error| failed(error.to_string()))?;
        let failure = listen(&id, &device);
        let core = Core::new(id, options, device, queue, failure)?;
        let status = core.buffer_of(&[u32::MAX; 2 * FALLIBLE])?;
        let state = State {
            queue: Queue::new(&core.device),
            status,
            fallible: Vec::new(),
            pending: None,
            scratch: Default::default(),
        };
        let info = describe(&core, &adapter, Tier::PORTABLE);
        let mut this = Self { core, tier: Tier::PORTABLE, info, state: Mutex::new(state) };
        let failures = this.choose_tier(&adapter);
        this.info = describe(&this.core, &adapter, this.tier);
        this.info.details += &failures;
        Ok(this)
    }

    /// Takes into use what the adapter has and what passes its test, and says what does not: kernels that an adapter's compiler
    /// refuses, or that compute something else, are done without.
    fn choose_tier(&mut self, adapter: &wgpu::Adapter) -> String {
        let features = self.core.device.features();
        let mut failures = Vec::new();
        if features.contains(wgpu::Features::SUBGROUP) {
            match subgroup_check::sizes(self) {
                Ok(Some(sizes)) => self.tier.subgroups = Some(sizes),
                other => failures.push(tier::failure("subgroups", other.err())),
            }
        }
        let matrix = features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
        let matrix = if matrix { adapter::matrix(adapter, self.tier.subgroups) } else { None };
        let offered = tier::offered(matrix, features.contains(wgpu::Features::SHADER_F16));
        self.tier.products = tier::first_that_passes(&offered, &mut failures, |products| {
            self.tier.products = products;
            half_check::passes(self, products)
        });
        failures.concat()
    }

    /// The kernels that the device runs.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    pub(super) fn exclusive(&self) -> MutexGuard<'_, State> {
        // A panic of an earlier holder left no call half recorded.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kernel to be called, by subgroups where there is a choice and the device uses them.
    pub(super) fn call(&self, kernel: Kernel) -> Call<'_> {
        Call::new(&self.core, kernel.by_subgroups(self.tier.subgroups.is_some()))
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    fn dispatch(&self, state: &mut State, op: &Op) -> Result<(), DeviceError> {
        match op {
            Op::Fill(o) => elementwise::fill(self, state, o),
            Op::Copy(o) => elementwise::copy(self, state, o),
            Op::Add(o) => elementwise::add(self, state, o),
            Op::Embed(o) => elementwise::embed(self, state, o),
            Op::RmsNorm(o) => elementwise::rms_norm(self, state, o),
            Op::GatedNorm(o) => elementwise::gated_norm(self, state, o),
            Op::Rope(o) => elementwise::rope(self, state, o),
            Op::Gemm(o) => gemm::gemm(self, state, o),
            Op::Attention(o) => attention::attention(self, state, o),
            Op::MeanPool(o) => select_blocks::mean_pool(self, state, o),
            Op::SelectBlocks(o) => select_blocks::select_blocks(self, state, o),
            Op::Conv(o) => elementwise::conv(self, state, o),
            Op::DeltaNet(o) => delta_net::delta_net(self, state, o),
            Op::HyperWrite(o) => elementwise::hyper_write(self, state, o),
            Op::PleGate(o) => elementwise::ple_gate(self, state, o),
            Op::Route(o) => route::route(self, state, o),
            Op::Plan(o) => plan::plan(self, state, o),
            Op::Gather(o) => gather::gather(self, state, o),
            Op::Combine(o) => elementwise::combine(self, state, o),
        }
    }

    /// Hands what waits to the driver and waits for it; the first error since the last time.
    fn settle(&self, state: &mut State) -> Result<(), DeviceError> {
        state.queue.submit(&self.core);
        if let Some(error) = state.pending.take() {
            return Err(error);
        }
        state.look(&self.core)?;
        self.core.wait();
        self.core.failure().map_or(Ok(()), Err)
    }
}

/// The adapter; its driver, the kernels it gets, and the limits that they keep.
fn describe(core: &Core, adapter: &wgpu::Adapter, tier: Tier) -> DeviceInfo {
    let info = adapter.get_info();
    let mebibytes = |bytes: u64| bytes >> 20;
    let limits = format!(
        "bindings of {} MiB, buffers of {} MiB, {} KiB shared, {} groups, subgroups of {} to {}",
        mebibytes(core.max_binding),
        mebibytes(core.max_buffer),
        adapter.limits().max_compute_workgroup_storage_size >> 10,
        core.max_groups,
        info.subgroup_min_size,
        info.subgroup_max_size
    );
    let driver = [info.driver.as_str(), info.driver_info.as_str()].join(" ");
    // A discrete card's memory is not told; one that shares the system's has that.
    let memory = match info.device_type {
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::Cpu => crate::cpu::machine::memory(),
        _ => None,
    };
    DeviceInfo {
        id: core.id.clone(),
        name: format!("{}, {:?}", info.name, info.backend),
        details: format!("{}; {tier}; {limits}", driver.trim()),
        memory: memory.unwrap_or(u64::MAX),
        largest_tensor: core.max_binding.saturating_sub(SLACK as u64),
        precisions: vec![Precision::F16, Precision::F32],
    }
}

impl State {
    /// Index of the two words where an op notes what is wrong.
    pub(super) fn fallible(&mut self, core: &Core, what: Fallible) -> u32 {
        if self.fallible.len() == FALLIBLE {
            self.queue.submit(core);
            if let Err(error) = self.look(core) {
                self.pending.get_or_insert(error);
            }
        }
        self.fallible.push(what);
        2 * (self.fallible.len() - 1) as u32
    }

    /// The error of the first op that noted one; forgets all of them.
    fn look(&mut self, core: &Core) -> Result<(), DeviceError> {
        if self.fallible.is_empty() {
            return Ok(());
        }
        let ops = std::mem::take(&mut self.fallible);
        let bytes = core.download(&self.status.buffer, 0, 8 * ops.len())?;
        let words: Vec<u32> = bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        let Some(op) = (0..ops.len()).find(|op| words[2 * op] != u32::MAX) else { return Ok(()) };
        core.queue.write_buffer(&self.status.buffer, 0, &vec![0xff; 8 * ops.len()]);
        let entry = words[2 * op] as usize;
        Err(ops[op].error(entry, i64::from(words[2 * op + 1] as i32)))
    }

    /// At least `bytes` bytes between the kernels of one op; an op may use each number once.
    pub(super) fn scratch(&mut self, core: &Core, number: usize, bytes: usize) -> Result<Buffer, DeviceError> {
        match &self.scratch[number] {
            Some(buffer) if buffer.bytes() >= bytes => Ok(buffer.clone()),
            _ => {
                self.scratch[number] = None; // first give back what is too small
                let buffer = core.alloc(bytes)?;
                self.scratch[number] = Some(buffer.clone());
                Ok(buffer)
            }
        }
    }
}

impl Device for WgpuDevice {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn tile_rows(&self, entries: usize, experts: usize) -> usize {
        tune::tile_rows(entries, experts)
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.core.alloc(bytes)
    }

    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        self.core.constant(&bytes)
    }

    fn reads_in_place(&self) -> bool {
        false
    }

    fn prepare(&self, _: &Weight) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        self.core.write(&mut self.exclusive(), dst, bytes)
    }

    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.settle(&mut self.exclusive())?;
        self.core.read(src, bytes)
    }

    fn bytes_to_host(&self) -> u64 {
        self.core.downloaded.load(Ordering::Relaxed)
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        op.check()?;
        self.dispatch(&mut self.exclusive(), op)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.settle(&mut self.exclusive())
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn elapsed(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        host_elapsed(self, work)
    }
}
