//! From what `--device` says to a device that runs.
//!
//! This file alone knows which devices a build has, and it alone reads the environment: where compiled kernels are kept and
//! where a toolkit lies ([`environment`]). A device that was named is opened or refused, never replaced; only `auto` chooses.

mod environment;

use std::num::NonZero;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use argon_gguf::Format;
use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};
use argon_kernels::cuda::tune::{self, Tile};
use argon_kernels::cuda::{CudaDevice, CudaOptions, PlanVariant};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{Device, DeviceError, self_test};

use crate::failure::{Failure, OrFail};
use crate::settings::{self, DeviceKind};

type Opened = Result<Arc<dyn Device>, DeviceError>;

/// The device asked for. `weights` bytes are to lie on it, as far as that is known.
///
/// # Errors
/// An input failure that names the device and what it lacks.
pub fn open(settings: &settings::Device, weights: u64) -> Result<Arc<dyn Device>, Failure> {
    match settings.kind {
        DeviceKind::Auto => auto(settings.threads, weights),
        kind => named(kind, settings.threads).or_input("--device"),
    }
}

/// The first device of each backend.
pub const BACKENDS: [DeviceKind; 3] = [DeviceKind::Cpu, DeviceKind::Cuda(0), DeviceKind::Wgpu(0)];

/// A device by its name; `auto` is none.
///
/// # Errors
/// What it lacks, in one line.
pub fn named(kind: DeviceKind, threads: Option<NonZero<usize>>) -> Opened {
    match kind {
        DeviceKind::Auto | DeviceKind::Cpu => Ok(Arc::new(CpuDevice::new(CpuOptions { threads, ..cpu()? })?)),
        DeviceKind::Reference => Ok(Arc::new(ReferenceDevice::default())),
        DeviceKind::Cuda(ordinal) => Ok(Arc::new(CudaDevice::new(cuda(ordinal))?)),
        DeviceKind::Wgpu(adapter) => wgpu(adapter),
    }
}

/// What a device shall do in another way than it would choose itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forced {
    /// How it computes plans, one of [`plan_variants`].
    pub plan: Option<String>,
    /// Tiles of products, if they are forced.
    pub tiles: Option<Tiles>,
}

/// In which tiles weights of which formats are multiplied: of gate and up and of dense products, and of down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiles {
    /// TM, TN, TK, SG.
    pub tiles: [Option<[u32; 4]>; 2],
    /// Of the weights.
    pub formats: [Format; 2],
}

/// The names of the ways to compute plans that devices of this kind have to choose from.
pub fn plan_variants(kind: DeviceKind) -> Vec<&'static str> {
    match kind {
        DeviceKind::Cpu => argon_plan::Variant::ALL.into_iter().map(argon_plan::Variant::name).collect(),
        DeviceKind::Cuda(_) => PlanVariant::ALL.into_iter().map(PlanVariant::name).collect(),
        _ => Vec::new(),
    }
}

/// A device that was named, which does what is forced.
///
/// # Errors
/// As [`named`]; for what the device has no choice of; and for a tile that it cannot have, with the reason.
pub fn forced(kind: DeviceKind, threads: Option<NonZero<usize>>, forced: &Forced) -> Result<Arc<dyn Device>> {
    if let Some(plan) = forced.plan.as_deref().filter(|plan| !plan_variants(kind).contains(plan)) {
        return Err(unknown_variant(plan, &[kind]));
    }
    let plan = forced.plan.as_deref();
    match (kind, forced.tiles) {
        (DeviceKind::Cuda(ordinal), tiles) => {
            let plan = PlanVariant::ALL.into_iter().find(|variant| Some(variant.name()) == plan).unwrap_or_default();
            with_tiles(CudaOptions { plan, ..cuda(ordinal) }, tiles)
        }
        (_, Some(_)) => Err(anyhow!("--tile and --dtile: {kind} has no choice of tiles, cuda has")),
        (DeviceKind::Cpu, None) => {
            let plan = argon_plan::Variant::ALL.into_iter().find(|variant| Some(variant.name()) == plan);
            let options = CpuOptions { threads, plan: plan.unwrap_or_default(), ..cpu()? };
            Ok(Arc::new(CpuDevice::new(options).context("--device")?))
        }
        _ => named(kind, threads).context("--device"),
    }
}

/// That none of these devices computes plans by what `--variant` says.
pub fn unknown_variant(plan: &str, kinds: &[DeviceKind]) -> anyhow::Error {
    let of = |kind: &DeviceKind| match &plan_variants(*kind)[..] {
        [] => format!("{kind} has no choice"),
        variants => format!("{kind} has {}", variants.join(", ")),
    };
    let all: Vec<_> = kinds.iter().map(of).collect();
    anyhow!("--variant is {plan}; for plans, {}", all.join("; "))
}

