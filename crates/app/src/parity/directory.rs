//! What an oracle directory holds, told from the names of its files.
//!
//! * `NAME.QUANT.gguf`, or `NAME.QUANT_split-00001-of-00003.gguf` and so on: the same model in several formats.
//! * `prompts.json`: `{"prompts": [[ids], ...]}`; prompt i is called `pi`.
//! * `logits/TAG.final.npy` `[prompts, V]`: after the last token of each prompt. `logits/TAG.pi.npy` `[tokens, V]`: after
//!   every token of prompt i. TAG is `ENGINE_QUANT`, then in any order `_ubN` (chunks of N tokens), `_kvf16` (keys and
//!   values cached as f16), `_deq` (weights expanded to f32).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::routing::{self, Choices};

/// A directory with models and the logits that others computed with them.
#[derive(Debug)]
pub struct Oracle {
    /// The directory.
    pub path: PathBuf,
    /// Token ids of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// The model files, by name; of a split model the first part.
    pub models: Vec<Model>,
    /// The logits, by tag.
    pub references: Vec<Reference>,
    /// Which experts and keys were chosen.
    pub choices: Vec<Choices>,
}

/// A model file.
#[derive(Debug, PartialEq)]
pub struct Model {
    /// The file, of a split model its first part.
    pub path: PathBuf,
    /// The format's name in lower case: `f32`, `q4_k_m`.
    pub quant: String,
}

/// Logits of one outside engine in one setting.
#[derive(Debug, PartialEq)]
pub struct Reference {
    /// The setting as the files spell it.
    pub tag: String,
    /// The format of the model's file.
    pub quant: String,
    /// How the engine computed.
    pub arithmetic: Arithmetic,
    /// Tokens that went through the model at once, where the tag says so.
    pub chunk: Option<usize>,
    /// Whether keys and values were cached as f16.
    pub kv_f16: bool,
    /// The files.
    pub arrays: Vec<Logits>,
}

/// How the weights were used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arithmetic {
    /// In f32: of an f32 file, or expanded to f32.
    F32,
    /// With an integer or half-precision path of the engine's own, on a file that is not f32.
    Own,
}

/// One file of logits.
#[derive(Debug, PartialEq)]
pub struct Logits {
    /// The file.
    pub path: PathBuf,
    /// The positions it holds.
    pub positions: Positions,
}

/// The positions that a file of logits holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// The last of each prompt.
    Final,
    /// All of one prompt.
    Prompt(usize),
}

impl std::fmt::Display for Positions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Positions::Final => f.write_str("final"),
            Positions::Prompt(i) => write!(f, "p{i}"),
        }
    }
}

/// Whether `path` looks like an oracle directory, and not like a directory of them.
pub fn is_oracle(path: &Path) -> bool {
    path.join("prompts.json").is_file() || path.join("logits").is_dir()
}

impl Oracle {
    /// Looks through the directory; reads `prompts.json` and nothing else.
    ///
    /// # Errors
    /// Names what is missing or malformed: a directory without prompts, models or logits can show nothing.
    pub fn open(path: &Path) -> Result<Oracle> {
        let prompts = read_prompts(&path.join("prompts.json"))?;
        let models: Vec<Model> = names(path)?.iter().filter_map(|name| model(path, name)).collect();
        ensure!(!models.is_empty(), "no .gguf file");
        let references = references(&path.join("logits"))?;
        ensure!(!references.is_empty(), "no logits/*.npy");
        for array in references.iter().flat_map(|reference| &reference.arrays) {
            if let Positions::Prompt(i) = array.positions {
                ensure!(i < prompts.len(), "{}: prompts.json has no prompt {i}", array.path.display());
            }
        }
        let choices = routing::find(&path.join("router"), prompts.len())?;
        Ok(Oracle { path: path.to_owned(), prompts, models, references, choices })
    }

    /// Logits of formats that no model file has.
    pub fn unused_references(&self) -> impl Iterator<Item = &Reference> {
        let has_model = |reference: &&Reference| self.models.iter().any(|model| model.quant == reference.quant);
        self.references.iter().filter(move |reference| !has_model(reference))
    }
}

/// The token ids in `{"prompts": [[ids], ...]}`.
fn read_prompts(path: &Path) -> Result<Vec<Vec<u32>>> {
    #[derive(serde::Deserialize)]
    struct File {
        prompts: Vec<Vec<u32>>,
    }
    let name = || path.display().to_string();
    let file: File = serde_json::from_slice(&fs::read(path).with_context(name)?).with_context(name)?;
    ensure!(!file.prompts.is_empty(), "{}: no prompts", name());
    ensure!(file.prompts.iter().all(|prompt| !prompt.is_empty()), "{}: a prompt without tokens", name());
    Ok(file.prompts)
}

/// The names in a directory, in order; those that are not UTF-8 are nobody's.
fn names(dir: &Path) -> Result<Vec<String>> {
    let read = || -> std::io::Result<Vec<String>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default())).collect()
    };
    let mut names = read().with_context(|| dir.display().to_string())?;
    names.sort_unstable();
    Ok(names)
}

