//! Habits of llama.cpp: its short flags of several letters, its flags that Argon has not or calls otherwise, and the words
//! that one would type as a command.
//!
//! The parser behind [`args`](super) knows short flags of one letter only and would read `-ngl 99` as `-n gl`.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;

/// The short flags of several letters that Argon has, and the long ones they stand for.
const SHORTS: [(&str, &str); 3] = [("-ub", "--ubatch-size"), ("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v")];

/// Flags that may be followed by anything, also by what looks like a flag.
const TAKE_ANYTHING: [&str; 3] = ["-p", "--prompt", "--system"];

/// Flags of llama.cpp, and of ik_llama.cpp, that no command of Argon has, and what to do.
const FLAGS: &[(&str, &str)] = &[
    (
        "-ngl --gpu-layers --n-gpu-layers",
        "a model is not split by layers here: --device cuda (NVIDIA), wgpu (any GPU) or auto puts all of it on a GPU, cpu is the \
         default",
    ),
    ("-dev", "--device cpu, cuda, cuda:N, wgpu, wgpu:N or auto says where to compute"),
    ("--list-devices", "argon parity tries every device that is here; --device auto says which one it takes"),
    (
        "-ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -fit --fit -fitp --fit-print -fitt \
         --fit-target -fitc --fit-ctx",
        "a model is on one device here, experts and all; one that is larger than the GPU's memory is computed by the \
         processor, the default: leave it out",
    ),
    (
        "-sm --split-mode -ts --tensor-split -mg --main-gpu -rpc --rpc -kvo --kv-offload -nkvo --no-kv-offload --op-offload \
         -nopo --no-op-offload --no-host",
        "a model is on one device here, all of it; --device cuda:N or wgpu:N names the GPU",
    ),
    (
        "-hf -hfr --hf-repo -hff --hf-file -hft --hf-token -mu --model-url -dr --docker-repo -cl --cache-list --offline",
        "Argon downloads nothing; get the GGUF file yourself and name it with -m FILE",
    ),
    ("-cnv --conversation -i --interactive -if --interactive-first", "--chat begins a conversation"),
    ("-no-cnv --no-conversation", "this is the default: leave it out (--chat begins a conversation)"),
    ("-st --single-turn", "--chat -p TEXT < /dev/null takes one turn"),
    ("-sys --system-prompt", "--system TEXT is a chat's system message"),
    ("-sysf --system-prompt-file", "--system \"$(cat FILE)\" is a chat's system message"),
    ("-mli --multiline-input", "a line is a message here; a longer first message comes with -p or -f"),
    ("--in-prefix --in-suffix --in-prefix-bos", "messages are put together by the chat template in the file"),
    (
        "--no-jinja --chat-template --chat-template-file --chat-template-kwargs -sp --special",
        "a chat goes through the template in the file, whatever it is",
    ),
    (
        "-rea --reasoning --reasoning-format --reasoning-effort --reasoning-budget --reasoning-budget-message \
         --reasoning-preserve --no-reasoning-preserve --skip-chat-parsing --no-skip-chat-parsing",
        "--think and --no-think switch a chat's thinking",
    ),
    ("-b --batch-size", "-ub (--ubatch-size) is the number of tokens that go through the model at once"),
    ("-tb --threads-batch", "-t (--threads) is for prompts and for generation"),
    (
        "-C --cpu-mask -Cr --cpu-range -Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict --cpu-strict-batch --prio \
         --prio-batch --poll --poll-batch --numa",
        "threads run where the system lets them; start argon with taskset or numactl",
    ),
    (
        "--no-warmup --jinja --no-display-prompt --no-escape --no-context-shift --check-tensors --mmap -no-kvu",
        "this is the default: leave it out",
    ),
    (
        "--no-mmap -mmp -dio --direct-io -lm --load-mode -lzm --lazy-mode",
        "model files are always mapped into memory: leave it out",
    ),
    ("--mlock", "model files are mapped and never locked into memory: leave it out"),
    ("--repack -nr --no-repack -rtr --run-time-repack", "weights are read as they lie in the file: leave it out"),
    ("-fa --flash-attn -mla --mla-use -amb --attention-max-batch", "attention is computed in one way: leave it out"),
    (
        "-fmoe --fused-moe -no-fmoe --no-fused-moe -muge --merge-up-gate-experts",
        "gate and up are computed together: leave it out",
    ),
    ("-ser --smart-expert-reduction", "every token goes through all of its experts"),
    (
        "-kvu --kv-unified -np --parallel -cb --cont-batching -nocb --no-cont-batching -ns --sequences",
        "there is one sequence at a time: leave it out",
    ),
    ("--perf --no-perf --show-timings --no-show-timings", "speeds are always told, on standard error: leave it out"),
    ("--warmup", "nothing is computed before the prompt"),
    ("--color -co --log-colors", "nothing is coloured: leave it out"),
    (
        "-v --verbose -lv --verbosity --log-verbosity --verbose-prompt --progress -oe --output-err",
        "there is one level of messages, all of it on standard error; argon run --profile says where the time goes",
    ),
    (
        "--log-disable --log-file --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl \
         --simple-io",
        "messages go to standard error, the text alone to standard output: 2> FILE parts them",
    ),
    ("-e --escape", "a prompt is taken as it is; shells make newlines: $'one\\ntwo'"),
    ("--display-prompt", "a prompt is not repeated on standard output"),
    ("-bf --binary-file --stdin", "-f FILE is the prompt, -f - standard input"),
    (
        "--prompt-cache --prompt-cache-all --prompt-cache-ro",
        "--session FILE goes on from a saved session and saves to it",
    ),
    (
        "--keep --context-shift --cache-reuse --ctx-checkpoints -dt --defrag-thold",
        "nothing is dropped from a full context; -c makes it larger",
    ),
    ("--reverse-prompt", "generation ends with the text, after -n tokens, or by Ctrl-C"),
    (
        "--samplers --sampler-seq --sampling-seq --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-sequence-breaker \
         --dry-allowed-length --dry-penalty-last-n --xtc-probability --xtc-threshold --typical --typical-p --top-nsigma \
         --top-n-sigma --dynatemp-range --dynatemp-exp --adaptive-target --adaptive-decay --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --grammar \
         --grammar-file -j --json-schema -jf --json-schema-file -bs --backend-sampling",
        "tokens are chosen by --temp, --top-k, --top-p, --min-p and --repeat-penalty alone",
    ),
    (
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor \
         --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -gan --grp-attn-n -gaw --grp-attn-w --override-kv --swa-full",
        "a model is computed as its file says",
    ),
    (
        "--lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range",
        "a model is computed as it is in its file, without adapters",
    ),
    ("-mm --mmproj -mmu --mmproj-url --image --audio --video", "prompts are text"),
    (
        "-md --model-draft -ngld --gpu-layers-draft --n-gpu-layers-draft -devd --device-draft -td --threads-draft -tbd \
         --threads-batch-draft -hfd -hfrd --hf-repo-draft -ctkd --cache-type-k-draft -ctvd --cache-type-v-draft -cmoed \
         --cpu-moe-draft -ncmoed --n-cpu-moe-draft --draft --draft-n --draft-max --draft-min --spec-type \
         --spec-draft-type-k --spec-draft-type-v",
        "nothing is drafted by a second model",
    ),
    (
        "--host --port --api-key -to --timeout -cram --cache-ram -sps --metrics --slots -a --alias",
        "there is no server yet",
    ),
    ("-w --delay", "argon bench waits for nobody between measurements: leave it out"),
    ("-embd --embeddings", "argon logits writes logits; embeddings are not written"),
    ("--license", "README.md names the licences"),
    ("--completion-bash -ptc --print-token-count", "there is no such thing here: leave it out"),
    ("-pg -d --n-depth", "argon bench model measures prompts (-p) and generation (-n), from an empty context"),
    (
        "--ppl-stride --ppl-output-type --hellaswag --hellaswag-tasks --winogrande --winogrande-tasks --multiple-choice \
         --multiple-choice-tasks --kl-divergence",
        "argon perplexity measures perplexity alone",
    ),
    ("--save-all-logits --kl-divergence-base", "argon logits --all -o FILE.npy writes logits"),
];

