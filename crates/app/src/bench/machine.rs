//! What is measured on, and its ceilings: how fast memory and arithmetic can be there, measured by this program itself.

use argon_gguf::{Bytes, Format};
use argon_kernels::cpu::{CpuDevice, CpuOptions};
use argon_kernels::device::{Clock, tensor};
use argon_kernels::op::{Copy, Epilogue, Gemm, RowMap};
use argon_kernels::{DType, Device, DeviceError, Op, Precision, Weight};
use serde::Serialize;

use crate::measure::times::Times;
use crate::{device, settings};

/// A device and its ceilings.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// As `--device` names it.
    pub device: String,
    /// What it is.
    pub name: String,
    /// Driver, kernels in use, limits, where the name does not say them.
    pub details: String,
    /// The precision of products.
    pub precision: &'static str,
    /// Whose clock.
    pub clock: &'static str,
    /// Bytes a second that memory gives.
    pub memory_bytes_per_s: f64,
    /// How that was measured.
    pub memory_how: &'static str,
    /// Operations a second of products in this precision; a multiply-add is two.
    pub operations_per_s: f64,
    /// How that was measured.
    pub operations_how: &'static str,
    /// Operations a second of products with weights that are plain floats, where they are not computed in the precision's
    /// own way.
    pub float_operations_per_s: Option<f64>,
    /// Bytes of the last cache, where the system tells.
    pub cache_bytes: Option<u64>,
}

impl Machine {
    /// Measures the ceilings of `device`, which `settings` describes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn measure(
        device: &dyn Device,
        settings: &settings::Device,
        precision: Precision,
    ) -> Result<Self, DeviceError> {
        let info = device.info();
        let ceilings = match info.id.as_str() {
            "cpu" => of_cpu(settings, precision)?,
            _ => of_any(device, precision)?,
        };
        Ok(Machine {
            precision: precision.name(),
            clock: match device.clock() {
                Clock::Host => "the host's clock, around work and the wait for its end",
                Clock::Device => "the device's events",
            },
            cache_bytes: (info.id == "cpu").then(last_cache).flatten(),
            memory_bytes_per_s: ceilings.memory.0,
            memory_how: ceilings.memory.1,
            operations_per_s: ceilings.operations.0,
            operations_how: ceilings.operations.1,
            float_operations_per_s: ceilings.floats,
            device: info.id,
            name: info.name,
            details: info.details,
        })
    }
}

impl Machine {
    /// What to tell a reader if the ceilings are others than they were: something else had part of the machine.
    pub fn unlike(&self, again: &Machine) -> Option<String> {
        let change = |before: f64, after: f64| (after / before - 1.0).abs();
        let memory = change(self.memory_bytes_per_s, again.memory_bytes_per_s);
        let operations = change(self.operations_per_s, again.operations_per_s);
        (memory.max(operations) > QUIET).then(|| {
            format!(
                "the machine was not quiet: before and after, memory gave {:.1} and {:.1} GB/s, products {:.0} and {:.0} GOP/s",
                self.memory_bytes_per_s / 1e9,
                again.memory_bytes_per_s / 1e9,
                self.operations_per_s / 1e9,
                again.operations_per_s / 1e9,
            )
        })
    }

    /// The ceilings in a sentence.
    pub fn ceilings(&self) -> String {
        let (memory, products) = (self.memory_bytes_per_s / 1e9, self.operations_per_s / 1e9);
        let floats = self.float_operations_per_s.filter(|&floats| floats != self.operations_per_s);
        let floats = floats.map_or_else(String::new, |floats| {
            format!(", with weights that are plain floats {:.0} GOP/s", floats / 1e9)
        });
        format!(
            "ceilings, measured: memory {memory:.1} GB/s ({}), products {products:.0} GOP/s ({}){floats}",
            self.memory_how, self.operations_how
        )
    }

    /// Operations a second that products with weights in `format` can reach.
    pub fn operations_of(&self, format: Format) -> f64 {
        self.float_operations_per_s.filter(|_| format.block_len() == 1).unwrap_or(self.operations_per_s)
    }
}

/// How far two measurements of a ceiling differ on a machine that does nothing else.
const QUIET: f64 = 0.2;

