//! A device beside the reference, kernel by kernel: what `argon parity` runs, and what it says.
//!
//! A [`Case`] draws operands and enqueues ops in an [`Arena`]; it runs on the device, twice, and on the reference, and what
//! it wrote is compared:
//!
//! * integers, decoded weights and conversions: byte for byte;
//! * other floats: by their relative L2 distance (of the rows, in the root mean square) to reference **A**, float64 on the
//!   exact operands, and, for products that round their operands, to reference **B**, float64 on the operands as the device
//!   rounds them ([`rounded`]);
//! * what came to the host while ops were enqueued: nothing;
//! * whatever nobody should write (inputs, padding rows, words beside a tensor): it still holds what was there before.
//!
//! * [`cases`]: the cases of each [`Kernel`], and the ops that they and the tests are made of.
//! * [`compare`]: how what two devices wrote is compared.
//! * [`weights`]: random numbers and random weights of every format.

mod arena;
pub mod cases;
pub mod compare;
pub mod rounded;
pub mod weights;

use argon_gguf::Format;

use crate::cpu::{CpuDevice, CpuOptions};
use crate::device::{Device, DeviceError};
use crate::op::Precision;
use crate::reference::ReferenceDevice;
use arena::Rounding;
pub use arena::{Arena, Layout, Result};
use compare::{Distances, Written};

/// A group of kernels that are compared together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Which row of which expert each routed token becomes.
    Plan,
    /// Rows of activations, and of tables in every format.
    Gather,
    /// Products with one matrix, of every format.
    Dense,
    /// A mixture-of-experts layer after routing.
    Moe,
    /// The choice of experts.
    Route,
    /// Copies, sums, norms, rotations.
    Elementwise,
    /// Hyper-connections and the n-gram gate.
    Hyper,
    /// The convolution and the gated delta rule.
    Delta,
    /// Attention and the indexer that chooses its keys.
    Attention,
}

impl Kernel {
    /// All of them, in the order in which a layer runs them.
    pub const ALL: [Self; 9] = [
        Self::Plan,
        Self::Gather,
        Self::Dense,
        Self::Moe,
        Self::Route,
        Self::Elementwise,
        Self::Hyper,
        Self::Delta,
        Self::Attention,
    ];

    /// The name a person types.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Gather => "gather",
            Self::Dense => "dense",
            Self::Moe => "moe",
            Self::Route => "route",
            Self::Elementwise => "elementwise",
            Self::Hyper => "hyper",
            Self::Delta => "delta",
            Self::Attention => "attention",
        }
    }
}

/// What a person asked for instead of the sizes and formats that each case has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// T.
    pub tokens: Option<usize>,
    /// E.
    pub experts: Option<usize>,
    /// K.
    pub top_k: Option<usize>,
    /// Of the random numbers.
    pub seed: u64,
    /// Format of gate and up, and of dense weights.
    pub gate_up: Option<Format>,
    /// Format of down.
    pub down: Option<Format>,
}

/// How exact a case must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The same bytes as the reference, or, for plans too large for the definition, as the processor.
    Exact,
    /// The largest relative L2 distance to the references A and, where operands are rounded, B.
    Within {
        /// To float64 on the exact operands.
        a: f64,
        /// To float64 on the device's own operands.
        b: Option<f64>,
    },
}

/// Draws operands and enqueues ops.
type Work = Box<dyn Fn(&Arena) -> Result>;

/// Something to compare.
pub struct Case {
    /// The group that it belongs to.
    pub kernel: Kernel,
    /// What it is, for a person.
    pub name: String,
    /// The precision of its products, where it has some.
    pub precision: Option<Precision>,
    /// How exact it must be.
    pub bound: Bound,
    seed: u64,
    /// Whether the reference would take too long.
    large: bool,
    work: Work,
}

/// A distance and the largest that is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Relative L2.
    pub found: f64,
    /// The bound.
    pub bound: f64,
}

/// What a case found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finding {
    /// Distance to reference A; none of an exact case.
    pub a: Option<Distance>,
    /// Distance to reference B.
    pub b: Option<Distance>,
    /// What is wrong, with the first differing or the worst coordinate.
    pub failure: Option<String>,
    /// Why the device does not do this at all, if it says so instead of running it.
    pub refused: Option<String>,
}

impl Case {
    /// Runs the case on `device` and on the reference.
    pub fn run(&self, device: &dyn Device) -> Finding {
        let mut finding = Finding::default();
        match self.written(device, device, None) {
            Err(refusal @ DeviceError::Unsupported { .. }) => finding.refused = Some(refusal.to_string()),
            got => finding.failure = self.compare(device, got, &mut finding).err(),
        }
        finding
    }

