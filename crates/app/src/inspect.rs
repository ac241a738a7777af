//! `argon inspect`: what is in a file, whether it runs, and what memory that takes.

pub mod census;
mod memory;
mod meter;

use std::io::{self, Write};
use std::path::Path;

use argon_gguf::{Gguf, Metadata};
use serde::Serialize;

use crate::args::InspectArgs;
use crate::failure::{Failure, stdout_failure};
use crate::words::{bytes, many, one_line};
use crate::{model, table};
use census::{Census, Experts};
use memory::{Memory, Trial};

/// Everything that is told.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    parts: usize,
    name: Option<String>,
    architecture: Option<String>,
    layers: Option<u64>,
    hidden: Option<u64>,
    context: Option<u64>,
    experts: Option<u64>,
    experts_used: Option<u64>,
    /// Its kind, and its way to cut a text before.
    tokenizer: Option<String>,
    /// Whether there is one.
    chat_template: bool,
    #[serde(flatten)]
    census: Census,
    /// Why the model does not run, if it does not.
    unsupported: Option<String>,
    /// Why a model that runs takes ids of tokens alone, if it takes no text.
    tokenizer_unsupported: Option<String>,
    /// Parts of the file that are not used.
    skipped: Vec<String>,
    warnings: Vec<String>,
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_list: Option<Vec<Listed>>,
}

/// One tensor.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    format: &'static str,
    /// Columns first, as GGUF has it.
    shape: Vec<usize>,
    bytes: usize,
}

/// Runs the command.
///
/// # Errors
/// Of the input, if it is no readable GGUF file. A model that cannot run is no error: that is told.
pub fn run(args: InspectArgs) -> Result<(), Failure> {
    let path = args.file.or(args.model);
    let path = path.as_deref();
    let gguf = model::open(path)?;
    let report = Report::new(path, &gguf, args.tensors);
    let mut out = io::stdout().lock();
    let written = if args.json {
        serde_json::to_string_pretty(&report).map_err(io::Error::from).and_then(|json| writeln!(out, "{json}"))
    } else {
        report.print(&mut out)
    };
    written.and_then(|()| out.flush()).map_err(stdout_failure)
}

