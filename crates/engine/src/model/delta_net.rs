//! Gated DeltaNet: a convolution over queries, keys and values, the gated delta rule, a gated norm.

use argon_kernels::device::tensor;
use argon_kernels::op::{self, Activation, Conv, GatedNorm, HeadMap};
use argon_kernels::{DType, Device, Tensor, Weight};

use super::family::DeltaNetTraits;
use super::pass::{Pass, Result, Sink};
use crate::config::{Config, DeltaNetConfig};
use crate::state::StateTensor;
use crate::weights::Binder;

/// The weights of one layer.
pub(crate) struct DeltaNet {
    /// Channels x D: queries, keys, values.
    qkv: Weight,
    /// Hv*Cv x D: the output's gate.
    z: Weight,
    /// Hv x D: the decay.
    alpha: Weight,
    /// Hv x D: the step.
    beta: Weight,
    /// f32 `[channels, 1, taps]`.
    conv: Tensor,
    /// f32 `[1, 1, Hv]`, negative.
    a: Tensor,
    /// f32 `[1, 1, Hv]`.
    dt_bias: Tensor,
    /// f32 `[1, 1, Cv]`.
    norm: Tensor,
    /// D x Hv*Cv.
    out: Weight,
    norm_eps: f32,
    config: DeltaNetConfig,
    heads: HeadMap,
    gate: Activation,
}

/// What a layer remembers of the tokens so far.
pub(crate) struct DeltaNetState {
    /// f32 `[taps - 1, 1, channels]`: the last inputs of the convolution.
    tail: Tensor,
    /// f32 `[Hv, Ck, Cv]`.
    memory: Tensor,
}

/// Memory for one chunk, shared by all layers.
#[derive(Clone)]
pub(crate) struct DeltaNetScratch {
    /// f32 `[T, 1, channels]`.
    qkv: Tensor,
    /// f32 `[T, 1, channels]`.
    mixed: Tensor,
    /// f32 `[T, Hv, Cv]`.
    z: Tensor,
    /// f32 `[T, 1, Hv]`.
    alpha: Tensor,
    /// f32 `[T, 1, Hv]`.
    beta: Tensor,
    /// f32 `[T, Hv, Cv]`.
    out: Tensor,
}

impl DeltaNet {
    pub fn bind(
        binder: &mut Binder,
        config: &Config,
        traits: &DeltaNetTraits,
        c: &DeltaNetConfig,
        layer: usize,
    ) -> Result<Self> {
        let name = |part| format!("blk.{layer}.{part}.weight");
        let hidden = config.hidden;
        let (qkv, z) = match binder.has(&name("ssm_in")) {
            true => fused_qkvz(binder, c, hidden, &name("ssm_in"))?,
            false => (
                binder.weight(&name("attn_qkv"), c.channels(), hidden)?,
                binder.weight(&name("attn_gate"), c.value_width(), hidden)?,
            ),
        };
        let (beta, alpha) = match traits.fused_beta_alpha {
            true => fused_beta_alpha(binder, c, hidden, &name("ssm_ba"))?,
            false => (
                binder.weight(&name("ssm_beta"), c.value_heads, hidden)?,
                binder.weight(&name("ssm_alpha"), c.value_heads, hidden)?,
            ),
        };
        Ok(Self {
            qkv,
            z,
            alpha,
            beta,
            conv: binder.taps(&name("ssm_conv1d"), c.channels(), c.taps)?,
            a: binder.vector(&format!("blk.{layer}.ssm_a"), c.value_heads)?,
            dt_bias: binder.vector(&format!("blk.{layer}.ssm_dt.bias"), c.value_heads)?,
            norm: binder.vector(&name("ssm_norm"), c.value_dim)?,
            out: binder.weight(&name("ssm_out"), hidden, c.value_width())?,
            norm_eps: config.eps,
            config: c.clone(),
            heads: traits.heads,
            gate: traits.gate,
        })
    }

