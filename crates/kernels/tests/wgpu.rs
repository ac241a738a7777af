//! The wgpu device against the reference: every op's parity tests, and what only this backend has.
//!
//! On a machine without an adapter these tests do nothing, and one line on the standard error stream says so and why; with
//! `ARGON_REQUIRE_WGPU=1` in the environment they fail there. With `ARGON_WGPU_TIER=subgroups` they fail where
//! no kernel uses subgroups, with `cooperative` where products are not made of matrices either.
#![cfg(feature = "wgpu")]

use std::cell::OnceCell;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use argon_kernels::Device;
use argon_kernels::wgpu::{Allowed, Products, WgpuDevice, WgpuOptions};

#[path = "parity/ops.rs"]
mod ops;
mod support;

#[path = "parity/fixtures.rs"]
mod fixtures;

#[path = "kernels/faults.rs"]
mod faults;
#[path = "kernels/faulty.rs"]
mod faulty;

#[path = "wgpu/formats.rs"]
mod formats;
#[path = "wgpu/products.rs"]
mod products;
#[cfg(feature = "wgpu-translate")]
#[path = "wgpu/translate.rs"]
mod translate;

use ops::harness::Tested;

/// Kernels that check every index: what a wrong one would do is seen here and not on somebody's machine.
pub fn options() -> WgpuOptions {
    WgpuOptions { checked: true, ..WgpuOptions::default() }
}

fn open(options: WgpuOptions) -> Option<Arc<WgpuDevice>> {
    match WgpuDevice::new(options) {
        Ok(device) => Some(Arc::new(device)),
        Err(why) => {
            assert!(std::env::var_os("ARGON_REQUIRE_WGPU").is_none(), "an adapter is required: {why}");
            // Past the harness, which shows what a test prints only when it fails.
            let _ = writeln!(std::io::stderr(), "skipped: wgpu tests need an adapter: {why}");
            None
        }
    }
}

/// The machine's first adapter, opened once.
pub fn gpu() -> Option<Arc<WgpuDevice>> {
    static GPU: OnceLock<Option<Arc<WgpuDevice>>> = OnceLock::new();
    let device = GPU.get_or_init(|| {
        let device = open(options())?;
        let (name, tier) = (device.info().name, device.tier());
        let details = device.info().details;
        let wanted = std::env::var("ARGON_WGPU_TIER").unwrap_or_default();
        assert!(wanted.is_empty() || tier.subgroups.is_some(), "{name} has no subgroups");
        let by_matrices = matches!(tier.products, Products::Cooperative(_));
        assert!(wanted != "cooperative" || by_matrices, "{name} has no matrices");
        let _ = writeln!(std::io::stderr(), "wgpu tests run on {name} ({details})");
        Some(device)
    });
    device.clone()
}

/// The same adapter, of which only what every adapter has is used.
pub fn portable() -> WgpuOptions {
    WgpuOptions { allowed: Allowed { f16: false, subgroups: false, matrices: false }, ..options() }
}

/// The same adapter with limits so low (and yet enough for a workgroup for each of 2049 experts) that grids are folded, weights
/// lie in several buffers, and a call is cut into many.
fn low_limits() -> WgpuOptions {
    WgpuOptions { max_groups: Some(50), max_binding: Some(1 << 20), work_per_submit: 1 << 20, ..options() }
}

/// Limits that no kernel can keep are refused when the device is opened.
#[test]
fn limits_that_are_too_low() {
    if gpu().is_none() {
        return;
    }
    let refused = |options: WgpuOptions| WgpuDevice::new(options).err().expect("too low").to_string();
    let binding = refused(WgpuOptions { max_binding: Some(0), ..options() });
    assert_eq!(binding, "wgpu:0 does not support kernels that need 16384 bytes in a binding: they may have 0");
    let groups = refused(WgpuOptions { max_groups: Some(0), ..options() });
    assert_eq!(groups, "wgpu:0 does not support kernels that need 1 workgroups in each direction: they may have 0");
}

const PORTABLE: &str = "wgpu, portable";

thread_local! {
    /// The devices of one test: an op that is to fail is not to be reported to a test beside it.
    static OWN: OnceCell<Vec<(&'static str, Arc<WgpuDevice>)>> = const { OnceCell::new() };
}

/// With the adapter's limits and with low ones, for the tests that all devices share: they agree to the bit. And without what not
/// every adapter has.
pub fn devices() -> Vec<Tested> {
    if gpu().is_none() {
        return Vec::new();
    }
    let tested = |(name, gpu): &(&'static str, Arc<WgpuDevice>)| Tested {
        name: String::from(*name),
        bits: if *name == PORTABLE { PORTABLE } else { "wgpu" },
        device: gpu.clone(),
    };
    OWN.with(|own| {
        let found = || {
            let found = [("wgpu", options()), ("wgpu with low limits", low_limits()), (PORTABLE, portable())];
            found.into_iter().filter_map(|(name, options)| Some((name, open(options)?))).collect()
        };
        own.get_or_init(found).iter().map(tested).collect()
    })
}

/// The comparison of `argon parity` finds what this device's kernels would get wrong, as it does on the processor: at
/// every spot of every output of every op, in one case each.
#[test]
fn faults_planted_in_this_device_are_found() {
    if let Some(gpu) = gpu() {
        faults::left_out_are_found(&*gpu, &[argon_kernels::Precision::F32], 1);
        faults::beyond_the_end_are_found(&*gpu);
        faults::words_to_the_host_are_found(&*gpu);
        faults::changed_inputs_are_found(&*gpu);
    }
}
