//! Whether weights are inside the range of f16 as operands of the tensor cores.
//!
//! A block's scale times its largest integer can exceed 65504, although no trained model has such weights. They are searched
//! for on the device, in their scales alone, when a weight is prepared or first used. The answer stays there, where products
//! read it, until the host waits for something else anyway ([`settle`]); from then on it launches the right kernel alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon_gguf::Format;
use half::f16;

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::{self, DeviceMemory};
use crate::device::DeviceError;
use crate::tensor::Weight;

/// What the kernel is told of this launch (host.cuh).
pub(super) const HOST: &[(&str, usize)] =
    &[("RANGE_ARGS", size_of::<RangeArgs>()), ("RANGE_SCALE", size_of::<Scale>())];

/// What is known of one weight.
pub(super) struct Range {
    /// On the device: 0, or 1 if it exceeds the range.
    word: DeviceMemory,
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// It is new, or something may have written to it.
    Nothing,
    /// The device has been asked.
    Asked,
    /// Whether it exceeds the range.
    Exceeded(bool),
}

impl Range {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is about to write to the weight's memory.
    pub fn written(&self) {
        *self.known() = Known::Nothing;
    }

    /// Where the device keeps the answer.
    pub fn address(&self) -> u64 {
        self.word.address()
    }

    /// Whether the weight exceeds the range, if the host knows.
    pub fn exceeded(&self) -> Option<bool> {
        match *self.known() {
            Known::Exceeded(exceeded) => Some(exceeded),
            Known::Nothing | Known::Asked => None,
        }
    }
}

/// What is known of a weight; if that is nothing, the device is asked.
pub(super) fn of(device: &CudaDevice, state: &mut State, w: &Weight) -> Result<Arc<Range>, DeviceError> {
    let driver = &device.driver;
    let new = || Ok(Range { word: DeviceMemory::zeroed(driver, 4)?, known: Mutex::new(Known::Nothing) });
    let (range, first, bytes) = memory::range(driver, w, new)?;
    let mut known = range.known();
    if *known != Known::Nothing {
        drop(known);
        return Ok(range);
    }
    let scales = scales(w.format);
    let block = w.format.block_bytes();
    *known = if scales.is_empty() {
        Known::Exceeded(false)
    } else if !w.row_bytes.is_multiple_of(block) || !w.expert_bytes.is_multiple_of(block) {
        Known::Exceeded(true) // no whole blocks one after another: nothing is known of them
    } else {
        search(device, state, &scales, [first, (bytes / block) as u64, block as u64], range.address())?;
        device.driver.meet()?; // whichever stream asks for the answer
        state.asked.push(range.clone());
        Known::Asked
    };
    drop(known);
    Ok(range)
}

/// `RangeArgs` of range.cu.
#[repr(C)]
struct RangeArgs {
    blocks: u64,
    count: u64,
    exceeded: u64,
    block_bytes: u32,
    scales: u32,
    scale: [Scale; 2],
}

/// Enqueues a search through blocks: address, number and bytes of each.
fn search(
    device: &CudaDevice,
    state: &mut State,
    scales: &[Scale],
    [blocks, count, block_bytes]: [u64; 3],
    exceeded: u64,
) -> Result<(), DeviceError> {
    let mut scale = [Scale::default(); 2];
    scale[..scales.len()].copy_from_slice(scales);
    let args =
        RangeArgs { blocks, count, exceeded, block_bytes: block_bytes as u32, scales: scales.len() as u32, scale };
    let launch = Launch { grid: [8 * device.machine().processors, 1, 1], block: 256, shared: 0 };
    // SAFETY: the answer is this long; `RangeArgs` of range.cu, the blocks are inside their buffer (`memory::range`).
    unsafe {
        device.driver.zero(exceeded, 4)?;
        device.launch(state, ("range.cu", "exceeds_f16"), launch, &args)
    }
}

/// Brings the answers to the host, which waits for the device.
pub(super) fn settle(device: &CudaDevice, state: &mut State) -> Result<(), DeviceError> {
    for range in std::mem::take(&mut state.asked) {
        let mut word = [0; 4];
        // SAFETY: the answer is this long.
        unsafe { device.driver.download(&mut word, range.address(), 4, 4) }?;
        let mut known = range.known();
        if *known == Known::Asked {
            *known = Known::Exceeded(word != [0; 4]);
        }
    }
    Ok(())
}

/// One scale of a block (`Scale` in range.cu).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Scale {
    /// Its place.
    at: u32,
    /// One or two.
    bytes: u32,
    /// What of it counts.
    mask: u32,
    /// The largest that fits.
    most: u32,
}

