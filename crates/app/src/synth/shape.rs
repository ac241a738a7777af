//! The shapes of the models that a synthetic file can have: published numbers, and what may be made smaller.

use clap::ValueEnum;

/// A model whose shape a synthetic file takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Qwen3.8-Flash-Next: hyper-connections, n-gram embeddings, sparse attention
    #[value(name = "qwen3.8-flash-next")]
    Qwen38FlashNext,
    /// Qwen3-Next-80B-A3B
    #[value(name = "qwen3-next-80b-a3b")]
    Qwen3Next80bA3b,
    /// Qwen3-30B-A3B
    #[value(name = "qwen3-30b-a3b")]
    Qwen330bA3b,
    /// Mixtral 8x7B
    #[value(name = "mixtral-8x7b")]
    Mixtral8x7b,
    /// The experts of Qwen3.8-Flash-Next, and as little else as a qwen3moe model can have: to time their layer in any engine
    MoeLayer,
    /// All parts of Qwen3.8-Flash-Next in three megabytes
    Tiny,
}

/// Everything that decides which keys and tensors a file has.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// `general.architecture`.
    pub architecture: &'static str,
    /// The model's published name.
    pub name: &'static str,
    /// D.
    pub hidden: usize,
    /// L.
    pub layers: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// Added to the mean of squares by every norm.
    pub eps: f32,
    /// Softmax attention.
    pub attention: Attention,
    /// Gated DeltaNet in the other layers, if there are others.
    pub delta_net: Option<DeltaNet>,
    /// Routed and shared experts.
    pub experts: Experts,
    /// Hyper-connection streams in place of norms.
    pub streams: Option<Streams>,
    /// Hashed n-gram embeddings.
    pub ngrams: Option<Ngrams>,
    /// The tokenizer.
    pub vocabulary: Vocabulary,
}

/// Softmax attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Layers from one to the next: 1 where all layers have it.
    pub interval: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Columns of a head.
    pub dim: usize,
    /// Columns that turn.
    pub rope_dims: usize,
    /// Base of the frequencies.
    pub rope_base: f32,
    /// Pairs that turn with each axis of an image; all with the position in text.
    pub rope_sections: Option<[i32; 4]>,
    /// Whether queries and keys are normed.
    pub normed: bool,
    /// Whether the query projection yields a gate, too.
    pub gated: bool,
    /// The QSA indexer.
    pub indexer: Option<Indexer>,
}

/// The QSA indexer.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// Query heads.
    pub heads: usize,
    /// Columns of a head.
    pub dim: usize,
    /// Tokens that a query may see.
    pub budget: usize,
    /// Tokens in a block.
    pub ratio: usize,
}

/// Gated DeltaNet.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaNet {
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Columns of a head.
    pub dim: usize,
    /// Taps of the convolution.
    pub taps: usize,
    /// Whether beta and alpha share a tensor.
    pub fused_beta_alpha: bool,
}

impl DeltaNet {
    /// Columns of all queries, or of all keys.
    pub fn key_width(&self) -> usize {
        self.key_heads * self.dim
    }

    /// Columns of all values.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.dim
    }

    /// Channels of the convolution.
    pub fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }
}

/// Routed and shared experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// E.
    pub count: usize,
    /// K.
    pub used: usize,
    /// F.
    pub width: usize,
    /// F of the shared expert.
    pub shared: Option<usize>,
    /// The published length of a dense layer, which no layer has.
    pub dense: Option<usize>,
}

/// Hyper-connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Streams {
    /// S.
    pub count: usize,
    /// Rank of the gate.
    pub rank: usize,
}

/// Hashed n-gram embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct Ngrams {
    /// The layer whose residual they join.
    pub layer: usize,
    /// The longest n-gram.
    pub longest: usize,
    /// Hashes of each length.
    pub heads_per_length: usize,
    /// Rows of the table, for all hashes together.
    pub rows: usize,
    /// Columns of a row.
    pub dim: usize,
    /// Taps of the convolution.
    pub taps: usize,
}

impl Ngrams {
    /// Rows gathered for each token.
    pub fn heads(&self) -> usize {
        (self.longest - 1) * self.heads_per_length
    }
}

/// The tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Vocabulary {
    /// Number of tokens.
    pub size: usize,
    /// How text becomes tokens.
    pub kind: VocabularyKind,
}

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VocabularyKind {
    /// Byte-level BPE.
    ByteLevel {
        /// `tokenizer.ggml.pre`.
        pre: &'static str,
        /// Id of the first control token, end of text, where the vocabulary is so large; the others follow it.
        first_control: usize,
    },
    /// SentencePiece.
    SentencePiece,
}

impl Shape {
    /// Whether `layer` has softmax attention.
    pub fn is_attention(&self, layer: usize) -> bool {
        (layer + 1).is_multiple_of(self.attention.interval)
    }

    /// The published shape, or that of the tiny model.
    pub fn of(preset: Preset) -> Self {
        match preset {
            Preset::Qwen38FlashNext => qwen38_flash_next(),
            Preset::Qwen3Next80bA3b => qwen3_next(),
            Preset::Qwen330bA3b => qwen3_30b(),
            Preset::Mixtral8x7b => mixtral(),
            Preset::MoeLayer => moe_layer(),
            Preset::Tiny => tiny(),
        }
    }
}

