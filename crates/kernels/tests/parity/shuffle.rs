//! Work in any order that its declared reads and writes permit gives the same bytes.

use argon_gguf::Format;
use argon_kernels::DType::F32;
use argon_kernels::op::{Add, Conv, Copy, Fill, RmsNorm, Rope, RopePairs};
use argon_kernels::parity::cases::gather::embed;
use argon_kernels::parity::compare::{Written, same_bits};
use argon_kernels::shuffle::ShuffleDevice;
use argon_kernels::{Device, DeviceError, Op, Tensor};

use crate::ops::harness::{Arena, Result, SEED, cpu};

/// Two chains that meet, with a buffer used twice and a state that is carried.
fn work(a: &Arena) -> Result<Vec<Op>> {
    let [x, y] = ["x", "y"].map(|name| a.in_out(name, [6, 2, 16], |_| a.unit()));
    let (x, y, scratch) = (x?, y?, a.output("scratch", F32, [6, 2, 16])?);
    let (weight, freqs) = (a.units(F32, [1, 1, 16])?, a.units(F32, [1, 1, 4])?);
    let state = a.in_out("state", [3, 1, 32], |_| a.unit())?;
    let taps = a.units(F32, [32, 1, 4])?;
    let out = a.output("out", F32, [6, 1, 32])?;
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
    let dense = a.output("dense", F32, [6, 1, 32])?;
    Ok(vec![
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
    ])
}

fn result(device: &dyn Device) -> Vec<Written> {
    let a = Arena::new(device, SEED);
    a.run_all(work(&a).unwrap()).unwrap();
    a.written().unwrap()
}

#[test]
fn every_order_gives_the_same_bytes() {
    let want = result(&cpu(2));
    for seed in 0..50 {
        assert_eq!(same_bits(&result(&ShuffleDevice::new(cpu(2), seed)), &want), Ok(()), "seed {seed}");
    }
}

#[test]
fn errors_come_with_the_read() {
    let device = ShuffleDevice::new(cpu(1), 1);
    let a = Arena::new(&device, SEED);
    embed(&a, a.weight(Format::F32, 1, 5, 4).unwrap(), &[9], 1).unwrap();
    let error = DeviceError::IdOutOfRange { op: "embed", entry: 0, id: 9, limit: 5 };
    assert_eq!(a.written().err(), Some(error));
}
