//! Qwen1.5 and Qwen2 MoE: biases on queries, keys and values; a shared expert; weights as the softmax gives them.

use super::family::{AttentionTraits, Family, PLAIN};

pub(super) const FAMILY: Family = Family {
    name: "qwen2moe",
    attention: AttentionTraits { qkv_bias: true, ..PLAIN.attention },
    shared_expert: true,
    renormalise: false,
    ..PLAIN
};