/// The model that begins in the file `name`, if one does.
fn model(dir: &Path, name: &str) -> Option<Model> {
    let stem = name.strip_suffix(".gguf")?;
    let (_, quant) = stem.rsplit_once('.')?;
    let quant = match split_part(quant) {
        None => quant,
        Some((quant, 1)) => quant,
        Some(_) => return None,
    };
    Some(Model { path: dir.join(name), quant: quant.to_ascii_lowercase() })
}

/// `f32_split-00002-of-00003` is part 2 of `f32`.
fn split_part(quant: &str) -> Option<(&str, u32)> {
    let (rest, count) = quant.rsplit_once("-of-")?;
    let (rest, number) = rest.rsplit_once('-')?;
    count.parse::<u32>().ok()?;
    let number = number.parse().ok()?;
    Some((rest.strip_suffix("_split").unwrap_or(rest), number))
}

/// The logits in `dir`, by tag.
fn references(dir: &Path) -> Result<Vec<Reference>> {
    let mut by_tag: BTreeMap<String, Vec<Logits>> = BTreeMap::new();
    for name in names(dir)? {
        let Some(stem) = name.strip_suffix(".npy") else { continue };
        let parts = stem.rsplit_once('.').and_then(|(tag, which)| Some((tag, positions(which)?)));
        let Some((tag, positions)) = parts else {
            bail!("{}: neither TAG.final.npy nor TAG.pN.npy", dir.join(&name).display());
        };
        by_tag.entry(tag.to_owned()).or_default().push(Logits { path: dir.join(&name), positions });
    }
    by_tag
        .into_iter()
        .map(|(tag, arrays)| reference(&tag, arrays).with_context(|| format!("{}: the tag {tag:?}", dir.display())))
        .collect()
}

fn positions(which: &str) -> Option<Positions> {
    match which.strip_prefix('p') {
        Some(number) => number.parse().ok().map(Positions::Prompt),
        None => (which == "final").then_some(Positions::Final),
    }
}

/// What a tag says.
fn reference(tag: &str, arrays: Vec<Logits>) -> Result<Reference> {
    let (_, mut quant) = tag.split_once('_').context("names no format")?;
    let (mut chunk, mut kv_f16, mut deq) = (None, false, false);
    while let Some((rest, last)) = quant.rsplit_once('_') {
        match last.strip_prefix("ub").map(str::parse) {
            Some(Ok(0)) => bail!("has chunks of no tokens"),
            Some(Ok(tokens)) => chunk = Some(tokens),
            _ if last == "kvf16" => kv_f16 = true,
            _ if last == "deq" => deq = true,
            _ => break,
        }
        quant = rest;
    }
    let quant = quant.to_ascii_lowercase();
    let arithmetic = if deq || quant == "f32" { Arithmetic::F32 } else { Arithmetic::Own };
    Ok(Reference { tag: tag.to_owned(), quant, arithmetic, chunk, kv_f16, arrays })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(tag: &str) -> (String, Arithmetic, Option<usize>, bool) {
        let found = reference(tag, Vec::new()).unwrap();
        (found.quant, found.arithmetic, found.chunk, found.kv_f16)
    }

    #[test]
    fn tags() {
        use Arithmetic::*;
        assert_eq!(tag("hf_f32"), ("f32".into(), F32, None, false));
        assert_eq!(tag("lc_f32_ub512"), ("f32".into(), F32, Some(512), false));
        assert_eq!(tag("lc_f32_ub16_kvf16"), ("f32".into(), F32, Some(16), true));
        assert_eq!(tag("lc_iq2_xs"), ("iq2_xs".into(), Own, None, false));
        assert_eq!(tag("lc_q4_k_m_deq"), ("q4_k_m".into(), F32, None, false));
        assert_eq!(tag("lc_Q4_K_M_deq_kvf16_ub1"), ("q4_k_m".into(), F32, Some(1), true));
        assert!(reference("lc", Vec::new()).is_err() && reference("lc_f32_ub0", Vec::new()).is_err());
    }

    #[test]
    fn model_files() {
        let quant = |name| model(Path::new("d"), name).map(|model| model.quant);
        assert_eq!(quant("qwen3moe.f32.gguf").as_deref(), Some("f32"));
        assert_eq!(quant("a.b.Q4_K_M.gguf").as_deref(), Some("q4_k_m"));
        assert_eq!(quant("x.f32_split-00001-of-00003.gguf").as_deref(), Some("f32"));
        assert_eq!(quant("x.iq2_xs-00001-of-00002.gguf").as_deref(), Some("iq2_xs"));
        assert_eq!(quant("x.f32_split-00002-of-00003.gguf"), None);
        assert_eq!(quant("x.f32.npy"), None);
        assert_eq!(quant("x.gguf"), None);
    }
}
