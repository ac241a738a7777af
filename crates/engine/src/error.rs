//! Why a model cannot be loaded or a prompt cannot be processed.

use argon_gguf::Format;
use argon_kernels::DeviceError;

use crate::session::SessionFileError;
use crate::tokenizer::TokenizerError;

/// Everything the engine can refuse. Each message names the key, tensor or option.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The file is malformed, or a key is missing or of the wrong type.
    #[error(transparent)]
    Gguf(#[from] argon_gguf::Error),
    /// The device could not do it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file's tokenizer cannot be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A session cannot be saved or restored.
    #[error(transparent)]
    SessionFile(#[from] SessionFileError),
    /// A chunk is too large to be planned.
    #[error("the routing plan of a chunk: {0}")]
    Plan(#[from] argon_plan::Error),
    /// `general.architecture` names a family that is not known.
    #[error("architecture {found:?} is not supported (supported: {supported})")]
    Architecture {
        /// The name in the file.
        found: String,
        /// All names that are known, separated by commas.
        supported: String,
    },
    /// The value of a key makes no sense, or asks for something that is not supported.
    #[error("key {key:?} {what}")]
    Key {
        /// The metadata key.
        key: String,
        /// What is wrong with it; reads on from the key.
        what: String,
    },
    /// A tensor that the model needs is not in the file.
    #[error("tensor {tensor:?} is missing")]
    MissingTensor {
        /// Its name.
        tensor: String,
    },
    /// A tensor that the architecture does not have: leaving it out would silently change the answer.
    #[error("tensor {tensor:?} is not part of the architecture {architecture}")]
    ForeignTensor {
        /// Its name.
        tensor: String,
        /// The file's architecture.
        architecture: &'static str,
    },
    /// A tensor does not have the shape that the metadata promise.
    #[error("tensor {tensor:?} has shape {found:?}, not {expected:?} as the metadata say")]
    Shape {
        /// Its name.
        tensor: String,
        /// The shape that follows from the metadata, as GGUF writes it: columns first.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor is stored in a format that is not for weights.
    #[error("tensor {tensor:?} is stored as {format}, which is no format of weights")]
    NotWeights {
        /// Its name.
        tensor: String,
        /// Its format.
        format: Format,
    },
    /// A weight is no number. It would make the answer none, or another one.
    #[error("tensor {tensor:?} has a scale in row {row} that is not a finite number")]
    BadWeight {
        /// The tensor's name.
        tensor: String,
        /// The row, counted over all its dimensions but the first.
        row: usize,
    },
    /// A weight of a routed expert is no number.
    #[error(
        "layer {layer}, expert {expert}: tensor {tensor:?} has a scale in row {row} of it that is not a finite number"
    )]
    BadExpert {
        /// The layer.
        layer: usize,
        /// The expert.
        expert: usize,
        /// The tensor that holds this part of the layer's experts.
        tensor: String,
        /// The row of the expert's matrix.
        row: usize,
    },
    /// An option is outside its range.
    #[error("option {option}: {what}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The prompt does not fit behind what the session holds.
    #[error("{prompt} tokens do not fit behind the {held} held: the context has room for {context}")]
    ContextFull {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the session holds.
        held: usize,
        /// Tokens that it has room for.
        context: usize,
    },
    /// The prompt holds an id that is no token.
    #[error("token {index} of the prompt is {id}, outside the vocabulary of {vocabulary}")]
    TokenId {
        /// Index into the prompt.
        index: usize,
        /// The id.
        id: u32,
        /// The vocabulary's size.
        vocabulary: usize,
    },
    /// The caller stopped a prefill between two chunks. The session holds the first `done` tokens and can go on from there.
    #[error("stopped after {done} of {total} tokens")]
    Stopped {
        /// Tokens of the prompt that were processed.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// An error in the middle of a chunk left the session's state half-written.
    #[error("an earlier error left the session unfinished: reset it first")]
    Unfinished,
}
