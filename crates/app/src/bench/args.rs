//! The flags of the benches of a layer's parts, and what they mean.

use std::collections::HashSet;

use argon_gguf::Format;
use clap::Args;

use super::outputs::OutputArgs;
use crate::args::{DeviceArgs, of_a_list};
use crate::failure::Failure;
use crate::measure::routing::{Routing, Source};
use crate::settings::{refused, weight_format, within};

/// More tokens in a chunk than anybody prefills at once.
const MAX_TOKENS: usize = 1 << 20;

/// The most experts that a plan is asked for.
const MAX_EXPERTS: usize = 1 << 16;

/// Experts of each token where nobody says how many.
const TOP_K: usize = 10;

/// The widest row.
const MAX_WIDTH: usize = 1 << 20;

/// The report's dense formats.
const DENSE: &str = "F32,BF16,Q8_0,Q4_0,Q5_0,IQ4_NL,IQ4_XS,Q2_0,IQ3_S,Q3_K,Q4_K,Q5_K,Q6_K";

/// `argon bench plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub routed: RoutedArgs,
    /// Layers of the sequence
    #[arg(long, value_name = "L", default_value_t = 48)]
    pub layers: usize,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `argon bench gather`.
#[derive(Debug, Args)]
pub struct GatherArgs {
    #[command(flatten)]
    pub routed: RoutedArgs,
    #[command(flatten)]
    pub hidden: HiddenArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `argon bench moe`.
#[derive(Debug, Args)]
pub struct MoeArgs {
    #[command(flatten)]
    pub routed: RoutedArgs,
    #[command(flatten)]
    pub hidden: HiddenArgs,
    /// Expert width: inputs of down
    #[arg(short = 'F', long, value_name = "F", default_value_t = 640)]
    pub ffn: usize,
    /// Format of the gate and up weights
    #[arg(long, value_name = "FORMAT", default_value = "IQ2_XS")]
    pub gu: String,
    /// Format of the down weights
    #[arg(long, value_name = "FORMAT", default_value = "IQ4_NL")]
    pub dn: String,
    /// Layers in one go, of which a layer's share is told
    #[arg(long, value_name = "L", default_value_t = 1)]
    pub layers: usize,
    #[command(flatten)]
    pub cold: ColdArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `argon bench dense`.
#[derive(Debug, Args)]
pub struct DenseArgs {
    /// Rows of activations
    #[arg(short = 'T', long, value_name = "N,...", value_delimiter = ',', value_parser = of_a_list, default_value = "512")]
    pub tokens: Vec<usize>,
    #[command(flatten)]
    pub hidden: HiddenArgs,
    /// Output width [default: the input width]
    #[arg(short = 'N', long, value_name = "N")]
    pub outputs: Option<usize>,
    /// Formats of the weights
    #[arg(long, value_name = "FORMAT,...", value_delimiter = ',', default_value = DENSE)]
    pub formats: Vec<String>,
    /// Seed of the random numbers
    #[arg(short, long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
    #[command(flatten)]
    pub cold: ColdArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// How tokens meet experts.
#[derive(Debug, Args)]
pub struct RoutedArgs {
    /// Tokens in a chunk [default: 128,512,1024,2048, or as many as were recorded]
    #[arg(short = 'T', long, value_name = "N,...", value_delimiter = ',', value_parser = of_a_list)]
    pub tokens: Vec<usize>,
    /// Experts to choose from [default: 512]
    #[arg(long, value_name = "E")]
    pub experts: Option<usize>,
    /// Experts of each token [default: 10, no more than there are, or as many as were recorded]
    #[arg(long, value_name = "K")]
    pub topk: Option<usize>,
    /// Which experts: uniform, zipf:S (expert r as often as 1/r^S), or a file that argon run --record-routing wrote
    #[arg(long, value_name = "HOW", default_value = "uniform")]
    pub routing: String,
    /// Seed of the random numbers
    #[arg(short, long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
}

/// How wide a token is.
#[derive(Debug, Args)]
pub struct HiddenArgs {
    /// Hidden size: inputs of the product, or of gate and up
    #[arg(short = 'D', long, value_name = "D", default_value_t = 2560)]
    pub hidden: usize,
}

/// How weights are kept out of the caches.
#[derive(Debug, Args)]
pub struct ColdArgs {
    /// Weights that take turns, in MiB at least: more than the last cache holds
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub pool: usize,
}

/// What every bench of kernels takes.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// How often each is measured [default: as often as half a second allows, 7 to 201 times]
    #[arg(short, long, value_name = "N")]
    pub repetitions: Option<usize>,
    #[command(flatten)]
    pub outputs: OutputArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// The chunks to measure and how they are routed.
#[derive(Debug)]
pub struct Routed {
    /// T of each chunk.
    pub tokens: Vec<usize>,
    /// Who meets whom.
    pub routing: Routing,
}

impl TryFrom<RoutedArgs> for Routed {
    type Error = Failure;

