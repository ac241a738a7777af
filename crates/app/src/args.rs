//! The command line as it is typed. What it means is decided in [`settings`](crate::settings).
//!
//! Flags are spelled as llama.cpp spells them, so that a command line can be carried over; that includes short flags of
//! several letters (`-ub`, `-ctk`). What llama.cpp has and Argon has not is refused with what to do instead: [`llama`].

mod llama;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::about::VERSION;
use crate::failure::Failure;

/// Prefills prompts through mixture-of-experts language models in GGUF files.
///
/// Without a command, `argon` does what `argon run` does: prefill a prompt, continue it, print the speed of both.
#[derive(Debug, Parser)]
#[command(name = "argon", version = VERSION, propagate_version = true, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of `argon run`, where no command is named.
    #[command(flatten)]
    pub run: RunArgs,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 the work or a comparison failed; 2 the input cannot be used (a flag, a \
prompt, a file); 130 stopped by Ctrl-C, SIGTERM or SIGHUP.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prefill a prompt and continue it
    Run(RunArgs),
    /// Write the logits of a prompt to a .npy file
    #[command(mut_args(exact))]
    Logits(LogitsArgs),
    /// Say what is in a GGUF file, without reading its weights
    Inspect(InspectArgs),
    /// Measure speed
    Bench(crate::bench::BenchArgs),
    /// Measure how well a model foretells a text
    Perplexity(PerplexityArgs),
    /// Compare devices with the reference, or with numbers that others computed
    Parity(ParityArgs),
    /// Write a file of a real model's shape with random weights
    Synth(crate::synth::SynthArgs),
}

/// `argon run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// GGUF file (of a split model, any part); without it, the small model inside this binary
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// Tokens to generate; -1: until the end of the text or of the context [default: 128, in a chat -1]
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", allow_negative_numbers = true)]
    pub predict: Option<i64>,
    #[command(flatten)]
    pub chat: ChatArgs,
    /// File with a session to go on from, if it is there, and to save to in the end
    #[arg(long = "session", value_name = "FILE")]
    pub session_file: Option<PathBuf>,
    /// Say where the prompt's time goes, by stage; into FILE as a page of pictures, or as JSON if it ends in .json
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "chat")]
    pub profile: Option<Option<PathBuf>>,
    /// File to write the choices of the prompt's tokens to, for argon bench --routing
    #[arg(long, value_name = "FILE", conflicts_with = "chat")]
    pub record_routing: Option<PathBuf>,
    #[command(flatten)]
    pub session: SessionArgs,
    /// Context in tokens; 0: what the model was trained for [default: prompt and answer, in a chat 8192, no longer than that]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub ctx_size: Option<usize>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// A conversation instead of a prompt.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Chat through the file's template: a prompt is the first message, each line of standard input another, /exit ends
    #[arg(long)]
    pub chat: bool,
    /// The chat's system message
    #[arg(long, value_name = "TEXT", requires = "chat", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// Have the model think before it answers, where its template has that switch
    #[arg(long, requires = "chat", conflicts_with = "no_think")]
    pub think: bool,
    /// Have the model answer without thinking, where its template has that switch
    #[arg(long, requires = "chat")]
    pub no_think: bool,
}

/// Where a prompt comes from.
#[derive(Debug, Args)]
pub struct PromptArgs {
    /// The prompt, taken as it is [default: what is piped in, else the model's own example]
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// File with the prompt, "-" for standard input; one newline at its end is dropped
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,
}

/// How a session keeps what it has read.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// Tokens that go through the model at once (-ub)
    #[arg(long, value_name = "N", default_value_t = 2048, allow_negative_numbers = true, value_parser = one_or_more)]
    pub ubatch_size: usize,
    /// Type of the cached keys, f32 or f16 (-ctk) [default: f16]
    #[arg(long, value_name = "TYPE")]
    pub cache_type_k: Option<String>,
    /// Type of the cached values, f32 or f16 (-ctv) [default: f16]
    #[arg(long, value_name = "TYPE")]
    pub cache_type_v: Option<String>,
}

/// How the next token is chosen. What is not given comes from the file, or is the default of llama.cpp.
#[derive(Debug, Default, Args)]
pub struct SamplingArgs {
    /// Temperature; 0 takes the likeliest token [default: the file's, else 0.8]
    #[arg(long, visible_alias = "temperature", value_name = "X", allow_negative_numbers = true)]
    pub temp: Option<f32>,
    /// Keep the N likeliest tokens; 0 keeps all [default: the file's, else 40]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub top_k: Option<i64>,
    /// Keep the likeliest tokens that together reach this probability; 1 keeps all [default: the file's, else 0.95]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Keep tokens at least X times as likely as the likeliest; 0 keeps all [default: the file's, else 0.05]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Seed of the random choices; -1: another one each time [default: the file's, else -1]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<i64>,
    /// Divide the logits of recent tokens by X; 1 leaves them [default: the file's, else 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub repeat_penalty: Option<f32>,
    /// How many tokens count as recent; 0: none, -1: the whole context [default: the file's, else 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub repeat_last_n: Option<i64>,
    /// Do not stop at an end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
}

