//! Whether a device computes what it should: a plan, and products over its rows, against the reference.
//!
//! Small enough for every start: it decides whether a device may be chosen without having been named.

use argon_gguf::{Bytes, Format};
use argon_plan::Shape;

use crate::device::{Device, DeviceError, tensor};
use crate::op::{Combine, Epilogue, Gemm, Plan, PlanBuffers, Precision, RowMap};
use crate::parity::weights::{Rng, random};
use crate::reference::ReferenceDevice;
use crate::tensor::{DType, Tensor, Weight};

/// What a device got wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelfTestError {
    /// It does not run at all.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A word of the plan.
    #[error("the plan's entry {entry} is in row {found}, not {expected}")]
    Plan {
        /// Index of the entry.
        entry: usize,
        /// What the device says.
        found: i32,
        /// What is right.
        expected: i32,
    },
    /// A number of the layer.
    #[error("column {column} of token {token} is {found}, not {expected}")]
    Layer {
        /// The token.
        token: usize,
        /// The column.
        column: usize,
        /// What the device says.
        found: f32,
        /// What is right.
        expected: f32,
    },
}

/// The layer: no multiple of a tile in any direction but where blocks of weights want it.
const TOKENS: usize = 37;
const TOP_K: usize = 3;
const EXPERTS: usize = 7;
const HIDDEN: usize = 256;
const WIDTH: usize = 160;

/// The largest difference, as a part of the layer's largest number: 8-bit activations, the coarsest that there are, stay
/// below half of it, and whatever is computed wrongly does not.
const TOLERANCE: f32 = 0.02;

/// Runs one routed layer on `device`, in its default precision, and on the reference.
///
/// # Errors
/// What the device got wrong first, or why it did not run.
pub fn run(device: &dyn Device) -> Result<(), SelfTestError> {
    // The plan is one of the device's tiles.
    let tile = device.tile_rows(TOKENS * TOP_K, EXPERTS);
    let precision = device.info().precisions.first().copied().unwrap_or(Precision::F32);
    let (found, expected) = (layer(device, tile, precision)?, layer(&ReferenceDevice::default(), tile, precision)?);
    let places = found.pos.iter().zip(&expected.pos).enumerate();
    if let Some((entry, (&found, &expected))) = places.clone().find(|(_, (found, expected))| found != expected) {
        return Err(SelfTestError::Plan { entry, found, expected });
    }
    let limit = TOLERANCE * expected.y.iter().fold(0f32, |most, y| most.max(y.abs()));
    // A NaN is close to nothing.
    let close = |found: f32, expected: f32| (found - expected).abs() <= limit;
    let mut numbers = found.y.iter().zip(&expected.y).enumerate();
    match numbers.find(|&(_, (&found, &expected))| !close(found, expected)) {
        None => Ok(()),
        Some((i, (&found, &expected))) => {
            Err(SelfTestError::Layer { token: i / HIDDEN, column: i % HIDDEN, found, expected })
        }
    }
}

/// What a layer leaves behind.
struct Layer {
    /// The plan's rows `[T*K]`.
    pos: Vec<i32>,
    /// `[T, D]`.
    y: Vec<f32>,
}

