//! The comparison of what two devices wrote.

use half::f16;

use crate::tensor::DType;

/// What memory holds before anything is written to it: a number that spoils any float sum.
pub const POLLUTION: [u8; 4] = 0xDEAD_BEEF_u32.to_le_bytes();

/// One output with the words behind it.
pub struct Written {
    pub name: &'static str,
    pub dtype: DType,
    pub shape: [usize; 3],
    pub bytes: Vec<u8>,
}

/// How far two outputs are apart.
pub struct Distances {
    /// Relative L2 of the tensor that is furthest off: the root mean square of its rows'.
    pub relative: f64,
    /// Where it is furthest off, in words.
    pub worst: String,
}

impl Written {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// All elements of a tensor of f32.
    pub fn floats(&self) -> Vec<f32> {
        (0..self.len()).map(|i| self.value(i) as f32).collect()
    }

    fn element(&self, i: usize) -> &[u8] {
        let size = self.dtype.bytes();
        &self.bytes[i * size..(i + 1) * size]
    }

    fn value(&self, i: usize) -> f64 {
        let bytes = self.element(i);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        match self.dtype {
            DType::F32 => f32::from_bits(word(bytes)).into(),
            DType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
            DType::I32 => (word(bytes) as i32).into(),
            DType::U32 => word(bytes).into(),
        }
    }

    /// Whether nothing was written to element `i`.
    fn untouched(&self, i: usize) -> bool {
        let (size, bytes) = (self.dtype.bytes(), self.element(i));
        (0..size).all(|b| bytes[b] == POLLUTION[(i * size + b) % 4])
    }

    /// `out[row, group, column]`, without axes of one.
    fn at(&self, i: usize) -> String {
        let [_, groups, cols] = self.shape;
        let (name, column) = (self.name, i % cols);
        match (i / (groups * cols), i / cols % groups) {
            (row, group) if groups > 1 => format!("{name}[{row}, {group}, {column}]"),
            (row, _) if self.shape[0] > 1 => format!("{name}[{row}, {column}]"),
            _ => format!("{name}[{column}]"),
        }
    }

    fn differs(&self, i: usize, want: &Written) -> String {
        let shown = |w: &Written| if w.untouched(i) { String::from("not written") } else { w.value(i).to_string() };
        format!("{} is {}, should be {}", self.at(i), shown(self), shown(want))
    }

    /// The words behind the elements are as they were.
    fn guard(&self) -> Result<(), String> {
        let end = self.len() * self.dtype.bytes();
        match (end..self.bytes.len()).find(|&b| self.bytes[b] != POLLUTION[b % 4]) {
            Some(b) => Err(format!("byte {} behind the {end} of {} was written", b - end, self.name)),
            None => Ok(()),
        }
    }
}

/// Whether both are the same to the bit; else where they first differ.
pub fn same_bits(got: &[Written], want: &[Written]) -> Result<(), String> {
    got.iter().zip(want).try_for_each(|(got, want)| match (0..got.len()).find(|&i| got.element(i) != want.element(i)) {
        Some(i) => Err(got.differs(i, want)),
        None => Ok(()),
    })
}

/// Whether both wrote the same tensors.
pub fn same_shapes(got: &[Written], want: &[Written]) -> bool {
    let shapes = |all: &[Written]| all.iter().map(|w| (w.name, w.shape, w.bytes.len())).collect::<Vec<_>>();
    shapes(got) == shapes(want)
}

/// As [`same_bits`], and nothing else was written.
pub fn exact(got: &[Written], want: &[Written]) -> Result<(), String> {
    got.iter().try_for_each(Written::guard)?;
    same_bits(got, want)
}

/// The distance of floats; integers must be the same, and what the reference leaves alone, untouched.
pub fn distance(got: &[Written], want: &[Written]) -> Result<Distances, String> {
    got.iter().try_for_each(Written::guard)?;
    let mut furthest = Distances { relative: 0.0, worst: String::new() };
    for (got, want) in got.iter().zip(want) {
        let relative = match got.dtype {
            DType::F32 | DType::F16 => relative(got, want)?,
            DType::I32 | DType::U32 => {
                same_bits(std::slice::from_ref(got), std::slice::from_ref(want))?;
                continue;
            }
        };
        // A NaN is further than anything.
        if relative.relative.is_nan() || relative.relative > furthest.relative {
            furthest = relative;
        }
        if furthest.relative.is_nan() {
            break;
        }
    }
    Ok(furthest)
}

