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
        let name = |part| format!("blk.{layer}.{part}");
        let hidden = config.hidden;
        let (beta, alpha) = match traits.fused_beta_alpha {
            true => fused_beta_alpha(binder, c, hidden, &name("ssm_ba.weight"))?,
            false => (
                binder.weight(&name("ssm_beta.weight"), c.value_heads, hidden)?,
                binder.weight(&name("ssm_alpha.weight"), c.value_heads, hidden)?,
            ),
        };
        Ok(Self {
            qkv: binder.weight(&name("attn_qkv.weight"), c.channels(), hidden)?,
            z: binder.weight(&name("attn_gate.weight"), c.value_width(), hidden)?,
            alpha,
            beta,
            conv: binder.taps(&name("ssm_conv1d.weight"), c.channels(), c.taps)?,
            a: binder.vector(&name("ssm_a"), c.value_heads)?,
            dt_bias: binder.vector(&name("ssm_dt.bias"), c.value_heads)?,
            norm: binder.vector(&name("ssm_norm.weight"), c.value_dim)?,
            out: binder.weight(&name("ssm_out.weight"), hidden, c.value_width())?,
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

/// Beta and alpha out of one tensor that holds, for each key head, beta's rows of its value heads and then alpha's.
fn fused_beta_alpha(binder: &mut Binder, c: &DeltaNetConfig, hidden: usize, name: &str) -> Result<(Weight, Weight)> {
    let per_key_head = c.value_heads / c.key_heads;
    let rows_from = |first: usize| {
        (0..c.key_heads).flat_map(move |head| {
            let start = 2 * head * per_key_head + first;
            start..start + per_key_head
        })
    };
    let order: Vec<usize> = rows_from(0).chain(rows_from(per_key_head)).collect();
    let both = binder.reordered(name, &order, hidden)?;
    Ok((both.rows(0..c.value_heads), both.rows(c.value_heads..2 * c.value_heads)))
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
