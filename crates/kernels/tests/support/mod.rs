//! What the tests of products share: random weights, and products of random operands beside the reference.

pub mod product;
pub mod weights;