/// What computes, and how exactly.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// cpu; cuda or cuda:N, an NVIDIA GPU; wgpu or wgpu:N, any GPU; auto, the first GPU that passes a self-test, else cpu; or
    /// reference (float64 and slow, to judge the others by)
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    pub device: String,
    /// Threads of the cpu device, at most as many as the machine runs at once [default: all of them]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = one_or_more)]
    pub threads: Option<usize>,
    /// Precision mode: f32, f16 or int8, where the device has it [default: the device's own]
    #[arg(long, value_name = "MODE")]
    pub precision: Option<String>,
}

/// `argon logits`.
#[derive(Debug, Args)]
pub struct LogitsArgs {
    /// GGUF file (of a split model, any part); without it, the small model inside this binary
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// The prompt as token ids: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = id, conflicts_with_all = ["prompt", "file"])]
    pub tokens: Option<Vec<u32>>,
    /// JSON file with the prompt as an array of token ids
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "file", "tokens"])]
    pub tokens_file: Option<PathBuf>,
    /// Logits after every token, one row each, and not only after the last one
    #[arg(long)]
    pub all: bool,
    /// The .npy file to write, f32; "-" for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Context in tokens; 0: what the model was trained for [default: the prompt, no longer than that]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub ctx_size: Option<usize>,
    #[command(flatten)]
    pub session: SessionArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// `argon inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// GGUF file (of a split model, any part); without it, the small model inside this binary
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The same, as the other commands take it
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub model: Option<PathBuf>,
    /// List every tensor
    #[arg(long)]
    pub tensors: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `argon bench model`.
#[derive(Debug, Args)]
pub struct BenchModelArgs {
    /// GGUF file (of a split model, any part); without it, the small model inside this binary
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Lengths of prompts, in tokens: 128,512,2048; 0 for none
    #[arg(short = 'p', long, value_name = "N,...", value_delimiter = ',', value_parser = of_a_list, default_value = "512")]
    pub n_prompt: Vec<usize>,
    /// Tokens to generate one by one from an empty context: 16,128; 0 for none
    #[arg(short = 'n', long, value_name = "N,...", value_delimiter = ',', value_parser = of_a_list, default_value = "128")]
    pub n_gen: Vec<usize>,
    /// How often each is measured
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    pub repetitions: usize,
    #[command(flatten)]
    pub outputs: crate::bench::OutputArgs,
    #[command(flatten)]
    pub session: SessionArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// `argon perplexity`.
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    /// GGUF file (of a split model, any part); without it, the small model inside this binary
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// File with the text, "-" for standard input; one newline at its end is dropped
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Tokens of a window; the second half of each counts
    #[arg(short, long, value_name = "N", default_value_t = 512, allow_negative_numbers = true, value_parser = count)]
    pub ctx_size: usize,
    /// Stop after N windows; -1: read the whole text
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub chunks: i64,
    #[command(flatten)]
    pub session: SessionArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// `argon parity`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ParityArgs {
    /// Numbers of others instead of the reference.
    #[command(subcommand)]
    pub command: Option<ParityCommand>,
    #[command(flatten)]
    pub kernels: KernelsArgs,
}

/// `argon parity` with the reference.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// plan, gather, dense, moe, route, elementwise, hyper, delta, attention, model, or all; oracle DIR is a command of its own
    #[arg(value_name = "WHAT", default_value = "all")]
    pub what: Vec<String>,
    /// One device instead of every backend that is here: cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Threads of the cpu device, at most as many as the machine runs at once [default: all of them]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = one_or_more)]
    pub threads: Option<usize>,
    /// One precision mode instead of all that a device has
    #[arg(long, value_name = "MODE")]
    pub precision: Option<String>,
    /// Format of gate and up, and of dense weights [default: all of them in turn]
    #[arg(long, value_name = "FMT")]
    pub gu: Option<String>,
    /// Format of down
    #[arg(long, value_name = "FMT")]
    pub dn: Option<String>,
    /// Tile of gate and up and of dense products, where the device has a choice: tokens, weight rows, columns, warps
    #[arg(long, value_name = "TM,TN,TK,SG", requires = "device")]
    pub tile: Option<String>,
    /// Tile of down
    #[arg(long, value_name = "TM,TN,TK,SG", requires = "device")]
    pub dtile: Option<String>,
    /// One way to compute plans, instead of the device's own and all that it has
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Tokens, instead of the sizes that each case has
    #[arg(short = 'T', long, value_name = "N", allow_negative_numbers = true)]
    pub tokens: Option<usize>,
    /// Experts
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub experts: Option<usize>,
    /// Experts for each token
    #[arg(long, visible_alias = "top-k", value_name = "N", allow_negative_numbers = true)]
    pub topk: Option<usize>,
    /// Seed of the random numbers
    #[arg(short, long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
    /// JSON file to write as well: machine, devices, drivers, every case with its errors and bounds
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// What `argon parity` compares.
#[derive(Debug, Subcommand)]
pub enum ParityCommand {
    /// Compare logits with those of other engines, stored in a directory
    Oracle(OracleArgs),
}

