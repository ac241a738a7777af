//! The device: its ops, each on the stream that `streams` gives it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon_gguf::Bytes;
use argon_plan::Shape;

use super::driver::{Driver, Function, Graph, Launch, Machine};
use super::jit::{Architecture, Cache, JitError, Nvrtc};
use super::memory::{self, DeviceMemory, View};
use super::plan::PlanVariant;
use super::range::{self, Range};
use super::source::Source;
use super::streams::{MAIN, Place, SIDE, Streams};
use super::tune;
use super::workspace::Workspace;
use super::{attention, delta_net, elementwise, gather, gemm, plan, route, select_blocks};
use crate::device::{Clock, Device, DeviceError, DeviceInfo};
use crate::fallible::Fallible;
use crate::op::{Access, Op, Plan, Precision};
use crate::tensor::{Buffer, Tensor, Weight};

/// How to set up a [`CudaDevice`].
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The card's number.
    pub ordinal: usize,
    /// Directories to look for NVRTC in, before those where toolkits put it.
    pub libraries: Vec<PathBuf>,
    /// Where compiled kernels are kept; nowhere if absent.
    pub cache: Option<PathBuf>,
    /// Compile for this compute capability (80 for 8.0) instead of the card's own, which is later: how the code for
    /// other cards is tested.
    pub capability: Option<u32>,
    /// How plans are computed.
    pub plan: PlanVariant,
    /// Chooses the tile of a product.
    pub tile: tune::Choose,
    /// Tiles in place of the chosen ones.
    pub forced: tune::Forced,
    /// All ops one after another, even those that could run side by side: to measure what that gains.
    pub one_stream: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            ordinal: 0,
            libraries: Vec::new(),
            cache: None,
            capability: None,
            plan: PlanVariant::default(),
            tile: tune::choose,
            forced: tune::Forced::default(),
            one_stream: false,
        }
    }
}

/// An NVIDIA GPU.
pub struct CudaDevice {
    pub(super) driver: Arc<Driver>,
    pub(super) options: CudaOptions,
    compiler: Nvrtc,
    architecture: Architecture,
    cache: Cache,
    info: DeviceInfo,
    state: Mutex<State>,
}

/// What changes as ops are enqueued.
pub(super) struct State {
    /// Kernels that were used before.
    functions: HashMap<(Source, &'static str), Function>,
    /// What kernels report (`Status` in view.cuh).
    status: DeviceMemory,
    /// Ops since the last look at the status that can fail: an op's number is its index.
    fallible: Vec<Fallible>,
    /// Which stream ops go to.
    pub streams: Streams,
    /// The memory of the stream at hand, and that of the other.
    pub workspace: Workspace,
    other: Workspace,
    /// Weights whose range the device has been asked for, and not the host yet.
    pub asked: Vec<Arc<Range>>,
}

/// Bytes of the status: all ones is none.
const STATUS: usize = 16;

/// What the kernels are told of it (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[("STATUS_BYTES", STATUS)];

impl CudaDevice {
    /// The card with the number of the options.
    ///
    /// # Errors
    /// [`DeviceError::Failed`], one line each, without a driver, a card, a card that is new enough, or NVRTC.
    pub fn new(options: CudaOptions) -> Result<Self, DeviceError> {
        let driver = Arc::new(Driver::open(options.ordinal)?);
        let failed = |error: JitError| driver.failed(error.to_string());
        let compiler = Nvrtc::open(&options.libraries).map_err(failed)?;
        let architecture = match options.capability.filter(|&older| older < driver.machine.capability) {
            Some(older) => Architecture { name: format!("compute_{older}"), capability: older },
            None => compiler.architecture(driver.machine.capability).map_err(failed)?,
        };
        let info = DeviceInfo {
            id: driver.id().into(),
            name: format!(
                "{}, driver of CUDA {}.{}, {}, NVRTC {}",
                driver.name,
                driver.version / 1000,
                driver.version % 1000 / 10,
                architecture.name,
                compiler.version()
            ),
            details: String::new(),
            memory: driver.memory as u64,
            largest_tensor: u64::MAX,
            precisions: vec![Precision::F16, Precision::F32],
        };
        let status = DeviceMemory::zeroed(&driver, STATUS)?;
        let state = State {
            functions: HashMap::new(),
            status,
            fallible: Vec::new(),
            streams: Streams::new(options.one_stream),
            workspace: Workspace::default(),
            other: Workspace::default(),
            asked: Vec::new(),
        };
        let cache = Cache(options.cache.clone());
        let this = Self { driver, options, compiler, architecture, cache, info, state: Mutex::new(state) };
        this.clear_status(&mut this.exclusive())?;
        Ok(this)
    }

