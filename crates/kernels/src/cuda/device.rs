//! The device: one stream, in program order.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon_gguf::Bytes;

use super::driver::{Driver, Function, Graph, Launch, Machine};
use super::jit::{Architecture, Cache, JitError, Nvrtc};
use super::memory::{self, DeviceMemory, Scratch, View};
use super::plan::PlanVariant;
use super::source::Source;
use super::tune;
use super::{attention, delta_net, elementwise, gather, gemm, plan, route, select_blocks};
use crate::device::{Clock, Device, DeviceError, DeviceInfo};
use crate::op::{Access, Op, Precision};
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
    /// An input in f16 and its exponents, as [`State::activations`] says.
    pub half: Scratch,
    pub exponents: Scratch,
    /// Between the kernels of one op.
    pub between: Scratch,
    /// Which tensor `half` holds, in which order of columns.
    pub activations: Option<(Tensor, u32)>,
    /// The rows that a product with SwiGLU wrote in f16 beside f32, its count of numbers beyond that range, and the
    /// exponents of the rows in case there are some.
    pub hidden: Scratch,
    pub hidden_beyond: Scratch,
    pub hidden_exponents: Scratch,
    /// What `hidden` holds.
    pub hidden_of: Option<Hidden>,
    /// The order that the last product of such rows wanted.
    pub hidden_order: Option<u32>,
}

/// Rows that are in f16 already: of which tensor, by which plan, in which order of columns.
pub(super) struct Hidden {
    pub rows: Tensor,
    pub stok: Tensor,
    pub order: u32,
}

/// An op that may find its input wrong.
#[derive(Clone, Copy)]
pub(super) enum Fallible {
    /// Logits that are not numbers.
    Route { layer: usize },
    /// Ids outside a table.
    Embed { limit: usize },
}

/// Bytes of the status: all ones is none.
const STATUS: usize = 16;

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
            name: format!("{}, {}, NVRTC {}", driver.name, architecture.name, compiler.version()),
            memory: driver.memory as u64,
            precisions: vec![Precision::F16, Precision::F32],
        };
        let status = DeviceMemory::zeroed(&driver, STATUS)?;
        let state = State {
            functions: HashMap::new(),
            status,
            fallible: Vec::new(),
            half: Scratch::default(),
            exponents: Scratch::default(),
            between: Scratch::default(),
            activations: None,
            hidden: Scratch::default(),
            hidden_beyond: Scratch::default(),
            hidden_exponents: Scratch::default(),
            hidden_of: None,
            hidden_order: None,
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

    /// Whether the code may use clusters of thread blocks.
    pub(super) fn clusters(&self) -> bool {
        self.architecture.capability >= 90
    }

    /// Records what `work` enqueues instead of running it. The same ops must have run before: what they compile and
    /// allocate cannot be recorded. What a replay finds wrong with its input is not reported.
    ///
    /// # Errors
    /// Those of `work`, and [`DeviceError::Failed`].
    pub fn record(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<Graph, DeviceError> {
        // What is converted outside of the sequence may be gone when it runs, and the other way round.
        self.exclusive().forget();
        let graph = self.driver.capture(work);
        self.exclusive().forget();
        graph
    }

    /// Enqueues a recorded sequence.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    pub fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        self.exclusive().forget();
        self.driver.replay(graph)
    }

    /// Runs what `work` enqueues and gives the milliseconds that the device took.
    ///
    /// # Errors
    /// Those of `work`, and [`DeviceError::Failed`].
    pub fn time(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<f32, DeviceError> {
        let from = self.driver.stamp()?;
        work()?;
        let to = self.driver.stamp()?;
        self.driver.sync()?;
        self.driver.between(&from, &to)
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
            Op::Plan(o) => plan::plan(self, state, o),
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
        if state.fallible.is_empty() {
            return self.driver.sync();
        }
        let mut words = [0u64; STATUS / 8];
        // SAFETY: the status is this long.
        unsafe {
            self.driver.download(bytemuck::cast_slice_mut(&mut words), state.status.address(), STATUS, STATUS)?;
        }
        let [place, id] = words;
        let failed = state.fallible.get((place >> 32) as usize).copied();
        state.fallible.clear();
        let (Some(failed), entry) = (failed, place as u32 as usize) else { return Ok(()) };
        self.clear_status(state)?;
        Err(match failed {
            Fallible::Route { layer } => DeviceError::NanLogit { layer, token: entry },
            Fallible::Embed { limit } => DeviceError::IdOutOfRange { op: "embed", entry, id: id as i64, limit },
        })
    }
}

impl State {
    /// Where kernels report, and the number of an op that may.
    pub(super) fn fallible(&mut self, what: Fallible) -> (u64, u32) {
        self.fallible.push(what);
        (self.status.address(), (self.fallible.len() - 1) as u32)
    }

    /// Forgets the converted inputs of which `t`, about to be written, may be part.
    fn written(&mut self, t: &Tensor) {
        if self.activations.as_ref().is_some_and(|(x, _)| x.overlaps(t)) {
            self.activations = None;
        }
        if self.hidden_of.as_ref().is_some_and(|held| held.rows.overlaps(t) || held.stok.overlaps(t)) {
            self.hidden_of = None;
        }
    }

    /// Forgets all converted inputs.
    fn forget(&mut self) {
        (self.activations, self.hidden_of) = (None, None);
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
        DeviceMemory::zeroed(&self.driver, bytes).map(Buffer::new)
    }

    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        DeviceMemory::constant(&self.driver, &bytes).map(Buffer::new)
    }

    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut state = self.exclusive();
        state.written(dst);
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
        for (t, access) in op.accesses() {
            if access == Access::Write {
                state.written(t);
            }
        }
        self.dispatch(&mut state, op)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.settle(&mut self.exclusive())
    }

    fn clock(&self) -> Clock {
        Clock::Device
    }

    fn elapsed(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        self.sync()?;
        let milliseconds = self.time(work)?;
        self.sync()?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}
