//! What every bench of kernels begins and ends with: a device, its ceilings, the clock, the files to write.

use std::sync::Arc;

use argon_kernels::device::{tensor, upload};
use argon_kernels::{DType, Device, DeviceError, DeviceInfo, Op, Precision, Tensor};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde_json::{Map, Value};

use super::args::CommonArgs;
use super::machine::Machine;
use super::outputs::{self, CutShort, Ended, OutputArgs};
use super::page;
use super::report::Report;
use crate::about::About;
use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::measure::load;
use crate::measure::times::Times;
use crate::{device, settings, words};

/// A device that is ready to be measured.
#[derive(Clone)]
pub struct Setup {
    /// What computes.
    pub device: Arc<dyn Device>,
    /// What the user said of it.
    pub settings: settings::Device,
    /// Of products.
    pub precision: Precision,
    /// Its ceilings.
    pub machine: Machine,
    /// How often each is measured; by the clock where absent.
    pub repetitions: Option<usize>,
    /// Asks to stop between two runs.
    interrupt: Interrupt,
    about: About,
    bench: &'static str,
    outputs: OutputArgs,
    /// Said before anything was measured.
    busy: Option<String>,
}

impl Setup {
    /// Finds the device, measures its ceilings, and says on standard error what it is.
    ///
    /// # Errors
    /// Of the input or of the device.
    pub fn new(bench: &'static str, args: CommonArgs) -> Result<Setup, Failure> {
        let repetitions = args.repetitions()?;
        args.outputs.check([])?;
        let settings = settings::Device::try_from(args.device)?;
        let busy = load::warning(settings.threads());
        let device = device::open(&settings, 0)?;
        let info = device.info();
        let precision = match settings.precision {
            None => info.precisions.first().copied().unwrap_or(Precision::F32),
            Some(wanted) if info.precisions.contains(&wanted) => wanted,
            Some(wanted) => {
                let names: Vec<_> = info.precisions.iter().map(|precision| precision.name()).collect();
                return Err(Failure::input(format_args!(
                    "--precision: {} has {}, not {}",
                    info.id,
                    names.join(", "),
                    wanted.name()
                )));
            }
        };
        let machine =
            Machine::measure(device.as_ref(), &settings, precision).or_work("measuring the machine's ceilings")?;
        let about = About::now();
        eprintln!("{}", about.line());
        eprintln!(
            "{} ({}), products in {}; timed by {}",
            machine.device, machine.name, machine.precision, machine.clock
        );
        eprintln!("{}", machine.ceilings());
        let interrupt = Interrupt::catch();
        let outputs = args.outputs;
        Ok(Setup { device, settings, precision, machine, repetitions, interrupt, about, bench, outputs, busy })
    }

    /// The same with another device of the same machine.
    pub fn with_device(&self, device: Arc<dyn Device>) -> Setup {
        Setup { device, ..self.clone() }
    }

    /// Refuses work of so many bytes in all that does not fit the memory, or of which one tensor, of activations, is larger than
    /// any that the device has.
    ///
    /// # Errors
    /// An input failure.
    pub fn expect_room(&self, bytes: Option<usize>, largest: Option<usize>) -> Result<(), Failure> {
        let DeviceInfo { memory, largest_tensor, id, .. } = self.device.info();
        if let Some(largest) = largest.filter(|&largest| largest as u64 > largest_tensor) {
            let (largest, most) = (words::bytes(largest as u64), words::bytes(largest_tensor));
            return Err(Failure::input(format_args!(
                "this shape has a tensor of {largest}, kernels of {id} see {most}"
            )));
        }
        match bytes {
            Some(bytes) if bytes as u64 <= memory / 10 * 9 => Ok(()),
            bytes => {
                let wanted =
                    bytes.map_or_else(|| "more than can be counted".into(), |b| format!("{:.1} GB", b as f64 / 1e9));
                let has = memory as f64 / 1e9;
                Err(Failure::input(format_args!(
                    "this shape takes {wanted} of memory, {} has {has:.1} GB",
                    self.machine.device
                )))
            }
        }
    }

