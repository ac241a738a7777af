//! The forward pass: what one chunk of a prompt goes through, written once for every family and every device.

mod attention;
mod delta_net;
pub(crate) mod family;
mod hyper;
mod indexer;
mod llama;
mod moe;
mod ngrams;
mod olmoe;
pub(crate) mod pass;
mod qwen2moe;
mod qwen35moe;
mod qwen3moe;
mod qwen3next;
mod qwen4exp;
mod residual;

use argon_kernels::device::tensor;
use argon_kernels::{DType, Device, Tensor, Weight};

use crate::config::{Config, MixerKind};
use crate::experts::ExpertStore;
use crate::probe::{Intermediate, Stage};
use crate::state::{CacheTypes, StateTensor};
use crate::weights::{Binder, Table};
use attention::{Attention, AttentionCache, AttentionScratch, Rotation};
use delta_net::{DeltaNet, DeltaNetScratch, DeltaNetState};
use moe::{Moe, MoeScratch};
use ngrams::{NgramScratch, NgramState, Ngrams};
use pass::{Pass, Result, Sink};
use residual::{Reader, Residual};

/// A model's weights on one device.
pub(crate) struct Model {
    pub config: Config,
    /// Vocabulary x D.
    embedding: Table,
    layers: Vec<Layer>,
    /// How the output reads the residual.
    head: Reader,
    /// Vocabulary x D.
    output: Weight,
    experts: ExpertStore,
}

/// A layer: two blocks, each reading from the residual and adding to it.
struct Layer {
    ngrams: Option<Ngrams>,
    mixer_input: Reader,
    mixer: Mixer,
    moe_input: Reader,
    moe: Moe,
}

/// What mixes tokens.
enum Mixer {
    Attention(Box<Attention>),
    DeltaNet(Box<DeltaNet>),
}

/// What a session remembers of its tokens, layer by layer.
pub(crate) struct State {
    layers: Vec<LayerState>,
}

struct LayerState {
    ngrams: Option<NgramState>,
    mixer: MixerState,
}

enum MixerState {
    Attention(AttentionCache),
    DeltaNet(DeltaNetState),
}

/// Memory for one chunk on its way through the layers, which all use the same.
pub(crate) struct Scratch {
    /// i32 `[T, 1, 1]`.
    ids: Tensor,
    residual: Residual,
    attention: AttentionScratch,
    delta_net: Option<DeltaNetScratch>,
    ngrams: Option<NgramScratch>,
    moe: MoeScratch,
    /// f32 `[n, 1, vocabulary]`: logits of up to n tokens at a time.
    logits: Tensor,
}

/// Tokens whose logits are computed at a time.
const LOGIT_ROWS: usize = 64;

impl Model {
    /// Binds all tensors of the model, each checked against the metadata.
    pub fn bind(binder: &mut Binder, config: Config) -> Result<Self> {
        const EMBEDDING: &str = "token_embd.weight";
        const OUTPUT: &str = "output.weight";
        let vocabulary = binder.rows_of(EMBEDDING)?;
        config.ngrams.iter().try_for_each(|ngrams| ngrams.check_eos(config.family.name, vocabulary))?;
        let embedding = binder.table(EMBEDDING, vocabulary, config.hidden)?;
        let output = match binder.has(OUTPUT) {
            true => binder.weight(OUTPUT, vocabulary, config.hidden)?,
            false => binder.whole(&embedding),
        };
        let rotation = Rotation::bind(binder, &config)?;
        let layers =
            (0..config.layers()).map(|layer| Layer::bind(binder, &config, &rotation, layer)).collect::<Result<_>>()?;
        Ok(Self {
            embedding,
            layers,
            head: Reader::bind(binder, &config, "output_norm", "output_hc", false)?,
            output,
            experts: ExpertStore::bind(binder, &config)?,
            config,
        })
    }

    /// Number of tokens that exist.
    pub fn vocabulary(&self) -> usize {
        self.embedding.weight.rows
    }