    /// What kernels are chosen by.
    pub fn machine(&self) -> Machine {
        self.driver.machine
    }

    /// Records what `work` enqueues instead of running it. The same ops must have run before: what they compile and
    /// allocate cannot be recorded. What a replay finds wrong with its input is not reported.
    ///
    /// # Errors
    /// Those of `work`, and [`DeviceError::Failed`].
    pub fn record(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<Graph, DeviceError> {
        self.alone()?;
        let recorded = || {
            work()?;
            self.alone()
        };
        let graph = self.driver.capture(recorded);
        self.alone()?;
        graph
    }

    /// The stages that a plan of this shape has on this device: a launch each.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for a variant that the card has no room for.
    pub fn plan_stages(&self, shape: &Shape) -> Result<Vec<&'static str>, DeviceError> {
        Ok(plan::steps(self, shape)?.iter().map(|step| step.stage).collect())
    }

    /// Enqueues one of [`plan_stages`](Self::plan_stages) alone, to be timed: what it reads is there after the whole op.
    ///
    /// # Errors
    /// As [`Device::enqueue`].
    pub fn enqueue_plan_stage(&self, o: &Plan, stage: usize) -> Result<(), DeviceError> {
        let op = Op::from(o.clone());
        op.check()?;
        let mut state = self.exclusive();
        let place = state.place(&op.accesses());
        self.on(&mut state, place, |state| plan::plan(self, state, o, Some(stage)))
    }

    /// Enqueues a recorded sequence.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    pub fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        self.alone()?;
        self.driver.replay(graph)
    }

    /// What comes next comes after all before it, and after what nobody has declared; nothing that is converted is used, which may
    /// be gone when a recording runs, and the other way round.
    fn alone(&self) -> Result<(), DeviceError> {
        let mut state = self.exclusive();
        state.forget();
        self.join(&mut state)?;
        state.streams.undeclared();
        Ok(())
    }

    /// Has the main stream wait for the side stream.
    fn join(&self, state: &mut State) -> Result<(), DeviceError> {
        if state.streams.join() { self.driver.wait(MAIN, SIDE) } else { Ok(()) }
    }

    /// Runs `work` on the stream that it was given.
    fn on<T>(
        &self,
        state: &mut State,
        Place { stream, waits }: Place,
        work: impl FnOnce(&mut State) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if waits {
            self.driver.wait(stream, 1 - stream)?;
        }
        if stream == MAIN {
            return work(state);
        }
        self.driver.turn(SIDE);
        std::mem::swap(&mut state.workspace, &mut state.other);
        let outcome = work(state);
        std::mem::swap(&mut state.workspace, &mut state.other);
        self.driver.turn(MAIN);
        outcome
    }

