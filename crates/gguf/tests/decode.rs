//! The decoders against ggml's own results, bit for bit.

use argon_gguf::{Format, decode_row};
use std::fs;
use std::path::PathBuf;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qvec").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn all_formats_decode_to_the_bits_of_ggml() {
    let index = String::from_utf8(fixture("index.tsv")).unwrap();
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

        let expected = floats(&fixture(&format!("{name}.f32")));
        let mut decoded = vec![0.0; number(rows) * number(cols)];
        decode_row(format, &fixture(&format!("{name}.bin")), &mut decoded);
        assert_eq!(decoded.len(), expected.len(), "{format}");
        for (i, (value, expected)) in decoded.iter().zip(&expected).enumerate() {
            assert_eq!(value.to_bits(), expected.to_bits(), "{format}: weight {i} is {value}, not {expected}");
        }
        seen += 1;
    }
    assert_eq!(seen, 27);
}
