//! Numbers of transformers, so that a formula that is wrong in a kernel and in the reference alike shows.
//!
//! Both sides compute in float32, in other orders: each tolerance is a few roundings of the case's largest intermediate.

use std::collections::HashMap;
use std::sync::OnceLock;

use argon_gguf::{Bytes, Format};
use argon_kernels::op::*;
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{DType, Device, Op, Precision, Tensor, Weight};
use argon_plan::Shape;
use serde::Deserialize;

use crate::devices;

#[derive(Deserialize)]
struct Entry {
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// The tensors of one case, on one device.
struct Case<'d> {
    device: &'d dyn Device,
    name: String,
    entries: &'static HashMap<String, Entry>,
}

fn case(name: &str) -> &'static HashMap<String, Entry> {
    static CASES: OnceLock<HashMap<String, HashMap<String, Entry>>> = OnceLock::new();
    &CASES.get_or_init(|| serde_json::from_str(include_str!("../fixtures/ops.json")).unwrap())[name]
}

/// Runs `test` on the reference and on every device.
fn on_all(name: &str, test: impl Fn(&Case)) {
    let reference = ReferenceDevice::default();
    test(&Case { device: &reference, name: "reference".into(), entries: case(name) });
    for tested in devices() {
        test(&Case { device: &*tested.device, name: tested.name, entries: case(name) });
    }
}

impl Case<'_> {
    fn f32(&self, name: &str) -> Tensor {
        let entry = &self.entries[name];
        let bytes: Vec<u8> = entry.data.iter().flat_map(|&x| (x as f32).to_ne_bytes()).collect();
        self.tensor(DType::F32, &entry.shape, &bytes)
    }

    fn i32(&self, name: &str) -> Tensor {
        let entry = &self.entries[name];
        let bytes: Vec<u8> = entry.data.iter().flat_map(|&x| (x as i32).to_ne_bytes()).collect();
        self.tensor(DType::I32, &entry.shape, &bytes)
    }

    fn tensor(&self, dtype: DType, shape: &[usize], bytes: &[u8]) -> Tensor {
        let t = argon_kernels::device::tensor(self.device, dtype, shape[0], shape[1], shape[2]).unwrap();
        self.device.write(&t, bytes).unwrap();
        t
    }

    fn zeros(&self, dtype: DType, shape: [usize; 3]) -> Tensor {
        argon_kernels::device::tensor(self.device, dtype, shape[0], shape[1], shape[2]).unwrap()
    }

    /// `[N, K]` or `[E, N, K]`.
    fn weight(&self, name: &str) -> Weight {
        let entry = &self.entries[name];
        let bytes: Vec<u8> = entry.data.iter().flat_map(|&x| (x as f32).to_ne_bytes()).collect();
        let shape = &entry.shape;
        let (experts, rows, cols) =
            if shape.len() == 2 { (1, shape[0], shape[1]) } else { (shape[0], shape[1], shape[2]) };
        Weight::dense(self.device.constant(Bytes::from(bytes)).unwrap(), Format::F32, experts, rows, cols).unwrap()
    }

    fn run(&self, ops: impl IntoIterator<Item = Op>) {
        for op in ops {
            self.device.enqueue(&op).unwrap();
        }
    }

    /// A dense product stored in a new tensor.
    fn product(&self, x: &Tensor, w: &str, epilogue: Epilogue) -> Tensor {
        let w = self.weight(w);
        let out = self.zeros(DType::F32, [x.rows, 1, w.rows]);
        self.run([gemm(x, w, RowMap::Identity, epilogue, &out)]);
        out
    }

    fn expect(&self, t: &Tensor, name: &str, tolerance: f64) {
        let want = &self.entries[name].data;
        let mut bytes = vec![0; t.len() * 4];
        self.device.read(t, &mut bytes).unwrap();
        let number = |b: [u8; 4]| match t.dtype {
            DType::F32 => f64::from(f32::from_ne_bytes(b)),
            _ => f64::from(i32::from_ne_bytes(b)),
        };
        assert_eq!(t.len(), want.len(), "{name}");
        for (i, (&b, &want)) in bytes.as_chunks().0.iter().zip(want).enumerate() {
            let (got, want) = (number(b), f64::from(want as f32));
            assert!((got - want).abs() <= tolerance, "{}: {name}[{i}] is {got}, not {want}", self.name);
        }
    }
}

fn gemm(x: &Tensor, w: Weight, rows: RowMap, epilogue: Epilogue, out: &Tensor) -> Op {
    Gemm { x: x.clone(), w, bias: None, rows, epilogue, precision: Precision::F32, out: out.clone() }.into()
}

#[test]
fn rms_norm() {
    on_all("rms_norm", |c| {
        let out = c.zeros(DType::F32, [3, 2, 8]);
        c.run([RmsNorm { x: c.f32("x"), weight: c.f32("weight"), eps: 1e-6, out: out.clone() }.into()]);
        c.expect(&out, "out", 1e-6);
    });
}

