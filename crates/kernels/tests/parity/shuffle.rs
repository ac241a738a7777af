//! Work in any order that its declared reads and writes permit gives the same bytes.

use argon_kernels::DType::F32;
use argon_kernels::op::{Add, Conv, Copy, Fill, RmsNorm, Rope, RopePairs};
use argon_kernels::shuffle::ShuffleDevice;
use argon_kernels::{Device, DeviceError, Op, Tensor};

use crate::harness::{Arena, Layout, cpu, words};

/// Two chains that meet, with a buffer used twice and a state that is carried.
fn work(a: &Arena) -> (Vec<Op>, Vec<Tensor>) {
    let (x, y) = (a.floats("x", [6, 2, 16]), a.floats("y", [6, 2, 16]));
    let scratch = a.output("scratch", F32, [6, 2, 16]);
    let (weight, freqs) = (a.floats("weight", [1, 1, 16]), a.floats("freqs", [1, 1, 4]));
    let state = a.floats("state", [3, 1, 32]);
    let taps = a.floats("taps", [32, 1, 4]);
    let out = a.output("out", F32, [6, 1, 32]);
    let rope = |x: &Tensor, pos0| Rope { x: x.clone(), freqs: freqs.clone(), pairs: RopePairs::Halves, pos0, step: 1 };
    let norm = |x: &Tensor, out: &Tensor| RmsNorm { x: x.clone(), weight: weight.clone(), eps: 1e-6, out: out.clone() };
    let conv = |x: &Tensor, out: &Tensor| Conv {
        x: x.clone(),
        weight: taps.clone(),
        dilation: 1,
        state: state.clone(),
        accumulate: false,
        out: out.clone(),
    };
    let flat = |t: &Tensor| t.split(1, 32);
    let dense = a.output("dense", F32, [6, 1, 32]);
    let ops = vec![
        Fill { dst: scratch.clone(), value: 1.0 }.into(),
        Add { src: x.clone(), dst: scratch.clone() }.into(),
        rope(&y, 3).into(),
        norm(&scratch, &scratch).into(),
        Copy { src: scratch.clone(), dst: dense.split(2, 16) }.into(),
        conv(&flat(&dense.rows(0..2)), &out.rows(0..2)).into(),
        conv(&flat(&dense.rows(2..6)), &out.rows(2..6)).into(),
        Add { src: y.clone(), dst: scratch.clone() }.into(),
        Fill { dst: dense.clone(), value: 2.0 }.into(),
        Add { src: dense.split(2, 16).rows(0..6), dst: x.clone() }.into(),
        norm(&x, &y).into(),
    ];
    (ops, vec![x, y, scratch, state, out, dense])
}

fn result(device: &dyn Device) -> Vec<Vec<u32>> {
    let (ops, tensors) = work(&Arena::new(device, Layout::Dense));
    for op in &ops {
        device.enqueue(op).unwrap();
    }
    tensors.iter().map(|t| words(device, &t.buffer)).collect()
}

#[test]
fn every_order_gives_the_same_bytes() {
    let want = result(&cpu(2));
    for seed in 0..50 {
        assert!(result(&ShuffleDevice::new(cpu(2), seed)) == want, "seed {seed}");
    }
}

#[test]
fn errors_come_with_the_read() {
    let device = ShuffleDevice::new(cpu(1), 1);
    let a = Arena::new(&device, Layout::Dense);
    let ids = a.ints("ids", [1, 1, 1], &[9]);
    let out = a.output("out", F32, [1, 1, 4]);
    let op = argon_kernels::op::Embed { table: a.weight(5, 4), ids, out: out.clone() }.into();
    device.enqueue(&op).unwrap();
    let error = Err(DeviceError::IdOutOfRange { op: "embed", entry: 0, id: 9, limit: 5 });
    assert_eq!(device.read(&out, &mut [0; 16]), error);
}
