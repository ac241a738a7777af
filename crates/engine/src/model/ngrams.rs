//! Hashed n-gram embeddings (PLE): each token's recent past, hashed to rows of a table, joins every stream of the residual.
//!
//! For each n from 2 to the longest, the last n tokens are hashed to one table row per head. The rows of all heads
//! together are a token's embedding e. With streams x: `gated = sigmoid(r(norm(key · e) · norm(x) / sqrt(D))) * (value · e)`
//! per stream ([`PleGate`]), and `x += gated + silu(conv(norm(gated)))`, a convolution whose taps are an n-gram apart.

use argon_kernels::device::tensor;
use argon_kernels::op::{Add, Conv, Embed, PleGate, RmsNorm};
use argon_kernels::{DType, Device, Tensor, Weight};

use super::pass::{Chunk, Pass, Result};
use crate::config::{Config, NgramConfig};
use crate::state::StateTensor;
use crate::weights::{Binder, Table};

/// The table and the weights of the layer that reads it.
pub(crate) struct Ngrams {
    /// Rows x C.
    table: Table,
    /// S*D x heads*C.
    key: Weight,
    /// D x heads*C.
    value: Weight,
    /// f32 `[1, S, D]`.
    key_norm: Tensor,
    /// f32 `[1, S, D]`.
    query_norm: Tensor,
    /// f32 `[1, S, D]`.
    conv_norm: Tensor,
    /// f32 `[S*D, 1, taps]`.
    conv: Tensor,
    eps: f32,
    config: NgramConfig,
}

/// What the layer remembers of the tokens so far.
pub(crate) struct NgramState {
    /// f32 `[(taps - 1) * longest, 1, S*D]`: the last inputs of the convolution.
    tail: Tensor,
}

/// Memory for one chunk.
pub(crate) struct NgramScratch {
    /// i32 `[T, 1, heads]`.
    ids: Tensor,
    /// f32 `[T, heads, C]`.
    embedding: Tensor,
    /// f32 `[T, S, D]`.
    key: Tensor,
    /// f32 `[T, S, D]`.
    query: Tensor,
    /// f32 `[T, 1, D]`.
    value: Tensor,
    /// f32 `[T, S, D]`.
    gated: Tensor,
}

impl Ngrams {
    pub fn bind(binder: &mut Binder, config: &Config, ngrams: &NgramConfig) -> Result<Self> {
        let (streams, hidden, width) = (config.stream_count(), config.hidden, ngrams.heads() * ngrams.dim);
        let name = |part| format!("blk.{}.ple_{part}.weight", ngrams.layer);
        let norm = |binder: &mut Binder, part| binder.group_vectors(&name(part), streams, hidden);
        Ok(Self {
            table: bind_table(binder, config, ngrams)?,
            key: binder.weight(&name("key"), streams * hidden, width)?,
            value: binder.weight(&name("value"), hidden, width)?,
            key_norm: norm(binder, "norm_key")?,
            query_norm: norm(binder, "norm_query")?,
            conv_norm: norm(binder, "norm_conv")?,
            conv: binder.taps(&name("conv1d"), streams * hidden, ngrams.taps)?,
            eps: config.eps,
            config: ngrams.clone(),
        })
    }

    /// Adds the n-grams of the chunk's tokens to the streams `x`, f32 `[T, S, D]`.
    pub fn forward(&self, pass: &mut Pass, state: &NgramState, scratch: &NgramScratch, x: &Tensor) -> Result<()> {
        let s = scratch.first(pass.len());
        let rows = rows(&self.config, &pass.chunk);
        self.table.check(rows.iter().map(|&row| row as usize))?;
        pass.write_ids(&s.ids, &rows)?;
        pass.run(Embed { table: self.table.weight.clone(), ids: s.ids, out: s.embedding.clone() })?;
        let embedding = s.embedding.flat();
        pass.product(&embedding, &self.key, &s.key.flat())?;
        pass.product(&embedding, &self.value, &s.value)?;
        self.norm(pass, &s.key, &self.key_norm, &s.key)?;
        self.norm(pass, x, &self.query_norm, &s.query)?;
        pass.run(PleGate { key: s.key, query: s.query, value: s.value, out: s.gated.clone() })?;
        pass.run(Add { src: s.gated.clone(), dst: x.clone() })?;
        self.norm(pass, &s.gated, &self.conv_norm, &s.gated)?;
        pass.run(Conv {
            x: s.gated.flat(),
            weight: self.conv.clone(),
            dilation: self.config.longest,
            state: state.tail.clone(),
            accumulate: true,
            out: x.flat(),
        })
    }

    fn norm(&self, pass: &Pass, x: &Tensor, weight: &Tensor, out: &Tensor) -> Result<()> {
        pass.run(RmsNorm { x: x.clone(), weight: weight.clone(), eps: self.eps, out: out.clone() })
    }
}

/// The table, which may have more rows than the hashes reach.
fn bind_table(binder: &mut Binder, config: &Config, ngrams: &NgramConfig) -> Result<Table> {
    const TABLE: &str = "per_layer_token_embd.weight";
    let rows = binder.rows_of(TABLE)?;
    ngrams.check_rows(config.family.name, rows)?;
    binder.table(TABLE, rows, ngrams.dim)
}