    fn try_from(args: RoutedArgs) -> Result<Self, Failure> {
        let source = Source::parse(&args.routing)?;
        let recorded = source.recorded();
        let experts = match (args.experts, recorded) {
            (Some(experts), _) => within("--experts", experts, 1, MAX_EXPERTS)?,
            (None, None) => 512,
            (None, Some(_)) => {
                return Err(Failure::input("--experts is needed with a recorded --routing, which does not say it"));
            }
        };
        let top_k = match (args.topk, recorded) {
            (Some(top_k), Some(shape)) if top_k != shape.top_k => {
                return Err(refused("--topk", top_k, &format!("{}, as recorded", shape.top_k)));
            }
            (Some(top_k), _) => top_k,
            (None, Some(shape)) => shape.top_k,
            (None, None) => {
                if experts < TOP_K {
                    eprintln!("--topk is {experts}: there are no {TOP_K} experts");
                }
                TOP_K.min(experts)
            }
        };
        if !(1..=experts).contains(&top_k) {
            return Err(refused("--topk", top_k, &format!("from 1 to {experts}, the number of experts")));
        }
        let tokens = match (args.tokens.is_empty(), recorded) {
            (true, Some(shape)) => vec![shape.tokens],
            (true, None) => vec![128, 512, 1024, 2048],
            (false, _) => args.tokens,
        };
        let most = recorded.map_or(MAX_TOKENS, |shape| shape.tokens);
        let tokens = tokens_within(tokens, most)?;
        Ok(Routed { tokens, routing: Routing::new(source, experts, top_k, args.seed)? })
    }
}

/// Numbers of tokens, each from 1 to `most`; each once, where it is first said.
pub fn tokens_within(mut tokens: Vec<usize>, most: usize) -> Result<Vec<usize>, Failure> {
    let mut said = HashSet::new();
    tokens.retain(|&tokens| said.insert(tokens));
    tokens.into_iter().map(|tokens| within("--tokens", tokens, 1, most.min(MAX_TOKENS))).collect()
}

/// A width.
pub fn width(flag: &str, width: usize) -> Result<usize, Failure> {
    within(flag, width, 1, MAX_WIDTH)
}

/// The format that `flag` names, for rows of `cols` weights.
pub fn format(flag: &str, name: &str, cols: usize) -> Result<Format, Failure> {
    let format = weight_format(flag, name)?;
    if cols.is_multiple_of(format.block_len()) {
        return Ok(format);
    }
    let block = format.block_len();
    Err(Failure::input(format_args!(
        "{flag} {format}: rows of {cols} weights are no multiple of the {block} in a block"
    )))
}

impl CommonArgs {
    /// How often each is measured, if that is said.
    pub fn repetitions(&self) -> Result<Option<usize>, Failure> {
        self.repetitions.map(|n| within("--repetitions", n, 1, 1_000_000)).transpose()
    }
}