    /// Refuses tokens whose embedding is not made of numbers.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        self.embedding.check(tokens.iter().map(|&token| token as usize))
    }

    /// Takes the pass's chunk through all layers: `state` then includes it, and the residual in `scratch` is what
    /// [`Model::logits`] reads. `after_layer` is told how many layers are done.
    pub fn forward(
        &self,
        pass: &mut Pass,
        state: &State,
        scratch: &Scratch,
        mut after_layer: impl FnMut(usize),
    ) -> Result<()> {
        let residual = scratch.residual.rows(0, pass.len());
        let ids = scratch.ids.first(pass.len());
        pass.probe.enter(Stage::Embedding, None);
        let tokens: Vec<i32> = pass.chunk.tokens.iter().map(|&token| token as i32).collect();
        pass.write_ids(&ids, &tokens)?;
        residual.start(pass, &self.embedding.weight, &ids)?;
        for (i, (layer, state)) in self.layers.iter().zip(&state.layers).enumerate() {
            if let (Some(ngrams), Some(state), Some(scratch)) = (&layer.ngrams, &state.ngrams, &scratch.ngrams) {
                pass.enter(Stage::Ngrams, i);
                ngrams.forward(pass, state, scratch, &residual.x)?;
            }
            pass.enter(layer.mixer_input.stage(), i);
            let x = layer.mixer_input.read(pass, &residual)?;
            pass.enter(layer.mixer.stage(), i);
            layer.mixer.forward(pass, i, &state.mixer, scratch, &x, &residual.sink())?;
            pass.enter(layer.mixer_input.stage(), i);
            residual.take(pass)?;

            pass.enter(layer.moe_input.stage(), i);
            let x = layer.moe_input.read(pass, &residual)?;
            layer.moe.forward(pass, i, self.experts.layer(i), &scratch.moe, &x, &residual.sink())?;
            pass.enter(layer.moe_input.stage(), i);
            residual.take(pass)?;
            pass.show(Intermediate::Residual, i, &residual.x)?;
            after_layer(i + 1);
        }
        Ok(())
    }

    /// Logits of the tokens `from..to` of the chunk that went forward last, given to `take` in pieces, f32
    /// `[n, 1, vocabulary]`.
    pub fn logits(
        &self,
        pass: &Pass,
        scratch: &Scratch,
        from: usize,
        to: usize,
        mut take: impl FnMut(&Tensor) -> Result<()>,
    ) -> Result<()> {
        for start in (from..to).step_by(LOGIT_ROWS) {
            let end = to.min(start + LOGIT_ROWS);
            let x = self.head.read(pass, &scratch.residual.rows(start, end))?;
            let logits = scratch.logits.first(end - start);
            pass.product(&x, &self.output, &logits)?;
            take(&logits)?;
        }
        Ok(())
    }
}

impl Layer {
    fn bind(binder: &mut Binder, config: &Config, rotation: &Rotation, layer: usize) -> Result<Self> {
        let norm = |name| format!("blk.{layer}.{name}");
        let hyper = |name| format!("blk.{layer}.hc_{name}");
        Ok(Self {
            ngrams: match &config.ngrams {
                Some(ngrams) if ngrams.layer == layer => Some(Ngrams::bind(binder, config, ngrams)?),
                _ => None,
            },
            mixer_input: Reader::bind(binder, config, &norm("attn_norm"), &hyper("attn"), true)?,
            mixer: Mixer::bind(binder, config, rotation, layer)?,
            moe_input: Reader::bind(binder, config, &norm(config.family.ffn_norm), &hyper("ffn"), true)?,
            moe: Moe::bind(binder, config, layer)?,
        })
    }
}

impl Mixer {
    fn stage(&self) -> Stage {
        match self {
            Self::Attention(_) => Stage::Attention,
            Self::DeltaNet(_) => Stage::DeltaNet,
        }
    }

