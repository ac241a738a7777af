//! What devices refuse, and how.

use argon_kernels::DType::{F32, I32};
use argon_kernels::op::{Add, Embed, Gating, RmsNorm, Route, RouteConfig};
use argon_kernels::{DType, Device, DeviceError, Tensor};

use crate::harness::{cpu, devices, outcomes};

#[test]
fn an_id_outside_the_table() {
    for (ids, entry, id) in [([0, 5, 9], 1, 5), ([0, 1, -1], 2, -1), ([i32::MIN, 0, 0], 0, i32::MIN)] {
        for outcome in outcomes(|a| {
            let ids = a.ints("ids", [3, 1, 1], &ids);
            Embed { table: a.weight(5, 4), ids, out: a.output("out", F32, [3, 1, 4]) }.into()
        }) {
            assert_eq!(outcome, Err(DeviceError::IdOutOfRange { op: "embed", entry, id: id.into(), limit: 5 }));
        }
    }
}

/// The first of several, in whatever order threads meet them.
#[test]
fn a_logit_that_is_not_a_number() {
    for outcome in outcomes(|a| {
        let logits =
            a.floats_by("logits", F32, [100, 1, 4], |i| if i / 4 >= 41 && i % 4 == 2 { f32::NAN } else { 0.0 });
        let config = RouteConfig {
            gating: Gating::Softmax,
            top_k: 2,
            groups: None,
            renormalise: true,
            scale: 1.0,
            tail_share: None,
        };
        let (ids, weights) = (a.output("ids", I32, [100, 1, 2]), a.output("weights", F32, [100, 1, 2]));
        Route { logits, bias: None, config, layer: 17, ids, weights }.into()
    }) {
        assert_eq!(outcome, Err(DeviceError::NanLogit { layer: 17, token: 41 }));
    }
}

fn is_shape_error(outcomes: Vec<Result<(), DeviceError>>, what: &str) {
    for outcome in outcomes {
        assert!(matches!(outcome, Err(DeviceError::Shape { .. })), "{what}: {outcome:?}");
    }
}

#[test]
fn operands_that_overlap() {
    is_shape_error(
        outcomes(|a| {
            let x = a.floats("x", [4, 1, 8]);
            Add { src: x.rows(0..3), dst: x.rows(1..4) }.into()
        }),
        "shifted rows",
    );
    is_shape_error(
        outcomes(|a| {
            let x = a.floats("x", [4, 1, 8]);
            RmsNorm { x: x.cols(0..4), weight: a.floats("weight", [1, 1, 4]), eps: 0.0, out: x.cols(1..5) }.into()
        }),
        "in place, but not quite",
    );
    is_shape_error(
        outcomes(|a| {
            let x = a.floats("x", [4, 1, 8]);
            Add { src: a.floats("y", [4, 1, 8]), dst: Tensor { row_stride: 4, ..x } }.into()
        }),
        "rows that overlap each other",
    );
}

#[test]
fn columns_side_by_side_do_not_overlap() {
    for outcome in outcomes(|a| {
        let x = a.floats("x", [4, 1, 8]);
        Add { src: x.cols(0..4), dst: x.cols(4..8) }.into()
    }) {
        assert_eq!(outcome, Ok(()));
    }
}

#[test]
fn a_tensor_beyond_its_buffer() {
    let huge = usize::MAX / 2;
    for (offset, row_stride) in [(1, 8), (huge, 8), (0, huge), (usize::MAX, 8)] {
        is_shape_error(
            outcomes(|a| {
                let x = a.floats("x", [4, 1, 8]);
                let end = Tensor { offset: offset.saturating_mul(17), row_stride, ..x };
                Add { src: a.floats("y", [4, 1, 8]), dst: end }.into()
            }),
            "beyond the end",
        );
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
        let buffer = tested.device.alloc(4000).unwrap();
        assert_eq!(crate::harness::words(&*tested.device, &buffer), vec![0; 1000]);
    }
}
