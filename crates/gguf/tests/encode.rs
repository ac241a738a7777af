//! The encoders against gguf-py and ggml byte for byte, and against the decoders within what rounding allows.

mod common;

use argon_gguf::{Error, Format, decode_row, encode_row};
use common::{fixture, floats, words};

const ENCODABLE: [Format; 9] = [
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::Q8_0,
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::IQ4_NL,
];

fn encode(format: Format, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xAA; format.row_bytes(values.len()).unwrap()];
    encode_row(format, values, &mut bytes).unwrap();
    bytes
}

fn decode(format: Format, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; len];
    decode_row(format, bytes, &mut values);
    values
}

#[test]
fn the_bytes_are_those_of_gguf_py_and_ggml() {
    let values = floats(&fixture("qvec/src.f32"));
    for (format, expected) in [
        (Format::F16, "qvec/f16.bin"),
        (Format::BF16, "qvec/bf16.bin"),
        (Format::Q8_0, "qvec/q8_0.bin"),
        (Format::Q4_0, "encode/q4_0.bin"),
        (Format::Q4_1, "encode/q4_1.bin"),
        (Format::Q5_0, "encode/q5_0.bin"),
        (Format::Q5_1, "encode/q5_1.bin"),
    ] {
        let (found, expected) = (encode(format, &values), fixture(expected));
        let differing = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!((differing, found.len()), (None, expected.len()), "{format}");
    }
}

/// Values of many magnitudes, 32 of one magnitude each, so that every block has its own scale; none so small
/// that its scale would be a subnormal half, which has fewer bits.
fn values() -> Vec<f32> {
    let unit = |word: u64| (word >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0;
    let scale = |i: usize| [0.05, 0.3, 1.0, 30.0, 1000.0][i / 32 % 5];
    words().take(32 * 500).enumerate().map(|(i, word)| unit(word) * scale(i)).collect()
}

/// The largest error that rounding to the nearest can make, as a share of the block's largest magnitude: half a step, and
/// where the range is not symmetric a whole step at its short end; plus the rounding of scale and minimum to f16 (2^-11
/// of the largest value, twice).
fn bound(format: Format) -> f32 {
    let f16 = 2f32.powi(-10);
    match format {
        Format::F32 => 0.0,
        Format::F16 => 2f32.powi(-11),
        Format::BF16 => 2f32.powi(-8),
        Format::Q8_0 => 0.5 / 127.0 + f16,
        Format::Q4_0 => 1.0 / 8.0 + f16,              // +8 does not exist
        Format::Q4_1 => 2.0 * 0.5 / 15.0 + 2.0 * f16, // the range is up to twice the magnitude
        Format::Q5_0 => 1.0 / 16.0 + f16,
        Format::Q5_1 => 2.0 * 0.5 / 31.0 + 2.0 * f16,
        Format::IQ4_NL => 14.0 / 127.0 + f16, // from 113, the last value, to 127
        _ => unreachable!("no encoder"),
    }
}

#[test]
fn decoding_gives_back_the_values_within_a_rounding() {
    let values = values();
    for format in ENCODABLE {
        let decoded = decode(format, &encode(format, &values), values.len());
        for (block, (values, decoded)) in values.chunks(32).zip(decoded.chunks(32)).enumerate() {
            let largest = values.iter().fold(0f32, |largest, v| largest.max(v.abs()));
            for (i, (value, decoded)) in values.iter().zip(decoded).enumerate() {
                let error = (value - decoded).abs();
                assert!(error <= bound(format) * largest, "{format}, weight {i} of block {block}: {value}, {decoded}");
            }
        }
    }
}

#[test]
fn encoding_what_was_decoded_changes_nothing_more() {
    let values = values();
    for format in ENCODABLE {
        let once = decode(format, &encode(format, &values), values.len());
        let twice = decode(format, &encode(format, &once), values.len());
        for (a, b) in once.iter().zip(&twice) {
            assert!((a - b).abs() <= a.abs() * 2f32.powi(-9), "{format}: {a} became {b}");
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for format in ENCODABLE {
        assert_eq!(decode(format, &encode(format, &[0.0; 64]), 64), [0.0; 64], "{format}");
    }
}

#[test]
fn values_that_are_not_finite_are_no_panic() {
    for format in ENCODABLE {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE / 8.0] {
            let mut values = [1.0; 32];
            values[7] = odd;
            assert_eq!(encode(format, &values).len(), format.row_bytes(32).unwrap());
        }
    }
}

#[test]
fn a_format_without_an_encoder_says_so() {
    for &format in Format::ALL.iter().filter(|format| !ENCODABLE.contains(format)) {
        let result = encode_row(format, &vec![0.0; format.block_len()], &mut vec![0; format.block_bytes()]);
        assert_eq!(result, Err(Error::NoEncoder { format }));
    }
}