/// The scales of a format's blocks that can be too large, with the largest for which every operand, and every number on the way
/// to it in decode.cuh, is finite in f16. Where two numbers are added, each may have half.
fn scales(format: Format) -> Vec<Scale> {
    use Format::*;
    let half = |at, largest: f32| {
        let limit = 65504.0 / largest;
        let nearest = f16::from_f32(limit);
        let most = u32::from(nearest.to_bits()) - u32::from(nearest.to_f32() > limit);
        Scale { at, bytes: 2, mask: 0x7fff, most }
    };
    match format {
        BF16 => vec![Scale { at: 0, bytes: 2, mask: 0x7fff, most: 0x477f }], // 65280
        Q8_0 => vec![half(0, 128.0)],
        Q4_0 => vec![half(0, 8.0)],
        Q5_0 => vec![half(0, 16.0)],
        Q4_1 => vec![half(0, 2.0 * 15.0), half(2, 2.0)],
        Q5_1 => vec![half(0, 2.0 * 31.0), half(2, 2.0)],
        Q2_K => vec![half(80, 2.0 * 15.0 * 3.0), half(82, 2.0 * 15.0)],
        Q3_K => vec![half(108, 32.0 * 4.0)],
        Q4_K => vec![half(0, 2.0 * 63.0 * 15.0), half(2, 2.0 * 63.0)],
        Q5_K => vec![half(0, 2.0 * 63.0 * 31.0), half(2, 2.0 * 63.0)],
        Q6_K => vec![half(208, 128.0 * 32.0)],
        IQ2_XXS | IQ2_XS | IQ2_S => vec![half(0, 31.0 * 43.0 / 8.0)],
        IQ3_XXS => vec![half(0, 31.0 * 62.0 / 4.0)],
        IQ3_S => vec![half(0, 31.0 * 15.0)],
        IQ1_S => vec![half(0, 15.0 * 1.125)],
        // The top nibble of the scale, above which magnitudes begin at 512.
        IQ1_M => vec![Scale { at: 55, bytes: 1, mask: 0x70, most: 0x50 }],
        IQ4_NL => vec![half(0, 127.0)],
        IQ4_XS => vec![half(0, 32.0 * 127.0)],
        TQ2_0 => vec![half(64, 2.0)],
        Q2_0 => vec![half(0, 2.0)],
        MXFP4 => vec![Scale { at: 0, bytes: 1, mask: 0xff, most: 140 }], // 2^12 times 12
        // Scales times 1, and 8-bit floats times 12.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::weights::{Rng, random};
    use argon_gguf::decode_row;

    /// The largest magnitude of weights whose scales are all as large as `raise` says.
    fn largest(format: Format, raise: impl Fn(&Scale) -> u32) -> f32 {
        let len = 512 * format.block_len();
        let mut bytes = random(format, len, &mut Rng::new(3));
        for block in bytes.chunks_exact_mut(format.block_bytes()) {
            for scale in scales(format) {
                let at = scale.at as usize;
                let keep = if at.is_multiple_of(2) { 0 } else { 0x80 }; // signs as they fall
                match scale.bytes {
                    1 if scale.mask == 0xff => block[at] = raise(&scale) as u8,
                    1 => block[at] = block[at] & (0x0f | keep) | raise(&scale) as u8,
                    _ => block[at..at + 2].copy_from_slice(&(raise(&scale) as u16).to_le_bytes()),
                }
            }
        }
        let mut values = vec![0f32; len];
        decode_row(format, &bytes, &mut values);
        values.iter().fold(0f32, |most, x| most.max(x.abs()))
    }

    #[test]
    fn the_largest_scales_that_fit_give_finite_operands() {
        for format in Format::ALL.iter().copied().filter(|format| format.is_weight() && *format != Format::F32) {
            let most = largest(format, |scale| scale.most);
            assert!(most < 65520.0, "{format}: {most}");
        }
    }

    #[test]
    fn sixteen_times_the_largest_scales_do_not_fit() {
        // Four more in an exponent; of IQ1_M's nibble the next, which begins at four less than it ends.
        let raise = |scale: &Scale| match (scale.bytes, scale.mask) {
            (1, 0x70) => 0x70,
            (1, _) => scale.most + 4,
            _ => (scale.most + (4 << 10)).min(0x7bff),
        };
        for format in Format::ALL.iter().copied().filter(|format| format.is_weight() && !scales(*format).is_empty()) {
            if format == Format::BF16 {
                continue; // its exponent is somewhere else
            }
            let most = largest(format, raise);
            assert!(most >= 65520.0, "{format}: {most}");
        }
    }
}
