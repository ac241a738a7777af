//! One model file run in every setting that has something to compare with.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use argon_engine::compare::Comparison;
use argon_engine::{CacheTypes, Engine, EngineOptions, Logits, SessionOptions};
use argon_gguf::Gguf;
use argon_kernels::{DType, Device, Precision};

use super::directory::{Model, Oracle, Positions, Reference};
use super::routing::{Agreement, Choices, Of};
use super::verdict::{Run, Tolerance};
use crate::npy;

/// Chunk sizes of our runs, beside those of the references: one token, some, whole prompts of the usual length.
const CHUNKS: [usize; 3] = [1, 16, 512];

/// The format that router and indexer choices are those of.
const EXACT: &str = "f32";

/// A comparison of one file of an outside engine with us.
#[derive(Debug)]
pub struct Outcome {
    /// The outside engine's setting, or its file of choices.
    pub reference: String,
    /// The positions compared.
    pub positions: String,
    /// How we computed; of several chunk sizes, the one that came out worst, or the largest of equals.
    pub run: Run,
    /// What was found.
    pub found: Found,
}

/// What was found.
#[derive(Debug)]
pub enum Found {
    /// Logits, and what must hold of them.
    Logits(Comparison, Tolerance),
    /// Choices, all of which must be the same.
    Choices(Agreement),
}

impl Outcome {
    /// Whether what must hold does; `None` where nothing must.
    pub fn holds(&self) -> Option<bool> {
        match &self.found {
            Found::Logits(comparison, tolerance) => tolerance.holds(comparison),
            Found::Choices(agreement) => Some(agreement.same == agreement.all),
        }
    }
}

/// A model file of an oracle on a device.
pub struct Trial<'a> {
    oracle: &'a Oracle,
    gguf: Gguf,
    device: Arc<dyn Device>,
    architecture: String,
    /// The references that used the same file.
    references: Vec<&'a Reference>,
    choices: Vec<&'a Choices>,
}

