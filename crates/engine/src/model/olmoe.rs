//! OLMoE: queries and keys normed over all heads together; weights as the softmax gives them.

use super::family::{AttentionTraits, Family, NormSpan, PLAIN};

pub(super) const FAMILY: Family = Family {
    name: "olmoe",
    attention: AttentionTraits { qk_norm: Some(NormSpan::Row), ..PLAIN.attention },
    dense_width_is_of_an_expert: true,
    renormalise: false,
    ..PLAIN
};
