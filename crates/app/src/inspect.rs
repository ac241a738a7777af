//! `argon inspect`: what is in a file, whether it runs, and what memory that takes.

pub mod census;
mod memory;
mod meter;

use std::io::{self, Write};
use std::path::Path;

use argon_gguf::{Error, Gguf, Metadata};
use serde::Serialize;

use crate::args::InspectArgs;
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::{model, table};
use census::{Census, Experts};
use memory::Memory;

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
    #[serde(flatten)]
    census: Census,
    /// Why the model does not run, if it does not.
    unsupported: Option<String>,
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
    let report = Report::new(path, &gguf, args.tensors)?;
    let mut out = io::stdout().lock();
    let written = if args.json {
        serde_json::to_string_pretty(&report).map_err(io::Error::from).and_then(|json| writeln!(out, "{json}"))
    } else {
        report.print(&mut out)
    };
    written.and_then(|()| out.flush()).map_err(stdout_failure)
}

impl Report {
    fn new(path: Option<&Path>, gguf: &Gguf, list: bool) -> Result<Report, Failure> {
        let facts = Facts::read(gguf.metadata()).or_input(model::name(path))?;
        let (unsupported, memory, skipped, warnings) = match Memory::measure(gguf) {
            Ok((memory, info)) => (None, Some(memory), info.skipped, info.warnings),
            Err(error) => (Some(error.to_string()), None, Vec::new(), Vec::new()),
        };
        let listed = gguf.tensors().iter().map(|tensor| Listed {
            name: tensor.name.clone(),
            format: tensor.format.name(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes,
        });
        Ok(Report {
            file: model::name(path),
            parts: gguf.parts().len(),
            name: facts.name,
            architecture: facts.architecture,
            layers: facts.layers,
            hidden: facts.hidden,
            context: facts.context,
            experts: facts.experts.map(|experts| experts.all),
            experts_used: facts.experts.map(|experts| experts.used),
            census: census::take(gguf, facts.experts),
            unsupported,
            skipped,
            warnings,
            memory,
            tensor_list: list.then(|| listed.collect()),
        })
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut line = |what: &str, value: &dyn std::fmt::Display| writeln!(out, "{what:<14}{value}");
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
        let census = &self.census;
        let active = census.active_parameters.map(|active| format!(", {} active per token", scaled(active, "")));
        line("parameters", &format_args!("{}{}", scaled(census.parameters, ""), active.unwrap_or_default()))?;
        line("size", &format_args!("{}, {:.2} bits per weight", scaled(census.bytes, "B"), census.bits_per_weight))?;
        match (&self.unsupported, &self.memory) {
            (Some(why), _) => line("runs", &format_args!("no: {why}"))?,
            (None, Some(memory)) => {
                line("runs", &"yes")?;
                line("memory", &format_args!("{} of weights", scaled(memory.weights, "B")))?;
                let (f16, f32) = (memory.per_1000_tokens_f16, memory.per_1000_tokens_f32);
                let per =
                    format!("{} per 1000 tokens of context ({} with an f32 cache)", scaled(f16, "B"), scaled(f32, "B"));
                line("", &per)?;
                line("", &format_args!("{} beside it, with chunks of {}", scaled(memory.fixed, "B"), memory.chunk))?;
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
        let rows = self.census.formats.iter().map(|share| {
            let bytes = scaled(share.bytes, "B");
            [share.format.into(), share.tensors.to_string(), scaled(share.parameters, ""), bytes]
        });
        let header = ["format", "tensors", "weights", "bytes"];
        table::write(out, header, [false, true, true, true], &rows.collect::<Vec<_>>())
    }

    fn print_tensors(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(list) = &self.tensor_list else { return Ok(()) };
        writeln!(out)?;
        let rows = list.iter().map(|tensor| {
            let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
            [tensor.name.clone(), tensor.format.into(), shape.join(" x "), tensor.bytes.to_string()]
        });
        let header = ["tensor", "format", "columns x rows", "bytes"];
        table::write(out, header, [false, false, false, true], &rows.collect::<Vec<_>>())
    }
}

/// What the metadata say. None of it is required: a file that lacks it does not run, but can be looked at.
struct Facts {
    name: Option<String>,
    architecture: Option<String>,
    layers: Option<u64>,
    hidden: Option<u64>,
    context: Option<u64>,
    experts: Option<Experts>,
}

impl Facts {
    fn read(metadata: &Metadata) -> Result<Facts, Error> {
        let architecture = metadata.str("general.architecture")?;
        let number = |key: &str| match architecture {
            Some(architecture) => metadata.u64(&format!("{architecture}.{key}")),
            None => Ok(None),
        };
        let experts = match (number("expert_count")?, number("expert_used_count")?) {
            (Some(all), Some(used)) if (1..=all).contains(&used) => Some(Experts { all, used }),
            _ => None,
        };
        Ok(Facts {
            name: metadata.str("general.name")?.map(str::to_owned),
            architecture: architecture.map(str::to_owned),
            layers: number("block_count")?,
            hidden: number("embedding_length")?,
            context: number("context_length")?,
            experts,
        })
    }
}

/// A count with the prefix that keeps it below a thousand: `11.36 MB`, `17.3 M`. Thousands, not 1024.
fn scaled(value: u64, unit: &str) -> String {
    const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];
    let power = (value.checked_ilog10().unwrap_or(0) / 3).min(4);
    if power == 0 {
        return format!("{value} {unit}").trim_end().into();
    }
    let value = value as f64 / 1000f64.powi(power as i32);
    format!("{value:.2} {}{unit}", PREFIXES[power as usize])
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn counts_are_scaled() {
        let shown = [0, 999, 1000, 11_357_696, 45_900_000_000].map(|value| scaled(value, "B"));
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "11.36 MB", "45.90 GB"]);
        assert_eq!(scaled(12, ""), "12");
        assert_eq!(scaled(u64::MAX, ""), "18446744.07 T");
    }
}
