//! A loaded model.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use argon_gguf::Gguf;
use argon_kernels::{Device, Precision};

use crate::EngineError;
use crate::config::{Config, MixerKind};
use crate::fingerprint::fingerprint;
use crate::finite::FirstUse;
use crate::model::Model;
use crate::session::{Session, SessionOptions};
use crate::tokenizer::{Tokenizer, TokenizerData};
use crate::weights::{Binder, Leftovers};

/// A model on a device, ready to serve any number of sessions. Cloning copies a handle.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Loaded>);

/// What all sessions share.
pub(crate) struct Loaded {
    pub model: Model,
    pub device: Arc<dyn Device>,
    pub precision: Precision,
    tokenizer: Result<Tokenizer, EngineError>,
    info: ModelInfo,
    gguf: Gguf,
    /// Dense weights.
    pub first_use: FirstUse,
    /// Of the model; computed when a session is first saved or restored.
    fingerprint: OnceLock<u128>,
}

impl Loaded {
    /// Tells this model from others.
    pub fn fingerprint(&self) -> u128 {
        *self.fingerprint.get_or_init(|| fingerprint(&self.gguf))
    }
}

/// How a model is run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineOptions {
    /// Precision of the large products; the device's default where absent. Routers, selectors and gates are always f32.
    pub precision: Option<Precision>,
}

/// What there is to know about a loaded model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// `general.architecture`.
    pub architecture: &'static str,
    /// `general.name`, if the file has it.
    pub name: Option<String>,
    /// L, layers that run.
    pub layers: usize,
    /// Of these, layers with softmax attention; the others are Gated DeltaNet.
    pub attention_layers: usize,
    /// D, the width of the residual.
    pub hidden: usize,
    /// S, streams of the residual.
    pub streams: usize,
    /// Number of tokens that exist.
    pub vocabulary: usize,
    /// E, experts of a layer.
    pub experts: usize,
    /// K, experts of a token.
    pub experts_used: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// Bytes of all tensors in the file.
    pub file_bytes: usize,
    /// Precision of the large products.
    pub precision: Precision,
    /// Parts of the file that are not used, a line each.
    pub skipped: Vec<String>,
    /// What the person who runs this should know, a line each.
    pub warnings: Vec<String>,
}

impl Engine {
    /// Loads the model in `gguf` onto `device`: every key and every tensor's shape is checked here, none later.
    ///
    /// That weights are numbers is checked here where the device copies them, else before their first use: a large file is
    /// not read for the sake of a short prompt.
    ///
    /// A tokenizer that cannot be built is no obstacle to running token ids; [`Engine::tokenizer`] reports it.
    ///
    /// # Errors
    /// [`EngineError`] with the key, tensor or option that is wrong; of the device, that it has not enough memory.
    pub fn load(gguf: Gguf, device: Arc<dyn Device>, options: EngineOptions) -> Result<Self, EngineError> {
        let precision = precision(device.as_ref(), &options)?;
        let config = Config::read(&gguf)?;
        let mut binder = Binder::new(&gguf, device.as_ref());
        let model = Model::bind(&mut binder, config)?;
        let (leftovers, unread) = binder.finish(&model.config)?;
        let tokenizer = tokenizer(&gguf);
        if let Ok(tokenizer) = &tokenizer {
            check_vocabulary(tokenizer, model.vocabulary())?;
        }
        let info = ModelInfo::new(&gguf, &model, precision, &leftovers)?;
        let (first_use, fingerprint) = (FirstUse::of(unread), OnceLock::new());
        Ok(Self(Arc::new(Loaded { model, device, precision, tokenizer, info, gguf, first_use, fingerprint })))
    }

    /// What there is to know about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    /// The model's tokenizer, or why the file's cannot be used.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`], the same at every call.
    pub fn tokenizer(&self) -> Result<&Tokenizer, EngineError> {
        self.0.tokenizer.as_ref().map_err(Clone::clone)
    }

    /// The device that the model is on.
    pub fn device(&self) -> &dyn Device {
        self.0.device.as_ref()
    }

