//! Products of every format, row map, epilogue and size against the reference device.

use argon_gguf::{Bytes, Format, decode_row};
use argon_kernels::device::tensor;
use argon_kernels::op::{Epilogue, Gemm, RowMap};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::wgpu::{Products, WgpuOptions};
use argon_kernels::{DType, Device, Precision, Weight};

use crate::support::product::{Case, End, Map};
use crate::support::weights::{Rng, filled, random};
use crate::{gpu, open, options};

/// Block sizes of their own each: K = 64 for odd shapes, super-blocks.
const TYPICAL: [Format; 2] = [Format::IQ4_NL, Format::IQ2_XS];

/// A small dense product, of one block of columns or two.
fn small_dense(format: Format, precision: Precision) -> Case {
    Case { k: format.block_len().max(64), ..Case::dense(format, precision) }
}

/// A small routed product, in tiles of the least height.
fn small_routed(format: Format, precision: Precision, map: Map) -> Case {
    Case { tile: 16, k: format.block_len().max(64), ..Case::routed(format, precision, map) }
}

/// The largest relative L2 error with standard normal inputs.
fn bound(case: &Case) -> f64 {
    let swiglu = matches!(case.end, End::SwiGlu | End::SwiGluOf(_));
    match case.precision {
        // About sqrt(K) * 2^-25 of the sums' roundings, K up to 1280. SwiGLU multiplies two such numbers, and silu's
        // slope is up to 1.1.
        Precision::F32 => 1e-6 * if swiglu { 1.5 } else { 1.0 },
        // One number is nearly all of a row, so its rounding, up to 2^-11, is the row's error, and a SwiGLU's twice.
        _ if case.outlier > 1.0 => {
            if swiglu {
                1.1e-3
            } else {
                6e-4
            }
        }
        // An input is rounded to f16, 2e-4 on average over evenly spread mantissas. A weight's mantissas are not: where a
        // format's few values share one, its rounding is up to 2^-11. Together, in the square root of the sum of
        // squares, 5.3e-4.
        _ => 5.4e-4 * if swiglu { 1.5 } else { 1.0 },
    }
}

/// The comparison within this device's bound.
trait Check {
    /// On the GPU, if there is one.
    fn check(&self);

    /// On a device.
    fn check_on(&self, device: &dyn Device);
}

impl Check for Case {
    fn check(&self) {
        if let Some(gpu) = gpu() {
            self.check_on(&*gpu);
        }
    }

    fn check_on(&self, device: &dyn Device) {
        let error = self.error(device);
        assert!(error <= bound(self), "relative error {error:.3e} in {self:?}");
    }
}

const PRECISIONS: [Precision; 2] = [Precision::F16, Precision::F32];

#[test]
fn every_format() {
    for format in Format::weights() {
        for precision in PRECISIONS {
            small_dense(format, precision).check();
            Case { end: End::SwiGlu, ..small_routed(format, precision, Map::Gather) }.check();
        }
    }
}

/// Weights of every format in several buffers, few rows of the input and more.
#[test]
fn every_format_in_several_buffers() {
    let low = |max_binding| open(WgpuOptions { max_binding: Some(max_binding), ..options() });
    // Matrices lay the rows of a routed input out in sixteens: nine of them are 72 KiB.
    let (Some(dense), Some(routed)) = (low(32 << 10), low(128 << 10)) else { return };
    for format in Format::weights() {
        // Nearly two bindings altogether: outputs are below one.
        let rows = |bytes: usize, k: usize| bytes / format.row_bytes(k).expect("whole blocks");
        for (precision, tokens) in [(Precision::F16, 3), (Precision::F16, 9), (Precision::F32, 9)] {
            Case { tokens, k: 512, n: rows(60 << 10, 512), ..small_dense(format, precision) }.check_on(&*dense);
        }
        for map in [Map::Gather, Map::Segments] {
            let base = small_routed(format, Precision::F16, map);
            let n = rows((240 << 10) / base.experts, 256);
            Case { tokens: 9, top_k: 1, tile: 1, k: 256, n, ..base }.check_on(&*routed);
        }
    }
}

