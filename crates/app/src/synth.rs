//! `argon synth`: a file with the shape of a real model and random weights, for measuring without the real weights.

mod metadata;
mod shape;
mod tensors;
mod types;
mod vocabulary;
pub mod weights;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use argon_gguf::{Format, Writer};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::output::{self, NewFile};
use crate::words::bytes;
use shape::{Preset, Shape};
use tensors::Tensor;
use types::Types;
use vocabulary::Tokens;

/// `argon synth`.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// The model whose shape the file takes
    #[arg(long, value_enum)]
    preset: Preset,
    /// Layers, instead of all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    layers: Option<u32>,
    /// Experts in a layer
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u32).range(1..=65536))]
    experts: Option<u32>,
    /// Length of the routed experts' inner vectors
    #[arg(long, value_name = "F", value_parser = clap::value_parser!(u32).range(1..=65536))]
    expert_width: Option<u32>,
    /// Tokens in the vocabulary
    #[arg(long, value_name = "V", value_parser = clap::value_parser!(u32).range(vocabulary::SMALLEST as i64..=1 << 21))]
    vocab: Option<u32>,
    /// Rows in the table of n-gram embeddings
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..=i64::from(i32::MAX)))]
    ple_rows: Option<u32>,
    /// Types of the weights by role: gate_up, down, dense, embed, output, ngrams (gate_up=iq2_xs,down=iq4_nl)
    #[arg(long, value_name = "ROLE=TYPE,...", value_delimiter = ',')]
    types: Vec<String>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
    /// Say how large the file would be, and write none
    #[arg(long)]
    dry_run: bool,
    /// The GGUF file to write
    #[arg(short, long, value_name = "FILE", required_unless_present = "dry_run")]
    output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Of the input, of the work, or [`Failure::Interrupted`]; then no file is left behind.
pub fn run(args: SynthArgs) -> Result<(), Failure> {
    let shape = args.shape();
    let mut types = Types::of(args.preset);
    types.change(&args.types)?;
    let plan = plan(&shape, &types)?;
    let tokens = Tokens::new(&shape.vocabulary)?;
    let total = plan.iter().map(|planned| planned.bytes).sum::<u64>();
    let Some(path) = args.output.as_ref().filter(|_| !args.dry_run) else {
        describe("nothing is written", &plan, total, &types);
        return Ok(());
    };
    output::has_room(path, total)?;
    let interrupt = Interrupt::catch();
    let mut file = create(path, args.force, &interrupt)?;
    describe(&path.display().to_string(), &plan, total, &types);

    let (bar, start) = (byte_bar(total), Instant::now());
    let writer = metadata::write(Writer::new(), &shape, &types, &tokens, args.seed);
    let out = Watched { out: BufWriter::new(&mut file), stop: interrupt.flag(), bar: &bar };
    let written = write(writer, &plan, args.seed, out);
    bar.finish_and_clear();
    match written {
        Ok(()) => file.finish().or_work(path.display())?,
        Err(_) if interrupt.came() => return Err(Failure::Interrupted),
        Err(error) => return Err(Failure::work(format_args!("{}: {error}", path.display()))),
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("written in {seconds:.1} s, {}/s", bytes((total as f64 / seconds) as u64));
    Ok(())
}

/// Says what is in the file `name`.
fn describe(name: &str, plan: &[Planned], total: u64, types: &Types) {
    eprintln!("{name}: {} tensors, {}", plan.len(), bytes(total));
    for planned in plan.iter().filter(|planned| planned.substituted(types)) {
        eprintln!("{} is {}: its rows are {} wide", planned.tensor.name, planned.format, planned.tensor.shape[0]);
    }
}

impl SynthArgs {
    /// The preset's shape with what was asked to be otherwise.
    fn shape(&self) -> Shape {
        let mut shape = Shape::of(self.preset);
        let number = |asked: Option<u32>, published: usize| asked.map_or(published, |asked| asked as usize);
        shape.layers = number(self.layers, shape.layers);
        // The last one at least has attention: llama.cpp loads no model without, and no hybrid one of fewer than 2 layers.
        shape.attention.interval = shape.attention.interval.min(shape.layers);
        shape.experts.count = number(self.experts, shape.experts.count);
        shape.experts.used = shape.experts.used.min(shape.experts.count);
        shape.experts.width = number(self.expert_width, shape.experts.width);
        shape.vocabulary.size = number(self.vocab, shape.vocabulary.size);
        let ngrams = shape.ngrams.take();
        shape.ngrams = ngrams.filter(|ngrams| ngrams.layer < shape.layers && !shape.is_attention(ngrams.layer));
        if let Some(ngrams) = &mut shape.ngrams {
            ngrams.rows = number(self.ple_rows, ngrams.rows);
        }
        shape
    }
}

/// A tensor whose format is decided.
struct Planned {
    tensor: Tensor,
    format: Format,
    bytes: u64,
}

impl Planned {
    /// Whether the format is not the one asked for.
    fn substituted(&self, types: &Types) -> bool {
        types.asked(self.tensor.role) != self.format
    }
}

/// The tensors with their formats.
fn plan(shape: &Shape, types: &Types) -> Result<Vec<Planned>, Failure> {
    let plan = |tensor: Tensor| {
        let format = types.format(tensor.role, &tensor.name, tensor.shape[0])?;
        let row = format.row_bytes(tensor.shape[0]).map(|bytes| bytes as u64);
        let rows = tensor.shape[1..].iter().try_fold(1u64, |rows, &len| rows.checked_mul(len as u64));
        let bytes = row.and_then(|row| row.checked_mul(rows?));
        let bytes = bytes.ok_or_else(|| Failure::input(format_args!("{} would be too large", tensor.name)))?;
        Ok(Planned { tensor, format, bytes })
    };
    tensors::tensors(shape).into_iter().map(plan).collect()
}

/// A new file for `path`; an old one is only replaced if `force` says so.
fn create<'a>(path: &Path, force: bool, interrupt: &'a Interrupt) -> Result<NewFile<'a>, Failure> {
    let refuse = |what: &dyn std::fmt::Display| Failure::input(format_args!("{}: {what}", path.display()));
    match fs::metadata(path) {
        Ok(_) if !force => {
            return Err(Failure::input(format_args!("{} exists: --force writes over it", path.display())));
        }
        Ok(metadata) if !metadata.is_file() => return Err(refuse(&"not a regular file")),
        _ => {}
    }
    output::can_be_written(path)?;
    NewFile::create(path, interrupt).map_err(|error| refuse(&error))
}

