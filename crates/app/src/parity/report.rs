//! What `argon parity` found: a table to read, and JSON to attach to an issue.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::Path;

use argon_kernels::Precision;
use argon_kernels::cpu::machine;
use argon_kernels::parity::{Distance, Finding};
use serde::Serialize;

use crate::about::About;
use crate::interrupt::Interrupt;
use crate::{output, table};

/// Everything that was compared.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    about: About,
    machine: Machine,
    /// As on the command line.
    asked: String,
    /// Backends that are not here, and why.
    pub absent: Vec<String>,
    /// What was compared.
    pub devices: Vec<Compared>,
}

#[derive(Debug, Serialize)]
struct Machine {
    processor: String,
    threads: usize,
    memory_bytes: Option<u64>,
}

/// A device and its cases.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// As `--device` names it.
    pub id: String,
    /// What it is.
    pub name: String,
    /// Driver, kernels in use, limits, where the name does not say them.
    pub details: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// The precision modes that were compared.
    pub precisions: Vec<&'static str>,
    /// Every case.
    pub cases: Vec<Row>,
}

/// A case.
#[derive(Debug, Serialize)]
pub struct Row {
    kernel: &'static str,
    case: String,
    /// Of products.
    precision: Option<&'static str>,
    /// Distance to float64 on the exact operands; none where bytes are compared.
    a: Option<f64>,
    a_bound: Option<f64>,
    /// Distance to float64 on the device's own operands.
    b: Option<f64>,
    b_bound: Option<f64>,
    holds: bool,
    failure: Option<String>,
    /// Why the device does not do this; it neither holds nor fails then.
    refused: Option<String>,
}

impl Row {
    /// What a case found of something that the device must do.
    pub fn new(kernel: &'static str, case: &str, precision: Option<Precision>, finding: Finding) -> Row {
        let failure = finding.failure.or(finding.refused);
        Row::optional(kernel, case, precision, Finding { failure, refused: None, ..finding })
    }

    /// What a case found of something that the device may refuse.
    pub fn optional(kernel: &'static str, case: &str, precision: Option<Precision>, finding: Finding) -> Row {
        let found = |distance: Option<Distance>| distance.map(|distance| distance.found);
        let bound = |distance: Option<Distance>| distance.map(|distance| distance.bound);
        Row {
            kernel,
            case: case.into(),
            precision: precision.map(Precision::name),
            a: found(finding.a),
            a_bound: bound(finding.a),
            b: found(finding.b),
            b_bound: bound(finding.b),
            holds: finding.failure.is_none() && finding.refused.is_none(),
            failure: finding.failure,
            refused: finding.refused,
        }
    }
}

impl Report {
    /// Nothing compared yet.
    pub fn new() -> Report {
        let asked: Vec<_> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
        Report {
            about: About::now(),
            machine: Machine {
                processor: machine::name(),
                threads: std::thread::available_parallelism().map_or(1, NonZero::get),
                memory_bytes: machine::memory(),
            },
            asked: asked.join(" "),
            absent: Vec::new(),
            devices: Vec::new(),
        }
    }

    /// Cases that ran, and those that failed.
    pub fn count(&self) -> (usize, usize) {
        let cases = || self.devices.iter().flat_map(|device| &device.cases).filter(|case| case.refused.is_none());
        (cases().count(), cases().filter(|case| !case.holds).count())
    }

    /// Writes the JSON.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(&self, path: &Path, interrupt: &Interrupt) -> anyhow::Result<()> {
        Ok(output::write(path, serde_json::to_string_pretty(self)? + "\n", interrupt)?)
    }
}

const HEADER: [&str; 8] = ["kernel", "case", "precision", "A", "bound", "B", "bound", ""];
const RIGHT: [bool; 8] = [false, false, false, true, true, true, true, false];