    fn exclusive(&self) -> MutexGuard<'_, State> {
        // A panic of an earlier holder left at most inputs that are said to be converted: forget them.
        self.state.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            let mut state = poisoned.into_inner();
            state.forget();
            state
        })
    }

    pub(super) fn input(&self, t: &Tensor) -> Result<View, DeviceError> {
        memory::input(&self.driver, t)
    }

    pub(super) fn optional(&self, t: Option<&Tensor>) -> Result<View, DeviceError> {
        memory::optional(&self.driver, t)
    }

    pub(super) fn output(&self, t: &Tensor) -> Result<View, DeviceError> {
        memory::output(&self.driver, t)
    }

    pub(super) fn weight(&self, w: &Weight) -> Result<u64, DeviceError> {
        memory::weight(&self.driver, w)
    }

    /// A kernel, compiled and loaded when it is first asked for.
    pub(super) fn kernel(
        &self,
        state: &mut State,
        source: Source,
        name: &'static str,
    ) -> Result<Function, DeviceError> {
        let key = (source, name);
        if let Some(function) = state.functions.get(&key) {
            return Ok(*function);
        }
        let code = self.cache.code(&self.compiler, &key.0, &self.architecture);
        let code = code.map_err(|error| self.driver.failed(error.to_string()))?;
        let function = self.driver.load(&code, name, key.0.waits() && self.architecture.capability >= 90)?;
        state.functions.insert(key, function);
        Ok(function)
    }

    /// Launches a kernel of a file without macros.
    ///
    /// # Safety
    /// As [`Driver::launch`].
    pub(super) unsafe fn launch<A>(
        &self,
        state: &mut State,
        (file, name): (&'static str, &'static str),
        launch: Launch,
        arguments: &A,
    ) -> Result<(), DeviceError> {
        let function = self.kernel(state, Source::plain(file), name)?;
        // SAFETY: the caller's.
        unsafe { self.driver.launch(function, launch, arguments) }
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
            Op::Plan(o) => plan::plan(self, state, o, None),
            Op::Gather(o) => gather::gather(self, state, o),
            Op::Combine(o) => elementwise::combine(self, state, o),
        }
    }

    fn clear_status(&self, state: &mut State) -> Result<(), DeviceError> {
        state.fallible.clear();
        // SAFETY: the status is this long.
        unsafe { self.driver.upload(state.status.address(), STATUS, STATUS, &[0xff; STATUS]) }
    }

    /// Waits, and gives the error of an op that failed since the last time.
    fn settle(&self, state: &mut State) -> Result<(), DeviceError> {
        self.join(state)?;
        range::settle(self, state)?;
        if state.fallible.is_empty() {
            self.driver.sync()?;
            state.streams.idle();
            return Ok(());
        }
        let mut words = [0u64; STATUS / 8];
        // SAFETY: the status is this long.
        unsafe {
            self.driver.download(bytemuck::cast_slice_mut(&mut words), state.status.address(), STATUS, STATUS)?;
        }
        let [place, id] = words;
        let failed = state.fallible.get((place >> 32) as usize).copied();
        state.fallible.clear();
        state.streams.idle();
        let (Some(failed), entry) = (failed, place as u32 as usize) else { return Ok(()) };
        self.clear_status(state)?;
        Err(failed.error(entry, id as i64))
    }
}

impl State {
    /// Where kernels report, and the number of an op that may.
    pub(super) fn fallible(&mut self, what: Fallible) -> (u64, u32) {
        self.fallible.push(what);
        (self.status.address(), (self.fallible.len() - 1) as u32)
    }

    /// Where an op goes; what it writes is no longer what is converted.
    fn place(&mut self, accesses: &[(&Tensor, Access)]) -> Place {
        self.written(accesses);
        self.streams.place(accesses)
    }

    fn written(&mut self, accesses: &[(&Tensor, Access)]) {
        for (t, _) in accesses.iter().filter(|(_, access)| *access == Access::Write) {
            self.workspace.written(t);
            self.other.written(t);
        }
    }

    /// Forgets all converted inputs.
    fn forget(&mut self) {
        self.workspace.forget();
        self.other.forget();
    }
}

impl Device for CudaDevice {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn tile_rows(&self, entries: usize, experts: usize) -> usize {
        tune::tile_rows(&self.driver.machine, entries, experts)
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let mut state = self.exclusive();
        state.streams.undeclared();
        DeviceMemory::zeroed(&self.driver, bytes).map(Buffer::new)
    }

    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        let mut state = self.exclusive();
        state.streams.undeclared();
        DeviceMemory::constant(&self.driver, &bytes).map(Buffer::new)
    }

    fn reads_in_place(&self) -> bool {
        false
    }

    /// Finds out whether the weight is inside the range of f16, so that its first product need not.
    fn prepare(&self, w: &Weight) -> Result<(), DeviceError> {
        let mut state = self.exclusive();
        range::of(self, &mut state, w)?;
        range::settle(self, &mut state)
    }

    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut state = self.exclusive();
        state.written(&[(dst, Access::Write)]);
        self.join(&mut state)?;
        state.streams.undeclared();
        memory::write(&self.driver, dst, bytes)
    }

    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let mut state = self.exclusive();
        self.settle(&mut state)?;
        memory::read(&self.driver, src, bytes)
    }

    fn bytes_to_host(&self) -> u64 {
        self.driver.downloaded()
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        op.check()?;
        let mut state = self.exclusive();
        let place = state.place(&op.accesses());
        self.on(&mut state, place, |state| self.dispatch(state, op))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.settle(&mut self.exclusive())
    }

    fn clock(&self) -> Clock {
        Clock::Device
    }

    fn elapsed(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        self.sync()?;
        let from = self.driver.stamp()?;
        work()?;
        self.join(&mut self.exclusive())?;
        let to = self.driver.stamp()?;
        self.sync()?;
        Ok(f64::from(self.driver.between(&from, &to)?) / 1e3)
    }
}
