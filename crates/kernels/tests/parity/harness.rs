//! Ops in every layout on the reference and on every device, and the comparison of all their memory afterwards.

use std::num::NonZero;
use std::sync::Arc;

use argon_kernels::cpu::{CpuDevice, CpuOptions};
pub use argon_kernels::parity::compare::Tolerance;
use argon_kernels::parity::compare::{Written, each, same_bits};
pub use argon_kernels::parity::{Arena, Layout, Result};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{Device, DeviceError};

/// The devices under test; none on a machine without one.
pub use crate::devices;

/// Of all random numbers.
pub const SEED: u64 = 7;

/// A device under test. Those with one `bits` have to agree to the bit.
pub struct Tested {
    pub name: String,
    pub bits: &'static str,
    pub device: Arc<dyn Device>,
}

pub fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::new(CpuOptions { threads: NonZero::new(threads), ..CpuOptions::default() }).unwrap()
}

const LAYOUTS: [Layout; 3] = [Layout::Dense, Layout::Padded, Layout::GroupMajor];

/// Plans are dense by contract, and so is what follows them.
pub const DENSE: [Layout; 1] = [Layout::Dense];

/// The same bits.
pub const EXACT: Tolerance = Tolerance { abs: 0.0, rel: 0.0 };

/// For values around 1 that go through a handful of f32 operations.
pub const fn within(abs: f64) -> Tolerance {
    Tolerance { abs, rel: abs }
}

/// Does `work` on the reference and on every device, in every layout, and compares.
pub fn parity(tolerance: Tolerance, work: impl Fn(&Arena) -> Result) {
    parity_in(&LAYOUTS, tolerance, |a, _| work(a));
}

/// As [`parity`], where `work` can also be done in several calls: the reference does it for `false`, the devices for `false` and
/// for `true`.
pub fn parity_split(tolerance: Tolerance, work: impl Fn(&Arena, bool) -> Result) {
    parity_in(&LAYOUTS, tolerance, work);
}

/// As [`parity_split`], in some layouts only.
pub fn parity_in(layouts: &[Layout], tolerance: Tolerance, work: impl Fn(&Arena, bool) -> Result) {
    if devices().is_empty() {
        return;
    }
    for &layout in layouts {
        let written = |device: &dyn Device, split| {
            let a = Arena::new(device, SEED).laid_out(layout);
            work(&a, split).and_then(|()| a.written()).unwrap_or_else(|e| panic!("{layout:?}: {e}"))
        };
        let want = written(&ReferenceDevice::default(), false);
        for split in [false, true] {
            let mut first: Vec<(&str, String, Vec<Written>)> = Vec::new();
            for Tested { name, bits, device } in devices() {
                let name = format!("{name}, {layout:?}{}", if split { ", split" } else { "" });
                let got = written(&*device, split);
                each(&got, &want, tolerance).unwrap_or_else(|difference| panic!("{name}: {difference}"));
                match first.iter().find(|(b, ..)| *b == bits) {
                    None => first.push((bits, name, got)),
                    Some((_, other, bits)) => same_bits(&got, bits)
                        .unwrap_or_else(|difference| panic!("{name} is not as {other}: {difference}")),
                }
            }
        }
    }
}

/// Where the calls for `n` tokens begin, and the end: one call or two.
pub fn halves(n: usize, split: bool) -> Vec<usize> {
    if split { vec![0, n / 2, n] } else { vec![0, n] }
}

/// Does `work` on the reference and on every device and gives each answer.
pub fn outcomes(work: impl Fn(&Arena) -> Result) -> Vec<Result> {
    let outcome = |device: &dyn Device| {
        work(&Arena::new(device, SEED))?;
        device.sync()
    };
    let mut outcomes = vec![outcome(&ReferenceDevice::default())];
    outcomes.extend(devices().iter().map(|tested| outcome(&*tested.device)));
    outcomes
}

/// Does `work` everywhere: what it is made of does not fit.
pub fn is_refused(what: &str, work: impl Fn(&Arena) -> Result) {
    for outcome in outcomes(work) {
        assert!(matches!(outcome, Err(DeviceError::Shape { .. })), "{what}: {outcome:?}");
    }
}
