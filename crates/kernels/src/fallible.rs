//! Ops that find out on a GPU that their input is wrong, and what is to be said of them.

use crate::device::DeviceError;

/// An op that may find its input wrong.
#[derive(Clone, Copy)]
pub(crate) enum Fallible {
    /// Logits that are not numbers.
    Route { layer: usize },
    /// Ids outside a table.
    Embed { limit: usize },
}

impl Fallible {
    /// What is wrong with its entry number `entry`, which is `id` where it is an id.
    pub(crate) fn error(self, entry: usize, id: i64) -> DeviceError {
        match self {
            Fallible::Route { layer } => DeviceError::NanLogit { layer, token: entry },
            Fallible::Embed { limit } => DeviceError::IdOutOfRange { op: "embed", entry, id, limit },
        }
    }
}
