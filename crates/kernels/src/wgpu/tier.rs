//! Which kernels a device runs: by what its adapter has, and by what its tests at start-up found.

use std::fmt::{Display, Formatter, Result};

use super::tune::Matrix;

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
    /// Cooperative matrices; they are of f16, so without that there are none either.
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

impl Display for Tier {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
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
