//! Gathers, exactly: against the definition, number by number.

use argon_kernels::cpu::{CpuDevice, CpuOptions};
use argon_kernels::device::tensor;
use argon_kernels::op::{Plan, PlanBuffers};
use argon_kernels::{DType, Device, DeviceError, Tensor};
use argon_plan::{Shape, Variant};
use half::f16;

const TOKENS: usize = 37;
const TOP_K: usize = 3;
const EXPERTS: usize = 5;
const COLS: usize = 33;

/// Numbers of every size, among them subnormal halves, ties, and the last that f16 holds.
fn numbers() -> Vec<f32> {
    let mut numbers: Vec<f32> = (0..TOKENS * COLS).map(|i| ((i * 7919 % 1009) as f32 - 504.0) * 0.37).collect();
    let odd = [0.0, -0.0, 1e-7, 5.96e-8, 2.98e-8, 6.1e-5, 2049.0, 2051.0, 65504.0, -65519.0];
    numbers[..odd.len()].copy_from_slice(&odd);
    // Beyond f16's range: by a little, by much, and at its edge.
    numbers[COLS] = 65520.0;
    numbers[2 * COLS + 5] = -3.0e38;
    numbers[3 * COLS + 1] = 131040.0;
    numbers
}

fn filled(device: &CpuDevice, dtype: DType, shape: [usize; 2], bytes: &[u8]) -> Tensor {
    let tensor = tensor(device, dtype, shape[0], 1, shape[1]).unwrap();
    device.write(&tensor, bytes).unwrap();
    tensor
}

fn halves(device: &CpuDevice, tensor: &Tensor) -> Vec<u16> {
    let mut bytes = vec![0u8; tensor.len() * 2];
    device.read(tensor, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|bytes| u16::from_ne_bytes(*bytes)).collect()
}

/// The plan of some ids, a skipped one among them, on the device and on the host.
fn plan(device: &CpuDevice) -> (PlanBuffers, argon_plan::Plan) {
    let shape = Shape::new(TOKENS, TOP_K, EXPERTS, 8).unwrap();
    let ids: Vec<i32> = (0..shape.entries()).map(|i| (i * i % 6) as i32 - 1).collect();
    let host = argon_plan::Plan::build(shape, &ids, &vec![0; ids.len()], Variant::default()).unwrap();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
    let ids = filled(device, DType::I32, [TOKENS, TOP_K], &bytes);
    let weights = tensor(device, DType::F32, TOKENS, 1, TOP_K).unwrap();
    let plan = PlanBuffers::new(device, shape).unwrap();
    device.enqueue(&Plan { ids, weights, plan: plan.clone() }.into()).unwrap();
    (plan, host)
}

#[test]
fn both_sources_give_the_bits_of_the_definition() {
    let device = CpuDevice::new(CpuOptions::default()).unwrap();
    let (plan, host) = plan(&device);
    let numbers = numbers();
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let x = filled(&device, DType::F32, [TOKENS, COLS], &bytes);
    let exponents = tensor(&device, DType::I32, 1, 1, TOKENS).unwrap();
    // What is beyond the last row stays.
    let polluted = vec![0xAB; plan.shape.max_rows() * COLS * 2];
    let out = filled(&device, DType::F16, [plan.shape.max_rows(), COLS], &polluted);
    device.gather(&x, &plan, &exponents, &out).unwrap();

    let mut found = vec![0u8; TOKENS * 4];
    device.read(&exponents, &mut found).unwrap();
    let exponents: Vec<i32> = found.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect();
    // 65520 by 2 fits; 3e38 by 2^112 is 57,778; 131040 by 2 is 65520, which does not fit.
    let mut expected = vec![0; TOKENS];
    expected[1..4].copy_from_slice(&[1, 112, 2]);
    assert_eq!(exponents, expected);

    let scaled: Vec<f16> =
        (0..numbers.len()).map(|i| f16::from_f64(f64::from(numbers[i]) * 2f64.powi(-exponents[i / COLS]))).collect();
    let mut rows: Vec<u16> = Vec::new();
    for &token in host.stok() {
        let row = usize::try_from(token).ok().map(|token| &scaled[token * COLS..(token + 1) * COLS]);
        rows.extend(row.map_or(vec![0; COLS], |row| row.iter().map(|x| x.to_bits()).collect()));
    }
    rows.resize(plan.shape.max_rows() * COLS, 0xABAB);
    assert!(host.stok().contains(&-1), "there is padding");
    assert_eq!(halves(&device, &out), rows);

    let bytes: Vec<u8> = scaled.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let x = filled(&device, DType::F16, [TOKENS, COLS], &bytes);
    let out = filled(&device, DType::F16, [plan.shape.max_rows(), COLS], &polluted);
    device.gather_h(&x, &plan, &out).unwrap();
    assert_eq!(halves(&device, &out), rows);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let device = CpuDevice::new(CpuOptions::default()).unwrap();
    let (plan, _) = plan(&device);
    let x = tensor(&device, DType::F16, TOKENS - 1, 1, COLS).unwrap();
    let out = tensor(&device, DType::F16, plan.shape.max_rows(), 1, COLS).unwrap();
    assert!(matches!(device.gather_h(&x, &plan, &out), Err(DeviceError::Shape { op: "gather", .. })));
    let x = tensor(&device, DType::F32, TOKENS, 1, COLS).unwrap();
    let exponents = tensor(&device, DType::I32, 1, 1, TOKENS - 1).unwrap();
    assert!(matches!(device.gather(&x, &plan, &exponents, &out), Err(DeviceError::Shape { op: "gather", .. })));
}
