//! NumPy array files: what `argon logits` writes and the oracles hold.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. Written: version 1.0, little-endian
//! f32, C order. Read: versions 1 to 3, C order, the little-endian types the oracles use; anything else is refused by name.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use argon_kernels::cpu::machine;

use crate::words::bytes;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Everything up to the data of an f32 array is padded to a multiple of this.
const ALIGNMENT: usize = 64;

/// An array with its elements in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// The elements, the last axis fastest.
    pub data: Vec<T>,
}

/// Bytes of an element in a file, and how to decode them.
type Decoder<T> = (usize, fn(&[u8]) -> T);

/// A type that can be read from a `.npy` file.
pub trait Element: Sized {
    /// What a message calls it.
    const NAME: &'static str;
    /// Decodes one element of the file's type `descr`, `None` if that type does not convert without loss.
    fn decoder(descr: &str) -> Option<Decoder<Self>>;
}

impl Element for f32 {
    const NAME: &'static str = "f32";

    fn decoder(descr: &str) -> Option<Decoder<f32>> {
        (descr == "<f4").then_some((4, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
    }
}

impl Element for i64 {
    const NAME: &'static str = "an integer type";

    fn decoder(descr: &str) -> Option<Decoder<i64>> {
        match descr {
            "<i4" => Some((4, |b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into())),
            "<i8" => Some((8, |b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))),
            _ => None,
        }
    }
}

impl Element for bool {
    const NAME: &'static str = "bool";

    fn decoder(descr: &str) -> Option<Decoder<bool>> {
        (descr == "|b1").then_some((1, |b| b[0] != 0))
    }
}

/// Reads `path` as an array of `T`.
///
/// # Errors
/// Names the file, and what is wrong with it: not a `.npy` file, another type or order, data that does not fit the shape.
pub fn read<T: Element>(path: &Path) -> Result<Array<T>> {
    let read = || {
        // A pipe might never end, nor begin.
        let there = fs::metadata(path)?;
        ensure!(there.is_file(), "not a file with an end");
        // Its bytes and its elements are held at the same time.
        let size = there.len();
        if let Some(memory) = machine::memory() {
            ensure!(size <= memory / 4, "{} are too many for a memory of {}", bytes(size), bytes(memory));
        }
        Ok(fs::read(path)?)
    };
    let bytes = read().with_context(|| path.display().to_string())?;
    parse(&bytes).with_context(|| path.display().to_string())
}

fn parse<T: Element>(bytes: &[u8]) -> Result<Array<T>> {
    let (header, data) = split(bytes)?;
    let descr = text_of(header, "descr")?;
    ensure!(field(header, "fortran_order")?.starts_with("False"), "Fortran order is not supported");
    let Some((size, decode)) = T::decoder(descr) else {
        bail!("elements of type {descr:?} where {} is needed", T::NAME);
    };
    let shape = shape_of(header)?;
    let len = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).and_then(|n| n.checked_mul(size));
    ensure!(len == Some(data.len()), "{} bytes of data do not fit the shape {shape:?} of {descr}", data.len());
    Ok(Array { shape, data: data.chunks_exact(size).map(decode).collect() })
}

/// The header's text and the data behind it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC).context("not a .npy file")?;
    let (&[major, _minor], rest) = rest.split_first_chunk().context("cut off in the header")?;
    let (len, rest) = match major {
        1 => rest.split_first_chunk().map(|(len, rest)| (usize::from(u16::from_le_bytes(*len)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest)),
        _ => bail!(".npy version {major} is not supported"),
    }
    .context("cut off in the header")?;
    let (header, data) = rest.split_at_checked(len).context("cut off in the header")?;
    Ok((std::str::from_utf8(header).context("the header is not text")?, data))
}

/// What follows `'key':` in the header, a Python dictionary whose layout NumPy fixes.
fn field<'a>(header: &'a str, key: &str) -> Result<&'a str> {
    let (_, value) = header.split_once(&format!("'{key}':")).with_context(|| format!("the header has no {key}"))?;
    Ok(value.trim_start())
}

fn text_of<'a>(header: &'a str, key: &str) -> Result<&'a str> {
    let quoted = field(header, key)?.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    Ok(quoted.with_context(|| format!("the header's {key} is not a simple type"))?.0)
}

fn shape_of(header: &str) -> Result<Vec<usize>> {
    let tuple = field(header, "shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (axes, _) = tuple.context("the header's shape is no tuple")?;
    let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    axes.map(|axis| axis.parse().with_context(|| format!("the header's shape has the axis {axis:?}"))).collect()
}

/// Writes `data` as an f32 array of this shape.
///
/// # Errors
/// Those of `out`. `data` fits `shape`, which the caller has seen to.
pub fn write_f32(out: &mut impl Write, shape: &[usize], data: &[f32]) -> io::Result<()> {
    debug_assert_eq!(shape.iter().product::<usize>(), data.len());
    out.write_all(&header("<f4", shape))?;
    data.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// Writes `data` as an i32 array of this shape.
///
/// # Errors
/// As [`write_f32`].
pub fn write_i32(out: &mut impl Write, shape: &[usize], data: &[i32]) -> io::Result<()> {
    debug_assert_eq!(shape.iter().product::<usize>(), data.len());
    out.write_all(&header("<i4", shape))?;
    data.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// The version 1.0 header of an array of this type. A shape of a few axes keeps it far below the 65,535 bytes it may have.
fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let axes: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
    // Python spells a tuple of one "(n,)" and longer ones "(n, m)"; NumPy writes exactly that.
    let axes = if shape.len() == 1 { axes.trim_end() } else { axes.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({axes}), }}");
    let before = MAGIC.len() + 2 + 2;
    while !(before + text.len() + 1).is_multiple_of(ALIGNMENT) {
        text.push(' ');
    }
    text.push('\n');
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(shape: &[usize], data: &[f32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_f32(&mut bytes, shape, data).unwrap();
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_numpy() {
        // numpy.save(f, numpy.array([1.0, -2.5], dtype='<f4')) of NumPy 2.4
        let mut expected =
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }".to_vec();
        expected.resize(127, b' ');
        expected.push(b'\n');
        expected.extend([0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
        assert_eq!(written(&[2], &[1.0, -2.5]), expected);
    }

    #[test]
    fn what_is_written_reads_back() {
        for shape in [&[3][..], &[2, 3], &[0, 5], &[1, 1, 4]] {
            let data: Vec<f32> = (0..shape.iter().product()).map(|i| i as f32 - 1.5).collect();
            assert_eq!(parse::<f32>(&written(shape, &data)).unwrap(), Array { shape: shape.to_vec(), data });
        }
    }

    #[test]
    fn integers_read_back() {
        let (mut bytes, data) = (Vec::new(), [1, -1, i32::MAX, i32::MIN, 0, 7]);
        write_i32(&mut bytes, &[1, 3, 2], &data).unwrap();
        let data = data.map(i64::from).to_vec();
        assert_eq!(parse::<i64>(&bytes).unwrap(), Array { shape: vec![1, 3, 2], data });
    }

    #[test]
    fn malformed_files_are_refused() {
        let good = written(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        for cut in 0..good.len() {
            assert!(parse::<f32>(&good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(parse::<i64>(&good).unwrap_err().to_string().contains("<f4"));
        assert!(parse::<f32>(&header("<f4", &[usize::MAX, 2])).is_err());
        let at = good.windows(5).position(|w| w == b"False").unwrap();
        let fortran = [&good[..at], b"True ", &good[at + 5..]].concat();
        assert!(parse::<f32>(&fortran).unwrap_err().to_string().contains("Fortran"));
    }
}
