//! What a bench found: one list of measurements, from which tables, files and pictures are made.

use serde::Serialize;
use serde_json::{Map, Value};

use super::machine::Machine;
use super::outputs::Ended;
use crate::about::About;
use crate::measure::layout::Layout;
use crate::measure::times::{Times, digits};

/// Everything that was measured in one run of a bench.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `plan`, `gather`, `moe` or `dense`.
    pub bench: &'static str,
    /// The program, the time, the system.
    #[serde(flatten)]
    pub about: About,
    /// Whether everything was measured; if not, the last of the warnings says why.
    pub ended: Ended,
    /// Where.
    pub machine: Machine,
    /// Of what: shapes, formats, routing, seed.
    pub setting: Map<String, Value>,
    /// What a reader has to know: how weights were kept cold, what is outside the clock.
    pub notes: Vec<String>,
    /// What casts doubt on the times: a busy machine, weights in a cache, an interruption.
    pub warnings: Vec<String>,
    /// The measurements.
    pub records: Vec<Record>,
    /// How the tokens met the experts, for each chunk of the first layer.
    pub plans: Vec<Layout>,
    /// Entries of each expert `[layer][E]` of the longest chunk, where layers differ.
    pub loads: Vec<Vec<u32>>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// T.
    pub tokens: usize,
    /// What was done.
    pub stage: String,
    /// In which of several ways.
    pub variant: String,
    /// How long it took.
    #[serde(flatten)]
    pub times: Times,
    /// Bytes that have to come from memory or go there, at least.
    pub bytes: Option<f64>,
    /// Operations of products; a multiply-add is two.
    pub operations: Option<f64>,
    /// Of the bytes.
    pub bytes_per_s: Option<f64>,
    /// Of the operations.
    pub operations_per_s: Option<f64>,
    /// `bytes_per_s` by the machine's ceiling.
    pub memory_share: Option<f64>,
    /// Operations a second that these products can reach.
    pub operations_ceiling: Option<f64>,
    /// `operations_per_s` by that.
    pub operations_share: Option<f64>,
}

/// What has to be done at least.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Bytes from and to memory.
    pub bytes: Option<f64>,
    /// Operations of products.
    pub operations: Option<f64>,
    /// Operations a second that these products can reach; the machine's ceiling where absent.
    pub ceiling: Option<f64>,
}

impl Report {
    /// Something that a reader must know, said at once and noted; nothing where there is none.
    pub fn warn(&mut self, what: Option<String>) {
        if let Some(what) = what {
            eprintln!("warning: {what}");
            self.warnings.push(what);
        }
    }
}

impl Record {
    /// Bytes a second in GB/s, without the unit; nothing where there are none.
    pub fn gigabytes(&self) -> String {
        self.bytes_per_s.map_or_else(String::new, |rate| digits(rate / 1e9))
    }

    /// Its share of what memory gives: `80 %`.
    pub fn of_memory(&self) -> String {
        self.memory_share.map_or_else(String::new, |share| format!("{:.0} %", 100.0 * share))
    }

    /// Operations a second in GOP/s, without the unit.
    pub fn gigaoperations(&self) -> String {
        self.operations_per_s.map_or_else(String::new, |rate| digits(rate / 1e9))
    }

    /// Its share of what such products can reach, and what that is: `28 % of 117`.
    pub fn of_products(&self) -> String {
        let share = |(share, ceiling): (f64, f64)| format!("{:.0} % of {}", 100.0 * share, digits(ceiling / 1e9));
        self.operations_share.zip(self.operations_ceiling).map_or_else(String::new, share)
    }

    /// Of `work` that took `times`, beside the ceilings of `machine`.
    pub fn new(tokens: usize, stage: &str, variant: &str, times: Times, work: Work, machine: &Machine) -> Record {
        let rate = |amount: Option<f64>| amount.map(|amount| amount / times.median);
        let (bytes_per_s, operations_per_s) = (rate(work.bytes), rate(work.operations));
        let ceiling = work.ceiling.unwrap_or(machine.operations_per_s);
        Record {
            tokens,
            stage: stage.into(),
            variant: variant.into(),
            times,
            bytes: work.bytes,
            operations: work.operations,
            bytes_per_s,
            operations_per_s,
            memory_share: bytes_per_s.map(|rate| rate / machine.memory_bytes_per_s),
            operations_ceiling: operations_per_s.map(|_| ceiling),
            operations_share: operations_per_s.map(|rate| rate / ceiling),
        }
    }
}

impl Report {
    /// The measurements, a line each.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "bench,device,precision,tokens,stage,variant,median_us,p10_us,p90_us,runs,gb_per_s,gop_per_s,memory_share,operations_share,ended\n",
        );
        let number =
            |value: Option<f64>, unit: f64| value.map_or_else(String::new, |value| format!("{:.4}", value / unit));
        for record in &self.records {
            let times = [record.times.median, record.times.p10, record.times.p90].map(|s| format!("{:.3}", s * 1e6));
            let cells = [
                self.bench.into(),
                self.machine.device.clone(),
                self.machine.precision.into(),
                record.tokens.to_string(),
                record.stage.clone(),
                record.variant.clone(),
                times.join(","),
                record.times.runs.to_string(),
                number(record.bytes_per_s, 1e9),
                number(record.operations_per_s, 1e9),
                number(record.memory_share, 1.0),
                number(record.operations_share, 1.0),
                self.ended.name().into(),
            ];
            out += &cells.join(",");
            out.push('\n');
        }
        out
    }
}
