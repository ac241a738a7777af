//! Whether a device computes what it should: a plan, and a routed layer over its rows, as [`parity`](crate::parity) has them.
//!
//! Small enough for every start: it decides whether a device may be chosen without having been named.

use argon_gguf::Format;

use crate::device::Device;
use crate::parity::{Kernel, Request, cases};

/// What a device got wrong first.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{} {case}: {what}", kernel.name())]
pub struct SelfTestError {
    /// The group of the case.
    pub kernel: Kernel,
    /// Its name.
    pub case: String,
    /// Why it does not run, or what differs where.
    pub what: String,
}

/// Runs a plan and a layer on `device`, in its default precision, and on the reference.
///
/// # Errors
/// What the device got wrong first, or why it did not run.
pub fn run(device: &dyn Device) -> Result<(), SelfTestError> {
    let precisions = device.info().precisions;
    // No multiple of a tile in any direction but where blocks of weights want it.
    let request = Request {
        tokens: Some(37),
        top_k: Some(3),
        experts: Some(7),
        gate_up: Some(Format::IQ2_XS),
        down: Some(Format::IQ4_NL),
        ..Request::default()
    };
    for kernel in [Kernel::Plan, Kernel::Moe] {
        let cases = cases::of(kernel, &request, &precisions[..precisions.len().min(1)]);
        if let Some(case) = cases.first() {
            let failed = |what| SelfTestError { kernel, case: case.name.clone(), what };
            case.run_once(device).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{CpuDevice, CpuOptions, Isa};
    use crate::{DeviceError, Op, Wrapper};

    /// A device with another idea of tiles than the reference, and which leaves out an op.
    struct Other {
        device: CpuDevice,
        left_out: &'static str,
    }

    impl Wrapper for Other {
        fn inner(&self) -> &dyn Device {
            &self.device
        }

        fn tile_rows(&self, _: usize, _: usize) -> usize {
            16
        }

        fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
            if op.name() == self.left_out { Ok(()) } else { self.device.enqueue(op) }
        }
    }

    #[test]
    fn tiles_are_the_device_s_own_and_what_is_wrong_is_named() {
        let found = |left_out| {
            let device = CpuDevice::new(CpuOptions::default()).unwrap();
            run(&Other { device, left_out }).map_err(|error| error.to_string())
        };
        assert_eq!(found("nothing"), Ok(()));
        let error = found("plan").unwrap_err();
        assert!(error.starts_with("plan T 37, K 3, E 7") && error.contains(": bcnt[0] is not written"), "{error}");
        let error = found("combine").unwrap_err();
        assert!(
            error.starts_with("moe IQ2_XS and IQ4_NL, T 37") && error.contains(": y[0, 0] is not written"),
            "{error}"
        );
    }

    #[test]
    fn the_processor_passes_with_every_instruction_set() {
        for isa in Isa::available() {
            let device = CpuDevice::new(CpuOptions { isa: Some(isa), ..CpuOptions::default() }).unwrap();
            assert_eq!(run(&device), Ok(()), "{}", isa.name());
        }
    }
}
