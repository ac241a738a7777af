//! Qwen1.5 and Qwen2 MoE: a shared expert; weights as the softmax gives them.

use super::family::{Family, PLAIN};

pub(super) const FAMILY: Family = Family { name: "qwen2moe", shared_expert: true, renormalise: false, ..PLAIN };
