//! The comparison of what two devices wrote.

use std::ops::Range;

use half::f16;

use crate::tensor::DType;

/// What memory holds before anything is written to it: a number that spoils any float sum.
pub(super) const POLLUTION: [u8; 4] = 0xDEAD_BEEF_u32.to_le_bytes();

/// The memory of one tensor after a case has run, with what lies between its elements and behind them.
pub struct Written {
    pub(super) name: String,
    /// Whether the case only reads it.
    pub(super) input: bool,
    pub(super) dtype: DType,
    /// Rows, groups, columns.
    pub(super) shape: [usize; 3],
    /// Of the first element; this and the strides are in elements.
    pub(super) offset: usize,
    /// Of rows and of groups.
    pub(super) strides: [usize; 2],
    pub(super) bytes: Vec<u8>,
}

/// The largest difference of two floats: `abs + rel * |want|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Of any number.
    pub abs: f64,
    /// As a share of the number.
    pub rel: f64,
}

/// How far two outputs are apart.
pub(super) struct Distances {
    /// Relative L2 of the tensor that is furthest off: the root mean square of its rows'.
    pub relative: f64,
    /// Where it is furthest off, in words.
    pub worst: String,
}

impl Written {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn is_float(&self) -> bool {
        matches!(self.dtype, DType::F32 | DType::F16)
    }

    /// All elements of a tensor of f32.
    pub(super) fn floats(&self) -> Vec<f32> {
        (0..self.len()).map(|i| self.value(i) as f32).collect()
    }

    /// Where element `i` is, in bytes.
    fn place(&self, i: usize) -> Range<usize> {
        let ([row_stride, group_stride], [_, groups, cols]) = (self.strides, self.shape);
        let at = self.offset + i / (groups * cols) * row_stride + i / cols % groups * group_stride + i % cols;
        at * self.dtype.bytes()..(at + 1) * self.dtype.bytes()
    }

    fn element(&self, i: usize) -> &[u8] {
        &self.bytes[self.place(i)]
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
        self.place(i).all(|b| self.bytes[b] == POLLUTION[b % 4])
    }

    /// `out[row, group, column]`, without axes of one.
    fn at(&self, i: usize) -> String {
        let [_, groups, cols] = self.shape;
        let (name, column) = (&self.name, i % cols);
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

    /// What lies between the elements and behind them is as it was.
    fn guard(&self) -> Result<(), String> {
        let mut beside = vec![true; self.bytes.len()];
        for run in (0..self.len()).step_by(self.shape[2].max(1)) {
            let start = self.place(run).start;
            beside[start..start + self.shape[2] * self.dtype.bytes()].fill(false);
        }
        let end = beside.iter().rposition(|&beside| !beside).map_or(0, |last| last + 1);
        match (0..self.bytes.len()).find(|&b| beside[b] && self.bytes[b] != POLLUTION[b % 4]) {
            Some(b) if b < end => Err(format!("byte {b} between the elements of {} was written", self.name)),
            Some(b) => Err(format!("byte {} behind the {end} of {} was written", b - end, self.name)),
            None => Ok(()),
        }
    }
}

/// Whether both are the same to the bit.
///
/// # Errors
/// Where they first differ.
pub fn same_bits(got: &[Written], want: &[Written]) -> Result<(), String> {
    got.iter().zip(want).try_for_each(|(got, want)| same(got, want))
}

fn same(got: &Written, want: &Written) -> Result<(), String> {
    match (0..got.len()).find(|&i| got.element(i) != want.element(i)) {
        Some(i) => Err(got.differs(i, want)),
        None => Ok(()),
    }
}

/// Whether what is only read is the same to the bit.
pub(super) fn same_inputs(got: &[Written], want: &[Written]) -> Result<(), String> {
    got.iter().zip(want).filter(|(got, _)| got.input).try_for_each(|(got, want)| same(got, want))
}

/// The outputs of both; inputs are other numbers where a device's rounded ones take their place.
fn outputs<'w>(got: &'w [Written], want: &'w [Written]) -> impl Iterator<Item = (&'w Written, &'w Written)> {
    got.iter().zip(want).filter(|(got, _)| !got.input)
}

/// Whether both wrote the same tensors.
pub(super) fn same_shapes(got: &[Written], want: &[Written]) -> bool {
    let same = |(got, want): (&Written, &Written)| {
        (&got.name, got.shape, got.bytes.len()) == (&want.name, want.shape, want.bytes.len())
    };
    got.len() == want.len() && got.iter().zip(want).all(same)
}