    /// `sink` receives what the chunk's tokens, `x` f32 `[T, 1, D]`, read from `state`, which takes them in.
    pub fn forward(
        &self,
        pass: &mut Pass,
        state: &DeltaNetState,
        scratch: &DeltaNetScratch,
        x: &Tensor,
        sink: &Sink,
    ) -> Result<()> {
        let (s, c) = (scratch.first(pass.len()), &self.config);
        pass.product(x, &self.qkv, &s.qkv)?;
        pass.product(x, &self.z, &s.z.flat())?;
        pass.exact_product(x, &self.alpha, &s.alpha)?;
        pass.exact_product(x, &self.beta, &s.beta)?;
        pass.run(Conv {
            x: s.qkv,
            weight: self.conv.clone(),
            dilation: 1,
            state: state.tail.clone(),
            accumulate: false,
            out: s.mixed.clone(),
        })?;
        let (keys, values) = (c.key_width(), c.value_width());
        pass.run(op::DeltaNet {
            q: s.mixed.cols(0..keys).split(c.key_heads, c.key_dim),
            k: s.mixed.cols(keys..2 * keys).split(c.key_heads, c.key_dim),
            v: s.mixed.cols(2 * keys..2 * keys + values).split(c.value_heads, c.value_dim),
            alpha: s.alpha,
            beta: s.beta,
            a: self.a.clone(),
            dt_bias: self.dt_bias.clone(),
            heads: self.heads,
            eps: c.eps,
            state: state.memory.clone(),
            out: s.out.clone(),
        })?;
        pass.run(GatedNorm {
            x: s.out.clone(),
            gate: s.z,
            weight: self.norm.clone(),
            eps: self.norm_eps,
            activation: self.gate,
            out: s.out.clone(),
        })?;
        pass.product_into(sink, &s.out.flat(), &self.out)
    }
}

/// Queries, keys and values, and the gate, out of one tensor that holds, for each key head, the rows of its query and its
/// key and then those of its value heads and of their gates.
fn fused_qkvz(binder: &mut Binder, c: &DeltaNetConfig, hidden: usize, name: &str) -> Result<(Weight, Weight)> {
    let values = c.value_width() / c.key_heads;
    let order = by_part(c.key_heads, &[c.key_dim, c.key_dim, values, values]);
    let all = binder.reordered(name, &order, hidden)?;
    Ok((all.rows(0..c.channels()), all.rows(c.channels()..order.len())))
}

/// Beta and alpha out of one tensor that holds, for each key head, beta's rows of its value heads and then alpha's.
fn fused_beta_alpha(binder: &mut Binder, c: &DeltaNetConfig, hidden: usize, name: &str) -> Result<(Weight, Weight)> {
    let per_key_head = c.value_heads / c.key_heads;
    let order = by_part(c.key_heads, &[per_key_head, per_key_head]);
    let both = binder.reordered(name, &order, hidden)?;
    Ok((both.rows(0..c.value_heads), both.rows(c.value_heads..order.len())))
}

/// The order that puts the rows of `heads` heads, each made of `parts` of these lengths, part by part: the first part of
/// every head, then the second, and so on.
fn by_part(heads: usize, parts: &[usize]) -> Vec<usize> {
    let of_head: usize = parts.iter().sum();
    let mut order = Vec::with_capacity(heads * of_head);
    let mut first = 0;
    for part in parts {
        order.extend((0..heads).flat_map(|head| head * of_head + first..head * of_head + first + part));
        first += part;
    }
    order
}

impl DeltaNetState {
    pub fn new(device: &dyn Device, config: &DeltaNetConfig) -> Result<Self> {
        let f32s = |rows, groups, cols| tensor(device, DType::F32, rows, groups, cols);
        Ok(Self {
            tail: f32s(config.taps - 1, 1, config.channels())?,
            memory: f32s(config.value_heads, config.key_dim, config.value_dim)?,
        })
    }

    /// Every tensor of it, for the list of the session's state.
    pub fn tensors(&self) -> Vec<StateTensor<'_>> {
        vec![StateTensor::whole("conv_tail", &self.tail), StateTensor::whole("delta_memory", &self.memory)]
    }
}

impl DeltaNetScratch {
    /// Memory for chunks of up to `rows` tokens.
    pub fn new(device: &dyn Device, config: &DeltaNetConfig, rows: usize) -> Result<Self> {
        let f32s = |groups, cols| tensor(device, DType::F32, rows, groups, cols);
        let heads = || f32s(config.value_heads, config.value_dim);
        Ok(Self {
            qkv: f32s(1, config.channels())?,
            mixed: f32s(1, config.channels())?,
            z: heads()?,
            alpha: f32s(1, config.value_heads)?,
            beta: f32s(1, config.value_heads)?,
            out: heads()?,
        })
    }

    fn first(&self, rows: usize) -> Self {
        Self {
            qkv: self.qkv.first(rows),
            mixed: self.mixed.first(rows),
            z: self.z.first(rows),
            alpha: self.alpha.first(rows),
            beta: self.beta.first(rows),
            out: self.out.first(rows),
        }
    }
}
