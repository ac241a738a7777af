//! What the command line means: raw arguments in, checked settings out. Nothing else in this crate judges a flag's value.

mod parity;
mod sampling;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use argon_engine::{CacheTypes, SessionOptions};
use argon_gguf::Format;
use argon_kernels::{DType, Precision};

use crate::args;
use crate::failure::Failure;
use crate::prompt::Source;
pub use parity::{Parity, Part};
pub use sampling::Sampling;

/// Tokens that a chat has room for unless more are asked for: its end is not known, and all memory is claimed at once.
pub const CHAT_CONTEXT: usize = 8192;

/// What computes, and how exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Which device.
    pub kind: DeviceKind,
    /// Threads of the processor; as many as it runs at once where absent.
    pub threads: Option<NonZero<usize>>,
    /// The precision mode; the device's own default where absent.
    pub precision: Option<Precision>,
}

/// The devices that can be named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceKind {
    /// A GPU that proves itself, else the processor.
    Auto,
    /// The processor.
    Cpu,
    /// Float64 loops: slow, and what other devices are judged by.
    Reference,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
    /// The adapter of this number behind Vulkan, Metal or DX12.
    Wgpu(usize),
}

impl DeviceKind {
    /// The kind that is spelled so; a GPU without a number is the first. `CUDA0` is llama.cpp's spelling of `cuda:0`.
    fn parse(name: &str) -> Option<DeviceKind> {
        let name = name.to_ascii_lowercase();
        let number_of_llama = || name.strip_prefix("cuda").filter(|number| !number.is_empty());
        let (family, number) = match name.split_once(':') {
            Some((family, number)) => (family, Some(number)),
            None => number_of_llama().map_or((name.as_str(), None), |number| ("cuda", Some(number))),
        };
        let digits = |number: &&str| number.bytes().all(|byte| byte.is_ascii_digit());
        match (family, number.map_or(Some(0), |number| Some(number).filter(digits)?.parse().ok())) {
            ("cuda", Some(number)) => Some(DeviceKind::Cuda(number)),
            ("wgpu", Some(number)) => Some(DeviceKind::Wgpu(number)),
            ("auto", _) if number.is_none() => Some(DeviceKind::Auto),
            ("cpu", _) if number.is_none() => Some(DeviceKind::Cpu),
            ("reference", _) if number.is_none() => Some(DeviceKind::Reference),
            _ => None,
        }
    }
}

/// As `--device` spells it.
impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceKind::Auto => f.write_str("auto"),
            DeviceKind::Cpu => f.write_str("cpu"),
            DeviceKind::Reference => f.write_str("reference"),
            DeviceKind::Cuda(number) => write!(f, "cuda:{number}"),
            DeviceKind::Wgpu(number) => write!(f, "wgpu:{number}"),
        }
    }
}

impl TryFrom<args::DeviceArgs> for Device {
    type Error = Failure;

    fn try_from(args: args::DeviceArgs) -> Result<Self, Failure> {
        let kind = kind(&args.device)?;
        let threads = args.threads.map(threads).transpose()?;
        let precision = args.precision.as_deref().map(precision).transpose()?;
        Ok(Device { kind, threads, precision })
    }
}

impl Device {
    /// Threads of this program that compute: one that feeds a GPU, else as many as the processor device has.
    pub fn threads(&self) -> usize {
        match self.kind {
            DeviceKind::Cuda(_) | DeviceKind::Wgpu(_) => 1,
            _ => self.threads.or(std::thread::available_parallelism().ok()).map_or(1, NonZero::get),
        }
    }
}

/// As many threads as are wanted, but no more than the machine runs at once: those beyond would only wait for each other.
fn threads(wanted: usize) -> Result<NonZero<usize>, Failure> {
    let wanted = NonZero::new(wanted).ok_or_else(|| refused("--threads", wanted, "1 at least"))?;
    match std::thread::available_parallelism() {
        Ok(most) if wanted > most => {
            eprintln!("warning: --threads is {wanted}, but this machine runs {most} at once: using {most}");
            Ok(most)
        }
        _ => Ok(wanted),
    }
}

