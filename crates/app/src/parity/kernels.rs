//! `argon parity`: every kernel of the devices that are here, beside the reference.

use std::io::{self, Write};
use std::sync::Arc;

use argon_kernels::parity::{Finding, Kernel, cases};
use argon_kernels::{Device, Precision};

use super::model;
use super::report::{self, Compared, Report, Row};
use crate::device;
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::output::can_be_written;
use crate::settings::{Parity, Part};

/// Runs the command: a table for each device on standard output, and the report.
///
/// # Errors
/// Of the input, if a device that was named is not here; of the work, if something differs.
pub fn run(settings: &Parity) -> Result<(), Failure> {
    if let Some(path) = &settings.report {
        can_be_written(path)?;
    }
    let mut report = Report::new();
    let mut out = io::stdout().lock();
    for device in devices(settings, &mut report)? {
        let compared = compare(&*device, &device, settings)?;
        report::print(&mut out, &compared, settings.parts.len() == 1).map_err(stdout_failure)?;
        report.devices.push(compared);
    }
    let (all, failed) = report.count();
    if let Some(path) = &settings.report {
        report.write(path).or_work(path.display())?;
    }
    verdict(all, failed)?;
    writeln!(out, "all {all} comparisons hold").map_err(stdout_failure)
}

/// Whether all is well; a comparison of nothing shows nothing.
fn verdict(all: usize, failed: usize) -> Result<(), Failure> {
    match (all, failed) {
        (0, _) => Err(Failure::input("nothing to compare: no case has these formats and sizes")),
        (_, 0) => Ok(()),
        _ => Err(Failure::work(format_args!("{failed} of {all} comparisons failed"))),
    }
}

/// The device that was named, or one of each backend that is here.
fn devices(settings: &Parity, report: &mut Report) -> Result<Vec<Arc<dyn Device>>, Failure> {
    if let (Some(kind), Some(formats)) = (settings.device, settings.tiled) {
        return Ok(vec![device::with_tiles(kind, settings.tiles, formats)?]);
    }
    if let Some(kind) = settings.device {
        return Ok(vec![device::named(kind, settings.threads).or_input("--device")?]);
    }
    let mut found = Vec::new();
    for kind in device::BACKENDS {
        match device::named(kind, settings.threads) {
            Ok(device) => found.push(device),
            Err(why) => {
                eprintln!("not compared: {why}");
                report.absent.push(why.to_string());
            }
        }
    }
    Ok(found)
}

fn compare(device: &dyn Device, shared: &Arc<dyn Device>, settings: &Parity) -> Result<Compared, Failure> {
    let info = device.info();
    let precisions = precisions(settings, &info.precisions, &info.id)?;
    let mut rows = Vec::new();
    for &part in &settings.parts {
        let before = rows.len();
        match part {
            Part::Kernel(kernel) => rows.extend(kernels(device, kernel, settings, &precisions)),
            Part::Model => rows.extend(model::compare(shared, settings, &precisions)?),
        }
        if part == Part::Kernel(Kernel::Plan) {
            rows.extend(variants(settings, &info.id)?);
        }
        eprintln!("{}: {}, {} cases", info.id, part.name(), rows.len() - before);
    }
    Ok(Compared {
        id: info.id,
        name: info.name,
        memory: info.memory,
        precisions: precisions.iter().map(|p| p.name()).collect(),
        cases: rows,
    })
}

fn precisions(settings: &Parity, all: &[Precision], id: &str) -> Result<Vec<Precision>, Failure> {
    match settings.precision {
        None => Ok(all.to_vec()),
        Some(precision) if all.contains(&precision) => Ok(vec![precision]),
        Some(precision) => Err(Failure::input(format_args!("--precision: {id} has no {}", precision.name()))),
    }
}

fn kernels(device: &dyn Device, kernel: Kernel, settings: &Parity, precisions: &[Precision]) -> Vec<Row> {
    let cases = cases::of(kernel, &settings.request, precisions);
    let row =
        |case: &argon_kernels::parity::Case| Row::new(kernel.name(), &case.name, case.precision, case.run(device));
    cases.iter().map(row).collect()
}

/// The plan once more, in each of the ways that the device has beside its own choice.
fn variants(settings: &Parity, id: &str) -> Result<Vec<Row>, Failure> {
    let kind = settings.device.or_else(|| device::BACKENDS.into_iter().find(|kind| id == kind.to_string()));
    let all = kind.map_or(Vec::new(), device::plan_variants);
    if let Some(asked) = settings.variant.as_deref().filter(|asked| !all.contains(asked)) {
        let known = if all.is_empty() { String::from("no choice") } else { all.join(", ") };
        return Err(Failure::input(format_args!("--variant is {asked}; for plans, {id} has {known}")));
    }
    let mut rows = Vec::new();
    for variant in all.into_iter().filter(|variant| settings.variant.as_ref().is_none_or(|asked| asked == variant)) {
        let Some(kind) = kind else { continue };
        let device = device::with_plan_variant(kind, settings.threads, variant).or_input("--variant")?;
        let cases = cases::of(Kernel::Plan, &settings.request, &[]);
        let row = |case: &argon_kernels::parity::Case| {
            let finding: Finding = case.run(&*device);
            Row::new("plan", &format!("{variant}: {}", case.name), None, finding)
        };
        rows.extend(cases.iter().map(row));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_a_failure_and_nothing_is_no_success() {
        assert!(verdict(3, 0).is_ok());
        assert!(matches!(verdict(3, 1), Err(Failure::Work(_))));
        assert!(matches!(verdict(0, 0), Err(Failure::Input(_))));
    }
}
