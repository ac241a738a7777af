//! The backend that is always there: loops over host memory, on threads of its own and the caller's.
//!
//! An op runs when it is enqueued, to its end, one at a time per device. Within an op the threads write parts of the
//! output that never meet, and no sum is ever split between threads: results are the same bits for any number of them.

mod attention;
mod block_set;
mod combine;
mod conv;
mod copy;
mod delta_net;
mod embed;
mod gather;
mod gemm;
mod hyper;
mod isa;
pub mod machine;
mod math;
mod matmul;
mod memory;
mod norm;
mod peak;
mod plan;
mod ple;
mod rank;
mod rope;
mod route;
mod select_blocks;
mod team;
mod view;

use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon_gguf::Bytes;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::device::{Clock, Device, DeviceError, DeviceInfo, host_elapsed};
use crate::op::Op;
use crate::tensor::{Buffer, Tensor, Weight};
pub use isa::Isa;
use memory::HostMemory;
pub use peak::Peaks;
use team::Team;

/// How to set up a [`CpuDevice`].
#[derive(Clone, Debug, Default)]
pub struct CpuOptions {
    /// Threads that compute; as many as the machine runs at once where absent.
    pub threads: Option<NonZero<usize>>,
    /// The instruction set of the kernels; the best one that the processor has where absent.
    pub isa: Option<Isa>,
    /// How plans are computed.
    pub plan: argon_plan::Variant,
}

/// The processor.
pub struct CpuDevice {
    team: Team,
    /// For plans: `argon_plan` shares its work out with rayon.
    pool: ThreadPool,
    isa: Isa,
    plan: argon_plan::Variant,
    /// What products write their activations to.
    spare: Arc<gemm::Spare>,
    /// Held by whatever reads or writes this device's memory.
    lock: Arc<Mutex<()>>,
    info: DeviceInfo,
}

impl CpuDevice {
    /// A device with its own threads.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] if the system starts no threads.
    pub fn new(options: CpuOptions) -> Result<Self, DeviceError> {
        let id = String::from("cpu");
        let threads = match options.threads {
            Some(threads) => threads.get(),
            None => std::thread::available_parallelism().map_or(1, NonZero::get),
        };
        let failed = |error: &dyn std::error::Error| DeviceError::Failed {
            device: id.clone(),
            what: format!("starting {threads} threads: {error}"),
        };
        let team = Team::new(threads).map_err(|error| failed(&error))?;
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("plan-{i}"));
        let pool = pool.build().map_err(|error| failed(&error))?;
        let isa = options.isa.unwrap_or_else(Isa::detect);
        let info = DeviceInfo {
            id,
            name: format!(
                "{}, {}, {threads} {}",
                machine::name(),
                isa.name(),
                if threads == 1 { "thread" } else { "threads" }
            ),
            details: String::new(),
            memory: machine::memory().unwrap_or(u64::MAX),
            largest_tensor: u64::MAX,
            precisions: gemm::PRECISIONS.to_vec(),
        };
        Ok(Self { team, pool, isa, plan: options.plan, spare: Arc::default(), lock: Arc::default(), info })
    }

    /// Runs `work` in the rayon pool in which this device's plans are made.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// The name that errors print.
    fn id(&self) -> &str {
        &self.info.id
    }

    /// Whether a buffer guarded by `lock` is this device's.
    fn owns(&self, lock: &Arc<Mutex<()>>) -> bool {
        Arc::ptr_eq(&self.lock, lock)
    }

    /// Keeps others away from this device's memory. A panic of an earlier holder left no lock state behind.
    fn exclusive(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn out_of_memory(&self, bytes: usize) -> DeviceError {
        DeviceError::OutOfMemory { device: self.id().into(), bytes }
    }

    fn dispatch(&self, op: &Op) -> Result<(), DeviceError> {
        match op {
            Op::Fill(o) => copy::fill(self, o),
            Op::Copy(o) => copy::copy(self, o),
            Op::Add(o) => copy::add(self, o),
            Op::Embed(o) => embed::embed(self, o),
            Op::RmsNorm(o) => norm::rms_norm(self, o),
            Op::GatedNorm(o) => norm::gated_norm(self, o),
            Op::Rope(o) => rope::rope(self, o),
            Op::Gemm(o) => gemm::gemm(self, o),
            Op::Attention(o) => attention::attention(self, o),
            Op::MeanPool(o) => select_blocks::mean_pool(self, o),
            Op::SelectBlocks(o) => select_blocks::select_blocks(self, o),
            Op::Conv(o) => conv::conv(self, o),
            Op::DeltaNet(o) => delta_net::delta_net(self, o),
            Op::HyperWrite(o) => hyper::hyper_write(self, o),
            Op::PleGate(o) => ple::ple_gate(self, o),
            Op::Route(o) => route::route(self, o),
            Op::Plan(o) => plan::plan(self, o),
            Op::Gather(o) => gather::gather(self, o),
            Op::Combine(o) => combine::combine(self, o),
        }
    }
}

impl Device for CpuDevice {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn tile_rows(&self, entries: usize, experts: usize) -> usize {
        gemm::tile_rows(entries, experts)
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let memory = HostMemory::zeroed(bytes, self.lock.clone());
        memory.map(Buffer::new).ok_or_else(|| self.out_of_memory(bytes))
    }

    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        if bytes.as_ptr().cast::<u32>().is_aligned() {
            return Ok(Buffer::new(HostMemory::Constant(bytes)));
        }
        let copy = HostMemory::copied(&bytes, self.lock.clone());
        copy.map(Buffer::new).ok_or_else(|| self.out_of_memory(bytes.len()))
    }

    fn reads_in_place(&self) -> bool {
        true
    }

    fn prepare(&self, _: &Weight) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        let _lock = self.exclusive();
        memory::write(self, dst, bytes)
    }

    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let _lock = self.exclusive();
        memory::read(self, src, bytes)
    }

    fn bytes_to_host(&self) -> u64 {
        0
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        op.check()?;
        let _lock = self.exclusive();
        self.dispatch(op)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        drop(self.exclusive());
        Ok(())
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn elapsed(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        host_elapsed(self, work)
    }
}
