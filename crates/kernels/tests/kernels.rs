//! `argon_kernels::parity` finds nothing wrong with this machine's devices, and finds what is planted.

use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};
use argon_kernels::parity::{Kernel, Request, cases};
use argon_kernels::{Device, Precision};

#[path = "kernels/faults.rs"]
mod faults;
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

#[test]
fn an_element_left_out_is_found_and_named() {
    let device = CpuDevice::new(CpuOptions::default()).unwrap();
    faults::left_out_are_found(&device, &[Precision::F32, Precision::F16, Precision::Int8], usize::MAX);
}

#[test]
fn a_write_beyond_the_end_is_found() {
    faults::beyond_the_end_are_found(&CpuDevice::new(CpuOptions::default()).unwrap());
}

#[test]
fn a_word_that_comes_to_the_host_between_ops_is_found() {
    faults::words_to_the_host_are_found(&CpuDevice::new(CpuOptions::default()).unwrap());
}

#[test]
fn an_input_that_is_changed_is_found() {
    faults::changed_inputs_are_found(&CpuDevice::new(CpuOptions::default()).unwrap());
}
