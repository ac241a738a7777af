//! How a command ends when it does not end well, and the exit code that says so.

use std::io;
use std::process::ExitCode;

use crate::words::one_line;

/// Why a command stopped. The kind decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// The user's input cannot be used: a flag, a prompt, a missing, malformed or unsupported file. Exit code 2.
    Input(anyhow::Error),
    /// The work failed: memory, a device, writing a result, a comparison outside its tolerance. Exit code 1.
    Work(anyhow::Error),
    /// Nobody reads standard output any more (`argon ... | head`). Ends quietly, exit code 0.
    StdoutClosed,
    /// Ctrl-C. What was done until then has been reported. Exit code 130, as shells and llama.cpp have it.
    Interrupted,
}

impl Failure {
    /// Bad input, in one sentence.
    pub fn input(message: impl std::fmt::Display) -> Self {
        Failure::Input(anyhow::anyhow!("{message}"))
    }

    /// Failed work, in one sentence.
    pub fn work(message: impl std::fmt::Display) -> Self {
        Failure::Work(anyhow::anyhow!("{message}"))
    }

    /// Says on standard error what happened, in one line, and gives the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::StdoutClosed => ExitCode::SUCCESS,
            Failure::Interrupted => {
                eprintln!("interrupted");
                ExitCode::from(130)
            }
            Failure::Input(error) => {
                eprintln!("error: {}", one_line(&format!("{error:#}")));
                ExitCode::from(2)
            }
            Failure::Work(error) => {
                eprintln!("error: {}", one_line(&format!("{error:#}")));
                ExitCode::from(1)
            }
        }
    }
}

/// Says of an error which kind of failure it is, and what was being done.
pub trait OrFail<T> {
    /// The input is at fault; `what` names it.
    fn or_input(self, what: impl std::fmt::Display) -> Result<T, Failure>;
    /// The work failed; `what` names it.
    fn or_work(self, what: impl std::fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_input(self, what: impl std::fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::Input(error.into().context(what.to_string())))
    }

    fn or_work(self, what: impl std::fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::Work(error.into().context(what.to_string())))
    }
}

/// The failure behind an error of writing to standard output.
pub fn stdout_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::StdoutClosed,
        _ if terminal::has_gone(io::stdout(), Some(&error)) => Failure::Interrupted,
        _ => Failure::Work(anyhow::Error::from(error).context("standard output")),
    }
}

/// The failure behind an error of reading standard input.
pub fn stdin_failure(error: io::Error) -> Failure {
    match terminal::has_gone(io::stdin(), Some(&error)) {
        true => Failure::Interrupted,
        false => Failure::Input(anyhow::Error::from(error).context("standard input")),
    }
}

/// That standard input has come to its end, and not its terminal.
///
/// # Errors
/// [`Failure::Interrupted`].
pub fn stdin_ended() -> Result<(), Failure> {
    if terminal::has_gone(io::stdin(), None) { Err(Failure::Interrupted) } else { Ok(()) }
}

/// A terminal that was closed, or whose connection broke.
#[cfg(unix)]
mod terminal {
    use std::io;
    use std::os::fd::AsFd;

    use rustix::fs::{FileType, fstat};
    use rustix::io::{Errno, ioctl_fionread};

    /// Whether `stream` was a terminal and is none any more, as far as it or `error` of using it tells. SIGHUP says the
    /// same, but may come later.
    pub fn has_gone(stream: impl AsFd, error: Option<&io::Error>) -> bool {
        let device = fstat(&stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_char_device());
        let refused = error.is_some_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()));
        device && (refused || ioctl_fionread(&stream) == Err(Errno::IO))
    }
}

/// Elsewhere it is not told.
#[cfg(not(unix))]
mod terminal {
    pub fn has_gone<T>(_stream: T, _error: Option<&std::io::Error>) -> bool {
        false
    }
}
