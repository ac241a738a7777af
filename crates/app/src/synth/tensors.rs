//! The tensors of a synthetic file, with weights of such sizes that numbers stay near 1 on their way through the model.
//!
//! A product of inputs of size 1 with weights of deviation `1 / sqrt(columns)` has size 1. Blocks then add less than the
//! residual's own size to it: over 48 layers it grows a few times, and neither explodes nor drowns what came first. Router
//! logits of deviation 1.5 over random inputs spread tokens evenly over the experts.

use super::shape::{Attention, DeltaNet, Ngrams, Shape, Streams};
use super::types::Role;
use super::weights::Values;

/// A tensor to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// Its shape, columns first.
    pub shape: Vec<usize>,
    /// What decides its format.
    pub role: Role,
    /// Its numbers.
    pub values: Values,
}

/// All tensors, in the order of the file.
pub fn tensors(shape: &Shape) -> Vec<Tensor> {
    let mut list = List { gain: gain(shape), tensors: Vec::new() };
    list.add("token_embd.weight", &[shape.hidden, shape.vocabulary.size], Role::Embed, Values::Weights { std: 1.0 });
    if let Some(ngrams) = &shape.ngrams {
        let rows = &[ngrams.dim, ngrams.rows];
        list.add("per_layer_token_embd.weight", rows, Role::Ngrams, Values::Weights { std: 1.0 });
    }
    for layer in 0..shape.layers {
        list.layer(shape, layer);
    }
    match &shape.streams {
        None => list.norm("output_norm", shape.hidden),
        Some(streams) => list.mixer("output_hc", shape.hidden, streams),
    }
    list.product("output", Role::Output, &[shape.hidden, shape.vocabulary.size], list.gain);
    list.tensors
}

/// What makes up for a block's input that is not of size 1: the gated mean of hyper-connection streams halves it.
fn gain(shape: &Shape) -> f32 {
    if shape.streams.is_some() { 2.0 } else { 1.0 }
}

struct List {
    /// Of whatever reads a block's input.
    gain: f32,
    tensors: Vec<Tensor>,
}

