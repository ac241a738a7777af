//! `argon_kernels::parity` finds nothing wrong with this machine's devices, and finds what is planted.

use std::collections::BTreeSet;

use argon_gguf::Format;
use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};
use argon_kernels::parity::{Kernel, Request, cases};
use argon_kernels::{Device, Precision};
use faulty::{Faulty, Planted, SPOTS, Spot, Talkative, VARIANTS};

#[path = "kernels/faulty.rs"]
mod faulty;

/// Everything that a device got wrong, a line each.
fn failures(device: &dyn Device, kernel: Kernel, request: &Request) -> Vec<String> {
    let cases = cases::of(kernel, request, &device.info().precisions);
    let failure = |case: &argon_kernels::parity::Case| {
        let finding = case.run(device);
        let precision = case.precision.map_or("", |precision| precision.name());
        Some(format!("{} {}, {precision}: {}", kernel.name(), case.name, finding.failure?))
    };
    cases.iter().filter_map(failure).collect()
}

#[test]
fn the_processor_agrees_with_the_reference() {
    for kernel in Kernel::ALL {
        let device = CpuDevice::new(CpuOptions::default()).unwrap();
        let found = failures(&device, kernel, &Request::default());
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn so_does_every_instruction_set() {
    let few = Request { tokens: Some(13), ..Request::default() };
    for isa in Isa::available() {
        let device = CpuDevice::new(CpuOptions { isa: Some(isa), ..CpuOptions::default() }).unwrap();
        for kernel in [Kernel::Gather, Kernel::Dense, Kernel::Moe, Kernel::Hyper] {
            let found = failures(&device, kernel, &few);
            assert!(found.is_empty(), "{}: {}", isa.name(), found.join("\n"));
        }
    }
}

/// The ops of each group, and how many tensors each writes.
const OPS: [(Kernel, &[(&str, usize)]); 9] = [
    (Kernel::Plan, &[("plan", 8)]),
    (Kernel::Gather, &[("embed", 1), ("gather", 2), ("gather_h", 1), ("gemm by stok", 1), ("gemm of the plan", 1)]),
    (Kernel::Dense, &[("gemm", 1)]),
    (Kernel::Moe, &[("gemm by stok", 1), ("gemm of the plan", 1), ("combine", 1)]),
    (Kernel::Route, &[("route", 2)]),
    (Kernel::Elementwise, &[("fill", 1), ("copy", 1), ("add", 1), ("rms_norm", 1), ("gated_norm", 1), ("rope", 1)]),
    (Kernel::Hyper, &[("rms_norm", 1), ("hyper_write", 1), ("ple_gate", 1), ("gemm", 1)]),
    (Kernel::Delta, &[("conv", 2), ("delta_net", 2)]),
    (Kernel::Attention, &[("attention", 1), ("mean_pool", 1), ("select_blocks", 1)]),
];

/// Every case that runs an op whose kernel leaves out one element fails, and names that element.
#[test]
fn an_element_left_out_is_found_and_named() {
    // One format of each kind, and plans that the definition is quick with.
    let few = Request { tokens: Some(21), experts: Some(16), gate_up: Some(Format::Q8_0), ..Request::default() };
    let device = CpuDevice::new(CpuOptions::default()).unwrap();
    let mut faulty_ops = BTreeSet::new();
    for (kernel, ops) in OPS {
        for &(op, outputs) in ops {
            let mut planted = 0;
            let mut spots = SPOTS.to_vec();
            // Which rows end a tile is up to the plan; only routed products have one.
            spots.extend(["gemm by stok", "gemm of the plan"].contains(&op).then_some(Spot::TileTail));
            for (output, &spot) in (0..outputs).flat_map(|output| spots.iter().map(move |spot| (output, spot))) {
                let before: usize = planted;
                for case in cases::of(kernel, &few, &[Precision::F32, Precision::F16, Precision::Int8]) {
                    let faulty = Faulty::new(&device, op, output, spot);
                    let finding = case.run(&faulty);
                    let Some(Planted { variant, place }) = faulty.planted() else {
                        assert_eq!(finding.failure, None, "{} {}: nothing was planted", kernel.name(), case.name);
                        continue;
                    };
                    planted += 1;
                    faulty_ops.insert(variant);
                    let what = format!("{op}, output {output}, {spot:?}, in {} {}", kernel.name(), case.name);
                    let failure = finding.failure.unwrap_or_else(|| panic!("not found: {place} of {what}"));
                    assert!(failure.contains(&place), "{place} of {what}: {failure}");
                }
                assert!(planted > before, "{op}, output {output}: no fault at {spot:?}");
            }
        }
    }
    assert_eq!(faulty_ops, VARIANTS.iter().copied().collect(), "every op has a case that finds its faults");
}

#[test]
fn a_write_beyond_the_end_is_found() {
    let device = CpuDevice::new(CpuOptions::default()).unwrap();
    for case in cases::of(Kernel::Elementwise, &Request::default(), &[Precision::F32]) {
        let faulty = Faulty::new(&device, "copy", 0, Spot::Beyond);
        let finding = case.run(&faulty);
        if faulty.planted().is_some() {
            let failure = finding.failure.unwrap_or_else(|| panic!("not found in {}", case.name));
            assert!(failure.contains("behind the"), "{failure}");
        }
    }
}

#[test]
fn a_word_that_comes_to_the_host_between_ops_is_found() {
    let device = CpuDevice::new(CpuOptions::default()).unwrap();
    for kernel in Kernel::ALL {
        let few = Request { tokens: Some(5), experts: Some(16), ..Request::default() };
        for case in cases::of(kernel, &few, &[Precision::F32]).into_iter().take(1) {
            let failure = case.run(&Talkative::new(&device)).failure.unwrap_or_else(|| panic!("{}", case.name));
            assert!(failure.contains("bytes came to the host while ops were enqueued"), "{failure}");
        }
    }
}
