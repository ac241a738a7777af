//! Mixtral, whose files call themselves `llama`: rotations pair neighbouring columns.

use argon_kernels::op::RopePairs;

use super::family::{AttentionTraits, Family, PLAIN};

pub(super) const FAMILY: Family = Family {
    name: "llama",
    attention: AttentionTraits { rope: RopePairs::Neighbours, ..PLAIN.attention },
    dense_width_is_of_an_expert: true,
    ..PLAIN
};