impl<'a> Trial<'a> {
    /// Opens the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(oracle: &'a Oracle, model: &Model, device: Arc<dyn Device>) -> Result<Self> {
        let gguf = Gguf::open(&model.path)?;
        Ok(Trial {
            oracle,
            architecture: gguf.metadata().require_str("general.architecture")?.to_owned(),
            gguf,
            device,
            references: oracle.references.iter().filter(|reference| reference.quant == model.quant).collect(),
            choices: oracle.choices.iter().filter(|_| model.quant == EXACT).collect(),
        })
    }

    /// Runs the model in each of `precisions` and compares what comes out.
    ///
    /// # Errors
    /// A model that does not load or run, a reference that does not fit it.
    pub fn run(&self, precisions: &[Precision]) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for &precision in precisions {
            let engine =
                Engine::load(self.gguf.clone(), self.device.clone(), EngineOptions { precision: Some(precision) })?;
            for kv_f16 in [false, true] {
                outcomes.extend(self.compare_logits(&engine, kv_f16)?);
            }
            if precision == Precision::F32 {
                outcomes.extend(self.compare_choices(&engine)?);
            }
        }
        Ok(outcomes)
    }

    /// The references to hold against runs with this cache. An f16 cache is for f32 weights only: rounding flips experts
    /// of coarser ones, and the references say nothing about that.
    fn references(&self, precision: Precision, kv_f16: bool) -> Vec<&'a Reference> {
        let fits = |reference: &&&Reference| match kv_f16 {
            false => !reference.kv_f16,
            true => precision == Precision::F32 && (reference.kv_f16 || reference.quant == EXACT),
        };
        self.references.iter().filter(fits).copied().collect()
    }

    fn compare_logits(&self, engine: &Engine, kv_f16: bool) -> Result<Vec<Outcome>> {
        let precision = engine.info().precision;
        let references = self.references(precision, kv_f16);
        if references.is_empty() {
            return Ok(Vec::new());
        }
        let chunks: BTreeSet<_> = CHUNKS.into_iter().chain(references.iter().filter_map(|r| r.chunk)).collect();
        let runs = chunks.into_iter().map(|chunk| Run { precision, kv_f16, chunk });
        let ours = runs.map(|run| Ok((run, self.logits(engine, run)?))).collect::<Result<Vec<_>>>()?;
        let mut outcomes = Vec::new();
        for reference in references {
            for array in &reference.arrays {
                let expected = self.expected(&array.path, array.positions, engine.info().vocabulary)?;
                let of_runs = ours.iter().map(|(run, logits)| {
                    let found = Comparison::new(
                        &expected,
                        &select(logits, array.positions, engine.info().vocabulary),
                        engine.info().vocabulary,
                    );
                    let tolerance = Tolerance::between(reference, run, &self.architecture, found.rows);
                    Outcome {
                        reference: reference.tag.clone(),
                        positions: array.positions.to_string(),
                        run: *run,
                        found: Found::Logits(found, tolerance),
                    }
                });
                outcomes.extend(of_runs.max_by(worse));
            }
        }
        Ok(outcomes)
    }

    /// Our logits of all prompts, row after row.
    fn logits(&self, engine: &Engine, run: Run) -> Result<Vec<Vec<f32>>> {
        let mut session = engine.session(self.options(run))?;
        let of_prompt = |tokens: &Vec<u32>| {
            session.reset()?;
            let logits = session.prefill(tokens, Logits::All, &mut |_| ControlFlow::Continue(()))?;
            Ok(logits.context("no logits")?.values)
        };
        self.oracle.prompts.iter().map(of_prompt).collect()
    }

    fn options(&self, run: Run) -> SessionOptions {
        let cache = if run.kv_f16 { DType::F16 } else { DType::F32 };
        let context = self.oracle.prompts.iter().map(Vec::len).max().unwrap_or(0);
        SessionOptions { context, chunk: run.chunk, cache: CacheTypes { k: cache, v: cache } }
    }

    /// The reference's logits, of the shape that model and prompts ask for.
    fn expected(&self, path: &Path, positions: Positions, vocabulary: usize) -> Result<Vec<f32>> {
        let array = npy::read::<f32>(path)?;
        let rows = match positions {
            Positions::Final => self.oracle.prompts.len(),
            Positions::Prompt(i) => self.oracle.prompts[i].len(),
        };
        let name = path.display();
        ensure!(
            array.shape == [rows, vocabulary],
            "{name}: its shape is {:?}, not [{rows}, {vocabulary}]",
            array.shape
        );
        ensure!(array.data.iter().all(|logit| logit.is_finite()), "{name}: a logit is no finite number");
        Ok(array.data)
    }

    fn compare_choices(&self, engine: &Engine) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for choices in &self.choices {
            let of_runs = CHUNKS.map(|chunk| {
                let run = Run { precision: engine.info().precision, kv_f16: false, chunk };
                let tokens = &self.oracle.prompts[choices.prompt];
                let agreement = choices.compare(engine, &self.gguf, self.options(run), tokens)?;
                Ok(Outcome {
                    reference: match choices.of {
                        Of::Experts => "router".into(),
                        Of::Keys => "qsa mask".into(),
                    },
                    positions: Positions::Prompt(choices.prompt).to_string(),
                    run,
                    found: Found::Choices(agreement),
                })
            });
            let of_runs = of_runs.into_iter().collect::<Result<Vec<_>>>()?;
            outcomes.extend(of_runs.into_iter().max_by(worse));
        }
        Ok(outcomes)
    }
}

/// The rows of `logits` (of each prompt, all positions) that a reference holds.
fn select(logits: &[Vec<f32>], positions: Positions, vocabulary: usize) -> Vec<f32> {
    match positions {
        Positions::Prompt(i) => logits[i].clone(),
        Positions::Final => logits.iter().flat_map(|rows| &rows[rows.len() - vocabulary..]).copied().collect(),
    }
}

/// The order of outcomes of the same comparison: one that fails is worse than one that holds, then the larger
/// difference is.
fn worse(a: &Outcome, b: &Outcome) -> std::cmp::Ordering {
    let distance = |outcome: &Outcome| match &outcome.found {
        Found::Logits(comparison, _) => comparison.max_abs,
        Found::Choices(agreement) => (agreement.all - agreement.same) as f64,
    };
    let fails = |outcome: &Outcome| outcome.holds() == Some(false);
    fails(a).cmp(&fails(b)).then(distance(a).total_cmp(&distance(b)))
}
