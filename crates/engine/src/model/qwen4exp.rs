//! Qwen3.8-Flash-Next: Qwen3.5 MoE with hyper-connections in place of norms, sparse attention by an indexer (QSA), hashed
//! n-gram embeddings (PLE), and a sigmoid where DeltaNet's output gate was a SiLU.

use argon_kernels::op::{Activation, HeadMap};

use super::family::{AttentionTraits, DeltaNetTraits, Family};
use super::qwen35moe;

pub(super) const FAMILY: Family = Family {
    name: "qwen4exp",
    attention: AttentionTraits { indexer: true, ..qwen35moe::FAMILY.attention },
    delta_net: Some(DeltaNetTraits { heads: HeadMap::Tiled, gate: Activation::Sigmoid, fused_beta_alpha: false }),
    hyper_connections: true,
    ngrams: true,
    ..qwen35moe::FAMILY
};
