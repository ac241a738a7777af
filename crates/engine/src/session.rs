//! A conversation: everything that one sequence of tokens leaves behind, and the chunk-wise way through a prompt.

mod file;
mod mark;

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use argon_kernels::op::Fill;
use argon_kernels::{DType, Device, DeviceError};

use crate::EngineError;
use crate::chat::common_prefix;
use crate::engine::Loaded;
use crate::model::pass::{Chunk, Pass};
use crate::model::{Scratch, State};
use crate::probe::{Blind, Probe, Stage, read_f32};
use crate::state::CacheTypes;
pub use file::SessionFileError;
use mark::Mark;

/// Sizes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Tokens that the session has room for.
    pub context: usize,
    /// Tokens that go through the layers at a time; larger is faster and takes more memory.
    pub chunk: usize,
    /// Element types of the caches of keys and values.
    pub cache: CacheTypes,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { context: 4096, chunk: 2048, cache: CacheTypes { k: DType::F16, v: DType::F16 } }
    }
}

/// Which tokens' logits a prefill returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: the prompt only goes into the session.
    None,
    /// Of the last token.
    Last,
    /// Of every token of the prompt.
    All,
}

/// How far a prefill has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Tokens of the prompt that are in the session.
    pub done: usize,
    /// Tokens of the prompt.
    pub total: usize,
    /// Tokens of the chunk on its way through the layers; 0 between two chunks.
    pub chunk: usize,
    /// Layers that this chunk has been through. A device that works later than it is told may still be behind.
    pub layers_done: usize,
    /// L, layers of the model.
    pub layers: usize,
}

impl Progress {
    /// How many tokens the work so far would have taken through all layers; from 0 to `total`.
    pub fn work(&self) -> usize {
        self.done + self.chunk * self.layers_done / self.layers
    }
}

/// Logits of one or more tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsOut {
    /// Logits of a row: the vocabulary's size.
    pub width: usize,
    /// Row after row, in the order of the tokens.
    pub values: Vec<f32>,
}

impl LogitsOut {
    /// The rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// The row of the last token; empty if there is none.
    pub fn last(&self) -> &[f32] {
        &self.values[self.values.len().saturating_sub(self.width)..]
    }
}

/// A part of a session's state, for comparing sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct StatePart {
    /// The layer that it belongs to.
    pub layer: usize,
    /// What it is.
    pub name: &'static str,
    /// The rows in use, as f32.
    pub values: Vec<f32>,
}

/// One conversation with a model. It owns all of its memory: caches of keys and values, DeltaNet memories, convolution
/// tails, indexer keys, the tokens themselves, and the scratch of its chunks.
pub struct Session {
    engine: Arc<Loaded>,
    options: SessionOptions,
    state: State,
    scratch: Scratch,
    /// The tokens that it holds.
    tokens: Vec<u32>,
    /// A place to come back to, a beginning of `tokens`.
    mark: Option<Mark>,
    /// An error interrupted a chunk.
    unfinished: bool,
}

impl Session {
    pub(crate) fn new(engine: Arc<Loaded>, options: SessionOptions) -> Result<Self, EngineError> {
        for (option, value) in [("context", options.context), ("chunk", options.chunk)] {
            if value == 0 || value > i32::MAX as usize {
                return Err(EngineError::Option { option, what: format!("is {value}, not within 1 to {}", i32::MAX) });
            }
        }
        for (option, dtype) in [("cache type of keys", options.cache.k), ("cache type of values", options.cache.v)] {
            if !matches!(dtype, DType::F32 | DType::F16) {
                return Err(EngineError::Option { option, what: format!("is {dtype:?}, not F32 or F16") });
            }
        }
        let options = SessionOptions { chunk: options.chunk.min(options.context), ..options };
        let (device, config) = (engine.device.as_ref(), &engine.model.config);
        let state = State::new(device, config, options.cache, options.context)?;
        let scratch = Scratch::new(device, &engine.model, options.chunk, options.context)?;
        Ok(Self { engine, options, state, scratch, tokens: Vec::new(), mark: None, unfinished: false })
    }

    /// Number of tokens that the session holds.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens that the session holds.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens that it has room for.
    pub fn context(&self) -> usize {
        self.options.context
    }

    /// Tokens that go through the layers at a time.
    pub fn chunk(&self) -> usize {
        self.options.chunk
    }

