//! `argon parity oracle`: our logits beside those of other engines, for every model file in a directory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::directory::{self, Model, Oracle};
use super::trial::{Found, Outcome, Trial};
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::settings::Device;
use crate::{device, table};

/// Runs the command.
///
/// # Errors
/// Of the input, if `dir` holds nothing to compare; of the work, if a comparison fails.
pub fn run(dir: &Path, settings: &Device) -> Result<(), Failure> {
    let device = device::open(settings, 0)?;
    let precisions = settings.precision.map_or_else(|| device.info().precisions, |precision| vec![precision]);
    let mut out = io::stdout().lock();
    let (mut judged, mut failed) = (0, 0);
    for path in oracles(dir)? {
        let oracle = Oracle::open(&path).or_input(path.display())?;
        let of_model = |model| Trial::new(&oracle, model, device.clone())?.run(&precisions);
        let found: Vec<_> = oracle.models.iter().map(|model| (model, of_model(model))).collect();
        let verdicts = found.iter().flat_map(|(_, outcomes)| verdicts(outcomes));
        judged += verdicts.clone().count();
        failed += verdicts.filter(|holds| !holds).count();
        print(&mut out, &oracle, &found).map_err(stdout_failure)?;
    }
    match (judged, failed) {
        (0, _) => Err(Failure::input(format_args!("{}: nothing to compare", dir.display()))),
        (_, 0) => writeln!(out, "all {judged} comparisons hold").map_err(stdout_failure),
        _ => Err(Failure::work(format_args!("{failed} of {judged} comparisons failed"))),
    }
}

/// `dir` itself, or the oracle directories in it.
fn oracles(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    if directory::is_oracle(dir) {
        return Ok(vec![dir.to_owned()]);
    }
    let entries = std::fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>).or_input(dir.display())?;
    let mut found: Vec<_> =
        entries.iter().map(|entry| entry.path()).filter(|path| directory::is_oracle(path)).collect();
    found.sort_unstable();
    if found.is_empty() {
        return Err(Failure::input(format_args!("{}: neither an oracle nor a directory of oracles", dir.display())));
    }
    Ok(found)
}

/// What came of one model; one that does not load or run has failed one comparison.
fn verdicts(outcomes: &anyhow::Result<Vec<Outcome>>) -> Vec<bool> {
    match outcomes {
        Ok(outcomes) => outcomes.iter().filter_map(Outcome::holds).collect(),
        Err(_) => vec![false],
    }
}

/// The table of one directory, and what of it was left out.
fn print(out: &mut impl Write, oracle: &Oracle, found: &[(&Model, anyhow::Result<Vec<Outcome>>)]) -> io::Result<()> {
    let file = |model: &Model| model.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let of_models = found.iter().filter_map(|(model, outcomes)| Some((model, outcomes.as_ref().ok()?)));
    let rows: Vec<_> = of_models.flat_map(|(model, outcomes)| outcomes.iter().map(|o| row(file(model), o))).collect();
    writeln!(out, "{}", oracle.path.display())?;
    let header = ["file", "reference", "prompt", "ours", "max abs", "median KL", "argmax", "must hold", "verdict"];
    let right = [false, false, false, false, true, true, true, false, false];
    table::write(out, header, right, &rows)?;
    for (model, outcomes) in found {
        match outcomes {
            Err(error) => writeln!(out, "{}: FAIL: {error:#}", file(model))?,
            Ok(outcomes) if outcomes.is_empty() => writeln!(out, "{}: no logits of this format", file(model))?,
            Ok(_) => {}
        }
    }
    for reference in oracle.unused_references() {
        writeln!(out, "{}: no model file of this format", reference.tag)?;
    }
    writeln!(out)
}

fn row(file: String, outcome: &Outcome) -> [String; 9] {
    let verdict = match outcome.holds() {
        Some(true) => "PASS",
        Some(false) => "FAIL",
        None => "shown",
    };
    let [max_abs, median_kl, argmax, must_hold] = match &outcome.found {
        Found::Logits(found, tolerance) => [
            format!("{:.2e}", found.max_abs),
            format!("{:.2e}", found.median_kl),
            format!("{}/{}", found.same_argmax, found.rows),
            tolerance.to_string(),
        ],
        Found::Choices(found) => {
            let equal = format!("{} of {} sets", found.same, found.all);
            [String::new(), String::new(), equal, "all sets".into()]
        }
    };
    let (reference, positions, ours) = (outcome.reference.clone(), outcome.positions.clone(), outcome.run.to_string());
    [file, reference, positions, ours, max_abs, median_kl, argmax, must_hold, verdict.into()]
}
