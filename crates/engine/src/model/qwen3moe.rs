//! Qwen3 MoE: norms on each head's queries and keys.

use super::family::{AttentionTraits, Family, NormSpan, PLAIN};

pub(super) const FAMILY: Family = Family {
    name: "qwen3moe",
    attention: AttentionTraits { qk_norm: Some(NormSpan::Head), ..PLAIN.attention },
    ..PLAIN
};