/// Flags of llama.cpp that are another thing in some commands of Argon, and what to do where they are none.
const ELSEWHERE: &[(&str, &str)] = &[
    ("-r", "generation ends with the text, after -n tokens, or by Ctrl-C; argon bench repeats with -r"),
    (
        "-n --predict --n-predict -s --seed --temp --temperature --top-k --top-p --min-p --repeat-penalty --repeat-last-n",
        "argon run alone generates text",
    ),
    ("-m --model", "the commands that take a model are run, logits, inspect, perplexity and bench model"),
    ("-p --prompt", "the text comes from -f FILE, - is standard input"),
    (
        "-o --output",
        "argon bench writes --json FILE, --csv FILE and --html FILE, argon logits and argon synth write -o FILE",
    ),
];

/// Words typed as a command that are none, and what to do.
const COMMANDS: &[(&str, &str)] = &[
    ("chat cli llama-cli", "argon run --chat begins a conversation"),
    ("completion complete generate prefill llama-completion", "argon run continues a prompt"),
    ("server serve llama-server", "there is no server yet; argon run --chat talks in a terminal"),
    ("llama-bench", "argon bench model measures a model"),
    ("tokenize", "no command shows token ids yet"),
    ("quantize", "Argon reads GGUF files as they are; llama-quantize makes them"),
    ("pull download", "Argon downloads nothing; get the GGUF file yourself and name it with -m FILE"),
    ("ppl llama-perplexity", "argon perplexity measures perplexity"),
    ("info show", "argon inspect FILE says what is in a file"),
];

