//! Just enough of NumPy's file format to read fixtures: version 1, 32-bit floats, C order.

use std::path::Path;

/// An array with its shape.
pub struct Npy {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// Reads the file at `path`.
pub fn read(path: impl AsRef<Path>) -> Npy {
    let path = path.as_ref();
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(bytes[..8], *b"\x93NUMPY\x01\x00", "{}", path.display());
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..data]).unwrap();
    let field = |name: &str, end: char| {
        let rest = header.split_once(&format!("'{name}': ")).unwrap().1;
        rest.split(end).next().unwrap().trim_start_matches('(').trim_matches('\'').to_owned()
    };
    assert_eq!(field("fortran_order", ','), "False");
    assert_eq!(field("descr", ','), "<f4");
    let shape: Vec<usize> = field("shape", ')').split(',').filter_map(|n| n.trim().parse().ok()).collect();
    let values: Vec<f32> = bytes[data..].as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    assert_eq!(values.len(), shape.iter().product::<usize>());
    Npy { shape, values }
}