#[test]
fn gated_norm() {
    for (name, activation) in [("gated_norm_silu", Activation::Silu), ("gated_norm_sigmoid", Activation::Sigmoid)] {
        on_all(name, |c| {
            let out = c.zeros(DType::F32, [3, 2, 8]);
            let (x, gate, weight) = (c.f32("x"), c.f32("gate"), c.f32("weight"));
            c.run([GatedNorm { x, gate, weight, eps: 1e-6, activation, out: out.clone() }.into()]);
            c.expect(&out, "out", 2e-6);
        });
    }
}

#[test]
fn rope() {
    on_all("rope", |c| {
        let x = c.f32("x");
        for (row, &position) in c.entries["positions"].data.iter().enumerate() {
            let (x, freqs) = (x.rows(row..row + 1), c.f32("freqs"));
            c.run([Rope { x, freqs, pairs: RopePairs::Halves, pos0: position as usize, step: 1 }.into()]);
        }
        c.expect(&x, "out", 1e-6);
    });
}

#[test]
fn attention() {
    for name in ["attention", "attention_selected"] {
        on_all(name, |c| {
            let out = c.zeros(DType::F32, [4, 4, 8]);
            let op = Attention {
                q: c.f32("q"),
                k: c.f32("k"),
                v: c.f32("v"),
                gate: Some(c.f32("gate")),
                select: (name == "attention_selected").then(|| Selection { blocks: c.i32("blocks"), ratio: 2 }),
                pos0: 5,
                scale: 8f32.sqrt().recip(),
                out: out.clone(),
            };
            c.run([op.into()]);
            c.expect(&out, "out", 1e-6);
        });
    }
}

/// Norms, rotations, block keys and the choice together; compared are the keys that each query may see.
#[test]
fn indexer() {
    const RATIO: usize = 3;
    on_all("indexer", |c| {
        let x = c.f32("x");
        let (q, raw, freqs) = (x.cols(0..16).split(2, 8), x.cols(16..24), c.f32("freqs"));
        let (tokens, blocks) = (x.rows, x.rows / RATIO);
        let (normed, keys) = (c.zeros(DType::F32, [tokens, 2, 8]), c.zeros(DType::F32, [blocks, 1, 8]));
        let chosen = c.zeros(DType::I32, [tokens, 1, 2]);
        let norm = |x: &Tensor, weight: &str, out: &Tensor| {
            RmsNorm { x: x.clone(), weight: c.f32(weight), eps: 1e-6, out: out.clone() }.into()
        };
        let rope = |x: &Tensor, step| {
            Rope { x: x.clone(), freqs: freqs.clone(), pairs: RopePairs::Halves, pos0: 0, step }.into()
        };
        c.run([
            norm(&q, "q_norm", &normed),
            rope(&normed, 1),
            MeanPool { x: raw.first(blocks * RATIO), ratio: RATIO, out: keys.clone() }.into(),
            norm(&keys, "k_norm", &keys),
            rope(&keys, RATIO),
            SelectBlocks { q: normed.clone(), keys: keys.clone(), pos0: 0, ratio: RATIO, out: chosen.clone() }.into(),
        ]);
        let mut bytes = vec![0; chosen.len() * 4];
        c.device.read(&chosen, &mut bytes).unwrap();
        let chosen: Vec<i32> = bytes.as_chunks().0.iter().map(|&b| i32::from_ne_bytes(b)).collect();
        for t in 0..tokens {
            let visible = argon_kernels::reference::visible(t, Some((&chosen[2 * t..2 * t + 2], RATIO)));
            let row = &c.entries["visible"].data[t * tokens..(t + 1) * tokens];
            let want: Vec<usize> = (0..tokens).filter(|&j| row[j] != 0.0).collect();
            assert_eq!(visible, want, "{}: query {t}", c.name);
        }
    });
}

#[test]
fn conv() {
    on_all("conv", |c| {
        let (out, state) = (c.zeros(DType::F32, [7, 1, 6]), c.f32("state"));
        let weight = c.f32("weight");
        let op = Conv { x: c.f32("x"), weight, dilation: 1, state: state.clone(), accumulate: false, out: out.clone() };
        c.run([op.into()]);
        c.expect(&out, "out", 1e-6);
        c.expect(&state, "state_out", 0.0);
    });
}

#[test]
fn delta_net() {
    on_all("delta_net", |c| {
        let (out, state) = (c.zeros(DType::F32, [6, 4, 5]), c.f32("state"));
        let op = DeltaNet {
            q: c.f32("q"),
            k: c.f32("k"),
            v: c.f32("v"),
            alpha: c.f32("alpha"),
            beta: c.f32("beta"),
            a: c.f32("a"),
            dt_bias: c.f32("dt_bias"),
            heads: HeadMap::Grouped,
            eps: 1e-6,
            state: state.clone(),
            out: out.clone(),
        };
        c.run([op.into()]);
        c.expect(&out, "out", 2e-6);
        c.expect(&state, "state_out", 2e-6);
    });
}