/// A bar over bytes; nothing is drawn where standard error is no terminal.
fn byte_bar(bytes: u64) -> ProgressBar {
    const TEMPLATE: &str = "[{wide_bar}] {decimal_bytes}/{decimal_total_bytes}  {decimal_bytes_per_sec}, {eta} left";
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("a constant template").progress_chars("=> "));
    bar
}

/// Writes the file, tensor after tensor, each made when its turn comes.
fn write<'a>(
    mut writer: Writer<'a>,
    plan: &'a [Planned],
    seed: u64,
    mut out: impl Write,
) -> Result<(), argon_gguf::Error> {
    for Planned { tensor, format, .. } in plan {
        let count = tensor.shape.iter().product();
        writer = writer.tensor_with(&tensor.name, &tensor.shape, *format, move |out| {
            weights::write(tensor.values, *format, count, &mut weights::rng(seed, &tensor.name), out)
        });
    }
    writer.write(&mut out)?;
    Ok(out.flush()?)
}

/// A file that stops taking bytes when it is told to, and shows how far it is.
struct Watched<'a, W> {
    out: W,
    stop: &'a AtomicBool,
    bar: &'a ProgressBar,
}

impl<W: Write> Write for Watched<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        let written = self.out.write(bytes)?;
        self.bar.inc(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon_engine::{Engine, EngineOptions, Logits, SessionOptions};
    use argon_gguf::Gguf;
    use argon_kernels::cpu::{CpuDevice, CpuOptions};
    use clap::ValueEnum;
    use shape::{Experts, VocabularyKind};
    use std::ops::ControlFlow;
    use std::sync::Arc;

    /// A preset's structure in a size that a test can afford.
    fn small(preset: Preset) -> Shape {
        let mut shape = Shape::of(preset);
        let tiny = Shape::of(Preset::Tiny);
        shape.hidden = tiny.hidden;
        shape.layers = 8;
        shape.experts =
            Experts { count: 32, used: 4, width: 256, shared: shape.experts.shared.map(|_| 256), ..shape.experts };
        let (a, t) = (&mut shape.attention, &tiny.attention);
        (a.heads, a.dim, a.rope_dims) = (t.heads, t.dim, t.rope_dims);
        a.kv_heads = 2;
        a.rope_sections = a.rope_sections.and(t.rope_sections);
        a.indexer = a.indexer.take().and(t.indexer.clone());
        if let Some(delta_net) = &mut shape.delta_net {
            (delta_net.key_heads, delta_net.value_heads, delta_net.dim) = (2, 4, 32);
        }
        shape.streams = shape.streams.and(tiny.streams);
        shape.ngrams = shape.ngrams.and(tiny.ngrams);
        shape.vocabulary.size = 1024;
        shape
    }

    fn file(shape: &Shape, types: &Types, seed: u64) -> Vec<u8> {
        let tokens = Tokens::new(&shape.vocabulary).unwrap();
        let mut bytes = Vec::new();
        write(
            metadata::write(Writer::new(), shape, types, &tokens, seed),
            &plan(shape, types).unwrap(),
            seed,
            &mut bytes,
        )
        .unwrap();
        bytes
    }

    fn engine(bytes: Vec<u8>) -> Engine {
        let device = CpuDevice::new(CpuOptions::default()).unwrap();
        Engine::load(Gguf::from_bytes(bytes).unwrap(), Arc::new(device), EngineOptions::default()).unwrap()
    }

    /// Keeps what is left of the residual behind each layer, and the experts' ids.
    #[derive(Default)]
    struct Looker {
        residuals: Vec<f32>,
        used: Vec<i32>,
    }

    impl argon_engine::probe::Probe for Looker {
        fn wants(&self, what: argon_engine::probe::Intermediate, _: usize) -> bool {
            use argon_engine::probe::Intermediate::{Residual, RouterIds};
            matches!(what, Residual | RouterIds)
        }

        fn see(&mut self, shown: argon_engine::probe::Shown) {
            use argon_engine::probe::Values;
            match shown.values {
                Values::F32(x) => {
                    let squares = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
                    self.residuals.push((squares / x.len() as f64).sqrt() as f32);
                }
                Values::I32(ids) => self.used.extend(ids),
            }
        }
    }

    #[test]
    fn every_preset_loads_and_its_numbers_stay_near_one() {
        for &preset in Preset::value_variants() {
            let shape = small(preset);
            let engine = engine(file(&shape, &Types::of(preset), 1));
            assert_eq!(engine.info().layers, 8);
            assert!(engine.info().warnings.is_empty() && engine.info().skipped.is_empty());
            let prompt: Vec<u32> = (0..100).map(|i| i * 37 % 990 + 3).collect();
            let mut session = engine.session(SessionOptions { context: 200, ..SessionOptions::default() }).unwrap();
            let mut looker = Looker::default();
            let logits = session.prefill_probed(&prompt, Logits::All, &mut looker).unwrap().unwrap();
            assert!(logits.values.iter().all(|logit| logit.is_finite() && logit.abs() < 50.0), "{preset:?}");
            let rows: Vec<&[f32]> = logits.rows().collect();
            assert_ne!(rows[0], rows[99], "{preset:?}: the prompt does not matter");
            for (layer, size) in looker.residuals.iter().enumerate() {
                assert!((0.5..10.0).contains(size), "{preset:?}: residual of size {size} behind layer {layer}");
            }
            // 400 choices of 32 experts in each layer: 12.5 of each, were they even.
            for (layer, ids) in looker.used.chunks_exact(400).enumerate() {
                let most = (0..32).map(|expert| ids.iter().filter(|&&id| id == expert).count()).max().unwrap();
                assert!(most < 75, "{preset:?}: layer {layer} sends {most} of 100 tokens to one expert");
            }
        }
    }

    #[test]
    fn a_file_depends_on_its_seed() {
        let shape = small(Preset::Tiny);
        let types = Types::of(Preset::Tiny);
        assert_eq!(file(&shape, &types, 1), file(&shape, &types, 1));
        assert_ne!(file(&shape, &types, 1), file(&shape, &types, 2));
    }

    #[test]
    fn every_type_that_can_be_made_runs() {
        let shape = small(Preset::Tiny);
        for &format in Format::ALL.iter().filter(|format| weights::can_make(**format)) {
            let mut types = Types::of(Preset::Tiny);
            let list = ["gate_up", "down", "dense", "embed", "output"].map(|role| format!("{role}={format}"));
            types.change(&list).unwrap();
            let engine = engine(file(&shape, &types, 1));
            let mut session = engine.session(SessionOptions { context: 8, ..SessionOptions::default() }).unwrap();
            let logits = session.prefill(&[1, 2, 3], Logits::Last, &mut |_| ControlFlow::Continue(()));
            assert!(logits.unwrap().unwrap().values.iter().all(|logit| logit.is_finite()), "{format}");
        }
    }

    #[test]
    fn presets_have_the_published_sizes() {
        let gigabytes = |preset| {
            let plan = plan(&Shape::of(preset), &Types::of(preset)).unwrap();
            let experts = plan.iter().filter(|planned| planned.tensor.name.contains("_exps."));
            (experts.map(|planned| planned.bytes).sum::<u64>() as f64 / 1e8).round() / 10.0
        };
        // 48 layers of 512 experts of 1.87 MB.
        assert_eq!(gigabytes(Preset::Qwen38FlashNext), 45.9);
        let parameters = |preset| {
            let weights = |planned: &Planned| planned.tensor.shape.iter().map(|&len| len as u64).product::<u64>();
            plan(&Shape::of(preset), &Types::of(preset)).unwrap().iter().map(weights).sum::<u64>() as f64 / 1e9
        };
        // "125B" and an n-gram table of "51B".
        assert_eq!(parameters(Preset::Qwen38FlashNext).round(), 177.0);
        assert_eq!(parameters(Preset::Qwen3Next80bA3b).round(), 80.0);
        assert_eq!((parameters(Preset::Qwen330bA3b) * 10.0).round(), 305.0);
        assert_eq!((parameters(Preset::Mixtral8x7b) * 10.0).round(), 467.0);
        assert!(matches!(Shape::of(Preset::Mixtral8x7b).vocabulary.kind, VocabularyKind::SentencePiece));
    }
}
