//! Products of every format, row map, epilogue, precision and instruction set against their definition in float64.

mod support;

use argon_gguf::Format;
use argon_kernels::Precision;
use argon_kernels::cpu::Isa;
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

fn check(case: &Case, bound: f64) {
    let error = case.run().error();
    assert!(error <= bound, "relative error {error:.3e} > {bound:.1e} in {case:?}");
}

#[test]
fn every_format() {
    for (isa, format) in Isa::available().into_iter().flat_map(|isa| Format::weights().map(move |format| (isa, format)))
    {
        for &(precision, bound) in PRECISIONS {
            check(&Case::dense(format, precision, isa), bound);
            check(&Case::routed(format, precision, isa, Map::Gather), bound);
            // One block is all there is.
            check(&Case { k: format.block_len(), ..Case::dense(format, precision, isa) }, bound);
        }
    }
}

#[test]
fn every_row_map_with_every_epilogue() {
    use End::*;
    for (isa, format) in Isa::available().into_iter().flat_map(|isa| TYPICAL.map(move |format| (isa, format))) {
        for &(precision, bound) in PRECISIONS {
            for end in [Store, Bias, Accumulate, Silu, SwiGlu, GateMean] {
                check(&Case { end, ..Case::dense(format, precision, isa) }, bound);
            }
            for map in [Map::Gather, Map::Segments] {
                for end in [Store, Accumulate, Silu, SwiGlu] {
                    check(&Case { end, ..Case::routed(format, precision, isa, map) }, bound);
                }
            }
        }
    }
}

/// Zero, one, below, at and above the tile heights (up to 8), the panel width (16) and the blocks of rows (256).
#[test]
fn every_size() {
    let format = Format::IQ4_NL;
    for isa in Isa::available() {
        for &(precision, bound) in PRECISIONS {
            for tokens in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 255, 256, 257] {
                check(&Case { tokens, k: 64, ..Case::dense(format, precision, isa) }, bound);
            }
            for n in [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65] {
                check(&Case { n, k: 64, ..Case::dense(format, precision, isa) }, bound);
                check(&Case { n, k: 64, end: End::GateMean, ..Case::dense(format, precision, isa) }, bound);
            }
            for k in [0, 32, 64, 96, 224, 256, 288, 512, 544] {
                check(&Case { k, ..Case::dense(format, precision, isa) }, bound);
            }
            for (tokens, experts, tile) in [(0, 3, 4), (1, 1, 1), (40, 1, 16), (5, 129, 8), (33, 257, 1)] {
                for map in [Map::Gather, Map::Segments] {
                    let case = Case { tokens, experts, tile, k: 64, ..Case::routed(format, precision, isa, map) };
                    check(&case, bound);
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
        for k in [1, 15, 16, 17, 100] {
            let case = Case { n, k, tokens: 40, ..Case::dense(Format::F32, Precision::F32, isa) };
            check(&case, 1e-6);
            let rows = |threads, tokens| Case { threads, tokens, ..case.clone() }.run_with_seed(5).got;
            let all = rows(1, 40);
            assert_eq!(rows(3, 40), all, "3 threads, {case:?}");
            assert_eq!(rows(1, 3), all[..3 * n], "3 rows, {case:?}");
        }
        check(&Case { n, k: 64, ..Case::dense(Format::Q8_0, Precision::F32, isa) }, 1e-6);
        check(&Case { n, end: End::Bias, ..Case::dense(Format::F32, Precision::F32, isa) }, 1e-6);
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let bits = |case: &Case| case.run().got.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (isa, format) in Isa::available().into_iter().flat_map(|isa| TYPICAL.map(move |format| (isa, format))) {
        for &(precision, _) in PRECISIONS {
            let dense = Case { tokens: 40, n: 200, ..Case::dense(format, precision, isa) };
            let routed = Case { end: End::SwiGlu, ..Case::routed(format, precision, isa, Map::Gather) };
            for case in [dense, routed] {
                let one = bits(&Case { threads: 1, ..case.clone() });
                for threads in [2, 3] {
                    assert_eq!(bits(&Case { threads, ..case.clone() }), one, "{threads} threads, {case:?}");
                }
            }
        }
    }
}

/// The same row gives the same bits whatever rows are computed beside it.
#[test]
fn the_same_bits_whatever_the_neighbours() {
    for isa in Isa::available() {
        for &(precision, _) in PRECISIONS {
            let row = |tokens| {
                let case = Case { tokens, ..Case::dense(Format::IQ2_XS, precision, isa) };
                case.run_with_seed(5).got[..37].to_vec()
            };
            let alone = row(1);
            for tokens in [2, 3, 5, 8, 9, 30] {
                assert_eq!(row(tokens), alone, "{tokens} rows, {isa:?}, {precision:?}");
            }
        }
    }
}

/// Real models exceed the range of half precision inside an expert.
#[test]
fn large_numbers_stay_finite_and_right() {
    for isa in Isa::available() {
        for &(precision, bound) in PRECISIONS {
            for end in [End::Store, End::SwiGlu] {
                let dense = Case { end, outlier: 1e5, ..Case::dense(Format::IQ2_XS, precision, isa) };
                check(&dense, bound);
                let large = Case { end, size: 1e7, ..dense };
                check(&large, bound);
                assert!(large.run().got.iter().any(|x| x.abs() > 65504.0));
            }
        }
    }
}
