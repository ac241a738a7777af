//! A place in a conversation to come back to: the states that later tokens overwrite, as they were there. Keys and values
//! of earlier tokens stay where they are and need no copy.

use argon_kernels::{Device, Tensor};

use crate::EngineError;
use crate::model::State;

/// The overwritten states at one length, on the host.
pub(super) struct Mark {
    /// Tokens that the session held.
    pub len: usize,
    /// The rows in use of each such state, in the order of [`overwritten`].
    pub values: Vec<Vec<u8>>,
}

impl Mark {
    /// Copies the states of a session that holds `len` tokens.
    pub fn new(device: &dyn Device, state: &State, len: usize) -> Result<Self, EngineError> {
        let copy = |tensor: Tensor| {
            let mut values = vec![0; tensor.len() * tensor.dtype.bytes()];
            device.read(&tensor, &mut values)?;
            Ok(values)
        };
        Ok(Self { len, values: overwritten(state, len).map(copy).collect::<Result<_, EngineError>>()? })
    }

    /// Puts them back.
    pub fn restore(&self, device: &dyn Device, state: &State) -> Result<(), EngineError> {
        for (tensor, values) in overwritten(state, self.len).zip(&self.values) {
            device.write(&tensor, values)?;
        }
        Ok(device.sync()?)
    }
}

/// What later tokens overwrite of the state of `len` tokens.
pub(super) fn overwritten(state: &State, len: usize) -> impl Iterator<Item = Tensor> {
    let tensors = state.tensors().filter(|(_, state)| state.is_overwritten());
    tensors.map(move |(_, state)| state.in_use(len)).filter(|tensor| !tensor.is_empty())
}
