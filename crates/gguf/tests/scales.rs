//! Scales that are not numbers, in every format.

use argon_gguf::quant::scales::{Scales, scales};
use argon_gguf::{Format, decode_row, scales_are_finite};
use proptest::prelude::*;

fn decodes_to_numbers(format: Format, bytes: &[u8]) -> bool {
    let mut weights = vec![0.0; bytes.len() / format.block_bytes() * format.block_len()];
    decode_row(format, bytes, &mut weights);
    weights.iter().all(|weight| weight.is_finite())
}

proptest! {
    /// Random bits hit an infinite or NaN half in one block of 32.
    #[test]
    fn finite_scales_are_finite_weights(blocks in 1usize..12, seed in prop::collection::vec(any::<u8>(), 12 * 256)) {
        for &format in Format::ALL {
            // A float of 64 bits may be a number that no float of 32 bits is.
            if format == Format::F64 { continue }
            let bytes = &seed[..blocks * format.block_bytes()];
            let (scales, weights) = (scales_are_finite(format, bytes), decodes_to_numbers(format, bytes));
            // A power of two may be too large for some values of its block and not for those that are there.
            let same = if format == Format::MXFP4 { weights || !scales } else { scales == weights };
            prop_assert!(same, "{}: scales finite {}, weights {}", format, scales, weights);
        }
    }
}

#[test]
fn one_bad_scale_in_a_row_is_found_wherever_it_is() {
    for &format in Format::ALL {
        let Scales::Halves(offsets) = scales(format) else { continue };
        let size = format.block_bytes();
        for block in 0..5 {
            for &at in offsets {
                for bad in [0x7c00u16, 0xfc00, 0x7e00, 0x7c01, 0xffff] {
                    let mut row = vec![0; 5 * size];
                    assert!(scales_are_finite(format, &row), "{format}");
                    row[block * size + at..][..2].copy_from_slice(&bad.to_le_bytes());
                    assert!(!scales_are_finite(format, &row), "{format}: {bad:#x} in block {block}");
                    row[block * size + at..][..2].copy_from_slice(&0x7bffu16.to_le_bytes());
                    assert!(scales_are_finite(format, &row), "{format}: the largest number");
                }
            }
        }
    }
}

#[test]
fn every_format_says_where_its_scales_are() {
    for &format in Format::ALL {
        match scales(format) {
            Scales::Halves(offsets) => {
                assert!(!offsets.is_empty() && offsets.iter().all(|at| at + 2 <= format.block_bytes()), "{format}");
            }
            Scales::Exponent(at) => assert_eq!((at, format), (0, Format::MXFP4)),
            Scales::HalfInNibbles(at) => assert_eq!(at + 8, format.block_bytes()),
            Scales::None => assert_eq!(format.block_len(), 1, "{format}"),
            Scales::AlwaysFinite => {}
        }
    }
}

#[test]
fn powers_of_two_that_are_too_large() {
    let mut block = [0x77; 17]; // sixes
    for (exponent, fine) in [(0, true), (127, true), (252, true), (253, false), (255, false)] {
        block[0] = exponent;
        assert_eq!(scales_are_finite(Format::MXFP4, &block), fine, "{exponent}");
        assert_eq!(decodes_to_numbers(Format::MXFP4, &block), fine, "{exponent}");
    }
}

#[test]
fn floats_by_themselves() {
    let f32s = |value: f32| [1f32, value].map(f32::to_le_bytes).concat();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(!scales_are_finite(Format::F32, &f32s(bad)));
        assert!(!scales_are_finite(Format::F64, &f64::from(bad).to_le_bytes()));
    }
    assert!(scales_are_finite(Format::F32, &f32s(f32::MAX)));
    assert!(scales_are_finite(Format::F32, &[]));
}
