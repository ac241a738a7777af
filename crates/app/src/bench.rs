//! `argon bench`: how fast it is, as tables to read, as JSON and CSV to keep, and as a page of pictures.
//!
//! [`model`] times whole prompts. The others time the parts of a mixture-of-experts layer: [`plan`], [`gather`], [`moe`]
//! and [`dense`]; what they have in common is in the files beside them.

mod args;
mod cold;
mod dense;
mod gather;
mod load;
mod machine;
pub mod model;
mod moe;
mod outputs;
pub mod page;
mod plan;
pub mod report;
pub mod routing;
mod setup;
mod stage;
pub mod times;

use std::fmt;

use clap::{Args, Subcommand};

use crate::args::BenchModelArgs;
use crate::failure::Failure;

pub use outputs::OutputArgs;
pub use plan::words as plan_words;

/// `argon bench`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// What `argon bench` measures.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Time the plan, stage by stage and as a sequence of layers, every variant beside the others
    Plan(args::PlanArgs),
    /// Time the copy of tokens to the rows of a plan, from f32 and from f16
    Gather(args::GatherArgs),
    /// Time the routed part of a mixture-of-experts layer: plan, gate and up, down, combine
    Moe(args::MoeArgs),
    /// Time dense products, format by format
    Dense(args::DenseArgs),
    /// Time prompts and generation of a whole model, as llama-bench does; for a page of pictures, the longest prompt is read
    /// once more, watched stage by stage
    Model(BenchModelArgs),
}

/// Runs the command.
///
/// # Errors
/// Of the input, or of the work.
pub fn run(args: BenchArgs) -> Result<(), Failure> {
    match args.command {
        BenchCommand::Plan(args) => plan::run(args),
        BenchCommand::Gather(args) => gather::run(args),
        BenchCommand::Moe(args) => moe::run(args),
        BenchCommand::Dense(args) => dense::run(args),
        BenchCommand::Model(args) => model::run(args.try_into()?),
    }
}
/// Speeds of the same work done several times, in units of work per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    mean: f64,
    /// Standard deviation of one run; 0 of a single one.
    deviation: f64,
}

impl Speed {
    /// Of `work` units of work that took each of `seconds`.
    fn new(work: usize, seconds: &[f64]) -> Self {
        let (runs, speeds) = (seconds.len() as f64, seconds.iter().map(|seconds| work as f64 / seconds));
        let mean = speeds.clone().sum::<f64>() / runs;
        let squares = speeds.map(|speed| (speed - mean).powi(2)).sum::<f64>();
        Speed { mean, deviation: (squares / (runs - 1.0).max(1.0)).sqrt() }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ± {:.2}", self.mean, self.deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::Speed;

    #[test]
    fn mean_and_deviation_of_known_speeds() {
        let speed = Speed::new(12, &[6.0, 3.0, 2.0]); // 2, 4 and 6 per second
        assert_eq!(speed, Speed { mean: 4.0, deviation: 2.0 });
        assert_eq!(Speed::new(10, &[2.0]), Speed { mean: 5.0, deviation: 0.0 });
        assert_eq!(speed.to_string(), "4.00 ± 2.00");
    }
}