    fn bind(binder: &mut Binder, config: &Config, rotation: &Rotation, layer: usize) -> Result<Self> {
        Ok(match (config.mixers[layer], &config.family.delta_net, &config.delta_net) {
            (MixerKind::Attention { indexed }, ..) => {
                Self::Attention(Box::new(Attention::bind(binder, config, rotation, layer, indexed)?))
            }
            (MixerKind::DeltaNet, Some(traits), Some(sizes)) => {
                Self::DeltaNet(Box::new(DeltaNet::bind(binder, config, traits, sizes, layer)?))
            }
            (MixerKind::DeltaNet, ..) => {
                unreachable!("only a family with DeltaNet has such layers, and then its sizes")
            }
        })
    }

    fn forward(
        &self,
        pass: &mut Pass,
        layer: usize,
        state: &MixerState,
        scratch: &Scratch,
        x: &Tensor,
        sink: &Sink,
    ) -> Result<()> {
        match (self, state, &scratch.delta_net) {
            (Self::Attention(mixer), MixerState::Attention(cache), _) => {
                mixer.forward(pass, layer, cache, &scratch.attention, x, sink)
            }
            (Self::DeltaNet(mixer), MixerState::DeltaNet(state), Some(scratch)) => {
                mixer.forward(pass, state, scratch, x, sink)
            }
            _ => unreachable!("state and scratch are made for the model that uses them"),
        }
    }
}

impl State {
    /// Memory for a sequence of up to `context` tokens.
    pub fn new(device: &dyn Device, config: &Config, types: CacheTypes, context: usize) -> Result<Self> {
        let layer = |(i, kind): (usize, &MixerKind)| {
            Ok(LayerState {
                ngrams: match &config.ngrams {
                    Some(ngrams) if ngrams.layer == i => Some(NgramState::new(device, config, ngrams)?),
                    _ => None,
                },
                mixer: match (kind, &config.delta_net) {
                    (MixerKind::DeltaNet, Some(sizes)) => MixerState::DeltaNet(DeltaNetState::new(device, sizes)?),
                    (kind, _) => {
                        let indexed = matches!(kind, MixerKind::Attention { indexed: true });
                        let cache = AttentionCache::new(device, &config.attention, types, context, indexed)?;
                        MixerState::Attention(cache)
                    }
                },
            })
        };
        Ok(Self { layers: config.mixers.iter().enumerate().map(layer).collect::<Result<_>>()? })
    }

    /// Every tensor of it with its layer. Resetting, saving and comparing a session go through this list.
    pub fn tensors(&self) -> impl Iterator<Item = (usize, StateTensor<'_>)> {
        self.layers.iter().enumerate().flat_map(|(i, layer)| {
            let mixer = match &layer.mixer {
                MixerState::Attention(cache) => cache.tensors(),
                MixerState::DeltaNet(state) => state.tensors(),
            };
            let ngrams = layer.ngrams.iter().flat_map(NgramState::tensors);
            mixer.into_iter().chain(ngrams).map(move |tensor| (i, tensor))
        })
    }
}

impl Scratch {
    /// Memory for chunks of up to `rows` tokens in a session of `context` tokens.
    pub fn new(device: &dyn Device, model: &Model, rows: usize, context: usize) -> Result<Self> {
        let config = &model.config;
        Ok(Self {
            ids: tensor(device, DType::I32, rows, 1, 1)?,
            residual: Residual::new(device, config, rows)?,
            attention: AttentionScratch::new(device, config, rows, context)?,
            delta_net: match &config.delta_net {
                Some(sizes) => Some(DeltaNetScratch::new(device, sizes, rows)?),
                None => None,
            },
            ngrams: match &config.ngrams {
                Some(ngrams) => Some(NgramScratch::new(device, config, ngrams, rows)?),
                None => None,
            },
            moe: MoeScratch::new(device, config, rows)?,
            logits: tensor(device, DType::F32, rows.min(LOGIT_ROWS), 1, model.vocabulary())?,
        })
    }
}
