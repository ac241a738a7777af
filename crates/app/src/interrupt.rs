//! Ctrl-C: the first one asks the work to stop, a second one ends the process at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::{Failure, OrFail};

/// What Ctrl-C has to do with.
#[derive(Clone, Default)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    /// The file that would be left behind incomplete.
    unfinished: Arc<Mutex<Option<PathBuf>>>,
}

impl Interrupt {
    /// From now on, Ctrl-C does what this module says. Once in a process.
    ///
    /// # Errors
    /// Of the work, if the system does not allow it.
    pub fn catch() -> Result<Self, Failure> {
        let interrupt = Self::default();
        let Self { stop, unfinished } = interrupt.clone();
        ctrlc::set_handler(move || {
            if stop.swap(true, Ordering::Relaxed) {
                if let Some(path) = &*unfinished.lock().unwrap_or_else(PoisonError::into_inner) {
                    // The process ends; there is nobody to tell that it could not be removed.
                    let _ = fs::remove_file(path);
                }
                std::process::exit(130);
            }
        })
        .or_work("catching Ctrl-C")?;
        Ok(interrupt)
    }

    /// A flag that the first Ctrl-C sets.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Whether the first Ctrl-C has come.
    pub fn came(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What was to stop has stopped; the next Ctrl-C is a first one again.
    pub fn forget(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// A second Ctrl-C removes this file, or none.
    pub fn removes(&self, unfinished: Option<&Path>) {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = unfinished.map(Path::to_owned);
    }
}
