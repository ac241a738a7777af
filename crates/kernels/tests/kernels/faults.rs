//! Faults planted one by one: each is found by every case that meets it, and named.

use std::collections::BTreeSet;

use argon_gguf::Format;
use argon_kernels::parity::{Kernel, Request, cases};
use argon_kernels::{Device, Op, Precision};

use crate::faulty::{Careless, Faulty, Planted, SPOTS, Spot, Talkative};

/// The ops of each group, and how many tensors each writes: written down, so that an output that an op no longer declares, and no
/// fault would be planted in, is missed.
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

/// Plants a fault at every spot of every output of every op of `device`: its kernel leaves out one element. Cases that run the
/// op, in these precisions and at most so many of them, must fail and name that element.
pub fn left_out_are_found(device: &dyn Device, precisions: &[Precision], most: usize) {
    // One format of each kind, and plans that the definition is quick with.
    let few = Request { tokens: Some(21), experts: Some(16), gate_up: Some(Format::Q8_0), ..Request::default() };
    let mut faulty_ops = BTreeSet::new();
    for (kernel, ops) in OPS {
        for &(op, outputs) in ops {
            let mut spots = SPOTS.to_vec();
            // Which rows end a tile is up to the plan; only routed products have one.
            spots.extend(["gemm by stok", "gemm of the plan"].contains(&op).then_some(Spot::TileTail));
            for (output, &spot) in (0..outputs).flat_map(|output| spots.iter().map(move |spot| (output, spot))) {
                let mut planted = 0;
                for case in cases::of(kernel, &few, precisions) {
                    let faulty = Faulty::new(device, op, output, spot);
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
                    if planted == most {
                        break;
                    }
                }
                assert!(planted > 0, "{op}, output {output}: no fault at {spot:?}");
            }
        }
    }
    assert_eq!(faulty_ops, Op::VARIANTS.iter().copied().collect(), "every op has a case that finds its faults");
}

/// Has `copy` write a word behind its output: found by every case that has the word looked at.
pub fn beyond_the_end_are_found(device: &dyn Device) {
    let mut planted = 0;
    for case in cases::of(Kernel::Elementwise, &Request::default(), &[Precision::F32]) {
        let faulty = Faulty::new(device, "copy", 0, Spot::Beyond);
        let finding = case.run(&faulty);
        if faulty.planted().is_some() {
            planted += 1;
            let failure = finding.failure.unwrap_or_else(|| panic!("not found in {}", case.name));
            assert!(failure.contains("behind the"), "{failure}");
        }
    }
    assert!(planted > 0);
}

/// Has a word come to the host with every op: found by a case of every group.
pub fn words_to_the_host_are_found(device: &dyn Device) {
    let few = Request { tokens: Some(5), experts: Some(16), ..Request::default() };
    for kernel in Kernel::ALL {
        let case = &cases::of(kernel, &few, &[Precision::F32])[0];
        let failure = case.run(&Talkative::new(device)).failure.unwrap_or_else(|| panic!("{}", case.name));
        assert!(failure.contains("bytes came to the host while ops were enqueued"), "{failure}");
    }
}

/// Has the lowest bit of an input change: found by a case of every group.
pub fn changed_inputs_are_found(device: &dyn Device) {
    let few = Request { tokens: Some(5), experts: Some(16), ..Request::default() };
    for kernel in Kernel::ALL {
        let cases = cases::of(kernel, &few, &[Precision::F32]);
        let failure = cases.iter().find_map(|case| {
            let careless = Careless::new(device);
            let failure = case.run(&careless).failure;
            careless.planted().then(|| failure.unwrap_or_else(|| panic!("not found in {}", case.name)))
        });
        let failure = failure.unwrap_or_else(|| panic!("{} has no inputs", kernel.name()));
        assert!(failure.starts_with("input 0["), "{failure}");
    }
}