fn qwen38_flash_next() -> Shape {
    Shape {
        architecture: "qwen4exp",
        name: "Qwen3.8-Flash-Next",
        hidden: 2560,
        layers: 48,
        context: 262_144,
        eps: 1e-6,
        attention: Attention {
            interval: 4,
            heads: 24,
            kv_heads: 2,
            dim: 256,
            rope_dims: 64,
            rope_base: 1e7,
            rope_sections: Some([11, 11, 10, 0]),
            normed: true,
            gated: true,
            indexer: Some(Indexer { heads: 4, dim: 128, budget: 2048, ratio: 4 }),
        },
        delta_net: Some(DeltaNet { key_heads: 16, value_heads: 48, dim: 128, taps: 4, fused_beta_alpha: false }),
        experts: Experts { count: 512, used: 10, width: 640, shared: Some(640), dense: None },
        streams: Some(Streams { count: 4, rank: 320 }),
        ngrams: Some(Ngrams { layer: 1, longest: 3, heads_per_length: 8, rows: 320_001_536, dim: 160, taps: 4 }),
        vocabulary: Vocabulary {
            size: 248_320,
            kind: VocabularyKind::ByteLevel { pre: "qwen35", first_control: 248_044 },
        },
    }
}

fn qwen3_next() -> Shape {
    Shape {
        architecture: "qwen3next",
        name: "Qwen3-Next-80B-A3B",
        hidden: 2048,
        layers: 48,
        context: 262_144,
        eps: 1e-6,
        attention: Attention {
            interval: 4,
            heads: 16,
            kv_heads: 2,
            dim: 256,
            rope_dims: 64,
            rope_base: 1e7,
            rope_sections: None,
            normed: true,
            gated: true,
            indexer: None,
        },
        delta_net: Some(DeltaNet { key_heads: 16, value_heads: 32, dim: 128, taps: 4, fused_beta_alpha: true }),
        experts: Experts { count: 512, used: 10, width: 512, shared: Some(512), dense: Some(5120) },
        streams: None,
        ngrams: None,
        vocabulary: QWEN3_VOCABULARY,
    }
}

fn qwen3_30b() -> Shape {
    Shape {
        architecture: "qwen3moe",
        name: "Qwen3-30B-A3B",
        hidden: 2048,
        layers: 48,
        context: 40_960,
        eps: 1e-6,
        attention: Attention {
            interval: 1,
            heads: 32,
            kv_heads: 4,
            dim: 128,
            rope_dims: 128,
            rope_base: 1e6,
            rope_sections: None,
            normed: true,
            gated: false,
            indexer: None,
        },
        delta_net: None,
        experts: Experts { count: 128, used: 8, width: 768, shared: None, dense: Some(6144) },
        streams: None,
        ngrams: None,
        vocabulary: QWEN3_VOCABULARY,
    }
}

fn mixtral() -> Shape {
    Shape {
        architecture: "llama",
        name: "Mixtral-8x7B",
        hidden: 4096,
        layers: 32,
        context: 32_768,
        eps: 1e-5,
        attention: Attention {
            interval: 1,
            heads: 32,
            kv_heads: 8,
            dim: 128,
            rope_dims: 128,
            rope_base: 1e6,
            rope_sections: None,
            normed: false,
            gated: false,
            indexer: None,
        },
        delta_net: None,
        experts: Experts { count: 8, used: 2, width: 14_336, shared: None, dense: Some(14_336) },
        streams: None,
        ngrams: None,
        vocabulary: Vocabulary { size: 32_000, kind: VocabularyKind::SentencePiece },
    }
}

fn moe_layer() -> Shape {
    let model = qwen38_flash_next();
    Shape {
        name: "MoE layer",
        hidden: model.hidden,
        layers: 1,
        attention: Attention { heads: 1, kv_heads: 1, dim: 64, rope_dims: 64, ..qwen3_30b().attention },
        experts: Experts { shared: None, ..model.experts },
        vocabulary: Vocabulary { size: 8192, ..QWEN3_VOCABULARY },
        ..qwen3_30b()
    }
}

fn tiny() -> Shape {
    Shape {
        name: "tiny",
        hidden: 256,
        layers: 4,
        context: 4096,
        attention: Attention {
            heads: 4,
            dim: 64,
            rope_dims: 32,
            rope_base: 1e4,
            rope_sections: Some([6, 5, 5, 0]),
            indexer: Some(Indexer { heads: 2, dim: 32, budget: 32, ratio: 4 }),
            ..qwen38_flash_next().attention
        },
        delta_net: Some(DeltaNet { key_heads: 2, value_heads: 4, dim: 32, taps: 4, fused_beta_alpha: false }),
        experts: Experts { count: 8, used: 3, width: 64, shared: Some(64), dense: None },
        streams: Some(Streams { count: 4, rank: 32 }),
        ngrams: Some(Ngrams { layer: 1, longest: 3, heads_per_length: 2, rows: 1024, dim: 64, taps: 4 }),
        vocabulary: Vocabulary { size: 1024, ..qwen38_flash_next().vocabulary },
        ..qwen38_flash_next()
    }
}

/// Qwen3's.
const QWEN3_VOCABULARY: Vocabulary =
    Vocabulary { size: 151_936, kind: VocabularyKind::ByteLevel { pre: "qwen2", first_control: 151_643 } };