/// The table of a device: every case, or, of many kernels, a line for all cases of a kernel and precision; then what failed or was
/// refused.
///
/// # Errors
/// Those of `out`.
pub fn print(out: &mut impl Write, device: &Compared, every_case: bool) -> io::Result<()> {
    writeln!(out, "{} ({})", device.id, device.name)?;
    if !device.details.is_empty() {
        writeln!(out, "{}", device.details)?;
    }
    let ran = || device.cases.iter().filter(|row| row.refused.is_none());
    let rows = match every_case {
        true => ran().map(|row| cells(&[row])).collect::<Vec<_>>(),
        false => groups(ran()).iter().map(|rows| cells(rows)).collect(),
    };
    table::write(out, HEADER, RIGHT, &rows)?;
    for row in &device.cases {
        let (verdict, Some(why)) = (match &row.failure {
            Some(failure) => ("FAIL", Some(failure)),
            None => ("refused", row.refused.as_ref()),
        }) else {
            continue;
        };
        let precision = row.precision.map_or(String::new(), |precision| format!(", {precision}"));
        writeln!(out, "{verdict} {} {}{precision}: {why}", row.kernel, row.case)?;
    }
    writeln!(out)
}

/// Rows of the same kernel, precision and bound, in the order of the first of each.
fn groups<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let key = |row: &Row| (row.kernel, row.precision, row.a_bound.map(f64::to_bits));
    for row in rows {
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// One line: the largest distances, and whether all hold.
fn cells(rows: &[&Row]) -> [String; 8] {
    let row = rows[0];
    let case = if rows.len() == 1 { row.case.clone() } else { format!("{} cases", rows.len()) };
    let largest = |of: fn(&Row) -> Option<f64>| {
        rows.iter().filter_map(|row| of(row)).fold(None, |most: Option<f64>, x| {
            // A NaN is the largest.
            Some(most.map_or(x, |most| if x > most || x.is_nan() { x } else { most }))
        })
    };
    let shown = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.2e}"));
    let exact = row.a_bound.is_none();
    [
        row.kernel.into(),
        case,
        row.precision.unwrap_or("").into(),
        if exact { "bytes".into() } else { shown(largest(|row| row.a)) },
        shown(row.a_bound),
        shown(largest(|row| row.b)),
        shown(largest(|row| row.b_bound)),
        if rows.iter().all(|row| row.holds) { "PASS".into() } else { "FAIL".into() },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, a: f64, failure: Option<&str>) -> Row {
        let finding = Finding {
            a: Some(Distance { found: a, bound: 0.5 }),
            failure: failure.map(String::from),
            ..Finding::default()
        };
        Row::new("dense", case, Some(Precision::F16), finding)
    }

    #[test]
    fn what_may_be_refused_is_neither_held_nor_failed() {
        let refusal = || Finding { refused: Some("it does not".into()), ..Finding::default() };
        let cases = vec![Row::optional("plan", "one", None, refusal()), Row::new("plan", "two", None, refusal())];
        let device = Compared {
            id: "cpu".into(),
            name: "a name".into(),
            details: String::new(),
            memory: 1,
            precisions: Vec::new(),
            cases,
        };
        let mut out = Vec::new();
        print(&mut out, &device, true).unwrap();
        let printed = String::from_utf8(out).unwrap();
        assert!(printed.ends_with("refused plan one: it does not\nFAIL plan two: it does not\n\n"), "{printed}");
        let report = Report { devices: vec![device], ..Report::new() };
        assert_eq!(report.count(), (1, 1));
    }

    #[test]
    fn a_failure_among_many_is_shown_with_its_coordinate() {
        let cases = vec![
            row("one", 0.25, None),
            row("two", 0.75, Some("out[3, 1] is 0, should be 1")),
            row("three", 0.1, None),
        ];
        let (id, name, details, precisions) = ("wgpu:0".into(), "a name".into(), "its limits".into(), vec!["f16"]);
        let device = Compared { id, name, details, memory: 1, precisions, cases };
        let printed = |every_case| {
            let mut out = Vec::new();
            print(&mut out, &device, every_case).unwrap();
            String::from_utf8(out).unwrap()
        };
        let short = printed(false);
        assert!(short.contains("3 cases") && short.contains("7.50e-1") && short.contains("FAIL\n"), "{short}");
        assert!(short.ends_with("FAIL dense two, f16: out[3, 1] is 0, should be 1\n\n"), "{short}");
        assert!(short.starts_with("wgpu:0 (a name)\nits limits\n"), "{short}");
        assert_eq!(printed(true).lines().filter(|line| line.ends_with("PASS")).count(), 2);
    }
}
