//! A whole mixture-of-experts layer after routing: plan, gate and up with SwiGLU, down, the weighted sum and the shared expert.

use argon_gguf::Format;

use super::plan::{Ids, plan, shape};
use super::{List, layer as bound};
use crate::op::{Combine, Epilogue, Gemm, RowMap, Shared};
use crate::parity::{Arena, Result};
use crate::tensor::{DType, Tensor};

/// Gate and up, and down, of released files; the first is the report's.
const PAIRS: [[Format; 2]; 6] = [
    [Format::IQ2_XS, Format::IQ4_NL],
    [Format::IQ2_XXS, Format::IQ2_S],
    [Format::IQ3_XXS, Format::IQ3_S],
    [Format::Q4_K, Format::Q6_K],
    [Format::Q8_0, Format::Q8_0],
    [Format::MXFP4, Format::MXFP4],
];

#[derive(Clone, Copy)]
struct Layer {
    formats: [Format; 2],
    tokens: usize,
    top_k: usize,
    experts: usize,
    /// D.
    hidden: usize,
    ids: Ids,
    /// Rows of a tile; the device's own choice where absent.
    tile: Option<usize>,
    /// Factor of one input channel.
    outlier: f32,
    /// Factor of all of them.
    size: f32,
    /// Factor of the experts' weights in the sum.
    share: f32,
}

pub(super) fn cases(list: &mut List) {
    let r = list.request;
    let asked = match (r.gate_up, r.down) {
        (None, None) => None,
        (gate_up, down) => Some([gate_up.unwrap_or(PAIRS[0][0]), down.unwrap_or(PAIRS[0][1])]),
    };
    let usual = Layer {
        formats: asked.unwrap_or(PAIRS[0]),
        tokens: r.tokens.unwrap_or(61),
        top_k: r.top_k.unwrap_or(3),
        experts: r.experts.unwrap_or(7),
        hidden: 256,
        ids: Ids::Skewed,
        tile: None,
        outlier: 1.0,
        size: 1.0,
        share: 1.0,
    };
    let mut add = |what: &str, layer: Layer| {
        let [gate_up, down] = layer.formats;
        let Layer { tokens, top_k, experts, .. } = layer;
        let name = format!("{gate_up} and {down}, T {tokens}, K {top_k}, E {experts}{what}");
        list.within(bound(&[gate_up, down], tokens), &name, move |a| layer.work(a));
    };
    if r.tokens.is_none() {
        add("", Layer { tokens: 150, top_k: 4, experts: 12, hidden: 512, ..usual });
        add("", Layer { tokens: 1, ..usual });
    }
    for formats in asked.map_or(PAIRS.to_vec(), |asked| vec![asked]) {
        // Random scales vary more than a file's: a row of one block would be all large or all small, beside rows of the other kind.
        add("", Layer { formats, hidden: 1024, ..usual });
    }
    for tile in [1, 7, 16, 64, 192] {
        add(&format!(", tile {tile}"), Layer { tile: Some(tile), ..usual });
    }
    add(", one expert", Layer { ids: Ids::One, ..usual });
    add(", all skipped", Layer { ids: Ids::Skipped, ..usual });
    add(", bad ids", Layer { ids: Ids::Bad, ..usual });
    add(", a channel of 1e5", Layer { outlier: 1e5, ..usual });
    add(", down beyond f16", Layer { size: 100.0, share: 1e-4, ..usual });
}

impl Layer {
    fn work(&self, a: &Arena) -> Result {
        let Layer { formats: [gate_up, down], tokens, top_k, experts, hidden, .. } = *self;
        // Rows of whole blocks.
        let width = 160usize.next_multiple_of(down.block_len());
        let tile = self.tile.unwrap_or_else(|| a.tile_rows(tokens * top_k, experts));
        a.routed(tile);
        let shape = shape([tokens, top_k, experts, tile])?;
        let floats = |name, rows, cols| a.output(name, DType::F32, [rows, 1, cols]);

        let share = |_| (1.0 + a.unit()) * self.share / top_k as f32;
        let (plan, weights) = plan(a, shape, self.ids, share)?;
        let size = |i| if i % hidden == 100 { self.outlier } else { self.size };
        let input = a.numbers(tokens * hidden, |i| a.normal() * size(i));
        let x = a.activations(gate_up, [tokens, hidden], &input)?;

        let product = |x: &Tensor, w, rows, epilogue, out: &Tensor| Gemm {
            x: x.clone(),
            w,
            bias: None,
            rows,
            epilogue,
            precision: a.precision,
            out: out.clone(),
        };
        let (h, rows) = (floats("h", shape.max_rows(), width)?, floats("rows", shape.max_rows(), hidden)?);
        let gate = a.weight(gate_up, experts, width, hidden)?;
        let up = a.weight(gate_up, experts, width, hidden)?;
        a.run(product(&x, gate, RowMap::Gather(plan.clone()), Epilogue::SwiGlu { up }, &h))?;
        let h = a.onward("h", down, &h)?;
        let w = a.weight(down, experts, hidden, width)?;
        a.run(product(&h, w, RowMap::Segments(plan.clone()), Epilogue::Store, &rows))?;
        let shared =
            Shared { y: a.units(DType::F32, [tokens, 1, hidden])?, gate: Some(a.units(DType::F32, [tokens, 1, 1])?) };
        let out = floats("y", tokens, hidden)?;
        a.run(Combine { rows, weights, plan, shared: Some(shared), accumulate: false, out })
    }
}