/// Replaces short flags of several letters by the long ones, but not a prompt that looks like one, nor what follows `--`.
///
/// # Errors
/// Says of a flag of llama.cpp that is none here what to do, and of any other of several letters that it is none.
pub fn spell_out(args: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let mut out: Vec<OsString> = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            out.push(arg);
            out.extend(args);
            break;
        }
        let takes_anything = TAKE_ANYTHING.iter().any(|flag| arg == *flag);
        out.push(spell_out_one(arg)?);
        if takes_anything {
            out.extend(args.next());
        }
    }
    Ok(out)
}

fn spell_out_one(arg: OsString) -> Result<OsString, Failure> {
    // What is no text is no flag.
    let Some(typed) = arg.to_str() else { return Ok(arg) };
    let (flag, value) = typed.split_at(typed.find('=').unwrap_or(typed.len()));
    if let Some((_, long)) = SHORTS.iter().find(|(short, _)| *short == flag) {
        return Ok(format!("{long}{value}").into());
    }
    match look_up(FLAGS, flag) {
        Some(advice) => Err(Failure::input(format_args!("{flag}: {advice}"))),
        None if has_letters(flag) => {
            Err(Failure::input(format_args!("there is no flag {flag}; --help lists those that there are")))
        }
        None => Ok(arg),
    }
}

/// Whether it is one dash and several letters. A letter and a number is a flag with its value: `-n5`.
fn has_letters(flag: &str) -> bool {
    let letters =
        |range| flag.as_bytes().get(range).is_some_and(|bytes: &[u8]| bytes.iter().all(u8::is_ascii_alphabetic));
    flag.starts_with('-') && letters(1..3)
}

/// What to do about a word that the parser did not expect: a model or a command of another program.
pub fn advice(error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(kind) else { return None };
    // Without the name of what is to be measured, every flag is unknown.
    if error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("bench <COMMAND>")) {
        return Some(format!(
            "{word}: argon bench model measures a model; argon bench --help lists what else there is"
        ));
    }
    if word.to_lowercase().ends_with(".gguf") {
        return Some(format!("{word}: a model is given with -m FILE: argon run -m {word}"));
    }
    let command = || look_up(COMMANDS, word).map(|advice| format!("there is no command {word}: {advice}"));
    look_up(ELSEWHERE, word).map(|advice| format!("{word}: {advice}")).or_else(command)
}