    /// Times of `op(i)` in run i, from an idle device to an idle device.
    ///
    /// # Errors
    /// Of the device, or [`Failure::Interrupted`].
    pub fn time<'a>(&self, op: impl Fn(usize) -> Vec<&'a Op>) -> Result<Times, Failure> {
        let device = self.device.as_ref();
        self.measure(|i| {
            let ops = op(i);
            device.elapsed(&mut || ops.iter().try_for_each(|op| device.enqueue(op))).map_err(device_failure)
        })
    }

    /// Times of `once`, which gets the number of the run and returns its seconds.
    ///
    /// # Errors
    /// Those of `once`, or [`Failure::Interrupted`].
    pub fn measure(&self, mut once: impl FnMut(usize) -> Result<f64, Failure>) -> Result<Times, Failure> {
        Times::measure(self.repetitions, |i| {
            self.go_on()?;
            once(i)
        })
    }

    /// Whether nobody has asked to stop.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] if somebody has.
    pub fn go_on(&self) -> Result<(), Failure> {
        self.interrupt.check()
    }

    /// A tensor `[rows, 1, cols]` of zeros.
    ///
    /// # Errors
    /// Of the device.
    pub fn zeros(&self, dtype: DType, rows: usize, cols: usize) -> Result<Tensor, Failure> {
        tensor(self.device.as_ref(), dtype, rows, 1, cols).map_err(device_failure)
    }

    /// A tensor `[rows, 1, cols]` with these bytes.
    ///
    /// # Errors
    /// Of the device.
    pub fn tensor(&self, dtype: DType, rows: usize, cols: usize, bytes: &[u8]) -> Result<Tensor, Failure> {
        upload(self.device.as_ref(), dtype, [rows, 1, cols], bytes).map_err(device_failure)
    }

    /// An empty report of this bench.
    pub fn report(&self, setting: Map<String, Value>, notes: Vec<String>) -> Report {
        for note in &notes {
            eprintln!("{note}");
        }
        let mut report = Report {
            bench: self.bench,
            about: self.about.clone(),
            ended: Ended::Complete,
            machine: self.machine.clone(),
            setting,
            notes,
            warnings: Vec::new(),
            records: Vec::new(),
            plans: Vec::new(),
            loads: Vec::new(),
        };
        report.warn(self.busy.clone());
        report
    }

    /// Writes the files that were asked for with what was measured, all of it or what there is of it. Before that the
    /// ceilings are measured once more, to see whether the machine did nothing else meanwhile.
    ///
    /// # Errors
    /// What ended `measured`, or if a file cannot be written.
    pub fn finish(&self, mut report: Report, measured: Result<(), Failure>) -> Result<(), Failure> {
        let cut_short = outputs::cut_short(measured, !report.records.is_empty())?;
        if let Some(CutShort { ended, warning, .. }) = &cut_short {
            report.ended = *ended;
            report.warnings.push(warning.clone());
        } else {
            report.warn(match Machine::measure(self.device.as_ref(), &self.settings, self.precision) {
                Ok(again) => self.machine.unlike(&again),
                Err(error) => Some(format!("the machine's ceilings could not be measured again: {error}")),
            });
        }
        self.outputs.write(&report, || report.csv(), || Ok(page::of(&report)), &self.interrupt)?;
        cut_short.map_or(Ok(()), |cut_short| Err(cut_short.failure))
    }
}

/// The failure behind an error of the device: what it cannot do at all is the fault of who asked.
pub fn device_failure(error: DeviceError) -> Failure {
    match error {
        DeviceError::Unsupported { .. } => Failure::Input(error.into()),
        error => Failure::Work(error.into()),
    }
}

/// The fields of a JSON object.
pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}

/// Standard normal numbers, as bytes.
pub fn normal(count: usize, seed: u64) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut uniform = || (f64::from(random.next_u32()) + 0.5) / 4_294_967_296.0;
    let mut next = || ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32;
    (0..count).flat_map(|_| next().to_le_bytes()).collect()
}
