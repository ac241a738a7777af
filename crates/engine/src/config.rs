//! What the metadata of a file say about the model: every number in range and in agreement with the others, before
//! anything is sized by it. Agreement with the tensors is checked where they are bound ([`crate::weights`]).

mod keys;
mod rope;

use argon_gguf::Gguf;
use argon_kernels::op::{Gating, GroupLimit, RouteConfig};

use crate::EngineError;
use crate::model::family::{FAMILIES, Family};
use keys::{Keys, refuse};
pub(crate) use rope::RopeConfig;

type Result<T> = std::result::Result<T, EngineError>;

/// Limits that no known model comes near; they keep products of two lengths far from overflow.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_HEADS: usize = 4096;
const MAX_HEAD_DIM: usize = 1 << 14;
const MAX_EXPERTS: usize = 1 << 16;
const MAX_STREAMS: usize = 64;
const MAX_TAPS: usize = 64;
const MAX_NGRAM: usize = 8;
const MAX_NGRAM_HEADS: usize = 64;

/// Tokens per block of the indexer, for each layer.
const COMPRESS_RATIOS: &str = "attention.compress_ratios";

/// Rows of each n-gram head's part of the table.
const NGRAM_SIZES: &str = "ple.head_vocab_sizes";
const NGRAM_EOS: &str = "ple.eos_token_id";

/// Groups of experts, of which only the best take part.
const GROUPS: &str = "expert_group_count";

/// Added to the sum of squares where DeltaNet normalises queries and keys; a constant of the method, in no key.
const DELTA_NET_EPS: f32 = 1e-6;

/// The shape of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Traits of the architecture.
    pub family: &'static Family,
    /// D, the width of the residual.
    pub hidden: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// Added to the mean of squares by every norm.
    pub eps: f32,
    /// What mixes tokens in each of the L layers.
    pub mixers: Vec<MixerKind>,
    /// Layers behind the last one that only drafting (MTP) uses.
    pub draft_layers: usize,
    /// Softmax attention.
    pub attention: AttentionConfig,
    /// Gated DeltaNet, where a layer has it.
    pub delta_net: Option<DeltaNetConfig>,
    /// Routed experts.
    pub moe: MoeConfig,
    /// Hyper-connections, if the family has them.
    pub streams: Option<StreamConfig>,
    /// Hashed n-gram embeddings, if the file has them.
    pub ngrams: Option<NgramConfig>,
}

/// What mixes the tokens of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MixerKind {
    /// Softmax attention, over all keys or over those in blocks that the indexer selects.
    Attention { indexed: bool },
    /// Gated DeltaNet.
    DeltaNet,
}

/// Sizes of softmax attention.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttentionConfig {
    /// H, query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Columns of a query or key.
    pub key_dim: usize,
    /// Columns of a value.
    pub value_dim: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Rotation of queries and keys.
    pub rope: RopeConfig,
    /// The indexer, if a layer uses it.
    pub indexer: Option<IndexerConfig>,
}

/// The QSA indexer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexerConfig {
    /// Query heads.
    pub heads: usize,
    /// Columns of a query or key.
    pub dim: usize,
    /// Tokens in a block of keys.
    pub ratio: usize,
    /// Complete blocks that a query may see.
    pub blocks: usize,
}

/// Sizes of Gated DeltaNet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeltaNetConfig {
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Columns of a query or key.
    pub key_dim: usize,
    /// Columns of a value.
    pub value_dim: usize,
    /// Taps of the convolution.
    pub taps: usize,
    /// Added to the sums of squares of queries and keys.
    pub eps: f32,
}

impl DeltaNetConfig {
    /// Columns of all queries, or of all keys.
    pub fn key_width(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Columns of all values.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Channels of the convolution: queries, keys, values.
    pub fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }
}

/// Routed experts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MoeConfig {
    /// E.
    pub experts: usize,
    /// F.
    pub width: usize,
    /// Length of the shared expert, if the family has one.
    pub shared_width: Option<usize>,
    /// How experts are chosen and weighted.
    pub route: RouteConfig,
}

/// Hyper-connections.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamConfig {
    /// S.
    pub count: usize,
    /// Rank of the gate that mixes the streams.
    pub rank: usize,
}