fn kind(name: &str) -> Result<DeviceKind, Failure> {
    let wanted = "cpu, cuda[:N] (NVIDIA), wgpu[:N] (Vulkan, Metal, DX12), auto or reference";
    DeviceKind::parse(name).ok_or_else(|| refused("--device", name, wanted))
}

fn precision(name: &str) -> Result<Precision, Failure> {
    let known = [Precision::F32, Precision::F16, Precision::Int8];
    let found = known.into_iter().find(|precision| precision.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| refused("--precision", name, "f32, f16 or int8"))
}

/// The format of weights that `flag` names.
///
/// # Errors
/// Of the input, naming those that there are.
pub fn weight_format(flag: &str, name: &str) -> Result<Format, Failure> {
    let names = || Format::weights().map(Format::name).collect::<Vec<_>>().join(", ");
    let known = Format::from_name(name).filter(|format| format.is_weight());
    known.ok_or_else(|| refused(flag, name, &format!("one of {}", names())))
}

/// How a session is cut up and what its caches hold. The context is still to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session {
    chunk: usize,
    cache: CacheTypes,
}

impl Session {
    /// Settings from flags; a cache type that is not given is `cache`.
    fn new(args: args::SessionArgs, cache: DType) -> Result<Self, Failure> {
        let chunk = within("--ubatch-size", args.ubatch_size, 1, i32::MAX as usize)?;
        let k = cache_type("--cache-type-k", args.cache_type_k.as_deref(), cache)?;
        let v = cache_type("--cache-type-v", args.cache_type_v.as_deref(), cache)?;
        Ok(Session { chunk, cache: CacheTypes { k, v } })
    }

    /// Tokens that go through the model at once.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// With room for `context` tokens.
    pub fn with_context(self, context: usize) -> SessionOptions {
        SessionOptions { context, chunk: self.chunk, cache: self.cache }
    }
}

fn cache_type(flag: &str, name: Option<&str>, default: DType) -> Result<DType, Failure> {
    let Some(name) = name else { return Ok(default) };
    match name.to_ascii_lowercase().as_str() {
        "f32" => Ok(DType::F32),
        "f16" => Ok(DType::F16),
        _ => Err(refused(flag, name, "f32 or f16")),
    }
}

/// What `argon run` shall do.
#[derive(Debug)]
pub struct Run {
    /// The model file; the embedded model where absent.
    pub model: Option<PathBuf>,
    /// Where the prompt comes from.
    pub prompt: Source,
    /// A conversation, of which the prompt is the first message.
    pub chat: Option<Chat>,
    /// The file to resume a session from and to save it to.
    pub session_file: Option<PathBuf>,
    /// Whether to say where the prompt's time goes, and the file to show it in.
    pub profile: Option<Option<PathBuf>>,
    /// The file to write the prompt's choices of experts to.
    pub record_routing: Option<PathBuf>,
    /// Tokens to generate at most; as many as fit where absent.
    pub predict: Option<usize>,
    /// How much context.
    pub context: Context,
    /// Chunks and caches.
    pub session: Session,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Whether an end-of-text token is a token like any other.
    pub ignore_eos: bool,
    /// What computes.
    pub device: Device,
}

/// A conversation.
#[derive(Debug)]
pub struct Chat {
    /// The system message.
    pub system: Option<String>,
    /// Whether the model shall think first; left to the template where absent.
    pub think: Option<bool>,
}

/// How many tokens a session has room for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Context {
    /// As many as prompt and answer need together, in a chat [`CHAT_CONTEXT`], within what the model was trained for.
    Needed,
    /// As many as the model was trained for.
    Trained,
    /// As many as the user says.
    Tokens(usize),
}

impl Context {
    /// Context as `-c` has it.
    fn new(ctx_size: Option<usize>) -> Result<Self, Failure> {
        match ctx_size {
            None => Ok(Context::Needed),
            Some(0) => Ok(Context::Trained),
            Some(tokens) => Ok(Context::Tokens(within("--ctx-size", tokens, 1, i32::MAX as usize)?)),
        }
    }