/// Some experts have no token, some several tiles.
fn layer(device: &dyn Device, tile: usize, precision: Precision) -> Result<Layer, DeviceError> {
    let mut rng = Rng::new(3);
    let entries = TOKENS * TOP_K;
    let chosen: Vec<i32> = (0..entries).map(|_| (rng.below(EXPERTS) * rng.below(EXPERTS) / EXPERTS) as i32).collect();
    let shares: Vec<f32> = (0..entries).map(|_| rng.uniform()).collect();
    let input: Vec<f32> = (0..TOKENS * HIDDEN).map(|_| rng.normal()).collect();
    let mut weight = |format, rows, cols| {
        let bytes = random(format, EXPERTS * rows * cols, &mut rng);
        let buffer = device.constant(Bytes::from(bytes))?;
        let what = || format!("{format} rows of {cols}");
        Weight::dense(buffer, format, EXPERTS, rows, cols)
            .ok_or_else(|| DeviceError::Unsupported { device: device.info().id, what: what() })
    };
    let (gate, up) = (weight(Format::IQ2_XS, WIDTH, HIDDEN)?, weight(Format::IQ2_XS, WIDTH, HIDDEN)?);
    let down = weight(Format::IQ4_NL, HIDDEN, WIDTH)?;

    let shape = Shape::new(TOKENS, TOP_K, EXPERTS, tile)
        .map_err(|error| DeviceError::Shape { op: "plan", what: error.to_string() })?;
    let plan = PlanBuffers::new(device, shape)?;
    let floats = |rows, cols| tensor(device, DType::F32, rows, 1, cols);
    let (ids, weights) = (tensor(device, DType::I32, TOKENS, 1, TOP_K)?, floats(TOKENS, TOP_K)?);
    let (x, hidden) = (floats(TOKENS, HIDDEN)?, floats(shape.max_rows(), WIDTH)?);
    let (rows, y) = (floats(shape.max_rows(), HIDDEN)?, floats(TOKENS, HIDDEN)?);
    device.write(&ids, bytemuck::cast_slice(&chosen))?;
    device.write(&weights, bytemuck::cast_slice(&shares))?;
    device.write(&x, bytemuck::cast_slice(&input))?;

    let gemm = |x: &Tensor, w, rows, epilogue, out: &Tensor| Gemm {
        x: x.clone(),
        w,
        bias: None,
        rows,
        epilogue,
        precision,
        out: out.clone(),
    };
    device.enqueue(&Plan { ids, weights: weights.clone(), plan: plan.clone() }.into())?;
    device.enqueue(&gemm(&x, gate, RowMap::Gather(plan.clone()), Epilogue::SwiGlu { up }, &hidden).into())?;
    device.enqueue(&gemm(&hidden, down, RowMap::Segments(plan.clone()), Epilogue::Store, &rows).into())?;
    let pos = plan.pos.clone();
    device.enqueue(&Combine { rows, weights, plan, shared: None, accumulate: false, out: y.clone() }.into())?;

    let mut found = Layer { pos: vec![0; entries], y: vec![0.0; TOKENS * HIDDEN] };
    device.read(&pos, bytemuck::cast_slice_mut(&mut found.pos))?;
    device.read(&y, bytemuck::cast_slice_mut(&mut found.y))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{CpuDevice, CpuOptions, Isa};

    /// A device with another idea of tiles than the reference, and one that gets a number wrong.
    struct Other {
        device: CpuDevice,
        wrong: bool,
    }

    impl Device for Other {
        fn info(&self) -> crate::DeviceInfo {
            self.device.info()
        }

        fn tile_rows(&self, _: usize, _: usize) -> usize {
            16
        }

        fn alloc(&self, bytes: usize) -> Result<crate::Buffer, DeviceError> {
            self.device.alloc(bytes)
        }

        fn constant(&self, bytes: Bytes) -> Result<crate::Buffer, DeviceError> {
            self.device.constant(bytes)
        }

        fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
            self.device.write(dst, bytes)
        }

        fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
            self.device.read(src, bytes)?;
            if self.wrong && src.dtype == DType::F32 {
                let last = bytes.len() - 4;
                bytes[last..].copy_from_slice(&f32::NAN.to_ne_bytes());
            }
            Ok(())
        }

        fn enqueue(&self, op: &crate::Op) -> Result<(), DeviceError> {
            self.device.enqueue(op)
        }

        fn sync(&self) -> Result<(), DeviceError> {
            self.device.sync()
        }
    }

    #[test]
    fn tiles_are_the_device_s_own_and_a_wrong_number_is_named() {
        let other = |wrong| Other { device: CpuDevice::new(CpuOptions::default()).unwrap(), wrong };
        assert_eq!(run(&other(false)), Ok(()));
        let error = run(&other(true)).unwrap_err().to_string();
        assert!(error.starts_with("column 255 of token 36 is NaN, not "), "{error}");
    }

    #[test]
    fn the_processor_passes_with_every_instruction_set() {
        for isa in Isa::available() {
            let device = CpuDevice::new(CpuOptions { isa: Some(isa), ..CpuOptions::default() }).unwrap();
            assert_eq!(run(&device), Ok(()), "{}", isa.name());
        }
    }
}