impl Report {
    fn new(path: Option<&Path>, gguf: &Gguf, list: bool) -> Report {
        let facts = Facts::read(gguf.metadata());
        let (unsupported, trial) = match Trial::run(gguf) {
            Ok(trial) => (None, trial),
            Err(error) => (Some(error.to_string()), Trial::default()),
        };
        let listed = gguf.tensors().iter().map(|tensor| Listed {
            name: tensor.name.clone(),
            format: tensor.format.name(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes,
        });
        Report {
            file: model::name(path),
            parts: gguf.parts().len(),
            name: facts.name,
            architecture: facts.architecture,
            layers: facts.layers,
            hidden: facts.hidden,
            context: facts.context,
            experts: facts.experts.map(|experts| experts.all),
            experts_used: facts.experts.map(|experts| experts.used),
            tokenizer: facts.tokenizer,
            chat_template: facts.chat_template,
            census: census::take(gguf, facts.experts),
            unsupported,
            tokenizer_unsupported: trial.no_text,
            skipped: trial.skipped,
            warnings: trial.warnings,
            memory: trial.memory,
            tensor_list: list.then(|| listed.collect()),
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut line =
            |what: &str, value: &dyn std::fmt::Display| writeln!(out, "{what:<15}{}", one_line(&value.to_string()));
        let number = |value: Option<u64>| value.map_or_else(|| "not said".into(), |value| value.to_string());
        line("file", &self.file)?;
        if self.parts > 1 {
            line("parts", &self.parts)?;
        }
        line("name", &self.name.as_deref().unwrap_or("not said"))?;
        line("architecture", &self.architecture.as_deref().unwrap_or("not said"))?;
        line("layers", &number(self.layers))?;
        line("hidden", &number(self.hidden))?;
        line("context", &number(self.context))?;
        if let (Some(all), Some(used)) = (self.experts, self.experts_used) {
            line("experts", &format_args!("{all}, {used} of them per token"))?;
        }
        line("tokenizer", &self.tokenizer.as_deref().unwrap_or("none"))?;
        line("chat template", &if self.chat_template { "in the file (--chat)" } else { "none: no --chat" })?;
        let census = &self.census;
        let active = census.active_parameters.map(|active| format!(", {} active per token", many(active)));
        line("parameters", &format_args!("{}{}", many(census.parameters), active.unwrap_or_default()))?;
        line("size", &format_args!("{}, {:.2} bits per weight", bytes(census.bytes), census.bits_per_weight))?;
        match (&self.unsupported, &self.memory) {
            (Some(why), _) => line("runs", &format_args!("no: {why}"))?,
            (None, Some(memory)) => {
                match &self.tokenizer_unsupported {
                    None => line("runs", &"yes")?,
                    Some(why) => line("runs", &format_args!("with ids of tokens, without text: {why}"))?,
                }
                for (i, told) in memory.describe().iter().enumerate() {
                    line(if i == 0 { "memory" } else { "" }, told)?;
                }
            }
            (None, None) => {}
        }
        for part in &self.skipped {
            line("not used", part)?;
        }
        for warning in &self.warnings {
            line("warning", warning)?;
        }
        writeln!(out)?;
        self.print_formats(out)?;
        self.print_tensors(out)
    }

    fn print_formats(&self, out: &mut impl Write) -> io::Result<()> {
        let rows =
            self.census.formats.iter().map(|share| {
                [share.format.into(), share.tensors.to_string(), many(share.parameters), bytes(share.bytes)]
            });
        let header = ["format", "tensors", "weights", "bytes"];
        table::write(out, header, [false, true, true, true], &rows.collect::<Vec<_>>())
    }

    fn print_tensors(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(list) = &self.tensor_list else { return Ok(()) };
        writeln!(out)?;
        let rows = list.iter().map(|tensor| {
            let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
            [one_line(&tensor.name), tensor.format.into(), shape.join(" x "), tensor.bytes.to_string()]
        });
        let header = ["tensor", "format", "columns x rows", "bytes"];
        table::write(out, header, [false, false, false, true], &rows.collect::<Vec<_>>())
    }
}

/// What the metadata say. None of it is required, and a key that holds something else says nothing: such a file does not
/// run, for a reason that is told, but can be looked at.
struct Facts {
    name: Option<String>,
    architecture: Option<String>,
    layers: Option<u64>,
    hidden: Option<u64>,
    context: Option<u64>,
    experts: Option<Experts>,
    tokenizer: Option<String>,
    chat_template: bool,
}

impl Facts {
    fn read(metadata: &Metadata) -> Facts {
        let text = |key: &str| metadata.str(key).ok().flatten();
        let architecture = text("general.architecture");
        let number = |key: &str| number(metadata, &format!("{}.{key}", architecture?));
        let experts = match (number("expert_count"), number("expert_used_count")) {
            (Some(all), Some(used)) if (1..=all).contains(&used) => Some(Experts { all, used }),
            _ => None,
        };
        Facts {
            name: text("general.name").map(str::to_owned),
            architecture: architecture.map(str::to_owned),
            layers: number("block_count"),
            hidden: number("embedding_length"),
            context: number("context_length"),
            experts,
            tokenizer: match (text("tokenizer.ggml.model"), text("tokenizer.ggml.pre")) {
                (Some(model), Some(pre)) => Some(format!("{model}, {pre}")),
                (model, _) => model.map(str::to_owned),
            },
            chat_template: text("tokenizer.chat_template").is_some(),
        }
    }
}

/// The number under `key`, also where it is repeated for each layer, as some writers do.
fn number(metadata: &Metadata, key: &str) -> Option<u64> {
    if let Ok(number) = metadata.u64(key) {
        return number;
    }
    match metadata.u64_array(key).ok()??.as_slice() {
        [first, rest @ ..] if rest.iter().all(|number| number == first) => Some(*first),
        _ => None,
    }
}
