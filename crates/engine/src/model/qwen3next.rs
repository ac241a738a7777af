//! Qwen3-Next: three Gated DeltaNet layers to one of gated attention, and a shared expert.

use argon_kernels::op::{Activation, HeadMap};

use super::family::{AttentionTraits, DeltaNetTraits, Family, NormSpan, PLAIN};

pub(super) const FAMILY: Family = Family {
    name: "qwen3next",
    attention: AttentionTraits { qk_norm: Some(NormSpan::Head), output_gate: true, ..PLAIN.attention },
    delta_net: Some(DeltaNetTraits { heads: HeadMap::Grouped, gate: Activation::Silu, fused_beta_alpha: true }),
    ffn_norm: "post_attention_norm",
    shared_expert: true,
    ..PLAIN
};