    /// Tokens of a session that begins with `prompt` tokens and shall have room for `wanted`, which are no fewer. Only who asks
    /// for it gets more than the `trained` of the model.
    ///
    /// # Errors
    /// Of the input if the prompt, which `what` names, does not fit; says what to do.
    pub fn tokens(self, what: &str, prompt: usize, wanted: usize, trained: usize) -> Result<usize, Failure> {
        const BEYOND: &str = "what the model was trained for; a larger -c goes beyond it";
        let (context, advice) = match self {
            Context::Tokens(tokens) => (tokens, "-c makes it larger"),
            Context::Trained => (trained, BEYOND),
            Context::Needed => (wanted.min(trained), BEYOND),
        };
        if prompt > context {
            return Err(Failure::input(format_args!(
                "{what} {prompt} tokens, the context has room for {context}: {advice}"
            )));
        }
        Ok(context)
    }
}

impl TryFrom<args::RunArgs> for Run {
    type Error = Failure;

    fn try_from(args: args::RunArgs) -> Result<Self, Failure> {
        let chat = args.chat.chat.then(|| Chat {
            system: args.chat.system,
            think: (args.chat.think || args.chat.no_think).then_some(args.chat.think),
        });
        Ok(Run {
            model: args.model,
            prompt: args.prompt.into(),
            predict: count_or_minus_one("--predict", args.predict.unwrap_or(if chat.is_some() { -1 } else { 128 }))?,
            chat,
            session_file: args.session_file,
            profile: profile(args.profile)?,
            record_routing: args.record_routing,
            context: Context::new(args.ctx_size)?,
            session: Session::new(args.session, DType::F16)?,
            ignore_eos: args.sampling.ignore_eos,
            sampling: Sampling::new(args.sampling)?,
            device: args.device.try_into()?,
        })
    }
}

/// The file of a profile: a page, also without an extension, or JSON, and nothing that its name says is something else.
fn profile(said: Option<Option<PathBuf>>) -> Result<Option<Option<PathBuf>>, Failure> {
    if let Some(path) = said.iter().flatten().find(|path| {
        path.extension()
            .is_some_and(|said| !["html", "htm", "json"].iter().any(|known| said.eq_ignore_ascii_case(known)))
    }) {
        return Err(refused("--profile", path.display(), "a name that ends in .html or .json"));
    }
    Ok(said)
}

/// What `argon logits` shall do.
#[derive(Debug)]
pub struct Logits {
    /// The model file; the embedded model where absent.
    pub model: Option<PathBuf>,
    /// The prompt.
    pub prompt: Tokens,
    /// Whether every token's logits are wanted, or the last one's only.
    pub all: bool,
    /// The file to write; `-` is standard output.
    pub output: PathBuf,
    /// How much context.
    pub context: Context,
    /// Chunks and caches.
    pub session: Session,
    /// What computes.
    pub device: Device,
}

/// A prompt as text or as token ids.
#[derive(Debug)]
pub enum Tokens {
    /// Text.
    Text(Source),
    /// Ids.
    Ids(Vec<u32>),
    /// A JSON file with ids.
    IdFile(PathBuf),
}

impl Tokens {
    /// The file that they come from, and what it is.
    pub fn file(&self) -> Option<(&'static str, &Path)> {
        match self {
            Tokens::Text(source) => Some(("the prompt", source.file()?)),
            Tokens::IdFile(path) => Some(("the prompt", path)),
            Tokens::Ids(_) => None,
        }
    }
}

impl TryFrom<args::LogitsArgs> for Logits {
    type Error = Failure;

    fn try_from(args: args::LogitsArgs) -> Result<Self, Failure> {
        let device: Device = args.device.try_into()?;
        Ok(Logits {
            model: args.model,
            prompt: match (args.tokens, args.tokens_file) {
                (Some(ids), _) => Tokens::Ids(ids),
                (None, Some(path)) => Tokens::IdFile(path),
                (None, None) => Tokens::Text(args.prompt.into()),
            },
            all: args.all,
            output: args.output,
            context: Context::new(args.ctx_size)?,
            session: Session::new(args.session, DType::F32)?,
            // Numbers to compare with others' are wanted exact unless something else is asked for.
            device: Device { precision: device.precision.or(Some(Precision::F32)), ..device },
        })
    }
}

