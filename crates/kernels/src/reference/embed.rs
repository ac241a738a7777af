//! Rows of a table.

use super::Array;
use crate::device::DeviceError;

/// `out[t, g, :] = table(ids[t, g])` for a table of `limit` rows. An id outside is an error.
pub fn embed(
    limit: usize,
    cols: usize,
    table: impl Fn(usize) -> Result<Vec<f64>, DeviceError>,
    ids: &Array<i32>,
) -> Result<Array, DeviceError> {
    let [tokens, _, groups] = ids.shape;
    let mut out = Array { shape: [tokens, groups, cols], data: Vec::with_capacity(tokens * groups * cols) };
    for (entry, &id) in ids.data.iter().enumerate() {
        if id < 0 || id as usize >= limit {
            return Err(DeviceError::IdOutOfRange { op: "embed", entry, id: id.into(), limit });
        }
        out.data.extend(table(id as usize)?);
    }
    Ok(out)
}
