//! Ctrl-C, and SIGTERM like it: the first one asks the work to stop, a second one ends the process at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::{Failure, OrFail};

/// What Ctrl-C has to do with.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    /// Whether the first one ends the process already.
    at_once: bool,
    /// The file that would be left behind incomplete.
    unfinished: Arc<Mutex<Option<PathBuf>>>,
}

impl Interrupt {
    /// From now on, Ctrl-C does what this module says. Once in a process.
    ///
    /// # Errors
    /// Of the work, if the system does not allow it.
    pub fn catch() -> Result<Self, Failure> {
        Self::default().caught()
    }

    /// As [`catch`](Self::catch), for work that has nothing to finish: the first one ends the process, but no file is left
    /// incomplete.
    ///
    /// # Errors
    /// As [`catch`](Self::catch).
    pub fn at_once() -> Result<Self, Failure> {
        Self { at_once: true, ..Self::default() }.caught()
    }

    fn caught(self) -> Result<Self, Failure> {
        let of_ctrl_c = self.clone();
        ctrlc::set_handler(move || of_ctrl_c.come()).or_work("catching Ctrl-C")?;
        #[cfg(unix)]
        {
            let of_term = self.clone();
            let mut signals =
                signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]).or_work("catching SIGTERM")?;
            std::thread::spawn(move || signals.forever().for_each(|_| of_term.come()));
        }
        Ok(self)
    }

    /// A signal has come.
    fn come(&self) {
        if self.stop.swap(true, Ordering::Relaxed) || self.at_once {
            if let Some(path) = &*self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) {
                // The process ends; there is nobody to tell that it could not be removed.
                let _ = fs::remove_file(path);
            }
            std::process::exit(130);
        }
    }

    /// A flag that the first Ctrl-C sets.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Whether work goes on.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] after the first Ctrl-C.
    pub fn check(&self) -> Result<(), Failure> {
        if self.came() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Whether the first Ctrl-C has come.
    pub fn came(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What was to stop has stopped; the next Ctrl-C is a first one again.
    pub fn forget(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Whatever ends the process removes this file, or none.
    pub fn removes(&self, unfinished: Option<&Path>) {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = unfinished.map(Path::to_owned);
    }
}