/// As [`same_bits`], and nothing else was written.
pub(super) fn exact(got: &[Written], want: &[Written]) -> Result<(), String> {
    got.iter().try_for_each(Written::guard)?;
    same_bits(got, want)
}

/// Whether every float of the outputs is within `tolerance` of the one that it should be; all else must be the same to the
/// bit, and nothing else written.
///
/// # Errors
/// What was written beside a tensor, or which element is off.
pub fn each(got: &[Written], want: &[Written], tolerance: Tolerance) -> Result<(), String> {
    let guard = |w: &Written, who: &str| w.guard().map_err(|what| format!("{who}: {what}"));
    want.iter().try_for_each(|want| guard(want, "the reference"))?;
    got.iter().try_for_each(|got| guard(got, "the device"))?;
    same_inputs(got, want)?;
    outputs(got, want).try_for_each(|(got, want)| close(got, want, tolerance))
}

fn close(got: &Written, want: &Written, Tolerance { abs, rel }: Tolerance) -> Result<(), String> {
    if !got.is_float() {
        return same(got, want);
    }
    for i in 0..got.len() {
        let (found, wanted) = (got.value(i), want.value(i));
        let limit = abs + rel * wanted.abs();
        let close = (found - wanted).abs() <= limit || found == wanted || (found.is_nan() && wanted.is_nan());
        if !close {
            return Err(format!("{} within {limit:e}", got.differs(i, want)));
        }
    }
    Ok(())
}

/// The distance of outputs of floats; integers must be the same, and what the reference leaves alone, untouched.
pub(super) fn distance(got: &[Written], want: &[Written]) -> Result<Distances, String> {
    got.iter().try_for_each(Written::guard)?;
    let mut furthest = Distances { relative: 0.0, worst: String::new() };
    for (got, want) in outputs(got, want) {
        if !got.is_float() {
            same(got, want)?;
            continue;
        }
        let relative = relative(got, want)?;
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
        let shape = [values.len() / 2, 1, 2];
        vec![Written { name: "out".into(), input: false, dtype: DType::F32, shape, offset: 0, strides: [2; 2], bytes }]
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
    fn elements_beyond_their_tolerance_are_named() {
        let fails =
            |got: &[f32], want: &[f32], abs, rel| each(&floats(got), &floats(want), Tolerance { abs, rel }).err();
        assert_eq!(fails(&[1.0, 5.0], &[1.0, 4.0], 0.0, 0.25), None);
        assert_eq!(fails(&[1.0, 5.0], &[1.0, 4.0], 0.2, 0.2), None);
        assert_eq!(fails(&[1.0, 5.0], &[1.0, 4.0], 0.5, 0.0).unwrap(), "out[1] is 5, should be 4 within 5e-1");
        assert_eq!(fails(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY], 0.0, 0.0), None);
        assert_eq!(fails(&[1.0, f32::NAN], &[1.0, 4.0], 9.0, 9.0).unwrap(), "out[1] is NaN, should be 4 within 4.5e1");
    }

    #[test]
    fn an_input_is_the_same_to_the_bit() {
        let loose = Tolerance { abs: 9.0, rel: 9.0 };
        let [mut got, want] = [[1.0, 3.0], [1.0, 4.0]].map(|values| floats(&values));
        assert_eq!(each(&got, &want, loose), Ok(()));
        got[0].input = true;
        assert_eq!(each(&got, &want, loose).unwrap_err(), "out[1] is 3, should be 4");
        assert_eq!(same_inputs(&got, &want).unwrap_err(), "out[1] is 3, should be 4");
    }

    #[test]
    fn what_lies_between_and_behind_elements_is_left_alone() {
        // Elements in the first and the third word.
        let [first] = &mut floats(&[1.0, UNWRITTEN, 2.0, UNWRITTEN])[..] else { unreachable!("one tensor") };
        (first.shape, first.strides) = ([2, 1, 1], [2, 1]);
        assert_eq!(first.guard(), Ok(()));
        first.bytes[14] = 0;
        assert_eq!(first.guard().unwrap_err(), "byte 2 behind the 12 of out was written");
        first.bytes[5] = 0;
        assert_eq!(first.guard().unwrap_err(), "byte 5 between the elements of out was written");
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
