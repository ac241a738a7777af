//! What devices refuse, and how.

use argon_gguf::Format;
use argon_kernels::DType::{F32, I32};
use argon_kernels::op::{Add, Gating, RmsNorm, Route, RouteConfig};
use argon_kernels::parity::cases::gather;
use argon_kernels::{DType, Device, DeviceError, Tensor};

use super::harness::{Arena, Result, cpu, devices, is_refused, outcomes};

#[test]
fn an_id_outside_the_table() {
    for (ids, entry, id) in [([0, 5, 9], 1, 5), ([0, 1, -1], 2, -1), ([i32::MIN, 0, 0], 0, i32::MIN)] {
        for outcome in outcomes(|a| gather::embed(a, a.weight(Format::F32, 1, 5, 4)?, &ids, 1)) {
            assert_eq!(outcome, Err(DeviceError::IdOutOfRange { op: "embed", entry, id: id.into(), limit: 5 }));
        }
    }
}

/// The first of several, in whatever order threads meet them.
#[test]
fn a_logit_that_is_not_a_number() {
    for outcome in outcomes(|a| {
        let logits = a.input(F32, [100, 1, 4], |i| if i / 4 >= 41 && i % 4 == 2 { f32::NAN } else { 0.0 })?;
        let config = RouteConfig::new(Gating::Softmax, 2);
        let (ids, weights) = (a.output("ids", I32, [100, 1, 2])?, a.output("weights", F32, [100, 1, 2])?);
        a.run(Route { logits, bias: None, config, layer: 17, ids, weights })
    }) {
        assert_eq!(outcome, Err(DeviceError::NanLogit { layer: 17, token: 41 }));
    }
}

fn units(a: &Arena, name: &str) -> Result<Tensor> {
    a.in_out(name, [4, 1, 8], |_| a.unit())
}

#[test]
fn operands_that_overlap() {
    is_refused("shifted rows", |a| {
        let x = units(a, "x")?;
        a.run(Add { src: x.rows(0..3), dst: x.rows(1..4) })
    });
    is_refused("in place, but not quite", |a| {
        let x = units(a, "x")?;
        a.run(RmsNorm { x: x.cols(0..4), weight: a.units(F32, [1, 1, 4])?, eps: 0.0, out: x.cols(1..5) })
    });
    is_refused("rows that overlap each other", |a| {
        let (x, y) = (units(a, "x")?, units(a, "y")?);
        a.run(Add { src: y, dst: Tensor { row_stride: 4, ..x } })
    });
}

#[test]
fn columns_side_by_side_do_not_overlap() {
    for outcome in outcomes(|a| {
        let x = units(a, "x")?;
        a.run(Add { src: x.cols(0..4), dst: x.cols(4..8) })
    }) {
        assert_eq!(outcome, Ok(()));
    }
}

#[test]
fn a_tensor_beyond_its_buffer() {
    let huge = usize::MAX / 2;
    for (offset, row_stride) in [(1, 8), (huge, 8), (0, huge), (usize::MAX, 8)] {
        is_refused("beyond the end", |a| {
            let (x, y) = (units(a, "x")?, units(a, "y")?);
            a.run(Add { src: y, dst: Tensor { offset: offset.saturating_mul(17), row_stride, ..x } })
        });
    }
}

#[test]
fn reads_and_writes_of_the_wrong_length() {
    for tested in devices() {
        let t = argon_kernels::device::tensor(&*tested.device, F32, 2, 1, 3).unwrap();
        assert!(matches!(tested.device.write(&t, &[0; 20]), Err(DeviceError::Shape { .. })));
        assert!(matches!(tested.device.read(&t, &mut [0; 28]), Err(DeviceError::Shape { .. })));
    }
}

#[test]
fn memory_of_another_device() {
    let (a, b) = (cpu(1), cpu(1));
    let tensor = |device: &dyn Device| argon_kernels::device::tensor(device, F32, 2, 1, 3).unwrap();
    let foreign = Add { src: tensor(&a), dst: tensor(&b) }.into();
    assert!(matches!(b.enqueue(&foreign), Err(DeviceError::Failed { .. })));
}

#[test]
fn constants_are_not_written() {
    let device = cpu(1);
    let constant = device.constant(argon_gguf::Bytes::from(vec![0; 24])).unwrap();
    let dst = Tensor::dense(constant, DType::F32, 2, 1, 3);
    assert!(matches!(device.write(&dst, &[0; 24]), Err(DeviceError::Failed { .. })));
    let src = argon_kernels::device::tensor(&device, F32, 2, 1, 3).unwrap();
    assert!(matches!(device.enqueue(&Add { src, dst }.into()), Err(DeviceError::Failed { .. })));
}

/// Constant bytes may begin anywhere; numbers in them may not, so the device copies.
#[test]
fn constants_at_odd_addresses() {
    let bytes: Vec<u8> = (0..5).chain([1.5f32.to_ne_bytes(), 2.5f32.to_ne_bytes()].concat()).collect();
    for tested in devices() {
        for start in [5, 4, 3] {
            let part = argon_gguf::Bytes::from(bytes.clone()).slice(start..13).unwrap();
            let constant = Tensor::dense(tested.device.constant(part).unwrap(), DType::F32, 1, 1, 2);
            let mut found = [0; 8];
            tested.device.read(&constant, &mut found).unwrap();
            assert_eq!(found, bytes[start..start + 8]);
        }
    }
}

#[test]
fn more_memory_than_there_is() {
    for tested in devices() {
        for bytes in [isize::MAX as usize, usize::MAX] {
            assert!(matches!(tested.device.alloc(bytes), Err(DeviceError::OutOfMemory { .. })), "{bytes}");
        }
        let tensor = argon_kernels::device::tensor(&*tested.device, F32, usize::MAX / 2, 3, 1);
        assert!(matches!(tensor, Err(DeviceError::OutOfMemory { .. })));
    }
}

#[test]
fn new_memory_is_zero() {
    for tested in devices() {
        let new = argon_kernels::device::tensor(&*tested.device, F32, 1, 1, 1000).unwrap();
        let mut found = [1; 4000];
        tested.device.read(&new, &mut found).unwrap();
        assert_eq!(found, [0; 4000]);
    }
}