/// Hashed n-gram embeddings. The heads of each n-gram length follow each other, shortest first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NgramConfig {
    /// The layer whose residual they join.
    pub layer: usize,
    /// The longest n-gram; lengths are 2 to this.
    pub longest: usize,
    /// Table rows per length: each a hash of its own.
    pub heads_per_length: usize,
    /// Columns of a table row.
    pub dim: usize,
    /// Taps of the convolution, `longest` tokens apart.
    pub taps: usize,
    /// The token that ends a text, across which no n-gram reaches.
    pub eos: u32,
    /// Factor of each token of an n-gram, the current one first: `[longest]`.
    pub multipliers: Vec<u64>,
    /// First row and number of rows of each head's part of the table: `[heads]`.
    pub parts: Vec<(u64, u64)>,
}

impl NgramConfig {
    /// Rows gathered for each token.
    pub fn heads(&self) -> usize {
        (self.longest - 1) * self.heads_per_length
    }

    /// Refuses an end of text that is no token: it would never be found, and stand before each text for another number.
    pub fn check_eos(&self, architecture: &str, vocabulary: usize) -> Result<()> {
        if self.eos as usize >= vocabulary {
            let what = format!("is {}, outside the vocabulary of {vocabulary}", self.eos);
            return refuse(format!("{architecture}.{NGRAM_EOS}"), what);
        }
        Ok(())
    }

    /// Refuses a table of fewer rows than the hashes reach.
    pub fn check_rows(&self, architecture: &str, rows: usize) -> Result<()> {
        let needed = self.parts.iter().map(|(first, rows)| first + rows).max().unwrap_or(0);
        if needed > rows as u64 {
            let what = format!("reach row {needed} of a table that has {rows}");
            return refuse(format!("{architecture}.{NGRAM_SIZES}"), what);
        }
        Ok(())
    }
}

impl Config {
    /// Reads and checks the metadata of `gguf`.
    pub fn read(gguf: &Gguf) -> Result<Self> {
        let name = gguf.metadata().require_str("general.architecture")?;
        let family = Family::named(name).ok_or_else(|| EngineError::Architecture {
            found: name.to_owned(),
            supported: FAMILIES.map(|family| family.name).join(", "),
        })?;
        let keys = Keys::new(gguf.metadata(), family.name);
        for (key, neutral) in UNSUPPORTED {
            keys.refuse_unless_neutral(key, neutral)?;
        }
        refuse_what_sees_the_future(&keys)?;
        let hidden = keys.require("embedding_length", 1..=MAX_WIDTH)?;
        let blocks = keys.require("block_count", 1..=MAX_LAYERS)?;
        let draft_layers = keys.get("nextn_predict_layers", 0..=blocks - 1)?.unwrap_or(0);
        let ratios = if family.attention.indexer { compress_ratios(&keys, blocks)? } else { vec![0; blocks] };
        let attention = AttentionConfig::read(&keys, family, hidden, ratios.iter().copied().max().unwrap_or(0))?;
        let recurrent = if family.delta_net.is_some() { recurrent_layers(&keys, blocks)? } else { vec![false; blocks] };
        let kind = |(recurrent, ratio)| match recurrent {
            true => MixerKind::DeltaNet,
            false => MixerKind::Attention { indexed: ratio > 0 },
        };
        let mixers: Vec<_> = recurrent.into_iter().zip(ratios).take(blocks - draft_layers).map(kind).collect();
        let delta_net = match family.delta_net {
            Some(_) if mixers.contains(&MixerKind::DeltaNet) => Some(DeltaNetConfig::read(&keys)?),
            _ => None,
        };
        Ok(Self {
            family,
            hidden,
            context: keys.require("context_length", 1..=i32::MAX as usize)?,
            eps: keys.require_positive("attention.layer_norm_rms_epsilon")?,
            draft_layers,
            attention,
            delta_net,
            moe: MoeConfig::read(&keys, family)?,
            streams: if family.hyper_connections { Some(StreamConfig::read(&keys)?) } else { None },
            ngrams: if family.ngrams { NgramConfig::read(&keys, mixers.len())? } else { None },
            mixers,
        })
    }

