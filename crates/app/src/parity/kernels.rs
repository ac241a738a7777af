//! `argon parity`: every kernel of the devices that are here, beside the reference.

use std::io::{self, Write};
use std::sync::Arc;

use argon_kernels::parity::{Case, Finding, Kernel, cases};
use argon_kernels::{Device, Precision};

use super::model;
use super::report::{self, Compared, Report, Row};
use crate::device::{self, Forced};
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::interrupt::Interrupt;
use crate::output::can_be_written;
use crate::progress::Cases;
use crate::settings::{DeviceKind, Parity, Part};

/// Runs the command: a table for each device on standard output, and the report.
///
/// # Errors
/// Of the input, if a device that was named is not here; of the work, if something differs.
pub fn run(settings: &Parity) -> Result<(), Failure> {
    if let Some(path) = &settings.report {
        can_be_written(path)?;
    }
    let interrupt = Interrupt::of_process();
    let mut report = Report::new();
    let mut out = io::stdout().lock();
    let mut printed = Ok(());
    for device in devices(settings, &mut report)? {
        let compared = compare(&device, settings)?;
        printed = printed.and_then(|()| report::print(&mut out, &compared, settings.parts.len() == 1));
        report.devices.push(compared);
        if printed.is_err() && settings.report.is_none() {
            break;
        }
    }
    let (all, failed) = report.count();
    if let Some(path) = &settings.report {
        report.write(path, &interrupt).or_work(path.display())?;
    }
    verdict(all, failed)?;
    printed.and_then(|()| writeln!(out, "all {all} comparisons hold")).map_err(stdout_failure)
}

/// Whether all is well; a comparison of nothing shows nothing.
fn verdict(all: usize, failed: usize) -> Result<(), Failure> {
    match (all, failed) {
        (0, _) => Err(Failure::input("nothing to compare: no case has these formats and sizes")),
        (_, 0) => Ok(()),
        _ => Err(Failure::work(format_args!("{failed} of {all} comparisons failed"))),
    }
}

/// A device and its name.
type Named = (DeviceKind, Arc<dyn Device>);

/// The device that was named, or one of each backend that is here.
fn devices(settings: &Parity, report: &mut Report) -> Result<Vec<Named>, Failure> {
    let open = |kind| Ok((kind, device::forced(kind, settings.threads, &settings.forced)?));
    if let Some(kind) = settings.device {
        return Ok(vec![open(kind).map_err(Failure::Input)?]);
    }
    let able = |kind: &DeviceKind| {
        let plan = settings.forced.plan.as_deref();
        plan.is_none_or(|plan| device::plan_variants(*kind).contains(&plan))
    };
    if let (Some(plan), None) = (&settings.forced.plan, device::BACKENDS.iter().find(|kind| able(kind))) {
        return Err(Failure::Input(device::unknown_variant(plan, &device::BACKENDS)));
    }
    let mut found = Vec::new();
    for kind in device::BACKENDS.into_iter().filter(able) {
        match open(kind) {
            Ok(device) => found.push(device),
            Err(why) => {
                let why = why.root_cause().to_string();
                eprintln!("not compared: {why}");
                report.absent.push(why);
            }
        }
    }
    Ok(found)
}

fn compare((kind, device): &Named, settings: &Parity) -> Result<Compared, Failure> {
    let info = device.info();
    let precisions = precisions(settings, &info.precisions, &info.id)?;
    let mut rows = Vec::new();
    for &part in &settings.parts {
        let before = rows.len();
        match part {
            Part::Kernel(Kernel::Plan) => rows.extend(plans(*kind, &**device, settings)?),
            Part::Kernel(kernel) => rows.extend(kernels(&**device, kernel, settings, &precisions)),
            Part::Model => rows.extend(model::compare(device, settings, &precisions)?),
        }
        eprintln!("{}: {}, {} cases", info.id, part.name(), rows.len() - before);
    }
    Ok(Compared {
        id: info.id,
        name: info.name,
        details: info.details,
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
    rows(device, &cases::of(kernel, &settings.request, precisions), "", Row::new)
}

/// Makes a row of a finding.
type NewRow = fn(&'static str, &str, Option<Precision>, Finding) -> Row;

/// What these cases find, each name behind `before`.
fn rows(device: &dyn Device, cases: &[Case], before: &str, new: NewRow) -> Vec<Row> {
    let progress = Cases::new(cases.len());
    let row = |case: &Case| {
        let name = format!("{before}{}", case.name);
        progress.begin(&format!("{} {name}", case.kernel.name()));
        let row = new(case.kernel.name(), &name, case.precision, case.run(device));
        progress.end();
        row
    };
    cases.iter().map(row).collect()
}

/// The plan by the variant that was asked for; else as the device chooses, and in each of the ways that it chooses from, which it
/// may refuse where they do not fit.
fn plans(kind: DeviceKind, device: &dyn Device, settings: &Parity) -> Result<Vec<Row>, Failure> {
    let by = |device: &dyn Device, variant: &str, new: NewRow| {
        rows(device, &cases::of(Kernel::Plan, &settings.request, &[]), &format!("{variant}: "), new)
    };
    if let Some(variant) = &settings.forced.plan {
        return Ok(by(device, variant, Row::new));
    }
    let mut rows = by(device, "auto", Row::new);
    for variant in device::plan_variants(kind) {
        let forced = Forced { plan: Some(variant.into()), tiles: None };
        let device = device::forced(kind, settings.threads, &forced).map_err(Failure::Work)?;
        rows.extend(by(&*device, variant, Row::optional));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use argon_kernels::cpu::{CpuDevice, CpuOptions};
    use argon_kernels::parity::Request;
    use argon_kernels::{DeviceError, Op, Wrapper};

    use super::*;

    /// The processor, but that nothing is added.
    struct AddsNothing(CpuDevice);

    impl Wrapper for AddsNothing {
        fn inner(&self) -> &dyn Device {
            &self.0
        }

        fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
            if let Op::Add(_) = op { Ok(()) } else { self.0.enqueue(op) }
        }
    }

    #[test]
    fn a_kernel_that_is_wrong_fails_the_command() {
        let settings = Parity {
            parts: vec![Part::Kernel(Kernel::Elementwise)],
            device: None,
            threads: None,
            precision: None,
            request: Request::default(),
            forced: Forced::default(),
            report: None,
        };
        let verdict_on = |device: Arc<dyn Device>| {
            let mut report = Report::new();
            report.devices.push(compare(&(DeviceKind::Cpu, device), &settings).unwrap());
            let (all, failed) = report.count();
            (failed, verdict(all, failed))
        };
        let cpu = || CpuDevice::new(CpuOptions::default()).unwrap();
        assert!(matches!(verdict_on(Arc::new(cpu())), (0, Ok(()))));
        let (failed, verdict) = verdict_on(Arc::new(AddsNothing(cpu())));
        assert!(failed > 0 && matches!(verdict, Err(Failure::Work(_))), "{failed} failed");
    }

    #[test]
    fn one_failure_is_a_failure_and_nothing_is_no_success() {
        assert!(verdict(3, 0).is_ok());
        assert!(matches!(verdict(3, 1), Err(Failure::Work(_))));
        assert!(matches!(verdict(0, 0), Err(Failure::Input(_))));
    }
}