/// Norm, low-rank gate and mean; then the write of a block's output.
#[test]
fn hyper_connection() {
    on_all("hyper_connection", |c| {
        let (x, y) = (c.f32("x"), c.f32("y"));
        let normed = c.zeros(DType::F32, [3, 4, 16]);
        c.run([RmsNorm { x: x.clone(), weight: c.f32("norm"), eps: 1e-6, out: normed.clone() }.into()]);
        let down = c.product(&normed.flat(), "down", Epilogue::Silu { scale: 0.25 });
        let mixed = c.zeros(DType::F32, [3, 1, 16]);
        let gate = Epilogue::GateMean { normed: normed.clone() };
        c.run([gemm(&down, c.weight("up"), RowMap::Identity, gate, &mixed)]);
        c.expect(&mixed, "mixed", 1e-5); // gates are sigmoids of sums of 64 products
        let inject = c.product(&normed.flat(), "inject", Epilogue::Store);
        c.run([HyperWrite { y, inject, x: x.clone() }.into()]);
        c.expect(&x, "written", 1e-5);
    });
}

/// The whole layer behind the embedding: keys, values, gate, and the dilated convolution.
#[test]
fn ple() {
    on_all("ple", |c| {
        let (x, embeddings) = (c.f32("x"), c.f32("embeddings"));
        let key = c.product(&embeddings, "key", Epilogue::Store).split(4, 16);
        let value = c.product(&embeddings, "value", Epilogue::Store);
        let [query, out, normed] = [(); 3].map(|()| c.zeros(DType::F32, [7, 4, 16]));
        let norm = |x: &Tensor, weight: &str, out: &Tensor| {
            RmsNorm { x: x.clone(), weight: c.f32(weight), eps: 1e-6, out: out.clone() }.into()
        };
        c.run([
            norm(&key, "norm_key", &key),
            norm(&x, "norm_query", &query),
            PleGate { key: key.clone(), query, value, out: out.clone() }.into(),
            norm(&out, "norm_conv", &normed),
            Conv {
                x: normed.flat(),
                weight: c.f32("conv"),
                dilation: 3,
                state: c.zeros(DType::F32, [9, 1, 64]),
                accumulate: true,
                out: out.flat(),
            }
            .into(),
        ]);
        c.expect(&out, "out", 1e-5); // the root of a score near 0 enlarges its error
    });
}

/// A whole expert layer: router, plan, gate and up, down, combine, shared expert.
#[test]
fn moe() {
    on_all("moe", |c| {
        let x = c.f32("x");
        let logits = c.product(&x, "router", Epilogue::Store);
        let config = RouteConfig::new(Gating::Softmax, 3);
        let (ids, weights) = (c.zeros(DType::I32, [9, 1, 3]), c.zeros(DType::F32, [9, 1, 3]));
        c.run([Route { logits, bias: None, config, layer: 0, ids: ids.clone(), weights: weights.clone() }.into()]);
        c.expect(&ids, "ids", 0.0);
        c.expect(&weights, "weights", 1e-6);

        let plan = PlanBuffers::new(c.device, Shape::new(9, 3, 8, 4).unwrap()).unwrap();
        let rows = plan.shape.max_rows();
        let (h, y) = (c.zeros(DType::F32, [rows, 1, 4]), c.zeros(DType::F32, [rows, 1, 16]));
        let swiglu = Epilogue::SwiGlu { up: c.weight("up") };
        c.run([
            Plan { ids, weights: weights.clone(), plan: plan.clone() }.into(),
            gemm(&x, c.weight("gate"), RowMap::Gather(plan.clone()), swiglu, &h),
            gemm(&h, c.weight("down"), RowMap::Segments(plan.clone()), Epilogue::Store, &y),
        ]);
        let shared = c.product(&x, "shared_gate", Epilogue::SwiGlu { up: c.weight("shared_up") });
        let shared = Shared {
            y: c.product(&shared, "shared_down", Epilogue::Store),
            gate: Some(c.product(&x, "shared_logit", Epilogue::Store)),
        };
        let out = c.zeros(DType::F32, [9, 1, 16]);
        c.run([Combine { rows: y, weights, plan, shared: Some(shared), accumulate: false, out: out.clone() }.into()]);
        c.expect(&out, "out", 2e-5); // outputs up to 20
    });
}

/// DeepSeek's: sigmoid, bias, groups, scale.
#[test]
fn grouped_router() {
    on_all("grouped_router", |c| {
        let config = RouteConfig {
            groups: Some(GroupLimit { groups: 4, used: 2 }),
            scale: 2.5,
            ..RouteConfig::new(Gating::Sigmoid, 3)
        };
        let (ids, weights) = (c.zeros(DType::I32, [10, 1, 3]), c.zeros(DType::F32, [10, 1, 3]));
        let (logits, bias) = (c.f32("logits"), Some(c.f32("bias")));
        c.run([Route { logits, bias, config, layer: 0, ids: ids.clone(), weights: weights.clone() }.into()]);
        c.expect(&ids, "ids", 0.0);
        c.expect(&weights, "weights", 1e-6);
    });
}
