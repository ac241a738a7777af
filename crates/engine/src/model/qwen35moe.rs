//! Qwen3.5 MoE: Qwen3-Next with tiled value heads and separate projections of alpha and beta. (Its M-RoPE sections all
//! turn by the same position in text.)

use argon_kernels::op::{Activation, HeadMap};

use super::family::{DeltaNetTraits, Family};
use super::qwen3next;

pub(super) const FAMILY: Family = Family {
    name: "qwen35moe",
    delta_net: Some(DeltaNetTraits { heads: HeadMap::Tiled, gate: Activation::Silu, fused_beta_alpha: false }),
    ..qwen3next::FAMILY
};
