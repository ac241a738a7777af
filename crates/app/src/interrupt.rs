//! Ctrl-C, and SIGTERM and SIGHUP like it: the first one asks the work to stop, a second one ends the process at once.
//! SIGXFSZ, of a file that became longer than the shell allows, ends nothing: the write fails, as on a disk that is full.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGTERM, SIGXFSZ};

use crate::failure::{Failure, OrFail};

/// How long work may go on after it was asked to stop without a word to who asked.
const PATIENCE: Duration = Duration::from_millis(500);

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
            // Caught, it leaves an error of the write behind; nobody asks for the flag.
            signal_hook::flag::register(SIGXFSZ, Arc::default()).or_work("catching SIGXFSZ")?;
            let of_others = Self::of_process();
            let mut signals = signal_hook::iterator::Signals::new(others()).or_work("catching SIGTERM")?;
            let wait = move || signals.forever().for_each(|signal| of_others.come_from_afar(signal));
            thread::Builder::new().spawn(wait).or_work("a thread for SIGTERM")?;
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

    /// A signal that is not Ctrl-C has come. A terminal that closes may say so twice, and means it once.
    #[cfg(unix)]
    fn come_from_afar(&self, signal: i32) {
        if signal != SIGHUP || !self.came() {
            self.come();
        }
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
        let this = self.clone();
        // Without a thread it is not said.
        let _ = thread::Builder::new().spawn(move || this.say_that_it_takes_time());
    }

    /// Asked to stop, work first comes to the end of a step: that is said if the step takes long.
    fn say_that_it_takes_time(&self) {
        thread::sleep(PATIENCE);
        if self.came() {
            // Behind what may stand on the line: a bar, an answer.
            let line = if io::stderr().is_terminal() { "\n" } else { "" };
            eprintln!("{line}stopping when the step at hand is done; a second time ends it at once");
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

    /// Does what waits for others and cannot be asked to stop: a signal that comes meanwhile ends the process.
    pub fn ends_at_once<T>(&self, work: impl FnOnce() -> T) -> T {
        let asks = self.asks.swap(false, Ordering::Relaxed);
        let done = work();
        self.asks.store(asks, Ordering::Relaxed);
        done
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

/// The signals that are treated as Ctrl-C is: SIGTERM, and SIGHUP where it is known not to be ignored, as `nohup` has it.
#[cfg(unix)]
fn others() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hangs_up = ignores(&status, SIGHUP) == Some(false);
    [SIGTERM].into_iter().chain(hangs_up.then_some(SIGHUP)).collect()
}

/// Whether a process of this status, as Linux writes it, ignores a signal.
#[cfg(unix)]
fn ignores(status: &str, signal: i32) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? >> (signal - 1) & 1 == 1)
}

/// Ends the process without what libraries would do at its end: a device's driver takes down what its threads still use.
fn end(code: i32) -> ! {
    #[cfg(unix)]
    signal_hook::low_level::exit(code);
    #[cfg(not(unix))]
    std::process::exit(code)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_of_a_signal() {
        let status = "Name:\tcat\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!([SIGHUP, SIGTERM].map(|signal| ignores(status, signal)), [Some(true), Some(false)]);
        assert_eq!(ignores("Name:\tcat\n", SIGHUP), None);
    }
}