/// Numbers with how they were measured.
struct Ceilings {
    memory: (f64, &'static str),
    operations: (f64, &'static str),
    floats: Option<f64>,
}

fn of_cpu(settings: &settings::Device, precision: Precision) -> Result<Ceilings, DeviceError> {
    let peaks = CpuDevice::new(CpuOptions { threads: settings.threads, ..device::cpu()? })?.peaks()?;
    Ok(Ceilings {
        memory: (peaks.read, "all threads read 512 MiB"),
        operations: match precision {
            Precision::Int8 => (peaks.int8, "8-bit products with 32-bit sums, in registers"),
            Precision::F16 => (peaks.int8 / 2.0, "half the rate of 8-bit products: activations are two planes of them"),
            _ => (peaks.f32, "f32 multiply-adds in registers"),
        },
        floats: Some(peaks.f32),
    })
}

/// Seconds of a piece of work that is long enough to be measured.
const LONG_ENOUGH: f64 = 0.02;

/// A device of which nothing is known: a copy and a product, as large as it takes to keep it busy.
fn of_any(device: &dyn Device, precision: Precision) -> Result<Ceilings, DeviceError> {
    let copied = largest(
        1 << 20,
        1 << 30,
        |bytes| {
            let half = |_| tensor(device, DType::F32, bytes / 4096, 1, 1024);
            let (src, dst) = (half(0)?, half(1)?);
            Ok((Op::from(Copy { src, dst }), 2.0 * bytes as f64))
        },
        device,
    )?;
    let multiplied = largest(
        128,
        8192,
        |n| {
            let w = device.constant(Bytes::from(vec![0x2c; 2 * n * n]))?;
            let w = Weight::dense(w, Format::F16, 1, n, n)
                .ok_or(DeviceError::OutOfMemory { device: device.info().id, bytes: 2 * n * n })?;
            let (x, out) = (tensor(device, DType::F32, n, 1, n)?, tensor(device, DType::F32, n, 1, n)?);
            let gemm = Gemm { x, w, bias: None, rows: RowMap::Identity, epilogue: Epilogue::Store, precision, out };
            Ok((Op::from(gemm), 2.0 * (n as f64).powi(3)))
        },
        device,
    )?;
    Ok(Ceilings {
        memory: (copied, "a copy, bytes read and bytes written together"),
        operations: (multiplied, "Argon's own dense product with F16 weights, not what the card could do"),
        floats: None,
    })
}

/// The work a second of an op, doubled in size from `least` on until it takes long enough or has the size `most`.
fn largest(
    least: usize,
    most: usize,
    op: impl Fn(usize) -> Result<(Op, f64), DeviceError>,
    device: &dyn Device,
) -> Result<f64, DeviceError> {
    let mut size = least;
    loop {
        let (op, work) = op(size)?;
        let once = |_| device.elapsed(&mut || device.enqueue(&op));
        if size >= most || once(0)?.min(once(1)?) >= LONG_ENOUGH {
            let times = Times::measure(Some(7), once)?;
            return Ok(work / times.p10);
        }
        size *= 2;
    }
}

/// Bytes of the largest cache of the first processor, where Linux tells.
fn last_cache() -> Option<u64> {
    let dir = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = dir.flatten().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.path().join("size")).ok()?;
        let text = text.trim();
        match (text.strip_suffix('K'), text.strip_suffix('M')) {
            (Some(kib), _) => Some(kib.parse::<u64>().ok()? << 10),
            (_, Some(mib)) => Some(mib.parse::<u64>().ok()? << 20),
            _ => text.parse().ok(),
        }
    });
    sizes.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(memory: f64, operations: f64) -> Machine {
        Machine {
            device: "cpu".into(),
            name: "a processor".into(),
            details: String::new(),
            precision: "int8",
            clock: "a clock",
            memory_bytes_per_s: memory,
            memory_how: "",
            operations_per_s: operations,
            operations_how: "",
            float_operations_per_s: Some(operations / 4.0),
            cache_bytes: None,
        }
    }

    #[test]
    fn a_machine_that_was_shared_is_told() {
        let before = machine(20e9, 900e9);
        assert_eq!(before.unlike(&machine(22e9, 850e9)), None);
        let note = before.unlike(&machine(21e9, 450e9)).unwrap();
        assert!(note.ends_with("memory gave 20.0 and 21.0 GB/s, products 900 and 450 GOP/s"), "{note}");
    }

    #[test]
    fn plain_floats_have_a_ceiling_of_their_own() {
        let machine = machine(1.0, 8.0);
        assert_eq!([Format::F32, Format::BF16, Format::Q8_0].map(|f| machine.operations_of(f)), [2.0, 2.0, 8.0]);
    }
}
