//! The copy of tokens to the rows of their experts.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::CpuDevice;
use super::copy::for_each_group;
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::Gather;

/// The least number that f16 rounds to infinity.
const TOO_LARGE: f32 = 65520.0;

pub(super) fn gather(device: &CpuDevice, o: &Gather) -> Result<(), DeviceError> {
    let Some(exponents) = &o.exponents else {
        let x = View::<f16>::of(device, &o.x)?;
        return rows(device, o, |token, row| row.copy_from_slice(x.at(token, 0)));
    };
    let x = View::<f32>::of(device, &o.x)?;
    let mut of_token = vec![0; x.rows()];
    device.team.for_each_chunk(&mut of_token, 8, |chunk, exponents| {
        for (i, s) in exponents.iter_mut().enumerate() {
            *s = exponent(x.at(8 * chunk + i, 0));
        }
    });
    let mut exponents = ViewMut::<i32>::of(device, exponents)?;
    for (s, &token) in exponents.all_mut().iter_mut().zip(stok(device, o)?) {
        *s = usize::try_from(token).map_or(0, |token| of_token[token]);
    }
    rows(device, o, |token, row| match of_token[token] {
        0 => row.convert_from_f32_slice(x.at(token, 0)),
        s => {
            let scale = f32::powi(2.0, -s);
            row.iter_mut().zip(x.at(token, 0)).for_each(|(row, x)| *row = f16::from_f32(x * scale));
        }
    })
}

/// Writes the rows of the plan; `write` gets a token and its row.
fn rows(device: &CpuDevice, o: &Gather, write: impl Fn(usize, &mut [f16]) + Sync) -> Result<(), DeviceError> {
    let stok = stok(device, o)?;
    let out = o.out.first(stok.len());
    for_each_group(device, ViewMut::<f16>::of(device, &out)?, |row, _, out| match usize::try_from(stok[row]) {
        Ok(token) => write(token, out),
        Err(_) => out.fill(f16::ZERO),
    });
    Ok(())
}

/// The token of each row that the plan has.
fn stok<'o>(device: &CpuDevice, o: &'o Gather) -> Result<&'o [i32], DeviceError> {
    let rows = View::<u32>::of(device, &o.plan.meta)?.all()[argon_plan::meta::ROWS] as usize;
    let stok = View::<i32>::of(device, &o.plan.stok)?.all().get(..rows);
    stok.filter(|stok| stok.iter().all(|&token| token < o.x.rows as i32))
        .ok_or_else(|| DeviceError::Shape { op: "gather", what: "the plan is not one of these tokens".into() })
}

/// The least power of two by which a row is divided to be within f16's range; 0 where it is, or where it is not of numbers.
fn exponent(row: &[f32]) -> i32 {
    let top = row.iter().fold(0.0f32, |top, x| top.max(x.abs()));
    if top < TOO_LARGE || !top.is_finite() {
        return 0;
    }
    let scaled = |s: &i32| top * f32::powi(2.0, -s) < TOO_LARGE;
    (1..).find(scaled).unwrap_or(0)
}
