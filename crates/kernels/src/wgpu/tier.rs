//! Which kernels a device runs: by what its adapter has, and by what its tests at start-up found.

use std::fmt::{self, Display, Formatter};

use super::tune::Matrix;
use crate::device::DeviceError;

/// The kernels of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// How products are made.
    pub products: Products,
    /// The sizes of its subgroups, where kernels use them.
    pub subgroups: Option<Sizes>,
}

/// How products are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// f32 operands in shared memory: any adapter.
    F32Tiles,
    /// f16 operands in shared memory, for products in f16.
    F16Tiles,
    /// Cooperative matrices of f16 operands, for products in f16.
    Cooperative(Matrix),
}

/// How many threads the subgroups had that a test at start-up saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of the smallest.
    pub least: u32,
    /// Of the largest.
    pub most: u32,
}

/// What kernels may use of an adapter that has it: everything, except in tests of the kernels that do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// f16 arithmetic.
    pub f16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Cooperative matrices; they are of f16 and belong to subgroups, so without either there are none.
    pub matrices: bool,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { f16: true, subgroups: true, matrices: true }
    }
}

impl Tier {
    /// What every adapter can do.
    pub(super) const PORTABLE: Tier = Tier { products: Products::F32Tiles, subgroups: None };
}

/// The ways to make products in f16 that an adapter has, the fastest first.
pub(super) fn offered(matrix: Option<Matrix>, f16: bool) -> Vec<Products> {
    matrix.map(Products::Cooperative).into_iter().chain(f16.then_some(Products::F16Tiles)).collect()
}

/// The first of the ways offered that passes its test, else what every adapter has; notes those that do not.
pub(super) fn first_that_passes(
    offered: &[Products],
    failures: &mut Vec<String>,
    mut test: impl FnMut(Products) -> Result<bool, DeviceError>,
) -> Products {
    for &products in offered {
        let what = if products == Products::F16Tiles { "f16 arithmetic" } else { "f16 matrices" };
        match test(products) {
            Ok(true) => return products,
            other => failures.push(failure(what, other.err())),
        }
    }
    Products::F32Tiles
}

/// What a device's name says of a test that failed.
pub(super) fn failure(what: &str, why: Option<DeviceError>) -> String {
    format!(": its {what} failed their test{}", why.map_or(String::new(), |why| format!(" ({why})")))
}

impl Display for Tier {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.products {
            Products::F32Tiles => f.write_str("portable f32 tiles")?,
            Products::F16Tiles => f.write_str("portable f16 tiles")?,
            Products::Cooperative(Matrix { size, subgroup, .. }) => {
                write!(f, "cooperative {size}x{size} by {subgroup} threads")?;
            }
        }
        match self.subgroups {
            None => f.write_str(", no subgroups"),
            Some(Sizes { least, most }) if least == most => write!(f, ", subgroups of {least}"),
            Some(Sizes { least, most }) => write!(f, ", subgroups of {least} to {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wgpu::tune::MATRICES;

    /// Whatever fails, the next way is taken, and in the end f32.
    #[test]
    fn what_fails_its_test_is_done_without() {
        let matrices = Products::Cooperative(MATRICES[2]);
        assert!(offered(None, false).is_empty());
        assert_eq!(offered(None, true), [Products::F16Tiles]);
        let all = offered(Some(MATRICES[2]), true);
        assert_eq!(all, [matrices, Products::F16Tiles]);
        let refused = || DeviceError::Failed { device: "wgpu:0".into(), what: "no".into() };
        let choose = |passes: &[Products], error: bool| {
            let mut failures = Vec::new();
            let chosen = first_that_passes(&all, &mut failures, |products| match passes.contains(&products) {
                false if error => Err(refused()),
                right => Ok(right),
            });
            (chosen, failures.concat())
        };
        assert_eq!(choose(&all, false), (matrices, String::new()));
        assert_eq!(
            choose(&[Products::F16Tiles], false),
            (Products::F16Tiles, ": its f16 matrices failed their test".into())
        );
        let (chosen, said) = choose(&[], true);
        assert_eq!(chosen, Products::F32Tiles);
        assert_eq!(said.matches(&refused().to_string()).count(), 2, "{said}");
    }

    #[test]
    fn a_tier_says_what_it_is_made_of() {
        let tier = |products, subgroups| Tier { products, subgroups }.to_string();
        let sizes = |least, most| Some(Sizes { least, most });
        assert_eq!(tier(Products::F32Tiles, None), "portable f32 tiles, no subgroups");
        assert_eq!(tier(Products::F16Tiles, sizes(8, 32)), "portable f16 tiles, subgroups of 8 to 32");
        assert_eq!(
            tier(Products::Cooperative(MATRICES[2]), sizes(32, 32)),
            "cooperative 16x16 by 32 threads, subgroups of 32"
        );
    }
}