    /// L, the number of layers.
    pub fn layers(&self) -> usize {
        self.mixers.len()
    }

    /// S, the streams of the residual: 1 without hyper-connections.
    pub fn stream_count(&self) -> usize {
        self.streams.as_ref().map_or(1, |streams| streams.count)
    }
}

/// Keys of other architectures' features that these might carry, each with the value at which it does nothing.
const UNSUPPORTED: [(&str, f32); 7] = [
    ("attention.clamp_kqv", 0.0),
    ("attention.sliding_window", 0.0),
    ("embedding_scale", 1.0),
    ("residual_scale", 1.0),
    ("logit_scale", 1.0),
    ("leading_dense_block_count", 0.0),
    ("interleave_moe_layer_step", 1.0),
];

/// Refuses models whose tokens see those after them, which would need the whole prompt at once.
fn refuse_what_sees_the_future(keys: &Keys) -> Result<()> {
    const CAUSAL: &str = "attention.causal";
    match keys.bool(CAUSAL)? {
        Some(false) => refuse(keys.full(CAUSAL), "is false, which is not supported"),
        _ => Ok(()),
    }
}

/// Which of the blocks are Gated DeltaNet: a list, or all but every n-th.
fn recurrent_layers(keys: &Keys, blocks: usize) -> Result<Vec<bool>> {
    const LIST: &str = "attention.recurrent_layers";
    match keys.bools(LIST)? {
        Some(list) if list.len() < blocks => {
            refuse(keys.full(LIST), format!("has {} entries for {blocks} layers", list.len()))
        }
        Some(list) => Ok(list),
        None => {
            let interval = keys.get("full_attention_interval", 1..=MAX_LAYERS)?.unwrap_or(4);
            Ok((1..=blocks).map(|layer| layer % interval != 0).collect())
        }
    }
}

/// Tokens per block of the indexer in each layer, 0 where attention sees all keys. One number serves the whole model.
fn compress_ratios(keys: &Keys, blocks: usize) -> Result<Vec<usize>> {
    if !keys.has(COMPRESS_RATIOS) {
        return Ok(vec![0; blocks]);
    }
    let ratios = keys.require_integers(COMPRESS_RATIOS, blocks)?;
    let largest = ratios.iter().copied().max().unwrap_or(0);
    match ratios.iter().find(|&&ratio| ratio != 0 && ratio != largest) {
        Some(other) => {
            refuse(keys.full(COMPRESS_RATIOS), format!("has both {other} and {largest}; one ratio is supported"))
        }
        None => Ok(ratios.into_iter().map(|ratio| usize::try_from(ratio).unwrap_or(usize::MAX)).collect()),
    }
}

impl AttentionConfig {
    /// `ratio` is the tokens per block of the indexer, 0 where no layer uses it.
    fn read(keys: &Keys, family: &Family, hidden: usize, ratio: usize) -> Result<Self> {
        let heads = keys.require("attention.head_count", 1..=MAX_HEADS)?;
        let kv_heads = keys.get("attention.head_count_kv", 1..=heads)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return refuse(
                keys.full("attention.head_count_kv"),
                format!("is {kv_heads}, no divisor of the {heads} heads"),
            );
        }
        let key_dim = match keys.get("attention.key_length", 1..=MAX_HEAD_DIM)? {
            Some(dim) => dim,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return refuse(
                    keys.full("attention.head_count"),
                    format!("is {heads}, no divisor of the width {hidden}"),
                );
            }
        };
        let value_dim = keys.get("attention.value_length", 1..=MAX_HEAD_DIM)?.unwrap_or(key_dim);
        if family.attention.output_gate && value_dim != key_dim {
            return refuse(
                keys.full("attention.value_length"),
                format!("is {value_dim}, but gated heads are {key_dim} wide"),
            );
        }
        let rope = RopeConfig::read(keys, key_dim)?;
        let scale = keys.positive("attention.scale")?.unwrap_or(1.0 / (key_dim as f32).sqrt());
        let scale = scale * unnormed_magnitude(keys, family, &rope, key_dim)?;
        let indexer = if ratio > 0 { Some(IndexerConfig::read(keys, rope.dims, ratio)?) } else { None };
        Ok(Self { heads, kv_heads, key_dim, value_dim, scale, rope, indexer })
    }
}

