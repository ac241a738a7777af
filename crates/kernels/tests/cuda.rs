//! The CUDA device against the reference: every op's parity tests, and what only this backend has.
//!
//! On a machine without a usable GPU these tests do nothing, and one line on the standard error stream says so and why.
#![cfg(feature = "cuda")]

use std::cell::OnceCell;
use std::io::Write;
use std::sync::{Arc, Once};

use argon_kernels::cuda::{CudaDevice, CudaOptions};

/// A test of each format that weights come in.
macro_rules! each_format {
    ($($name:ident $format:ident),* $(,)?) => {
        each_format! { @of crate::formats::check, operands_of, $($name $format),* }
        each_format! { @of crate::products::check_format, products_of, $($name $format),* }

        #[test]
        fn every_format_has_a_test() {
            let listed = [$(argon_gguf::Format::$format),*];
            assert!(argon_gguf::Format::weights().all(|format| listed.contains(&format)));
        }
    };
    (@of $check:path, $module:ident, $($name:ident $format:ident),*) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    $check(argon_gguf::Format::$format);
                }
            )*
        }
    };
}

#[path = "parity/ops.rs"]
mod ops;
mod support;

#[path = "kernels/faults.rs"]
mod faults;
#[path = "kernels/faulty.rs"]
mod faulty;

#[path = "cuda/everything.rs"]
mod everything;
#[path = "cuda/formats.rs"]
mod formats;
#[path = "cuda/layer.rs"]
mod layer;
#[path = "cuda/plans.rs"]
mod plans;
#[path = "cuda/products.rs"]
mod products;
#[path = "cuda/streams.rs"]
mod streams;

use ops::harness::Tested;

each_format! {
    f32 F32, f16 F16, bf16 BF16, q8_0 Q8_0, q4_0 Q4_0, q4_1 Q4_1, q5_0 Q5_0, q5_1 Q5_1, q2_k Q2_K, q3_k Q3_K, q4_k Q4_K,
    q5_k Q5_K, q6_k Q6_K, iq1_s IQ1_S, iq1_m IQ1_M, iq2_xxs IQ2_XXS, iq2_xs IQ2_XS, iq2_s IQ2_S, iq3_xxs IQ3_XXS,
    iq3_s IQ3_S, iq4_nl IQ4_NL, iq4_xs IQ4_XS, tq1_0 TQ1_0, tq2_0 TQ2_0, mxfp4 MXFP4, nvfp4 NVFP4, q1_0 Q1_0, q2_0 Q2_0,
}

thread_local! {
    /// Each test has a device of its own: an op that is to fail is not to be reported to a test beside it, and what a test records
    /// is not to be another's.
    static GPU: OnceCell<Option<Arc<CudaDevice>>> = const { OnceCell::new() };
}

/// The machine's first GPU; none, and once a line that says why, where there is none.
pub fn gpu() -> Option<Arc<CudaDevice>> {
    static SKIPPED: Once = Once::new();
    let open = || match CudaDevice::new(options()) {
        Ok(device) => Some(Arc::new(device)),
        Err(why) => {
            // Past the harness, which shows what a test prints only when it fails.
            SKIPPED.call_once(|| drop(writeln!(std::io::stderr(), "skipped: CUDA tests need a GPU: {why}")));
            None
        }
    };
    GPU.with(|gpu| gpu.get_or_init(open).clone())
}

/// Compiled kernels are kept from one run to the next.
pub fn options() -> CudaOptions {
    CudaOptions { cache: Some(std::env::temp_dir().join("argon-cuda-tests")), ..CudaOptions::default() }
}

/// The GPU, for the tests that all devices share.
pub fn devices() -> Vec<Tested> {
    let tested = |gpu: Arc<CudaDevice>| Tested { name: "cuda".into(), bits: "cuda", device: gpu };
    gpu().map(tested).into_iter().collect()
}

/// The comparison of `argon parity` finds what this device's kernels would get wrong, as it does on the processor.
#[test]
fn faults_planted_in_this_device_are_found() {
    if let Some(gpu) = gpu() {
        faults::left_out_are_found(&*gpu, &[argon_kernels::Precision::F16], 1);
        faults::beyond_the_end_are_found(&*gpu);
        faults::words_to_the_host_are_found(&*gpu);
        faults::changed_inputs_are_found(&*gpu);
    }
}