/// What `argon bench model` shall do.
#[derive(Debug)]
pub struct BenchModel {
    /// The model file; the embedded model where absent.
    pub model: Option<PathBuf>,
    /// What to time; one at least.
    pub tests: Vec<BenchTest>,
    /// How often.
    pub repetitions: usize,
    /// Chunks and caches.
    pub session: Session,
    /// The files to write; for the page, the longest prompt is read once more.
    pub outputs: crate::bench::OutputArgs,
    /// What computes.
    pub device: Device,
}

/// Something to time; one token at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BenchTest {
    /// A prompt of so many tokens.
    Prompt(usize),
    /// So many tokens, one by one.
    Generate(usize),
}

impl BenchTest {
    /// Its number of tokens.
    pub fn tokens(self) -> usize {
        match self {
            BenchTest::Prompt(tokens) | BenchTest::Generate(tokens) => tokens,
        }
    }
}

/// As llama-bench calls it: `pp512`, `tg128`.
impl std::fmt::Display for BenchTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchTest::Prompt(tokens) => write!(f, "pp{tokens}"),
            BenchTest::Generate(tokens) => write!(f, "tg{tokens}"),
        }
    }
}

impl TryFrom<args::BenchModelArgs> for BenchModel {
    type Error = Failure;

    fn try_from(args: args::BenchModelArgs) -> Result<Self, Failure> {
        let tests = |flag, lengths: Vec<usize>, test: fn(usize) -> BenchTest| {
            let wanted = lengths.into_iter().filter(|&tokens| tokens > 0);
            wanted
                .map(|tokens| Ok(test(within(flag, tokens, 1, i32::MAX as usize)?)))
                .collect::<Result<Vec<_>, Failure>>()
        };
        let mut all = tests("--n-prompt", args.n_prompt, BenchTest::Prompt)?;
        all.extend(tests("--n-gen", args.n_gen, BenchTest::Generate)?);
        if all.is_empty() {
            return Err(Failure::input("--n-prompt and --n-gen are 0: nothing to measure"));
        }
        Ok(BenchModel {
            model: args.model,
            tests: all,
            repetitions: within("--repetitions", args.repetitions, 1, 1_000_000)?,
            session: Session::new(args.session, DType::F16)?,
            outputs: args.outputs,
            device: args.device.try_into()?,
        })
    }
}

/// What `argon perplexity` shall do.
#[derive(Debug)]
pub struct Perplexity {
    /// The model file; the embedded model where absent.
    pub model: Option<PathBuf>,
    /// The text.
    pub text: PathBuf,
    /// Tokens of a window; 4 at least, so that one counts.
    pub window: usize,
    /// Windows to read at most, one at least; all where absent.
    pub windows: Option<usize>,
    /// Chunks and caches.
    pub session: Session,
    /// What computes.
    pub device: Device,
}

impl TryFrom<args::PerplexityArgs> for Perplexity {
    type Error = Failure;

    fn try_from(args: args::PerplexityArgs) -> Result<Self, Failure> {
        if args.chunks == 0 || args.chunks < -1 {
            return Err(refused("--chunks", args.chunks, "a number from 1, or -1"));
        }
        Ok(Perplexity {
            model: args.model,
            text: args.file,
            window: within("--ctx-size", args.ctx_size, 4, i32::MAX as usize)?,
            windows: count_or_minus_one("--chunks", args.chunks)?,
            session: Session::new(args.session, DType::F16)?,
            device: args.device.try_into()?,
        })
    }
}

/// A count; -1 means none is set.
fn count_or_minus_one(flag: &str, value: i64) -> Result<Option<usize>, Failure> {
    match usize::try_from(value) {
        Ok(count) => Ok(Some(count)),
        Err(_) if value == -1 => Ok(None),
        Err(_) => Err(refused(flag, value, "a number from 0, or -1")),
    }
}

pub fn within(flag: &str, value: usize, least: usize, most: usize) -> Result<usize, Failure> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(refused(flag, value, &format!("from {least} to {most}")))
}

pub fn refused(flag: &str, value: impl std::fmt::Display, wanted: &str) -> Failure {
    Failure::input(format_args!("{flag} is {value}; it must be {wanted}"))
}