    /// Puts `tokens` behind those that the session holds, chunk by chunk, and calls `progress` after each layer and each
    /// chunk. One token is a prompt like any other: this is also how a session generates.
    ///
    /// Returns the logits asked for; `None` for [`Logits::None`] and for a prompt of no tokens. How the prompt was cut into
    /// chunks and calls does not matter, up to rounding.
    ///
    /// # Errors
    /// [`EngineError::ContextFull`] and [`EngineError::TokenId`] leave the session as it was. If `progress` breaks, the chunk
    /// at hand is the last one; where others would have followed, [`EngineError::Stopped`] says how many tokens the session
    /// took, and it can go on from there. After any other error it must be [reset](Self::reset).
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        logits: Logits,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<LogitsOut>, EngineError> {
        self.prefill_watched(tokens, logits, progress, &mut Blind)
    }

    /// [`prefill`](Self::prefill) in the sight of `probe`, without stops.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), but never [`EngineError::Stopped`].
    pub fn prefill_probed(
        &mut self,
        tokens: &[u32],
        logits: Logits,
        probe: &mut dyn Probe,
    ) -> Result<Option<LogitsOut>, EngineError> {
        self.prefill_watched(tokens, logits, &mut |_| ControlFlow::Continue(()), probe)
    }

    /// [`prefill`](Self::prefill) in the sight of `probe`.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn prefill_watched(
        &mut self,
        tokens: &[u32],
        logits: Logits,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        probe: &mut dyn Probe,
    ) -> Result<Option<LogitsOut>, EngineError> {
        probe.enter(Stage::Checks, None);
        self.check(tokens)?;
        probe.enter(Stage::Other, None);
        let total = tokens.len();
        let mut out = self.room_for(logits, total)?;
        let mut so_far =
            Progress { done: 0, total, chunk: 0, layers_done: 0, layers: self.engine.model.config.layers() };
        let mut stop = false;
        for chunk in tokens.chunks(self.options.chunk) {
            let done = so_far.done + chunk.len();
            let first_row = match logits {
                Logits::All => 0,
                Logits::Last if done == total => chunk.len() - 1,
                _ => chunk.len(),
            };
            self.unfinished = true;
            self.step(chunk, first_row, probe, &mut out, |layers_done| {
                stop |= progress(Progress { chunk: chunk.len(), layers_done, ..so_far }).is_break();
            })?;
            self.unfinished = false;
            so_far.done = done;
            stop |= progress(so_far).is_break();
            if stop && done < total {
                return Err(EngineError::Stopped { done, total });
            }
        }
        Ok(Some(out).filter(|out| !out.values.is_empty()))
    }

    /// Forgets everything: afterwards the session is like a new one, to the bit.
    ///
    /// # Errors
    /// Of the device; the session must be reset again then.
    pub fn reset(&mut self) -> Result<(), EngineError> {
        self.unfinished = true;
        self.mark = None;
        for (_, state) in self.state.tensors().filter(|(_, state)| state.starts_at_zero()) {
            self.engine.device.enqueue(&Fill { dst: state.tensor.clone(), value: 0.0 }.into())?;
        }
        self.tokens.clear();
        self.unfinished = false;
        Ok(())
    }

    /// Makes what the session holds a beginning of `prompt` that is shorter than it, and returns its length: what is left to
    /// [`prefill`](Self::prefill) is `prompt[kept..]`.
    ///
    /// A conversation grows at its end, so usually everything is kept. Where `prompt` differs from what is held (a template
    /// may rewrite what was said before), keys and values are kept up to the difference; but recurrent states do not go
    /// back, so that a model that has them returns to the last [mark](Self::mark) before the difference, and without one
    /// starts over: `kept` is less than [`len`](Self::len) was. After an error that left the session unfinished nothing is
    /// kept.
    ///
    /// # Errors
    /// Of the device; the session must be [reset](Self::reset) then.
    pub fn keep(&mut self, prompt: &[u32]) -> Result<usize, EngineError> {
        let common = common_prefix(&self.tokens, prompt);
        let kept = common.min(prompt.len().saturating_sub(1));
        if self.unfinished {
            self.reset()?;
        } else if kept < self.len() && self.state.tensors().any(|(_, state)| !state.goes_back()) {
            match self.mark.take().filter(|mark| mark.len <= kept) {
                Some(mark) => self.return_to(mark)?,
                None => self.reset()?,
            }
        }
        self.tokens.truncate(kept);
        self.mark = self.mark.take().filter(|mark| mark.len <= kept);
        Ok(self.len())
    }

    /// Remembers this place in the conversation, instead of any other, for [`keep`](Self::keep) to come back to: copies the
    /// recurrent states to the host.
    ///
    /// # Errors
    /// [`EngineError::Unfinished`], and of the device. The session and its mark stay as they were.
    pub fn mark(&mut self) -> Result<(), EngineError> {
        if self.unfinished {
            return Err(EngineError::Unfinished);
        }
        self.mark = Some(Mark::new(self.engine.device.as_ref(), &self.state, self.len())?);
        Ok(())
    }

    fn return_to(&mut self, mark: Mark) -> Result<(), EngineError> {
        self.unfinished = true;
        mark.restore(self.engine.device.as_ref(), &self.state)?;
        self.tokens.truncate(mark.len);
        self.mark = Some(mark);
        self.unfinished = false;
        Ok(())
    }

    /// Writes everything that the session holds to `out`, its [mark](Self::mark) too, for
    /// [`Engine::restore`](crate::Engine::restore). Of the caches only what is in use is written.
    ///
    /// # Errors
    /// [`EngineError::Unfinished`], [`EngineError::SessionFile`], and of the device.
    pub fn save(&self, out: impl Write) -> Result<(), EngineError> {
        if self.unfinished {
            return Err(EngineError::Unfinished);
        }
        file::save(self, out)
    }

    pub(crate) fn restore(
        engine: Arc<Loaded>,
        source: impl Read,
        options: SessionOptions,
    ) -> Result<Self, EngineError> {
        file::restore(engine, source, options)
    }

    /// Copies the session's state to the host: what is in use of every tensor that it keeps.
    ///
    /// # Errors
    /// Of the device.
    pub fn state(&self) -> Result<Vec<StatePart>, EngineError> {
        let part = |(layer, state): (usize, crate::state::StateTensor)| {
            let values = read_f32(self.engine.device.as_ref(), &state.in_use(self.len()))?;
            Ok(StatePart { layer, name: state.name, values })
        };
        self.state.tensors().map(part).collect()
    }

    /// Refuses a prompt before anything is changed.
    fn check(&self, tokens: &[u32]) -> Result<(), EngineError> {
        if self.unfinished {
            return Err(EngineError::Unfinished);
        }
        let (prompt, held, context) = (tokens.len(), self.len(), self.options.context);
        if prompt > context - held {
            return Err(EngineError::ContextFull { prompt, held, context });
        }
        let vocabulary = self.engine.model.vocabulary();
        match tokens.iter().position(|&id| id as usize >= vocabulary) {
            Some(index) => Err(EngineError::TokenId { index, id: tokens[index], vocabulary }),
            None => {
                self.engine.first_use.check()?;
                self.engine.model.check_tokens(tokens)
            }
        }
    }

    /// Memory for the logits of a prompt of `total` tokens.
    fn room_for(&self, logits: Logits, total: usize) -> Result<LogitsOut, EngineError> {
        let width = self.engine.model.vocabulary();
        let rows = match logits {
            Logits::None => 0,
            Logits::Last => 1,
            Logits::All => total,
        };
        let mut values: Vec<f32> = Vec::new();
        let bytes = rows.saturating_mul(width).saturating_mul(size_of::<f32>());
        let refused = |_| DeviceError::OutOfMemory { device: "host".into(), bytes };
        values.try_reserve_exact(rows.saturating_mul(width)).map_err(refused)?;
        Ok(LogitsOut { width, values })
    }

    /// Takes one chunk through the model and appends the logits of its rows from `first_row` on to `out`. `after_layer` is
    /// told how many layers are done.
    fn step(
        &mut self,
        tokens: &[u32],
        first_row: usize,
        probe: &mut dyn Probe,
        out: &mut LogitsOut,
        after_layer: impl FnMut(usize),
    ) -> Result<(), EngineError> {
        let Loaded { model, device, precision, .. } = self.engine.as_ref();
        let device: &dyn Device = device.as_ref();
        let reach = model.config.ngrams.as_ref().map_or(0, |ngrams| ngrams.longest - 1);
        let before = &self.tokens[self.len().saturating_sub(reach)..];
        let chunk = Chunk { tokens, start: self.len(), before };
        let mut pass = Pass { device, precision: *precision, chunk, probe };
        model.forward(&mut pass, &self.state, &self.scratch, after_layer)?;
        pass.probe.enter(Stage::Head, None);
        model.logits(&pass, &self.scratch, first_row, tokens.len(), |rows| {
            out.values.extend(read_f32(device, rows)?);
            Ok(())
        })?;
        device.sync()?;
        pass.probe.enter(Stage::Other, None);
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }
}