/// The table rows of each token's n-grams, `[T, heads]`.
///
/// Token 0 is the current one, token j the j-th before it; `hash = xor of token[j] * multiplier[j]`, in 64 bits, for the
/// first n of them. What lies before the last EOS that precedes the token, or before the text, reads as EOS; the token's
/// own EOS cuts nothing.
fn rows(config: &NgramConfig, chunk: &Chunk) -> Vec<i32> {
    let history: Vec<u32> = chunk.before.iter().chain(chunk.tokens).copied().collect();
    let mut rows = Vec::with_capacity(chunk.len() * config.heads());
    for at in chunk.before.len()..history.len() {
        let mut parts = config.parts.chunks_exact(config.heads_per_length);
        let mut hash = u64::from(history[at]).wrapping_mul(config.multipliers[0]);
        let mut cut = false;
        for (back, multiplier) in config.multipliers.iter().enumerate().skip(1) {
            let token = at.checked_sub(back).map_or(config.eos, |from| history[from]);
            cut |= token == config.eos;
            let token = if cut { config.eos } else { token };
            hash ^= u64::from(token).wrapping_mul(*multiplier);
            // Checked when the configuration was read: a part ends below i32::MAX.
            rows.extend(parts.next().into_iter().flatten().map(|(first, len)| (first + hash % len) as i32));
        }
    }
    rows
}

impl NgramState {
    pub fn new(device: &dyn Device, config: &Config, ngrams: &NgramConfig) -> Result<Self> {
        let width = config.stream_count() * config.hidden;
        Ok(Self { tail: tensor(device, DType::F32, (ngrams.taps - 1) * ngrams.longest, 1, width)? })
    }

    /// The only tensor of it, for the list of the session's state.
    pub fn tensors(&self) -> [StateTensor<'_>; 1] {
        [StateTensor::whole("ngram_conv_tail", &self.tail)]
    }
}

impl NgramScratch {
    /// Memory for chunks of up to `rows` tokens.
    pub fn new(device: &dyn Device, config: &Config, ngrams: &NgramConfig, rows: usize) -> Result<Self> {
        let streams = || tensor(device, DType::F32, rows, config.stream_count(), config.hidden);
        Ok(Self {
            ids: tensor(device, DType::I32, rows, 1, ngrams.heads())?,
            embedding: tensor(device, DType::F32, rows, ngrams.heads(), ngrams.dim)?,
            key: streams()?,
            query: streams()?,
            value: tensor(device, DType::F32, rows, 1, config.hidden)?,
            gated: streams()?,
        })
    }

    fn first(&self, rows: usize) -> Self {
        Self {
            ids: self.ids.first(rows),
            embedding: self.embedding.first(rows),
            key: self.key.first(rows),
            query: self.query.first(rows),
            value: self.value.first(rows),
            gated: self.gated.first(rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EOS: u32 = 9;

    fn config(longest: usize) -> NgramConfig {
        NgramConfig {
            layer: 0,
            longest,
            heads_per_length: 2,
            dim: 4,
            taps: 4,
            eos: EOS,
            multipliers: vec![4_295_158_889_763_781, 17_440_218_147_737_327, u64::MAX - 2][..longest].to_vec(),
            parts: vec![(0, 307), (307, 311), (618, 313), (931, 317)][..2 * (longest - 1)].to_vec(),
        }
    }

    /// The rows of the last of `tokens`, from the definition: each n by itself, with the tokens it sees spelled out.
    fn expected(config: &NgramConfig, seen: [u32; 3]) -> Vec<i32> {
        let mut rows = Vec::new();
        for n in 2..=config.longest {
            let hash = (0..n).fold(0u64, |hash, j| hash ^ u64::from(seen[j]).wrapping_mul(config.multipliers[j]));
            let parts = &config.parts[2 * (n - 2)..2 * (n - 1)];
            rows.extend(parts.iter().map(|(first, len)| (first + hash % len) as i32));
        }
        rows
    }

    fn last_rows(config: &NgramConfig, before: &[u32], tokens: &[u32]) -> Vec<i32> {
        let all = rows(config, &Chunk { tokens, start: before.len(), before });
        all[all.len() - config.heads()..].to_vec()
    }

    #[test]
    fn what_is_before_the_text_reads_as_eos() {
        let config = config(3);
        assert_eq!(last_rows(&config, &[], &[5]), expected(&config, [5, EOS, EOS]));
        assert_eq!(last_rows(&config, &[], &[4, 5]), expected(&config, [5, 4, EOS]));
        assert_eq!(last_rows(&config, &[3, 4], &[5]), expected(&config, [5, 4, 3]));
    }

    #[test]
    fn an_eos_hides_what_is_before_it_but_not_from_itself() {
        let config = config(3);
        assert_eq!(last_rows(&config, &[], &[3, EOS, 5]), expected(&config, [5, EOS, EOS]));
        assert_eq!(last_rows(&config, &[], &[3, 4, EOS]), expected(&config, [EOS, 4, 3]));
        assert_eq!(last_rows(&config, &[], &[EOS, 4, 5]), expected(&config, [5, 4, EOS]));
    }

    #[test]
    fn a_cut_into_chunks_changes_nothing() {
        let config = config(3);
        let tokens = [1, 2, EOS, 3, 4, 5, EOS, EOS, 6, 7];
        let whole = rows(&config, &Chunk { tokens: &tokens, start: 0, before: &[] });
        for cut in 1..tokens.len() {
            let before = &tokens[cut.saturating_sub(2)..cut];
            let parts = [
                rows(&config, &Chunk { tokens: &tokens[..cut], start: 0, before: &[] }),
                rows(&config, &Chunk { tokens: &tokens[cut..], start: cut, before }),
            ];
            assert_eq!(parts.concat(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn bigrams_alone_need_one_token_of_history() {
        let config = config(2);
        assert_eq!(last_rows(&config, &[4], &[5]), expected(&config, [5, 4, 0]));
        assert_eq!(config.heads(), 2);
    }
}