#[test]
fn every_row_map_with_every_epilogue() {
    use End::*;
    let format = Format::IQ2_XS;
    for precision in PRECISIONS {
        for end in [Store, Bias, Accumulate, Silu, SwiGlu, SwiGluOf(Format::Q8_0), GateMean] {
            Case { end, ..small_dense(format, precision) }.check();
        }
        for map in [Map::Gather, Map::Segments] {
            for end in [Store, Accumulate, Silu, SwiGlu, SwiGluOf(Format::Q8_0)] {
                Case { end, ..small_routed(format, precision, map) }.check();
            }
        }
    }
}

/// Where subgroups decode a weight each for itself: of up to 8 tokens, whose experts have up to one row, four, or eight, or more
/// than are summed at a time.
#[test]
fn few_rows() {
    use End::*;
    for format in Format::weights() {
        let one = Case { tokens: 1, ..small_dense(format, Precision::F32) };
        one.check();
        Case { tokens: 8, end: SwiGlu, ..one }.check();
        Case { tokens: 1, end: SwiGlu, ..small_routed(format, Precision::F16, Map::Gather) }.check();
    }
    let format = Format::IQ2_XS;
    for tokens in [1, 3, 7, 8] {
        for end in [Store, Bias, Accumulate, Silu, SwiGlu, SwiGluOf(Format::Q8_0), GateMean] {
            Case { tokens, end, ..small_dense(format, Precision::F16) }.check();
        }
        for map in [Map::Gather, Map::Segments] {
            for (end, tile) in [(Store, 1), (Accumulate, 16), (SwiGlu, 16), (SwiGlu, 100)] {
                for experts in [1, 3, 40] {
                    Case { tokens, end, tile, experts, ..small_routed(format, Precision::F16, map) }.check();
                }
            }
        }
    }
    // Rows that end within the eight columns of a thread, and one that is not read by fours.
    for (format, k) in [(Format::F32, 4), (Format::F32, 36), (Format::BF16, 1028), (Format::F16, 30)] {
        Case { k, tokens: 3, ..small_dense(format, Precision::F32) }.check();
    }
}

/// Below, at and above the heights, the columns and the steps of the tiles.
#[test]
fn every_size() {
    for precision in PRECISIONS {
        let dense = Case { k: 64, ..small_dense(Format::IQ4_NL, precision) };
        for tokens in [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130] {
            Case { tokens, ..dense }.check();
        }
        for n in [0, 1, 31, 32, 33, 63, 64, 65, 129] {
            // Bounds are those of a mean, so of many outputs: of nine, some may be sums that are nearly 0.
            let tokens = if n == 1 { 130 } else { dense.tokens };
            Case { n, tokens, ..dense }.check();
            Case { n, tokens, end: End::SwiGlu, ..dense }.check();
        }
        for k in [0, 32, 96, 160, 640] {
            Case { k, ..dense }.check();
        }
        // Plain numbers in rows of any length.
        for (format, k) in [(Format::F32, 1), (Format::F32, 37), (Format::F16, 34), (Format::BF16, 30)] {
            Case { k, ..small_dense(format, precision) }.check();
        }
    }
}

/// Plans of any tile height, also beyond the kernel's tallest.
#[test]
fn every_tile_height() {
    for tile in [1, 3, 16, 17, 32, 64, 100, 192] {
        for map in [Map::Gather, Map::Segments] {
            let case = Case { tile, tokens: 100, n: 70, ..small_routed(Format::IQ4_NL, Precision::F16, map) };
            case.check();
            Case { end: End::SwiGlu, ..case }.check();
        }
    }
    for (tokens, experts, tile) in [(0, 3, 4), (1, 1, 1), (40, 1, 16), (5, 129, 8), (33, 257, 8)] {
        for map in [Map::Gather, Map::Segments] {
            Case { tokens, experts, tile, ..small_routed(Format::IQ4_NL, Precision::F16, map) }.check();
        }
    }
}

