//! The adapters of this machine, and what one of them can do.

use wgpu::{Adapter, Backends, CooperativeScalarType, DeviceType, Features, Limits};

use super::tune::{LEAST_SHARED, Matrix};
use crate::device::DeviceError;

/// Which kernels an adapter runs its products with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// f32 operands in shared memory: any adapter.
    Portable,
    /// Cooperative matrices of f16 operands, for products in f16.
    Cooperative(Matrix),
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tier::Portable => f.write_str("portable"),
            Tier::Cooperative(Matrix { size, subgroup, .. }) => {
                write!(f, "cooperative {size}x{size} by {subgroup} threads")
            }
        }
    }
}

/// The cooperative matrices that kernels can use, where an adapter has them: f16 factors and f32 sums, 16 or 8 square,
/// shared by subgroups that always have one size and at most eight of which are a workgroup.
fn matrix(adapter: &Adapter) -> Option<Matrix> {
    let info = adapter.get_info();
    let features = Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16;
    let subgroup = info.subgroup_min_size;
    if !adapter.features().contains(features) || subgroup != info.subgroup_max_size || !(8..=64).contains(&subgroup) {
        return None;
    }
    let limits = adapter.limits();
    let shared = limits.max_compute_workgroup_storage_size;
    let offered = adapter.cooperative_matrix_properties();
    let fits = |size: u32| {
        offered.iter().any(|m| {
            [m.m_size, m.n_size, m.k_size] == [size; 3]
                && m.ab_type == CooperativeScalarType::F16
                && m.cr_type == CooperativeScalarType::F32
        })
    };
    if shared < LEAST_SHARED || limits.max_compute_invocations_per_workgroup < 8 * subgroup {
        return None;
    }
    let size = [16, 8].into_iter().find(|&size| size <= subgroup && fits(size))?;
    Some(Matrix { size, subgroup, shared })
}

/// Storage buffers that the largest kernel binds.
const STORAGE_BUFFERS: u32 = 12;
/// Threads of the largest workgroup.
const THREADS: u32 = 256;
/// Bytes of shared memory of the largest workgroup.
const SHARED_BYTES: u32 = 16 << 10;

/// All adapters, in the order of their numbers: discrete ones first, software last.
pub fn list() -> Vec<Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    let instance = wgpu::Instance::new(descriptor);
    let mut adapters = pollster::block_on(instance.enumerate_adapters(Backends::all()));
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    });
    adapters
}

/// Whether adapter number `index` is a driver that computes on the processor.
pub fn is_software(index: usize) -> bool {
    list().get(index).is_some_and(|adapter| adapter.get_info().device_type == DeviceType::Cpu)
}

/// Adapter number `index`.
///
/// # Errors
/// [`DeviceError::Failed`] where there is none of that number.
pub(super) fn open(id: &str, index: usize) -> Result<Adapter, DeviceError> {
    let adapters = list();
    let found = adapters.len();
    adapters.into_iter().nth(index).ok_or_else(|| DeviceError::Failed {
        device: id.into(),
        what: match found {
            0 => "no adapter found: no Vulkan, Metal or DX12 driver answered".into(),
            _ => format!("there is no adapter {index}, only 0 to {}", found - 1),
        },
    })
}

/// What is asked of an adapter's device.
pub(super) struct Wanted {
    pub tier: Tier,
    pub features: Features,
    pub limits: Limits,
}

/// All of an adapter's limits, and of its optional features those in use: the tier `wanted`, or the best there is.
///
/// # Errors
/// [`DeviceError::Unsupported`] names the limit that is too small for the kernels, or the tier that it has not.
pub(super) fn requirements(id: &str, adapter: &Adapter, wanted: Option<Tier>) -> Result<Wanted, DeviceError> {
    let unsupported = |what| DeviceError::Unsupported { device: id.into(), what };
    let limits = adapter.limits();
    for (name, found, least) in [
        ("storage buffers in a kernel", limits.max_storage_buffers_per_shader_stage, STORAGE_BUFFERS),
        ("threads in a workgroup", limits.max_compute_invocations_per_workgroup, THREADS),
        ("bytes of shared memory", limits.max_compute_workgroup_storage_size, SHARED_BYTES),
    ] {
        if found < least {
            return Err(unsupported(format!("kernels that need {least} {name}: the adapter has {found}")));
        }
    }
    let best = matrix(adapter).map_or(Tier::Portable, Tier::Cooperative);
    let tier = wanted.unwrap_or(best);
    let features = match tier {
        Tier::Portable => Features::empty(),
        Tier::Cooperative(_) if tier == best => Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16,
        Tier::Cooperative(_) => return Err(unsupported(format!("{tier} kernels"))),
    };
    Ok(Wanted { tier, features, limits })
}