    /// A new conversation: all memory that it will need is claimed now.
    ///
    /// # Errors
    /// [`EngineError::Option`], [`EngineError::Plan`] for a chunk too large to plan, and the device's, that it has not enough
    /// memory.
    pub fn session(&self, options: SessionOptions) -> Result<Session, EngineError> {
        Session::new(self.0.clone(), options)
    }

    /// A conversation that [`Session::save`] wrote, to go on as if it had never stopped: to the bit on the same device, up
    /// to rounding on another. Context and chunk may be others than before, as far as the context has room for what is held.
    ///
    /// `source` is read to its end, in small pieces: give it a buffer.
    ///
    /// # Errors
    /// [`EngineError::SessionFile`] if it is no saved session, or one of another model, precision or type of cache, or holds
    /// too much for the context, or is cut off or damaged. Nothing is allocated by what the file says.
    pub fn restore(&self, source: impl Read, options: SessionOptions) -> Result<Session, EngineError> {
        Session::restore(self.0.clone(), source, options)
    }
}

/// The precision asked for, if the device has it, else its default.
fn precision(device: &dyn Device, options: &EngineOptions) -> Result<Precision, EngineError> {
    let info = device.info();
    let names = || info.precisions.iter().map(|precision| precision.name()).collect::<Vec<_>>().join(", ");
    match (options.precision, info.precisions.first()) {
        (Some(wanted), _) if info.precisions.contains(&wanted) => Ok(wanted),
        (None, Some(&default)) => Ok(default),
        (wanted, _) => {
            let wanted = wanted.map_or("a default", |wanted| wanted.name());
            Err(EngineError::Option { option: "precision", what: format!("{} has {}, not {wanted}", info.id, names()) })
        }
    }
}

fn tokenizer(gguf: &Gguf) -> Result<Tokenizer, EngineError> {
    Ok(Tokenizer::new(&TokenizerData::from_gguf(gguf.metadata())?)?)
}

/// Every id of the tokenizer must have an embedding.
fn check_vocabulary(tokenizer: &Tokenizer, vocabulary: usize) -> Result<(), EngineError> {
    let tokens = tokenizer.vocab_size();
    if tokens > vocabulary {
        let what = format!("has {tokens} tokens, but token_embd.weight has {vocabulary} rows");
        return Err(EngineError::Key { key: "tokenizer.ggml.tokens".into(), what });
    }
    Ok(())
}

impl ModelInfo {
    fn new(gguf: &Gguf, model: &Model, precision: Precision, left: &Leftovers) -> Result<Self, EngineError> {
        let config = &model.config;
        let attention = config.mixers.iter().filter(|kind| matches!(kind, MixerKind::Attention { .. }));
        Ok(Self {
            architecture: config.family.name,
            name: gguf.metadata().str("general.name")?.map(str::to_owned),
            layers: config.layers(),
            attention_layers: attention.count(),
            hidden: config.hidden,
            streams: config.stream_count(),
            vocabulary: model.vocabulary(),
            experts: config.moe.experts,
            experts_used: config.moe.route.top_k,
            context: config.context,
            file_bytes: gguf.tensors().iter().map(|tensor| tensor.bytes).sum(),
            precision,
            skipped: skipped(config, left),
            warnings: warnings(config, left),
        })
    }
}

fn skipped(config: &Config, left: &Leftovers) -> Vec<String> {
    let mut lines = Vec::new();
    if left.draft_bytes > 0 {
        let (layers, bytes) = (config.draft_layers, left.draft_bytes);
        lines.push(format!("drafting (MTP): {layers} layer(s), {bytes} bytes"));
    }
    if left.vision_bytes > 0 {
        lines.push(format!("vision: {} bytes", left.vision_bytes));
    }
    lines
}

fn warnings(config: &Config, left: &Leftovers) -> Vec<String> {
    let mut lines = Vec::new();
    if left.indexer_bytes > 0 {
        let layers = if config.attention.indexer.is_some() { "is 0 for some layers" } else { "is 0 for every layer" };
        lines.push(format!(
            "the file has indexer tensors, but attention.compress_ratios {layers}: attention is dense there"
        ));
    }
    lines
}
