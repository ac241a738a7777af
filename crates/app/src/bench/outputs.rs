//! The files that every bench writes where asked: one list of measurements as JSON, as CSV and as a page of pictures.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::output;

/// The files to write.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArgs {
    /// JSON file to write
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// CSV file to write, a line for each measurement
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Page of pictures to write, in one file that needs no other
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// How a bench ended, in its files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// Everything was measured, as often as asked.
    Complete,
    /// Somebody stopped it, or reads its table no more.
    Interrupted,
    /// Something could not be measured.
    Failed,
}

impl Ended {
    /// As the files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Ended::Complete => "complete",
            Ended::Interrupted => "interrupted",
            Ended::Failed => "failed",
        }
    }
}

/// What ended a bench before its end.
#[derive(Debug)]
pub struct CutShort {
    /// In which way.
    pub ended: Ended,
    /// What a reader of the files is told of results that are not all.
    pub warning: String,
    /// How the command ends.
    pub failure: Failure,
}

/// What ended a bench before its end, if `some` results are there to be written all the same; that they are not all is told.
///
/// # Errors
/// The failure of `measured`, if there are no results.
pub fn cut_short(measured: Result<(), Failure>, some: bool) -> Result<Option<CutShort>, Failure> {
    let Err(failure) = measured else { return Ok(None) };
    if !some {
        return Err(failure);
    }
    let (ended, why) = match &failure {
        Failure::Interrupted => (Ended::Interrupted, "interrupted".into()),
        Failure::StdoutClosed => (Ended::Interrupted, "interrupted, as nobody read its table any more".into()),
        Failure::Input(error) | Failure::Work(error) => (Ended::Failed, format!("failed ({error:#})")),
    };
    let warning = format!("{why}: not everything was measured, or not as often as asked");
    // What failed is said in the end.
    if ended == Ended::Interrupted {
        eprintln!("warning: {warning}");
    }
    Ok(Some(CutShort { ended, warning, failure }))
}

impl OutputArgs {
    /// That all of them can be written, each for itself and over none of `inputs`, before anything is measured for them.
    ///
    /// # Errors
    /// Of the input, naming the file that cannot.
    pub fn check<'a>(&'a self, inputs: impl IntoIterator<Item = (&'static str, &'a Path)>) -> Result<(), Failure> {
        let outputs = [("--json", &self.json), ("--csv", &self.csv), ("--html", &self.html)];
        output::check(outputs.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?))), inputs)
    }

    /// Writes those that were asked for; the page, which may have to measure more, last.
    ///
    /// # Errors
    /// If one cannot be written, or the page cannot be made. The others are written all the same.
    pub fn write(
        &self,
        records: &impl Serialize,
        csv: impl FnOnce() -> String,
        html: impl FnOnce() -> Result<String, Failure>,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let json = || Ok(serde_json::to_string_pretty(records).or_work("JSON")? + "\n");
        let json = write_at(self.json.as_deref(), json, interrupt);
        let csv = write_at(self.csv.as_deref(), || Ok(csv()), interrupt);
        let html = write_at(self.html.as_deref(), html, interrupt);
        json.and(csv).and(html)
    }
}

/// Writes a text to `path`, if it is asked for.
fn write_at(
    path: Option<&Path>,
    text: impl FnOnce() -> Result<String, Failure>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    output::write(path, text()?, interrupt).or_work(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_ended_is_told_and_nothing_is_written_of_nothing() {
        let end = |failure| cut_short(Err(failure), true).unwrap().unwrap();
        for (failure, ended, part) in [
            (Failure::Interrupted, Ended::Interrupted, "interrupted: not everything"),
            (Failure::StdoutClosed, Ended::Interrupted, "nobody read"),
            (Failure::work("no memory"), Ended::Failed, "failed (no memory): not everything"),
        ] {
            let end = end(failure);
            assert_eq!((end.ended, serde_json::to_value(end.ended).unwrap()), (ended, ended.name().into()));
            assert!(end.warning.contains(part), "{}", end.warning);
        }
        assert!(cut_short(Ok(()), false).unwrap().is_none());
        assert!(matches!(cut_short(Err(Failure::Interrupted), false), Err(Failure::Interrupted)));
    }

    #[test]
    fn a_file_that_cannot_be_written_costs_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| Some(dir.path().join(name));
        let outputs = OutputArgs { json: place("gone/a"), csv: place("b"), html: place("c") };
        let written = outputs.write(&[1], || "csv".into(), || Ok("page".into()), &Interrupt::default());
        assert!(matches!(written, Err(Failure::Work(_))));
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((text("b"), text("c")), ("csv".into(), "page".into()));
    }
}
