//! Which experts and which blocks of keys were chosen: compared exactly, as sets.
//!
//! Files: `router/ENGINE_pN.ids.npy`, integers `[layer, T, K]`, and `router/ENGINE_pN.qsa_mask.npy`, bools `[T, T]` (query,
//! key) of the one layer that has an indexer, or `[layer, T, T]` of those that have one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use argon_engine::probe::{Intermediate, Probe, Shown, Values};
use argon_engine::{Engine, Logits, SessionOptions};
use argon_gguf::Gguf;

use crate::npy::{self, Array};

/// A file of choices.
#[derive(Debug, PartialEq)]
pub struct Choices {
    /// The file.
    pub path: PathBuf,
    /// The prompt it is about.
    pub prompt: usize,
    /// What was chosen.
    pub of: Of,
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Of {
    /// Experts by the router.
    Experts,
    /// Keys by the QSA indexer.
    Keys,
}

/// How many choices agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Choices, one per layer and token, that are the same set.
    pub same: usize,
    /// All of them.
    pub all: usize,
}

/// The files of choices in `dir`, which need not exist.
///
/// # Errors
/// If it exists and cannot be read.
pub fn find(dir: &Path, prompts: usize) -> Result<Vec<Choices>> {
    let mut found = Vec::new();
    if !dir.is_dir() {
        return Ok(found);
    }
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry.with_context(|| dir.display().to_string())?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (stem, of) = match (name.strip_suffix(".ids.npy"), name.strip_suffix(".qsa_mask.npy")) {
            (Some(stem), _) => (stem, Of::Experts),
            (_, Some(stem)) => (stem, Of::Keys),
            _ => continue,
        };
        let prompt = stem.rsplit_once("_p").and_then(|(_, number)| number.parse().ok());
        let prompt = prompt.with_context(|| format!("{}: names no prompt", path.display()))?;
        ensure!(prompt < prompts, "{}: prompts.json has no prompt {prompt}", path.display());
        found.push(Choices { path, prompt, of });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl Choices {
    /// Compares with the choices of `engine` (loaded from `gguf`) in a session of its own over `tokens`.
    ///
    /// # Errors
    /// A file that does not fit the model or the prompt, or what the engine says.
    pub fn compare(&self, engine: &Engine, gguf: &Gguf, options: SessionOptions, tokens: &[u32]) -> Result<Agreement> {
        let mut recorder = Recorder { of: self.of, shown: Vec::new() };
        engine.session(options)?.prefill_probed(tokens, Logits::None, &mut recorder)?;
        let agreement = match self.of {
            Of::Experts => experts(&npy::read(&self.path)?, &recorder.shown, engine.info().layers, tokens.len()),
            Of::Keys => keys(&npy::read(&self.path)?, &recorder.shown, &ratios(gguf)?, tokens.len()),
        };
        agreement.with_context(|| self.path.display().to_string())
    }
}

/// Keeps what is shown of one kind of choice.
struct Recorder {
    of: Of,
    shown: Vec<Shown>,
}

impl Probe for Recorder {
    fn wants(&self, what: Intermediate, _layer: usize) -> bool {
        match self.of {
            Of::Experts => what == Intermediate::RouterIds,
            Of::Keys => what == Intermediate::SelectedBlocks,
        }
    }

    fn see(&mut self, shown: Shown) {
        self.shown.push(shown);
    }
}

/// The ids of each row of `shown`, by the position of its token.
fn rows(shown: &Shown) -> impl Iterator<Item = (usize, &[i32])> {
    let ids: &[i32] = match &shown.values {
        Values::I32(ids) => ids,
        Values::F32(_) => &[],
    };
    (shown.start..).zip(ids.chunks_exact(shown.width.max(1)))
}

fn experts(reference: &Array<i64>, shown: &[Shown], layers: usize, tokens: usize) -> Result<Agreement> {
    let shape = &reference.shape;
    ensure!(
        shape.len() == 3 && shape[..2] == [layers, tokens],
        "its shape is {shape:?}, not [{layers}, {tokens}, experts of a token]"
    );
    let used = shape[2];
    let sorted = |ids: &mut dyn Iterator<Item = i64>| {
        let mut ids: Vec<i64> = ids.collect();
        ids.sort_unstable();
        ids
    };
    let same = shown.iter().flat_map(|shown| rows(shown).map(|(token, ids)| (shown.layer, token, ids)));
    let same = same.filter(|&(layer, token, ids)| {
        let at = (layer * tokens + token) * used;
        let expected = sorted(&mut reference.data[at..at + used].iter().copied());
        expected == sorted(&mut ids.iter().map(|&id| id.into()))
    });
    Ok(Agreement { same: same.count(), all: layers * tokens })
}

/// Tokens per block in each layer, 0 where attention is dense.
fn ratios(gguf: &Gguf) -> Result<Vec<usize>> {
    let architecture = gguf.metadata().require_str("general.architecture")?;
    let ratios = gguf.metadata().u32_array(&format!("{architecture}.attention.compress_ratios"))?;
    Ok(ratios.unwrap_or_default().into_iter().map(|ratio| ratio as usize).collect())
}

fn keys(reference: &Array<bool>, shown: &[Shown], ratios: &[usize], tokens: usize) -> Result<Agreement> {
    let layers: Vec<usize> = (0..ratios.len()).filter(|&layer| ratios[layer] > 0).collect();
    let (shape, one) = (&reference.shape, [tokens, tokens]);
    ensure!(
        (layers.len() == 1 && **shape == one) || **shape == [layers.len(), tokens, tokens],
        "its shape is {shape:?}, but {} layers select keys for {tokens} tokens",
        layers.len()
    );
    let mut same = 0;
    for (&layer, expected) in layers.iter().zip(reference.data.chunks_exact((tokens * tokens).max(1))) {
        let of_layer = shown.iter().filter(|shown| shown.layer == layer);
        let found = mask(of_layer, ratios[layer], tokens);
        same += found.iter().zip(expected.chunks_exact(tokens)).filter(|(found, expected)| found == expected).count();
    }
    Ok(Agreement { same, all: layers.len() * tokens })
}

/// The keys that each query sees: those of the selected blocks and of the block that is not complete yet; all up to
/// itself where nothing had to be selected.
fn mask<'a>(shown: impl Iterator<Item = &'a Shown>, ratio: usize, tokens: usize) -> Vec<Vec<bool>> {
    let mut mask: Vec<Vec<bool>> = (0..tokens).map(|query| (0..tokens).map(|key| key <= query).collect()).collect();
    for (query, blocks) in shown.flat_map(rows) {
        let incomplete = (query + 1) / ratio * ratio..query + 1;
        let selected = |key: usize| blocks.iter().any(|&block| usize::try_from(block) == Ok(key / ratio));
        mask[query] = (0..tokens).map(|key| incomplete.contains(&key) || (key <= query && selected(key))).collect();
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(what: Intermediate, layer: usize, start: usize, width: usize, ids: &[i32]) -> Shown {
        Shown { what, layer, start, width, values: Values::I32(ids.to_vec()) }
    }

    #[test]
    fn experts_are_compared_as_sets() {
        let reference = Array { shape: vec![1, 3, 2], data: vec![0, 1, 2, 3, 4, 5] };
        let chunks =
            [shown(Intermediate::RouterIds, 0, 0, 2, &[1, 0, 3, 1]), shown(Intermediate::RouterIds, 0, 2, 2, &[5, 4])];
        assert_eq!(experts(&reference, &chunks, 1, 3).unwrap(), Agreement { same: 2, all: 3 });
        assert!(experts(&reference, &chunks, 2, 3).is_err());
        // A layer that was never shown does not agree.
        assert_eq!(experts(&reference, &chunks[..1], 1, 3).unwrap().same, 1);
    }

    #[test]
    fn a_mask_is_the_selected_blocks_and_the_incomplete_one() {
        let chunk = shown(Intermediate::SelectedBlocks, 0, 4, 1, &[0, 1]);
        let found = mask([&chunk].into_iter(), 2, 6);
        assert_eq!(found[3], [true, true, true, true, false, false]);
        assert_eq!(found[4], [true, true, false, false, true, false]);
        assert_eq!(found[5], [false, false, true, true, false, false]);
    }
}
