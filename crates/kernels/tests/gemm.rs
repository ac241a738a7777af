//! Products of every format, row map, epilogue, precision and instruction set of the processor against the reference device.

mod support;

use std::num::NonZero;

use argon_gguf::Format;
use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};
use argon_kernels::{Device, Precision};
use support::product::{Case, End, Map};

/// The precisions of the CPU, each with the largest relative L2 error of one product of standard normal inputs with random
/// weights, and the reason for it.
const PRECISIONS: &[(Precision, f64)] = &[
    // f32 rounds each of K <= 1024 partial sums by at most 2^-24 of it: about sqrt(K) * 2^-25 in all, and then some.
    (Precision::F32, 1e-6),
    // Each activation is rounded to 1/32,639 of the largest of its 32, which is about 2 standard deviations: 1.8e-5 of the
    // standard deviation. Few columns, an outlier in them or a product of two products make that a few times as much.
    (Precision::F16, 1e-4),
    // The same with 1/127: 4.7e-3.
    (Precision::Int8, 1e-2),
];

/// Two formats with a block of their own kind each: K = 64 for odd shapes, super-blocks.
const TYPICAL: [Format; 2] = [Format::IQ4_NL, Format::IQ2_XS];

fn cpu(isa: Isa, threads: usize) -> CpuDevice {
    CpuDevice::new(CpuOptions { threads: NonZero::new(threads), isa: Some(isa), ..CpuOptions::default() }).unwrap()
}

/// Of two threads, with every instruction set.
fn devices() -> impl Iterator<Item = CpuDevice> {
    Isa::available().into_iter().map(|isa| cpu(isa, 2))
}

/// Each of these formats in every precision, with its bound.
fn in_every_precision(formats: impl IntoIterator<Item = Format>) -> impl Iterator<Item = (Format, Precision, f64)> {
    formats.into_iter().flat_map(|format| PRECISIONS.iter().map(move |&(precision, bound)| (format, precision, bound)))
}

fn check(device: &CpuDevice, case: &Case, bound: f64) {
    let error = case.error(device);
    assert!(error <= bound, "relative error {error:.3e} > {bound:.1e} in {case:?}, {}", device.info().name);
}

#[test]
fn every_format() {
    for device in devices() {
        for (format, precision, bound) in in_every_precision(Format::weights()) {
            check(&device, &Case::dense(format, precision), bound);
            check(&device, &Case::routed(format, precision, Map::Gather), bound);
            // One block is all there is.
            check(&device, &Case { k: format.block_len(), ..Case::dense(format, precision) }, bound);
        }
    }
}

#[test]
fn every_row_map_with_every_epilogue() {
    use End::*;
    for device in devices() {
        for (format, precision, bound) in in_every_precision(TYPICAL) {
            for end in [Store, Bias, Accumulate, Silu, SwiGlu, SwiGluOf(Format::Q8_0), GateMean] {
                check(&device, &Case { end, ..Case::dense(format, precision) }, bound);
            }
            for map in [Map::Gather, Map::Segments] {
                for end in [Store, Accumulate, Silu, SwiGlu, SwiGluOf(Format::Q8_0)] {
                    check(&device, &Case { end, ..Case::routed(format, precision, map) }, bound);
                }
            }
        }
    }
}

/// Zero, one, below, at and above the tile heights (up to 8), the panel width (16) and the blocks of rows (256).
#[test]
fn every_size() {
    for device in devices() {
        for &(precision, bound) in PRECISIONS {
            let dense = Case { k: 64, ..Case::dense(Format::IQ4_NL, precision) };
            for tokens in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 255, 256, 257] {
                check(&device, &Case { tokens, ..dense }, bound);
            }
            for n in [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65] {
                check(&device, &Case { n, ..dense }, bound);
                check(&device, &Case { n, end: End::GateMean, ..dense }, bound);
            }
            for k in [0, 32, 64, 96, 224, 256, 288, 512, 544] {
                check(&device, &Case { k, ..dense }, bound);
            }
            for (tokens, experts, tile) in [(0, 3, 4), (1, 1, 1), (40, 1, 16), (5, 129, 8), (33, 257, 1)] {
                for map in [Map::Gather, Map::Segments] {
                    let routed = Case::routed(Format::IQ4_NL, precision, map);
                    check(&device, &Case { tokens, experts, tile, k: 64, ..routed }, bound);
                }
            }
        }
    }
}

/// Few weight rows: below, at and above the number (4) up to which they have a kernel of their own; rows of the input that are
/// no whole vectors; the same bits on any number of threads and with any neighbours.
#[test]
fn few_weight_rows() {
    for (isa, n) in Isa::available().into_iter().flat_map(|isa| (1..=5).map(move |n| (isa, n))) {
        let [one, three] = [1, 3].map(|threads| cpu(isa, threads));
        for k in [1, 15, 16, 17, 100] {
            let case = Case { n, k, tokens: 40, ..Case::dense(Format::F32, Precision::F32) };
            check(&one, &case, 1e-6);
            let all = case.run_with_seed(&one, 5);
            assert_eq!(case.run_with_seed(&three, 5), all, "3 threads, {case:?}");
            assert_eq!(Case { tokens: 3, ..case }.run_with_seed(&one, 5), all[..3 * n], "3 rows, {case:?}");
        }
        check(&one, &Case { n, k: 64, ..Case::dense(Format::Q8_0, Precision::F32) }, 1e-6);
        check(&one, &Case { n, end: End::Bias, ..Case::dense(Format::F32, Precision::F32) }, 1e-6);
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for isa in Isa::available() {
        let [one, two, three] = [1, 2, 3].map(|threads| cpu(isa, threads));
        for (format, precision, _) in in_every_precision(TYPICAL) {
            let dense = Case { tokens: 40, n: 200, ..Case::dense(format, precision) };
            let routed = Case { end: End::SwiGlu, ..Case::routed(format, precision, Map::Gather) };
            for case in [dense, routed] {
                let bits = |device| case.run(device).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&two), bits(&one), "2 threads, {case:?}");
                assert_eq!(bits(&three), bits(&one), "3 threads, {case:?}");
            }
        }
    }
}

/// The same row gives the same bits whatever rows are computed beside it.
#[test]
fn the_same_bits_whatever_the_neighbours() {
    for device in devices() {
        for &(precision, _) in PRECISIONS {
            let row = |tokens| {
                let case = Case { tokens, ..Case::dense(Format::IQ2_XS, precision) };
                case.run_with_seed(&device, 5)[..case.n].to_vec()
            };
            let alone = row(1);
            for tokens in [2, 3, 5, 8, 9, 30] {
                assert_eq!(row(tokens), alone, "{tokens} rows, {}, {precision:?}", device.info().name);
            }
        }
    }
}

/// Real models exceed the range of half precision inside an expert.
#[test]
fn large_numbers_stay_finite_and_right() {
    for device in devices() {
        for &(precision, bound) in PRECISIONS {
            for end in [End::Store, End::SwiGlu] {
                let dense = Case { end, outlier: 1e5, ..Case::dense(Format::IQ2_XS, precision) };
                check(&device, &dense, bound);
                let large = Case { size: 1e7, ..dense };
                check(&device, &large, bound);
                assert!(large.run(&device).iter().any(|x| x.abs() > 65504.0));
            }
        }
    }
}