/// Real models exceed the range of half precision inside an expert.
#[test]
fn large_numbers_stay_finite_and_right() {
    let Some(gpu) = gpu() else { return };
    for precision in PRECISIONS {
        for end in [End::Store, End::SwiGlu] {
            for base in [small_dense(Format::IQ2_XS, precision), small_routed(Format::IQ2_XS, precision, Map::Gather)] {
                let case = Case { end, outlier: 1e5, ..base };
                case.check();
                let large = Case { size: 1e7, ..case };
                large.check();
                assert!(large.run(&*gpu).iter().any(|x| x.abs() > 65504.0), "{large:?}");
            }
        }
    }
}

/// Weights in several buffers, calls in several submits, grids folded: the same bits.
#[test]
fn limits_do_not_change_a_bit() {
    let low = WgpuOptions { max_groups: Some(20), max_binding: Some(160 << 10), work_per_submit: 100_000, ..options() };
    let (Some(gpu), Some(low)) = (gpu(), open(low)) else { return };
    for format in TYPICAL {
        for precision in PRECISIONS {
            for base in [small_dense(format, precision), small_routed(format, precision, Map::Gather)] {
                for end in [End::Store, End::Accumulate, End::SwiGlu] {
                    // Two to four buffers of 160 KiB.
                    let n = if base.map == Map::Identity { 1200 } else { 300 };
                    let case = Case { end, n, tokens: 5, k: 512, ..base };
                    case.check_on(&*low);
                    assert_eq!(case.run(&*gpu), case.run(&*low), "{case:?}");
                }
            }
        }
    }
}

/// Products by f16 matrices against the exact product of the operands as they declare to round them.
#[test]
fn f16_operands_are_rounded_once() {
    let Some(gpu) = gpu().filter(|gpu| gpu.tier().products != Products::F32Tiles) else { return };
    let half = |x: &f32| half::f16::from_f32(*x);
    for format in TYPICAL {
        let (m, n, k) = (70, 100, 1280);
        let mut rng = Rng::new(3);
        let x: Vec<f32> = (0..m * k).map(|_| rng.normal()).collect();
        let bytes = random(format, n * k, &mut rng);
        let mut w = vec![0f32; n * k];
        decode_row(format, &bytes, &mut w);
        let rounded_w: Vec<u8> = w.iter().flat_map(|w| half(w).to_le_bytes()).collect();
        let rounded_x: Vec<f32> = x.iter().map(|x| half(x).to_f32()).collect();
        let got = dense(&*gpu, &x, Bytes::from(bytes), format, [m, n, k]);
        let want = dense(&ReferenceDevice::default(), &rounded_x, Bytes::from(rounded_w), Format::F16, [m, n, k]);
        let distance: f64 = got.iter().zip(&want).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
        let size: f64 = want.iter().map(|b| f64::from(*b).powi(2)).sum();
        // f32 sums of 1280 exact products.
        assert!((distance / size).sqrt() <= 3e-5, "{format}: {:e}", (distance / size).sqrt());
    }
}

fn dense(device: &dyn Device, x: &[f32], w: Bytes, format: Format, [m, n, k]: [usize; 3]) -> Vec<f32> {
    let out = tensor(device, DType::F32, m, 1, n).unwrap();
    let gemm = Gemm {
        x: filled(device, [m, 1, k], x),
        w: Weight::dense(device.constant(w).unwrap(), format, 1, n, k).unwrap(),
        bias: None,
        rows: RowMap::Identity,
        epilogue: Epilogue::Store,
        precision: Precision::F16,
        out: out.clone(),
    };
    device.enqueue(&gemm.into()).unwrap();
    let mut values = vec![0.0; m * n];
    device.read(&out, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}