/// What the magnitude of the rotation does to scores where queries and keys have no norms, whose weights would carry it
/// ([`crate::model`]'s `Rotation::norm`).
fn unnormed_magnitude(keys: &Keys, family: &Family, rope: &RopeConfig, key_dim: usize) -> Result<f32> {
    if family.attention.qk_norm.is_some() || rope.magnitude == 1.0 {
        return Ok(1.0);
    }
    if rope.dims < key_dim {
        let what = format!("is {}, fewer than the {key_dim} columns that a scaled rotation needs here", rope.dims);
        return refuse(keys.full("rope.dimension_count"), what);
    }
    Ok(rope.magnitude * rope.magnitude)
}

impl IndexerConfig {
    fn read(keys: &Keys, rope_dims: usize, ratio: usize) -> Result<Self> {
        let budget = keys.require("attention.indexer.top_k", 1..=i32::MAX as usize)?;
        if ratio == 1 || !budget.is_multiple_of(ratio) {
            let what = format!("has the ratio {ratio}, which is not above 1 and a divisor of the budget {budget}");
            return refuse(keys.full(COMPRESS_RATIOS), what);
        }
        Ok(Self {
            heads: keys.require("attention.indexer.head_count", 1..=MAX_HEADS)?,
            dim: keys.require("attention.indexer.key_length", rope_dims..=MAX_HEAD_DIM)?,
            ratio,
            blocks: budget / ratio,
        })
    }
}

impl DeltaNetConfig {
    fn read(keys: &Keys) -> Result<Self> {
        let key_heads = keys.require("ssm.group_count", 1..=MAX_HEADS)?;
        let value_heads = keys.require("ssm.time_step_rank", 1..=MAX_HEADS)?;
        let inner = keys.require("ssm.inner_size", 1..=MAX_WIDTH)?;
        if !value_heads.is_multiple_of(key_heads) {
            return refuse(
                keys.full("ssm.time_step_rank"),
                format!("is {value_heads}, no multiple of the {key_heads} groups"),
            );
        }
        if !inner.is_multiple_of(value_heads) {
            return refuse(
                keys.full("ssm.inner_size"),
                format!("is {inner}, no multiple of the {value_heads} value heads"),
            );
        }
        Ok(Self {
            key_heads,
            value_heads,
            key_dim: keys.require("ssm.state_size", 1..=MAX_HEAD_DIM)?,
            value_dim: inner / value_heads,
            taps: keys.require("ssm.conv_kernel", 1..=MAX_TAPS)?,
            eps: DELTA_NET_EPS,
        })
    }
}

impl MoeConfig {
    fn read(keys: &Keys, family: &Family) -> Result<Self> {
        let experts = keys.require("expert_count", 1..=MAX_EXPERTS)?;
        let top_k = keys.require("expert_used_count", 1..=experts)?;
        let dense = keys.get("feed_forward_length", 0..=MAX_WIDTH)?.unwrap_or(0);
        // Where it is a dense layer's, the experts of one token are as long together.
        let of_expert = if family.dense_width_is_of_an_expert { dense } else { dense / top_k };
        let width = |key, otherwise| match keys.get(key, 0..=MAX_WIDTH)?.unwrap_or(0) {
            0 if otherwise > 0 => Ok(otherwise),
            0 => keys.require(key, 1..=MAX_WIDTH),
            width => Ok(width),
        };
        Ok(Self {
            experts,
            width: width("expert_feed_forward_length", of_expert)?,
            shared_width: match family.shared_expert {
                true => Some(width("expert_shared_feed_forward_length", dense)?),
                false => None,
            },
            route: route(keys, family, experts, top_k)?,
        })
    }

    /// Refuses groups of experts where no `bias` selects: the sum of logits that would then stand for a group is nobody's
    /// definition.
    pub fn check_groups(&self, architecture: &str, bias: bool) -> Result<()> {
        match self.route.groups {
            Some(limit) if !bias => {
                let what = format!("is {}, which is only supported beside a bias for selection", limit.groups);
                refuse(format!("{architecture}.{GROUPS}"), what)
            }
            _ => Ok(()),
        }
    }
}