impl List {
    fn add(&mut self, name: &str, shape: &[usize], role: Role, values: Values) {
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), role, values });
    }

    /// A weight whose outputs are `gain` times the size of its inputs.
    fn product(&mut self, name: &str, role: Role, shape: &[usize], gain: f32) {
        let std = gain / (shape[0] as f32).sqrt();
        self.add(&format!("{name}.weight"), shape, role, Values::Weights { std });
    }

    /// A weight that reads a block's input.
    fn input(&mut self, name: &str, role: Role, shape: &[usize]) {
        self.product(name, role, shape, self.gain);
    }

    /// A weight in the middle of a block, or at its end.
    fn dense(&mut self, name: &str, cols: usize, rows: usize) {
        self.product(name, Role::Dense, &[cols, rows], 1.0);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.add(&format!("{name}.weight"), &[width], Role::Plain, Values::Uniform { low: 0.8, high: 1.2 });
    }

    fn taps(&mut self, name: &str, taps: usize, channels: usize) {
        self.product(name, Role::Plain, &[taps, channels], 1.0);
    }

    fn layer(&mut self, shape: &Shape, layer: usize) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        if let Some(ngrams) = shape.ngrams.as_ref().filter(|ngrams| ngrams.layer == layer) {
            self.ngrams(&name, shape, ngrams);
        }
        self.reader(&name("attn_norm"), &name("hc_attn"), shape);
        match &shape.delta_net {
            Some(delta_net) if !shape.is_attention(layer) => self.delta_net(&name, shape.hidden, delta_net),
            _ => self.attention(&name, shape.hidden, &shape.attention),
        }
        let norm = if shape.delta_net.is_some() { "post_attention_norm" } else { "ffn_norm" };
        self.reader(&name(norm), &name("hc_ffn"), shape);
        self.experts(&name, shape);
    }

    /// What a block reads its input with.
    fn reader(&mut self, norm: &str, hyper: &str, shape: &Shape) {
        match &shape.streams {
            None => self.norm(norm, shape.hidden),
            Some(streams) => {
                self.mixer(hyper, shape.hidden, streams);
                // Its results are divided by S before a sigmoid.
                let cols = streams.count * shape.hidden;
                let inject = &format!("{hyper}_inject");
                self.product(inject, Role::Plain, &[cols, streams.count], streams.count as f32);
            }
        }
    }

    /// The low-rank gate over hyper-connection streams.
    fn mixer(&mut self, name: &str, hidden: usize, streams: &Streams) {
        let width = streams.count * hidden;
        self.norm(&format!("{name}_norm"), width);
        // The results are divided by S, and halved by a SiLU.
        self.product(&format!("{name}_down"), Role::Dense, &[width, streams.rank], streams.count as f32);
        self.product(&format!("{name}_up"), Role::Dense, &[streams.rank, width], 2.0);
    }

    fn attention(&mut self, name: &impl Fn(&str) -> String, hidden: usize, a: &Attention) {
        let queries = a.heads * a.dim;
        let with_gates = if a.gated { 2 * queries } else { queries };
        self.input(&name("attn_q"), Role::Dense, &[hidden, with_gates]);
        self.input(&name("attn_k"), Role::Dense, &[hidden, a.kv_heads * a.dim]);
        self.input(&name("attn_v"), Role::Dense, &[hidden, a.kv_heads * a.dim]);
        self.dense(&name("attn_output"), queries, hidden);
        if a.normed {
            self.norm(&name("attn_q_norm"), a.dim);
            self.norm(&name("attn_k_norm"), a.dim);
        }
        if let Some(indexer) = &a.indexer {
            self.input(&name("indexer.q_proj"), Role::Plain, &[hidden, indexer.heads * indexer.dim]);
            self.input(&name("indexer.k_proj"), Role::Plain, &[hidden, indexer.dim]);
            self.norm(&name("indexer.q_norm"), indexer.dim);
            self.norm(&name("indexer.k_norm"), indexer.dim);
        }
    }

    fn delta_net(&mut self, name: &impl Fn(&str) -> String, hidden: usize, d: &DeltaNet) {
        self.input(&name("attn_qkv"), Role::Dense, &[hidden, d.channels()]);
        self.input(&name("attn_gate"), Role::Dense, &[hidden, d.value_width()]);
        if d.fused_beta_alpha {
            self.input(&name("ssm_ba"), Role::Plain, &[hidden, 2 * d.value_heads]);
        } else {
            self.input(&name("ssm_beta"), Role::Plain, &[hidden, d.value_heads]);
            self.input(&name("ssm_alpha"), Role::Plain, &[hidden, d.value_heads]);
        }
        self.taps(&name("ssm_conv1d"), d.taps, d.channels());
        self.add(&name("ssm_a"), &[d.value_heads], Role::Plain, Values::Decay { low: 0.01, high: 4.0 });
        let steps = Values::Uniform { low: -1.0, high: 1.0 };
        self.add(&name("ssm_dt.bias"), &[d.value_heads], Role::Plain, steps);
        self.norm(&name("ssm_norm"), d.dim);
        self.dense(&name("ssm_out"), d.value_width(), hidden);
    }

    fn experts(&mut self, name: &impl Fn(&str) -> String, shape: &Shape) {
        let (hidden, e) = (shape.hidden, &shape.experts);
        self.product(&name("ffn_gate_inp"), Role::Plain, &[hidden, e.count], 1.5 * self.gain);
        self.input(&name("ffn_gate_exps"), Role::GateUp, &[hidden, e.width, e.count]);
        self.input(&name("ffn_up_exps"), Role::GateUp, &[hidden, e.width, e.count]);
        self.product(&name("ffn_down_exps"), Role::Down, &[e.width, hidden, e.count], 1.0);
        if let Some(width) = e.shared {
            self.input(&name("ffn_gate_inp_shexp"), Role::Plain, &[hidden]);
            self.input(&name("ffn_gate_shexp"), Role::Dense, &[hidden, width]);
            self.input(&name("ffn_up_shexp"), Role::Dense, &[hidden, width]);
            self.dense(&name("ffn_down_shexp"), width, hidden);
        }
    }

    fn ngrams(&mut self, name: &impl Fn(&str) -> String, shape: &Shape, ngrams: &Ngrams) {
        let streams = shape.streams.as_ref().map_or(1, |streams| streams.count) * shape.hidden;
        let cols = ngrams.heads() * ngrams.dim;
        self.dense(&name("ple_key"), cols, streams);
        self.dense(&name("ple_value"), cols, shape.hidden);
        self.norm(&name("ple_norm_key"), streams);
        self.norm(&name("ple_norm_query"), streams);
        self.norm(&name("ple_norm_conv"), streams);
        self.taps(&name("ple_conv1d"), ngrams.taps, streams);
    }
}
