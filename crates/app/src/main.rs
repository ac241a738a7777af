//! The `argon` command: the only part of the workspace that knows argv, the terminal and JSON.
//!
//! Each command has a file of its own. [`args`] is what can be typed, [`settings`] what it means, [`failure`] how a
//! command ends otherwise than well.

/// As the standard library's, but what cannot be said ends no work: standard error may be closed, or a disk that is full.
macro_rules! eprintln {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($said)*);
    }};
}

/// The same without a newline.
macro_rules! eprint {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($said)*);
    }};
}

mod about;
mod args;
mod bench;
mod device;
mod failure;
mod inspect;
mod interrupt;
mod logits;
mod measure;
mod model;
mod npy;
mod output;
mod page;
mod parity;
mod perplexity;
mod progress;
mod prompt;
mod run;
mod settings;
mod synth;
mod table;
mod words;

use std::process::ExitCode;

use args::{Cli, Command, ParityCommand};
use failure::Failure;
use interrupt::Interrupt;

fn main() -> ExitCode {
    if let Some(code) = run::template::serve() {
        return code;
    }
    match Interrupt::install().and_then(|()| args::parse()).and_then(dispatch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(args) => run::run(args.try_into()?),
        Command::Logits(args) => logits::run(args.try_into()?),
        Command::Inspect(args) => inspect::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Perplexity(args) => perplexity::run(args.try_into()?),
        Command::Synth(args) => synth::run(args),
        Command::Parity(args) => match args.command {
            Some(ParityCommand::Oracle(args)) => parity::oracle::run(&args.dir, &args.device.try_into()?),
            None => parity::kernels::run(&args.kernels.try_into()?),
        },
    }
}
