//! From a row map to segments: which input rows meet which expert, and where their products go.

use argon_plan::meta;

use crate::cpu::CpuDevice;
use crate::cpu::view::View;
use crate::device::DeviceError;
use crate::op::{Gemm, PlanBuffers, RowMap};

/// Rows that meet one expert.
#[derive(Debug, PartialEq)]
pub(super) struct Segment {
    /// The expert.
    pub expert: usize,
    /// The first output row; the others follow it.
    pub first: usize,
    /// The input row of each output row.
    pub inputs: Vec<usize>,
}

impl Segment {
    /// Number of rows, at least 1.
    pub fn rows(&self) -> usize {
        self.inputs.len()
    }
}

/// The segments of a product, in expert order.
///
/// # Errors
/// [`DeviceError::Shape`] if the plan's words are not those of a plan of this product: nothing in them is followed blindly.
pub(super) fn segments(device: &CpuDevice, o: &Gemm) -> Result<Vec<Segment>, DeviceError> {
    let (plan, gather) = match &o.rows {
        RowMap::Identity => {
            let all = Segment { expert: 0, first: 0, inputs: (0..o.x.rows).collect() };
            return Ok(if o.x.rows == 0 { vec![] } else { vec![all] });
        }
        RowMap::Gather(plan) => (plan, true),
        RowMap::Segments(plan) => (plan, false),
    };
    let words = Words::of(device, plan)?;
    let mut segments = routed(&words, o.w.experts, o.out.rows).ok_or_else(|| broken(plan))?;
    if gather {
        for row in segments.iter_mut().flat_map(|segment| &mut segment.inputs) {
            let token = words.stok.get(*row).and_then(|&token| usize::try_from(token).ok());
            *row = token.filter(|&token| token < o.x.rows).ok_or_else(|| broken(plan))?;
        }
    }
    Ok(segments)
}

/// Which input rows the segments of a product use: all of a dense product's and of the tokens, those of a plan that are not
/// padding.
pub(super) fn used(o: &Gemm, segments: &[Segment]) -> impl Fn(usize) -> bool + Sync + use<> {
    let mut used = vec![!matches!(o.rows, RowMap::Segments(_)); o.x.rows];
    if let RowMap::Segments(_) = o.rows {
        for &row in segments.iter().flat_map(|segment| &segment.inputs) {
            used[row] = true;
        }
    }
    move |row| used[row]
}

fn broken(plan: &PlanBuffers) -> DeviceError {
    DeviceError::Shape { op: "gemm", what: format!("the plan's words are not those of a plan of {:?}", plan.shape) }
}

/// The words of a plan that a product needs.
struct Words<'a> {
    tiles: &'a [u32],
    stok: &'a [i32],
    used: usize,
}

impl<'a> Words<'a> {
    fn of(device: &CpuDevice, plan: &'a PlanBuffers) -> Result<Self, DeviceError> {
        Ok(Self {
            tiles: View::<u32>::of(device, &plan.tiles)?.all(),
            stok: View::<i32>::of(device, &plan.stok)?.all(),
            used: View::<u32>::of(device, &plan.meta)?.all()[meta::TILES] as usize,
        })
    }
}

/// The tiles of one expert follow each other and all but the last are full, so they make one segment. `None` for words
/// that are not a plan of so many experts and rows.
fn routed(words: &Words, experts: usize, max_rows: usize) -> Option<Vec<Segment>> {
    let mut segments: Vec<Segment> = vec![];
    for &[expert, first, rows] in words.tiles.as_chunks().0.get(..words.used)? {
        let [expert, first, rows] = [expert, first, rows].map(|word| word as usize);
        let behind = segments.last().map_or(0, |s| s.first + s.rows());
        if expert >= experts || rows == 0 || first < behind || first + rows > max_rows {
            return None;
        }
        match segments.last_mut() {
            Some(last) if last.expert == expert && behind == first => last.inputs.extend(first..first + rows),
            _ => segments.push(Segment { expert, first, inputs: (first..first + rows).collect() }),
        }
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_tiles(tiles: &[[u32; 3]]) -> Option<Vec<(usize, usize, usize)>> {
        let words = Words { tiles: tiles.as_flattened(), stok: &[], used: tiles.len() };
        let segments = routed(&words, 4, 100)?;
        Some(segments.iter().map(|s| (s.expert, s.first, s.rows())).collect())
    }

    #[test]
    fn tiles_of_one_expert_are_one_segment() {
        let tiles = [[0, 0, 8], [0, 8, 3], [2, 16, 8], [3, 24, 1]];
        assert_eq!(of_tiles(&tiles), Some(vec![(0, 0, 11), (2, 16, 8), (3, 24, 1)]));
        assert_eq!(of_tiles(&[]), Some(vec![]));
    }

    #[test]
    fn words_that_are_no_plan_are_refused() {
        assert_eq!(of_tiles(&[[4, 0, 1]]), None, "an expert that is not there");
        assert_eq!(of_tiles(&[[0, 99, 2]]), None, "rows behind the last");
        assert_eq!(of_tiles(&[[0, 0, 8], [1, 7, 1]]), None, "rows of two experts");
        assert_eq!(of_tiles(&[[0, 0, 0]]), None, "an empty tile");
        let words = Words { tiles: &[0; 6], stok: &[], used: 3 };
        assert_eq!(routed(&words, 4, 100), None, "more tiles than words");
    }
}
