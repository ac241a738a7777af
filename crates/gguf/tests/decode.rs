//! The decoders against ggml's own results, bit for bit.

mod common;

use argon_gguf::{Format, decode_row};
use common::{fixture, floats, words};

/// Each line of the index: the format, its name in the fixtures, bytes of a row, rows, columns.
#[test]
fn every_format_decodes_to_the_bits_of_ggml() {
    let index = String::from_utf8(fixture("qvec/index.tsv")).unwrap();
    let mut seen = 0;
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, name, block_len, block_bytes, row_bytes, rows, cols] = fields[..] else { panic!("index line {line}") };
        let number = |text: &str| text.parse::<usize>().unwrap();
        let format = Format::from_ggml(number(id) as u32).unwrap();
        assert!(format.name().eq_ignore_ascii_case(name), "{format} is called {name}");
        assert_eq!(format.block_len(), number(block_len), "{format}");
        assert_eq!(format.block_bytes(), number(block_bytes), "{format}");
        assert_eq!(format.row_bytes(number(cols)), Some(number(row_bytes)), "{format}");

        let expected = floats(&fixture(&format!("qvec/{name}.f32")));
        let mut decoded = vec![0.0; number(rows) * number(cols)];
        decode_row(format, &fixture(&format!("qvec/{name}.bin")), &mut decoded);
        assert_eq!(decoded.len(), expected.len(), "{format}");
        for (i, (value, expected)) in decoded.iter().zip(&expected).enumerate() {
            assert_eq!(value.to_bits(), expected.to_bits(), "{format}: weight {i} is {value}, not {expected}");
        }
        seen += 1;
    }
    assert_eq!(seen, 27);
}

/// Sums over 1024 random blocks as gguf-py decodes them: `fixtures/gguf_py.py` prints this table. Random bits reach what
/// no quantiser writes: NaN, infinite and subnormal scales, extreme small scales, digits beyond the ternary.
const GGUF_PY: [(Format, u64); 25] = [
    (Format::F16, 0x5169594dcfca0000),
    (Format::Q4_0, 0x08d2eeedbe704800),
    (Format::Q4_1, 0x93ddebd9ca570200),
    (Format::Q5_0, 0xc01cef61cee1b400),
    (Format::Q5_1, 0x853a69d16386968f),
    (Format::Q8_0, 0xaa42078a636a2240),
    (Format::Q2_K, 0x07cd31472162cec1),
    (Format::Q3_K, 0x41a86507f5a22180),
    (Format::Q4_K, 0xa019719e04279fdd),
    (Format::Q5_K, 0x20639854e13cf8de),
    (Format::Q6_K, 0x5e30b10e39f9fcb0),
    (Format::IQ2_XXS, 0x85f75927f6c6781c),
    (Format::IQ2_XS, 0x6dc5aa7f121f0d58),
    (Format::IQ3_XXS, 0x31e764333c4b5580),
    (Format::IQ1_S, 0xa8593dceda3dd5e0),
    (Format::IQ4_NL, 0x73858fd84cedfe40),
    (Format::IQ3_S, 0x54210f53c3346420),
    (Format::IQ2_S, 0x05571509695f8d40),
    (Format::IQ4_XS, 0xff4fed1567fb6980),
    (Format::IQ1_M, 0x48daaea148747b80),
    (Format::BF16, 0x6101cc371c880000),
    (Format::TQ1_0, 0xcfb5e4f02450c000),
    (Format::TQ2_0, 0x34c054c62bc62000),
    (Format::MXFP4, 0xb70433f413800000),
    (Format::NVFP4, 0x64e3a9cd1ab40000),
];

#[test]
fn random_blocks_decode_to_the_bits_of_gguf_py() {
    const BLOCKS: usize = 1024;
    for (format, expected) in GGUF_PY {
        let size = BLOCKS * format.block_bytes();
        let bytes: Vec<u8> = words().take(size.div_ceil(8)).flat_map(u64::to_le_bytes).take(size).collect();
        let mut values = vec![0.0f32; BLOCKS * format.block_len()];
        decode_row(format, &bytes, &mut values);
        let bits = |value: &f32| u64::from(if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() });
        let sum =
            values.iter().zip(words()).fold(0u64, |sum, (v, word)| sum.wrapping_add(bits(v).wrapping_mul(word | 1)));
        assert_eq!(sum, expected, "{format}");
    }
}

#[test]
fn any_bytes_decode() {
    for &format in Format::ALL {
        let mut values = vec![0.0f32; format.block_len() * 2];
        let size = format.block_bytes() * 2;
        for byte in 0..=255u8 {
            decode_row(format, &vec![byte; size], &mut values);
        }
        let all_zero = vec![0; size];
        decode_row(format, &all_zero, &mut values);
        // The shared exponent of MXFP4 has no zero, its values have.
        assert!(values.iter().all(|&value| value == 0.0), "{format}: {values:?}");
    }
}

#[test]
fn no_weights_decode_from_no_bytes() {
    for &format in Format::ALL {
        decode_row(format, &[], &mut []);
    }
}

#[test]
#[should_panic(expected = "bytes of 32 weights in Q8_0")]
fn bytes_and_weights_must_fit() {
    decode_row(Format::Q8_0, &[0; 33], &mut [0.0; 32]);
}

#[test]
fn integers_decode_to_the_nearest_float() {
    let decode = |format, bytes: &[u8]| {
        let mut value = [0.0];
        decode_row(format, bytes, &mut value);
        value[0]
    };
    assert_eq!(decode(Format::I8, &(-7i8).to_le_bytes()), -7.0);
    assert_eq!(decode(Format::I16, &(-300i16).to_le_bytes()), -300.0);
    assert_eq!(decode(Format::I32, &i32::MAX.to_le_bytes()), 2_147_483_648.0);
    assert_eq!(decode(Format::I64, &i64::MIN.to_le_bytes()), -9_223_372_036_854_775_808.0);
    assert_eq!(decode(Format::F64, &0.1f64.to_le_bytes()), 0.1);
}