/// The root of the mean over rows of the square of each row's relative L2 distance, so that a small row counts like a large
/// one. Rows that should be zero are measured by the others.
fn relative(got: &Written, want: &Written) -> Result<Distances, String> {
    let (mut rows, mut worst) = (Vec::new(), (0, -1.0));
    let width = got.shape[1] * got.shape[2];
    for row in 0..got.shape[0] {
        let (mut difference, mut size) = (0.0, 0.0);
        for i in row * width..(row + 1) * width {
            let (written, expected) = (!got.untouched(i), !want.untouched(i));
            let (found, wanted) = (got.value(i), want.value(i));
            if written != expected || (expected && found != wanted && !(found - wanted).is_finite()) {
                return Err(got.differs(i, want));
            }
            if !expected {
                continue;
            }
            let square = if found == wanted { 0.0 } else { (found - wanted).powi(2) };
            (difference, size) = (difference + square, size + wanted * wanted);
            if square > worst.1 {
                worst = (i, square);
            }
        }
        if size > 0.0 || difference > 0.0 {
            rows.push((difference, size));
        }
    }
    let mean = rows.iter().map(|row| row.1).sum::<f64>() / rows.len().max(1) as f64;
    let share = |&(difference, size): &(f64, f64)| match (size > 0.0, mean > 0.0) {
        (true, _) => difference / size,
        (false, true) => difference / mean,
        (false, false) => difference,
    };
    let relative = (rows.iter().map(share).sum::<f64>() / rows.len().max(1) as f64).sqrt();
    let worst = if worst.1 > 0.0 { format!("worst, {}", got.differs(worst.0, want)) } else { String::new() };
    Ok(Distances { relative, worst })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<Written> {
        let mut bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        bytes.extend(POLLUTION);
        vec![Written { name: "out", dtype: DType::F32, shape: [values.len() / 2, 1, 2], bytes }]
    }

    const UNWRITTEN: f32 = f32::from_bits(0xDEAD_BEEF);

    #[test]
    fn distances_of_known_numbers() {
        let found = |got, want| distance(&floats(got), &floats(want)).unwrap();
        // Half of the rows are off by a fifth of them.
        let some = found(&[3.0, 4.0, 3.0, 5.0], &[3.0, 4.0, 3.0, 4.0]);
        assert_eq!(some.relative, (0.04f64 / 2.0).sqrt());
        assert_eq!(some.worst, "worst, out[1, 1] is 5, should be 4");
        // A small row counts like a large one; of a row of zeros, the mean of all is the measure.
        assert_eq!(found(&[3e9, 4e9, 3.0, 5.0], &[3e9, 4e9, 3.0, 4.0]).relative, some.relative);
        assert_eq!(found(&[3.0, 4.0, 0.0, 1.0], &[3.0, 4.0, 0.0, 0.0]).relative, (0.08f64 / 2.0).sqrt());
        let same = distance(&floats(&[3.0, UNWRITTEN]), &floats(&[3.0, UNWRITTEN])).unwrap();
        assert_eq!((same.relative, same.worst.as_str()), (0.0, ""));
    }

    #[test]
    fn what_is_no_distance_is_named() {
        let fails = |got: &[f32], want: &[f32]| distance(&floats(got), &floats(want)).err();
        assert_eq!(fails(&[1.0, f32::NAN], &[1.0, 2.0]).unwrap(), "out[1] is NaN, should be 2");
        assert_eq!(fails(&[1.0, UNWRITTEN], &[1.0, 2.0]).unwrap(), "out[1] is not written, should be 2");
        assert_eq!(fails(&[1.0, 2.0], &[1.0, UNWRITTEN]).unwrap(), "out[1] is 2, should be not written");
        let mut beyond = floats(&[1.0, 2.0]);
        beyond[0].bytes[9] = 0;
        assert_eq!(exact(&beyond, &floats(&[1.0, 2.0])).unwrap_err(), "byte 1 behind the 8 of out was written");
        assert_eq!(exact(&floats(&[1.0, 0.0]), &floats(&[1.0, -0.0])).unwrap_err(), "out[1] is 0, should be -0");
    }
}