/// `argon parity oracle`.
#[derive(Debug, Args)]
pub struct OracleArgs {
    /// Directory with GGUF files, prompts.json and logits/*.npy, or directory of such directories
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Parses the command line of this process; on `--help` and `--version`, and on mistakes that it has no better word for,
/// prints and exits as clap does.
///
/// # Errors
/// Says what to do instead of what was typed.
pub fn parse() -> Result<Cli, Failure> {
    let args = llama::spell_out(std::env::args_os())?;
    Cli::try_parse_from(args).map_err(|error| match llama::advice(&error) {
        Some(advice) => Failure::input(advice),
        None => error.exit(),
    })
}

/// The same argument where numbers are to be compared with others': f32 by default.
fn exact(arg: clap::Arg) -> clap::Arg {
    let help = match arg.get_id().as_str() {
        "cache_type_k" => "Type of the cached keys, f32 or f16 (-ctk) [default: f32]",
        "cache_type_v" => "Type of the cached values, f32 or f16 (-ctv) [default: f32]",
        "precision" => "Precision mode: f32, f16 or int8, where the device has it [default: f32]",
        _ => return arg,
    };
    arg.help(help)
}

/// A token id; one may write a space behind the comma.
fn id(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.trim().parse()
}

/// A number of tokens.
fn count(text: &str) -> Result<usize, String> {
    whole(text, 0)
}

/// A number of tokens or threads, of which there must be some.
fn one_or_more(text: &str) -> Result<usize, String> {
    whole(text, 1)
}

/// One of several numbers of tokens.
pub fn of_a_list(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "it must be whole numbers with commas between them")
}

fn whole(text: &str, least: usize) -> Result<usize, String> {
    const MOST: usize = i32::MAX as usize;
    let number = text.parse().ok().filter(|number| (least..=MOST).contains(number));
    number.ok_or_else(|| format!("it must be one whole number from {least} to {MOST}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::*;

    fn parsed(line: &str) -> Result<Cli, String> {
        let args = llama::spell_out(line.split(' ').map(OsString::from)).map_err(|failure| format!("{failure:?}"))?;
        Cli::try_parse_from(args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_flags_of_several_letters_work_as_typed() {
        let cli = parsed("argon run -ub=64 -ctk f16 -ctv f32 -n -1 -c 0").unwrap();
        let Some(Command::Run(run)) = cli.command else { panic!("{cli:?}") };
        assert_eq!(run.session.ubatch_size, 64);
        assert_eq!(run.session.cache_type_k.as_deref(), Some("f16"));
        assert_eq!(run.session.cache_type_v.as_deref(), Some("f32"));
        assert_eq!((run.predict, run.ctx_size), (Some(-1), Some(0)));
    }

    #[test]
    fn a_negative_number_is_refused_with_its_flag() {
        for (flag, least) in [("--ctx-size", 0), ("--threads", 1), ("--ubatch-size", 1)] {
            let error = parsed(&format!("argon run {flag} -1")).unwrap_err();
            let parts = [flag, "-1", &format!("one whole number from {least} to 2147483647")];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn a_list_is_of_whole_numbers() {
        for line in ["bench model -p 512-2048*2", "bench model -n 1,,2", "bench moe -T x", "bench dense -T 1.5"] {
            assert!(parsed(&format!("argon {line}")).unwrap_err().contains("whole numbers with commas"), "{line}");
        }
        assert!(parsed("argon bench model -p 128,512 -n 0").is_ok());
    }

    #[test]
    fn logits_are_exact_by_default_and_their_help_says_so() {
        let mut cli = Cli::command();
        cli.build();
        let help = |command| cli.find_subcommand(command).unwrap().clone().render_long_help().to_string();
        let f32s = |help: String| help.matches("[default: f32]").count();
        assert_eq!([help("logits"), help("perplexity")].map(f32s), [3, 0]);
    }

    #[test]
    fn no_command_means_run() {
        let cli = parsed("argon -p hello -ub 3").unwrap();
        assert!(cli.command.is_none());
        assert_eq!((cli.run.prompt.prompt.as_deref(), cli.run.session.ubatch_size), (Some("hello"), 3));
    }

    #[test]
    fn a_prompt_may_look_like_a_flag() {
        for line in ["argon -p -ub", "argon run --prompt -ub"] {
            let cli = parsed(line).unwrap();
            let run = match cli.command {
                Some(Command::Run(run)) => run,
                _ => cli.run,
            };
            assert_eq!(run.prompt.prompt.as_deref(), Some("-ub"));
        }
    }

    #[test]
    fn a_chats_flags_want_a_chat() {
        assert!(parsed("argon run --chat --system -x --no-think").is_ok());
        assert!(parsed("argon --chat --think").is_ok());
        for line in
            ["argon run --system x", "argon run --think", "argon run --no-think", "argon --chat --think --no-think"]
        {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn only_one_source_of_a_prompt() {
        assert!(parsed("argon run -p a -f b").is_err());
        assert!(parsed("argon logits -o x --tokens 1,2 -p a").is_err());
        assert!(parsed("argon logits -o x --tokens 1,x").is_err());
        assert!(parsed("argon logits --tokens 1").is_err());
    }
}
