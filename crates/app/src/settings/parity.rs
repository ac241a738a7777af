//! What `argon parity` shall compare.

use std::num::NonZero;
use std::path::PathBuf;

use argon_gguf::Format;
use argon_kernels::Precision;
use argon_kernels::parity::{Kernel, Request};
use argon_plan::Shape;

use super::{DeviceKind, kind, precision, refused, threads, weight_format, within};
use crate::args;
use crate::device::{Forced, Tiles};
use crate::failure::{Failure, OrFail};
use crate::measure::layout::words;
use crate::words::bytes;

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
    /// What the devices shall do otherwise than by themselves.
    pub forced: Forced,
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

    /// The flags that change what is compared.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Part::Kernel(Kernel::Plan) => &["--tokens", "--experts", "--topk", "--variant"],
            Part::Kernel(Kernel::Gather) => &["--tokens", "--experts", "--topk", "--variant", "--precision"],
            Part::Kernel(Kernel::Dense) => &["--tokens", "--gu", "--tile", "--precision"],
            Part::Kernel(Kernel::Moe) => {
                &["--tokens", "--experts", "--topk", "--variant", "--gu", "--dn", "--tile", "--dtile", "--precision"]
            }
            Part::Kernel(Kernel::Route) => &["--tokens", "--experts", "--topk"],
            Part::Kernel(Kernel::Elementwise) => &[],
            Part::Kernel(Kernel::Hyper) | Part::Model => &["--tokens", "--precision"],
            Part::Kernel(Kernel::Delta | Kernel::Attention) => &["--tokens"],
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
        let parts = parts(&args.what)?;
        expect_use(&args, &parts)?;
        let size = |flag, value: Option<usize>, most| value.map(|n| within(flag, n, 1, most)).transpose();
        let experts = size("--experts", args.experts, MOST_EXPERTS)?;
        let tiles = [tile("--tile", args.tile.as_deref())?, tile("--dtile", args.dtile.as_deref())?];
        // A tile suits some formats only: those of the report unless others are asked for.
        let [gate_up, down] =
            [args.gu.map(|name| weight_format("--gu", &name)), args.dn.map(|name| weight_format("--dn", &name))];
        let [gate_up, down] = [gate_up.transpose()?, down.transpose()?];
        let usual = [gate_up.unwrap_or(Format::IQ2_XS), down.unwrap_or(Format::IQ4_NL)];
        let tiled = (tiles != [None, None]).then_some(Tiles { tiles, formats: usual });
        let request = Request {
            tokens: size("--tokens", args.tokens, MOST_TOKENS)?,
            experts,
            top_k: size("--topk", args.topk, experts.unwrap_or(MOST_EXPERTS))?,
            seed: args.seed,
            gate_up: tiled.map(|tiled| tiled.formats[0]).or(gate_up),
            down: tiled.map(|tiled| tiled.formats[1]).or(down),
        };
        expect_room(&parts, &request)?;
        Ok(Parity {
            parts,
            device: args.device.as_deref().map(device).transpose()?,
            threads: args.threads.map(threads).transpose()?,
            precision: args.precision.as_deref().map(precision).transpose()?,
            request,
            forced: Forced { plan: args.variant, tiles: tiled },
            report: args.report,
        })
    }
}

/// Refuses sizes for which the operands of a part and their copies in float64 would take more than a few gigabytes, or, of
/// attention, whose work grows with the square, the reference more than minutes.
fn expect_room(parts: &[Part], request: &Request) -> Result<(), Failure> {
    /// Tokens, where plans are not all that is compared, and of attention; rows of a layer; its experts; logits of a router, and
    /// what it chooses; bytes of a plan.
    const TOKENS: usize = 1 << 14;
    const ATTENDING: usize = 1 << 12;
    const ROWS: usize = 1 << 16;
    const EXPERTS: usize = 1 << 10;
    const LOGITS: usize = 1 << 24;
    // Weights are sums in f32 over the chosen experts, in their order: those of more are within no bound for few.
    const CHOSEN: usize = 1 << 10;
    const MOST_OF_A_PLAN: u64 = 1 << 28;
    let (tokens, top_k) = (request.tokens.unwrap_or(1), request.top_k.unwrap_or(10));
    let experts = request.experts.unwrap_or(512.max(request.top_k.unwrap_or(0)));
    for &part in parts {
        let least =
            |what: &str, most: usize| Err(Failure::input(format_args!("{} takes {most} {what} at most", part.name())));
        match part {
            Part::Kernel(Kernel::Plan) => {
                let shape = Shape::new(tokens, top_k, experts, 1).or_input("--tokens, --topk, --experts")?;
                let size = words(&shape).map_or(u64::MAX, |words| 4 * words as u64);
                if size > MOST_OF_A_PLAN {
                    let (size, most) = (bytes(size), bytes(MOST_OF_A_PLAN));
                    return Err(Failure::input(format_args!(
                        "--tokens, --topk, --experts: a plan of {size}; plan takes {most} at most"
                    )));
                }
            }
            Part::Kernel(Kernel::Attention) if tokens > ATTENDING => return least("tokens (--tokens)", ATTENDING),
            _ if tokens > TOKENS => return least("tokens (--tokens)", TOKENS),
            Part::Kernel(Kernel::Gather | Kernel::Moe) if tokens * top_k > ROWS => {
                return least("rows (--tokens times --topk)", ROWS);
            }
            Part::Kernel(Kernel::Gather | Kernel::Moe) if request.experts.is_some_and(|experts| experts > EXPERTS) => {
                return least("experts (--experts)", EXPERTS);
            }
            Part::Kernel(Kernel::Route) if top_k > CHOSEN => return least("experts for each token (--topk)", CHOSEN),
            Part::Kernel(Kernel::Route) if tokens * experts > LOGITS => {
                return least("logits (--tokens times --experts)", LOGITS);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses flags that change nothing of what is compared.
fn expect_use(args: &args::KernelsArgs, parts: &[Part]) -> Result<(), Failure> {
    let given = [
        ("--tokens", args.tokens.is_some()),
        ("--experts", args.experts.is_some()),
        ("--topk", args.topk.is_some()),
        ("--variant", args.variant.is_some()),
        ("--gu", args.gu.is_some()),
        ("--dn", args.dn.is_some()),
        ("--tile", args.tile.is_some()),
        ("--dtile", args.dtile.is_some()),
        ("--precision", args.precision.is_some()),
    ];
    let unused = |(flag, given): &(&str, bool)| *given && !parts.iter().any(|part| part.flags().contains(flag));
    let Some((flag, _)) = given.into_iter().find(unused) else { return Ok(()) };
    let names = |parts: &mut dyn Iterator<Item = Part>| parts.map(Part::name).collect::<Vec<_>>().join(", ");
    let users = names(&mut Part::all().filter(|part| part.flags().contains(&flag)));
    Err(Failure::input(format_args!(
        "{flag} is for {users}; it changes nothing of {}",
        names(&mut parts.iter().copied())
    )))
}

fn device(name: &str) -> Result<DeviceKind, Failure> {
    match kind(name)? {
        DeviceKind::Auto => Err(refused("--device", name, "a device; without it, every backend is compared")),
        DeviceKind::Reference => Err(refused("--device", name, "a device that is compared with the reference")),
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
