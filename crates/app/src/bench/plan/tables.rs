//! A plan's times as tables: the stages alone, and a layer of a sequence.

use std::io::{self, Write};

use crate::bench::report::{Record, Report};
use crate::measure::layout::Layout;
use crate::measure::times::time;
use crate::table;

/// A table, to be written as text or drawn on a page.
pub struct Table {
    /// The columns' names.
    pub header: Vec<String>,
    /// Cells, a row each as long as the header.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Writes it as Markdown.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let header: Vec<&str> = self.header.iter().map(String::as_str).collect();
        let right: Vec<bool> = header.iter().map(|name| *name != "variant").collect();
        table::markdown(out, &header, &right, &self.rows)
    }
}

fn find<'a>(report: &'a Report, tokens: usize, stage: &str, variant: &str) -> Option<&'a Record> {
    report.records.iter().find(|record| record.tokens == tokens && record.stage == stage && record.variant == variant)
}

/// The variants that have a stage, in the order in which they were measured.
fn variants<'a>(report: &'a Report, stage: &str) -> Vec<&'a str> {
    let mut variants: Vec<&str> = Vec::new();
    for record in report.records.iter().filter(|record| record.stage == stage) {
        if !variants.contains(&record.variant.as_str()) {
            variants.push(&record.variant);
        }
    }
    variants
}

/// What every row begins with.
fn size(plan: &Layout) -> [String; 3] {
    [plan.tokens.to_string(), plan.blocks.to_string(), plan.rows.to_string()]
}

const SIZE: [&str; 3] = ["T", "blocks", "padded rows"];

/// A row for each chunk and variant, a column for each stage; `None` if they were not measured alone.
pub fn stages(report: &Report) -> Option<Table> {
    const STAGES: [&str; 4] = ["hist", "scan", "clear", "place"];
    let mut rows = Vec::new();
    for plan in &report.plans {
        for variant in variants(report, "place") {
            let seconds = |stage| find(report, plan.tokens, stage, variant).map(|record| record.times.median);
            if seconds("place").is_none() {
                continue; // interrupted
            }
            let mut row: Vec<String> = size(plan).into();
            row.push(variant.into());
            row.extend(STAGES.map(|stage| match (stage, seconds("hist_scan")) {
                ("hist", Some(together)) => format!("with scan: {}", time(together)),
                _ => seconds(stage).map_or_else(String::new, time),
            }));
            row.push(time(STAGES.iter().chain(&["hist_scan"]).filter_map(|stage| seconds(stage)).sum()));
            rows.push(row);
        }
    }
    let header = SIZE.iter().chain(&["variant"]).chain(&STAGES).chain(&["sum"]).map(|name| (*name).into()).collect();
    (!rows.is_empty()).then_some(Table { header, rows })
}

/// A row for each chunk, a column for each variant; how far the default spreads, how much faster than `serial` it is,
/// and how fast it moves bytes.
pub fn sequences(report: &Report) -> Table {
    let variants = variants(report, "plan");
    let serial = variants.contains(&"serial");
    let row = |plan: &Layout| {
        let of = |variant| find(report, plan.tokens, "plan", variant).map(|record| record.times);
        let cells = variants.iter().map(|variant| of(variant).map_or_else(String::new, |times| time(times.median)));
        let spread = of("auto").map_or_else(String::new, |times| format!("{} to {}", time(times.p10), time(times.p90)));
        let faster = of("serial").zip(of("auto")).map(|(serial, auto)| format!("{:.1}x", serial.median / auto.median));
        let auto = find(report, plan.tokens, "plan", "auto");
        let rate = auto.map_or_else(Default::default, |record| [record.gigabytes(), record.of_memory()]);
        let faster = serial.then(|| faster.unwrap_or_default());
        size(plan).into_iter().chain(cells).chain([spread]).chain(faster).chain(rate).collect()
    };
    let about_auto = ["p10 to p90 of auto", "serial / auto", "GB/s of auto", "of memory"];
    let about_auto = about_auto.iter().filter(|name| serial || **name != "serial / auto");
    let header = SIZE.iter().chain(&variants).chain(about_auto);
    let measured = |plan: &&Layout| variants.iter().any(|variant| find(report, plan.tokens, "plan", variant).is_some());
    let rows = report.plans.iter().filter(measured).map(row).collect();
    Table { header: header.map(|name| (*name).into()).collect(), rows }
}
