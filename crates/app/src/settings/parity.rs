//! What `argon parity` shall compare.

use std::num::NonZero;
use std::path::PathBuf;

use argon_gguf::Format;
use argon_kernels::Precision;
use argon_kernels::parity::{Kernel, Request};

use super::{DeviceKind, kind, precision, refused, threads, within};
use crate::args;
use crate::failure::Failure;

/// What `argon parity` shall do.
#[derive(Debug)]
pub struct Parity {
    /// What to compare, each once.
    pub parts: Vec<Part>,
    /// The device; every backend that is here where absent.
    pub device: Option<DeviceKind>,
    /// Threads of the processor.
    pub threads: Option<NonZero<usize>>,
    /// The precision mode; all that a device has where absent.
    pub precision: Option<Precision>,
    /// Sizes, formats, seed.
    pub request: Request,
    /// Tile of gate and up and of dense products, and of down: TM, TN, TK, SG.
    pub tiles: [Option<[u32; 4]>; 2],
    /// Formats of the weights that these tiles are for, where there are some.
    pub tiled: Option<[Format; 2]>,
    /// One way to compute plans.
    pub variant: Option<String>,
    /// The JSON file to write.
    pub report: Option<PathBuf>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// A group of kernels.
    Kernel(Kernel),
    /// The embedded model as a whole.
    Model,
}

impl Part {
    /// The name a person types.
    pub fn name(self) -> &'static str {
        match self {
            Part::Kernel(kernel) => kernel.name(),
            Part::Model => "model",
        }
    }

    fn all() -> impl Iterator<Item = Part> {
        Kernel::ALL.into_iter().map(Part::Kernel).chain([Part::Model])
    }
}

/// The largest sizes: 2^20 entries of a plan are among the cases to compare, and memory is allocated for what is asked.
const MOST_TOKENS: usize = 1 << 20;
const MOST_EXPERTS: usize = 1 << 14;

impl TryFrom<args::KernelsArgs> for Parity {
    type Error = Failure;

    fn try_from(args: args::KernelsArgs) -> Result<Self, Failure> {
        let size = |flag, value: Option<usize>, most| value.map(|n| within(flag, n, 1, most)).transpose();
        let experts = size("--experts", args.experts, MOST_EXPERTS)?;
        let tiles = [tile("--tile", args.tile.as_deref())?, tile("--dtile", args.dtile.as_deref())?];
        // A tile suits some formats only: those of the report unless others are asked for.
        let [gate_up, down] = [args.gu.map(|name| format("--gu", &name)), args.dn.map(|name| format("--dn", &name))];
        let [gate_up, down] = [gate_up.transpose()?, down.transpose()?];
        let usual = [gate_up.unwrap_or(Format::IQ2_XS), down.unwrap_or(Format::IQ4_NL)];
        let tiled = (tiles != [None, None]).then_some(usual);
        let request = Request {
            tokens: size("--tokens", args.tokens, MOST_TOKENS)?,
            experts,
            top_k: size("--topk", args.topk, experts.unwrap_or(MOST_EXPERTS))?,
            seed: args.seed,
            gate_up: tiled.map(|formats| formats[0]).or(gate_up),
            down: tiled.map(|formats| formats[1]).or(down),
        };
        Ok(Parity {
            parts: parts(&args.what)?,
            device: args.device.as_deref().map(device).transpose()?,
            threads: args.threads.map(threads).transpose()?,
            precision: args.precision.as_deref().map(precision).transpose()?,
            request,
            tiles,
            tiled,
            variant: args.variant,
            report: args.report,
        })
    }
}

fn device(name: &str) -> Result<DeviceKind, Failure> {
    match kind(name)? {
        DeviceKind::Auto => Err(refused("--device", name, "a device; without it, every backend is compared")),
        kind => Ok(kind),
    }
}

fn tile(flag: &str, said: Option<&str>) -> Result<Option<[u32; 4]>, Failure> {
    let Some(said) = said else { return Ok(None) };
    let numbers: Option<Vec<u32>> = said.split(',').map(|number| number.trim().parse().ok()).collect();
    let numbers = numbers.and_then(|numbers| <[u32; 4]>::try_from(numbers).ok());
    numbers.map(Some).ok_or_else(|| refused(flag, said, "four numbers: TM,TN,TK,SG"))
}

fn parts(names: &[String]) -> Result<Vec<Part>, Failure> {
    if names.iter().any(|name| name == "all") {
        return Ok(Part::all().collect());
    }
    let known: Vec<&str> = Part::all().map(Part::name).collect();
    let unknown = |name: &str| refused("WHAT", name, &format!("{}, all or oracle DIR", known.join(", ")));
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(unknown(name)),
        None => Ok(Part::all().filter(|part| names.iter().any(|name| name == part.name())).collect()),
    }
}

fn format(flag: &str, name: &str) -> Result<Format, Failure> {
    let weights = || Format::ALL.iter().filter(|format| format.is_weight()).map(|format| format.name());
    let found = Format::from_name(name).filter(|format| format.is_weight());
    found.ok_or_else(|| refused(flag, name, &weights().collect::<Vec<_>>().join(", ")))
}