    /// Runs the case once on `device`, and compares with reference A alone.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run_once(&self, device: &dyn Device) -> Result<(), String> {
        let got = self.written(device, device, None).map_err(|error| format!("it does not run: {error}"))?;
        let want = self.judge(device, None).map_err(|error| format!("the reference: {error}"))?;
        compare::same_inputs(&got, &want)?;
        match self.bound {
            Bound::Exact => compare::exact(&got, &want),
            Bound::Within { a, .. } => within(&compare::distance(&got, &want)?, a, "A"),
        }
    }

    /// Compares what a first run wrote.
    fn compare(&self, device: &dyn Device, got: Result<Vec<Written>>, finding: &mut Finding) -> Result<(), String> {
        let failed = |what: &str, error: DeviceError| format!("{what}: {error}");
        let of_device = |error| failed("it does not run", error);
        let got = got.map_err(of_device)?;
        let again = self.written(device, device, None).map_err(of_device)?;
        compare::same_bits(&got, &again).map_err(|difference| format!("two runs differ: {difference}"))?;
        let want = self.judge(device, None).map_err(|error| failed("the reference", error))?;
        if !compare::same_shapes(&got, &want) {
            return Err(String::from("the device and the reference have outputs of different shapes"));
        }
        compare::same_inputs(&got, &want)?;
        match self.bound {
            Bound::Exact => compare::exact(&got, &want),
            Bound::Within { a, b } => {
                let to_a = compare::distance(&got, &want)?;
                finding.a = Some(Distance { found: to_a.relative, bound: a });
                within(&to_a, a, "A")?;
                let Some(b) = b else { return Ok(()) };
                let want = self
                    .judge(device, Some(Rounding { device, found: &got }))
                    .map_err(|error| failed("reference B", error))?;
                let to_b = compare::distance(&got, &want)?;
                finding.b = Some(Distance { found: to_b.relative, bound: b });
                within(&to_b, b, "B")
            }
        }
    }

    /// What the reference writes; with operands as `rounding` rounds them where that is given.
    fn judge(&self, device: &dyn Device, rounding: Option<Rounding>) -> Result<Vec<Written>> {
        match self.large {
            false => self.written(&ReferenceDevice::default(), device, rounding),
            true => self.written(&CpuDevice::new(CpuOptions::default())?, device, rounding),
        }
    }

    fn written(&self, device: &dyn Device, judged: &dyn Device, rounding: Option<Rounding>) -> Result<Vec<Written>> {
        let precision = self.precision.unwrap_or(Precision::F32);
        let mut arena = Arena::new(device, self.seed);
        (arena.judged, arena.rounding, arena.precision) = (judged, rounding, precision);
        let before = device.bytes_to_host();
        (self.work)(&arena)?;
        match device.bytes_to_host() - before {
            0 => arena.written(),
            bytes => Err(DeviceError::Failed {
                device: device.info().id,
                what: format!("{bytes} bytes came to the host while ops were enqueued"),
            }),
        }
    }
}

fn within(found: &Distances, bound: f64, reference: &str) -> Result<(), String> {
    // A NaN is within nothing.
    if found.relative <= bound {
        return Ok(());
    }
    let (found_is, bound_is) = told_apart(found.relative, bound);
    Err(format!("{found_is} from reference {reference}, more than {bound_is}: {}", found.worst))
}

/// Two different numbers with three digits each, or with as many as it takes to see that they differ.
fn told_apart(a: f64, b: f64) -> (String, String) {
    let digits = |n: usize| (format!("{a:.n$e}"), format!("{b:.n$e}"));
    // No number has more than 17 digits.
    (2..17).map(digits).find(|(a, b)| a != b).unwrap_or_else(|| digits(17))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beside_its_bound_is_seen_to_be_another() {
        let told = |a, b| {
            let (a, b) = told_apart(a, b);
            format!("{a} {b}")
        };
        assert_eq!(told(1.34e-2, 1.3e-2), "1.34e-2 1.30e-2");
        assert_eq!(told(1.300_04e-2, 1.3e-2), "1.30004e-2 1.30000e-2");
        assert_eq!(told(f64::NAN, 6e-4), "NaN 6.00e-4");
        assert_ne!(told_apart(0.1, 0.1f64.next_up()).0, told_apart(0.1, 0.1f64.next_up()).1);
    }

    /// The case of this name asks for what its name says: rows that no f16 holds, of which the weights in the sum make numbers
    /// that one does.
    #[test]
    fn rows_of_down_exceed_f16_before_they_are_weighted() {
        let mut cases = cases::of(Kernel::Moe, &Request::default(), &[Precision::F32]);
        cases.retain(|case| case.name.ends_with("down beyond f16"));
        let (device, [case]) = (ReferenceDevice::default(), &cases[..]) else { panic!("{} cases", cases.len()) };
        let written = case.written(&device, &device, None).unwrap();
        let most = |name| {
            let output = written.iter().find(|output| output.name == name).unwrap();
            // Padding is as it was.
            let pollution = f32::from_le_bytes(compare::POLLUTION);
            let numbers = output.floats().into_iter().filter(|&x| x != pollution);
            numbers.fold(0f32, |most, x| most.max(x.abs()))
        };
        let (rows, y) = (most("rows"), most("y"));
        assert!(rows > 65504.0 && rows.is_finite() && y > 1.0 && y < 65504.0, "{rows:e} and {y:e}");
    }
}
