//! Ctrl-C, and SIGTERM like it: the first one asks the work to stop, a second one ends the process at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::failure::{Failure, OrFail};

/// The one whose signals come here.
static OF_PROCESS: OnceLock<Interrupt> = OnceLock::new();

/// What Ctrl-C has to do with.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    /// Whether the first one asks the work to stop, instead of ending the process.
    asks: Arc<AtomicBool>,
    /// The file that would be left behind incomplete.
    unfinished: Arc<Mutex<Option<PathBuf>>>,
}

impl Interrupt {
    /// From now on signals do what this module says: the first one ends the process, but leaves no file incomplete.
    ///
    /// # Errors
    /// Of the work, if the system does not allow it.
    pub fn install() -> Result<(), Failure> {
        let of_ctrl_c = Self::of_process();
        ctrlc::set_handler(move || of_ctrl_c.come()).or_work("catching Ctrl-C")?;
        #[cfg(unix)]
        {
            let of_term = Self::of_process();
            let mut signals =
                signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]).or_work("catching SIGTERM")?;
            std::thread::spawn(move || signals.forever().for_each(|_| of_term.come()));
        }
        Ok(())
    }

    /// What the signals of this process have to do with, for work that has nothing to finish.
    pub fn of_process() -> Self {
        OF_PROCESS.get_or_init(Self::default).clone()
    }

    /// The same for work that stops when it is asked to: from now on, the first signal asks.
    pub fn catch() -> Self {
        let interrupt = Self::of_process();
        interrupt.asks.store(true, Ordering::Relaxed);
        interrupt
    }

    /// A signal has come.
    fn come(&self) {
        if self.stop.swap(true, Ordering::Relaxed) || !self.asks.load(Ordering::Relaxed) {
            if let Some(path) = &*self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) {
                // The process ends; there is nobody to tell that it could not be removed.
                let _ = fs::remove_file(path);
            }
            end(130);
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

/// Ends the process without what libraries would do at its end: a device's driver takes down what its threads still use.
fn end(code: i32) -> ! {
    #[cfg(unix)]
    signal_hook::low_level::exit(code);
    #[cfg(not(unix))]
    std::process::exit(code)
}