fn with_tiles(options: CudaOptions, asked: Option<Tiles>) -> Result<Arc<dyn Device>> {
    let tile = |flag: &'static str, i: usize| -> Result<Option<(Format, Tile)>> {
        let Some(Tiles { tiles, formats }) = asked else { return Ok(None) };
        tiles[i].map(|tile| Ok((formats[i], Tile::asked(tile).context(flag)?))).transpose()
    };
    let forced = tune::Forced { first: tile("--tile", 0)?, down: tile("--dtile", 1)? };
    let device = CudaDevice::new(CudaOptions { forced, ..options }).context("--device")?;
    for (flag, forced) in [("--tile", forced.first), ("--dtile", forced.down)] {
        forced.map_or(Ok(()), |(format, tile)| tile.possible(&device.machine(), format)).context(flag)?;
    }
    Ok(Arc::new(device))
}

/// How the processor is set up here: tests of this command name its instruction set by `ARGON_CPU_ISA`.
///
/// # Errors
/// [`DeviceError::Failed`] for one that this processor has not.
pub fn cpu() -> Result<CpuOptions, DeviceError> {
    let Some(wanted) = environment::text("ARGON_CPU_ISA") else { return Ok(CpuOptions::default()) };
    match Isa::available().into_iter().find(|isa| isa.name() == wanted) {
        Some(isa) => Ok(CpuOptions { isa: Some(isa), ..CpuOptions::default() }),
        None => {
            let all: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
            let what = format!("ARGON_CPU_ISA is {wanted}; this processor has {}", all.join(", "));
            Err(DeviceError::Failed { device: "cpu".into(), what })
        }
    }
}

/// How a card is set up here.
pub fn cuda(ordinal: usize) -> CudaOptions {
    CudaOptions {
        ordinal,
        libraries: environment::toolkits(),
        cache: environment::cache().map(|cache| cache.join("kernels")),
        ..CudaOptions::default()
    }
}

/// Tests of this command lower the adapter's limits by `ARGON_WGPU_MAX_BINDING` (bytes of a buffer that a kernel sees) and
/// `ARGON_WGPU_MAX_GROUPS` (workgroups in each direction of a grid), and do without what `ARGON_WGPU_WITHOUT` lists: `f16`,
/// `subgroups`, `matrices`.
#[cfg(feature = "wgpu")]
fn wgpu(adapter: usize) -> Opened {
    use argon_kernels::wgpu::{Allowed, WgpuDevice, WgpuOptions};
    let failed = |what| DeviceError::Failed { device: format!("wgpu:{adapter}"), what };
    let limit = |name, least| environment::number(name, least).map_err(failed);
    let max_binding = limit("ARGON_WGPU_MAX_BINDING", 1 << 16)?;
    let max_groups = limit("ARGON_WGPU_MAX_GROUPS", 1)?.map(|groups| groups.min(u32::MAX.into()) as u32);
    let without = environment::listed("ARGON_WGPU_WITHOUT", ["f16", "subgroups", "matrices"]).map_err(failed)?;
    let [f16, subgroups, matrices] = without.map(|without| !without);
    let allowed = Allowed { f16, subgroups, matrices };
    let options = WgpuOptions { adapter, max_binding, max_groups, allowed, ..WgpuOptions::default() };
    Ok(Arc::new(WgpuDevice::new(options)?))
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(adapter: usize) -> Opened {
    let what = "this build has no wgpu (--no-default-features)".into();
    Err(DeviceError::Failed { device: format!("wgpu:{adapter}"), what })
}

/// Whether what is called a GPU is the processor.
fn in_software(kind: DeviceKind) -> bool {
    match kind {
        #[cfg(feature = "wgpu")]
        DeviceKind::Wgpu(adapter) => argon_kernels::wgpu::adapter::is_software(adapter),
        _ => false,
    }
}

/// The first GPU that computes what it should and holds the model, else the processor. Says which, and in a line each why
/// not another.
fn auto(threads: Option<NonZero<usize>>, weights: u64) -> Result<Arc<dyn Device>, Failure> {
    let mut reasons = Vec::new();
    let mut chosen = None;
    for kind in [DeviceKind::Cuda(0), DeviceKind::Wgpu(0)] {
        match usable(kind, threads, weights) {
            Ok(device) => {
                chosen = Some(device);
                break;
            }
            Err(reason) => reasons.push(reason),
        }
    }
    match &chosen {
        Some(device) => eprintln!("--device auto: {}, which passed the self-test", device.info().id),
        None => eprintln!("--device auto: cpu, as there is no GPU to use"),
    }
    reasons.iter().for_each(|reason| eprintln!("  {reason}"));
    chosen.map_or_else(|| named(DeviceKind::Cpu, threads).or_work("--device cpu"), Ok)
}

/// The device, if it passes its self-test and has the memory; else why not.
fn usable(kind: DeviceKind, threads: Option<NonZero<usize>>, weights: u64) -> Result<Arc<dyn Device>, String> {
    let device = named(kind, threads).map_err(|error| error.to_string())?;
    let info = device.info();
    if in_software(kind) {
        return Err(format!("{}: {} is no GPU but a driver in software", info.id, info.name));
    }
    if info.memory < weights {
        return Err(format!("{}: its memory of {} bytes holds no model of {weights}", info.id, info.memory));
    }
    self_test::run(&*device).map_err(|error| format!("{}: the self-test failed: {error}", info.id))?;
    Ok(device)
}
