//! The adapters of this machine, and what one of them can do.

use wgpu::{Adapter, Backend, Backends, CooperativeScalarType, DeviceType, Features};

use super::tier::{Allowed, Sizes};
use super::tune::{LEAST_SHARED, Matrix};
use crate::device::DeviceError;

/// What cooperative matrices need of an adapter.
const MATRIX_FEATURES: Features = Features::EXPERIMENTAL_COOPERATIVE_MATRIX
    .union(Features::SHADER_F16)
    .union(Features::SUBGROUP)
    .union(Features::SUBGROUP_BARRIER);

/// The cooperative matrices that kernels can use, where an adapter has them: f16 factors and f32 sums, 16 or 8 square,
/// shared by subgroups that always have one size and at most eight of which are a workgroup. `seen`: the sizes that a test found,
/// for Metal, which does not tell them although each of its GPUs has one.
pub(super) fn matrix(adapter: &Adapter, seen: Option<Sizes>) -> Option<Matrix> {
    let info = adapter.get_info();
    let told = Sizes { least: info.subgroup_min_size, most: info.subgroup_max_size };
    let Sizes { least: subgroup, most } = if info.backend == Backend::Metal { seen? } else { told };
    if !adapter.features().contains(MATRIX_FEATURES) || subgroup != most || !(8..=64).contains(&subgroup) {
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
            1 => format!("there is no adapter {index}, only adapter 0"),
            _ => format!("there is no adapter {index}, only 0 to {}", found - 1),
        },
    })
}

/// What is asked of an adapter's device: all of its limits, and of its optional features those that kernels may use.
///
/// # Errors
/// [`DeviceError::Unsupported`] names the limit that is too small for the kernels.
pub(super) fn requirements(
    id: &str,
    adapter: &Adapter,
    allowed: Allowed,
) -> Result<wgpu::DeviceDescriptor<'static>, DeviceError> {
    let limits = adapter.limits();
    for (name, found, least) in [
        ("storage buffers in a kernel", limits.max_storage_buffers_per_shader_stage, STORAGE_BUFFERS),
        ("threads in a workgroup", limits.max_compute_invocations_per_workgroup, THREADS),
        ("bytes of shared memory", limits.max_compute_workgroup_storage_size, SHARED_BYTES),
    ] {
        if found < least {
            let what = format!("kernels that need {least} {name}: the adapter has {found}");
            return Err(DeviceError::Unsupported { device: id.into(), what });
        }
    }
    let mut features = Features::empty();
    features.set(Features::SHADER_F16, allowed.f16);
    features.set(Features::SUBGROUP, allowed.subgroups);
    if allowed.f16 && allowed.subgroups && allowed.matrices {
        features |= MATRIX_FEATURES;
    }
    // SAFETY: of the experimental features only cooperative matrices are asked for; the sizes and types in use are those
    // that the adapter lists, and a self-test compares their products before anything else is made of them.
    let experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
    Ok(wgpu::DeviceDescriptor {
        label: Some("argon"),
        required_features: features & adapter.features(),
        required_limits: limits,
        experimental_features,
        memory_hints: wgpu::MemoryHints::Performance,
        trace: wgpu::Trace::Off,
    })
}