/// How the keys say that experts are chosen and weighted.
fn route(keys: &Keys, family: &Family, experts: usize, top_k: usize) -> Result<RouteConfig> {
    const GATING: &str = "expert_gating_func";
    let gating = match keys.get(GATING, 0..=usize::MAX)? {
        None | Some(0 | 1) => Gating::Softmax,
        Some(2) => Gating::Sigmoid,
        Some(other) => {
            return refuse(
                keys.full(GATING),
                format!("is {other}, which is not supported (supported: 1 softmax, 2 sigmoid)"),
            );
        }
    };
    Ok(RouteConfig {
        gating,
        top_k,
        groups: groups(keys, experts, top_k)?,
        renormalise: keys.bool("expert_weights_norm")?.unwrap_or(family.renormalise),
        scale: keys.positive("expert_weights_scale")?.unwrap_or(1.0),
        tail_share: None,
    })
}

/// The limit to the best groups of experts, if there is one.
fn groups(keys: &Keys, experts: usize, top_k: usize) -> Result<Option<GroupLimit>> {
    const USED: &str = "expert_group_used_count";
    let groups = keys.get(GROUPS, 0..=experts)?.unwrap_or(0);
    if groups <= 1 {
        return Ok(None);
    }
    if !experts.is_multiple_of(groups) {
        return refuse(keys.full(GROUPS), format!("is {groups}, no divisor of the {experts} experts"));
    }
    let used = keys.require(USED, 1..=groups)?;
    if used * (experts / groups) < top_k {
        return refuse(
            keys.full(USED),
            format!("is {used}: too few groups of {} for {top_k} experts", experts / groups),
        );
    }
    Ok(Some(GroupLimit { groups, used }))
}

impl StreamConfig {
    fn read(keys: &Keys) -> Result<Self> {
        Ok(Self {
            count: keys.require("hyper_connection.count", 2..=MAX_STREAMS)?,
            rank: keys.require("hyper_connection.low_rank", 1..=MAX_WIDTH)?,
        })
    }
}

impl NgramConfig {
    /// `None` where the file lists no layer with n-grams.
    fn read(keys: &Keys, layers: usize) -> Result<Option<Self>> {
        const LAYERS: &str = "ple.layers";
        let layer = match keys.integers(LAYERS)?.as_deref() {
            None | Some([]) => return Ok(None),
            Some([layer]) if *layer < layers as u64 => *layer as usize,
            Some([layer]) => return refuse(keys.full(LAYERS), format!("names layer {layer} of {layers}")),
            Some(more) => return refuse(keys.full(LAYERS), format!("names {} layers; one is supported", more.len())),
        };
        let longest = keys.require("ple.ngram_size", 2..=MAX_NGRAM)?;
        let heads_per_length = keys.require("ple.heads_per_ngram", 1..=MAX_NGRAM_HEADS)?;
        let heads = (longest - 1) * heads_per_length;
        let firsts = keys.require_integers("ple.head_offsets", heads)?;
        let sizes = keys.require_integers(NGRAM_SIZES, heads)?;
        let parts: Vec<_> = firsts.into_iter().zip(sizes).collect();
        for (head, (first, rows)) in parts.iter().enumerate() {
            let end = first.checked_add(*rows).filter(|&end| *rows > 0 && end <= i32::MAX as u64);
            if end.is_none() {
                return refuse(
                    keys.full(NGRAM_SIZES),
                    format!("gives head {head} the {rows} rows from {first}, which no table has"),
                );
            }
        }
        Ok(Some(Self {
            layer,
            longest,
            heads_per_length,
            dim: keys.require("embedding_length_per_layer_input", 1..=MAX_WIDTH)?,
            taps: keys.require("ple.conv_kernel", 1..=MAX_TAPS)?,
            eos: keys.require(NGRAM_EOS, 0..=u32::MAX as usize)? as u32,
            multipliers: keys.require_integers("ple.layer_multipliers", longest)?,
            parts,
        }))
    }
}
