//! Every kernel becomes MSL, SPIR-V and HLSL: a gate for the systems that no test machine here has.

use argon_gguf::Format;
use argon_kernels::wgpu::Products;
use argon_kernels::wgpu::shader::{File, Kernel};
use argon_kernels::wgpu::tune::{MATRICES, Matrix, Tile};
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};

fn parsed(kernel: &Kernel) -> (Module, ModuleInfo) {
    let source = kernel.source();
    let module = naga::front::wgsl::parse_str(&source)
        .unwrap_or_else(|error| panic!("{kernel:?}: {}", error.emit_to_string(&source)));
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module);
    let info = info.unwrap_or_else(|error| panic!("{kernel:?}: {}", error.emit_to_string(&source)));
    (module, info)
}

fn to_msl(kernel: &Kernel, module: &Module, info: &ModuleInfo) {
    let options = msl::Options { lang_version: (2, 3), fake_missing_bindings: true, ..Default::default() };
    let pipeline =
        msl::PipelineOptions { entry_point: Some((ShaderStage::Compute, kernel.entry.into())), ..Default::default() };
    let text = msl::write_string(module, info, &options, &pipeline);
    let (text, _) = text.unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
    assert!(text.contains("kernel void"), "{kernel:?}");
}

fn to_spir_v(kernel: &Kernel, module: &Module, info: &ModuleInfo) {
    let options = spv::Options { lang_version: (1, 4), ..Default::default() };
    let pipeline = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: kernel.entry.into() };
    let words = spv::write_vec(module, info, &options, Some(&pipeline));
    let words = words.unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
    assert_eq!(words[0], 0x0723_0203, "{kernel:?}");
}

#[test]
fn msl() {
    for kernel in Kernel::all() {
        let (module, info) = parsed(&kernel);
        to_msl(&kernel, &module, &info);
    }
}

#[test]
fn spir_v() {
    for kernel in Kernel::all() {
        let (module, info) = parsed(&kernel);
        to_spir_v(&kernel, &module, &info);
    }
}

/// Sizes, subgroups and shared memory that an adapter may have beside those that all kernels are made for.
fn other_matrices() -> impl Iterator<Item = Matrix> {
    let sizes = [(8, 8), (8, 16), (8, 32), (8, 64), (16, 16), (16, 32), (16, 64)];
    let all = sizes
        .into_iter()
        .flat_map(|(size, subgroup)| [32, 48, 64].map(|kibibytes| Matrix { size, subgroup, shared: kibibytes << 10 }));
    all.filter(|matrix| !MATRICES.contains(matrix))
}

/// Products by any matrices, in formats with and without a decoder of f16: they translate, and fit into shared memory.
#[test]
fn products_by_other_matrices() {
    for matrix in other_matrices() {
        for format in [Format::IQ2_XS, Format::IQ4_NL, Format::Q4_K, Format::F16] {
            for (rows, swiglu) in [(16, false), (16, true), (64, false), (64, true)] {
                let tile = Tile::new(Products::Cooperative(matrix), format, rows, swiglu);
                let kernel = Kernel::gemm(format, tile);
                let (module, info) = parsed(&kernel);
                let declared = declared_bytes(&kernel);
                assert_eq!((tile.shared_bytes(format), declared <= matrix.shared), (declared, true), "{kernel:?}");
                to_msl(&kernel, &module, &info);
                to_spir_v(&kernel, &module, &info);
            }
        }
    }
}

/// DX12 has no cooperative matrices.
#[test]
fn hlsl() {
    for kernel in Kernel::all().into_iter().filter(|kernel| kernel.file != File::GemmCoop) {
        let (module, info) = parsed(&kernel);
        let options =
            hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, fake_missing_bindings: true, ..Default::default() };
        let pipeline = hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, kernel.entry.into())) };
        let mut text = String::new();
        let result = hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None);
        result.unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
        assert!(text.contains("[numthreads("), "{kernel:?}");
    }
}

/// Every product by matrices fits in the shared memory that it is made for.
#[test]
fn products_fit_in_shared_memory() {
    for kernel in Kernel::all() {
        let (Some(format), Some(tile)) = (kernel.format, kernel.tile) else { continue };
        if let Some(matrices) = tile.matrices() {
            let declared = declared_bytes(&kernel);
            assert_eq!(tile.shared_bytes(format), declared, "{kernel:?}");
            assert!(declared <= matrices.matrix.shared, "{kernel:?}: {declared}");
        }
    }
}

/// Bytes of the workgroup's variables, as naga lays them out.
fn declared_bytes(kernel: &Kernel) -> u32 {
    let (module, _) = parsed(kernel);
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).expect("types have layouts");
    let shared = module.global_variables.iter().filter(|(_, variable)| variable.space == naga::AddressSpace::WorkGroup);
    shared.map(|(_, variable)| layouter[variable.ty].size).sum()
}
