//! What sets one model family apart from another: a table, not a forward pass of its own.

use argon_kernels::op::{Activation, HeadMap, RopePairs};

use super::{llama, olmoe, qwen2moe, qwen3moe, qwen3next, qwen4exp, qwen35moe};

/// The traits of one `general.architecture`.
#[derive(Debug, PartialEq)]
pub(crate) struct Family {
    /// `general.architecture`, and the prefix of the family's keys.
    pub name: &'static str,
    /// How softmax attention is built.
    pub attention: AttentionTraits,
    /// How Gated DeltaNet layers are built; absent where all layers are softmax attention.
    pub delta_net: Option<DeltaNetTraits>,
    /// Whether the residual is S hyper-connection streams, read by a low-rank gate in place of a norm.
    pub hyper_connections: bool,
    /// Whether hashed n-gram embeddings may join the residual (PLE).
    pub ngrams: bool,
    /// Name of the norm before the experts; unused with hyper-connections.
    pub ffn_norm: &'static str,
    /// Whether one expert with a sigmoid gate serves every token.
    pub shared_expert: bool,
    /// Whether `feed_forward_length` is the length of each expert, and not that of a dense layer.
    pub dense_width_is_of_an_expert: bool,
    /// Whether the weights of the chosen experts are divided by their sum, unless a key says otherwise.
    pub renormalise: bool,
}

/// How softmax attention is built.
#[derive(Debug, PartialEq)]
pub(crate) struct AttentionTraits {
    /// Which columns a rotation pairs.
    pub rope: RopePairs,
    /// What the norms of queries and keys span, where there are any.
    pub qk_norm: Option<NormSpan>,
    /// Whether the query projection yields `[query | gate]` for each head.
    pub output_gate: bool,
    /// Whether an indexer may select blocks of keys (QSA).
    pub indexer: bool,
}

/// What a norm of queries or keys spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormSpan {
    /// Each head by itself, one weight for all heads.
    Head,
    /// All heads of a token together.
    Row,
}

/// How Gated DeltaNet layers are built.
#[derive(Debug, PartialEq)]
pub(crate) struct DeltaNetTraits {
    /// Which key head serves a value head.
    pub heads: HeadMap,
    /// What the output gate passes through.
    pub gate: Activation,
    /// Whether one tensor (`ssm_ba`) holds, for each key head, the rows of beta and then those of alpha.
    pub fused_beta_alpha: bool,
}

/// A transformer with routed experts and nothing else: what families are described against.
pub(super) const PLAIN: Family = Family {
    name: "",
    attention: AttentionTraits { rope: RopePairs::Halves, qk_norm: None, output_gate: false, indexer: false },
    delta_net: None,
    hyper_connections: false,
    ngrams: false,
    ffn_norm: "ffn_norm",
    shared_expert: false,
    dense_width_is_of_an_expert: false,
    renormalise: true,
};

/// Every supported family.
pub(crate) const FAMILIES: [&Family; 7] = [
    &qwen4exp::FAMILY,
    &qwen3moe::FAMILY,
    &qwen3next::FAMILY,
    &qwen35moe::FAMILY,
    &qwen2moe::FAMILY,
    &olmoe::FAMILY,
    &llama::FAMILY,
];

impl Family {
    /// The family called `name`.
    pub fn named(name: &str) -> Option<&'static Family> {
        FAMILIES.into_iter().find(|family| family.name == name)
    }
}