fn look_up(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(words, _)| words.split(' ').any(|one| one == word)).map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    fn refusal(line: &str) -> String {
        let args = line.split(' ').map(OsString::from);
        let Err(Failure::Input(error)) = spell_out(args) else { panic!("{line} is accepted") };
        error.to_string()
    }

    #[test]
    fn a_flag_that_other_commands_have_gets_advice_too() {
        let refused = |line: &str| advice(&Cli::try_parse_from(line.split(' ')).unwrap_err());
        for (line, part) in [
            ("argon run -r User:", "by Ctrl-C"),
            ("argon bench model -o json", "--json FILE"),
            ("argon bench dense --output md", "--csv FILE"),
            ("argon perplexity -f x --temp 1", "argon run"),
            ("argon perplexity -p x", "-f FILE"),
            ("argon bench -p 512", "argon bench model"),
            ("argon bench -m x", "argon bench model"),
            ("argon bench moe -m x", "run, logits"),
            ("argon llama-bench", "argon bench model"),
        ] {
            assert!(refused(line).is_some_and(|advice| advice.contains(part)), "{line}");
        }
        assert_eq!(refused("argon run --xyz"), None);
    }

    fn words(table: &[(&'static str, &str)]) -> Vec<&'static str> {
        table.iter().flat_map(|(words, _)| words.split(' ')).collect()
    }

    /// Every flag and command that `command` has.
    fn known(command: &Command) -> Vec<String> {
        let flags = command.get_arguments().flat_map(|arg| {
            let short = arg.get_short_and_visible_aliases().unwrap_or_default();
            let long = arg.get_long_and_visible_aliases().unwrap_or_default();
            let short = short.into_iter().map(|letter| format!("-{letter}"));
            short.chain(long.into_iter().map(|name| format!("--{name}"))).collect::<Vec<_>>()
        });
        let inner = command.get_subcommands().flat_map(|inner| {
            let mut names = known(inner);
            names.push(inner.get_name().into());
            names
        });
        flags.chain(inner).collect()
    }

    #[test]
    fn what_is_refused_is_nothing_that_argon_has_and_stands_once() {
        let mut cli = Cli::command();
        cli.build();
        let known = known(&cli);
        assert!(["-n", "--n-predict", "run", "--help"].iter().all(|name| known.iter().any(|known| known == name)));
        let mut words = [words(FLAGS), words(COMMANDS), SHORTS.map(|(short, _)| short).to_vec()].concat();
        for word in &words {
            assert!(!known.iter().any(|known| known == word), "{word}");
            assert!(!word.is_empty());
        }
        let all = words.len();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), all, "a word stands twice");
    }

    #[test]
    fn flags_of_llama_cpp_get_one_line_that_says_what_to_do() {
        for flag in words(FLAGS) {
            for line in [format!("argon run {flag} 99"), format!("argon {flag}=99 -p x")] {
                let (found, advice) = (refusal(&line), look_up(FLAGS, flag).unwrap());
                assert_eq!(found, format!("{flag}: {advice}"));
                assert!(!found.contains('\n'));
            }
        }
        assert!(["cuda", "wgpu", "auto", "cpu"].iter().all(|device| refusal("argon run -ngl 99").contains(device)));
        assert!(refusal("argon run -no-cnv").contains("the default"));
        assert!(refusal("argon run -ncmoe 30").contains("larger than the GPU's memory"));
    }

    #[test]
    fn a_short_flag_is_never_read_letter_by_letter() {
        for flag in ["-hfr", "-ts", "-swa", "-mt", "-ins", "-lcs", "-xyz", "-nN", "-ub64"] {
            assert!(refusal(&format!("argon run {flag} 1")).contains(flag));
        }
        let as_typed = ["-n5", "-n=5", "-n", "-5", "--ngl", "-", "model"].map(OsString::from).to_vec();
        assert_eq!(spell_out(as_typed.clone()).unwrap(), as_typed);
    }

    #[test]
    fn a_prompt_may_be_anything() {
        for line in ["-p -ngl", "--prompt -hf", "--system -b", "-- -ngl -xyz"] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(spell_out(args.clone()).unwrap(), args);
        }
    }
}
