//! The copy of tokens to the rows of their experts, in f16: `out[r] = f16(x[stok[r]] * 2^-s[stok[r]])`, zeros in a padding row.
//!
//! No op: products here read their rows through the plan and need no copy. It is here so that what that saves can be
//! measured, from f32 and from the f16 copy that a producer may already have made, with the same bits.

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};

use super::CpuDevice;
use super::copy::for_each_group;
use super::memory::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::PlanBuffers;
use crate::tensor::{DType, Tensor};

/// The least number that f16 rounds to infinity.
const TOO_LARGE: f32 = 65520.0;

impl CpuDevice {
    /// Gathers from f32, and finds each token's exponent: 0, or as much as brings its largest number into f16's range.
    ///
    /// `x` is f32 `[T, 1, D]`, `exponents` i32 `[1, 1, T]`, `out` f16 `[max rows, 1, D]`; rows from R on stay as they were.
    ///
    /// # Errors
    /// [`DeviceError::Shape`], and [`DeviceError::Failed`] for memory of another device.
    pub fn gather(&self, x: &Tensor, plan: &PlanBuffers, exponents: &Tensor, out: &Tensor) -> Result<(), DeviceError> {
        check(x, DType::F32, plan, out)?;
        if exponents.dtype != DType::I32 || exponents.rows != 1 || exponents.width() != x.rows {
            return Err(shape("exponents are not i32 [1, 1, T]"));
        }
        let _lock = self.exclusive();
        let mut exponents = ViewMut::<i32>::of(self, exponents)?;
        let (exponents, x) = (exponents.all_mut(), View::<f32>::of(self, x)?);
        self.pool.install(|| {
            exponents.par_iter_mut().enumerate().with_min_len(8).for_each(|(token, s)| *s = exponent(x.at(token, 0)));
        });
        let exponents = &*exponents;
        self.rows(plan, out, |token, row| match exponents[token] {
            0 => row.convert_from_f32_slice(x.at(token, 0)),
            s => {
                let scale = f32::powi(2.0, -s);
                row.iter_mut().zip(x.at(token, 0)).for_each(|(row, x)| *row = f16::from_f32(x * scale));
            }
        })
    }

    /// Gathers from f16 `[T, 1, D]`, whose exponents its producer knows.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn gather_h(&self, x: &Tensor, plan: &PlanBuffers, out: &Tensor) -> Result<(), DeviceError> {
        check(x, DType::F16, plan, out)?;
        let _lock = self.exclusive();
        let x = View::<f16>::of(self, x)?;
        self.rows(plan, out, |token, row| row.copy_from_slice(x.at(token, 0)))
    }

    /// Writes the rows of a plan; `write` gets a token and its row.
    fn rows(
        &self,
        plan: &PlanBuffers,
        out: &Tensor,
        write: impl Fn(usize, &mut [f16]) + Sync,
    ) -> Result<(), DeviceError> {
        let tokens = plan.shape.tokens();
        let rows = View::<u32>::of(self, &plan.meta)?.all()[argon_plan::meta::ROWS] as usize;
        let stok = View::<i32>::of(self, &plan.stok)?;
        let Some(stok) = stok.all().get(..rows).filter(|stok| stok.iter().all(|&t| t < tokens as i32)) else {
            return Err(shape("the plan is not one of these tokens"));
        };
        let out = out.first(rows);
        let out = ViewMut::<f16>::of(self, &out)?;
        self.pool.install(|| {
            for_each_group(out, |row, _, out| match usize::try_from(stok[row]) {
                Ok(token) => write(token, out),
                Err(_) => out.fill(f16::ZERO),
            });
        });
        Ok(())
    }
}

fn check(x: &Tensor, dtype: DType, plan: &PlanBuffers, out: &Tensor) -> Result<(), DeviceError> {
    let fits = x.dtype == dtype && x.groups == 1 && x.rows == plan.shape.tokens();
    let gets = out.dtype == DType::F16 && out.groups == 1 && out.cols == x.cols && out.rows >= plan.shape.max_rows();
    if fits && gets && !out.overlaps(x) {
        Ok(())
    } else {
        Err(shape("x is not [T, 1, D] or out not f16 [max rows, 1, D]"))
    }
}

fn shape(what: &str) -> DeviceError {
    DeviceError::Shape { op: "gather", what: what.into() }
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
