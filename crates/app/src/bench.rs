//! `argon bench`: how fast it is, as tables to read, as JSON and CSV to keep, and as a page of pictures.
//!
//! [`model`] times whole prompts. The others time the parts of a mixture-of-experts layer: [`plan`], [`gather`], [`moe`]
//! and [`dense`]; what they have in common is in the files beside them.

mod args;
mod cold;
mod dense;
mod gather;
mod machine;
mod model;
mod moe;
mod outputs;
mod page;
mod plan;
mod report;
mod setup;
mod speed;
mod stage;

use clap::{Args, Subcommand};

use crate::args::BenchModelArgs;
use crate::failure::Failure;

pub use outputs::OutputArgs;

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
