//! Products of every row map, epilogue, size and precision against the reference device.

use argon_gguf::{Bytes, Format};
use argon_kernels::cuda::tune::{self, Product, Tile};
use argon_kernels::cuda::{CudaDevice, CudaOptions, Machine};
use argon_kernels::op::{Epilogue, Gemm, RowMap};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{Device, Precision, Weight};

use crate::support::product::{Case, End, Map};
use crate::support::weights::filled;
use crate::{gpu, options};

/// The largest relative L2 error with standard normal inputs.
fn bound(case: &Case) -> f64 {
    // SwiGLU: the product of two numbers that are each off by as much, and silu's slope is up to 1.1. Where one input
    // dominates, its rounding is in both, and adds up.
    let products = match case.end {
        End::SwiGlu | End::SwiGluOf(_) if case.outlier > 1.0 => 2.0,
        End::SwiGlu | End::SwiGluOf(_) => 1.5,
        End::Silu => 1.3,
        _ => 1.0,
    };
    // Where a few sums are the whole result, all of them may be small ones and their errors large: the distance of n numbers
    // spreads by a share of 1 / sqrt(n).
    let few = (1.0 + 3.0 / ((case.tokens * case.n) as f64).sqrt()).min(3.0);
    let twice = matches!(case.format, Format::Q2_K | Format::Q4_K | Format::Q5_K);
    match case.precision {
        // About sqrt(K) * 2^-25 of the sums' roundings.
        Precision::F32 => few * 1e-6f64.max((case.k as f64).sqrt() * 2f64.powi(-25)) * products,
        // An input and a weight are rounded to f16, the weight twice where decode.cuh says so: each by at most 2^-11, evenly
        // spread, and all mantissas may be the worst, 1.
        _ => few * 2f64.powi(-11) / 3f64.sqrt() * if twice { 3f64 } else { 2f64 }.sqrt() * products,
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
const TYPICAL: [Format; 2] = [Format::IQ4_NL, Format::IQ2_XS];

/// A dense and a routed product, one of a single block, and one of many rows.
pub fn check_format(format: Format) {
    for precision in PRECISIONS {
        Case::dense(format, precision).check();
        Case { end: End::SwiGlu, ..Case::routed(format, precision, Map::Gather) }.check();
        Case { k: format.block_len(), ..Case::dense(format, precision) }.check();
    }
    Case { tokens: 130, ..Case::dense(format, Precision::F16) }.check();
    let dense = Case { large: true, ..Case::dense(format, Precision::F16) };
    dense.check();
    Case { end: End::Silu, ..dense }.check();
    Case { large: true, end: End::SwiGlu, ..Case::routed(format, Precision::F16, Map::Gather) }.check();
}

/// For the memory checkers.
pub fn a_few() {
    for format in TYPICAL {
        Case { k: 512, ..Case::dense(format, Precision::F16) }.check();
        Case { end: End::SwiGlu, ..Case::routed(format, Precision::F16, Map::Gather) }.check();
        Case::routed(format, Precision::F16, Map::Segments).check();
    }
    for end in [End::Bias, End::Accumulate, End::Silu, End::GateMean, End::SwiGluOf(Format::Q8_0)] {
        Case { end, ..Case::dense(Format::IQ4_NL, Precision::F16) }.check();
    }
    for (streams, tokens, precision) in [(2, 9, Precision::F16), (4, 70, Precision::F16), (16, 40, Precision::F32)] {
        Case { streams, tokens, n: 36, end: End::GateMean, ..Case::dense(Format::BF16, precision) }.check();
    }
    // Columns in shares; a few outputs in f32; weights beyond f16.
    Case { k: 2048, tokens: 1, ..Case::dense(Format::IQ4_NL, Precision::F16) }.check();
    Case { k: 2048, n: 3, ..Case::dense(Format::F32, Precision::F32) }.check();
    Case { large: true, end: End::SwiGlu, ..Case::routed(Format::Q8_0, Precision::F16, Map::Gather) }.check();
}

#[test]
fn few_outputs() {
    use End::*;
    for (n, format) in
        [1, 2, 4, 5, 64].into_iter().flat_map(|n| [(n, Format::F32), (n, Format::BF16), (n, Format::Q8_0)])
    {
        for end in [Store, Bias, Accumulate, Silu] {
            for (tokens, k) in [(1, 2560), (9, 64), (33, 1056)] {
                Case { n, end, tokens, k, ..Case::dense(format, Precision::F32) }.check();
            }
        }
    }
}

#[test]
fn columns_in_shares() {
    use End::*;
    for (format, k) in [(Format::Q8_0, 10240), (Format::IQ4_NL, 2560), (Format::IQ2_XS, 4096), (Format::Q4_K, 3072)] {
        for end in [Store, Bias, Accumulate, Silu] {
            for (tokens, n) in [(1, 40), (9, 320), (200, 70)] {
                Case { n, end, tokens, k, ..Case::dense(format, Precision::F16) }.check();
            }
        }
        Case { k, n: 320, large: true, ..Case::dense(format, Precision::F16) }.check();
        Case { k, tokens: 33, outlier: 1e5, ..Case::dense(format, Precision::F16) }.check();
    }
}

#[test]
fn every_row_map_with_every_epilogue() {
    use End::*;
    for format in TYPICAL {
        for precision in PRECISIONS {
            for end in [Store, Bias, Accumulate, Silu, SwiGlu, SwiGluOf(Format::Q8_0), GateMean] {
                Case { end, k: 256, ..Case::dense(format, precision) }.check();
            }
            for map in [Map::Gather, Map::Segments] {
                for end in [Store, Accumulate, Silu, SwiGlu, SwiGluOf(Format::Q8_0)] {
                    Case { end, k: 256, ..Case::routed(format, precision, map) }.check();
                }
            }
        }
    }
}

/// Streams that a warp has all of, and others; columns that are no whole blocks of threads; and every height.
#[test]
fn means_of_gated_streams() {
    for precision in PRECISIONS {
        for streams in [1, 2, 3, 4, 5, 8, 16] {
            for (tokens, n) in [(0, 4), (1, 1), (1, 640), (7, 36), (9, 33), (17, 4), (64, 16), (65, 75), (200, 132)] {
                let case = Case { streams, tokens, n, end: End::GateMean, ..Case::dense(Format::BF16, precision) };
                case.check();
            }
        }
        let case = Case { streams: 4, n: 300, end: End::GateMean, ..Case::dense(Format::Q8_0, precision) };
        for tokens in [30, 90, 128, 300] {
            Case { tokens, k: 320, ..case }.check();
        }
        // Logits near 0, where a gate is not simply 0 or 1, also of weights beyond f16.
        for streams in [2, 4, 8, 16] {
            Case { streams, large: true, size: 1e-6, ..case }.check();
            Case { streams, k: 2048, size: 0.02, ..case }.check();
        }
    }
}

/// Below, at and above the heights, the rows and the stages of the tiles.
#[test]
fn every_size() {
    for precision in PRECISIONS {
        let dense = Case { k: 64, ..Case::dense(Format::IQ4_NL, precision) };
        for tokens in [0, 1, 7, 8, 9, 16, 17, 33, 64, 65, 97, 129, 192, 193, 400] {
            Case { tokens, ..dense }.check();
        }
        for n in [0, 1, 63, 64, 65, 127, 128, 129, 300] {
            Case { n, ..dense }.check();
            Case { n, end: End::SwiGlu, ..dense }.check();
        }
        for k in [0, 32, 96, 128, 160, 256, 416, 640] {
            Case { k, ..dense }.check();
        }
        for k in [256, 512, 768, 1280] {
            Case { k, tokens: 70, ..Case::dense(Format::IQ2_XS, precision) }.check();
            Case { k, tokens: 5, ..Case::dense(Format::Q6_K, precision) }.check();
        }
        // Plain numbers in rows of any length.
        for (format, k) in
            [(Format::F32, 1), (Format::F32, 37), (Format::F16, 33), (Format::BF16, 31), (Format::F16, 64)]
        {
            Case { k, ..Case::dense(format, precision) }.check();
        }
    }
}

/// More tiles and blocks of weight rows than the card holds blocks of threads, which share them unevenly.
#[test]
fn uneven_shares() {
    let many =
        Case { tokens: 2300, tile: 8, n: 200, k: 64, ..Case::routed(Format::IQ4_NL, Precision::F16, Map::Gather) };
    many.check();
    Case { map: Map::Segments, n: 300, ..many }.check();
    let wide = Case { tokens: 1900, tile: 16, n: 130, k: 256, end: End::SwiGlu, ..many };
    Case { format: Format::IQ2_XS, ..wide }.check();
    Case { tokens: 500, n: 20_000, k: 64, ..Case::dense(Format::IQ4_NL, Precision::F16) }.check();
}

/// Tokens that stay in shared memory, and such that are fetched with each stage, whatever the choice would be.
#[test]
fn tokens_kept_and_staged() {
    if gpu().is_none() {
        return;
    }
    fn kept(machine: &Machine, product: &Product) -> Tile {
        Tile {
            resident: true,
            chunk: 256,
            stages: 3,
            blocks: 1,
            groups: 2,
            copies: 1,
            ..tune::choose(machine, product)
        }
    }
    fn staged(machine: &Machine, product: &Product) -> Tile {
        Tile {
            resident: false,
            chunk: 256,
            stages: 2,
            blocks: 1,
            groups: 4,
            copies: 1,
            ..tune::choose(machine, product)
        }
    }
    for tile in [kept as tune::Choose, staged] {
        let device = CudaDevice::new(CudaOptions { tile, ..options() }).unwrap();
        for (tokens, k) in [(5, 256), (9, 640), (30, 96), (64, 416)] {
            Case { tokens, n: 300, k, ..Case::dense(Format::IQ4_NL, Precision::F16) }.check_on(&device);
        }
        for tile in [8, 16, 64] {
            let case = Case { tile, tokens: 60, n: 200, k: 768, ..Case::dense(Format::IQ2_XS, Precision::F16) };
            let routed = Case { map: Map::Gather, end: End::SwiGlu, top_k: 3, experts: 6, ..case };
            routed.check_on(&device);
            Case { map: Map::Segments, end: End::Store, k: 512, ..routed }.check_on(&device);
        }
    }
}

/// Plans of any tile height, also beyond the kernel's tallest.
#[test]
fn every_tile_height() {
    for tile in [1, 3, 8, 16, 32, 64, 100, 128, 192, 500] {
        for map in [Map::Gather, Map::Segments] {
            for format in TYPICAL {
                let case = Case { tile, tokens: 300, k: 256, n: 70, ..Case::routed(format, Precision::F16, map) };
                case.check();
                Case { end: End::SwiGlu, ..case }.check();
            }
        }
    }
    for (tokens, experts, tile) in [(0, 3, 4), (1, 1, 1), (40, 1, 16), (5, 129, 8), (33, 257, 8)] {
        for map in [Map::Gather, Map::Segments] {
            Case { tokens, experts, tile, ..Case::routed(Format::IQ4_NL, Precision::F16, map) }.check();
        }
    }
}

/// A tile's product is as wide as its expert has rows, in eighths of the tile: just below, at and above each of them.
#[test]
fn every_width_of_a_tile() {
    for tile in [32, 64, 128, 192] {
        for rows in (4..=8).map(|eighths| tile * eighths / 8).flat_map(|rows| [rows - 1, rows, rows + 1]) {
            for map in [Map::Gather, Map::Segments] {
                let one = Case {
                    tile,
                    tokens: rows,
                    top_k: 1,
                    experts: 1,
                    ..Case::routed(Format::IQ4_NL, Precision::F16, map)
                };
                one.check();
            }
        }
    }
}

/// Real models exceed the range of half precision inside an expert.
#[test]
fn large_numbers_stay_finite_and_right() {
    let Some(gpu) = gpu() else { return };
    for precision in PRECISIONS {
        for end in [End::Store, End::SwiGlu] {
            for base in [Case::dense(Format::IQ2_XS, precision), Case::routed(Format::IQ2_XS, precision, Map::Gather)] {
                let case = Case { end, outlier: 1e5, ..base };
                case.check();
                let large = Case { size: 1e7, ..case };
                large.check();
                assert!(large.run(&*gpu).iter().any(|x| x.abs() > 65504.0), "{large:?}");
            }
        }
    }
}

/// A bfloat16 may be beyond the range of half precision by itself.
#[test]
fn large_weights_stay_finite_and_right() {
    let Some(gpu) = gpu() else { return };
    let (n, k) = (40, 64);
    let numbers: Vec<u16> = (0..n * k).map(|i| half::bf16::from_f32([1.5, -3e5, 0.01][i % 97 % 3]).to_bits()).collect();
    let run = |device: &dyn Device, largest: u16| {
        let numbers: Vec<u16> = numbers.iter().map(|&x| (x & 0x8000) | (x & 0x7fff).min(largest)).collect();
        let buffer = device.constant(Bytes::from(bytemuck::cast_slice::<u16, u8>(&numbers).to_vec())).unwrap();
        let w = Weight::dense(buffer, Format::BF16, 1, n, k).unwrap();
        let x = filled(device, [5, 1, k], &(0..5 * k).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<_>>());
        let out = filled(device, [5, 1, n], &vec![0.0; 5 * n]);
        let (rows, epilogue, precision) = (RowMap::Identity, Epilogue::Store, Precision::F16);
        device.enqueue(&Gemm { x, w, bias: None, rows, epilogue, precision, out: out.clone() }.into()).unwrap();
        let mut values = vec![0.0f32; 5 * n];
        device.read(&out, bytemuck::cast_slice_mut(&mut values)).unwrap();
        values
    };
    // All of it; then nothing above 65280, the largest that is within.
    for largest in [u16::MAX, 0x477f] {
        let (got, want) = (run(&*gpu, largest), run(&ReferenceDevice::default(), largest));
        for (got, want) in got.iter().zip(&want) {
            // Sums of 64 products up to 1e6, in any order.
            assert!((got - want).abs() <= 1e-6 * 64.0 * 9e5, "{got} for {want}");
        }
    }
}

/// The tensor cores of cards before and after 9.0 take another instruction; the code is the same otherwise.
#[test]
fn the_code_for_other_cards() {
    if gpu().is_none() {
        return;
    }
    let device = CudaDevice::new(CudaOptions { capability: Some(80), ..options() }).unwrap();
    for format in [Format::IQ4_NL, Format::IQ2_XS, Format::Q4_K] {
        Case { k: 512, ..Case::dense(format, Precision::F16) }.check_on(&device);
    }
    for tokens in [8, 70, 200] {
        Case { tokens, k: 160, n: 130, ..Case::dense(Format::IQ4_NL, Precision::F16) }.check_on(&device);
    }
    Case { end: End::SwiGlu, ..Case::routed(Format::IQ2_XS, Precision::F16, Map::Gather) }.check_on(&device);
    Case::routed(Format::IQ4_NL, Precision::F16, Map::Segments).check_on(&device);
}
