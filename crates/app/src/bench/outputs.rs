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

/// What a reader is told of results that are not all.
pub const INTERRUPTED: &str = "interrupted: not everything was measured, or not as often as asked";

/// What ended a bench before its end, if `some` results are there to be written all the same; that they are not all is told.
///
/// # Errors
/// The failure of `measured`, if there are no results.
pub fn cut_short(measured: Result<(), Failure>, some: bool) -> Result<Option<Failure>, Failure> {
    let Err(failure) = measured else { return Ok(None) };
    if some {
        eprintln!("warning: {INTERRUPTED}");
        return Ok(Some(failure));
    }
    if let Failure::Interrupted = failure {
        eprintln!("interrupted before anything was measured");
    }
    Err(failure)
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
    /// If one cannot be written, or the page cannot be made.
    pub fn write(
        &self,
        records: &impl Serialize,
        csv: impl FnOnce() -> String,
        html: impl FnOnce() -> Result<String, Failure>,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(records).or_work("JSON")?;
            output::write(path, json + "\n", interrupt).or_work(path.display())?;
        }
        if let Some(path) = &self.csv {
            output::write(path, csv(), interrupt).or_work(path.display())?;
        }
        if let Some(path) = &self.html {
            output::write(path, html()?, interrupt).or_work(path.display())?;
        }
        Ok(())
    }
}
